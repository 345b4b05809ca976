/* SPDX-License-Identifier: Apache-2.0 */
#include "base/duration.h"

#include <stdlib.h>
#include <string.h>

enum { MS_MAX = 1000000000 };

/* Returns the milliseconds of the unit that is all of `text` up to a digit; 0: there is none. */
static double
unit_ms(const char *text, size_t bytes)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}};
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strlen(units[i].name) == bytes && memcmp(units[i].name, text, bytes) == 0)
            return units[i].ms;
    return 0;
}

bool
duration_read(const char *text, int64_t *ms)
{
    double sum = 0;
    if (*text == '\0')
        return false;
    while (*text != '\0') {
        char *end;
        if (*text < '0' || *text > '9')
            return false;
        double number = strtod(text, &end);
        size_t bytes = strcspn(end, "0123456789");
        double unit = unit_ms(end, bytes);
        if (unit == 0 && !(number == 0 && *end == '\0'))
            return false;
        sum += number * unit;
        text = end + bytes;
    }
    if (!(sum <= MS_MAX)) /* perhaps infinite */
        return false;
    *ms = (int64_t)sum;
    return true;
}
