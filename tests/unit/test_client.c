/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that libshoal and a real node do what shoal/client.h says: answers, errors, deadlines,
 * cancellation, many requests at a time; limits and refusals; that requests survive the death of a
 * worker and a client the end of its node (reloads and drains: test_client_reload.c); that a user
 * whose requests kill workers is kept out, and nobody else. Each test starts a shoald of its own
 * whose stage is the modelet `probe` (tests/modelets/probe.h).
 *
 * ctest: timeout=300
 */
#include "test_client_rig.h"

/* ---- tests ---- */

TEST_CASE(test_calls)
{
    struct node node;
    node_start(&node, &(struct client_node_options){.clients = 4, .slots = 16});
    struct shoal_client *client = open_client(&node);
    for (int64_t i = 0; i < 300; i++)
        assert_echo(client, i);
    struct shoal_request *failed = submit(client, PROBE_FAIL, SHOAL_OUT_OF_RANGE, 0);
    assert_int_equal(finish(failed), SHOAL_OUT_OF_RANGE);
    assert_string_not_equal(shoal_request_text(failed), "");
    assert_null(shoal_request_output(failed, 0));
    shoal_request_release(failed);
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

/* All there are in flight at once; each answer is shown once, with its tag. */
TEST_CASE(test_many_at_a_time)
{
    enum { SLOTS = 16 };
    struct node node;
    node_start(&node, &(struct client_node_options){.clients = 1, .slots = SLOTS});
    struct shoal_client *client = open_client(&node);
    struct shoal_request *more;
    struct shoal_error error = {""};
    for (int round = 0; round < 20; round++) {
        bool seen[SLOTS] = {false};
        for (int64_t i = 0; i < SLOTS; i++) {
            struct shoal_request *request = submit(client, PROBE_ECHO, 0, i);
            shoal_request_set_tag(request, &seen[i]);
        }
        assert_int_equal(shoal_request_begin(client, &more, &error), SHOAL_RESOURCE_EXHAUSTED);
        for (int i = 0; i < SLOTS; i++) {
            struct shoal_request *request =
                shoal_client_wait_any(client, clock_now_ns() + PATIENCE_NS);
            assert_non_null(request);
            bool *mine = shoal_request_tag(request);
            assert_false(*mine);
            *mine = true;
            assert_ptr_equal(&seen[word_of(request, 2)], mine);
            shoal_request_release(request);
        }
        assert_null(shoal_client_wait_any(client, INT64_MAX)); /* none in flight */
    }
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

TEST_CASE(test_deadlines_and_cancellation)
{
    struct node node;
    node_start(&node, &(struct client_node_options){.clients = 1, .slots = 4});
    struct shoal_client *client = open_client(&node);
    struct shoal_request *late = build(client, PROBE_SLOW, 300, 0);
    assert_int_equal(shoal_request_submit(late, clock_now_ns() + 20 * NS_PER_MS), SHOAL_OK);
    assert_int_equal(finish(late), SHOAL_DEADLINE_EXCEEDED);
    struct shoal_request *gone = submit(client, PROBE_WAIT, 0, 0);
    assert_int_equal(shoal_request_wait(gone, clock_now_ns() + NS_PER_MS), SHOAL_UNSET);
    shoal_request_cancel(gone);
    assert_int_equal(shoal_request_status(gone), SHOAL_CANCELLED);
    shoal_request_release(gone);
    shoal_request_release(late);
    for (int i = 0; i < 16; i++) /* released in flight: their slots come back by themselves */
        shoal_request_release(submit(client, PROBE_ECHO, 0, i));
    struct shoal_request *unsent = build(client, PROBE_ECHO, 0, 0);
    shoal_request_release(unsent);
    assert_echo(client, TAG);
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

TEST_CASE(test_mistakes)
{
    struct node node;
    node_start(&node, &(struct client_node_options){.clients = 1, .slots = 4});
    struct shoal_client *client = open_client(&node);
    struct shoal_client *other;
    struct shoal_error error = {""};
    assert_int_equal(try_open(&node, "nobody", &other, &error), SHOAL_NOT_FOUND);
    assert_int_equal(try_open(&node, "", &other, &error), SHOAL_INVALID_ARGUMENT);
    assert_int_equal(try_open(&node, "probe", &other, &error), SHOAL_RESOURCE_EXHAUSTED);
    struct shoal_request *request = build(client, PROBE_ECHO, 0, 0);
    assert_null(shoal_request_input(request, "probe", SHOAL_INT8, 0, NULL)); /* the name is taken */
    assert_int_equal(shoal_request_submit(request, INT64_MAX), SHOAL_ALREADY_EXISTS);
    shoal_request_release(request);
    shoal_client_close(client);
    client = open_client(&node); /* the place is free again */
    assert_echo(client, TAG);
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

TEST_CASE(test_off_by_default)
{
    struct node node;
    node_start(&node, &(struct client_node_options){.clients = 0, .slots = 4});
    struct shoal_client *client;
    struct shoal_error error = {""};
    int64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    int32_t status;
    while ((status = try_open(&node, "probe", &client, &error)) == SHOAL_UNAVAILABLE &&
           clock_now_ns() < deadline_ns)
        poll(NULL, 0, 5);
    assert_int_equal(status, SHOAL_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "local_clients"));
    node_stop(&node);
    node_remove(&node);
}

/* Requests of a dead worker are run by another; poison fails. */
TEST_CASE(test_deaths_of_workers)
{
    struct node node;
    node_start(&node, &(struct client_node_options){.clients = 1, .slots = 8});
    struct shoal_client *client = open_client(&node);
    struct shoal_request *poison = submit(client, PROBE_CRASH, 0, 0);
    assert_int_equal(finish(poison), SHOAL_UNAVAILABLE);
    assert_non_null(strstr(shoal_request_text(poison), "2 workers died"));
    shoal_request_release(poison);
    for (int i = 0; i < 5; i++) {
        struct shoal_request *who = submit(client, PROBE_ECHO, 0, 0);
        struct shoal_request *slow = submit(client, PROBE_SLOW, 100, TAG);
        assert_int_equal(finish(who), SHOAL_OK);
        kill((pid_t)word_of(who, PROBE_PID), SIGKILL); /* it may have the slow one */
        assert_int_equal(finish(slow), SHOAL_OK);
        assert_int_equal(word_of(slow, 2), TAG);
        shoal_request_release(who);
        shoal_request_release(slow);
    }
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

/* In flight fails, the next request finds the new node; what was answered stays. */
TEST_CASE(test_restart)
{
    struct node node;
    node_start(&node, &(struct client_node_options){.clients = 2, .slots = 8});
    struct shoal_client *client = open_client(&node);
    struct shoal_request *kept = submit(client, PROBE_ECHO, 0, TAG);
    assert_int_equal(finish(kept), SHOAL_OK);
    struct shoal_request *flying = submit(client, PROBE_WAIT, 0, 0);
    kill(node.pid, SIGKILL);
    assert_int_equal(waitpid(node.pid, NULL, 0), node.pid);
    assert_int_equal(finish(flying), SHOAL_UNAVAILABLE);
    assert_non_null(strstr(shoal_request_text(flying), "no node at"));
    struct shoal_request *none;
    assert_int_equal(shoal_request_begin(client, &none, NULL), SHOAL_UNAVAILABLE);
    node_spawn(&node);
    shoal_client_close(open_client(&node)); /* it is up */
    assert_echo(client, 2);
    assert_int_equal(word_of(kept, 2), TAG);
    shoal_request_release(flying);
    shoal_request_release(kept);
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

/* Requests in flight when the node died go on in its successor, if that is up in time. */
TEST_CASE(test_restart_unseen)
{
    struct node node;
    node_start(&node, &(struct client_node_options){.clients = 2, .slots = 8});
    struct shoal_client *client = open_client(&node);
    struct shoal_request *flying = submit(client, PROBE_SLOW, 300, TAG);
    kill(node.pid, SIGKILL);
    assert_int_equal(waitpid(node.pid, NULL, 0), node.pid);
    node_spawn(&node);
    shoal_client_close(open_client(&node));
    if (finish(flying) != SHOAL_OK)
        fail_msg("%s", shoal_request_text(flying));
    assert_int_equal(word_of(flying, 2), TAG);
    shoal_request_release(flying);
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

/* More deaths than are forgiven: out, and kept out; the stage is not quarantined. */
TEST_CASE(test_user_that_kills_workers_is_kept_out)
{
    struct node node;
    node_start(&node, &(struct client_node_options){.clients = 2, .slots = 8});
    struct shoal_client *client = open_client(&node);
    struct shoal_error error = {""};
    int32_t status = SHOAL_OK;
    for (int i = 0; i < 100 && status == SHOAL_OK; i++) {
        struct shoal_request *request;
        status = shoal_request_begin(client, &request, &error);
        if (status != SHOAL_OK)
            break;
        int64_t *words =
            shoal_request_input(request, "probe", SHOAL_INT64, 1, (int64_t[]){PROBE_WORDS});
        assert_non_null(words);
        memcpy(words, (int64_t[]){PROBE_CRASH, 0, 0}, PROBE_WORDS * sizeof(int64_t));
        assert_int_equal(shoal_request_submit(request, INT64_MAX), SHOAL_OK);
        assert_int_equal(finish(request), SHOAL_UNAVAILABLE);
        shoal_request_release(request);
    }
    assert_int_equal(status, SHOAL_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "too many workers died"));
    shoal_client_close(client);
    client = open_client(&node); /* forgiven after a while, and served at once */
    assert_echo(client, TAG);
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

/* A death with many clients' requests in hand is one death for all of their users. */
TEST_CASE(test_a_death_is_charged_once)
{
    enum { CLIENTS = 10 };
    struct node node;
    static const char stage[] =
        "      - {name: first, modelet: @/tests/modelets/libprobe.so, workers: 1,\n"
        "         batch_size: 10, batch_wait: fixed, batch_wait_ms: 30000}\n";
    node_start(&node, &(struct client_node_options){.clients = CLIENTS, .stages = stage});
    struct shoal_client *clients[CLIENTS];
    struct shoal_request *requests[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = open_client(&node);
    for (int i = 0; i < CLIENTS; i++) /* the last one fills the batch, and crashes it */
        requests[i] = submit(clients[i], i + 1 < CLIENTS ? PROBE_ECHO : PROBE_CRASH, 0, i);
    for (int waiting = CLIENTS; waiting > 0;) { /* each client repairs while it is waited for */
        waiting = 0;
        for (int i = 0; i < CLIENTS; i++)
            waiting += shoal_request_wait(requests[i], clock_now_ns() + NS_PER_MS) == SHOAL_UNSET;
    }
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(shoal_request_status(requests[i]),
                         i + 1 < CLIENTS ? SHOAL_OK : SHOAL_UNAVAILABLE);
        shoal_request_release(requests[i]);
        shoal_client_close(clients[i]);
    }
    node_stop(&node);
    node_remove(&node);
}

TEST_MAIN()
