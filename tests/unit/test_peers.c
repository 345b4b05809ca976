/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that calls of one node reach another and come back unchanged, of any length, many at once;
 * that each try ends once, also when the other node is killed, is not there, is another one; that a
 * cancelled one is cancelled there.
 *
 * Run with the argument "serve" this program is a node to be killed: it prints its port.
 *
 * ctest: timeout=180 presets=dev,tsan because a call crosses three threads
 */
#include "test_peer_rig.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mesh/edge/peer_wire.h"

enum { MANY = 64, LAST = 16 };

static void
check_answered(struct ask *ask, enum status status)
{
    RIG_WAIT(ask->ended == 1);
    assert_int_equal(ask->end.end, MESH_END_OK);
    assert_int_equal(ask->status, status);
}

static void
check_echoed(struct ask *ask, size_t bytes)
{
    check_answered(ask, STATUS_OK);
    assert_true(ask->has_answer);
    assert_int_equal(ask->answer_bytes, bytes);
    if (bytes > 0)
        assert_memory_equal(ask->answer, ask->message, bytes);
}

TEST_CASE(test_lengths)
{
    static const size_t lengths[] = {
        0,          1, 1000, PEER_PART_BYTES_MAX - 1, PEER_PART_BYTES_MAX, PEER_PART_BYTES_MAX + 1,
        LARGE_BYTES};
    struct house *house = house_open();
    struct caller *caller = caller_open(house->address);
    for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
        struct ask *ask = ask_create("/t.T/Echo", lengths[i]);
        assert_int_equal(ask_send(caller, ask), RUNNER_UNDER_WAY);
        check_echoed(ask, lengths[i]);
        ask_free(ask);
    }
    caller_close(caller);
    house_close(house);
}

TEST_CASE(test_many_at_once)
{
    struct house *house = house_open();
    struct caller *caller = caller_open(house->address);
    struct ask *asks[10 * MANY];
    for (size_t i = 0; i < ARRAY_COUNT(asks); i++) {
        asks[i] = ask_create("/t.T/Echo", i % 7 == 0 ? 400000 : i * 10);
        assert_int_equal(ask_send(caller, asks[i]), RUNNER_UNDER_WAY);
    }
    for (size_t i = 0; i < ARRAY_COUNT(asks); i++) {
        check_echoed(asks[i], i % 7 == 0 ? 400000 : i * 10);
        ask_free(asks[i]);
    }
    caller_close(caller);
    house_close(house);
}

TEST_CASE(test_answers)
{
    struct house *house = house_open();
    struct caller *caller = caller_open(house->address);
    struct rpc_metadata metadata = {span_of("x-key"), span_of("value")};
    struct ask *ask = ask_create("/t.T/Large", 3);
    ask->request.metadata = &metadata;
    ask->request.metadata_count = 1;
    ask_send(caller, ask);
    check_answered(ask, STATUS_OK);
    assert_int_equal(ask->answer_bytes, LARGE_BYTES + 4);
    assert_memory_equal(ask->answer, "headbbbb", 8);
    assert_int_equal(ask->answer[ask->answer_bytes - 1], 'c');
    assert_string_equal(ask->initial, "x-key=5");
    assert_int_equal(ask->figures.start_ms, 4711); /* the first has them */
    assert_true(ask->figures.figures.capacity_units > 0);
    assert_string_equal(ask->instance, "b");
    ask_free(ask);
    ask = ask_create("/t.T/Fail", 3);
    ask_send(caller, ask);
    check_answered(ask, STATUS_ABORTED);
    assert_false(ask->has_answer);
    assert_string_equal(ask->text, "not today");
    assert_string_equal(ask->trailer, "t-bin=2");
    ask_free(ask);
    caller_close(caller);
    house_close(house);
}

/* A try that is no answer, and one for a model that nobody has. */
TEST_CASE(test_other_ends)
{
    struct house *house = house_open();
    struct caller *caller = caller_open(house->address);
    struct ask *ask = ask_create("/t.T/Echo", 3);
    struct runner_attempt attempt = {.number = 7,
                                     .model = "nobody's",
                                     .instance = "b",
                                     .hop = MESH_HOP_HIT,
                                     .deadline_ns = TIME_NEVER_NS};
    caller->to.forward(caller->to.context, &ask->call, &attempt, &ask->end);
    RIG_WAIT(ask->ended == 1);
    assert_true(ask->end.end == MESH_END_NOT_HERE || ask->end.end == MESH_END_NOT_FOUND);
    ask_free(ask);
    caller_close(caller);
    house_close(house);
}

TEST_CASE(test_deadline_travels)
{
    struct house *house = house_open();
    struct caller *caller = caller_open(house->address);
    struct ask *ask = ask_create("/t.T/Echo", 3);
    int64_t deadline_ns = clock_now_ns() + 1000 * NS_PER_S;
    ask_send_until(caller, ask, deadline_ns);
    check_echoed(ask, 3);
    ask_free(ask);
    pthread_mutex_lock(&rig_lock);
    int64_t there_ns = house->deadline_ns;
    pthread_mutex_unlock(&rig_lock);
    assert_true(there_ns > deadline_ns - 100 * NS_PER_S && there_ns < deadline_ns + 100 * NS_PER_S);
    ask = ask_create("/t.T/Echo", 3);
    assert_int_equal(ask_send_until(caller, ask, clock_now_ns() - 1), RUNNER_ENDED);
    assert_int_equal(ask->end.end, MESH_END_DEADLINE);
    ask_free(ask);
    caller_close(caller);
    house_close(house);
}

TEST_CASE(test_cancelled_there_too)
{
    struct house *house = house_open();
    struct caller *caller = caller_open(house->address);
    struct ask *asks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        /* Every fourth is served although nobody waits for it any more. */
        asks[i] = ask_create(i % 4 == 0 ? "/t.T/HoldThenNot" : "/t.T/Hold", i % 2 ? 300000 : 10);
        assert_int_equal(ask_send(caller, asks[i]), RUNNER_UNDER_WAY);
    }
    RIG_WAIT(house->held == MANY);
    for (size_t i = 0; i < MANY; i += 2)
        assert_true(caller->to.abandon(caller->to.context, &asks[i]->call, 7));
    assert_false(caller->to.abandon(caller->to.context, &asks[0]->call, 7)); /* not twice */
    RIG_WAIT(house->cancelled == MANY / 2);
    pthread_mutex_lock(&rig_lock);
    house->releases_first = true;
    pthread_cond_broadcast(&rig_changed);
    pthread_mutex_unlock(&rig_lock);
    for (size_t i = 1; i < MANY; i += 2)
        check_echoed(asks[i], 300000);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(asks[i]->ended, i % 2);
        ask_free(asks[i]);
    }
    caller_close(caller);
    house_close(house);
}

/* Ended UNREACHABLE, at once or later, but once. */
static void
check_unreachable(struct caller *caller, struct ask *ask)
{
    if (ask_send(caller, ask) == RUNNER_UNDER_WAY)
        RIG_WAIT(ask->ended == 1);
    else
        assert_int_equal(ask->ended, 0);
    assert_int_equal(ask->end.end, MESH_END_UNREACHABLE);
    ask_free(ask);
}

TEST_CASE(test_nobody_there)
{
    struct house *house = house_open();
    char address[64];
    snprintf(address, sizeof(address), "%s", house->address);
    house_close(house);
    struct caller *caller = caller_open(address);
    for (int i = 0; i < 3; i++)
        check_unreachable(caller, ask_create("/t.T/Echo", 10));
    caller->to.on_peer_gone(caller->to.context, "b");
    check_unreachable(caller, ask_create("/t.T/Echo", 10));
    house = house_open();
    caller->to.on_peer(caller->to.context, &(struct runner_peer){"b", house->address, 4712});
    struct ask *ask = ask_create("/t.T/Echo", 10);
    assert_int_equal(ask_send(caller, ask), RUNNER_UNDER_WAY);
    check_echoed(ask, 10); /* on the link that became free */
    ask_free(ask);
    caller_close(caller);
    house_close(house);
}

/* The address has another owner now. Then the registry says so. */
TEST_CASE(test_another_node)
{
    struct house *house = house_open();
    struct caller *caller = caller_open(house->address);
    struct runner_peers to = caller->to;
    to.on_peer(to.context, &(struct runner_peer){"c", house->address, 1});
    struct ask *ask = ask_create("/t.T/Echo", 10);
    struct runner_attempt attempt = {.number = 7,
                                     .model = "m",
                                     .instance = "c",
                                     .hop = MESH_HOP_HIT,
                                     .deadline_ns = TIME_NEVER_NS};
    assert_int_equal(to.forward(to.context, &ask->call, &attempt, &ask->end), RUNNER_UNDER_WAY);
    RIG_WAIT(ask->ended == 1);
    assert_int_equal(ask->end.end, MESH_END_UNREACHABLE);
    ask_free(ask);
    ask = ask_create("/t.T/Echo", 10);
    assert_int_equal(ask_send(caller, ask), RUNNER_UNDER_WAY);
    check_echoed(ask, 10);
    ask_free(ask);
    caller_close(caller);
    house_close(house);
}

TEST_CASE(test_peer_moves)
{
    struct house *first = house_open();
    struct house *second = house_open();
    struct caller *caller = caller_open(first->address);
    struct ask *held = ask_create("/t.T/Hold", 10);
    ask_send(caller, held);
    RIG_WAIT(first->held == 1);
    caller->to.on_peer(caller->to.context, &(struct runner_peer){"b", second->address, 4712});
    struct ask *ask = ask_create("/t.T/Hold", 10);
    ask_send(caller, ask);
    RIG_WAIT(second->held == 1);
    pthread_mutex_lock(&rig_lock);
    first->releases_first = second->releases_first = true;
    pthread_cond_broadcast(&rig_changed);
    pthread_mutex_unlock(&rig_lock);
    check_echoed(held, 10); /* by the first, all the same */
    check_echoed(ask, 10);
    ask_free(held);
    ask_free(ask);
    caller_close(caller);
    house_close(first);
    house_close(second);
}

/* ---- the end of a node, and of a caller ---- */

/* A node that fails to start has bound its address, and gives it back; or has not even bound it. */
TEST_CASE(test_never_started)
{
    const char *listen[] = {"127.0.0.1:0", "nonsense"};
    struct peer_server_options options = {.listen = listen, .instance = "b"};
    for (options.listen_count = 1; options.listen_count <= 2; options.listen_count++) {
        struct peer_server *server = NULL;
        struct error error = ERROR_NONE;
        bool is_bound = options.listen_count == 1;
        options.queue = rpc_queue_create();
        assert_int_equal(peer_server_create(&options, &server, &error) == STATUS_OK, is_bound);
        assert_int_equal(error.text[0] == '\0', is_bound);
        if (is_bound) {
            peer_server_stop(server);
            peer_server_cut(server);
        }
        rpc_queue_destroy(options.queue); /* which waits for it */
        peer_server_destroy(server);
    }
}

static void
hold_many(struct caller *caller, struct ask *asks[MANY], size_t bytes)
{
    for (size_t i = 0; i < MANY; i++) {
        asks[i] = ask_create("/t.T/Hold", bytes);
        assert_int_equal(ask_send(caller, asks[i]), RUNNER_UNDER_WAY);
    }
}

static void
check_all_lost(struct ask *asks[MANY])
{
    for (size_t i = 0; i < MANY; i++) {
        RIG_WAIT(asks[i]->ended == 1);
        assert_int_equal(asks[i]->end.end, MESH_END_UNREACHABLE);
        ask_free(asks[i]);
    }
}

TEST_CASE(test_server_stops)
{
    struct house *house = house_open();
    struct caller *caller = caller_open(house->address);
    struct ask *asks[MANY];
    hold_many(caller, asks, 100);
    RIG_WAIT(house->held == MANY);
    house_begin_stop(house);
    check_all_lost(asks);
    caller_close(caller);
    house_close(house);
}

/* Answers that the runner has given, and that the transport was still behind with, arrive. */
TEST_CASE(test_last_answers)
{
    struct house *house = house_open();
    struct caller *caller = caller_open(house->address);
    struct ask *asks[LAST];
    for (size_t i = 0; i < LAST; i++) {
        asks[i] = ask_create("/t.T/Large", 10);
        assert_int_equal(ask_send(caller, asks[i]), RUNNER_UNDER_WAY);
    }
    RIG_WAIT(house->answered == LAST);
    house_begin_stop(house);
    for (size_t i = 0; i < LAST; i++) {
        RIG_WAIT(asks[i]->ended == 1);
        assert_int_equal(asks[i]->end.end, MESH_END_OK);
        assert_int_equal(asks[i]->answer_bytes, 4 + LARGE_BYTES);
        ask_free(asks[i]);
    }
    RIG_WAIT(!peer_server_is_sending(house->server));
    caller_close(caller);
    house_close(house);
}

TEST_CASE(test_caller_goes)
{
    struct house *house = house_open();
    struct caller *caller = caller_open(house->address);
    struct ask *asks[MANY];
    hold_many(caller, asks, 100);
    RIG_WAIT(house->held == MANY);
    caller_close(caller);
    check_all_lost(asks);
    RIG_WAIT(house->cancelled == MANY);
    house_close(house);
}

static pid_t
start_child(char address[64])
{
    int out[2];
    assert_int_equal(pipe(out), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        close(out[1]);
        execl("/proc/self/exe", "test_peers", "serve", (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    FILE *says = fdopen(out[0], "r");
    assert_non_null(says);
    assert_non_null(fgets(address, 64, says));
    address[strcspn(address, "\n")] = '\0';
    fclose(says);
    return child;
}

TEST_CASE(test_killed)
{
    char address[64];
    pid_t child = start_child(address);
    struct caller *caller = caller_open(address);
    struct ask *asks[MANY];
    struct ask *first = ask_create("/t.T/Echo", 10);
    ask_send(caller, first);
    check_echoed(first, 10);
    ask_free(first);
    hold_many(caller, asks, 100000); /* some of which are still on their way */
    kill(child, SIGKILL);
    check_all_lost(asks);
    assert_int_equal(waitpid(child, NULL, 0), child);
    check_unreachable(caller, ask_create("/t.T/Echo", 10));
    caller_close(caller);
}

/* It reads nothing any more, but the kernel answers for it: pings show it. */
TEST_CASE(test_stopped)
{
    char address[64];
    pid_t child = start_child(address);
    struct caller *caller = caller_open(address);
    struct ask *asks[MANY];
    hold_many(caller, asks, 10);
    kill(child, SIGSTOP);
    check_all_lost(asks);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    caller_close(caller);
}

static int
serve(void)
{
    rpc_init();
    struct house *house = house_open();
    printf("%s\n", house->address);
    fflush(stdout);
    pause(); /* until it is killed */
    return 0;
}

int
main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "serve") == 0)
        return serve();
    return TEST_RUN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown);
}
