/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/runtimes/amount.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static const struct {
    const char *name;
    long double factor;
} units[] = {
    {"", 1e3L},
    {"m", 1.0L},
    {"k", 1e6L},
    {"M", 1e9L},
    {"G", 1e12L},
    {"T", 1e15L},
    {"P", 1e18L},
    {"E", 1e21L},
    {"Ki", 1e3L * 1024},
    {"Mi", 1e3L * 1048576},
    {"Gi", 1e3L * 1073741824},
    {"Ti", 1e3L * 1099511627776},
    {"Pi", 1e3L * 1125899906842624},
    {"Ei", 1e3L * 1152921504606846976},
};

uint64_t
amount_milli(const char *text)
{
    char *end;
    long double number = strtold(text, &end);
    for (size_t i = 0; i < ARRAY_COUNT(units); i++)
        if (strcmp(end, units[i].name) == 0)
            number = ceill(number * units[i].factor);
    return number < (long double)UINT64_MAX ? (uint64_t)number : UINT64_MAX;
}

uint64_t
amount_divide(uint64_t milli, uint64_t divisor_milli)
{
    if (divisor_milli == 0)
        divisor_milli = 1;
    return milli / divisor_milli + (milli % divisor_milli != 0);
}
