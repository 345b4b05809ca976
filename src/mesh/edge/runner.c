/* SPDX-License-Identifier: Apache-2.0 */
/* The runner as a whole: start, end, tick, and events of the node itself. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "loop/timer.h"
#include "loop/wake.h"
#include "mesh/edge/runner_inside.h"
#include "mesh/record/record.h"

enum {
    CALLS_MAX = 65536,
    ORDERS_MAX = 4096,
    MODELS_MAX = 4000000,
    VMODELS_MAX = 1000000,
    INSTANCES_MAX = 4096,
    RATE_FOR_MORE = 2000,
    TICK_MS = 1000,
};

/* ---- beginning ---- */

static uint32_t
or_else(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

static void
fill_in(struct runner_options *options)
{
    struct mesh_config *core = &options->core;
    core->calls_max = or_else(core->calls_max, CALLS_MAX);
    core->orders_max = or_else(core->orders_max, ORDERS_MAX);
    core->models_max = or_else(core->models_max, MODELS_MAX);
    core->vmodels_max = or_else(core->vmodels_max, VMODELS_MAX);
    core->instances_max = or_else(core->instances_max, INSTANCES_MAX);
    core->rate_for_more = or_else(core->rate_for_more, RATE_FOR_MORE);
    if (options->tick_ms == 0)
        options->tick_ms = TICK_MS;
}

static void
copy_texts(struct mesh_runner *runner)
{
    const char **texts[] = {&runner->options.core.instance, &runner->options.address,
                            &runner->options.location, &runner->options.zone,
                            &runner->options.labels};
    size_t bytes = 0;
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        if (*texts[i] == NULL)
            *texts[i] = "";
        bytes += strlen(*texts[i]) + 1;
    }
    char *to = runner->texts = malloc(bytes);
    CHECK(to != NULL);
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        size_t length = strlen(*texts[i]) + 1;
        *texts[i] = memcpy(to, *texts[i], length);
        to += length;
    }
    CHECK(to == runner->texts + bytes);
}

static void
on_wake(void *context)
{
    runner_work_run(context);
}

static void on_tick(void *context);

struct mesh_runner *
runner_create(const struct runner_options *options)
{
    struct mesh_runner *runner = calloc(1, sizeof(*runner));
    CHECK(runner != NULL && pthread_mutex_init(&runner->lock, NULL) == 0);
    runner->options = *options;
    copy_texts(runner);
    fill_in(&runner->options);
    runner->start_ms = options->start_ms != 0 ? options->start_ms : runner_wall_ms();
    runner->began_ms = clock_now_ns() / NS_PER_MS;
    runner->work.last = &runner->work.first;
    runner->records.unknown_fields.seed = runner->records.unreadable.seed = options->core.seed;
    runner->clearance.end_ns = clock_now_ns() + options->clearance_ns;
    for (enum load_kind kind = LOAD_SIZE; kind < LOAD_KINDS; kind++)
        link_init(&runner->loads[kind]);
    link_init(&runner->owing);
    link_init(&runner->txns);
    id_table_init(&runner->calls, runner->options.core.calls_max);
    id_table_init(&runner->orders, runner->options.core.orders_max);
    runner->wake = wake_create(options->base, on_wake, runner);
    CHECK(runner->wake != NULL);
    runner->timer = loop_timer_create(options->base, on_tick, runner);
    runner->mesh = mesh_create(&runner->options.core);
    if (options->last_is_hosted) /* a member without a runtime takes calls, and manifests */
        runner->runtimes.was_ready[runner_pools(runner) - 1] = runner->runtimes.member = true;
    return runner;
}

void
runner_start(struct mesh_runner *runner, struct store *store)
{
    CHECK(runner->store == NULL && !runner->closed);
    runner->store = store;
    runner_self_publish(runner, SELF_NOW);
    loop_timer_set(runner->timer, runner->options.tick_ms * NS_PER_MS);
}

/* ---- once a second ---- */

static void
on_tick(void *context)
{
    struct mesh_runner *runner = context;
    const struct runner_runtime *runtimes[] = {&runner->options.runtime, &runner->options.second};
    for (size_t i = 0; i < ARRAY_COUNT(runtimes); i++)
        if (runtimes[i]->harvest != NULL)
            runtimes[i]->harvest(runtimes[i]->context, runner);
    runner_lock(runner);
    runner_load_tick(runner);
    runner_step(runner, (struct mesh_event){.kind = MESH_TICK});
    runner_unlock_and_work(runner);
    runner_self_publish(runner, runner_self_correct(runner) ? SELF_NOW : SELF_IF_DUE);
    loop_timer_set(runner->timer, runner->options.tick_ms * NS_PER_MS);
}

/* ---- reports of the node ---- */

static uint64_t
larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* P3 by this node's figures. */
static uint64_t
full_below_units(const struct mesh_capacity *capacity)
{
    uint64_t usual = record_units(capacity->default_bytes);
    uint64_t whole = capacity->capacity_bytes / RECORD_UNIT_BYTES;
    return larger(usual, smaller(usual * capacity->loaders, whole / 20));
}

static bool
has_runtime(const struct mesh_runner *runner)
{
    bool has = runner->options.last_is_hosted;
    for (uint32_t i = 0; i < runner_pools(runner); i++)
        has = has || runner->runtimes.ready[i];
    return has;
}

static void
set_capacity(struct mesh_runner *runner, const struct mesh_capacity *capacity)
{
    runner->runtimes.capacity[capacity->pool] = *capacity;
    runner->runtimes.full_below_units = 0;
    for (uint32_t i = 0; i < runner_pools(runner); i++)
        runner->runtimes.full_below_units = larger(runner->runtimes.full_below_units,
                                                   full_below_units(&runner->runtimes.capacity[i]));
    runner->runtimes.ready[capacity->pool] = runner->runtimes.was_ready[capacity->pool] =
        runner->runtimes.member = true;
}

void
runner_runtime_ready(struct mesh_runner *runner, const struct mesh_capacity *capacity)
{
    runner_lock(runner);
    if (!runner->closed) {
        CHECK(capacity->pool < runner_pools(runner));
        set_capacity(runner, capacity);
        runner_step(runner, (struct mesh_event){.kind = MESH_RUNTIME, .runtime = *capacity});
        runner_work_publish(runner);
    }
    runner_unlock(runner);
}

void
runner_runtime_lost(struct mesh_runner *runner, uint32_t pool)
{
    runner_lock(runner);
    CHECK(pool < runner_pools(runner));
    if (!runner->closed && runner->runtimes.ready[pool]) {
        runner->runtimes.ready[pool] = false;
        runner_step(runner, (struct mesh_event){.kind = MESH_RUNTIME_LOST, .lost = {.pool = pool}});
        runner_work_publish(runner);
    }
    runner_unlock(runner);
}

void
runner_runtime_rests(struct mesh_runner *runner, uint32_t pool, enum runner_rest rest)
{
    runner_lock(runner);
    CHECK(pool < runner_pools(runner));
    if (!runner->closed)
        runner_step(runner, (struct mesh_event){.kind = MESH_RUNTIME_RESTS,
                                                .rest = {pool, rest == RUNNER_RESTS}});
    runner_unlock(runner);
}

bool
runner_is_needed(struct mesh_runner *runner, uint32_t pool, const char *labels)
{
    runner_lock(runner);
    bool is_needed = mesh_is_needed(runner->mesh, pool, labels);
    runner_unlock(runner);
    return is_needed;
}

void
runner_types(struct mesh_runner *runner, const struct mesh_type_rule *rules, uint32_t rule_count)
{
    runner_lock(runner);
    if (!runner->closed)
        runner_step(runner,
                    (struct mesh_event){.kind = MESH_TYPES,
                                        .types = {.rules = rules, .rule_count = rule_count}});
    runner_unlock(runner);
}

void
runner_drain(struct mesh_runner *runner)
{
    runner_lock(runner);
    if (!runner->closed && !runner->draining) {
        runner->draining = true;
        runner_work_publish(runner); /* D1: before the core's actions */
        runner_step(runner, (struct mesh_event){.kind = MESH_DRAIN});
    }
    runner_unlock(runner);
}

void
runner_refuse_calls(struct mesh_runner *runner)
{
    runner_lock(runner);
    runner->refuses = true;
    runner_unlock(runner);
}

bool
runner_is_ready(struct mesh_runner *runner)
{
    runner_lock(runner);
    bool is_ready =
        runner->reported.whole && has_runtime(runner) && runner_is_clear(runner) && !runner->closed;
    for (uint32_t i = 0; i < runner_pools(runner); i++)
        is_ready = is_ready && runner->runtimes.was_ready[i];
    runner_unlock(runner);
    return is_ready;
}

/* ---- the end ---- */

void
runner_close(struct mesh_runner *runner)
{
    loop_timer_clear(runner->timer);
    runner_lock(runner);
    runner_call_close_all(runner);
    runner_order_close_all(runner);
    CHECK(runner->orders.count == 0);
    runner->closed = true;
    runner_work_drop(runner);
    runner_unlock(runner);
    runner->store = NULL;
}

void
runner_destroy(struct mesh_runner *runner)
{
    if (runner == NULL)
        return;
    CHECK(runner->closed && runner->calls.count == 0 && runner->orders.count == 0);
    loop_timer_destroy(runner->timer);
    wake_destroy(runner->wake);
    runner_txn_drop_all(runner);
    runner_load_drop_all(runner);
    mesh_destroy(runner->mesh);
    id_table_fini(&runner->calls);
    id_table_fini(&runner->orders);
    unknown_fields_fini(&runner->records.unknown_fields);
    unknown_fields_fini(&runner->records.unreadable);
    book_fini(&runner->book);
    for (uint32_t i = 0; i < runner->unknown_settings.count; i++)
        free(runner->unknown_settings.names[i]);
    free(runner->ended.items);
    free(runner->texts);
    free(runner->labels);
    CHECK(pthread_mutex_destroy(&runner->lock) == 0);
    free(runner);
}

/* ---- looking at it ---- */

void
runner_look(struct mesh_runner *runner, struct runner_view *view)
{
    runner_lock(runner);
    const struct mesh_population there = mesh_population(runner->mesh);
    *view = (struct runner_view){
        .counts = runner->counts,
        .figures = {.figures = mesh_figures(runner->mesh), .start_ms = runner->start_ms},
        .sums = mesh_sums(runner->mesh),
        .session = runner->reported.session,
        .revision = runner->reported.revision,
        .reported_ms = runner->reported.reported_ms,
        .models = there.models,
        .vmodels = there.vmodels,
        .instances = there.instances,
        .calls = runner->calls.count,
        .orders = runner->orders.count,
        .leads = runner->reported.leads,
        .draining = runner->draining,
        .drained = runner->drained,
        .whole = runner->reported.whole,
    };
    runner_unlock(runner);
}

uint64_t
runner_visit_instances(struct mesh_runner *runner, uint64_t from, uint32_t count,
                       void (*visit)(void *context, const struct mesh_instance *instance),
                       void *context)
{
    runner_lock(runner);
    uint64_t next = mesh_visit_instances(runner->mesh, from, count, visit, context);
    runner_unlock(runner);
    return next;
}
