/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allowance of one place that logs: a number of lines in ten seconds. Further lines are left
 * out and counted, and the count is reported when the ten seconds are over. The owner serializes
 * the calls.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { LOG_SITE_LINES = 100, LOG_SITE_S = 10 };

struct log_site {
    int64_t until_ns; /* end of its ten seconds; 0: not started */
    uint32_t lines;   /* lines written in them */
    uint64_t left_out;
};

/* Returns, and forgets, the number of lines left out in ten seconds that ended by `now_ns`. */
uint64_t log_site_take(struct log_site *site, int64_t now_ns);

/* Returns true if the site may write a line now, given `lines_max` (0: no limit) in ten seconds.
 * Counts the line as written or as left out. */
bool log_site_admit(struct log_site *site, uint32_t lines_max, int64_t now_ns);
