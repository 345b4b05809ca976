/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/storage/storage_entries.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"

static char *
copy(const char *text)
{
    char *copied = strdup(text);
    CHECK(copied != NULL);
    return copied;
}

struct storage_entries *
entries_make(const struct storage_entry *items, uint32_t count)
{
    struct storage_entries *entries =
        calloc(1, sizeof(*entries) + count * sizeof(entries->items[0]));
    CHECK(entries != NULL);
    entries->users = 1;
    for (; entries->count < count; entries->count++)
        entries->items[entries->count] = (struct storage_entry){copy(items[entries->count].name),
                                                                copy(items[entries->count].text)};
    return entries;
}

void
entries_free(struct storage_entries *entries)
{
    if (entries == NULL)
        return;
    for (uint32_t i = 0; i < entries->count; i++) {
        memory_free_secret((char *)(uintptr_t)entries->items[i].text);
        free((void *)(uintptr_t)entries->items[i].name);
    }
    free(entries);
}

const char *
entries_find(const struct storage_entries *entries, const char *name)
{
    for (uint32_t i = 0; entries != NULL && i < entries->count; i++)
        if (strcmp(entries->items[i].name, name) == 0)
            return entries->items[i].text;
    return NULL;
}
