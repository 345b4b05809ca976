/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One place that logs writes its allowance of lines, and then one line that says how many more
 * there were: at the next line after its ten seconds, or when the log ends. Other places are not
 * concerned, and lines of a level that is off neither count nor use anything up.
 */
#include "../test.h"
#include "base/log_site.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum { MORE = 900, FEW = 3 };

static const int64_t period_ns = LOG_SITE_S * (int64_t)NS_PER_S;

static void
use_up(struct log_site *site, int64_t now_ns)
{
    for (int i = 0; i < LOG_SITE_LINES; i++)
        assert_true(log_site_admit(site, LOG_SITE_LINES, now_ns));
    for (int i = 0; i < FEW; i++)
        assert_false(log_site_admit(site, LOG_SITE_LINES, now_ns));
}

TEST_CASE(test_allowance_returns_after_its_period)
{
    struct log_site site = {0};
    int64_t now_ns = 7;
    assert_int_equal(log_site_take(&site, now_ns), 0);
    use_up(&site, now_ns);
    now_ns += period_ns - 1;
    assert_int_equal(log_site_take(&site, now_ns), 0);
    assert_false(log_site_admit(&site, LOG_SITE_LINES, now_ns));
    now_ns++;
    assert_int_equal(log_site_take(&site, now_ns), FEW + 1);
    assert_int_equal(log_site_take(&site, now_ns), 0);
    use_up(&site, now_ns);
}

TEST_CASE(test_period_begins_with_its_first_line)
{
    struct log_site site = {0};
    assert_true(log_site_admit(&site, LOG_SITE_LINES, 1));
    assert_int_equal(log_site_take(&site, period_ns + 1), 0);
    use_up(&site, 3 * period_ns);
    assert_int_equal(log_site_take(&site, 4 * period_ns - 1), 0);
    assert_int_equal(log_site_take(&site, 4 * period_ns), FEW);
}

TEST_CASE(test_zero_is_no_limit)
{
    struct log_site site = {0};
    for (int i = 0; i < LOG_SITE_LINES + MORE; i++)
        assert_true(log_site_admit(&site, 0, 1));
    assert_int_equal(log_site_take(&site, TIME_NEVER_NS), 0);
}

struct seen {
    int repeated;
    int others;
    int reported;
    unsigned long long left_out;
};

static struct seen
read_lines(FILE *file)
{
    struct seen seen = {0};
    char line[256];
    rewind(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        static const char prefix[] = " warn test log_left_out event=repeated lines=";
        const char *reported = strstr(line, prefix);
        seen.repeated += strstr(line, " warn test repeated number=") != NULL;
        seen.others += strstr(line, " info test other number=") != NULL;
        seen.reported += reported != NULL;
        if (reported != NULL)
            seen.left_out += strtoull(reported + strlen(prefix), NULL, 10);
    }
    return seen;
}

TEST_CASE(test_a_count_stands_for_what_was_left_out)
{
    struct error error = ERROR_NONE;
    log_init("test", LOG_INFO);
    FILE *file = tmpfile();
    assert_non_null(file);
    int kept = dup(STDERR_FILENO);
    assert_int_equal(dup2(fileno(file), STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(log_start(&error), STATUS_OK);
    for (int i = 0; i < LOG_SITE_LINES + MORE; i++) {
        log_set_level(LOG_ERROR);
        log_warn_limited("silent number=%d", i);
        log_set_level(LOG_INFO);
        log_warn_limited("repeated number=%d", i);
    }
    for (int i = 0; i < FEW; i++)
        log_info_limited("other number=%d", i);
    log_stop(60 * NS_PER_S);
    assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
    close(kept);
    struct seen seen = read_lines(file);
    fclose(file);
    assert_int_equal(seen.others, FEW);
    /* a machine that needs ten seconds for the loop begins the allowance anew */
    assert_in_range(seen.repeated, LOG_SITE_LINES, LOG_SITE_LINES + MORE);
    assert_int_equal(seen.repeated + (int)seen.left_out, LOG_SITE_LINES + MORE);
    assert_int_equal(seen.left_out, log_left_out());
    assert_true(seen.reported > 0);
}

TEST_MAIN()
