/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_site.h"

#include "base/clock.h"

uint64_t
log_site_take(struct log_site *site, int64_t now_ns)
{
    if (now_ns < site->until_ns)
        return 0;
    uint64_t left_out = site->left_out;
    *site = (struct log_site){0};
    return left_out;
}

bool
log_site_admit(struct log_site *site, uint32_t lines_max, int64_t now_ns)
{
    if (site->until_ns == 0)
        site->until_ns = now_ns + LOG_SITE_S * (int64_t)NS_PER_S;
    if (site->lines < lines_max || lines_max == 0) {
        site->lines++;
        return true;
    }
    site->left_out++;
    return false;
}
