/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reconciliation as a pure function: the choice of a runtime, the status in each situation, and
 * whole histories. In those, services are created, changed, deleted and brought back in any order,
 * nodes come and go, loads fail, and leaders work on views that may be old and die between any two
 * steps, some beside one another. In the end each service's vmodel is at its model, which has the
 * service's bounds, none is left of a deleted one, and no vmodel of another owner was touched.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "../random.h"
#include "../test.h"
#include "serving/reconcile/reconcile.h"

/* ---- the choice of a runtime ---- */

static const struct serving_format formats[] = {{"onnx", "1", true}, {"keras", NULL, false}};
static const char *const protocols[] = {"grpc-v2"};
static const struct serving_runtime triton = {.name = "triton",
                                              .multi_model = true,
                                              .formats = formats,
                                              .format_count = 2,
                                              .protocols = protocols,
                                              .protocol_count = 1};
static const struct serving_runtime off = {.name = "off", .multi_model = true, .disabled = true};
/* It is for one model. */
static const struct serving_format lone_formats[] = {{"lone", NULL, true}};
static const struct serving_runtime lone = {
    .name = "lone", .formats = lone_formats, .format_count = 1};

#define ALL ((const char *const[]){"*"})
#define SOME ((const char *const[]){"a,onnx", "b"})

TEST_CASE(test_which_runtime)
{
    const struct serving_runtime runtimes[] = {triton, off, lone};
    const struct serving_node bare = {.labels = ""};
    const struct serving_node runs = {
        .labels = "mt:onnx,mt:onnx:1,pv:grpc-v2,rt:triton", .pool_types = ALL, .pool_count = 1};
    const struct serving_node rests = {.labels = "mt:onnx,rt:triton," SERVING_LABEL_RESTS};
    const struct serving_node pools = {.labels = "", .pool_types = SOME, .pool_count = 2};
    const struct {
        struct serving_wanted wanted;
        uint32_t runtimes;
        struct serving_node node;
        enum serving_support support;
    } rows[] = {
        {{.format = "onnx"}, 2, bare, SERVING_WAITS},
        {{.format = "onnx"}, 2, runs, SERVING_SUPPORTED},
        {{.format = "onnx", .version = "1"}, 2, runs, SERVING_SUPPORTED},
        {{.format = "onnx", .version = "2"}, 2, runs, SERVING_NO_RUNTIME},
        {{.format = "onnx", .protocol = "grpc-v2"}, 2, runs, SERVING_SUPPORTED},
        {{.format = "onnx", .protocol = "v1"}, 2, runs, SERVING_NO_RUNTIME},
        {{.format = "keras"}, 2, runs, SERVING_NO_RUNTIME},
        {{.format = "keras", .runtime = "triton"}, 2, runs, SERVING_SUPPORTED},
        {{.format = "keras", .runtime = "triton"}, 2, bare, SERVING_WAITS},
        {{.format = "keras", .runtime = "off"}, 2, runs, SERVING_RUNTIME_DISABLED},
        {{.format = "keras", .runtime = "none"}, 2, runs, SERVING_RUNTIME_UNKNOWN},
        {{.format = "keras", .runtime = "none"}, 0, bare, SERVING_RUNTIME_UNKNOWN},
        {{.format = "lone"}, 3, bare, SERVING_NO_RUNTIME},
        {{.format = "lone", .runtime = "lone"}, 3, bare, SERVING_RUNTIME_DISABLED},
        {{.format = "onnx"}, 1, pools, SERVING_WAITS},
        {{.format = "onnx"}, 2, rests, SERVING_WAITS},
        {{.format = "onnx", .runtime = "triton"}, 2, rests, SERVING_WAITS},
        {{.format = "keras"}, 2, rests, SERVING_NO_RUNTIME},
        {{.format = "b"}, 2, pools, SERVING_SUPPORTED},
        {{.format = "c"}, 2, pools, SERVING_NO_RUNTIME},
        {{.format = "c"}, 0, pools, SERVING_NO_RUNTIME},
        {{.format = "c"}, 0, bare, SERVING_SUPPORTED},
        {{.format = "c"}, 2, bare, SERVING_NO_RUNTIME},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        const struct serving_offers offers = {.runtimes = runtimes,
                                              .runtime_count = rows[i].runtimes,
                                              .nodes = &rows[i].node,
                                              .node_count = 1};
        if (serving_support(&rows[i].wanted, &offers) != rows[i].support)
            fail_msg("row %zu: %u", i, serving_support(&rows[i].wanted, &offers));
    }
}

/* ---- the status ---- */

#define NONE                                                                                       \
    {                                                                                              \
        .vmodel = SERVING_ABSENT, .owner = "", .active = "", .target = ""                          \
    }
#define AT(state)                                                                                  \
    {                                                                                              \
        SERVING_DEFINED, "isvc", "m", "m", {.load = (state), .error = "why"},                      \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }
#define ON(vmodel, state)                                                                          \
    {                                                                                              \
        vmodel, "isvc", "l", "m", {.load = SERVING_LOADED, .copies = 1},                           \
        {                                                                                          \
            .load = (state), .error = "why", .location = "n", .copies = 1, .failed_copies = 1      \
        }                                                                                          \
    }

static const struct {
    struct serving_observed observed;
    enum serving_support support;
    enum serving_act act;
    const char *transition, *active, *target, *reason;
    bool available;
} situations[] = {
    {NONE, SERVING_SUPPORTED, SERVING_SET, "UpToDate", "Pending", "", NULL, false},
    {NONE, SERVING_WAITS, SERVING_SET, "UpToDate", "Pending", "", NULL, false},
    {NONE, SERVING_NO_RUNTIME, SERVING_KEEP, "UpToDate", "FailedToLoad", "", "NoSupportingRuntime",
     false},
    {AT(SERVING_LOADING), SERVING_SUPPORTED, SERVING_KEEP, "UpToDate", "Loading", "", NULL, true},
    {AT(SERVING_LOADED), SERVING_SUPPORTED, SERVING_KEEP, "UpToDate", "Loaded", "", NULL, true},
    {AT(SERVING_LOADED), SERVING_NO_RUNTIME, SERVING_KEEP, "UpToDate", "Loaded", "", NULL, true},
    {AT(SERVING_NOT_LOADED), SERVING_SUPPORTED, SERVING_KEEP, "UpToDate", "Standby", "", NULL,
     true},
    {AT(SERVING_NOT_LOADED), SERVING_WAITS, SERVING_KEEP, "UpToDate", "Loading", "",
     "RuntimeUnhealthy", false},
    {AT(SERVING_LOAD_FAILED), SERVING_SUPPORTED, SERVING_KEEP, "UpToDate", "FailedToLoad", "",
     "ModelLoadFailed", false},
    {ON(SERVING_MOVING, SERVING_LOADING), SERVING_SUPPORTED, SERVING_KEEP, "InProgress", "Loaded",
     "Loading", NULL, true},
    {ON(SERVING_MOVE_FAILED, SERVING_LOAD_FAILED), SERVING_SUPPORTED, SERVING_KEEP,
     "BlockedByFailedLoad", "Loaded", "FailedToLoad", "ModelLoadFailed", true},
    {ON(SERVING_MOVING, SERVING_LOADING), SERVING_WAITS, SERVING_KEEP, "InProgress", "Loaded",
     "Loading", "RuntimeUnhealthy", true},
    {{SERVING_DEFINED, "isvc", "l", "l", {.load = SERVING_LOADED}, {0}},
     SERVING_SUPPORTED,
     SERVING_SET,
     "InProgress",
     "Loaded",
     "",
     NULL,
     true},
    {{SERVING_DEFINED, "isvc", "l", "l", {.load = SERVING_LOADED}, {0}},
     SERVING_RUNTIME_UNKNOWN,
     SERVING_KEEP,
     "BlockedByFailedLoad",
     "Loaded",
     "FailedToLoad",
     "RuntimeNotRecognized",
     true},
    {{SERVING_DEFINED, "ksp", "l", "l", {.load = SERVING_LOADED}, {0}},
     SERVING_SUPPORTED,
     SERVING_KEEP,
     "InvalidSpec",
     "FailedToLoad",
     "",
     "InvalidPredictorSpec",
     false},
};

TEST_CASE(test_status_in_each_situation)
{
    const struct serving_wanted wanted = {.owner = "isvc", .model = "m", .format = "f"};
    for (size_t i = 0; i < ARRAY_COUNT(situations); i++) {
        struct serving_status reported;
        print_message("row %zu\n", i);
        assert_int_equal(
            serving_reconcile(&wanted, situations[i].support, &situations[i].observed, &reported),
            situations[i].act);
        assert_string_equal(reported.transition, situations[i].transition);
        assert_string_equal(reported.active, situations[i].active);
        assert_string_equal(reported.target, situations[i].target);
        assert_int_equal(reported.available, situations[i].available);
        assert_int_equal(reported.reason == NULL, situations[i].reason == NULL);
        if (reported.reason != NULL)
            assert_string_equal(reported.reason, situations[i].reason);
    }
}

TEST_CASE(test_texts_of_the_documents)
{
    const struct serving_observed none = NONE;
    struct serving_wanted wanted = {.owner = "isvc", .model = "m", .format = "f"};
    struct serving_status reported;
    serving_reconcile(&wanted, SERVING_NO_RUNTIME, &none, &reported);
    assert_string_equal(reported.message,
                        "No ServingRuntime supports specified model type and/or protocol");
    wanted.form = SERVING_PREDICTOR;
    serving_reconcile(&wanted, SERVING_NO_RUNTIME, &none, &reported);
    assert_string_equal(reported.message, "No ServingRuntime supports specified model type");
}

/* A node that takes the type has come: the model is loaded without a call. */
TEST_CASE(test_wait_ends_in_a_load)
{
    const struct serving_observed idle = AT(SERVING_NOT_LOADED);
    struct serving_wanted wanted = {.owner = "isvc", .model = "m", .format = "f"};
    struct serving_status reported;
    assert_int_equal(serving_reconcile(&wanted, SERVING_SUPPORTED, &idle, &reported), SERVING_KEEP);
    wanted.waited = true;
    assert_int_equal(serving_reconcile(&wanted, SERVING_SUPPORTED, &idle, &reported), SERVING_SET);
}

/* R7: a change of the annotations is the model's at once, and that of its target. */
TEST_CASE(test_bounds_are_set)
{
    struct serving_observed at = AT(SERVING_LOADED);
    struct serving_observed moves = ON(SERVING_MOVING, SERVING_LOADING);
    struct serving_wanted wanted = {.owner = "isvc", .model = "m", .format = "f"};
    struct serving_status reported;
    const struct serving_bounds rows[] = {{.copies_min = 1}, {.copies_max = 1}, {.size_mib = 1}};
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        wanted.bounds = rows[i];
        at.active_model.bounds = moves.target_model.bounds = (struct serving_bounds){0};
        assert_int_equal(serving_reconcile(&wanted, SERVING_SUPPORTED, &at, &reported),
                         SERVING_SET);
        assert_int_equal(serving_reconcile(&wanted, SERVING_WAITS, &at, &reported), SERVING_SET);
        assert_int_equal(serving_reconcile(&wanted, SERVING_SUPPORTED, &moves, &reported),
                         SERVING_SET);
        assert_string_equal(reported.transition, "InProgress");
        at.active_model.bounds = moves.target_model.bounds = rows[i];
        assert_int_equal(serving_reconcile(&wanted, SERVING_SUPPORTED, &at, &reported),
                         SERVING_KEEP);
        assert_int_equal(serving_reconcile(&wanted, SERVING_WAITS, &at, &reported), SERVING_KEEP);
        assert_int_equal(serving_reconcile(&wanted, SERVING_SUPPORTED, &moves, &reported),
                         SERVING_KEEP);
    }
}

/* ---- histories ---- */

enum { SERVICES = 6, MODELS = 4, LEADERS = 2, STEPS = 400, HISTORIES = 2000 };
/* An order ends within the first time, by its deadline or with its leader's session. */
enum { ORDER_STEPS = 60, AGED_STEPS = 61 };

/* A manifest's record, and the vmodel of its name. */
struct world_service {
    bool exists, deleted;
    uint32_t gone_at; /* when a leader saw it deleted and without its vmodel */
    uint32_t model, revision;
    bool vmodel;
    bool foreign; /* the vmodel has another owner */
    uint32_t active, target;
    bool target_fails;
    uint32_t wanted_min, copies_min; /* of the manifest, and of the target's record */
};

/* A leader's step of a service: it has looked, and has decided or not. */
struct step {
    bool looked, decided;
    uint32_t at; /* of the look */
    struct world_service seen;
    enum serving_act act;
};

struct world {
    struct world_service services[SERVICES];
    struct step steps[LEADERS][SERVICES];
    uint64_t random;
    uint32_t now;
    uint32_t revision;
    bool supported;
};

static uint32_t
below(struct world *world, uint32_t limit)
{
    return (uint32_t)(random_draw(&world->random) % limit);
}

static const char *const names[MODELS] = {"m0", "m1", "m2", "m3"};

static enum serving_act
decide(const struct world *world, const struct world_service *seen)
{
    bool gone = seen->deleted && (!seen->vmodel || seen->foreign);
    struct serving_observed observed = NONE;
    struct serving_status status;
    const struct serving_wanted wanted = {.owner = "isvc",
                                          .model = names[seen->model],
                                          .deleted = seen->deleted,
                                          .aged = gone && seen->gone_at != 0 &&
                                                  world->now - seen->gone_at > AGED_STEPS,
                                          .format = "f",
                                          .bounds = {.copies_min = seen->wanted_min}};
    const struct serving_bounds bounds = {.copies_min = seen->copies_min};
    if (seen->vmodel)
        observed = (struct serving_observed){
            .vmodel = seen->active == seen->target ? SERVING_DEFINED
                      : seen->target_fails         ? SERVING_MOVE_FAILED
                                                   : SERVING_MOVING,
            .owner = seen->foreign ? "ksp" : "isvc",
            .active = names[seen->active],
            .target = names[seen->target],
            .active_model = {.load = SERVING_LOADED, .bounds = bounds},
            .target_model = {.load = seen->target_fails ? SERVING_LOAD_FAILED : SERVING_LOADING,
                             .bounds = bounds}};
    enum serving_support support = world->supported ? SERVING_SUPPORTED : SERVING_NO_RUNTIME;
    enum serving_act act = serving_reconcile(&wanted, support, &observed, &status);
    assert_true(status.transition != NULL && status.active != NULL && status.target != NULL);
    return act;
}

/* The mesh's orders check the owner; a record is forgotten by its revision. */
static void
carry_out(struct world_service *service, const struct step *step)
{
    bool ours = service->vmodel && !service->foreign;
    switch (step->act) {
    case SERVING_KEEP:
    case SERVING_HIDE: break;
    case SERVING_SET:
        if (service->vmodel && service->foreign)
            break;
        service->active = ours ? service->active : step->seen.model;
        service->target = step->seen.model;
        service->target_fails = false;
        service->copies_min = step->seen.wanted_min;
        service->vmodel = true;
        break;
    case SERVING_DELETE: service->vmodel = service->vmodel && service->foreign; break;
    case SERVING_FORGET:
        if (service->exists && service->revision == step->seen.revision)
            service->exists = false;
        break;
    }
}

static void
leader_goes_on(struct world *world, uint32_t leader, uint32_t i)
{
    struct world_service *service = &world->services[i];
    struct step *step = &world->steps[leader][i];
    bool ours = service->vmodel && !service->foreign;
    if (!step->looked && service->exists) {
        if (!service->deleted || ours)
            service->gone_at = 0;
        else if (service->gone_at == 0)
            service->gone_at = world->now;
        *step = (struct step){.looked = true, .at = world->now, .seen = *service};
    } else if (step->looked && !step->decided) {
        step->act = decide(world, &step->seen);
        step->decided = true;
    } else if (step->decided) {
        if (world->now - step->at <= ORDER_STEPS)
            carry_out(service, step);
        *step = (struct step){.looked = false};
    }
}

static void
user_acts(struct world *world, uint32_t i)
{
    struct world_service *service = &world->services[i];
    uint32_t what = below(world, 4);
    if (what == 0 && service->exists) {
        service->deleted = true;
        service->revision = ++world->revision;
    } else if (what > 1) {
        service->exists = true;
        service->deleted = false;
        service->model = below(world, MODELS);
        service->wanted_min = below(world, 3);
        service->revision = ++world->revision;
    }
}

static void
mesh_acts(struct world *world, uint32_t i)
{
    struct world_service *service = &world->services[i];
    if (!service->vmodel || service->active == service->target)
        return;
    if (below(world, 3) == 0)
        service->target_fails = true;
    else if (!service->target_fails)
        service->active = service->target;
}

static void
step_world(struct world *world)
{
    uint32_t i = below(world, SERVICES);
    uint32_t leader = below(world, LEADERS);
    world->now++;
    switch (below(world, 12)) {
    case 0: user_acts(world, i); break;
    case 1: mesh_acts(world, i); break;
    case 2: memset(world->steps[leader], 0, sizeof(world->steps[leader])); break; /* it dies */
    case 3: world->supported = below(world, 4) > 0; break;
    default: leader_goes_on(world, leader, i);
    }
}

/* Orders of the past end in any way, and one leader goes on alone. */
static void
reconcile_all(struct world *world)
{
    world->supported = true;
    for (uint32_t i = 0; i < SERVICES; i++)
        leader_goes_on(world, 1, i);
    for (uint32_t round = 0; round < 3 * AGED_STEPS; round++, world->now++)
        for (uint32_t i = 0; i < SERVICES; i++)
            leader_goes_on(world, 0, i);
}

static void
check_world(const struct world *world, uint64_t seed)
{
    for (uint32_t i = 0; i < SERVICES; i++) {
        const struct world_service *service = &world->services[i];
        if (i == 0) {
            if (!service->vmodel || !service->foreign || service->target != 0)
                fail_msg("SHOAL_SEED=%llu: another owner's vmodel was touched",
                         (unsigned long long)seed);
            continue;
        }
        if (service->exists && service->deleted)
            fail_msg("SHOAL_SEED=%llu: %u: a deleted service stays", (unsigned long long)seed, i);
        if (service->exists && (!service->vmodel || service->target != service->model))
            fail_msg("SHOAL_SEED=%llu: %u: the vmodel is not at its model",
                     (unsigned long long)seed, i);
        if (service->exists && service->copies_min != service->wanted_min)
            fail_msg("SHOAL_SEED=%llu: %u: the model has other bounds", (unsigned long long)seed,
                     i);
        if (!service->exists && service->vmodel)
            fail_msg("SHOAL_SEED=%llu: %u: the vmodel of no service", (unsigned long long)seed, i);
    }
}

TEST_CASE(test_histories)
{
    uint64_t first = random_seed(1);
    for (uint64_t seed = first; seed < first + HISTORIES; seed++) {
        struct world world = {.supported = true};
        world.random = seed;
        world.services[0].vmodel = world.services[0].foreign = true;
        for (uint32_t i = 0; i < STEPS; i++)
            step_world(&world);
        reconcile_all(&world);
        check_world(&world, seed);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_runtime),
        cmocka_unit_test(test_status_in_each_situation),
        cmocka_unit_test(test_texts_of_the_documents),
        cmocka_unit_test(test_wait_ends_in_a_load),
        cmocka_unit_test(test_bounds_are_set),
        cmocka_unit_test(test_histories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
