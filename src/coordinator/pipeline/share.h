/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls in flight of each caller: callers are hashed into a table of counts. Any thread, no
 * lock; a count read while others write is an estimate, and exact otherwise. Two callers that meet
 * in one place of the table count as one. The hash is keyed with a secret, so that no caller can
 * choose to collide with another.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { SHARE_PLACES = 16384 }; /* a place fits 16 bits */

struct share {
    _Atomic uint32_t held[SHARE_PLACES];
    _Atomic uint32_t total;
    _Atomic int32_t callers; /* places with any; for a moment it may be below zero */
};

struct share_key {
    uint64_t words[2];
};

/* Draws a key from the kernel's random numbers. */
struct share_key share_key_draw(void);

/* SipHash-1-3: the identity of a caller from here on. */
uint64_t share_hash(struct share_key key, const void *bytes, size_t length);

static inline uint32_t
share_place(uint64_t caller)
{
    return (uint32_t)(caller % SHARE_PLACES);
}

static inline uint32_t
share_held(const struct share *share, uint32_t place)
{
    return atomic_load_explicit(&share->held[place], memory_order_relaxed);
}

static inline uint32_t
share_total(const struct share *share)
{
    return atomic_load_explicit(&share->total, memory_order_relaxed);
}

/* The number of callers, counting the one at `place`. */
uint32_t share_callers(const struct share *share, uint32_t place);

/* Counts one more request at the place; to be given back exactly once. */
void share_take(struct share *share, uint32_t place);
void share_give(struct share *share, uint32_t place);
