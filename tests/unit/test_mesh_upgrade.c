/* SPDX-License-Identifier: Apache-2.0 */
/*
 * U1 to U3: which nodes are about to be replaced, by version, by the first letters of their ids,
 * and within a set of labels; that it ends; that they are the second choice, and a choice. On
 * tables alone, each node with as much room as the others.
 */

#include "../test.h"
#include "mesh/core/cluster/place.h"

#define MINUTE INT64_C(60000)

enum { WALL = 1000000000, NODES = 20 };

static struct tables tables;
static uint64_t revision;
static int64_t now_ms;
static uint64_t random_state;
static struct core_model *model;

static void
node_as(const char *id, const char *labels, int64_t version, int64_t start_ms, bool draining)
{
    revision++;
    const struct mesh_instance record = {
        .id = id,
        .labels = labels,
        .session = 3,
        .revision = revision,
        .start_ms = start_ms,
        .version = version,
        .draining = draining,
        .figures = {.capacity_units = 1000, .free_units = 500, .oldest_ms = WALL},
    };
    assert_true(tables_put_instance(&tables, &record, now_ms));
    tables_notify_old(&tables, now_ms, WALL + now_ms);
}

static void
node(const char *id, int64_t version)
{
    node_as(id, "", version, WALL + now_ms, false);
}

static void
gone(const char *id)
{
    assert_true(tables_drop_instance(&tables, id, ++revision, now_ms));
    tables_notify_old(&tables, now_ms, WALL + now_ms);
}

static void
pass(int64_t ms)
{
    now_ms += ms;
    tables_notify_old(&tables, now_ms, WALL + now_ms);
}

static bool
is_old(const char *id)
{
    return tables.instances[tables_instance(&tables, id)].old;
}

static int
fresh(void **state)
{
    (void)state;
    const struct mesh_config config = {
        .instance = "self", .models_max = 4, .instances_max = NODES + 1};
    tables_init(&tables, &config);
    revision = 10;
    now_ms = 1000;
    random_state = 1;
    const struct mesh_model record = {
        .id = "m", .type = "t", .path = "", .key = "", .create_revision = 1, .revision = 1};
    uint32_t number;
    assert_true(tables_put_model(&tables, &record, &number));
    model = &tables.models[number];
    return 0;
}

static int
drop(void **state)
{
    (void)state;
    tables_fini(&tables);
    return 0;
}

/* A newer version: its first node is enough, and each one more begins the time anew. */
TEST_CASE(test_versions)
{
    node("aaaaaa-1", 1);
    node("aaaaaa-2", 1);
    pass(60 * MINUTE);
    assert_false(is_old("aaaaaa-1"));
    node("bbbbbb-1", 2);
    assert_true(is_old("aaaaaa-1"));
    assert_true(is_old("aaaaaa-2"));
    assert_false(is_old("bbbbbb-1"));
    pass(14 * MINUTE);
    node("bbbbbb-2", 2);
    pass(14 * MINUTE);
    assert_true(is_old("aaaaaa-2"));
    pass(MINUTE);
    assert_false(is_old("aaaaaa-2")); /* it has stopped halfway: all are as good */
    gone("aaaaaa-1");
    assert_true(is_old("aaaaaa-2")); /* it goes on */
    gone("aaaaaa-2");
    assert_false(is_old("bbbbbb-1"));
    pass(60 * MINUTE);
    node("aaaaaa-3", 1); /* an older one comes: nothing is replaced by it */
    assert_false(is_old("bbbbbb-1"));
    assert_false(is_old("aaaaaa-3"));
}

/* One version: a new generation has come and the old one has lost a node, or begun to drain one. */
TEST_CASE(test_prefixes)
{
    node("aaaaaa-1", 1);
    node("aaaaaa-2", 1);
    pass(60 * MINUTE);
    gone("aaaaaa-2"); /* a crash; the same again */
    node("aaaaaa-3", 1);
    assert_false(is_old("aaaaaa-1"));
    pass(60 * MINUTE);
    node("bbbbbb-1", 1); /* a node more */
    assert_false(is_old("aaaaaa-1"));
    node_as("aaaaaa-3", "", 1, WALL + 1000, true);
    assert_true(is_old("aaaaaa-1"));
    assert_false(is_old("bbbbbb-1"));
    node_as("aaaaaa-3", "", 1, WALL + 1000, true); /* said again: it does not count again */
    pass(15 * MINUTE);
    assert_false(is_old("aaaaaa-1"));
}

/* Nodes whose ids have nothing in common come and go without any upgrade. */
TEST_CASE(test_names_of_ones_own)
{
    node("node-a", 1);
    pass(MINUTE);
    node("node-b", 1);
    pass(MINUTE);
    node("node-c", 1);
    gone("node-b");
    node("node-d", 1);
    assert_false(is_old("node-a"));
    assert_false(is_old("node-c"));
    assert_false(is_old("node-d"));
    node("node-b", 1);
    assert_false(is_old("node-a"));
}

/* Each set of labels by itself; and one that gets another label is in another one. */
TEST_CASE(test_label_sets)
{
    node_as("aaaaaa-1", "gpu", 1, WALL, false);
    node_as("aaaaaa-2", "cpu", 1, WALL, false);
    pass(60 * MINUTE);
    node_as("bbbbbb-1", "cpu", 2, WALL + now_ms, false);
    assert_false(is_old("aaaaaa-1"));
    assert_true(is_old("aaaaaa-2"));
    node_as("aaaaaa-1", "cpu", 1, WALL, false);
    assert_true(is_old("aaaaaa-1"));
}

/* A start in the far future, or the past, is not lately; what a stranger writes does no harm. */
TEST_CASE(test_absurd_starts)
{
    node_as("aaaaaa-1", "", 1, WALL, false);
    pass(60 * MINUTE);
    node_as("bbbbbb-1", "", 2, INT64_MAX, false);
    assert_false(is_old("aaaaaa-1"));
    node_as("bbbbbb-1", "", 2, WALL + now_ms + 20 * MINUTE, false);
    assert_false(is_old("aaaaaa-1"));
    node_as("cccccc-1", "", INT64_MAX, INT64_MIN, false);
    assert_false(is_old("aaaaaa-1"));
    node_as("", "", INT64_MIN, 0, false);
    gone("");
    gone("cccccc-1");
    node_as("bbbbbb-1", "", 2, WALL + now_ms, false);
    assert_true(is_old("aaaaaa-1"));
}

static uint32_t
chosen_of(const char *id, int64_t used_ms)
{
    const struct place_wish wish = {.model = model,
                                    .now_ms = now_ms,
                                    .wall_ms = WALL + now_ms,
                                    .used_ms = used_ms,
                                    .churn_ms = 30000,
                                    .fresh_ms = 900000};
    uint32_t count = 0;
    for (int i = 0; i < 100; i++)
        count += place_choose(&tables, &wish, &random_state) == tables_instance(&tables, id);
    return count;
}

/* U3: before what is preferred, but not before whether anybody would take it at all. */
TEST_CASE(test_second_choice)
{
    static const char *const ssd[] = {"ssd"};
    const struct mesh_type_rule rule = {.type = "t", .preferred = ssd, .preferred_count = 1};
    assert_true(types_set(&tables.types, &rule, 1));
    pass(60 * MINUTE);
    int64_t used_ms = WALL + now_ms;
    node_as("aaaaaa-1", "ssd", 1, WALL, false);
    node_as("aaaaaa-2", "hdd", 1, WALL, false);
    assert_int_equal(chosen_of("aaaaaa-1", used_ms), 100);
    node_as("bbbbbb-1", "hdd", 2, WALL + now_ms, false); /* newer, in another set of labels */
    assert_int_equal(chosen_of("aaaaaa-1", used_ms), 100);
    node_as("bbbbbb-2", "ssd", 2, WALL + now_ms, false);
    assert_int_equal(chosen_of("bbbbbb-2", used_ms), 100);
    struct instance *newest = &tables.instances[tables_instance(&tables, "bbbbbb-2")];
    newest->figures.full = true;
    newest->figures.oldest_ms = WALL + now_ms; /* full of young models */
    tables.instances[tables_instance(&tables, "bbbbbb-1")].draining = true;
    assert_int_equal(chosen_of("aaaaaa-1", used_ms), 100);
    newest->figures.oldest_ms = WALL; /* of old ones: it takes it, though others have room */
    assert_int_equal(chosen_of("bbbbbb-2", used_ms), 100);
}

TEST_MAIN(.setup = fresh, .teardown = drop)
