/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/copies/ledger.h"
#include "base/check.h"

#include <string.h>

enum { MIB_UNITS = (1 << 20) / LEDGER_UNIT_BYTES };

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

void
ledger_check(const struct ledger *ledger)
{
    CHECK(ledger->claimed <= ledger->committed);
    CHECK(ledger->lost <= ledger->resident); /* K5 */
    CHECK(ledger->reserve <= ledger->capacity / 10);
}

uint64_t
ledger_full_below(uint64_t capacity, uint32_t loaders, uint32_t default_units)
{
    uint64_t room = (uint64_t)loaders * default_units;
    if (room > capacity / 20)
        room = capacity / 20;
    return room > default_units ? room : default_units;
}

void
ledger_text(uint64_t units, char text[LEDGER_TEXT_BYTES])
{
    static const char mib[] = " MiB";
    const uint64_t most = UINT64_C(1) << 50; /* eighteen digits: the text has room */
    uint64_t tenths = ((units < most ? units : most) * 10 + MIB_UNITS - 1) / MIB_UNITS;
    char *at = text + LEDGER_TEXT_BYTES - sizeof(mib);
    memcpy(at, mib, sizeof(mib));
    *--at = (char)('0' + tenths % 10);
    *--at = '.';
    for (uint64_t whole = tenths / 10; whole > 0 || *at == '.'; whole /= 10)
        *--at = (char)('0' + whole % 10);
    memmove(text, at, (size_t)(text + LEDGER_TEXT_BYTES - at));
}
