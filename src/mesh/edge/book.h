/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of instances' records that are for people alone: where they are. Texts are copied,
 * those that are shown live until the next put or drop. One thread. Out of memory ends the process.
 */
#pragma once

#include <stdint.h>

struct book_entry {
    const char *instance;
    const char *location; /* this and the next two: "": it says none */
    const char *zone;
    const char *address;
    uint32_t loaders;
};

struct book {
    struct book_entry
        *at; /* by instance; each one's texts are one block, which `instance` begins */
    uint32_t count;
    uint32_t capacity;
};

void book_fini(struct book *book);
/* Instead of what was said of the same instance. */
void book_put(struct book *book, const struct book_entry *entry);
void book_drop(struct book *book, const char *instance);
/* NULL: it is not there. */
const struct book_entry *book_find(const struct book *book, const char *instance);
