/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/unknown_fields.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

struct unknown_field {
    struct hash_entry entry;
    uint64_t revision;
    char *text;
    enum store_table table;
    char id[];
};

static void
extra_free(struct unknown_field *unknown_field)
{
    free(unknown_field->text);
    free(unknown_field);
}

void
unknown_fields_fini(struct unknown_fields *unknown_fields)
{
    for (struct hash_entry *at = hash_table_walk(&unknown_fields->all, NULL), *next; at != NULL;
         at = next) {
        next = hash_table_walk(&unknown_fields->all, at);
        extra_free((struct unknown_field *)at);
    }
    hash_table_fini(&unknown_fields->all);
}

/* Seeded, so that ids cannot be chosen to collide. */
static uint64_t
hash_of(const struct unknown_fields *unknown_fields, enum store_table table, const char *id)
{
    return hash_fnv1a(unknown_fields->seed ^ HASH_FNV1A_SEED ^ (uint64_t)table, id, strlen(id));
}

static struct unknown_field *
find(const struct unknown_fields *unknown_fields, enum store_table table, const char *id)
{
    struct hash_entry *at =
        hash_table_first(&unknown_fields->all, hash_of(unknown_fields, table, id));
    while (at != NULL && (((struct unknown_field *)at)->table != table ||
                          strcmp(((struct unknown_field *)at)->id, id) != 0))
        at = hash_table_next(at);
    return (struct unknown_field *)at;
}

static struct unknown_field *
add(struct unknown_fields *unknown_fields, enum store_table table, const char *id)
{
    size_t bytes = strlen(id) + 1;
    struct unknown_field *unknown_field = calloc(1, sizeof(*unknown_field) + bytes);
    CHECK(unknown_field != NULL);
    unknown_field->table = table;
    memcpy(unknown_field->id, id, bytes);
    hash_table_add(&unknown_fields->all, &unknown_field->entry, hash_of(unknown_fields, table, id));
    return unknown_field;
}

void
unknown_fields_drop(struct unknown_fields *unknown_fields, enum store_table table, const char *id,
                    uint64_t revision)
{
    struct unknown_field *unknown_field = find(unknown_fields, table, id);
    if (unknown_field == NULL || unknown_field->revision > revision)
        return;
    hash_table_remove(&unknown_fields->all, &unknown_field->entry);
    extra_free(unknown_field);
}

void
unknown_fields_set(struct unknown_fields *unknown_fields, enum store_table table, const char *id,
                   uint64_t revision, const char *text)
{
    if (text[0] == '\0') {
        unknown_fields_drop(unknown_fields, table, id, revision);
        return;
    }
    struct unknown_field *unknown_field = find(unknown_fields, table, id);
    if (unknown_field == NULL)
        unknown_field = add(unknown_fields, table, id);
    else if (unknown_field->revision > revision)
        return;
    free(unknown_field->text);
    unknown_field->text = strdup(text);
    CHECK(unknown_field->text != NULL);
    unknown_field->revision = revision;
}

void
unknown_fields_restart(struct unknown_fields *unknown_fields)
{
    for (struct hash_entry *at = hash_table_walk(&unknown_fields->all, NULL); at != NULL;
         at = hash_table_walk(&unknown_fields->all, at))
        ((struct unknown_field *)at)->revision = 0;
}

const char *
unknown_fields_get(const struct unknown_fields *unknown_fields, enum store_table table,
                   const char *id, uint64_t revision)
{
    const struct unknown_field *unknown_field = find(unknown_fields, table, id);
    return unknown_field != NULL && unknown_field->revision == revision ? unknown_field->text
                                                                        : NULL;
}

const char *
unknown_fields_find(const struct unknown_fields *unknown_fields, enum store_table table,
                    const char *id)
{
    const struct unknown_field *unknown_field = find(unknown_fields, table, id);
    return unknown_field != NULL ? unknown_field->text : NULL;
}
