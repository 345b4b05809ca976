/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 over real sockets: many requests at once on a connection, each answered as over HTTP/1;
 * streams that are read slowly, paused, cancelled, broken off or late beside others that are not;
 * and the end of a connection that the server wants.
 *
 * ctest: timeout=120 presets=dev,tsan because its thread meets those that answer
 */
#include "test_http2_rig.h"

TEST_CASE(test_answers)
{
    struct client2 *client = client2_open(*state);
    char *body = calloc(1, 300001);
    memset(body, 'b', 300000);
    struct obtained *now = ask2(client, "GET", "/now", NULL, 0);
    struct obtained *seen = ask2(client, "POST", "/a%20b?c", "", 0);
    struct obtained *echo = ask2(client, "POST", "/echo", body, 300000);
    struct obtained *head = ask2(client, "HEAD", "/now", NULL, 0);
    struct obtained *mirror = ask2(client, "POST", "/mirror", body, 300000);
    struct obtained *heads = ask2(client, "GET", "/heads", NULL, 0);
    struct obtained *large = ask2(client, "GET", "/large", NULL, 0);
    assert_received(client, now, 200, "now");
    assert_received(client, heads, 200, "");
    assert_received(client, seen, 200, "1 /a b named 127.0.0.1");
    assert_received(client, echo, 200, body);
    assert_received(client, head, 200, "");
    assert_received(client, mirror, 200, body);
    receive_all(client, large);
    assert_int_equal(large->body.used, LARGE_BYTES);
    wait_released(*state, 2);
    client2_close(client);
    free(body);
    assert_works(*state); /* HTTP/1 at the same address */
    wait_connections(*state, 0);
}

/* Streams of events come to their end while another's client does not read. */
TEST_CASE(test_slow_reader_slows_only_itself)
{
    struct client2 *client = client2_open(*state);
    struct obtained *flood = ask2(client, "GET", "/flood", NULL, 0);
    flood->keeps_window = true;
    while (flood->body.used < NGHTTP2_INITIAL_WINDOW_SIZE)
        assert_true(pump(client));
    for (int i = 1; i < STREAMS_MAX; i++)
        (void)ask2(client, "GET", "/events", NULL, 0);
    char events[EVENTS * 9 + 1] = "";
    for (int i = 0; i < EVENTS; i++)
        memcpy(events + strlen(events), "data: x\n\n", 10);
    for (int i = 1; i < STREAMS_MAX; i++)
        assert_received(client, &client->obtained[i], 200, events);
    wait_count(&flood_waits, 1, "times that the flood waits");
    assert_int_equal(flood->body.used, NGHTTP2_INITIAL_WINDOW_SIZE);
    flood->keeps_window = false;
    CHECK(nghttp2_session_consume_stream(client->session, flood->id, flood->body.used) == 0);
    receive_all(client, flood);
    assert_int_equal(flood->body.used, FLOOD_BYTES);
    client2_close(client);
}

/* The stream's window is shut, the connection's is not. */
TEST_CASE(test_paused_body_holds_up_only_itself)
{
    struct rig *rig = *state;
    char *body = calloc(1, BODY_MAX);
    struct client2 *client = client2_open(rig);
    struct obtained *pause = ask2(client, "POST", "/pause", body, BODY_MAX);
    for (int i = 0; i < 10; i++)
        assert_received(client, ask2(client, "POST", "/echo", "other", 5), 200, "other");
    wait_count(&paused, 1, "pauses");
    assert_true(pause->said_bytes > 0);
    http_thread_post(rig->http, resume_paused, NULL);
    char length[32];
    snprintf(length, sizeof(length), "%d", BODY_MAX);
    assert_received(client, pause, 200, length);
    client2_close(client);
    free(body);
}

/* Two answers to pings: what the server sends on account of earlier bytes came before the last. */
static void
receive_what_follows(struct client2 *client)
{
    for (int wanted = client->pongs + 2; client->pongs < wanted;) {
        int before = client->pongs;
        CHECK(nghttp2_submit_ping(client->session, NGHTTP2_FLAG_NONE, NULL) == 0);
        while (client->pongs == before)
            assert_true(pump(client));
    }
}

enum way { RESUMED, ANSWERED, RESET, LOST, WAYS };

static void
end_held(struct rig *rig, struct client2 *client, struct obtained *const asked[HELD_MAX],
         enum way way)
{
    char length[32];
    snprintf(length, sizeof(length), "%d", BODY_MAX);
    if (way == RESET)
        for (int i = 0; i < HELD_MAX; i++)
            CHECK(nghttp2_submit_rst_stream(client->session, NGHTTP2_FLAG_NONE, asked[i]->id,
                                            NGHTTP2_CANCEL) == 0);
    else if (way != LOST)
        http_thread_post(rig->http, way == RESUMED ? resume_held : answer_held, NULL);
    for (int i = 0; i < HELD_MAX && way < RESET; i++)
        assert_received(client, asked[i], 200, way == RESUMED ? length : "held");
}

static void
assert_echo(struct client2 *client, const char *body)
{
    struct obtained *echo = ask2(client, "POST", "/echo", body, BODY_MAX);
    receive_all(client, echo);
    assert_int_equal(echo->body.used, BODY_MAX);
}

static void
hold_bodies(struct client2 *client, const char *body, struct obtained *asked[HELD_MAX])
{
    assert_received(client, ask2(client, "GET", "/now", NULL, 0), 200, "now"); /* and windows */
    atomic_store(&held_count, 0);
    for (int i = 0; i < HELD_MAX; i++)
        asked[i] = ask2(client, "POST", "/hold", body, BODY_MAX);
    wait_count(&held_count, HELD_MAX, "paused bodies");
    receive_what_follows(client);
}

/* Without room, paused bodies share the connection's window, and give it back however they end. */
TEST_CASE(test_paused_bodies_are_bounded)
{
    struct rig *rig = *state;
    char *body = calloc(1, BODY_MAX);
    for (enum way way = RESUMED; way < LOST; way++) {
        struct obtained *asked[HELD_MAX];
        struct client2 *client = client2_open(rig);
        hold_bodies(client, body, asked);
        assert_int_equal(nghttp2_session_get_remote_window_size(client->session), 0);
        end_held(rig, client, asked, way);
        assert_echo(client, body);
        client2_close(client);
    }
    wait_gone(rig, HELD_MAX);
    free(body);
}

/* Within the pool's room, another body passes. They give that back, too: each way would else leave
 * none for the next. */
TEST_CASE_WITH(test_paused_bodies_hold_up_no_other, setup2_roomy, teardown)
{
    struct rig *rig = *state;
    char *body = calloc(1, BODY_MAX);
    for (enum way way = RESUMED; way < WAYS; way++) {
        struct obtained *asked[HELD_MAX];
        struct client2 *client = client2_open(rig);
        hold_bodies(client, body, asked);
        assert_echo(client, body);
        end_held(rig, client, asked, way);
        client2_close(client);
        wait_connections(rig, 0);
    }
    struct obtained *asked[HELD_MAX];
    struct client2 *client = client2_open(rig);
    hold_bodies(client, body, asked);
    assert_echo(client, body);
    struct client2 *other = client2_open(rig);
    hold_bodies(other, body, asked); /* there is no more room */
    assert_int_equal(nghttp2_session_get_remote_window_size(other->session), 0);
    client2_close(client);
    client2_close(other);
    wait_gone(rig, 4 * HELD_MAX);
    free(body);
}

TEST_CASE(test_cancelled_requests_are_reported)
{
    struct rig *rig = *state;
    struct client2 *client = client2_open(rig);
    struct obtained *later = ask2(client, "GET", "/later", NULL, 0);
    wait_opened(rig, 1);
    CHECK(nghttp2_submit_rst_stream(client->session, NGHTTP2_FLAG_NONE, later->id,
                                    NGHTTP2_CANCEL) == 0);
    CHECK(nghttp2_session_send(client->session) == 0);
    wait_gone(rig, 1);
    http_thread_post(rig->http, answer_open, rig); /* dropped */
    wait_released(rig, 1);
    struct obtained *flood = ask2(client, "GET", "/flood", NULL, 0);
    flood->keeps_window = true;
    while (flood->body.used < NGHTTP2_INITIAL_WINDOW_SIZE)
        assert_true(pump(client));
    CHECK(nghttp2_submit_rst_stream(client->session, NGHTTP2_FLAG_NONE, flood->id,
                                    NGHTTP2_CANCEL) == 0);
    CHECK(nghttp2_session_send(client->session) == 0);
    wait_gone(rig, 2);
    assert_received(client, ask2(client, "GET", "/now", NULL, 0), 200, "now");
    client2_close(client);
}

TEST_CASE(test_lost_connection_is_reported_for_each_request)
{
    struct rig *rig = *state;
    struct client2 *client = client2_open(rig);
    char body[100] = "";
    for (int i = 0; i < 3; i++)
        (void)ask2(client, "GET", "/until-gone", NULL, 0);
    wait_opened(rig, 3);
    (void)ask2(client, "GET", "/later", NULL, 0);
    wait_opened(rig, 4);
    (void)ask2(client, "POST", "/pause", body, sizeof(body));
    wait_count(&paused, 1, "pauses");
    client2_close(client);
    wait_gone(rig, 5);
    wait_connections(rig, 0);
    wait_released(rig, 3);
    atomic_store(&rig->open, NULL); /* never answered: freed with the server */
}

TEST_CASE(test_answer_that_breaks_off)
{
    struct client2 *client = client2_open(*state);
    struct obtained *half = ask2(client, "GET", "/cut", NULL, 0);
    receive_all(client, half);
    assert_int_equal(half->error, NGHTTP2_INTERNAL_ERROR);
    assert_received(client, ask2(client, "GET", "/now", NULL, 0), 200, "now");
    client2_close(client);
}

/* The client is asked to stop sending, by an error that is none. */
TEST_CASE(test_answer_before_the_body)
{
    char *body = calloc(1, BODY_MAX + 1);
    struct client2 *client = client2_open(*state);
    struct obtained *early = ask2(client, "POST", "/early", body, BODY_MAX);
    assert_received(client, early, 200, "early");
    struct obtained *large = ask2(client, "POST", "/echo", body, BODY_MAX + 1);
    receive_all(client, large);
    assert_int_equal(large->code, 413);
    assert_received(client, ask2(client, "GET", "/now", NULL, 0), 200, "now");
    client2_close(client);
    free(body);
}

static void
part(void *context)
{
    http_server_part(context);
}

TEST_CASE(test_server_that_parts)
{
    struct rig *rig = *state;
    struct client2 *idle = client2_open(rig);
    assert_received(idle, ask2(idle, "GET", "/now", NULL, 0), 200, "now");
    struct client2 *client = client2_open(rig);
    struct obtained *later = ask2(client, "GET", "/later", NULL, 0);
    wait_opened(rig, 1);
    http_thread_post(rig->http, part, http_thread_server(rig->http));
    while (pump(idle))
        continue;
    assert_true(idle->was_reported_to_go);
    while (!client->was_reported_to_go)
        assert_true(pump(client));
    http_thread_post(rig->http, answer_open, rig);
    assert_received(client, later, 200, "later");
    while (pump(client))
        continue;
    client2_close(idle);
    client2_close(client);
    wait_connections(rig, 0);
}

/* A late stream gets an error while other streams of its connection are served. */
TEST_CASE_WITH(test_late_streams, setup2_hasty, teardown)
{
    struct rig *rig = *state;
    struct client2 *client = client2_open(rig);
    struct obtained *later =
        ask2(client, "GET", "/later", NULL, 0); /* may take as long as it likes */
    struct obtained *flood = ask2(client, "GET", "/flood", NULL, 0);
    struct obtained *late = ask2(client, "POST", "/echo", "", SIZE_MAX);
    flood->keeps_window = true;
    receive_all(client, late);
    assert_int_equal(late->code, 408);
    receive_all(client, flood);
    assert_int_equal(flood->error, NGHTTP2_CANCEL);
    wait_gone(rig, 2);
    wait_opened(rig, 1);
    http_thread_post(rig->http, answer_open, rig);
    assert_received(client, later, 200, "later");
    while (pump(client)) /* idle for too long */
        continue;
    assert_true(client->was_reported_to_go);
    client2_close(client);
}

/* Requests that are not answered, of a client that is still there, are freed. */
TEST_CASE(test_server_that_ends)
{
    (void)state;
    void *of_rig;
    assert_int_equal(setup2(&of_rig), 0);
    struct rig *rig = of_rig;
    struct client2 *client = client2_open(rig);
    (void)ask2(client, "GET", "/later", NULL, 0);
    wait_opened(rig, 1);
    struct obtained *flood = ask2(client, "GET", "/large", NULL, 0);
    flood->keeps_window = true;
    while (flood->body.used == 0)
        assert_true(pump(client));
    assert_int_equal(teardown(&of_rig), 0);
    client2_close(client);
}

TEST_MAIN(.setup = setup2, .teardown = teardown)
