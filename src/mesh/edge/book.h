/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of instance records that only people need: location and address. Texts are copied and
 * valid until the next put or drop. One thread. Running out of memory ends the process.
 */
#pragma once

#include <stdint.h>

struct book_entry {
    const char *instance;
    const char *location; /* this and the next two: "": none */
    const char *zone;
    const char *address;
    uint32_t loaders;
};

struct book {
    struct book_entry
        *at; /* by instance; each entry's texts are one block that starts at `instance` */
    uint32_t count;
    uint32_t capacity;
};

void book_fini(struct book *book);
/* Replaces the instance's entry. */
void book_put(struct book *book, const struct book_entry *entry);
void book_drop(struct book *book, const char *instance);
/* NULL: none. */
const struct book_entry *book_find(const struct book *book, const char *instance);
