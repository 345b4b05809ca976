/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/ledger.h"

uint32_t
ledger_units(uint64_t bytes)
{
    uint64_t units = bytes / LEDGER_UNIT_BYTES + (bytes % LEDGER_UNIT_BYTES != 0);
    return units < UINT32_MAX ? (uint32_t)units : UINT32_MAX;
}

void
ledger_open(struct ledger *ledger, uint64_t capacity, uint32_t loaders, uint32_t default_units)
{
    uint64_t reserve = (uint64_t)loaders * default_units / (loaders <= 2 ? 2 : 4);
    uint64_t least = capacity / 100;
    uint64_t most = capacity / 10;
    ledger->capacity = capacity;
    ledger->reserve = reserve < least ? least : reserve > most ? most : reserve;
}

uint64_t
ledger_full_below(uint64_t capacity, uint32_t loaders, uint32_t default_units)
{
    uint64_t room = (uint64_t)loaders * default_units;
    if (room > capacity / 20)
        room = capacity / 20;
    return room > default_units ? room : default_units;
}
