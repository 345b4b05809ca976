/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/gatherer.h"

#include "base/clock.h"

static _Thread_local struct {
    bool gathers;
    bool has_submitted; /* since it took lanes, there may be another one */
} here;

bool
gatherer_on_submitted(void)
{
    here.has_submitted = here.gathers;
    return here.gathers;
}

void
gatherer_init(struct gatherer *gatherer, struct pipeline *const *pipelines, uint32_t pipeline_count)
{
    int64_t spin_ns = 0;
    for (uint32_t i = 0; i < pipeline_count; i++)
        if (pipelines[i]->options.config->spin_ns > spin_ns)
            spin_ns = pipelines[i]->options.config->spin_ns;
    gatherer->pipelines = pipelines;
    gatherer->pipeline_count = pipeline_count;
    gatherer->lane_count = 0;
    spin_init(&gatherer->spin, spin_ns);
}

void
gatherer_leave(struct gatherer *gatherer)
{
    for (uint32_t i = 0; i < gatherer->lane_count; i++)
        lane_unref(gatherer->lanes[i]);
    gatherer->lane_count = 0;
}

bool
gatherer_take(struct gatherer *gatherer)
{
    here.gathers = true;
    here.has_submitted = false;
    gatherer_leave(gatherer); /* our own references would look like requests in flight */
    for (uint32_t i = 0; i < gatherer->pipeline_count; i++)
        gatherer->lane_count +=
            pipeline_busy_lanes(gatherer->pipelines[i], &gatherer->lanes[gatherer->lane_count]);
    return gatherer->lane_count > 0;
}

static int
gather(struct gatherer *gatherer)
{
    uint32_t answered = 0;
    for (uint32_t i = 0; i < gatherer->lane_count; i++) {
        struct lane *lane = gatherer->lanes[i];
        /* While this thread looks, workers need not wake the gather thread. */
        struct shm_doorbell *bell = &lane->region.header->coordinator_bell;
        if (atomic_load_explicit(&bell->asleep, memory_order_relaxed) != 0)
            doorbell_cancel(bell);
        answered += lane_gather(lane, &gatherer->view);
    }
    return (int)answered;
}

bool
gatherer_poll(struct gatherer *gatherer, int (*step)(void *context), void *context)
{
    int64_t quiet_since_ns = clock_now_ns();
    for (;;) {
        int events = step(context);
        int answers = gather(gatherer);
        if (events < 0)
            return false;
        int64_t now_ns = clock_now_ns();
        if (events + answers > 0 || here.has_submitted) {
            if (!gatherer_take(gatherer))
                return true;
            quiet_since_ns = now_ns;
            spin_rewarded(&gatherer->spin);
        } else if (now_ns - quiet_since_ns >= spin_budget(&gatherer->spin, now_ns)) {
            spin_failed(&gatherer->spin);
            return true;
        } else {
            (void)spin_pause(&gatherer->spin, now_ns);
        }
    }
}

bool
gatherer_hand_over(struct gatherer *gatherer)
{
    bool nothing_waits = true;
    for (uint32_t i = 0; i < gatherer->lane_count; i++) {
        struct lane *lane = gatherer->lanes[i];
        if (atomic_load(&lane->gather_asleep))
            doorbell_prepare(&lane->region.header->coordinator_bell);
        if (lane_has_answers(lane))
            nothing_waits = false;
    }
    if (nothing_waits)
        gatherer_leave(gatherer); /* a blocked thread must not look like requests in flight */
    return nothing_waits;
}

void
gatherer_woke(struct gatherer *gatherer, int64_t blocked_ns)
{
    spin_after_sleep(&gatherer->spin, blocked_ns);
}
