/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/workers/worker_pools.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/workers/pool_member.h"
#include "ipc/sandbox.h"

/* ---- stages and places ---- */

const struct config_stage *
stage_config(const struct worker_pools *pools, uint32_t stage)
{
    return &pools->lane->generation->config->stages[stage];
}

const char *
stage_modelet(const struct worker_pools *pools, uint32_t stage)
{
    const char *path = stage_config(pools, stage)->modelet;
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

uint32_t
stage_member_count(const struct worker_pools *pools, uint32_t stage)
{
    return pools->lane->region.layout.plan.worker_counts[stage];
}

struct pool_member *
stage_members(const struct worker_pools *pools, uint32_t stage)
{
    return &pools->members[pools->lane->region.layout.first_worker[stage]];
}

uint32_t
worker_pools_live(const struct worker_pools *pools, uint32_t stage)
{
    uint32_t live = 0;
    const struct pool_member *members = stage_members(pools, stage);
    for (uint32_t i = 0; i < stage_member_count(pools, stage); i++)
        live += members[i].state == MEMBER_READY;
    return live;
}

bool
worker_pools_gone(const struct worker_pools *pools)
{
    for (uint32_t i = 0; i < pools->pool_member_count; i++)
        if (pools->members[i].process.pid > 0)
            return false;
    return true;
}

/* ---- the whole ---- */

static void
worker_pools_on_kill_timer(void *context)
{
    struct worker_pools *pools = context;
    for (uint32_t i = 0; i < pools->pool_member_count; i++)
        spawned_signal(&pools->members[i].process, SIGKILL);
}

/* Rarely: then all orphans below this process come here, which would have come to an init. */
static bool
may_start_processes(const struct worker_pools *pools)
{
    bool may = false;
    for (uint32_t stage = 0; stage < pools->stage_count; stage++)
        may = may || (stage_config(pools, stage)->sandbox_allow &
                      (SANDBOX_ALLOW_PROCESSES | SANDBOX_ALLOW_ALL)) != 0;
    return may;
}

static void
create(const void *context, struct pipeline *pipeline, struct lane *lane,
       struct worker_pools **created)
{
    const struct region_layout *layout = &lane->region.layout;
    struct worker_pools *pools = calloc(1, sizeof(*pools));
    CHECK(pools != NULL);
    pools->models = context;
    pools->pipeline = pipeline;
    pools->lane = lane;
    pools->pool_member_count = layout->worker_total;
    pools->stage_count = layout->plan.stage_count;
    pools->members = calloc(pools->pool_member_count, sizeof(*pools->members));
    pools->pools = calloc(pools->stage_count, sizeof(*pools->pools));
    CHECK(pools->members != NULL && pools->pools != NULL);
    for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++)
        pools->client_regions[i].fd = -1;
    pools->kill_timer =
        loop_timer_create(loop_base(pipeline->options.loop), worker_pools_on_kill_timer, pools);
    *created = pools;
    for (uint32_t stage = 0; stage < pools->stage_count; stage++) {
        worker_pool_init(&pools->pools[stage], pools, stage);
        for (uint32_t i = 0; i < stage_member_count(pools, stage); i++)
            pool_member_init(&stage_members(pools, stage)[i], pools, stage, i);
    }
    if (may_start_processes(pools))
        spawn_adopt_orphans();
    hang_start(pools);
    for (uint32_t i = 0; i < pools->pool_member_count && !pools->stopping; i++)
        if (member_pool(&pools->members[i])->quarantine.state != QUARANTINE_ON)
            pool_member_start(&pools->members[i]);
}

static void
destroy(struct worker_pools *pools)
{
    CHECK(worker_pools_gone(pools));
    hang_stop(pools);
    worker_pools_region_fini(pools);
    for (uint32_t i = 0; i < pools->pool_member_count; i++)
        loop_timer_destroy(pools->members[i].timer);
    for (uint32_t stage = 0; stage < pools->stage_count; stage++)
        worker_pool_fini(&pools->pools[stage]);
    loop_timer_destroy(pools->kill_timer);
    free(pools->pools);
    free(pools->members);
    free(pools);
}

static void
on_gone_at_once(void *context)
{
    struct worker_pools *pools = context;
    pipeline_on_workers_stopped(pools->pipeline, pools->lane);
}

/* Starts no successors from now on; sends `signal_number` to all workers. */
static void
end(struct worker_pools *pools, int signal_number)
{
    bool was_stopping = pools->stopping;
    pools->stopping = true;
    worker_pools_region_end(pools);
    for (uint32_t i = 0; i < pools->pool_member_count; i++) {
        struct pool_member *member = &pools->members[i];
        if (member->process.pid > 0) {
            spawned_signal(&member->process, signal_number);
        } else {
            pool_member_enter(member, MEMBER_EMPTY);
            loop_timer_clear(member->timer);
        }
    }
    for (uint32_t stage = 0; stage < pools->stage_count; stage++)
        worker_pool_stop(&pools->pools[stage]);
    if (!was_stopping && worker_pools_gone(pools))
        loop_post(pools->pipeline->options.loop, on_gone_at_once, pools);
}

static void
stop(struct worker_pools *pools, int64_t grace_ns)
{
    end(pools, SIGTERM);
    loop_timer_set(pools->kill_timer, grace_ns);
}

static void
kill_all(struct worker_pools *pools)
{
    end(pools, SIGKILL);
}

static bool
is_quarantined(const struct worker_pools *pools)
{
    for (uint32_t i = 0; i < pools->stage_count; i++)
        if (pools->pools[i].quarantine.state == QUARANTINE_ON)
            return true;
    return false;
}

struct worker_process
worker_pools_process(const struct worker_pools *pools, uint32_t stage, uint32_t index)
{
    const struct pool_member *member = &stage_members(pools, stage)[index];
    if (member->process.pid <= 0)
        return (struct worker_process){.worker = NULL};
    return (struct worker_process){.worker = region_worker(&pools->lane->region, stage, index),
                                   .owner = member->owner,
                                   .pid = (int32_t)member->process.pid};
}

/*
 * Rewrites words that are the coordinator's: a modelet that has overwritten them would otherwise
 * keep its stage from being woken, or from gathering batches, until its workers die.
 */
static void
restate(struct worker_pools *pools)
{
    const struct lane *lane = pools->lane;
    for (uint32_t i = 0; i < pools->pool_member_count; i++) {
        const struct pool_member *member = &pools->members[i];
        struct shm_worker *worker = region_worker(&lane->region, member->stage, member->index);
        if (member->process.pid > 0 &&
            atomic_load_explicit(&worker->owner, memory_order_relaxed) != member->owner)
            atomic_store(&worker->owner, member->owner);
    }
    uint32_t draining =
        atomic_load(&lane->state) == LANE_DRAINING || atomic_load(&pools->pipeline->draining);
    for (uint32_t stage = 0; stage < pools->stage_count; stage++)
        if (atomic_load(&region_stage(&lane->region, stage)->draining) != draining)
            atomic_store(&region_stage(&lane->region, stage)->draining, draining);
}

static void
publish(struct worker_pools *pools, enum publish_extent extent)
{
    restate(pools);
    struct lane *lane = pools->lane;
    uint32_t shown = extent == PUBLISH_WORKERS_AND_STAGES ? pools->stage_count : 0;
    for (uint32_t stage = 0; stage < shown; stage++) {
        const struct worker_pool *pool = &pools->pools[stage];
        struct shm_ring ring = region_slot_ring(&lane->region, (uint8_t)stage);
        counter_set(pool->counters, STAGE_DEPTH, ring_depth(&ring));
        counter_set(pool->counters, STAGE_WORKERS_LIVE, worker_pools_live(pools, stage));
        counter_set(pool->counters, STAGE_WORKERS_WANTED, stage_member_count(pools, stage));
        counter_set(pool->counters, STAGE_QUARANTINED,
                    pool->quarantine.state != QUARANTINE_NONE &&
                        (atomic_load(&lane->dead_stages) & UINT64_C(1) << stage) != 0);
    }
    for (uint32_t i = 0; i < pools->pool_member_count; i++) {
        const struct pool_member *member = &pools->members[i];
        struct shm_worker *worker = region_worker(&lane->region, member->stage, member->index);
        counter_set(member->counters, WORKER_HEARTBEAT,
                    (uint64_t)atomic_load_explicit(&worker->heartbeat_ns, memory_order_relaxed));
    }
}

struct lane_workers
worker_pools_lane_workers(const struct member_models *models)
{
    return (struct lane_workers){
        .create = create,
        .destroy = destroy,
        .stop = stop,
        .kill = kill_all,
        .is_quarantined = is_quarantined,
        .process = worker_pools_process,
        .publish = publish,
        .end_client_regions = worker_pools_region_end,
        .count_client_regions = worker_pools_region_count,
        .context = models,
    };
}
