/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client: it waits for a server that is not there yet, gives up at its deadline, finds a server
 * again that was started anew, and is not led astray by a proxy in the environment.
 *
 * ctest: timeout=120
 */
#include "test_rpc_rig.h"

struct attempt {
    char target[128];
    enum status status;
    char response[16];
    size_t response_bytes;
    struct error error;
};

static void
attempt_make(struct attempt *attempt, struct rpc_channel *channel, int64_t timeout_ns)
{
    void *response = NULL;
    attempt->error = ERROR_NONE;
    attempt->status = rpc_channel_call(
        channel, &(struct rpc_channel_ask){"/t.T/Echo", "hello", 5, clock_now_ns() + timeout_ns},
        &response, &attempt->response_bytes, &attempt->error);
    if (attempt->status == STATUS_OK)
        memcpy(attempt->response, response, attempt->response_bytes);
    free(response);
}

static void *
attempt_run(void *argument)
{
    struct attempt *attempt = argument;
    struct rpc_channel *channel;
    CHECK(rpc_channel_create(attempt->target, &channel, &attempt->error) == STATUS_OK);
    attempt_make(attempt, channel, PATIENCE_S * NS_PER_S);
    rpc_channel_destroy(channel);
    return NULL;
}

static char chosen_path[128];

static void
adjust_path(struct rpc_server_options *options)
{
    static const char *listen[] = {chosen_path, "127.0.0.1:0"};
    options->listen = listen;
}

TEST_CASE(test_waits_for_the_server)
{
    char directory[64];
    rig_make_directory(directory);
    snprintf(chosen_path, sizeof(chosen_path), "unix:%s/s", directory);
    struct attempt attempt = {.status = STATUS_UNKNOWN};
    memcpy(attempt.target, chosen_path, sizeof(attempt.target));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, attempt_run, &attempt), 0);
    struct rig *rig = rig_start(1, adjust_path);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (attempt.status != STATUS_OK)
        fail_msg("%s", attempt.error.text);
    assert_int_equal(attempt.response_bytes, 5);
    assert_memory_equal(attempt.response, "hello", 5);
    rig_stop(rig);
    assert_int_equal(rmdir(directory), 0);
}

TEST_CASE(test_gives_up_at_the_deadline)
{
    static const char *const nobody[] = {"unix:/nonexistent/socket", "127.0.0.1:1", "no such:thing",
                                         "bad.invalid:80"};
    for (size_t i = 0; i < ARRAY_COUNT(nobody); i++) {
        struct rpc_channel *channel;
        struct attempt attempt = {.status = STATUS_OK};
        assert_int_equal(rpc_channel_create(nobody[i], &channel, &attempt.error), STATUS_OK);
        int64_t start_ns = clock_now_ns();
        attempt_make(&attempt, channel, 100 * NS_PER_MS);
        /* The first two are addresses where somebody may still come; the others cannot be. */
        if (attempt.status != STATUS_DEADLINE_EXCEEDED &&
            (i < 2 || attempt.status != STATUS_UNAVAILABLE))
            fail_msg("%s: %s", nobody[i], status_name(attempt.status));
        assert_int_equal(attempt.status, attempt.error.status);
        assert_true(strlen(attempt.error.text) > 0);
        assert_true(clock_now_ns() - start_ns < PATIENCE_S * NS_PER_S);
        attempt_make(&attempt, channel, -1);
        assert_int_not_equal(attempt.status, STATUS_OK);
        rpc_channel_destroy(channel);
    }
    struct rpc_channel *channel;
    struct error error = ERROR_NONE;
    assert_int_equal(rpc_channel_create("", &channel, &error), STATUS_INVALID_ARGUMENT);
    rpc_channel_destroy(NULL);
}

TEST_CASE(test_finds_a_new_server)
{
    char directory[64];
    rig_make_directory(directory);
    snprintf(chosen_path, sizeof(chosen_path), "unix:%s/s", directory);
    struct rpc_channel *channel;
    struct attempt attempt = {.status = STATUS_OK};
    assert_int_equal(rpc_channel_create(chosen_path, &channel, &attempt.error), STATUS_OK);
    for (int i = 0; i < 3; i++) {
        struct rig *rig = rig_start(1, adjust_path);
        attempt_make(&attempt, channel, PATIENCE_S * NS_PER_S);
        if (attempt.status != STATUS_OK)
            fail_msg("round %d: %s", i, attempt.error.text);
        rig_stop(rig);
    }
    rpc_channel_destroy(channel);
    assert_int_equal(rmdir(directory), 0);
}

TEST_CASE(test_ignores_proxies)
{
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("grpc_proxy", "http://127.0.0.1:1", 1);
    struct rig *rig = rig_start(1, NULL);
    struct error error;
    assert_int_equal(rig_call(rig->tcp_target, "/t.T/Echo", "x", 1, &error), STATUS_OK);
    rig_stop(rig);
    unsetenv("http_proxy");
    unsetenv("grpc_proxy");
}

/* The server limits what it takes; the client takes what it is sent. */
static void
on_large(void *context, struct rpc_call *call, const struct wire_message *message)
{
    (void)context;
    (void)message;
    static char large[9 << 20];
    struct rpc_piece piece = {.data = large, .bytes = sizeof(large)};
    rpc_call_reply(call, &piece, 1);
}

static const struct rpc_method large_methods[] = {
    {"/t.T/Large", RPC_UNARY, true, on_large, NULL, NULL},
};

static void
adjust_large(struct rpc_server_options *options)
{
    options->methods = large_methods;
    options->method_count = ARRAY_COUNT(large_methods);
}

TEST_CASE(test_large_response)
{
    struct rig *rig = rig_start(1, adjust_large);
    struct rpc_channel *channel;
    struct error error = ERROR_NONE;
    void *response;
    size_t bytes;
    assert_int_equal(rpc_channel_create(rig->tcp_target, &channel, &error), STATUS_OK);
    enum status status =
        rpc_channel_call(channel, &(struct rpc_channel_ask){"/t.T/Large", NULL, 0, TIME_NEVER_NS},
                         &response, &bytes, &error);
    assert_int_equal(status, STATUS_OK);
    assert_int_equal(bytes, 9 << 20);
    free(response);
    rpc_channel_destroy(channel);
    rig_stop(rig);
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
