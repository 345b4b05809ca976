/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers as text read back as the same numbers, for all bits, and with few digits: random
 * ones of each exponent, the neighbours of every power of ten and of two, and those that people
 * write.
 */

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"
#include "../test.h"
#include "base/number_text.h"

static uint64_t random_state;

static uint64_t
random_next(void)
{
    return random_draw(&random_state);
}

/* No more than nine digits, and the same bits. */
static void
check_float(float number)
{
    char text[NUMBER_ROOM];
    memset(text, '#', sizeof(text));
    number_text_float(text, number);
    float back = strtof(text, NULL);
    if (memcmp(&back, &number, sizeof(number)) != 0)
        fail_msg("%.9g is written %s", (double)number, text);
    char nine[NUMBER_ROOM];
    snprintf(nine, sizeof(nine), "%.9g", (double)number);
    size_t zeros = strncmp(text + (text[0] == '-'), "0.0", 3) == 0 ? 5 : 0;
    if (strlen(text) > strlen(nine) + zeros)
        fail_msg("%s is written %s", nine, text);
}

static void
check_double(double number)
{
    char text[NUMBER_ROOM];
    number_text_double(text, number);
    double back = strtod(text, NULL);
    if (memcmp(&back, &number, sizeof(number)) != 0)
        fail_msg("%.17g is written %s", number, text);
}

TEST_CASE(test_random)
{
    random_state = random_seed(7);
    for (uint32_t exponent = 0; exponent < 255; exponent++)
        for (int i = 0; i < 2000; i++) {
            uint32_t bits = exponent << 23 | (uint32_t)(random_next() & 0x807fffff);
            float number;
            memcpy(&number, &bits, sizeof(number));
            check_float(number);
        }
    for (int i = 0; i < 100000; i++) {
        uint64_t bits = random_next();
        double number;
        memcpy(&number, &bits, sizeof(number));
        if (isfinite(number))
            check_double(number);
    }
}

TEST_CASE(test_edges)
{
    for (int exponent = -45; exponent <= 38; exponent++)
        for (int digit = 1; digit <= 9; digit++) {
            char text[32];
            snprintf(text, sizeof(text), "%de%d", digit, exponent);
            float number = strtof(text, NULL);
            for (int i = 0; i < 20 && isfinite(number); i++) {
                check_float(number);
                check_float(-number);
                number = nextafterf(number, i < 10 ? INFINITY : 0);
            }
        }
    for (int exponent = -149; exponent <= 127; exponent++) {
        check_float(ldexpf(1, exponent));
        check_float(nextafterf(ldexpf(1, exponent), 0));
        check_float(nextafterf(ldexpf(1, exponent), INFINITY));
    }
    for (int i = -100000; i <= 100000; i++) {
        check_float((float)i);
        check_float((float)i / 1000);
    }
}

TEST_CASE(test_integers)
{
    random_state = random_seed(11);
    for (int i = 0; i < 100000; i++) {
        uint64_t number = random_next() >> random_next() % 64;
        number =
            i < 4 ? (uint64_t[]){0, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX}[i] : number;
        char text[NUMBER_ROOM], wanted[NUMBER_ROOM];
        snprintf(wanted, sizeof(wanted), "%" PRIu64, number);
        assert_int_equal(number_text_uint(text, number), strlen(wanted));
        assert_string_equal(text, wanted);
        snprintf(wanted, sizeof(wanted), "%" PRId64, (int64_t)number);
        assert_int_equal(number_text_int(text, (int64_t)number), strlen(wanted));
        assert_string_equal(text, wanted);
    }
}

TEST_CASE(test_words)
{
    static const struct {
        float number;
        const char *text;
    } cases[] = {
        {0.0f, "0"},
        {-0.0f, "-0"},
        {1.0f, "1"},
        {-1.5f, "-1.5"},
        {0.1f, "0.1"},
        {100.0f, "100"},
        {16777216.0f, "16777216"},
        {1e8f, "100000000"},
        {999999936.0f, "999999940"},
        {0.00001f, "1e-05"},
        {0.001234f, "0.001234"},
        {3.14159274f, "3.1415927"},
        {0.333333343f, "0.33333334"},
        {3.40282347e38f, "3.4028235e+38"},
        {1e-6f, "1e-06"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[NUMBER_ROOM];
        number_text_float(text, cases[i].number);
        assert_string_equal(text, cases[i].text);
    }
}

TEST_MAIN()
