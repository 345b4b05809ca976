/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the mesh core loads and which copy serves: each rule of placement (P) and routing (R) by
 * itself on a handful of instances, then placement at random against an oracle that judges each
 * choice from the rules' text, and that every acceptable instance is chosen now and then.
 */
#include <stdio.h>

#include "../random.h"
#include "../test.h"
#include "base/clock.h"
#include "mesh/core/calls/route.h"

enum { NODES = 8, NOW = 1000000, CHURN = 30000, FRESH = 900000 };

static struct tables tables;
static uint64_t revision;
static uint64_t random_state;
static struct core_model *model;

static uint32_t
node(const char *id, const char *labels, uint64_t room, int64_t oldest_ms)
{
    revision++;
    const struct mesh_instance record = {
        .id = id,
        .labels = labels,
        .session = revision,
        .revision = revision,
        .figures = {.capacity_units = 1000, .free_units = room, .oldest_ms = oldest_ms},
    };
    assert_true(tables_put_instance(&tables, &record, 0));
    return tables_instance(&tables, id);
}

static void
set_model(const struct mesh_place *places, uint32_t count)
{
    const struct mesh_model record = {.id = "m",
                                      .type = "t",
                                      .path = "",
                                      .key = "",
                                      .create_revision = 1,
                                      .revision = ++revision,
                                      .places = places,
                                      .place_count = count};
    uint32_t number;
    assert_true(tables_put_model(&tables, &record, &number));
    model = &tables.models[number];
}

static int
fresh(void **state)
{
    (void)state;
    const struct mesh_config config = {
        .instance = "self", .models_max = 4, .instances_max = NODES + 1};
    tables_init(&tables, &config);
    revision = 0;
    random_state = 1;
    set_model(NULL, 0);
    return 0;
}

static int
drop(void **state)
{
    (void)state;
    tables_fini(&tables);
    return 0;
}

static struct place_wish
wish(void)
{
    return (struct place_wish){.model = model,
                               .now_ms = NOW,
                               .wall_ms = NOW,
                               .used_ms = NOW,
                               .churn_ms = CHURN,
                               .fresh_ms = FRESH};
}

/* Chosen in each of many draws; NAME_NONE also if it is not always the same. */
static uint32_t
always(const struct place_wish *given)
{
    uint32_t first = place_choose(&tables, given, &random_state);
    for (int i = 0; i < 100; i++)
        if (place_choose(&tables, given, &random_state) != first)
            return NAME_NONE - 1;
    return first;
}

TEST_CASE(test_candidates)
{
    struct place_wish given = wish();
    assert_int_equal(always(&given), NAME_NONE); /* nobody lives */
    assert_int_equal(place_refusal(&tables, &given), PLACE_NO_LABELS);
    uint32_t a = node("a", "", 500, NOW);
    assert_int_equal(always(&given), a);
    uint32_t b = node("b", "", 500, NOW);
    const struct mesh_place on_a[] = {{.instance = "a", .since_ms = 1, .kind = MESH_PLACE_LOADED}};
    set_model(on_a, 1);
    given = wish();
    assert_int_equal(always(&given), b); /* a has it */
    tables.instances[b].draining = true;
    assert_int_equal(always(&given), NAME_NONE);
    tables.instances[b].draining = false;
    const struct tried tried[] = {{.instance = (uint16_t)b, .list = MESH_LIST_LOAD}};
    given.tried = tried;
    given.tried_count = 1;
    assert_int_equal(always(&given), NAME_NONE);
    assert_int_equal(place_refusal(&tables, &given), PLACE_ALL_TRIED);
    const struct tried hit[] = {{.instance = (uint16_t)b, .list = MESH_LIST_HIT}};
    given.tried = hit;
    assert_int_equal(always(&given), b); /* another list */
    const struct tried vain[] = {{.instance = (uint16_t)b, .list = MESH_LIST_LOAD},
                                 {.instance = (uint16_t)a, .list = MESH_LIST_HIT, .since_ms = 1}};
    given.tried = vain;
    given.tried_count = 2;
    assert_int_equal(always(&given), NAME_NONE);
    given.again = true;
    assert_int_equal(always(&given), a); /* the last resort: it may have lost its copy (R12) */
    given.tried_count = 1;
    assert_int_equal(always(&given), NAME_NONE);
    given.tried = vain + 1;
    assert_int_equal(always(&given), b); /* a node that can load it goes first */
    const struct mesh_place failed[] = {
        {.instance = "a", .since_ms = NOW - FRESH - 1, .kind = MESH_PLACE_FAILED},
        {.instance = "b", .since_ms = NOW - FRESH + 1, .kind = MESH_PLACE_FAILED},
    };
    set_model(failed, 2);
    given = wish();
    assert_int_equal(always(&given), a); /* its failure is forgotten, b's is not */
}

TEST_CASE(test_unreachable_ones_are_the_last_resort)
{
    uint32_t a = node("a", "", 900, NOW);
    uint32_t b = node("b", "", 10, NOW);
    tables.instances[a].unreachable_until_ms = NOW + 1;
    struct place_wish given = wish();
    assert_int_equal(always(&given), b);
    tables.instances[b].unreachable_until_ms = NOW + 1;
    assert_int_equal(always(&given), a);
}

TEST_CASE(test_labels)
{
    const char *const gpu[] = {"gpu"};
    const char *const fast[] = {"fast"};
    struct mesh_type_rule rule = {
        .type = "t", .required = gpu, .required_count = 1, .preferred = fast, .preferred_count = 1};
    assert_true(types_set(&tables.types, &rule, 1));
    node("a", "", 900, NOW);
    uint32_t b = node("b", "gpu", 900, NOW);
    uint32_t c = node("c", "fast,gpu", 100, NOW);
    struct place_wish given = wish();
    assert_int_equal(always(&given), c); /* preferred, though there is less room */
    tables.instances[c].figures.full = true;
    assert_int_equal(always(&given), b); /* c's models are too young to go */
    tables.instances[c].figures.oldest_ms = NOW - CHURN - 1;
    assert_int_equal(always(&given), c); /* they are not */
    types_set(&tables.types, NULL, 0);
    tables_relabel(&tables);
    assert_int_not_equal(always(&given), c);
}

TEST_CASE(test_room_before_age)
{
    uint32_t a = node("a", "", 0, 1); /* full of what nobody uses */
    uint32_t b = node("b", "", 5, NOW);
    struct place_wish given = wish();
    assert_int_equal(always(&given), b);
    uint32_t c = node("c", "", 100, NOW);
    assert_int_equal(always(&given), c);    /* b has less than three quarters of that */
    tables.instances[c].pending_units = 99; /* P5 */
    assert_int_equal(always(&given), b);
    tables.instances[b].pending_units = tables.instances[c].pending_units = 200;
    assert_int_equal(always(&given), a);
    uint32_t d = node("d", "", 0, 40000);
    bool seen = false;
    for (int i = 0; i < 100; i++)
        seen |= place_choose(&tables, &given, &random_state) == d; /* nearly as old */
    assert_true(seen);
    tables.instances[d].figures.oldest_ms = 1 + NOW / 10 + 1;
    assert_int_equal(always(&given), a);
    given.used_ms = 1; /* E4: what is to be loaded is no younger than the oldest */
    assert_int_equal(always(&given), NAME_NONE);
    assert_int_equal(place_refusal(&tables, &given), PLACE_ALL_FULL);
}

TEST_CASE(test_busy_ones)
{
    uint32_t a = node("a", "", 900, NOW);
    uint32_t b = node("b", "", 900, NOW);
    tables.instances[a].figures.calls_per_minute = 1000;
    tables.instances[b].figures.calls_per_minute = 10; /* counts as 100 */
    struct place_wish given = wish();
    assert_int_equal(always(&given), b);
    given.used_ms = NOW - 25 * 3600000LL; /* old ones go anywhere */
    assert_int_not_equal(always(&given), b);
    tables.instances[a].figures.calls_per_minute = 150;
    given.used_ms = NOW - 1;
    assert_int_not_equal(always(&given), b);
    given.used_ms = NOW + 20000; /* S4 */
    assert_int_equal(always(&given), b);
}

/* P4: loads that are queued there, or were sent there, speak against a node with more room. */
TEST_CASE(test_queued_loads)
{
    uint32_t a = node("a", "", 900, NOW);
    uint32_t b = node("b", "", 500, NOW);
    struct place_wish given = wish();
    tables.instances[a].figures.loading = 4;
    assert_int_equal(always(&given), a);
    tables.instances[a].figures.loading = 5;
    assert_int_equal(always(&given), b);
    tables.instances[a].figures.loading = 0;
    tables.instances[a].loads_out = 5;
    assert_int_equal(always(&given), b);
    tables.instances[b].figures.loading = 1;
    assert_int_equal(always(&given), a);
}

TEST_CASE(test_this_node_if_as_good)
{
    uint32_t self = node("self", "", 800, NOW);
    uint32_t a = node("a", "", 900, NOW);
    assert_int_equal(self, INSTANCE_SELF);
    struct place_wish given = wish();
    given.own = true;
    assert_int_equal(always(&given), self);
    tables.instances[self].figures.free_units = 600;
    assert_int_equal(always(&given), a);
    given.not_self = true;
    tables.instances[self].figures.free_units = 1000;
    assert_int_equal(always(&given), a);
}

/* Of what is acceptable by the rules' text, each is chosen now and then, and nobody else ever. */
TEST_CASE(test_at_random)
{
    uint64_t seed = random_seed((uint64_t)clock_now_ns());
    for (int round = 0; round < 200; round++) {
        uint64_t room_most = 0;
        int64_t oldest = INT64_MAX;
        uint32_t chosen[NODES] = {0};
        uint32_t numbers[NODES];
        for (uint32_t i = 0; i < NODES; i++) {
            char id[16];
            snprintf(id, sizeof(id), "n%u", i);
            uint64_t room = random_draw(&seed) % 3 ? random_draw(&seed) % 1000 : 0;
            int64_t age = (int64_t)(random_draw(&seed) % NOW);
            numbers[i] = node(id, "", room, NOW - age);
            room_most = room > room_most ? room : room_most;
            oldest = NOW - age < oldest ? NOW - age : oldest;
        }
        struct place_wish given = wish();
        for (int draws = 0; draws < 400; draws++) {
            uint32_t got = place_choose(&tables, &given, &random_state);
            for (uint32_t i = 0; i < NODES; i++)
                chosen[i] += numbers[i] == got;
        }
        for (uint32_t i = 0; i < NODES; i++) {
            const struct mesh_figures *figures = &tables.instances[numbers[i]].figures;
            int64_t younger = figures->oldest_ms - oldest;
            bool roomy = figures->free_units * 4 >= room_most * 3 - 3 && figures->free_units > 0;
            bool old = figures->oldest_ms < NOW - CHURN &&
                       (younger <= 45000 || younger <= (NOW - oldest) / 10);
            if (chosen[i] > 0)
                assert_true(room_most > 0 ? roomy : old);
            if (room_most > 0 && figures->free_units * 4 > room_most * 3 + 4)
                assert_true(chosen[i] > 0);
        }
    }
}

/* ---- routing ---- */

static struct route_wish
call(void)
{
    return (struct route_wish){.model = model, .now_ms = NOW, .wall_ms = NOW, .assumed_ms = 3000};
}

static const struct mesh_place THREE[] = {
    {.instance = "a", .since_ms = NOW - 50, .kind = MESH_PLACE_LOADING},
    {.instance = "b", .since_ms = NOW - 10, .kind = MESH_PLACE_LOADED},
    {.instance = "c", .since_ms = NOW - 20, .kind = MESH_PLACE_LOADED},
};

TEST_CASE(test_routes)
{
    struct route_wish given = call();
    assert_int_equal(route_choose(&tables, &given).kind, ROUTE_MISS);
    uint32_t a = node("a", "", 0, 0);
    uint32_t b = node("b", "", 0, 0);
    uint32_t c = node("c", "", 0, 0);
    set_model(THREE, 3);
    given = call();
    tables.instances[b].out = 3;
    tables.instances[c].out = 2;
    struct route route = route_choose(&tables, &given);
    assert_int_equal(route.kind, ROUTE_THERE);
    assert_int_equal(route.instance, c); /* fewest calls out */
    assert_true(route.since_ms == NOW - 20);
    tables.instances[c].draining = true;
    assert_int_equal(route_choose(&tables, &given).instance, b);
    tables.instances[b].unreachable_until_ms = NOW + 1;
    assert_int_equal(route_choose(&tables, &given).instance, c); /* both are bad: fewest calls */
    tables.instances[c].draining = false;
    tables.instances[b].unreachable_until_ms = 0;
    tables.instances[b].out = 2;
    tables.instances[b].sent = 9;
    tables.instances[c].sent = 8;
    assert_int_equal(route_choose(&tables, &given).instance, c); /* longest ago */
    const struct tried tried[] = {
        {.instance = (uint16_t)c, .list = MESH_LIST_HIT, .since_ms = NOW - 20},
        {.instance = (uint16_t)b, .list = MESH_LIST_HIT, .since_ms = NOW - 11}, /* another copy */
    };
    given.tried = tried;
    given.tried_count = 2;
    assert_int_equal(route_choose(&tables, &given).instance, b);
    const struct tried all[] = {
        {.instance = (uint16_t)c, .list = MESH_LIST_FIXED},
        {.instance = (uint16_t)b, .list = MESH_LIST_HIT, .since_ms = NOW - 10},
        {.instance = (uint16_t)a, .list = MESH_LIST_LOAD},
    };
    given.tried = all;
    given.tried_count = 3;
    assert_int_equal(route_choose(&tables, &given).instance, a); /* it loads: another list */
}

TEST_CASE(test_loading_copies)
{
    uint32_t a = node("a", "", 0, 0);
    uint32_t b = node("b", "", 0, 0);
    struct mesh_place places[] = {
        {.instance = "a", .since_ms = NOW - 20, .kind = MESH_PLACE_LOADING},
        {.instance = "b", .since_ms = NOW - 30, .kind = MESH_PLACE_LOADING},
    };
    set_model(places, 2);
    struct route_wish given = call();
    assert_int_equal(route_choose(&tables, &given).instance, b); /* it began first */
    tables.instances[b].start_ms = NOW - 29;                     /* of a process that is no more */
    assert_int_equal(route_choose(&tables, &given).instance, a);
    tables.instances[b].start_ms = 0;
    tables.instances[b].out = 5;
    places[0].since_ms = NOW - 3001; /* R4: that long is long enough: both count as loaded */
    places[1].since_ms = NOW - 3500;
    set_model(places, 2);
    given = call();
    assert_int_equal(route_choose(&tables, &given).instance, a);
    places[1].kind = MESH_PLACE_FAILED;
    set_model(places, 2);
    given = call();
    assert_int_equal(route_choose(&tables, &given).instance, a);
}

TEST_CASE(test_this_node)
{
    node("self", "", 0, 0);
    uint32_t b = node("b", "", 0, 0);
    const struct mesh_place places[] = {
        {.instance = "self", .since_ms = NOW - 40, .kind = MESH_PLACE_LOADED},
        {.instance = "b", .since_ms = NOW - 30, .kind = MESH_PLACE_LOADED},
    };
    set_model(places, 2);
    struct route_wish given = call();
    given.state = MESH_STATE_LOADED;
    given.in_flight = 1;
    assert_int_equal(route_choose(&tables, &given).instance, b);
    given.prefer_self = true;
    assert_int_equal(route_choose(&tables, &given).kind, ROUTE_HERE);
    given.state = MESH_STATE_WITHDRAWING; /* still serves */
    assert_int_equal(route_choose(&tables, &given).kind, ROUTE_HERE);
    given.state = MESH_STATE_EMPTYING;
    assert_int_equal(route_choose(&tables, &given).instance, b);
    set_model(places, 1);
    given = call();
    given.state = MESH_STATE_QUEUED;
    assert_int_equal(route_choose(&tables, &given).kind, ROUTE_WAIT);
    given.state = MESH_STATE_NONE; /* against the record */
    assert_int_equal(route_choose(&tables, &given).kind, ROUTE_MISS);
}

TEST_MAIN(.setup = fresh, .teardown = drop)
