/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/share.h"

#include <string.h>
#include <sys/random.h>

#include "base/check.h"

struct share_key
share_key_draw(void)
{
    struct share_key key;
    CHECK(getrandom(&key, sizeof(key), 0) == (ssize_t)sizeof(key));
    return key;
}

/* ---- the hash ---- */

static uint64_t
rotate(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64 - bits);
}

static void
rounds(uint64_t v[4], unsigned count)
{
    while (count-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32) + v[3];
        v[2] += v[1];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[2] = rotate(v[2], 32);
    }
}

/* The constants are those of the hash's definition. */
uint64_t
share_hash(struct share_key key, const void *bytes, size_t length)
{
    uint64_t v[4] = {
        key.words[0] ^ UINT64_C(0x736f6d6570736575), key.words[1] ^ UINT64_C(0x646f72616e646f6d),
        key.words[0] ^ UINT64_C(0x6c7967656e657261), key.words[1] ^ UINT64_C(0x7465646279746573)};
    const unsigned char *next = bytes;
    size_t left = length;
    for (; left >= sizeof(uint64_t); left -= sizeof(uint64_t), next += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, next, sizeof(word));
        v[3] ^= word;
        rounds(v, 1);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)length << 56;
    for (size_t i = 0; i < left; i++)
        last |= (uint64_t)next[i] << (8 * i);
    v[3] ^= last;
    rounds(v, 1);
    v[0] ^= last;
    v[2] ^= 0xff;
    rounds(v, 3);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* ---- the counts ---- */

uint32_t
share_callers(const struct share *share, uint32_t place)
{
    int32_t callers = atomic_load_explicit(&share->callers, memory_order_relaxed);
    if (share_held(share, place) == 0)
        callers++;
    return callers < 1 ? 1 : callers > SHARE_PLACES ? SHARE_PLACES : (uint32_t)callers;
}

void
share_take(struct share *share, uint32_t place)
{
    atomic_fetch_add_explicit(&share->total, 1, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&share->held[place], 1, memory_order_relaxed) == 0)
        atomic_fetch_add_explicit(&share->callers, 1, memory_order_relaxed);
}

void
share_give(struct share *share, uint32_t place)
{
    CHECK(atomic_fetch_sub_explicit(&share->total, 1, memory_order_relaxed) != 0);
    uint32_t held = atomic_fetch_sub_explicit(&share->held[place], 1, memory_order_relaxed);
    CHECK(held != 0);
    if (held == 1)
        atomic_fetch_sub_explicit(&share->callers, 1, memory_order_relaxed);
}
