/* SPDX-License-Identifier: Apache-2.0 */
/*
 * M1 to M7 of mesh_clock.h, rule by rule, and that nodes which ask each other come to one time with
 * any clocks. Each node's monotonic clock is another.
 */
#include <stdio.h>

#include "../random.h"
#include "../test.h"
#include "mesh/core/cluster/mesh_clock.h"

#define WALL INT64_C(1700000000000)
#define HOUR INT64_C(3600000)

enum { NODES = 40, ROUND = 10, ASK = MESH_CLOCK_ASK_MS };

struct node {
    struct mesh_clock clock;
    char name[16];
    int64_t skew_ms;
    int64_t base_ms; /* its monotonic clock at 0 */
    bool dead;
};

static struct node nodes[NODES];
static uint32_t count;
static int64_t now_ms;

static int64_t
monotonic(const struct node *node)
{
    return node->base_ms + now_ms;
}

static int64_t
mesh_of(struct node *node)
{
    return mesh_clock_now(&node->clock, monotonic(node), WALL + now_ms + node->skew_ms);
}

/* By how much the node's mesh time is ahead of the true one. */
static int64_t
off(uint32_t node)
{
    return mesh_of(&nodes[node]) - WALL - now_ms;
}

static void
begin(uint32_t number, int64_t skew_ms)
{
    struct node *node = &nodes[number];
    *node = (struct node){.skew_ms = skew_ms, .base_ms = 1000 * (int64_t)number};
    snprintf(node->name, sizeof(node->name), "node-%u", number);
    mesh_clock_init(&node->clock, node->name);
    (void)mesh_of(node);
}

static void
begin_all(uint32_t with, const int64_t *skews_ms)
{
    now_ms = 0;
    count = with;
    for (uint32_t i = 0; i < with; i++)
        begin(i, skews_ms[i]);
}

/* `there_ms` on the way there, `back_ms` on the way back; the time passes for that node alone. */
static void
ask_over(struct node *asker, struct node *asked, int64_t there_ms, int64_t back_ms)
{
    uint64_t key = mesh_clock_key(asked->name);
    if (asked->dead) {
        mesh_clock_forget(&asker->clock, key);
        return;
    }
    if (!mesh_clock_ask(&asker->clock, key, monotonic(asker)))
        return;
    int64_t mesh_ms = mesh_of(asked);
    mesh_clock_notify(&asker->clock, key,
                      &(struct mesh_clock_answer){
                          .asked_ms = monotonic(asker) - there_ms,
                          .received_ms = monotonic(asker) + back_ms,
                          .wall_ms = WALL + now_ms + asked->skew_ms,
                          .mesh_ms = mesh_ms,
                          .voted = asked->clock.voted,
                      });
}

static void
round_of_all(void)
{
    now_ms += ASK;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < count; j++)
            if (i != j && !nodes[i].dead)
                ask_over(&nodes[i], &nodes[j], 1, 1);
    for (uint32_t i = 0; i < count; i++)
        (void)mesh_of(&nodes[i]);
}

TEST_CASE(test_alone_it_has_its_own_clock)
{
    begin_all(1, (int64_t[]){-5000});
    assert_int_equal(off(0), -5000);
    nodes[0].skew_ms = HOUR; /* M3: set, too */
    assert_int_equal(off(0), HOUR);
    assert_int_equal(mesh_clock_skew_ms(&nodes[0].clock), 0);
}

TEST_CASE(test_most_clocks_are_right)
{
    begin_all(5, (int64_t[]){0, 24 * HOUR, -HOUR, 20, -20});
    round_of_all();
    for (uint32_t i = 0; i < 5; i++)
        assert_in_range(off(i) + 250, 0, 500);
    assert_in_range(mesh_clock_skew_ms(&nodes[1].clock), 24 * HOUR - 500, 24 * HOUR + 500);
    assert_true(nodes[1].clock.voted && nodes[1].clock.clocks == 5);
}

TEST_CASE(test_two_take_the_earlier_clock)
{
    begin_all(2, (int64_t[]){HOUR, 0});
    round_of_all();
    assert_in_range(off(0) + 10, 0, 20);
    assert_int_equal(off(1), 0);
    nodes[1].dead = true; /* M6 */
    round_of_all();
    assert_in_range(off(0) + 10, 0, 20);
}

TEST_CASE(test_two_of_three_keep_their_vote)
{
    begin_all(3, (int64_t[]){0, -HOUR, 0});
    round_of_all();
    nodes[2].dead = true;
    round_of_all();
    assert_in_range(off(0) + 10, 0, 20);
    assert_in_range(off(1) + 10, 0, 20); /* M5, though its clock is the earlier one */
    begin(0, 0);
    round_of_all();
    assert_in_range(off(0) + 10, 0, 20); /* a new process takes it from the other */
}

TEST_CASE(test_a_clock_that_is_set_moves_nothing)
{
    begin_all(3, (int64_t[]){0, 0, 0});
    round_of_all();
    nodes[1].skew_ms = HOUR;
    assert_in_range(off(1) + 10, 0, 20); /* M1, before anybody was asked */
    round_of_all();
    for (uint32_t i = 0; i < 3; i++)
        assert_in_range(off(i) + 10, 0, 20);
    nodes[1].skew_ms = nodes[2].skew_ms = HOUR; /* most of them */
    round_of_all();
    for (uint32_t i = 0; i < 3; i++)
        assert_in_range(off(i) - HOUR + 10, 0, 20);
}

TEST_CASE(test_slow_answers)
{
    begin_all(2, (int64_t[]){0, -HOUR});
    now_ms += ASK;
    ask_over(&nodes[0], &nodes[1], 1500, 501); /* M2 */
    assert_int_equal(off(0), 0);
    now_ms += ASK;
    ask_over(&nodes[0], &nodes[1], 1, 1);
    assert_int_equal(off(0), -HOUR);
    now_ms += ASK;
    ask_over(&nodes[0], &nodes[1], 1900, 1); /* the better one counts */
    assert_int_equal(off(0), -HOUR);
}

TEST_CASE(test_jitter_and_drift)
{
    begin_all(3, (int64_t[]){0, 0, 0});
    round_of_all();
    int64_t before_ms = off(0);
    nodes[1].skew_ms = nodes[2].skew_ms = 240;
    round_of_all();
    assert_int_equal(off(0), before_ms); /* M7 */
    nodes[1].skew_ms = nodes[2].skew_ms = 300;
    round_of_all();
    assert_in_range(off(0), 290, 310);
}

TEST_CASE(test_nonsense)
{
    begin_all(2, (int64_t[]){0, 0});
    uint64_t key = mesh_clock_key(nodes[1].name);
    const struct mesh_clock_answer bad[] = {
        {.asked_ms = 10, .received_ms = 5, .wall_ms = WALL, .mesh_ms = WALL},
        {.asked_ms = 10, .received_ms = 20, .wall_ms = -1, .mesh_ms = WALL},
        {.asked_ms = 10, .received_ms = 20, .wall_ms = WALL, .mesh_ms = INT64_MAX},
        {.asked_ms = INT64_MIN, .received_ms = 20, .wall_ms = WALL, .mesh_ms = WALL},
    };
    assert_true(mesh_clock_ask(&nodes[0].clock, key, 0));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        mesh_clock_notify(&nodes[0].clock, key, &bad[i]);
    mesh_clock_notify(&nodes[0].clock, 77, &(struct mesh_clock_answer){.wall_ms = 1, .mesh_ms = 1});
    assert_int_equal(off(0), 0);
    assert_int_equal(nodes[0].clock.clocks, 1);
}

/* Any number of nodes, any clocks, some of which are set or die: they agree. */
TEST_CASE(test_they_agree)
{
    uint64_t random = random_seed(1);
    for (uint32_t world = 0; world < 100; world++) {
        int64_t skews_ms[NODES];
        for (uint32_t i = 0; i < NODES; i++)
            skews_ms[i] = (int64_t)(random_draw(&random) % (48 * (uint64_t)HOUR)) - 24 * HOUR;
        begin_all(2 + (uint32_t)(random_draw(&random) % (NODES - 1)), skews_ms);
        for (uint32_t i = 0; i < ROUND; i++) {
            round_of_all();
            nodes[random_draw(&random) % count].skew_ms = skews_ms[i];
            nodes[random_draw(&random) % count].dead = i % 2;
        }
        for (uint32_t i = 0; i < 4; i++)
            round_of_all();
        uint32_t first = 0;
        while (first < count && nodes[first].dead)
            first++;
        for (uint32_t i = first; i < count; i++)
            if (!nodes[i].dead)
                assert_in_range(off(i) - off(first) + 600, 0, 1200);
    }
}

TEST_MAIN()
