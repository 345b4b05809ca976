/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/store/latches.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

void
latches_fini(struct latches *latches)
{
    for (size_t i = 0; i < latches->count; i++)
        free(latches->at[i].key);
    free(latches->at);
    *latches = (struct latches){0};
}

static struct latch *
find(const struct latches *latches, struct etcd_bytes key)
{
    for (size_t i = 0; i < latches->count; i++)
        if (latches->at[i].key_bytes == key.bytes &&
            memcmp(latches->at[i].key, key.data, key.bytes) == 0)
            return &latches->at[i];
    return NULL;
}

void
latches_put(struct latches *latches, struct etcd_bytes key, uint64_t created)
{
    struct latch *latch = find(latches, key);
    if (latch != NULL) {
        latch->created = created;
        return;
    }
    if (latches->count == latches->capacity) {
        latches->capacity = 2 * latches->capacity + 16;
        latches->at = reallocarray(latches->at, latches->capacity, sizeof(*latches->at));
        CHECK(latches->at != NULL);
    }
    char *copy = malloc(key.bytes + 1);
    CHECK(copy != NULL);
    memcpy(copy, key.data, key.bytes);
    latches->at[latches->count++] = (struct latch){copy, key.bytes, created};
}

void
latches_delete(struct latches *latches, struct etcd_bytes key)
{
    struct latch *latch = find(latches, key);
    if (latch == NULL)
        return;
    free(latch->key);
    *latch = latches->at[--latches->count];
}

const struct latch *
latches_leader(const struct latches *latches)
{
    const struct latch *first = NULL;
    for (size_t i = 0; i < latches->count; i++)
        if (first == NULL || latches->at[i].created < first->created)
            first = &latches->at[i];
    return first;
}

uint64_t
latches_first(const struct latches *latches)
{
    const struct latch *first = latches_leader(latches);
    return first == NULL ? 0 : first->created;
}
