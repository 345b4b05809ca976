/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callers whose requests have killed workers. For SUSPECT_NS after the last kill each of their
 * requests runs in a batch of its own, so that it takes no other request along. Front threads ask,
 * the loop thread charges. Of two suspects that meet in one of the places, the later one counts.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define SUSPECT_NS (60 * NS_PER_S)

enum { SUSPECT_PLACES = 256 };

/* All zero: none. */
struct suspects {
    _Atomic int64_t until_ns; /* the latest of all */
    struct {
        _Atomic uint64_t caller;
        _Atomic int64_t until_ns;
    } places[SUSPECT_PLACES];
};

static inline void
suspects_charge(struct suspects *suspects, uint64_t caller, int64_t now_ns)
{
    uint32_t place = (uint32_t)(caller % SUSPECT_PLACES);
    atomic_store_explicit(&suspects->places[place].caller, caller, memory_order_relaxed);
    atomic_store_explicit(&suspects->places[place].until_ns, now_ns + SUSPECT_NS,
                          memory_order_relaxed);
    atomic_store_explicit(&suspects->until_ns, now_ns + SUSPECT_NS, memory_order_relaxed);
}

/* Costs one load while there are no suspects. */
static inline bool
suspects_have(const struct suspects *suspects, uint64_t caller, int64_t now_ns)
{
    uint32_t place = (uint32_t)(caller % SUSPECT_PLACES);
    return now_ns < atomic_load_explicit(&suspects->until_ns, memory_order_relaxed) &&
           atomic_load_explicit(&suspects->places[place].caller, memory_order_relaxed) == caller &&
           now_ns < atomic_load_explicit(&suspects->places[place].until_ns, memory_order_relaxed);
}

static inline void
suspects_forget(struct suspects *suspects)
{
    atomic_store_explicit(&suspects->until_ns, 0, memory_order_relaxed);
}
