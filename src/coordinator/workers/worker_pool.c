/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers of one stage as a whole: whether it has any, and what becomes of requests if not.
 *
 * A stage without a worker, and with none about to be ready, is dead: requests that wait there,
 * that still come from the stages before, and new ones fail with the reason. The same holds for a
 * stage in quarantine (quarantine.h), even if some workers are left, which finish what they hold.
 */
#include "coordinator/workers/pool_member.h"

#include <stdio.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "shm/former.h"

/* The time that a request that comes to a dead stage may wait there for its refusal. */
enum { FAIL_LOOK_MS = 20, TRY_AGAIN_MS = 50 };

static struct pool_member *
members_of(const struct worker_pool *pool)
{
    return stage_members(pool->pools, pool->stage);
}

static uint32_t
member_count_of(const struct worker_pool *pool)
{
    return stage_member_count(pool->pools, pool->stage);
}

static const char *
name_of(const struct worker_pool *pool)
{
    return stage_config(pool->pools, pool->stage)->name;
}

/* ---- nobody there ---- */

static void
fail_what_waits(void *context)
{
    struct worker_pool *pool = context;
    struct lane *lane = pool->pools->lane;
    if (atomic_load(&lane->state) == LANE_CONDEMNED ||
        !(atomic_load(&lane->dead_stages) & UINT64_C(1) << pool->stage))
        return;
    char text[OUTAGE_TEXT_BYTES];
    outage_describe(&lane->outage, pool->stage, clock_now_ns(), text);
    lane_fail_stage(lane, pool->stage, text);
    loop_timer_set(pool->fail_timer, FAIL_LOOK_MS * (int64_t)NS_PER_MS);
}

/* `why` is already in the lane's outage. */
static void
close_stage(struct worker_pool *pool)
{
    struct worker_pools *pools = pool->pools;
    atomic_fetch_or(&pools->lane->dead_stages, UINT64_C(1) << pool->stage);
    fail_what_waits(pool);
    worker_pools_region_stage_closed(pools);
    pipeline_on_stages_changed(pools->pipeline);
}

static void
open_stage(struct worker_pool *pool)
{
    atomic_fetch_and(&pool->pools->lane->dead_stages, ~(UINT64_C(1) << pool->stage));
    loop_timer_clear(pool->fail_timer);
    stage_notify(&pool->pools->lane->region, pool->stage);
}

/* Returns whether the stage has no worker and none about to be ready. */
static bool
nobody_works(const struct worker_pool *pool)
{
    const struct pool_member *members = members_of(pool);
    for (uint32_t i = 0; i < member_count_of(pool); i++)
        if (members[i].state == MEMBER_READY || members[i].state == MEMBER_STARTING ||
            (members[i].state == MEMBER_BACKOFF && !members[i].scarce &&
             restart_wait_ns(&members[i]) == 0))
            return false;
    return true;
}

static void
close_if_dead(struct worker_pool *pool, const char *cause)
{
    if (!nobody_works(pool))
        return;
    char why[OUTAGE_TEXT_BYTES];
    snprintf(why, sizeof(why), "stage \"%s\" has no worker: the last one was %s", name_of(pool),
             cause);
    outage_set(&pool->pools->lane->outage, pool->stage, 0, "; it will be started again", why);
    close_stage(pool);
}

/* ---- quarantine ---- */

static void
begin_quarantine(struct worker_pool *pool, const char *cause)
{
    struct pool_member *members = members_of(pool);
    for (uint32_t i = 0; i < member_count_of(pool); i++) {
        if (members[i].state == MEMBER_BACKOFF) {
            loop_timer_clear(members[i].timer);
            pool_member_enter(&members[i], MEMBER_EMPTY);
        } else if (members[i].state == MEMBER_STARTING) {
            pool_member_kill(&members[i], KILL_QUARANTINE);
        }
    }
    struct worker_pools *pools = pool->pools;
    const char *pipeline = pools->lane->info.name;
    const char *modelet = stage_modelet(pools, pool->stage);
    log_error(
        "stage_quarantined pipeline=%s stage=%s modelet=%s deaths=%u cause=\"%s\" for_ms=%lld",
        pipeline, name_of(pool), modelet, pool->quarantine.deaths, cause,
        (long long)(pool->quarantine.length_ns / NS_PER_MS));
    counter_add(pool->counters, STAGE_QUARANTINES, 1);
    char advice[128];
    char why[OUTAGE_TEXT_BYTES];
    snprintf(advice, sizeof(advice), ", or `shoalctl reload %s`", pipeline);
    snprintf(why, sizeof(why),
             "stage \"%s\" is quarantined: modelet %s died %u times in a row, last: %s",
             name_of(pool), modelet, pool->quarantine.deaths, cause);
    outage_set(&pools->lane->outage, pool->stage, pool->quarantine.until_ns, advice, why);
    loop_timer_set(pool->timer, pool->quarantine.length_ns);
    close_stage(pool);
}

/* False: workers killed at its beginning are not dead yet. */
static bool
somebody_to_try(const struct worker_pool *pool)
{
    const struct pool_member *members = members_of(pool);
    for (uint32_t i = 0; i < member_count_of(pool); i++)
        if (members[i].state == MEMBER_READY || members[i].state == MEMBER_EMPTY)
            return true;
    return false;
}

static void
begin_trial(struct worker_pool *pool)
{
    struct pool_member *members = members_of(pool);
    log_warn("stage_tried pipeline=%s stage=%s", pool->pools->lane->info.name, name_of(pool));
    for (uint32_t i = 0; i < member_count_of(pool); i++)
        if (members[i].state == MEMBER_READY) { /* it outlived the quarantine and so is the trial */
            worker_pool_on_ready(&members[i]);
            pipeline_on_stages_changed(pool->pools->pipeline);
            return;
        }
    for (uint32_t i = 0; i < member_count_of(pool); i++)
        if (members[i].state == MEMBER_EMPTY) {
            pool_member_start(&members[i]);
            return;
        }
    UNREACHABLE();
}

static void
restore(struct worker_pool *pool)
{
    struct pool_member *members = members_of(pool);
    loop_timer_clear(pool->timer);
    log_info("stage_restored pipeline=%s stage=%s", pool->pools->lane->info.name, name_of(pool));
    for (uint32_t i = 0; i < member_count_of(pool); i++)
        if (members[i].state == MEMBER_EMPTY)
            pool_member_back_off(&members[i]);
}

static bool
any_fruitful(const struct worker_pool *pool)
{
    const struct pool_member *members = members_of(pool);
    for (uint32_t i = 0; i < member_count_of(pool); i++)
        if (members[i].state == MEMBER_READY && pool_member_was_fruitful(&members[i]))
            return true;
    return false;
}

static void
on_timer(void *context)
{
    struct worker_pool *pool = context;
    switch (pool->quarantine.state) {
    case QUARANTINE_NONE: return;
    case QUARANTINE_ON:
        if (somebody_to_try(pool) && quarantine_try(&pool->quarantine, clock_now_ns()))
            begin_trial(pool);
        else
            loop_timer_set(pool->timer, TRY_AGAIN_MS * (int64_t)NS_PER_MS);
        return;
    case QUARANTINE_TRIAL:
        if (worker_pools_live(pool->pools, pool->stage) == 0)
            return; /* the worker on trial was killed from outside: the next one is coming */
        quarantine_lift(&pool->quarantine, any_fruitful(pool) ? TRIAL_FRUITFUL : TRIAL_LIVED);
        restore(pool);
        return;
    }
}

/* ---- what happens to it ---- */

void
worker_pool_init(struct worker_pool *pool, struct worker_pools *pools, uint32_t stage)
{
    const struct config_stage *config = stage_config(pools, stage);
    struct loop *loop = pools->pipeline->options.loop;
    *pool = (struct worker_pool){.pools = pools, .stage = stage};
    quarantine_init(&pool->quarantine, config->quarantine_deaths, config->quarantine_ns);
    pool->timer = loop_timer_create(loop_base(loop), on_timer, pool);
    pool->fail_timer = loop_timer_create(loop_base(loop), fail_what_waits, pool);
    pool->counters = counters_values(pools->pipeline->options.counters,
                                     pools->lane->generation->stage_scopes[stage]);
}

void
worker_pool_fini(struct worker_pool *pool)
{
    loop_timer_destroy(pool->timer);
    loop_timer_destroy(pool->fail_timer);
}

void
worker_pool_stop(struct worker_pool *pool)
{
    loop_timer_clear(pool->timer);
    loop_timer_clear(pool->fail_timer);
}

void
worker_pool_on_ready(struct pool_member *member)
{
    struct worker_pool *pool = member_pool(member);
    if (pool->quarantine.state == QUARANTINE_ON)
        return;
    if (pool->quarantine.state == QUARANTINE_TRIAL)
        loop_timer_set(pool->timer, TRIAL_MS * (int64_t)NS_PER_MS);
    open_stage(pool);
}

void
worker_pool_on_death(struct pool_member *member, enum death_blame blame, const char *cause)
{
    struct worker_pool *pool = member_pool(member);
    enum quarantine_state before = pool->quarantine.state;
    if (quarantine_on_death(&pool->quarantine, blame, clock_now_ns())) {
        begin_quarantine(pool, cause);
        return;
    }
    if (pool->quarantine.state == QUARANTINE_ON)
        return; /* none follows */
    pool_member_back_off(member);
    if (before == QUARANTINE_TRIAL && pool->quarantine.state == QUARANTINE_NONE)
        restore(pool);
    close_if_dead(pool, cause);
}

void
worker_pool_on_postponed(struct pool_member *member, const struct error *error)
{
    char cause[OUTAGE_TEXT_BYTES];
    snprintf(cause, sizeof(cause), "not started, because shoald lacks resources: %.160s",
             error->text);
    close_if_dead(member_pool(member), cause);
}
