/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline with models, for tests: the modelet `cache`, whose models do what their keys say,
 * beneath a root in the test's folder. Orders are given on the loop thread, and waited for.
 */
#pragma once

#define RIG_CONFIG
#define RIG_SLOTS 32
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "test_pipeline_rig.h"

#include "coordinator/models/catalog.h"
#include "coordinator/models/models.h"
#include "coordinator/workers/worker_pools.h"

/* Settings that a test may change before set_up. */
static const char *rig_models = "memory_mib: 100, load_timeout_ms: 20000, default_size_mib: 1";
static uint32_t rig_workers = 2;
static const char *rig_modelet = "shelf";

enum { MODELS_RIG = 24 };

static inline void
rig_path(const struct rig *rig, const char *name, char *path, size_t room)
{
    snprintf(path, room, "%s/models%s%s", rig->folder, name[0] != '\0' ? "/" : "", name);
}

static inline void
rig_file(const struct rig *rig, const char *name)
{
    char path[256];
    rig_path(rig, name, path, sizeof(path));
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, name, strlen(name)), (ssize_t)strlen(name));
    close(fd);
}

static void
rig_config(const struct rig *rig, FILE *file)
{
    char root[256];
    rig_path(rig, "", root, sizeof(root));
    assert_int_equal(mkdir(root, 0755), 0);
    for (int i = 0; i < MODELS_RIG; i++) {
        char name[32];
        snprintf(name, sizeof(name), "m%d", i);
        rig_file(rig, name);
    }
    fprintf(
        file,
        "pipelines:\n  - name: shelf\n    slots: %d\n    models: { root: %s, %s, watch: no, "
        "preload: no }\n"
        "    stages:\n      - { name: only, modelet: %s/tests/modelets/lib%s.so, workers: %u }\n",
        SLOTS, root, rig_models, getenv("SHOAL_BUILD_DIR"), rig_modelet, rig_workers);
}

static inline int
catalog_tear_down(void **state)
{
    struct rig *rig = *state;
    char command[256];
    snprintf(command, sizeof(command), "rm -rf %s/models", rig->folder);
    assert_int_equal(system(command), 0);
    rig_models = "memory_mib: 100, load_timeout_ms: 20000, default_size_mib: 1";
    rig_workers = 2;
    rig_modelet = "shelf";
    return tear_down(state);
}

/* ---- orders ---- */

enum order_kind { ORDER_LOAD, ORDER_UNLOAD, ORDER_PURGE, ORDER_PREDICT, ORDER_LIST, ORDER_UNLIST };

struct order {
    struct rig *rig;
    enum order_kind kind;
    const char *id, *path, *key;
    uint32_t done;
    enum status status;
    char text[ERROR_TEXT_MAX];
    struct model_facts facts;
};

static inline void
order_done(void *context, const struct error *error, const struct model_facts *facts)
{
    struct order *order = context;
    pthread_mutex_lock(&order->rig->lock);
    order->status = error == NULL ? STATUS_OK : error->status;
    snprintf(order->text, sizeof(order->text), "%s", error == NULL ? "" : error->text);
    if (facts != NULL)
        order->facts = *facts;
    if (order->done++ > 0)
        abort(); /* twice */
    pthread_cond_broadcast(&order->rig->changed);
    pthread_mutex_unlock(&order->rig->lock);
}

static inline void
order_run(void *context)
{
    struct order *order = context;
    struct catalog *catalog = the_pipeline(order->rig)->catalog;
    struct model_registry *registry = order->rig->assembly.registry;
    struct model_spec spec = {.id = order->id, .path = order->path, .key = order->key};
    struct error error = ERROR_NONE;
    switch (order->kind) {
    case ORDER_LOAD: models_load(catalog, &spec, order_done, order); return;
    case ORDER_UNLOAD: models_unload(registry, order->id, order_done, order); return;
    case ORDER_PURGE: models_purge(registry, order_done, order); return;
    case ORDER_PREDICT: models_predict(catalog, &spec, order_done, order); return;
    case ORDER_LIST:
        order_done(order, models_list(catalog, &spec, 0, &error) == STATUS_OK ? NULL : &error,
                   NULL);
        return;
    case ORDER_UNLIST:
        models_unlist(catalog, order->id);
        order_done(order, NULL, NULL);
        return;
    }
}

static inline void
order_begin(struct order *order)
{
    loop_post(order->rig->loop, order_run, order);
}

static inline enum status
order_end(struct order *order)
{
    pthread_mutex_lock(&order->rig->lock);
    wait_for(order->rig, &order->done, 1);
    pthread_mutex_unlock(&order->rig->lock);
    return order->status;
}

static inline struct order
give(struct rig *rig, enum order_kind kind, const char *id, const char *key)
{
    struct order order = {.rig = rig, .kind = kind, .id = id, .path = id, .key = key};
    order_begin(&order);
    order_end(&order);
    return order;
}

#define assert_done(what)                                                                          \
    do {                                                                                           \
        struct order given = (what);                                                               \
        if (given.status != STATUS_OK)                                                             \
            fail_msg("%s: %s", given.id == NULL ? "" : given.id, given.text);                      \
    } while (0)

#define assert_refused(what, code, part)                                                           \
    do {                                                                                           \
        struct order given = (what);                                                               \
        if (given.status != (code) || strstr(given.text, part) == NULL)                            \
            fail_msg("%s: %d %s", given.id == NULL ? "" : given.id, (int)given.status,             \
                     given.text);                                                                  \
    } while (0)

/* ---- requests ---- */

/* As a front does it. NOT_FOUND: no such model. */
static inline enum status
ask(struct rig *rig, const char *id, uint32_t number, enum probe_command command, int64_t argument,
    struct error *error)
{
    struct pipeline *pipeline;
    rig->model =
        registry_enter(rig->assembly.registry, &(struct model_name){id, strlen(id), ""}, &pipeline);
    if (rig->model == NULL)
        return error_set(error, STATUS_NOT_FOUND, "no model \"%s\"", id);
    enum status status = submit(rig, number, command, argument, TIME_NEVER_NS, error);
    if (status != STATUS_OK)
        model_leave(rig->model);
    rig->model = NULL;
    return status;
}

static inline void
assert_asked(struct rig *rig, const char *id, uint32_t number, enum probe_command command,
             int64_t argument)
{
    struct error error = ERROR_NONE;
    if (ask(rig, id, number, command, argument, &error) != STATUS_OK)
        fail_msg("%s: %s", id, error.text);
}

/* The answer is that of the model with this number in its id. */
static inline void
assert_answered(struct rig *rig, uint32_t number, int64_t model)
{
    const struct call *call = answer_of(rig, number);
    if (call->status != STATUS_OK)
        fail_msg("request %u: %d %s", number, (int)call->status, call->text);
    assert_int_equal(call->words[2], number);
    assert_int_equal(call->words[PROBE_MODEL], model);
}

static inline void
assert_failed(struct rig *rig, uint32_t number, enum status status, const char *part)
{
    const struct call *call = answer_of(rig, number);
    if (call->status != status || strstr(call->text, part) == NULL)
        fail_msg("request %u: %d %s", number, (int)call->status, call->text);
}

/* Kills that worker, as anybody could. */
static inline void
kill_worker(struct rig *rig, uint32_t index)
{
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    int32_t pid = 0;
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    assert_non_null(lane);
    while (pid <= 0 || kill(pid, SIGKILL) != 0) {
        pid = atomic_load(&region_worker(&lane->region, 0, index)->pid);
        if (clock_now_ns() > until_ns)
            fail_msg("there is no worker %u", index);
    }
    lane_unref(lane);
}

/* Until the stage has been restarted so often, and all its workers are ready. */
static uint64_t restarts_seen;
static uint32_t live_seen;

static inline void
see_stage(struct pipeline *pipeline, struct lane *lane)
{
    if (lane == NULL)
        return;
    restarts_seen =
        counter_get(counters_values(pipeline->options.counters, lane->generation->stage_scopes[0]),
                    STAGE_RESTARTS);
    live_seen = worker_pools_live(pipeline->pools[lane->number], 0);
}

static inline void
wait_restarts(struct rig *rig, uint64_t least)
{
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    do {
        on_loop(rig, see_stage);
        if (clock_now_ns() > until_ns)
            fail_msg("%llu restarts, %u live", (unsigned long long)restarts_seen, live_seen);
    } while (restarts_seen < least || live_seen < rig_workers);
}

/* ---- looking ---- */

struct look {
    struct rig *rig;
    const char *id;
    bool found;
    struct model_row row;
    char error[ERROR_TEXT_MAX];
};

static inline bool
look_row(void *context, const struct model_row *row)
{
    struct look *look = context;
    look->found = true;
    look->row = *row;
    snprintf(look->error, sizeof(look->error), "%s", row->error);
    return true;
}

static struct look *looked;

static inline void
look_there(struct pipeline *pipeline, struct lane *lane)
{
    (void)pipeline, (void)lane;
    models_visit_one(looked->rig->assembly.registry, looked->id, look_row, looked);
}

static inline struct look
look_at(struct rig *rig, const char *id)
{
    struct look look = {.rig = rig, .id = id};
    looked = &look;
    on_loop(rig, look_there);
    return look;
}

/* Until the model is in that state; MODEL_STATES: until it is not known any more. */
enum { MODEL_STATES = MODEL_IS_FAILED + 1 };

static inline void
wait_state(struct rig *rig, const char *id, int state)
{
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    for (;;) {
        struct look look = look_at(rig, id);
        if (look.found ? (int)look.row.state == state : state == MODEL_STATES)
            return;
        if (clock_now_ns() > until_ns)
            fail_msg("%s never became %d: it is %s", id, state,
                     look.found ? model_state_name(look.row.state) : "not known");
    }
}

static inline void
wait_count(struct rig *rig, enum counter counter, uint64_t least)
{
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (count(rig, counter) < least)
        if (clock_now_ns() > until_ns)
            fail_msg("counter %d: %llu, never %llu", (int)counter,
                     (unsigned long long)count(rig, counter), (unsigned long long)least);
}

/* ---- what tests arrange ---- */

/* A model whose load ends when that file is there. */
static inline const char *
gated(const struct rig *rig, const char *more)
{
    static char key[256];
    char gate[200];
    rig_path(rig, "gate", gate, sizeof(gate));
    snprintf(key, sizeof(key), "gate=%s %s", gate, more);
    return key;
}

static inline bool
one_runs(const struct lane *lane)
{
    bool runs = false;
    for (uint32_t i = 0; i < rig_workers; i++)
        runs = runs || atomic_load(&region_worker(&lane->region, 0, i)->run_began_ns) != 0;
    return runs;
}

/* Until a worker runs something. */
static inline void
wait_runs(struct rig *rig)
{
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    assert_non_null(lane);
    while (!one_runs(lane))
        if (clock_now_ns() > until_ns)
            fail_msg("nothing runs");
    lane_unref(lane);
}

static inline void
wait_reported_of(struct lane *lane, uint32_t worker, uint32_t least)
{
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (atomic_load(&region_worker(&lane->region, 0, worker)->models_reported) < least)
        if (clock_now_ns() > until_ns)
            fail_msg("worker %u was told less than %u times of models", worker, least);
}

/* Until the second worker, which is asked for no sizes, has been told so often. */
static inline void
wait_reported(struct rig *rig, uint32_t least)
{
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    wait_reported_of(lane, 1, least);
    lane_unref(lane);
}

/* ---- other rigs ---- */

static inline int
set_up_one_worker(void **state)
{
    rig_workers = 1;
    return set_up(state);
}

static inline int
set_up_alone(void **state)
{
    rig_modelet = "shelf_alone";
    return set_up(state);
}

#define TEST(name, begin) cmocka_unit_test_setup_teardown(name, begin, catalog_tear_down)
