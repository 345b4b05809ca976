/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/book.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

void
book_fini(struct book *book)
{
    for (uint32_t i = 0; i < book->count; i++)
        free((void *)(uintptr_t)book->at[i].instance);
    free(book->at);
    *book = (struct book){0};
}

/* The index of the entry, or where it belongs. */
static uint32_t
place_of(const struct book *book, const char *instance)
{
    uint32_t first = 0;
    uint32_t end = book->count;
    while (first < end) {
        uint32_t middle = first + (end - first) / 2;
        if (strcmp(book->at[middle].instance, instance) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

static bool
is_at(const struct book *book, uint32_t place, const char *instance)
{
    return place < book->count && strcmp(book->at[place].instance, instance) == 0;
}

/* Copies its texts into one block. */
static struct book_entry
copy_of(const struct book_entry *entry)
{
    struct book_entry copy = *entry;
    const char **texts[] = {&copy.instance, &copy.location, &copy.zone, &copy.address};
    size_t bytes = 0;
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        bytes += strlen(*texts[i]) + 1;
    char *to = malloc(bytes);
    CHECK(to != NULL);
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        size_t length = strlen(*texts[i]) + 1;
        *texts[i] = memcpy(to, *texts[i], length);
        to += length;
    }
    return copy;
}

static void
make_room(struct book *book, uint32_t place)
{
    if (book->count == book->capacity) {
        book->capacity = 2 * book->capacity + 16;
        book->at = reallocarray(book->at, book->capacity, sizeof(*book->at));
        CHECK(book->at != NULL);
    }
    memmove(&book->at[place + 1], &book->at[place], (book->count - place) * sizeof(*book->at));
    book->count++;
}

void
book_put(struct book *book, const struct book_entry *entry)
{
    uint32_t place = place_of(book, entry->instance);
    struct book_entry copy = copy_of(entry);
    if (is_at(book, place, entry->instance))
        free((void *)(uintptr_t)book->at[place].instance);
    else
        make_room(book, place);
    book->at[place] = copy;
}

void
book_drop(struct book *book, const char *instance)
{
    uint32_t place = place_of(book, instance);
    if (!is_at(book, place, instance))
        return;
    free((void *)(uintptr_t)book->at[place].instance);
    book->count--;
    memmove(&book->at[place], &book->at[place + 1], (book->count - place) * sizeof(*book->at));
}

const struct book_entry *
book_find(const struct book *book, const char *instance)
{
    uint32_t place = place_of(book, instance);
    return is_at(book, place, instance) ? &book->at[place] : NULL;
}
