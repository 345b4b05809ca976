/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/outage.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hide_paths.h"

void
outage_init(struct outage *outage)
{
    memset(outage->stages, 0, sizeof(outage->stages));
    CHECK(pthread_mutex_init(&outage->lock, NULL) == 0);
}

void
outage_fini(struct outage *outage)
{
    CHECK(pthread_mutex_destroy(&outage->lock) == 0);
}

void
outage_set(struct outage *outage, uint32_t stage, int64_t retry_ns, const char *advice,
           const char *why)
{
    CHECK(stage < STAGES_MAX);
    pthread_mutex_lock(&outage->lock);
    hide_paths(why, NULL, 0, outage->stages[stage].why, sizeof(outage->stages[stage].why));
    snprintf(outage->stages[stage].advice, sizeof(outage->stages[stage].advice), "%s", advice);
    outage->stages[stage].retry_ns = retry_ns;
    pthread_mutex_unlock(&outage->lock);
}

void
outage_describe(struct outage *outage, uint32_t stage, int64_t now_ns, char text[OUTAGE_TEXT_BYTES])
{
    CHECK(stage < STAGES_MAX);
    pthread_mutex_lock(&outage->lock);
    const char *why = outage->stages[stage].why;
    int64_t left_ns = outage->stages[stage].retry_ns - now_ns;
    char next[64] = "";
    if (outage->stages[stage].retry_ns != 0 && left_ns <= 0)
        snprintf(next, sizeof(next), "; a worker is being tried now");
    else if (outage->stages[stage].retry_ns != 0)
        snprintf(next, sizeof(next), "; next try in %lld %s",
                 (long long)(left_ns < NS_PER_S ? left_ns / NS_PER_MS : left_ns / NS_PER_S),
                 left_ns < NS_PER_S ? "ms" : "s");
    snprintf(text, OUTAGE_TEXT_BYTES, "%.240s%s%s", why, next, outage->stages[stage].advice);
    pthread_mutex_unlock(&outage->lock);
}
