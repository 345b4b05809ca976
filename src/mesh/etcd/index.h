/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys that a mirror has told of, with the revision of each: what a new listing is compared
 * with. A hash table with chains; it grows and does not shrink.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mesh/etcd/etcd.h"

struct etcd_index_entry {
    struct etcd_index_entry *next;
    uint64_t hash;
    int64_t mod_revision;
    uint32_t listing; /* the last that had it */
    uint32_t key_bytes;
    uint32_t range_index;
    unsigned char key[];
};

struct etcd_index {
    struct etcd_index_entry **slots;
    size_t slot_count; /* a power of two; 0 before the first key */
    size_t count;
    uint64_t seed;
};

void etcd_index_fini(struct etcd_index *index);
struct etcd_index_entry *etcd_index_find(const struct etcd_index *index, struct etcd_bytes key);
/* The entry there is, or a new one with all numbers 0. */
struct etcd_index_entry *etcd_index_add(struct etcd_index *index, struct etcd_bytes key);
/* Takes it out; it is the caller's to free(). */
void etcd_index_remove(struct etcd_index *index, struct etcd_index_entry *entry);
/* Some entry of another listing, looked for from slot `*at` on, which follows; NULL: no more. */
struct etcd_index_entry *etcd_index_unlisted(const struct etcd_index *index, uint32_t listing,
                                             size_t *at);
