/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a reload of the pipeline loses nothing of a local client, at every stage of its
 * requests: being built, waiting, in a worker's hands, beyond the first stage, answered and not
 * taken; that what has begun is finished by the generation in which it began, and what has not is
 * run by the next; that idle clients follow; that clients that keep submitting see no failure, and
 * right answers, however often the pipeline is reloaded; and that a drain of the node waits for
 * clients that wait, and not for others. Each test starts a shoald of its own. That a reload is
 * over is seen by another client, which is answered by another process.
 *
 * ctest: timeout=300
 */
#include "test_client_rig.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- reloads ---- */

enum { LOOK_MS = 20 }; /* a look takes as much of the machine as a request */

/* By which process a request of its own is answered now. */
static pid_t
serving_pid(struct shoal_client *client)
{
    struct shoal_request *request = submit(client, PROBE_ECHO, 0, TAG);
    if (finish(request) != SHOAL_OK)
        fail_msg("echo: %s", shoal_request_text(request));
    pid_t pid = (pid_t)word_of(request, PROBE_PID);
    shoal_request_release(request);
    return pid;
}

/* Until a client that connects now is served by another process; it looks with connections of its
 * own, since the others are under test. */
static void
reload(const struct node *node)
{
    struct shoal_client *looks = open_client(node);
    pid_t before = serving_pid(looks);
    shoal_client_close(looks);
    kill(node->pid, SIGHUP);
    int64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    pid_t now = before;
    while (now == before && clock_now_ns() < deadline_ns) {
        looks = open_client(node);
        now = serving_pid(looks);
        shoal_client_close(looks);
        poll(NULL, 0, LOOK_MS);
    }
    assert_int_not_equal(now, before);
}

/* ---- what a reload meets ---- */

#define ONE_WORKER PROBE_STAGE("first", "1")

TEST_CASE(test_waiting_goes_on_in_the_next_generation)
{
    enum { WAITING = 5 };
    struct node node;
    node_start(&node, &(struct client_node_options){
                          .clients = 2, .drain_timeout_ms = 60000, .stages = ONE_WORKER});
    struct shoal_client *client = open_client(&node);
    pid_t old = serving_pid(client);
    struct shoal_request *kept = submit(client, PROBE_ECHO, 0, TAG);
    struct shoal_request *busy = submit(client, PROBE_WAIT, 0, TAG);
    struct shoal_request *waiting[WAITING];
    for (int64_t i = 0; i < WAITING; i++)
        waiting[i] = submit(client, PROBE_ECHO, 0, i);
    kill(node.pid, SIGHUP);
    wait_counter(&node, "reloads", 1);
    assert_int_equal(shoal_request_wait(waiting[0], clock_now_ns() + NS_PER_MS), SHOAL_UNSET);
    shoal_request_cancel(busy); /* until now the only worker was held up */
    for (int64_t i = 0; i < WAITING; i++) {
        if (finish(waiting[i]) != SHOAL_OK)
            fail_msg("%s", shoal_request_text(waiting[i]));
        assert_int_equal(word_of(waiting[i], 2), i);
        assert_int_not_equal(word_of(waiting[i], PROBE_PID), old);
        shoal_request_release(waiting[i]);
    }
    assert_int_equal(finish(busy), SHOAL_CANCELLED);
    assert_int_equal(finish(kept), SHOAL_OK);
    assert_int_equal(word_of(kept, PROBE_PID), old);
    shoal_request_release(busy);
    shoal_request_release(kept);
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

/* All that an idle client has in its hands, through more reloads than regions are kept for it. */
TEST_CASE(test_idle_client_follows)
{
    enum { RELOADS = 4 };
    struct node node;
    node_start(&node, &(struct client_node_options){.clients = 2, .stages = ONE_WORKER});
    struct shoal_client *client = open_client(&node);
    struct shoal_request *kept = submit(client, PROBE_ECHO, 0, TAG);
    assert_int_equal(finish(kept), SHOAL_OK);
    pid_t old = (pid_t)word_of(kept, PROBE_PID);
    struct shoal_request *built = build(client, PROBE_PARAMETER, 0, TAG + 1);
    struct shoal_parameter parameter = {.type = SHOAL_PARAMETER_INT64, .value.int64 = 42};
    assert_int_equal(shoal_request_parameter(built, "probe", &parameter), SHOAL_OK);
    for (int i = 0; i < RELOADS; i++)
        reload(&node);
    assert_int_equal(shoal_request_submit(built, INT64_MAX), SHOAL_OK);
    if (finish(built) != SHOAL_OK)
        fail_msg("%s", shoal_request_text(built));
    assert_int_equal(word_of(built, 2), TAG + 1);
    assert_int_equal(word_of(built, PROBE_PARAMETER_VALUE), 42);
    assert_int_not_equal(word_of(built, PROBE_PID), old);
    assert_int_equal(word_of(kept, 2), TAG);
    shoal_request_release(built);
    /* one that was begun in a region that is left is submitted in another */
    built = build(client, PROBE_ECHO, 0, TAG + 2);
    reload(&node);
    assert_echo(client, TAG + 3);
    assert_int_equal(shoal_request_submit(built, INT64_MAX), SHOAL_OK);
    assert_int_equal(finish(built), SHOAL_OK);
    assert_int_equal(word_of(built, 2), TAG + 2);
    shoal_request_release(built);
    shoal_request_release(kept);
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

/* More answers than are taken at a look wait in the region that is left: none is run again. */
TEST_CASE(test_answers_of_the_last_generation)
{
    enum { MANY = 128 };
    struct node node;
    node_start(&node,
               &(struct client_node_options){.clients = 2, .slots = MANY, .stages = ONE_WORKER});
    struct shoal_client *client = open_client(&node);
    pid_t old = serving_pid(client);
    for (int64_t i = 0; i < MANY; i++)
        (void)submit(client, PROBE_ECHO, 0, i);
    wait_counter(&node, "items_ok", 1 + MANY);
    reload(&node);
    reload(&node); /* by now the first has ended */
    for (int64_t i = 0; i < MANY; i++) {
        struct shoal_request *request = shoal_client_wait_any(client, INT64_MAX);
        assert_non_null(request);
        if (shoal_request_status(request) != SHOAL_OK)
            fail_msg("%s", shoal_request_text(request));
        assert_int_equal(word_of(request, 2), i);
        assert_int_equal(word_of(request, PROBE_PID), old);
        shoal_request_release(request);
    }
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

/* The second stage runs one and has more waiting: all end in the generation in which they began. */
TEST_CASE(test_beyond_the_first_stage_is_finished)
{
    enum { WAITING = 4 };
    struct node node;
    node_start(&node,
               &(struct client_node_options){.clients = 2,
                                             .drain_timeout_ms = 60000,
                                             .stages = ECHO_STAGE PROBE_STAGE("second", "2")});
    struct shoal_client *client = open_client(&node);
    struct shoal_request *requests[WAITING];
    struct shoal_request *first = submit(client, PROBE_ECHO, 0, 0);
    for (int64_t i = 0; i < WAITING; i++)
        requests[i] = submit(client, PROBE_SLOW, 400, i);
    assert_int_equal(finish(first), SHOAL_OK); /* by then most are beyond the first stage */
    kill(node.pid, SIGHUP);
    for (int64_t i = 0; i < WAITING; i++) {
        if (finish(requests[i]) != SHOAL_OK)
            fail_msg("%s", shoal_request_text(requests[i]));
        assert_int_equal(word_of(requests[i], 2), i);
        shoal_request_release(requests[i]);
    }
    shoal_request_release(first);
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

/* A worker that does not finish in drain_timeout_ms is killed, and its requests begin anew. */
TEST_CASE(test_drain_of_a_lane_runs_out)
{
    struct node node;
    node_start(&node, &(struct client_node_options){
                          .clients = 2, .drain_timeout_ms = 100, .stages = ONE_WORKER});
    struct shoal_client *client = open_client(&node);
    pid_t old = serving_pid(client);
    struct shoal_request *flying = submit(client, PROBE_SLOW, 5000, TAG);
    kill(node.pid, SIGHUP);
    if (finish(flying) != SHOAL_OK)
        fail_msg("%s", shoal_request_text(flying));
    assert_int_equal(word_of(flying, 2), TAG);
    assert_int_not_equal(word_of(flying, PROBE_PID), old);
    shoal_request_release(flying);
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

/* The client is notified of the death before it gets its next region, and the death is charged. */
TEST_CASE(test_worker_dies_while_its_lane_ends)
{
    struct node node;
    node_start(&node, &(struct client_node_options){
                          .clients = 2, .drain_timeout_ms = 60000, .stages = ONE_WORKER});
    struct shoal_client *client = open_client(&node);
    pid_t old = serving_pid(client);
    struct shoal_request *flying = submit(client, PROBE_SLOW, 4000, TAG);
    struct shoal_request *poison = submit(client, PROBE_CRASH, 0, 0);
    kill(node.pid, SIGHUP);
    wait_counter(&node, "reloads", 1);
    kill(old, SIGKILL);
    if (finish(flying) != SHOAL_OK)
        fail_msg("%s", shoal_request_text(flying));
    assert_int_equal(word_of(flying, 2), TAG);
    assert_int_not_equal(word_of(flying, PROBE_PID), old);
    assert_int_equal(finish(poison), SHOAL_UNAVAILABLE);
    assert_non_null(strstr(shoal_request_text(poison), "2 workers died"));
    shoal_request_release(flying);
    shoal_request_release(poison);
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

/* Two stages; a worker of the second dies with items while its lane ends. Its successor, or another
 * worker that has nothing to do any more, finishes what has begun. */
static void
check_death_beyond_the_first_stage(const char *stages, uint32_t slow)
{
    enum { WAITING = 4 };
    struct node node;
    node_start(&node, &(struct client_node_options){
                          .clients = 2, .drain_timeout_ms = 60000, .stages = stages});
    struct shoal_client *client = open_client(&node);
    pid_t old = serving_pid(client);
    struct shoal_request *requests[WAITING];
    for (uint32_t i = 0; i < WAITING; i++)
        requests[i] = submit(client, i < slow ? PROBE_SLOW : PROBE_ECHO, i < slow ? 2000 : 0, i);
    wait_counter(&node, "items_ok", 1 + WAITING); /* the first stage has passed on all */
    kill(node.pid, SIGHUP);
    wait_counter(&node, "reloads", 1);
    kill(old, SIGKILL);
    for (int64_t i = 0; i < WAITING; i++) {
        if (finish(requests[i]) != SHOAL_OK)
            fail_msg("%s", shoal_request_text(requests[i]));
        assert_int_equal(word_of(requests[i], 2), i);
        shoal_request_release(requests[i]);
    }
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

TEST_CASE(test_worker_dies_beyond_the_first_stage)
{
    check_death_beyond_the_first_stage(ECHO_STAGE PROBE_STAGE("second", "1"), 1);
    check_death_beyond_the_first_stage(ECHO_STAGE PROBE_STAGE("second", "2"), 1);
    check_death_beyond_the_first_stage(ECHO_STAGE PROBE_STAGE("second", "2"), 2);
}

/* ---- load ---- */

enum { DEPTH = 6, LOADERS = 4, LOAD_RELOADS = 12 }; /* or SHOAL_RELOADS */

struct reload_loader {
    const struct node *node;
    pthread_t thread;
    bool many; /* keeps some in flight; else one at a time */
    _Atomic bool *stop;
    _Atomic uint64_t answers;
    char failure[256];
};

/* False: not as it should be, and noted. */
static bool
judge(struct reload_loader *loader, const struct shoal_request *request, int64_t tag)
{
    const struct shoal_tensor *tensor = shoal_request_output_named(request, "probe");
    bool good = shoal_request_status(request) == SHOAL_OK && tensor != NULL &&
                ((const int64_t *)tensor->data)[2] == tag;
    if (!good)
        snprintf(loader->failure, sizeof(loader->failure), "status %d: %.200s",
                 shoal_request_status(request), shoal_request_text(request));
    atomic_fetch_add(&loader->answers, 1);
    return good;
}

static struct shoal_request *
load_one(struct reload_loader *loader, struct shoal_client *client, int64_t tag)
{
    struct shoal_request *request;
    struct shoal_error error = {""};
    if (shoal_request_begin(client, &request, &error) != SHOAL_OK) {
        snprintf(loader->failure, sizeof(loader->failure), "begin: %.200s", error.text);
        return NULL;
    }
    int64_t *words =
        shoal_request_input(request, "probe", SHOAL_INT64, 1, (int64_t[]){PROBE_WORDS});
    if (words != NULL)
        memcpy(words, (int64_t[]){PROBE_ECHO, 0, tag}, PROBE_WORDS * sizeof(int64_t));
    shoal_request_set_tag(request, (void *)(intptr_t)tag);
    (void)shoal_request_submit(request, INT64_MAX); /* its status says the rest */
    return request;
}

static void *
load(void *context)
{
    struct reload_loader *loader = context;
    struct shoal_client *client = open_client(loader->node);
    uint32_t flying = 0;
    bool good = true;
    for (int64_t tag = 1; good && !atomic_load(loader->stop); tag++) {
        struct shoal_request *request = load_one(loader, client, tag);
        if (request == NULL)
            break;
        if (!loader->many) {
            (void)shoal_request_wait(request, clock_now_ns() + PATIENCE_NS);
        } else if (shoal_request_status(request) == SHOAL_UNSET && ++flying < DEPTH) {
            continue;
        } else {
            request = shoal_client_wait_any(client, clock_now_ns() + PATIENCE_NS);
            flying--;
        }
        good = request != NULL && judge(loader, request, (intptr_t)shoal_request_tag(request));
        shoal_request_release(request);
    }
    shoal_client_close(client);
    return NULL;
}

static void
wait_answers(struct reload_loader *loaders)
{
    for (uint32_t i = 0; i < LOADERS; i++) {
        int64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
        uint64_t wanted = atomic_load(&loaders[i].answers) + 20;
        while (atomic_load(&loaders[i].answers) < wanted && clock_now_ns() < deadline_ns)
            poll(NULL, 0, 1);
        if (atomic_load(&loaders[i].answers) < wanted)
            fail_msg("client %u: no answers: %s", i, loaders[i].failure);
    }
}

static void
run_load(const char *stages)
{
    struct node node;
    node_start(&node, &(struct client_node_options){.clients = LOADERS + 1, .stages = stages});
    shoal_client_close(open_client(&node)); /* it is up */
    static struct reload_loader loaders[LOADERS];
    _Atomic bool stop = false;
    for (uint32_t i = 0; i < LOADERS; i++) {
        loaders[i] = (struct reload_loader){.node = &node, .many = i % 2 != 0, .stop = &stop};
        assert_int_equal(pthread_create(&loaders[i].thread, NULL, load, &loaders[i]), 0);
    }
    const char *wanted = getenv("SHOAL_RELOADS");
    long reloads = wanted == NULL ? LOAD_RELOADS : strtol(wanted, NULL, 10);
    for (long i = 0; i < reloads; i++) {
        reload(&node);
        wait_answers(loaders);
    }
    atomic_store(&stop, true);
    for (uint32_t i = 0; i < LOADERS; i++) {
        assert_int_equal(pthread_join(loaders[i].thread, NULL), 0);
        if (loaders[i].failure[0] != '\0')
            fail_msg("client %u: %s", i, loaders[i].failure);
    }
    node_stop(&node);
    node_remove(&node);
}

TEST_CASE(test_reloads_under_load)
{
    run_load(NULL);
    run_load(ECHO_STAGE PROBE_STAGE("second", "2"));
}

/* ---- a drain of the node ---- */

TEST_CASE(test_drain_finishes_what_is_in_flight)
{
    enum { FLYING = 4 };
    struct node node;
    node_start(&node, &(struct client_node_options){
                          .clients = 2, .drain_timeout_ms = 60000, .stages = ONE_WORKER});
    struct shoal_client *client = open_client(&node);
    struct shoal_request *flying[FLYING];
    for (int64_t i = 0; i < FLYING; i++)
        flying[i] = submit(client, PROBE_SLOW, 500, i);
    struct shoal_request *built = build(client, PROBE_ECHO, 0, TAG);
    kill(node.pid, SIGTERM);
    struct shoal_request *none;
    struct shoal_error error = {""};
    int64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    int32_t begun;
    while ((begun = shoal_request_begin(client, &none, &error)) == SHOAL_OK &&
           clock_now_ns() < deadline_ns) {
        shoal_request_release(none);
        (void)shoal_request_wait(flying[FLYING - 1], clock_now_ns() + 5 * NS_PER_MS);
    }
    assert_int_equal(begun, SHOAL_UNAVAILABLE);
    assert_non_null(strstr(error.text, "the node is stopping"));
    assert_int_equal(shoal_request_submit(built, INT64_MAX), SHOAL_UNAVAILABLE);
    struct shoal_client *late;
    assert_int_equal(try_open(&node, "probe", &late, &error), SHOAL_UNAVAILABLE);
    assert_non_null(strstr(error.text, "the node is stopping"));
    for (int64_t i = 0; i < FLYING; i++) {
        if (finish(flying[i]) != SHOAL_OK)
            fail_msg("%s", shoal_request_text(flying[i]));
        assert_int_equal(word_of(flying[i], 2), i);
    }
    int status;
    assert_int_equal(waitpid(node.pid, &status, 0), node.pid); /* it waits for nothing else */
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int64_t i = 0; i < FLYING; i++)
        shoal_request_release(flying[i]);
    shoal_request_release(built);
    shoal_client_close(client);
    node_remove(&node);
}

/* A client that does not look is not waited for: drain_timeout_ms is longer than we are
 * patient. */
TEST_CASE(test_drain_does_not_wait_for_the_idle)
{
    struct node node;
    node_start(&node, &(struct client_node_options){.clients = 2, .drain_timeout_ms = 3600000});
    struct shoal_client *client = open_client(&node);
    struct shoal_request *flying = submit(client, PROBE_WAIT, 0, 0);
    node_stop(&node);
    assert_int_equal(finish(flying), SHOAL_UNAVAILABLE);
    shoal_request_release(flying);
    shoal_client_close(client);
    node_remove(&node);
}

TEST_MAIN()
