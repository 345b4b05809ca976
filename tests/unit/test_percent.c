/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every escape is decoded but %00; everything else stays. Texts lie in memory of exactly their
 * size, so that a read past the end is seen.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "base/percent.h"

static void
check(const char *encoded, const char *wanted)
{
    char *text = strdup(encoded);
    CHECK(text != NULL);
    percent_decode(text);
    assert_string_equal(text, wanted);
    free(text);
}

TEST_CASE(test_every_byte)
{
    for (unsigned byte = 1; byte < 256; byte++) {
        char upper[8], lower[8];
        snprintf(upper, sizeof(upper), "a%%%02Xb", byte);
        snprintf(lower, sizeof(lower), "a%%%02xb", byte);
        char wanted[] = {'a', (char)byte, 'b', '\0'};
        check(upper, wanted);
        check(lower, wanted);
    }
}

TEST_CASE(test_other_text_stays)
{
    static const char *const texts[] = {"",    "a b\xc3\xa4", "%",   "%%",  "%4",
                                        "m%4", "%2G",         "%G2", "% 2", "%00"};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        check(texts[i], texts[i]);
}

TEST_CASE(test_mixed)
{
    check("%25%2G%", "%%2G%");
    check("%%41%", "%A%");
    check("%2525", "%25"); /* once */
    check("%00%41%00", "%00A%00");
    check("/v2/models/a%2Fb%C3%A4", "/v2/models/a/b\xc3\xa4");
}

TEST_MAIN()
