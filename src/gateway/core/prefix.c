/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contents of servers' prefix caches, approximately. The reference keeps a linked LRU per
   server;
 * sets of eight need a third of its memory and no links, and forget nearly the same blocks.
 */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "gateway/core/state.h"

uint64_t
gateway_name_hash(const void *name, size_t bytes)
{
    uint64_t hash = XXH64(name, bytes, 0);
    return hash != 0 ? hash : 1;
}

uint32_t
gateway_prefix_hash(uint64_t model, const void *prompt, size_t bytes,
                    uint64_t blocks[GATEWAY_BLOCKS_MAX])
{
    const char *at = prompt;
    uint64_t before = model;
    uint32_t count = 0;
    for (; bytes >= GATEWAY_BLOCK_BYTES && count < GATEWAY_BLOCKS_MAX; count++) {
        char block[GATEWAY_BLOCK_BYTES + sizeof(before)];
        memcpy(block, at, GATEWAY_BLOCK_BYTES);
        memcpy(block + GATEWAY_BLOCK_BYTES, &before, sizeof(before));
        before = gateway_name_hash(block, sizeof(block));
        blocks[count] = before;
        at += GATEWAY_BLOCK_BYTES;
        bytes -= GATEWAY_BLOCK_BYTES;
    }
    return count;
}

void
prefix_init(struct prefix_index *index, uint32_t capacity)
{
    CHECK(capacity >= PREFIX_WAYS && (capacity & (capacity - 1)) == 0);
    index->hashes = calloc(capacity, sizeof(*index->hashes));
    CHECK(index->hashes != NULL);
    index->capacity = capacity;
}

void
prefix_fini(struct prefix_index *index)
{
    free(index->hashes);
    *index = (struct prefix_index){NULL, 0};
}

void
prefix_clear(struct prefix_index *index)
{
    memset(index->hashes, 0, index->capacity * sizeof(*index->hashes));
}

static uint64_t *
set_of(const struct prefix_index *index, uint64_t hash)
{
    return index->hashes + (hash & (index->capacity - 1) & ~(uint64_t)(PREFIX_WAYS - 1));
}

static uint32_t
way_of(const uint64_t *set, uint64_t hash)
{
    uint32_t way = 0;
    while (way < PREFIX_WAYS && set[way] != hash)
        way++;
    return way;
}

uint32_t
prefix_match(const struct prefix_index *index, const struct gateway_ask *ask)
{
    uint32_t count = 0;
    while (count < ask->block_count) {
        uint64_t hash = ask->blocks[count] ^ ask->salt;
        if (way_of(set_of(index, hash), hash) == PREFIX_WAYS)
            break;
        count++;
    }
    return count;
}

void
prefix_add(struct prefix_index *index, const struct gateway_ask *ask)
{
    for (uint32_t i = 0; i < ask->block_count; i++) {
        uint64_t hash = ask->blocks[i] ^ ask->salt;
        uint64_t *set = set_of(index, hash);
        uint32_t way = way_of(set, hash);
        if (way == PREFIX_WAYS)
            way--;
        memmove(set + 1, set, way * sizeof(*set));
        set[0] = hash;
    }
}
