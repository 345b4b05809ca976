/* SPDX-License-Identifier: Apache-2.0 */
/* The driver as a whole: its beginning and end, its tick, what the node tells it. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "mesh/edge/driver_inside.h"
#include "mesh/edge/wake.h"
#include "mesh/etcd/timer.h"
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
fill_in(struct driver_options *options)
{
    options->calls_max = or_else(options->calls_max, CALLS_MAX);
    options->orders_max = or_else(options->orders_max, ORDERS_MAX);
    options->models_max = or_else(options->models_max, MODELS_MAX);
    options->vmodels_max = or_else(options->vmodels_max, VMODELS_MAX);
    options->instances_max = or_else(options->instances_max, INSTANCES_MAX);
    options->rate_for_more = or_else(options->rate_for_more, RATE_FOR_MORE);
    if (options->tick_ms == 0)
        options->tick_ms = TICK_MS;
}

static void
copy_texts(struct driver *driver)
{
    const char **texts[] = {&driver->options.instance, &driver->options.address,
                            &driver->options.location, &driver->options.zone,
                            &driver->options.labels};
    size_t bytes = 0;
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        if (*texts[i] == NULL)
            *texts[i] = "";
        bytes += strlen(*texts[i]) + 1;
    }
    char *to = driver->texts = malloc(bytes);
    CHECK(to != NULL);
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        size_t length = strlen(*texts[i]) + 1;
        *texts[i] = memcpy(to, *texts[i], length);
        to += length;
    }
}

static void
on_wake(void *context)
{
    driver_work_run(context);
}

static void on_tick(void *context);

struct driver *
driver_create(const struct driver_options *options)
{
    struct driver *driver = calloc(1, sizeof(*driver));
    CHECK(driver != NULL && pthread_mutex_init(&driver->lock, NULL) == 0);
    driver->options = *options;
    copy_texts(driver);
    fill_in(&driver->options);
    driver->start_ms = options->start_ms != 0 ? options->start_ms : driver_wall_ms();
    driver->began_ms = clock_now_ns() / NS_PER_MS;
    driver->work_last = &driver->work_first;
    driver->extras.seed = driver->unreadable.seed = options->seed;
    driver->clearance_end_ns = clock_now_ns() + options->clearance_ns;
    for (enum load_kind kind = LOAD_SIZE; kind < LOAD_KINDS; kind++)
        link_init(&driver->loads[kind]);
    link_init(&driver->owing);
    link_init(&driver->txns);
    seats_init(&driver->calls, driver->options.calls_max);
    seats_init(&driver->orders, driver->options.orders_max);
    driver->wake = wake_create(options->base, on_wake, driver);
    driver->timer = etcd_timer_create(options->base, on_tick, driver);
    driver->mesh = mesh_create(&(struct mesh_config){
        .instance = driver->options.instance,
        .seed = options->seed,
        .models_max = driver->options.models_max,
        .instances_max = driver->options.instances_max,
        .calls_max = driver->options.calls_max,
        .vmodels_max = driver->options.vmodels_max,
        .orders_max = driver->options.orders_max,
        .failure_fresh_ms = options->failure_fresh_ms,
        .rate_for_more = driver->options.rate_for_more,
        .busy_percent = options->busy_percent,
        .waiting_max = options->waiting_max,
        .pool_of = options->pool_of,
        .pool_context = options->pool_context,
    });
    return driver;
}

void
driver_start(struct driver *driver, struct store *store)
{
    driver->store = store;
    driver_self_publish(driver, SELF_NOW);
    etcd_timer_set(driver->timer, driver->options.tick_ms * NS_PER_MS);
}

/* ---- once a second ---- */

static void
on_tick(void *context)
{
    struct driver *driver = context;
    const struct driver_runtime *runtimes[] = {&driver->options.runtime, &driver->options.second};
    for (size_t i = 0; i < ARRAY_COUNT(runtimes); i++)
        if (runtimes[i]->harvest != NULL)
            runtimes[i]->harvest(runtimes[i]->context, driver);
    driver_lock(driver);
    driver_load_tick(driver);
    driver_step(driver, (struct mesh_event){.kind = MESH_TICK});
    driver_unlock_and_work(driver);
    driver_self_publish(driver, driver_self_correct(driver) ? SELF_NOW : SELF_IF_DUE);
    etcd_timer_set(driver->timer, driver->options.tick_ms * NS_PER_MS);
}

/* ---- what the node tells ---- */

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
full_below_units(const struct driver_capacity *capacity)
{
    uint64_t usual = record_units(capacity->default_bytes);
    uint64_t whole = capacity->capacity_bytes / RECORD_UNIT_BYTES;
    return larger(usual, smaller(usual * capacity->loaders, whole / 20));
}

static bool
has_runtime(const struct driver *driver)
{
    bool has = false;
    for (uint32_t i = 0; i < driver_pools(driver); i++)
        has = has || driver->runtime[i];
    return has;
}

static void
set_capacity(struct driver *driver, const struct driver_capacity *capacity)
{
    driver->capacity[capacity->pool] = *capacity;
    driver->full_below_units = 0;
    for (uint32_t i = 0; i < driver_pools(driver); i++)
        driver->full_below_units =
            larger(driver->full_below_units, full_below_units(&driver->capacity[i]));
    driver->runtime[capacity->pool] = driver->was_ready[capacity->pool] = driver->member = true;
}

void
driver_runtime_ready(struct driver *driver, const struct driver_capacity *capacity)
{
    driver_lock(driver);
    if (!driver->closed) {
        CHECK(capacity->pool < driver_pools(driver));
        set_capacity(driver, capacity);
        driver_step(driver,
                    (struct mesh_event){.kind = MESH_RUNTIME,
                                        .runtime = {.capacity_bytes = capacity->capacity_bytes,
                                                    .default_bytes = capacity->default_bytes,
                                                    .loaders = capacity->loaders,
                                                    .load_timeout_ms = capacity->load_timeout_ms,
                                                    .pool = capacity->pool}});
        driver_work_publish(driver);
    }
    driver_unlock(driver);
}

void
driver_runtime_lost(struct driver *driver, uint32_t pool)
{
    driver_lock(driver);
    CHECK(pool < driver_pools(driver));
    if (!driver->closed && driver->runtime[pool]) {
        driver->runtime[pool] = false;
        driver_step(driver, (struct mesh_event){.kind = MESH_RUNTIME_LOST, .lost = {.pool = pool}});
        driver_work_publish(driver);
    }
    driver_unlock(driver);
}

void
driver_types(struct driver *driver, const struct mesh_type_rule *rules, uint32_t rule_count)
{
    driver_lock(driver);
    if (!driver->closed)
        driver_step(driver,
                    (struct mesh_event){.kind = MESH_TYPES,
                                        .types = {.rules = rules, .rule_count = rule_count}});
    driver_unlock(driver);
}

void
driver_drain(struct driver *driver)
{
    driver_lock(driver);
    if (!driver->closed && !driver->draining) {
        driver->draining = true;
        driver_work_publish(driver); /* D1: before what the core wants done */
        driver_step(driver, (struct mesh_event){.kind = MESH_DRAIN});
    }
    driver_unlock(driver);
}

void
driver_refuse_calls(struct driver *driver)
{
    driver_lock(driver);
    driver->refuses = true;
    driver_unlock(driver);
}

bool
driver_is_ready(struct driver *driver)
{
    driver_lock(driver);
    bool is_ready =
        driver->whole && has_runtime(driver) && driver_is_clear(driver) && !driver->closed;
    for (uint32_t i = 0; i < driver_pools(driver); i++)
        is_ready = is_ready && driver->was_ready[i];
    driver_unlock(driver);
    return is_ready;
}

/* ---- the end ---- */

void
driver_close(struct driver *driver)
{
    etcd_timer_clear(driver->timer);
    driver_lock(driver);
    driver_call_close_all(driver);
    driver_order_close_all(driver);
    driver->closed = true;
    driver_work_drop(driver);
    driver_unlock(driver);
    driver->store = NULL;
}

void
driver_destroy(struct driver *driver)
{
    if (driver == NULL)
        return;
    CHECK(driver->closed && seats_count(&driver->calls) == 0 && seats_count(&driver->orders) == 0);
    etcd_timer_destroy(driver->timer);
    wake_destroy(driver->wake);
    driver_txn_drop_all(driver);
    driver_load_drop_all(driver);
    mesh_destroy(driver->mesh);
    seats_fini(&driver->calls);
    seats_fini(&driver->orders);
    extras_fini(&driver->extras);
    extras_fini(&driver->unreadable);
    book_fini(&driver->book);
    for (uint32_t i = 0; i < driver->stranger_count; i++)
        free(driver->strangers[i]);
    free(driver->ended);
    free(driver->texts);
    CHECK(pthread_mutex_destroy(&driver->lock) == 0);
    free(driver);
}

/* ---- looking at it ---- */

void
driver_look(struct driver *driver, struct driver_view *view)
{
    driver_lock(driver);
    const struct mesh_population there = mesh_population(driver->mesh);
    *view = (struct driver_view){
        .counts = driver->counts,
        .figures = {.figures = mesh_figures(driver->mesh), .start_ms = driver->start_ms},
        .sums = mesh_sums(driver->mesh),
        .session = driver->session,
        .revision = driver->revision,
        .heard_ms = driver->heard_ms,
        .models = there.models,
        .vmodels = there.vmodels,
        .instances = there.instances,
        .calls = seats_count(&driver->calls),
        .orders = seats_count(&driver->orders),
        .leads = driver->leads,
        .draining = driver->draining,
        .drained = driver->drained,
        .whole = driver->whole,
    };
    driver_unlock(driver);
}

enum mesh_state
driver_state(struct driver *driver, const char *model)
{
    driver_lock(driver);
    enum mesh_state state = mesh_state(driver->mesh, model);
    driver_unlock(driver);
    return state;
}

uint64_t
driver_visit_models(struct driver *driver, uint64_t from, uint32_t count,
                    void (*visit)(void *context, const struct mesh_model *model), void *context)
{
    driver_lock(driver);
    uint64_t next = mesh_visit_models(driver->mesh, from, count, visit, context);
    driver_unlock(driver);
    return next;
}

uint64_t
driver_visit_vmodels(struct driver *driver, uint64_t from, uint32_t count,
                     void (*visit)(void *context, const struct mesh_vmodel *vmodel), void *context)
{
    driver_lock(driver);
    uint64_t next = mesh_visit_vmodels(driver->mesh, from, count, visit, context);
    driver_unlock(driver);
    return next;
}

uint64_t
driver_visit_instances(struct driver *driver, uint64_t from, uint32_t count,
                       void (*visit)(void *context, const struct mesh_instance *instance),
                       void *context)
{
    driver_lock(driver);
    uint64_t next = mesh_visit_instances(driver->mesh, from, count, visit, context);
    driver_unlock(driver);
    return next;
}
