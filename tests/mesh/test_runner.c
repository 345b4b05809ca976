/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that runners over a real etcd are one mesh: any node answers for any model; a node that
 * dies, drains or is cut off costs nobody an answer for want of a living copy; etcd may stop, lose
 * answers, or all of its data. The nodes are runners in this process; runtimes and the way between
 * peers are the test (tests/unit/test_mesh_runner_rig.h).
 */
#include "../random.h"
#include "../etcd/proxy.h"
#include "../etcd/rig.h"
#include "../unit/test_mesh_runner_rig.h"

#include "mesh/edge/runner.h"
#include "mesh/store/store.h"

/* Short where its end is waited for, else longer than a busy machine stands still: a node that
 * loses it is dead to the others, and its models are loaded again. */
enum { NODES = 3, MODELS = 12, LEASE_S = 2, LONG_LEASE_S = 30 };

static struct cluster cluster;
static uint64_t random_state;
static int64_t lease_s;

/* A node of the mesh; through a proxy, if there is one. */
static struct node *
join(uint32_t index, const char *id, const struct proxy *proxy)
{
    struct node *node = node_create(index, id, (struct runner_options){0});
    struct error error = ERROR_NONE;
    const struct etcd_options options = {.call_timeout_ns = 2 * NS_PER_S, .seed = index + 1};
    node->etcd =
        proxy == NULL ? rig_client(&cluster, options) : rig_client_of(proxy_url(proxy), options);
    const struct store_events events = runner_events(node->runner);
    const struct store_options store = {.instance = node->id, .events = &events};
    const struct store_etcd_options where = {.etcd = node->etcd,
                                             .prefix = "/test/mm/service/",
                                             .lease_s = lease_s,
                                             .timeout_ns = NS_PER_S};
    if (store_open_etcd(nodes.base, &store, &where, &node->store, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    runner_start(node->runner, node->store);
    node_runtime_ready(node, 2 * MODELS); /* none goes for want of room */
    return node;
}

static bool
all_see(uint32_t count)
{
    for (uint32_t i = 0; i < NODES_MAX; i++) {
        struct node *node = &nodes.at[i];
        if (node->is_there && (node_look(node).instances != count || node_look(node).session == 0 ||
                               !runner_is_ready(node->runner)))
            return false;
    }
    return true;
}

static bool
all_know(uint32_t models)
{
    for (uint32_t i = 0; i < NODES_MAX; i++)
        if (nodes.at[i].is_there && node_look(&nodes.at[i]).models != models)
            return false;
    return true;
}

static void
model_name(char id[ID_MAX], uint32_t number)
{
    snprintf(id, ID_MAX, "m%u", number);
}

static void
register_all(struct node *node)
{
    char id[ID_MAX];
    for (uint32_t i = 0; i < MODELS; i++) {
        model_name(id, i);
        node_register(node, id);
    }
    NODES_WAIT(all_know(MODELS));
}

static struct node *
some_node(void)
{
    for (;;) {
        struct node *node = &nodes.at[random_draw(&random_state) % NODES_MAX];
        if (node->is_there)
            return node;
    }
}

static void
show(void *context, const struct mesh_instance *instance)
{
    const struct mesh_figures *figures = &instance->figures;
    printf("  %s sees %s: free %llu of %llu, copies %u, loading %u%s\n", (const char *)context,
           instance->id, (unsigned long long)figures->free_units,
           (unsigned long long)figures->capacity_units, figures->copies, figures->loading,
           figures->full ? ", full" : "");
}

/* For people, when a test fails. */
static void
show_all(void)
{
    for (uint32_t i = 0; i < NODES_MAX; i++)
        if (nodes.at[i].is_there)
            runner_visit_instances(nodes.at[i].runner, 0, NODES_MAX, show, nodes.at[i].id);
}

/* Through nodes drawn by lot. */
static void
all_answer(void)
{
    struct asker *askers[MODELS];
    char id[ID_MAX];
    for (uint32_t i = 0; i < MODELS; i++) {
        model_name(id, i);
        askers[i] = ask(some_node(), id);
    }
    for (uint32_t i = 0; i < MODELS; i++) {
        NODES_WAIT(askers[i]->over);
        if (askers[i]->end != MESH_END_OK)
            show_all();
        if (askers[i]->end != MESH_END_OK)
            fail_msg("m%u at %s: end %d, %s", i, askers[i]->node->id, (int)askers[i]->end,
                     askers[i]->text);
        asker_free(askers[i]);
    }
}

static uint32_t
copies_of(const char *id)
{
    uint32_t copies = 0;
    for (uint32_t i = 0; i < NODES_MAX; i++)
        copies += nodes.at[i].is_there && node_holds(&nodes.at[i], id);
    return copies;
}

static uint64_t
forwarded(void)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < NODES_MAX; i++)
        if (nodes.at[i].is_there)
            sum += node_look(&nodes.at[i]).counts.forwarded;
    return sum;
}

static int
set_up(void **state)
{
    (void)state;
    random_state = random_seed((uint64_t)clock_now_ns());
    lease_s = LEASE_S;
    cluster = (struct cluster){0};
    cluster_start(&cluster, 1);
    nodes_begin(rig_base());
    return 0;
}

static int
set_up_long(void **state)
{
    int done = set_up(state);
    lease_s = LONG_LEASE_S;
    return done;
}

static int
tear_down(void **state)
{
    (void)state;
    nodes_end();
    cluster_stop(&cluster);
    rig_end();
    return 0;
}

static void
three_join(void)
{
    join(0, "node-a", NULL);
    join(1, "node-b", NULL);
    join(2, "node-c", NULL);
    NODES_WAIT(all_see(NODES));
    register_all(&nodes.at[0]);
}

TEST_CASE(any_node_answers_for_any_model)
{
    char id[ID_MAX];
    three_join();
    for (int i = 0; i < 5; i++)
        all_answer();
    for (uint32_t i = 0; i < MODELS; i++) {
        model_name(id, i);
        assert_int_equal(copies_of(id), 1);
    }
    assert_true(forwarded() > 0);
    struct ordered ordered;
    NODES_WAIT(node_status(&nodes.at[2], "m0", &ordered) == MESH_MODEL_LOADED);
    assert_true(node_holds(node_of(ordered.place), "m0"));
    uint32_t leaders = 0;
    for (uint32_t i = 0; i < NODES; i++)
        leaders += node_look(&nodes.at[i]).leads;
    assert_int_equal(leaders, 1);
}

TEST_CASE_WITH(a_dead_node_costs_no_answer, set_up, tear_down)
{
    three_join();
    all_answer();
    node_end_runner(&nodes.at[1]); /* its key stays until its lease ends */
    for (int i = 0; i < 3; i++)
        all_answer();
    NODES_WAIT(all_see(NODES - 1));
    all_answer();
    join(1, "node-b", NULL); /* under the same name: what its predecessor held is dead */
    NODES_WAIT(all_see(NODES));
    for (int i = 0; i < 3; i++)
        all_answer();
}

TEST_CASE(a_node_that_drains_costs_no_answer)
{
    three_join();
    all_answer();
    struct node *node = &nodes.at[2];
    runner_drain(node->runner);
    while (node->drained == 0)
        all_answer();
    uint32_t loads = node->loads;
    all_answer();
    assert_int_equal(node->loads, loads); /* I18 */
    store_leave(node->store);
    NODES_WAIT(node_look(node).session == 0);
    node_end_runner(node);
    NODES_WAIT(all_see(NODES - 1));
    all_answer();
}

static bool
nobody_has_a_session(void)
{
    for (uint32_t i = 0; i < NODES; i++)
        if (node_look(&nodes.at[i]).session != 0)
            return false;
    return true;
}

/* A node that has not learned of a copy yet cannot find it once etcd is away. */
static bool
all_know_the_copies(void)
{
    for (uint32_t i = 0; i < NODES * MODELS; i++) {
        char id[ID_MAX];
        struct ordered ordered;
        model_name(id, i / NODES);
        if (order_wait(&nodes.at[i % NODES], &ordered,
                       (struct mesh_order){.kind = MESH_MODEL_STATUS, .model = id}) !=
                MESH_OUTCOME_OK ||
            ordered.state != MESH_MODEL_LOADED)
            return false;
    }
    return true;
}

TEST_CASE_WITH(etcd_stops_and_comes_back, set_up, tear_down)
{
    three_join();
    all_answer();
    NODES_WAIT(all_know_the_copies());
    member_kill(&cluster, 0);
    NODES_WAIT(nobody_has_a_session());
    for (int i = 0; i < 5; i++)
        all_answer(); /* what is loaded */
    member_start(&cluster, 0);
    NODES_WAIT(all_see(NODES));
    all_answer();
    node_register(&nodes.at[1], "new");
    assert_int_equal(ask_wait(&nodes.at[1], "new", NULL), MESH_END_OK);
}

static bool
vmodel_answers(struct node *node, const char *vmodel, const char *model)
{
    struct asker *asker = ask_of(node, vmodel, RUNNER_NAME_VMODEL, NODES_WAIT_S * NS_PER_S);
    NODES_WAIT(asker->over);
    bool answers = asker->end == MESH_END_OK && strcmp(asker->answered, model) == 0;
    asker_free(asker);
    return answers;
}

static void
set_vmodel(struct node *node, const char *vmodel, const char *model)
{
    struct ordered ordered;
    assert_int_equal(
        order_wait(node, &ordered,
                   (struct mesh_order){
                       .kind = MESH_SET_VMODEL, .vmodel = vmodel, .model = model, .sync = true}),
        MESH_OUTCOME_OK);
}

TEST_CASE(a_vmodel_is_moved_by_the_leader)
{
    three_join();
    set_vmodel(&nodes.at[0], "v", "m1");
    for (uint32_t i = 0; i < NODES; i++)
        NODES_WAIT(vmodel_answers(&nodes.at[i], "v", "m1"));
    set_vmodel(&nodes.at[1], "v", "m2"); /* sync: until it is promoted */
    for (uint32_t i = 0; i < NODES; i++)
        NODES_WAIT(vmodel_answers(&nodes.at[i], "v", "m2"));
}

TEST_CASE_WITH(etcd_is_emptied, set_up, tear_down)
{
    three_join();
    all_answer();
    set_vmodel(&nodes.at[0], "v", "m3");
    for (uint32_t i = 0; i < NODES; i++) /* what the leader has not seen, nobody writes anew */
        NODES_WAIT(vmodel_answers(&nodes.at[i], "v", "m3"));
    member_kill(&cluster, 0);
    member_empty(&cluster, 0);
    member_start(&cluster, 0);
    NODES_WAIT(node_look(&nodes.at[0]).counts.emptied > 0 &&
               node_look(&nodes.at[1]).counts.emptied > 0 &&
               node_look(&nodes.at[2]).counts.emptied > 0);
    all_answer();
    NODES_WAIT(all_see(NODES));
    join(3, "node-d", NULL); /* knows only what has been written anew */
    NODES_WAIT(node_look(&nodes.at[3]).models == MODELS);
    NODES_WAIT(all_see(NODES + 1));
    all_answer();
    NODES_WAIT(vmodel_answers(&nodes.at[3], "v", "m3"));
}

TEST_CASE(lost_answers_of_etcd_do_no_harm)
{
    struct proxy *proxy = proxy_start(cluster.members[0].client_port);
    join(0, "node-a", NULL);
    struct node *behind = join(1, "node-b", proxy);
    NODES_WAIT(all_see(2));
    char id[ID_MAX];
    for (uint32_t i = 0; i < MODELS; i++) {
        struct ordered ordered;
        model_name(id, i);
        order_give(behind, &ordered,
                   (struct mesh_order){
                       .kind = MESH_REGISTER, .model = id, .type = "type", .path = "path"});
        proxy_set(proxy, i % 2 == 0 ? PROXY_DROP_ANSWER : PROXY_DROP_REQUEST);
        for (int turn = 0; turn < 10; turn++)
            nodes_turn();
        proxy_set(proxy, PROXY_PASS);
        NODES_WAIT(ordered.over);
        assert_int_equal(ordered.outcome, MESH_OUTCOME_OK);
    }
    NODES_WAIT(all_know(MODELS));
    for (int i = 0; i < 6; i++) {
        proxy_set(proxy, i % 2 == 0 ? PROXY_DROP_ANSWER : PROXY_PASS);
        for (int turn = 0; turn < 10; turn++)
            nodes_turn();
        proxy_set(proxy, PROXY_PASS);
        all_answer();
    }
    for (uint32_t i = 0; i < MODELS; i++) {
        model_name(id, i);
        NODES_WAIT(copies_of(id) == 1);
    }
    assert_true(node_look(behind).counts.txns_unknown > 0);
    nodes_end();
    proxy_stop(proxy);
}

TEST_MAIN(.setup = set_up_long, .teardown = tear_down)
