/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number_text.h"

#include <stdio.h>
#include <stdlib.h>

void
number_text_double(char room[NUMBER_ROOM], double number)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(room, NUMBER_ROOM, "%.*g", digits, number);
        if (strtod(room, NULL) == number)
            return;
    }
}

void
number_text_float(char room[NUMBER_ROOM], float number)
{
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(room, NUMBER_ROOM, "%.*g", digits, (double)number);
        if (strtof(room, NULL) == number)
            return;
    }
}
