/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allowance of one place that logs: so many lines in ten seconds. Lines beyond it are left out
 * and counted, and the count is told once the ten seconds are over. The owner serializes the calls.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { LOG_SITE_LINES = 100, LOG_SITE_S = 10 };

struct log_site {
    int64_t until_ns; /* the end of its ten seconds; 0: none have begun */
    uint32_t lines;   /* written in them */
    uint64_t left_out;
};

/* Returns the number of lines left out in ten seconds that are over at `now_ns`, and forgets it. */
uint64_t log_site_take(struct log_site *site, int64_t now_ns);

/* Whether the site may write a line now, of `lines_max` (0: no limit) in its ten seconds. Counts it
 * as written, or as left out. */
bool log_site_admit(struct log_site *site, uint32_t lines_max, int64_t now_ns);
