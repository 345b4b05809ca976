/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The account of a runtime's memory, promised and used: rules K1 to K5 of DESIGN-rules.md. Sizes in
 * units of 8 KiB. `committed` is what admission looks at, `resident` what there is; they differ by
 * what is queued and by what is being unloaded.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { LEDGER_UNIT_BYTES = 8192 };

struct ledger {
    uint64_t capacity;
    uint64_t reserve;
    uint64_t committed;
    uint64_t claimed; /* part of `committed` that does not load yet: nobody goes for it */
    uint64_t resident;
    uint64_t lost; /* unloads that failed; part of `resident` */
};

/* Rounded up; what is beyond all measure becomes UINT32_MAX units, which fit nowhere. */
uint32_t ledger_units(uint64_t bytes);

/* A runtime of that capacity, which loads so many at once; what is promised and used stays. */
void ledger_open(struct ledger *ledger, uint64_t capacity, uint32_t loaders,
                 uint32_t default_units);

/* The units that may be committed. */
static inline uint64_t
ledger_usable(const struct ledger *ledger)
{
    uint64_t taken = ledger->reserve + ledger->lost;
    return ledger->capacity > taken ? ledger->capacity - taken : 0;
}

/* How much more is committed than may be. */
static inline uint64_t
ledger_excess(const struct ledger *ledger)
{
    uint64_t usable = ledger_usable(ledger);
    return ledger->committed > usable ? ledger->committed - usable : 0;
}

/* The units that evictions must free before a load of that size begins. */
static inline uint64_t
ledger_excess_with(const struct ledger *ledger, uint32_t units)
{
    uint64_t usable = ledger_usable(ledger);
    uint64_t wanted = ledger->committed - ledger->claimed + units;
    return wanted > usable ? wanted - usable : 0;
}

/* How much more loads or is loaded than may be: what must go at any cost (K4). */
static inline uint64_t
ledger_excess_admitted(const struct ledger *ledger)
{
    uint64_t excess = ledger_excess(ledger);
    return excess > ledger->claimed ? excess - ledger->claimed : 0;
}

/* K3: so much may be loaded now. */
static inline bool
ledger_fits(const struct ledger *ledger, uint32_t units)
{
    return ledger->resident + units <= ledger->capacity;
}

/* Room that is neither committed nor kept back. */
static inline uint64_t
ledger_free(const struct ledger *ledger)
{
    uint64_t usable = ledger_usable(ledger);
    return usable > ledger->committed ? usable - ledger->committed : 0;
}

enum { LEDGER_TEXT_BYTES = 32 };
/* "12.5 MiB", rounded up. */
void ledger_text(uint64_t units, char text[LEDGER_TEXT_BYTES]);

/* P3: below this much room a node counts as full. */
uint64_t ledger_full_below(uint64_t capacity, uint32_t loaders, uint32_t default_units);
