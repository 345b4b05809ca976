/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/extras.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

enum { SLOTS_FIRST = 16 };

struct extra {
    struct extra *next;
    uint64_t hash;
    uint64_t revision;
    char *text;
    enum store_table table;
    char id[];
};

void
extras_fini(struct extras *extras)
{
    for (size_t i = 0; i < extras->slot_count; i++)
        for (struct extra *extra = extras->slots[i]; extra != NULL;) {
            struct extra *next = extra->next;
            free(extra->text);
            free(extra);
            extra = next;
        }
    free(extras->slots);
    *extras = (struct extras){.seed = extras->seed};
}

/* From a seed that nobody outside knows. */
static uint64_t
hash_of(const struct extras *extras, enum store_table table, const char *id)
{
    uint64_t seed = extras->seed ^ HASH_FNV1A_SEED ^ (uint64_t)table;
    uint64_t hash = hash_fnv1a(seed, id, strlen(id));
    return hash ^ hash >> 29;
}

/* The link to it, or the one at the end of its chain. */
static struct extra **
link_of(const struct extras *extras, uint64_t hash, enum store_table table, const char *id)
{
    struct extra **link = &extras->slots[hash & (extras->slot_count - 1)];
    while (*link != NULL &&
           ((*link)->hash != hash || (*link)->table != table || strcmp((*link)->id, id) != 0))
        link = &(*link)->next;
    return link;
}

static void
grow(struct extras *extras)
{
    size_t slot_count = extras->slot_count == 0 ? SLOTS_FIRST : 2 * extras->slot_count;
    struct extra **slots = calloc(slot_count, sizeof(struct extra *));
    CHECK(slots != NULL);
    for (size_t i = 0; i < extras->slot_count; i++)
        for (struct extra *extra = extras->slots[i]; extra != NULL;) {
            struct extra *next = extra->next;
            extra->next = slots[extra->hash & (slot_count - 1)];
            slots[extra->hash & (slot_count - 1)] = extra;
            extra = next;
        }
    free(extras->slots);
    extras->slots = slots;
    extras->slot_count = slot_count;
}

static void
unlink_extra(struct extras *extras, struct extra **link)
{
    struct extra *extra = *link;
    *link = extra->next;
    free(extra->text);
    free(extra);
    extras->count--;
}

void
extras_drop(struct extras *extras, enum store_table table, const char *id, uint64_t revision)
{
    if (extras->slot_count == 0)
        return;
    struct extra **link = link_of(extras, hash_of(extras, table, id), table, id);
    if (*link != NULL && (*link)->revision <= revision)
        unlink_extra(extras, link);
}

void
extras_set(struct extras *extras, enum store_table table, const char *id, uint64_t revision,
           const char *text)
{
    if (text[0] == '\0') {
        extras_drop(extras, table, id, revision);
        return;
    }
    if (extras->count >= extras->slot_count)
        grow(extras);
    uint64_t hash = hash_of(extras, table, id);
    struct extra **link = link_of(extras, hash, table, id);
    if (*link == NULL) {
        size_t bytes = strlen(id) + 1;
        *link = calloc(1, sizeof(**link) + bytes);
        CHECK(*link != NULL);
        (*link)->hash = hash;
        (*link)->table = table;
        memcpy((*link)->id, id, bytes);
        extras->count++;
    } else if ((*link)->revision > revision)
        return;
    free((*link)->text);
    (*link)->text = strdup(text);
    CHECK((*link)->text != NULL);
    (*link)->revision = revision;
}

void
extras_restart(struct extras *extras)
{
    for (size_t i = 0; i < extras->slot_count; i++)
        for (struct extra *extra = extras->slots[i]; extra != NULL; extra = extra->next)
            extra->revision = 0;
}

static const struct extra *
find(const struct extras *extras, enum store_table table, const char *id)
{
    return extras->slot_count == 0 ? NULL : *link_of(extras, hash_of(extras, table, id), table, id);
}

const char *
extras_get(const struct extras *extras, enum store_table table, const char *id, uint64_t revision)
{
    const struct extra *extra = find(extras, table, id);
    return extra != NULL && extra->revision == revision ? extra->text : NULL;
}

const char *
extras_find(const struct extras *extras, enum store_table table, const char *id)
{
    const struct extra *extra = find(extras, table, id);
    return extra != NULL ? extra->text : NULL;
}
