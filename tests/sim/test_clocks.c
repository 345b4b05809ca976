/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A full mesh with one clock that is off serves as well as one whose clocks are right: hits within
 * one in a hundred of all calls, no longer waits, no more failures. Nothing else goes wrong. Each
 * clock is looked at in the same worlds, for twenty minutes after one of warming up.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../test.h"
#include "world.h"

enum {
    NODES = 3,
    MODELS_EACH = 12, /* node; there is room for two thirds of them */
    WORLDS = 3,
    HIT_MS = 300, /* served by a copy that is loaded: at most two hops and a runtime */
    WARM_UP_MS = 60000,
    MEASURED_MS = 1200000,
    WAITS_MAX = 400000,
    MINUTE_MS = 60000,
    HOUR_MS = 3600000,
    DAY_MS = 86400000,
};

enum when { FROM_THE_START, IN_THE_MIDDLE };

struct clock_case {
    const char *name;
    uint32_t nodes;
    int64_t skew_ms; /* of node 0 */
    enum when when;
};

struct figures {
    uint64_t calls;
    uint64_t hits;
    uint64_t failed;
    size_t misses; /* waits of those that were answered */
    int64_t waits_ms[WAITS_MAX];
};

static uint32_t nodes;

static void
adjust(struct world *world)
{
    struct options *options = &world->options;
    *options = (struct options){
        .nodes = nodes,
        .models = MODELS_EACH * nodes,
        .zipf = 0,
        .call_every_ms = 100,
        .rate_for_more = 1000000,
        .delay_ms = 5,
        .watch_lag_ms = 100,
        .model_bytes = UINT64_C(10) * 8192,
        .capacity_bytes = UINT64_C(20) * 10 * 8192,
        .load_ms = 2000,
        .chaos_ms = WARM_UP_MS + MEASURED_MS,
    };
}

static void
add_up(const struct world *world, struct figures *figures)
{
    for (uint32_t i = 0; i < world->call_count; i++) {
        const struct client_call *call = &world->calls[i];
        if (call->began_ms < WARM_UP_MS || call->open)
            continue;
        int64_t took_ms = call->ended_ms - call->began_ms;
        figures->calls++;
        figures->failed += call->end != MESH_END_OK;
        if (call->end == MESH_END_OK && took_ms <= HIT_MS)
            figures->hits++;
        else if (figures->misses < WAITS_MAX)
            figures->waits_ms[figures->misses++] = took_ms;
    }
}

static void
run(uint64_t seed, const struct clock_case *clock, struct figures *figures)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    nodes = clock->nodes;
    world_init_as(world, seed, adjust);
    if (clock->when == FROM_THE_START) {
        world->nodes[0].skew_ms = clock->skew_ms;
        clock_start(world, 0); /* before it has said anything */
    }
    world_run(world, WARM_UP_MS + MEASURED_MS / 2);
    world->nodes[0].skew_ms = clock->skew_ms;
    world_run(world, MEASURED_MS / 2);
    add_up(world, figures);
    world_fini(world);
    free(world);
}

static int
compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static int64_t
wait_ms(const struct figures *figures, size_t percent)
{
    return figures->misses == 0 ? 0 : figures->waits_ms[figures->misses * percent / 100];
}

static void
measure(const struct clock_case *clock, struct figures *figures)
{
    *figures = (struct figures){0};
    for (uint64_t seed = 1; seed <= WORLDS; seed++)
        run(seed, clock, figures);
    qsort(figures->waits_ms, figures->misses, sizeof(int64_t), compare);
    printf("%u nodes, %-24s hits %5.2f %% of %llu, misses wait %lld ms, %lld ms at the 99th, "
           "%llu failed\n",
           clock->nodes, clock->name, 100.0 * (double)figures->hits / (double)figures->calls,
           (unsigned long long)figures->calls, (long long)wait_ms(figures, 50),
           (long long)wait_ms(figures, 99), (unsigned long long)figures->failed);
}

TEST_CASE(test_one_wrong_clock)
{
    const struct clock_case *first = *state;
    static struct figures right;
    static struct figures wrong;
    measure(first, &right);
    assert_true(right.hits < right.calls && right.hits > right.calls / 3);
    for (const struct clock_case *clock = first + 1; clock->name != NULL; clock++) {
        measure(clock, &wrong);
        assert_true(wrong.hits * 100 + wrong.calls > right.hits * wrong.calls / right.calls * 100);
        assert_true(wait_ms(&wrong, 50) <= wait_ms(&right, 50) * 11 / 10);
        assert_true(wait_ms(&wrong, 99) <= wait_ms(&right, 99) * 11 / 10);
        assert_true(wrong.failed <= right.failed + wrong.calls / 500);
    }
}

static struct clock_case many[] = {
    {"clocks are right", NODES, 0, FROM_THE_START},
    {"60 s behind", NODES, -MINUTE_MS, FROM_THE_START},
    {"60 s ahead", NODES, MINUTE_MS, FROM_THE_START},
    {"an hour ahead", NODES, HOUR_MS, FROM_THE_START},
    {"a day behind", NODES, -DAY_MS, FROM_THE_START},
    {"a day ahead", NODES, DAY_MS, FROM_THE_START},
    {"set an hour ahead", NODES, HOUR_MS, IN_THE_MIDDLE},
    {"set a day behind", NODES, -DAY_MS, IN_THE_MIDDLE},
    {.name = NULL},
};

static struct clock_case two[] = {
    {"clocks are right", 2, 0, FROM_THE_START},
    {"an hour behind", 2, -HOUR_MS, FROM_THE_START},
    {"an hour ahead", 2, HOUR_MS, FROM_THE_START},
    {"set an hour ahead", 2, HOUR_MS, IN_THE_MIDDLE},
    {"set an hour behind", 2, -HOUR_MS, IN_THE_MIDDLE},
    {.name = NULL},
};

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_one_wrong_clock, many),
        cmocka_unit_test_prestate(test_one_wrong_clock, two),
    };
    return cmocka_run_group_tests_name("clocks", tests, NULL, NULL);
}
