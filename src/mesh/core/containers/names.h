/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interned texts: dense numbers with reference counts for ids, types and reasons. A number keeps
 * its text while it has a reference and is reused afterwards. Open addressing, linear probing,
 * backward-shift deletion; the hash is keyed because strangers choose the ids. Not a hash_table.h:
 * the entries are in an array, so that a number finds its text, and move when it grows.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define NAME_NONE UINT32_MAX

struct name {
    char *text; /* malloc'ed; NULL: free */
    uint32_t hash;
    uint32_t references; /* free: the next free number */
};

struct names {
    struct name *at;
    uint32_t *slots; /* number + 1, 0: empty; a power of two, at most half full */
    uint64_t key;
    uint32_t limit; /* numbers are below this */
    uint32_t used;  /* numbers given out so far, including free ones */
    uint32_t capacity;
    uint32_t slot_count;
    uint32_t live;
    uint32_t first_free;
};

void names_init(struct names *names, uint32_t limit, uint64_t key);
void names_fini(struct names *names);

/* NAME_NONE: not interned. */
uint32_t names_find(const struct names *names, const char *text);

/* Returns the text's number with one more reference. NAME_NONE: the limit is reached. */
uint32_t names_hold(struct names *names, const char *text);
/* Adds a reference to a number that has one. */
void names_keep(struct names *names, uint32_t number);
void names_release(struct names *names, uint32_t number);

/* Each text is where a search finds it, and each number is in use or free. O(numbers). */
void names_check(const struct names *names);

static inline const char *
names_text(const struct names *names, uint32_t number)
{
    return names->at[number].text;
}
