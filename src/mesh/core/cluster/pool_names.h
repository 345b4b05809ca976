/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the pool of an instance that takes a model (K6). Names are compared as numbers: two names
 * of one number, which chance makes once in four billion, share a pool as if one list had both.
 */
#pragma once

#include <stdint.h>

enum {
    POOL_NAME_UNKNOWN, /* of a model: not asked yet */
    POOL_NAME_OTHER,   /* no name; in a list: all that no other pool names */
};

/* The names in the order of the lists, with the catch-all last. */
struct pool_names {
    uint32_t count;
    struct pool_name {
        uint32_t name;
        uint32_t pool;
    } at[];
};

#define POOL_UNNAMED UINT32_MAX

uint32_t pool_name_number(const char *name);

/* Reads `pool_count` lists, as in mesh_config; malloc'ed. */
struct pool_names *pool_names_create(const char *const *lists, uint32_t pool_count);

/* The pool that takes models of that name; POOL_UNNAMED: none, or nothing is known of them. */
uint32_t pool_names_find(const struct pool_names *names, uint32_t name);
