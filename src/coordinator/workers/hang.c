/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/workers/hang.h"

#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/workers/pool_member.h"

/* A look costs two loads per worker. */
enum { LOOK_MS_MAX = 250, LOOK_MS_MIN = 1, LOOKS_PER_TIMEOUT = 4 };

int64_t
run_since_ns(struct run_watch *watch, int64_t began_ns, int64_t ready_ns, int64_t now_ns)
{
    bool lies = began_ns != 0 && (began_ns > now_ns || began_ns < ready_ns);
    if (lies && !watch->lies)
        watch->lies_since_ns = now_ns;
    watch->lies = lies;
    if (began_ns == 0)
        return TIME_NEVER_NS;
    return lies ? watch->lies_since_ns : began_ns;
}

int64_t
hang_look_after_ns(int64_t timeout_ns, int64_t expires_ns, int64_t now_ns)
{
    int64_t after_ns = timeout_ns / LOOKS_PER_TIMEOUT;
    if (after_ns > LOOK_MS_MAX * (int64_t)NS_PER_MS)
        after_ns = LOOK_MS_MAX * (int64_t)NS_PER_MS;
    if (expires_ns != TIME_NEVER_NS && expires_ns - now_ns < after_ns)
        after_ns = expires_ns - now_ns;
    return after_ns < LOOK_MS_MIN * (int64_t)NS_PER_MS ? LOOK_MS_MIN * (int64_t)NS_PER_MS
                                                       : after_ns;
}

enum beat_verdict
beat_judge(struct beat_watch *watch, int64_t word, enum beat_duty duty, int64_t limit_ns,
           int64_t now_ns)
{
    if (duty == BEAT_EXCUSED || watch->since_ns == 0 || word != watch->word) {
        *watch = (struct beat_watch){.word = word, .since_ns = now_ns};
        return BEAT_FINE;
    }
    if (now_ns - watch->since_ns < limit_ns)
        return BEAT_FINE;
    if (watch->continued)
        return BEAT_KILL;
    watch->continued = true;
    watch->since_ns = now_ns;
    return BEAT_CONTINUE;
}

static void
look_at_beat(struct pool_member *member, int64_t timeout_ns, bool runs)
{
    const struct shm_worker *worker =
        region_worker(&member->pools->lane->region, member->stage, member->index);
    int64_t word = atomic_load_explicit(&worker->heartbeat_ns, memory_order_relaxed);
    int64_t least_ns = SILENCE_MS_MIN * (int64_t)NS_PER_MS;
    int64_t limit_ns = timeout_ns > least_ns ? timeout_ns : least_ns;
    enum beat_duty duty = runs || member->pools->models->is_busy(member) ? BEAT_EXCUSED : BEAT_DUE;
    enum beat_verdict verdict =
        beat_judge(&member->beat_watch, word, duty, limit_ns, clock_now_ns());
    if (verdict == BEAT_FINE)
        return;
    log_warn("worker_silent pipeline=%s stage=%s worker=%u pid=%d for_ms=%lld action=%s",
             member->pools->lane->info.name, stage_config(member->pools, member->stage)->name,
             member->index, (int)member->process.pid, (long long)(limit_ns / NS_PER_MS),
             verdict == BEAT_KILL ? "kill" : "continue");
    if (verdict == BEAT_CONTINUE) {
        spawned_signal(&member->process, SIGCONT);
        return;
    }
    counter_add(member_pool(member)->counters, STAGE_SILENCES, 1);
    pool_member_kill(member, KILL_SILENT);
}

/* Returns when its run expires; TIME_NEVER_NS: it runs nothing, or was killed for it just now. */
static int64_t
look_at(struct pool_member *member, int64_t timeout_ns)
{
    const struct shm_worker *worker =
        region_worker(&member->pools->lane->region, member->stage, member->index);
    int64_t began_ns = atomic_load_explicit(&worker->run_began_ns, memory_order_acquire);
    uint32_t items = atomic_load_explicit(&worker->run_items, memory_order_relaxed);
    int64_t now_ns = clock_now_ns();
    int64_t since_ns = run_since_ns(&member->run_watch, began_ns, member->ready_ns, now_ns);
    if (since_ns == TIME_NEVER_NS)
        return TIME_NEVER_NS;
    if (now_ns - since_ns < timeout_ns)
        return since_ns + timeout_ns;
    log_warn("worker_hung pipeline=%s stage=%s worker=%u pid=%d ran_ms=%lld items=%u",
             member->pools->lane->info.name, stage_config(member->pools, member->stage)->name,
             member->index, (int)member->process.pid, (long long)((now_ns - since_ns) / NS_PER_MS),
             items);
    counter_add(member_pool(member)->counters, STAGE_RUN_TIMEOUTS, 1);
    pool_member_kill(member, KILL_RUN_TIMEOUT);
    return TIME_NEVER_NS;
}

static void
look(void *context)
{
    struct worker_pools *pools = context;
    int64_t shortest_ns = TIME_NEVER_NS;
    int64_t expires_ns = TIME_NEVER_NS;
    for (uint32_t i = 0; i < pools->pool_member_count; i++) {
        struct pool_member *member = &pools->members[i];
        int64_t timeout_ns = stage_config(pools, member->stage)->run_timeout_ns;
        if (timeout_ns == 0)
            continue;
        if (timeout_ns < shortest_ns)
            shortest_ns = timeout_ns;
        if (member->state != MEMBER_READY || member->killed_for != KILL_NONE)
            continue;
        int64_t end_ns = look_at(member, timeout_ns);
        if (member->killed_for == KILL_NONE)
            look_at_beat(member, timeout_ns, end_ns != TIME_NEVER_NS);
        if (end_ns < expires_ns)
            expires_ns = end_ns;
    }
    loop_timer_set(pools->hang_timer, hang_look_after_ns(shortest_ns, expires_ns, clock_now_ns()));
}

void
hang_start(struct worker_pools *pools)
{
    bool limited = false;
    for (uint32_t stage = 0; stage < pools->stage_count; stage++)
        limited = limited || stage_config(pools, stage)->run_timeout_ns > 0;
    if (!limited)
        return;
    pools->hang_timer = loop_timer_create(loop_base(pools->pipeline->options.loop), look, pools);
    look(pools);
}

void
hang_stop(struct worker_pools *pools)
{
    loop_timer_destroy(pools->hang_timer);
    pools->hang_timer = NULL;
}
