/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/probe.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/pipeline/generation.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"

/* Lives until the last probe is answered. All of them are: a condemned lane answers its requests.
 */
struct lane_probe {
    struct lane *lane; /* a reference of ours */
    void (*done)(struct lane *lane, const struct error *error);
    struct loop_timer *timer;
    int64_t timeout_ns;
    uint32_t stage;
    uint32_t slot;
    enum status status; /* what came back */
    bool over;          /* `done` was called */
};

static struct loop *
loop_of(const struct lane_probe *probe)
{
    return probe->lane->pipeline->options.loop;
}

static void
notify(struct lane_probe *probe, const struct error *error)
{
    bool condemned = atomic_load(&probe->lane->state) == LANE_CONDEMNED;
    bool over = probe->over;
    probe->over = true;
    if (!over && !condemned)
        probe->done(probe->lane, error);
}

/* References first: a lane that is set to serve has nothing in flight. */
static void
end(struct lane_probe *probe, const struct error *error)
{
    loop_timer_destroy(probe->timer);
    lane_unref(probe->lane);
    notify(probe, error);
    free(probe);
}

/* The gather thread has answered the request and is about to release it. */
static bool
is_being_released(const struct lane_probe *probe)
{
    enum { OF_PIPELINE = 1, OURS = 1 };
    return atomic_load(&probe->lane->refs) > OF_PIPELINE + OURS;
}

static void
on_late(void *context)
{
    struct lane_probe *probe = context;
    struct error error = ERROR_NONE;
    const struct config_pipeline *config = probe->lane->generation->config;
    error_set(&error, STATUS_DEADLINE_EXCEEDED,
              "stage \"%s\": its workers were ready, and did not answer a probe within %lld ms "
              "(start_timeout_ms)",
              config->stages[probe->stage].name, (long long)(probe->timeout_ns / NS_PER_MS));
    notify(probe, &error);
}

static void step(void *context);

/* Called on any thread. */
static void
on_answer(void *call, enum status status, const char *text)
{
    struct lane_probe *probe = call;
    (void)text;
    lane_probe_ended(probe->lane, probe->slot);
    probe->status = status; /* published by the post */
    loop_post(loop_of(probe), step, probe);
}

static void
on_result(void *call, const struct rpc_piece *pieces, size_t piece_count)
{
    (void)pieces;
    (void)piece_count;
    on_answer(call, STATUS_INTERNAL, "");
}

static const struct request_sink probe_sink = {
    .reply = on_result, .fail = on_answer, .is_probe = true};

/* The next stage, or the same one again if its worker died while it held the probe. */
static void
step(void *context)
{
    struct lane_probe *probe = context;
    struct lane *lane = probe->lane;
    struct error error = ERROR_NONE;
    if (is_being_released(probe)) {
        loop_post(loop_of(probe), step, probe);
        return;
    }
    if (probe->status == STATUS_CANCELLED)
        probe->stage++;
    probe->status = STATUS_UNKNOWN;
    bool ends = probe->over || atomic_load(&lane->state) == LANE_CONDEMNED;
    if (ends || probe->stage == lane->region.layout.plan.stage_count)
        end(probe, NULL);
    else if (lane_probe(lane, probe->stage, &probe_sink, probe, &probe->slot, &error) != STATUS_OK)
        end(probe, &error);
}

void
probe_begin(struct lane *lane, void (*done)(struct lane *lane, const struct error *error))
{
    struct lane_probe *probe = calloc(1, sizeof(*probe));
    CHECK(probe != NULL && lane_ref(lane));
    const struct config_pipeline *config = lane->generation->config;
    *probe = (struct lane_probe){.lane = lane, .done = done, .status = STATUS_UNKNOWN};
    for (uint32_t i = 0; i < config->stage_count; i++)
        if (config->stages[i].start_timeout_ns > probe->timeout_ns)
            probe->timeout_ns = config->stages[i].start_timeout_ns;
    probe->timer = loop_timer_create(loop_base(loop_of(probe)), on_late, probe);
    loop_timer_set(probe->timer, probe->timeout_ns);
    loop_post(loop_of(probe), step, probe);
}
