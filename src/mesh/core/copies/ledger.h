/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The account of a runtime's memory: rules K1 to K5 of DESIGN-rules.md, in units of 8 KiB.
 * Admission looks at `committed`, memory in use is `resident`; they differ by what is queued and
 * what is being unloaded.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { LEDGER_UNIT_BYTES = 8192 };

struct ledger {
    uint64_t capacity;
    uint64_t reserve;
    uint64_t committed;
    uint64_t claimed; /* part of `committed` that is not loading yet */
    uint64_t resident;
    uint64_t lost; /* failed unloads; part of `resident` */
};

/* Rounded up; sizes beyond measure become UINT32_MAX units, which fit nowhere. */
uint32_t ledger_units(uint64_t bytes);

/* Sets a runtime's capacity and number of loaders; commitments stay. */
void ledger_open(struct ledger *ledger, uint64_t capacity, uint32_t loaders,
                 uint32_t default_units);

/* Units that may be committed. */
static inline uint64_t
ledger_usable(const struct ledger *ledger)
{
    uint64_t taken = ledger->reserve + ledger->lost;
    return ledger->capacity > taken ? ledger->capacity - taken : 0;
}

/* Committed units beyond usable. */
static inline uint64_t
ledger_excess(const struct ledger *ledger)
{
    uint64_t usable = ledger_usable(ledger);
    return ledger->committed > usable ? ledger->committed - usable : 0;
}

/* Units that evictions must free before a load of that size begins. */
static inline uint64_t
ledger_excess_with(const struct ledger *ledger, uint32_t units)
{
    uint64_t usable = ledger_usable(ledger);
    uint64_t wanted = ledger->committed - ledger->claimed + units;
    return wanted > usable ? wanted - usable : 0;
}

/* K4: units loading or loaded beyond usable, which must go at any cost. */
static inline uint64_t
ledger_excess_admitted(const struct ledger *ledger)
{
    uint64_t excess = ledger_excess(ledger);
    return excess > ledger->claimed ? excess - ledger->claimed : 0;
}

/* K3: whether that much may be loaded now. */
static inline bool
ledger_fits(const struct ledger *ledger, uint32_t units)
{
    return ledger->resident + units <= ledger->capacity;
}

/* Units neither committed nor reserved. */
static inline uint64_t
ledger_free(const struct ledger *ledger)
{
    uint64_t usable = ledger_usable(ledger);
    return usable > ledger->committed ? usable - ledger->committed : 0;
}

enum { LEDGER_TEXT_BYTES = 32 };
/* "12.5 MiB", rounded up. */
void ledger_text(uint64_t units, char text[LEDGER_TEXT_BYTES]);

/* The parts are within their wholes. */
void ledger_check(const struct ledger *ledger);

/* P3: a node with less room than this is full. */
uint64_t ledger_full_below(uint64_t capacity, uint32_t loaders, uint32_t default_units);
