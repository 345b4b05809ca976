/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/store/candidates.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

void
candidates_fini(struct candidates *candidates)
{
    for (size_t i = 0; i < candidates->count; i++)
        free(candidates->at[i].key);
    free(candidates->at);
    *candidates = (struct candidates){0};
}

static struct candidate *
find(const struct candidates *candidates, struct etcd_bytes key)
{
    for (size_t i = 0; i < candidates->count; i++)
        if (candidates->at[i].key_bytes == key.bytes &&
            memcmp(candidates->at[i].key, key.data, key.bytes) == 0)
            return &candidates->at[i];
    return NULL;
}

void
candidates_put(struct candidates *candidates, struct etcd_bytes key, uint64_t created)
{
    struct candidate *candidate = find(candidates, key);
    if (candidate != NULL) {
        candidate->created = created;
        return;
    }
    if (candidates->count == candidates->capacity) {
        candidates->capacity = 2 * candidates->capacity + 16;
        candidates->at =
            reallocarray(candidates->at, candidates->capacity, sizeof(*candidates->at));
        CHECK(candidates->at != NULL);
    }
    char *copy = malloc(key.bytes + 1);
    CHECK(copy != NULL);
    memcpy(copy, key.data, key.bytes);
    candidates->at[candidates->count++] = (struct candidate){copy, key.bytes, created};
}

void
candidates_delete(struct candidates *candidates, struct etcd_bytes key)
{
    struct candidate *candidate = find(candidates, key);
    if (candidate == NULL)
        return;
    free(candidate->key);
    *candidate = candidates->at[--candidates->count];
}

const struct candidate *
candidates_leader(const struct candidates *candidates)
{
    const struct candidate *first = NULL;
    for (size_t i = 0; i < candidates->count; i++)
        if (first == NULL || candidates->at[i].created < first->created)
            first = &candidates->at[i];
    return first;
}

uint64_t
candidates_first(const struct candidates *candidates)
{
    const struct candidate *first = candidates_leader(candidates);
    return first == NULL ? 0 : first->created;
}
