/* SPDX-License-Identifier: Apache-2.0 */
#include "base/percent.h"

#include "base/hex.h"

void
percent_decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        int high = *from == '%' ? hex_digit(from[1]) : -1;
        int low = high >= 0 ? hex_digit(from[2]) : -1;
        int byte = low >= 0 ? high << 4 | low : 0;
        *to = byte != 0 ? (char)byte : *from;
        from += byte != 0 ? 3 : 1;
    }
    *to = '\0';
}
