/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node with two pools (K6), on a scripted clock: models of type "x" belong to the second, which
 * has room for three; all others to the first, which has room for nine. Eviction, queues, losing a
 * runtime, and the figures that other nodes see. And which of several pools has which types.
 */
#include "mesh_rig.h"

#include "base/check.h"
#include "mesh/core/cluster/pool_names.h"

static uint32_t asked;

static void
pool_name(const char *type, const char *key, char name[MESH_POOL_NAME_BYTES])
{
    assert_string_equal(key, "");
    asked++;
    snprintf(name, MESH_POOL_NAME_BYTES, "%s", type);
}

static const char *const pool_types[] = {"*", "x"};

static void
pool_runtime(uint32_t pool, uint32_t units)
{
    step((struct mesh_event){.kind = MESH_RUNTIME,
                             .runtime = {.capacity_bytes = (uint64_t)units * UNIT,
                                         .default_bytes = UINT64_C(100) * UNIT,
                                         .loaders = 1,
                                         .load_timeout_ms = 9000,
                                         .pool = pool}});
}

static void
lose(uint32_t pool)
{
    step((struct mesh_event){.kind = MESH_RUNTIME_LOST, .lost = {.pool = pool}});
}

static int
fresh_pools(void **state)
{
    (void)state;
    start((struct mesh_config){.pool_types = pool_types, .pool_count = 2, .pool_name = pool_name});
    pool_runtime(1, 400);
    for (int i = 0; i < 12; i++) {
        char id[TEXT];
        snprintf(id, sizeof(id), "m%d", i);
        put_as(id, "t", "", WALL + now_ms);
        id[0] = 'x';
        put_as(id, "x", "", WALL + now_ms);
    }
    mirror_is_whole();
    begin();
    return 0;
}

static uint32_t seen_pool;

static void
see(void *context, const struct mesh_sight *sight)
{
    (void)context;
    seen_pool = sight->pool;
}

TEST_CASE(test_each_pool_evicts_its_own_models)
{
    for (int i = 0; i < 9; i++) {
        char id[TEXT];
        snprintf(id, sizeof(id), "m%d", i);
        use(id);
    }
    use("x0"); /* the first is full by now, and this one is not its */
    use("x1");
    use("x2");
    assert_seen("unload m0", 0);
    tick(10 * MINUTE); /* none is young any more */
    begin();
    use("x3");
    assert_seen("unload x0", 1); /* though all of the others were used longer ago */
    assert_seen("unload m0", 0);
    use("m9");
    assert_seen("unload m0", 1);
    assert_seen("unload x1", 0);
    assert_int_equal(asked, 14); /* once for each model, however often its record is written */
    assert_true(mesh_see_model(mesh, "x3", see, NULL));
    assert_int_equal(seen_pool, 1);
}

/* Both pools together have room for it, neither has alone. */
TEST_CASE(test_model_too_large_for_its_pool)
{
    size_units = 500;
    call_as(1, "x0", MESH_HOP_ENTRY);
    assert_seen("load x0", 0);
    assert_seen("answer 1 load-failed", 1);
    assert_seen("write x0 self:failed", 1);
    call_as(2, "m0", MESH_HOP_ENTRY);
    assert_seen("serve 2 m0", 1);
}

TEST_CASE(test_each_pool_has_its_queue)
{
    prompt = false;
    static const char *const ids[] = {"m0", "m1", "x0", "x1"};
    for (uint32_t i = 0; i < 4; i++) {
        call_as(i, ids[i], MESH_HOP_ENTRY);
        runtime_ends(MESH_SIZE_PREDICTED, ids[i]);
    }
    assert_seen("load m0", 1);
    assert_seen("load x0", 1); /* beside it */
    assert_seen("load m1", 0);
    assert_seen("load x1", 0);
    runtime_ends(MESH_LOAD_ENDED, "x0");
    assert_seen("load x1", 1);
    assert_seen("load m1", 0);
}

TEST_CASE(test_one_runtime_is_lost)
{
    use("m0");
    use("x0");
    struct mesh_figures before = mesh_figures(mesh);
    assert_int_equal(before.capacity_units, 950 + 360);
    assert_int_equal(before.copies, 2);
    begin();
    lose(1);
    assert_int_equal(mesh_state(mesh, "m0"), MESH_STATE_LOADED);
    assert_int_equal(mesh_state(mesh, "x0"), MESH_STATE_NONE);
    assert_seen("unload x0", 0); /* nothing is there any more */
    assert_seen("write x0", 1);
    assert_int_equal(mesh_figures(mesh).capacity_units, 950); /* it has nothing to offer */
    assert_int_equal(mesh_figures(mesh).copies, 1);
    call_as(1, "m0", MESH_HOP_ENTRY);
    assert_seen("serve 1 m0", 1);
    end_call(1, MESH_END_OK, 0);
    use("m1");
    tick(5000); /* the runtime does not return */
    call_as(2, "x0", MESH_HOP_ENTRY);
    assert_seen("answer 2 failed", 1);
    instance("other", 900); /* has room for it */
    call_as(3, "x1", MESH_HOP_ENTRY);
    assert_seen("forward 3 x1 other load", 1);
    end_call(3, MESH_END_OK, 0);
    pool_runtime(1, 400);
    instance_gone("other");
    use("x0");
    lose(0);
    assert_int_equal(mesh_state(mesh, "m0"), MESH_STATE_NONE);
    assert_int_equal(mesh_state(mesh, "x0"), MESH_STATE_LOADED);
    assert_false(mesh_figures(mesh).full);
    lose(1);
    struct mesh_figures after = mesh_figures(mesh);
    assert_int_equal(after.capacity_units, before.capacity_units); /* it may be back */
    assert_int_equal(after.free_units + after.copies + after.loading, 0);
    assert_true(after.full);
}

TEST_CASE(test_node_is_full_when_both_pools_are)
{
    load_ms = 9000; /* on average 3 s: all are young */
    for (int i = 0; i < 3; i++) {
        char id[TEXT];
        snprintf(id, sizeof(id), "x%d", i);
        use(id);
        load_ms = 0;
    }
    assert_false(mesh_figures(mesh).full);
    begin();
    call_as(1, "x3",
            MESH_HOP_LOAD); /* others see that there is room, and are told that there is none
                             */
    assert_seen("answer 1 refused", 1);
    call_as(2, "m0", MESH_HOP_LOAD);
    assert_seen("serve 2 m0", 1);
    assert_true(mesh_figures_for(mesh, "x3").full); /* as the answer says */
    assert_int_equal(mesh_figures_for(mesh, "x3").capacity_units, 360);
    assert_false(mesh_figures_for(mesh, "m3").full);
    assert_int_equal(mesh_figures_for(mesh, "nobody").capacity_units, 950 + 360);
    lose(1);
    assert_true(mesh_pool_figures(mesh, 1).full);
    assert_int_equal(mesh_pool_figures(mesh, 1).free_units, 0);
}

static struct mesh_figures
of_pool(uint64_t free_units)
{
    return (struct mesh_figures){.capacity_units = 1000,
                                 .free_units = free_units,
                                 .oldest_ms = INT64_MAX, /* nothing to evict */
                                 .full = free_units == 0};
}

static void
far_replies(const char *model, uint64_t free_units)
{
    step((struct mesh_event){
        .kind = MESH_INSTANCE_FIGURES,
        .figures = {.instance = "far", .figures = of_pool(free_units), .model = model}});
}

/* This node has no room, so another one loads. */
TEST_CASE(test_pools_of_another_node)
{
    static const char *const types[] = {"*", "x,y"};
    const struct mesh_figures figures[] = {of_pool(0), of_pool(900)};
    lose(0);
    lose(1);
    instance("near", 200);
    struct mesh_instance far = {.id = "far",
                                .session = 7,
                                .figures = of_pool(900),
                                .pool_types = types,
                                .pool_figures = figures,
                                .pool_count = 2};
    instance_with(far);
    call_as(1, "m0", MESH_HOP_ENTRY);
    assert_seen("forward 1 m0 near load", 1);
    call_as(2, "x0", MESH_HOP_ENTRY);
    assert_seen("forward 2 x0 far load", 1);
    far_replies("x0", 0);
    call_as(3, "x1", MESH_HOP_ENTRY);
    assert_seen("forward 3 x1 near load", 1);
    far_replies("m0", 900);
    call_as(4, "m1", MESH_HOP_ENTRY);
    assert_seen("forward 4 m1 far load", 1);
    far_replies(NULL, 0);
    far_replies("nobody", 0);
    call_as(5, "m2", MESH_HOP_ENTRY);
    assert_seen("forward 5 m2 far load", 1);
    instance_gone("far");
    far.pool_count = 0; /* it comes back with a single pool */
    instance_with(far);
    call_as(6, "x2", MESH_HOP_ENTRY);
    assert_seen("forward 6 x2 far load", 1);
    far_replies("x2", 0);
    instance_gone("near");
    call_as(7, "m3", MESH_HOP_ENTRY);
    assert_seen("forward 7", 0);
}

TEST_CASE(test_drain_moves_both_pools)
{
    use("m0");
    use("x0");
    instance("other", 900);
    begin();
    drain();
    tick(1000);
    tick(1000);
    assert_int_equal(seen("drained"), 0);
    add_place("m0", "other", MESH_PLACE_LOADED);
    add_place("x0", "other", MESH_PLACE_LOADED);
    assert_seen("unload m0", 1);
    assert_seen("unload x0", 1);
    tick(1000);
    assert_seen("drained", 1);
}

/* A model may come back with another type. */
TEST_CASE(test_model_changes_its_pool)
{
    use("m0");
    struct rig_model *record = model_at("m0");
    model_gone("m0");
    record->revision = record->create_revision = 0;
    put_as("m0", "x", "", WALL + now_ms);
    begin();
    use("m1");
    lose(0);
    put_as("m1", "x", "", WALL + now_ms); /* or that record itself */
    static const char *const ids[] = {"m0", "m1"};
    for (int i = 0; i < 2; i++) {
        use(ids[i]);
        assert_true(mesh_see_model(mesh, ids[i], see, NULL));
        assert_int_equal(seen_pool, 1);
    }
}

static uint32_t
pool_among(const char *const *types, uint32_t count, const char *name)
{
    struct pool_names *names = pool_names_create(types, count);
    uint32_t pool = pool_names_find(names, pool_name_number(name));
    free(names);
    return pool;
}

TEST_CASE_WITH(test_names_of_pools, NULL, NULL)
{
    static const char *const types[] = {"a,b", "", "*", "c"};
    static const struct {
        const char *name;
        uint32_t of_all;
        uint32_t of_two; /* the first */
    } cases[] = {
        {"a", 0, 0},
        {"b", 0, 0},
        {"c", 3, POOL_UNNAMED},
        {"d", 2, POOL_UNNAMED},
        {"", 2, POOL_UNNAMED},
        {"a,b", 2, POOL_UNNAMED},
        {"ab", 2, POOL_UNNAMED},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        assert_int_equal(pool_among(types, 4, cases[i].name), cases[i].of_all);
        assert_int_equal(pool_among(types, 2, cases[i].name), cases[i].of_two);
    }
    assert_int_equal(pool_names_find(NULL, pool_name_number("a")), POOL_UNNAMED);
}

/* A node's record says that its second pool has no runtime, or is full. */
static void
second_pool_is(const char *id, struct mesh_figures figures)
{
    const struct mesh_figures of[] = {{.capacity_units = 1000, .free_units = 900}, figures};
    instance_with((struct mesh_instance){.id = id,
                                         .session = strcmp(id, "self") == 0 ? session : 7,
                                         .figures = of[0],
                                         .pool_types = pool_types,
                                         .pool_figures = of,
                                         .pool_count = 2});
}

static void
call_for_three_seconds(uint32_t call)
{
    step((struct mesh_event){.kind = MESH_CALL,
                             .call = {.call = call, .model = "x0", .deadline_ms = now_ms + 3000}});
    tick(1500);
    assert_seen("answer", 0);
    tick(1000);
}

/* R14: a runtime was missing, whatever the other pool has. */
TEST_CASE(test_call_waits_for_the_runtime_of_its_pool)
{
    lose(1);
    step((struct mesh_event){.kind = MESH_RUNTIME_RESTS, .rest = {.pool = 1, .rests = true}});
    const struct mesh_figures bare = {
        .capacity_units = 400, .full = true, .oldest_ms = WALL + HOUR};
    struct mesh_figures full = bare;
    full.copies = 4;
    second_pool_is("self", bare);
    second_pool_is("other", bare);
    call_for_three_seconds(1);
    assert_seen("answer 1 unavailable", 1);
    second_pool_is("other", full);
    call_for_three_seconds(2);
    assert_seen("answer 2 full", 1);
    call_as(3, "x0", MESH_HOP_ENTRY);
    pool_runtime(1, 400);
    step((struct mesh_event){.kind = MESH_RUNTIME_RESTS, .rest = {.pool = 1, .rests = false}});
    assert_seen("serve 3 x0", 1);
}

/* D4: the other node has a runtime, but for 5 s none that takes the model. */
TEST_CASE(test_drain_does_not_wait_for_a_pool_without_runtime)
{
    const struct mesh_figures bare = {.capacity_units = 1000, .full = true};
    const struct mesh_figures roomy = {.capacity_units = 1000, .free_units = 900};
    use("x0");
    second_pool_is("other", bare);
    tick(60000);
    second_pool_is("other", roomy);
    tick(60000);
    second_pool_is("other", bare); /* the 5 s begin anew */
    begin();
    drain();
    tick(3000);
    second_pool_is("other", bare);
    tick(1999);
    assert_int_equal(mesh_state(mesh, "x0"), MESH_STATE_LOADED);
    tick(1);
    assert_seen("unload x0", 1);
}

/* A type without constraint needs the pool that takes it. */
TEST_CASE(test_a_pool_is_needed_for_its_types)
{
    assert_true(mesh_is_needed(mesh, 0, ""));
    assert_true(mesh_is_needed(mesh, 1, ""));
    for (int i = 0; i < 12; i++) {
        char id[TEXT];
        snprintf(id, sizeof(id), "x%d", i);
        model_gone(id);
    }
    assert_true(mesh_is_needed(mesh, 0, ""));
    assert_false(mesh_is_needed(mesh, 1, ""));
}

TEST_MAIN(.setup = fresh_pools, .teardown = drop)
