/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unary calls, against a real server over unix and TCP sockets: bytes come back as they went, of
 * any size and shape, by the hot and by the ordinary way; limits, unknown methods and failures give
 * the status and text they should; what was lent is released once; call objects are used again.
 *
 * ctest: timeout=120 presets=dev,tsan because calls are answered by other threads
 */
#include "test_rpc_rig.h"

TEST_CASE(test_echo)
{
    struct rig *rig = rig_start(1, NULL);
    static unsigned char bytes[3000000];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    static const size_t sizes[] = {0, 1, 22, 23, 24, 100, 8191, 65537, 3000000};
    const char *targets[] = {rig->unix_target, rig->tcp_target};
    static const char *const methods[] = {"/t.T/Echo", "/t.T/EchoCold"};
    unsigned calls = 0;
    struct error error;
    for (size_t t = 0; t < ARRAY_COUNT(targets); t++)
        for (size_t m = 0; m < ARRAY_COUNT(methods); m++)
            for (size_t s = 0; s < ARRAY_COUNT(sizes); s++, calls++)
                if (rig_call(targets[t], methods[m], bytes, sizes[s], &error) != STATUS_OK)
                    fail_msg("%s %s %zu: %s", targets[t], methods[m], sizes[s], error.text);
    assert_int_equal(rig_read(rig, &rig->messages), calls);
    rig_wait(rig, &rig->released, calls);
    rig_stop(rig);
}

TEST_CASE(test_too_large)
{
    struct rig *rig = rig_start(1, NULL);
    size_t bytes = (size_t)20 << 20;
    unsigned char *request = calloc(1, bytes);
    assert_non_null(request);
    struct error error;
    static const char *const methods[] = {"/t.T/Echo", "/t.T/EchoCold"};
    for (size_t m = 0; m < ARRAY_COUNT(methods); m++) {
        assert_int_equal(rig_call(rig->unix_target, methods[m], request, bytes, &error),
                         STATUS_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(error.text, "20971520"));
        assert_non_null(strstr(error.text, "5242880"));
        assert_int_equal(rig_call(rig->unix_target, methods[m], request, RIG_LIMIT_BYTES, &error),
                         STATUS_OK);
    }
    assert_int_equal(rig_read(rig, &rig->messages), 2);
    assert_int_equal(rig_read(rig, &rig->cancels), 0);
    free(request);
    rig_stop(rig);
}

TEST_CASE(test_unknown_method)
{
    struct rig *rig = rig_start(1, NULL);
    struct error error;
    assert_int_equal(rig_call(rig->tcp_target, "/t.T/Nothing", "x", 1, &error),
                     STATUS_UNIMPLEMENTED);
    assert_string_equal(error.text, "unknown method /t.T/Nothing");
    rig_stop(rig);
}

TEST_CASE(test_finish_carries_status_and_text)
{
    struct rig *rig = rig_start(1, NULL);
    static const struct {
        enum status status;
        const char *text;
        const char *seen;
    } cases[] = {
        {STATUS_NOT_FOUND, "model \"x\": not here", "model \"x\": not here"},
        {STATUS_INVALID_ARGUMENT, "line\nbreak \xc3\xa9 100%", "line\nbreak \xc3\xa9 100%"},
        {STATUS_UNAVAILABLE, NULL, ""},
        {STATUS_UNAUTHENTICATED, "", ""},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(cases); i++) {
        struct caller caller;
        caller_open(&caller, rig->unix_target, "/t.T/Hold");
        caller_send(&caller, "m", 1);
        caller_half_close(&caller);
        rig_wait(rig, &rig->held_count, i + 1);
        rig_end_held(rig, i, cases[i].status, cases[i].text);
        assert_int_equal(caller_status(&caller), cases[i].status);
        assert_int_equal(grpc_slice_str_cmp(caller.text, cases[i].seen), 0);
        caller_close(&caller);
    }
    assert_int_equal(rig_read(rig, &rig->cancels), 0);
    rig_stop(rig);
}

TEST_CASE(test_long_text_is_cut)
{
    struct rig *rig = rig_start(1, NULL);
    char text[RPC_TEXT_BYTES_MAX + 500];
    memset(text, '\n', sizeof(text)); /* three bytes each on the wire */
    text[sizeof(text) - 1] = '\0';
    struct caller caller;
    caller_open(&caller, rig->unix_target, "/t.T/Hold");
    caller_send(&caller, "m", 1);
    rig_wait(rig, &rig->held_count, 1);
    rig_end_held(rig, 0, STATUS_INTERNAL, text);
    assert_int_equal(caller_status(&caller), STATUS_INTERNAL);
    assert_int_equal(GRPC_SLICE_LENGTH(caller.text), RPC_TEXT_BYTES_MAX);
    caller_close(&caller);
    rig_stop(rig);
}

TEST_CASE(test_no_message)
{
    struct rig *rig = rig_start(1, NULL);
    static const char *const methods[] = {"/t.T/Echo", "/t.T/EchoCold", "/t.T/HoldStream"};
    for (size_t m = 0; m < ARRAY_COUNT(methods); m++) {
        struct caller caller;
        caller_open(&caller, rig->unix_target, methods[m]);
        caller_half_close(&caller);
        assert_int_equal(caller_status(&caller), STATUS_INTERNAL);
        assert_int_equal(grpc_slice_str_cmp(caller.text, "Half-closed without a request"), 0);
        caller_close(&caller);
    }
    assert_int_equal(rig_read(rig, &rig->messages), 0);
    rig_stop(rig);
}

/* ---- the server's view of a call ---- */

static void
on_describe(void *context, struct rpc_call *call, const struct wire_message *message)
{
    (void)context;
    (void)message;
    char text[256];
    struct wire_span binary = {NULL, 0};
    struct wire_span plain = {NULL, 0};
    struct wire_span absent;
    int user;
    bool ok = rpc_call_user(call) == NULL;
    rpc_call_set_user(call, &user);
    size_t at[3] = {0};
    ok = ok && rpc_call_metadata_next(call, "x-blob-bin", &at[0], &binary) &&
         rpc_call_metadata_next(call, "mm-model-id", &at[1], &plain) &&
         !rpc_call_metadata_next(call, "mm-model", &at[2], &absent) && rpc_call_user(call) == &user;
    int64_t deadline_ns = rpc_call_deadline_ns(call);
    long left_ms = -1;
    if (deadline_ns != TIME_NEVER_NS)
        left_ms = (long)((deadline_ns - clock_now_ns()) / NS_PER_MS);
    snprintf(text, sizeof(text), "%d %s %.*s %zu %ld", ok, rpc_call_method(call), (int)plain.bytes,
             (const char *)plain.data, binary.bytes, left_ms);
    struct rpc_piece piece = {.data = text, .bytes = strlen(text) + 1};
    rpc_call_reply(call, &piece, 1);
}

static const struct rpc_method describe_methods[] = {
    {"/t.T/Describe", RPC_UNARY, true, on_describe, NULL, NULL},
    {"/t.T/DescribeCold", RPC_UNARY, false, on_describe, NULL, NULL},
};

static void
adjust_describe(struct rpc_server_options *options)
{
    options->methods = describe_methods;
    options->method_count = ARRAY_COUNT(describe_methods);
}

static grpc_metadata
metadata_entry(const char *key, const char *value, size_t bytes)
{
    return (grpc_metadata){.key = grpc_slice_from_static_string(key),
                           .value = grpc_slice_from_static_buffer(value, bytes)};
}

static void
describe(struct rig *rig, const char *method, int64_t deadline_ns, char *text, size_t bytes)
{
    grpc_metadata metadata[] = {metadata_entry("x-blob-bin", "\0\1\xff\n", 4),
                                metadata_entry("mm-model-id", "first", 5),
                                metadata_entry("mm-model-id", "second", 6)};
    struct caller caller;
    caller_open_with(&caller, rig->tcp_target, method, deadline_ns, metadata,
                     ARRAY_COUNT(metadata));
    caller_send(&caller, "m", 1);
    caller_half_close(&caller);
    assert_true(caller_receive(&caller, text, bytes) > 0);
    assert_int_equal(caller_status(&caller), STATUS_OK);
    caller_close(&caller);
}

TEST_CASE(test_metadata_and_deadline)
{
    struct rig *rig = rig_start(1, adjust_describe);
    static const char *const methods[] = {"/t.T/Describe", "/t.T/DescribeCold"};
    for (size_t m = 0; m < ARRAY_COUNT(methods); m++) {
        char wanted[256], seen[256];
        snprintf(wanted, sizeof(wanted), "1 %s first 4 -1", methods[m]);
        /* More often than there are call objects: nothing is left of an earlier call. */
        for (size_t i = 0; i < 2 * RIG_ARMED_CALLS; i++) {
            describe(rig, methods[m], TIME_NEVER_NS, seen, sizeof(seen));
            assert_string_equal(seen, wanted);
        }
        /* The wire rounds up by at most a hundredth. */
        describe(rig, methods[m], clock_now_ns() + 1000 * NS_PER_S, seen, sizeof(seen));
        long left_ms = atol(strrchr(seen, ' '));
        assert_in_range(left_ms, 1000000 - PATIENCE_S * 1000, 1011000);
    }
    rig_stop(rig);
}

/* ---- shapes of messages ---- */

static void
on_pieces(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct rig *rig = context;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    struct rpc_piece pieces[100];
    struct wire_message nothing = {0};
    for (size_t i = 0; i < ARRAY_COUNT(pieces); i++) {
        if (i % 5 == 3)
            pieces[i] = lent_piece(rig, message);
        else if (i % 5 == 4)
            pieces[i] = lent_piece(rig, &nothing);
        else
            pieces[i] = (struct rpc_piece){.data = letters, .bytes = i % 27};
    }
    rpc_call_reply(call, pieces, ARRAY_COUNT(pieces));
}

static const struct rpc_method pieces_methods[] = {
    {"/t.T/Pieces", RPC_UNARY, true, on_pieces, NULL, NULL},
};

static void
adjust_pieces(struct rpc_server_options *options)
{
    options->methods = pieces_methods;
    options->method_count = ARRAY_COUNT(pieces_methods);
}

TEST_CASE(test_many_pieces)
{
    struct rig *rig = rig_start(1, adjust_pieces);
    struct caller caller;
    caller_open(&caller, rig->unix_target, "/t.T/Pieces");
    caller_send(&caller, "0123456789", 10);
    char seen[4096], wanted[4096];
    size_t used = 0;
    long length = caller_receive(&caller, seen, sizeof(seen));
    assert_int_equal(caller_status(&caller), STATUS_OK);
    caller_close(&caller);
    for (int i = 0; i < 100; i++) {
        size_t bytes = i % 5 == 3 ? 10 : i % 5 == 4 ? 0 : (size_t)i % 27;
        memcpy(wanted + used, i % 5 == 3 ? "0123456789" : "abcdefghijklmnopqrstuvwxyz", bytes);
        used += bytes;
    }
    assert_int_equal(length, used);
    assert_memory_equal(seen, wanted, used);
    rig_wait(rig, &rig->released, 40);
    rig_stop(rig);
}

TEST_CASE(test_compressed_request)
{
    struct rig *rig = rig_start(1, NULL);
    static char zeros[100000];
    char encoding[] = "gzip";
    grpc_metadata metadata = metadata_entry("grpc-internal-encoding-request", encoding, 4);
    struct caller caller;
    caller_open_with(&caller, rig->tcp_target, "/t.T/Echo", TIME_NEVER_NS, &metadata, 1);
    caller_send(&caller, zeros, sizeof(zeros));
    caller_half_close(&caller);
    assert_int_equal(caller_receive(&caller, NULL, 0), sizeof(zeros));
    assert_int_equal(caller_status(&caller), STATUS_OK);
    caller_close(&caller);
    rig_stop(rig);
}

/* ---- another thread ---- */

struct replier {
    struct rig *rig;
    unsigned count;
};

static void *
replier_run(void *argument)
{
    struct replier *replier = argument;
    struct rig *rig = replier->rig;
    for (unsigned i = 0; i < replier->count; i++) {
        struct timespec until = rig_patience();
        pthread_mutex_lock(&rig->lock);
        while (rig->held_count == 0 &&
               pthread_cond_timedwait(&rig->changed, &rig->lock, &until) == 0)
            continue;
        CHECK(rig->held_count > 0);
        struct rpc_call *call = rig->held[--rig->held_count];
        pthread_mutex_unlock(&rig->lock);
        struct wire_message message = {&(struct wire_span){"reply", 5}, 1, 5};
        struct rpc_piece piece = lent_piece(rig, &message);
        if (i % 3 == 2) {
            piece.release(piece.release_context);
            rpc_call_finish(call, STATUS_ABORTED, "third");
        } else {
            rpc_call_reply(call, &piece, 1);
        }
    }
    return NULL;
}

TEST_CASE(test_reply_from_another_thread)
{
    struct rig *rig = rig_start(1, NULL);
    struct replier replier = {rig, 300};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, replier_run, &replier), 0);
    struct rpc_channel *channel;
    struct error error = ERROR_NONE;
    assert_int_equal(rpc_channel_create(rig->unix_target, &channel, &error), STATUS_OK);
    for (unsigned i = 0; i < replier.count; i++) {
        void *response = NULL;
        size_t bytes;
        const char *method = i % 2 ? "/t.T/Hold" : "/t.T/HoldCold";
        enum status status =
            rpc_channel_call(channel, &(struct rpc_channel_ask){method, "q", 1, TIME_NEVER_NS},
                             &response, &bytes, &error);
        assert_int_equal(status, i % 3 == 2 ? STATUS_ABORTED : STATUS_OK);
        free(response);
    }
    pthread_join(thread, NULL);
    rpc_channel_destroy(channel);
    rig_wait(rig, &rig->released, replier.count);
    rig_stop(rig);
}

/* The trailer is there when a wait is named, once, and only then. */
TEST_CASE(test_a_refusal_names_the_wait)
{
    struct rig *rig = rig_start(1, NULL);
    static const struct {
        uint32_t retry_ms;
        const char *seen;
    } cases[] = {{1, "1"}, {10000, "10000"}, {UINT32_MAX, "4294967295"}};
    for (unsigned i = 0; i < ARRAY_COUNT(cases); i++) {
        struct caller caller;
        caller_open(&caller, rig->unix_target, "/t.T/Hold");
        caller_send(&caller, "m", 1);
        caller_half_close(&caller);
        rig_wait(rig, &rig->held_count, i + 1);
        rpc_call_refuse(rig->held[i], STATUS_RESOURCE_EXHAUSTED, "full", cases[i].retry_ms);
        assert_int_equal(caller_status(&caller), STATUS_RESOURCE_EXHAUSTED);
        assert_int_equal(grpc_slice_str_cmp(caller.text, "full"), 0);
        assert_int_equal(caller.trailing.count, 1);
        const grpc_metadata *trailer = &caller.trailing.metadata[0];
        assert_int_equal(grpc_slice_str_cmp(trailer->key, "grpc-retry-pushback-ms"), 0);
        assert_int_equal(grpc_slice_str_cmp(trailer->value, cases[i].seen), 0);
        caller_close(&caller);
    }
    rig_stop(rig);
}

/* Without the port, so that two connections of one machine are one peer; cut, never overrun. */
TEST_CASE(test_peer)
{
    struct rig *rig = rig_start(1, NULL);
    const char *const targets[] = {rig->unix_target, rig->tcp_target, rig->tcp_target};
    static const char *const wanted[] = {"unix:", "ipv4:127.0.0.1", "ipv4:127.0.0.1"};
    for (unsigned i = 0; i < ARRAY_COUNT(targets); i++) {
        struct caller caller;
        caller_open(&caller, targets[i], "/t.T/Hold");
        caller_send(&caller, "m", 1);
        caller_half_close(&caller);
        rig_wait(rig, &rig->held_count, i + 1);
        char peer[64] = "";
        size_t length = rpc_call_peer(rig->held[i], peer, sizeof(peer));
        assert_memory_equal(peer, wanted[i], strlen(wanted[i]));
        assert_true(i == 0 || length == strlen(wanted[i]));
        char little[5] = {'-', '-', '-', '-', '-'};
        assert_int_equal(rpc_call_peer(rig->held[i], little, 4), 4);
        assert_int_equal(little[4], '-');
        rig_end_held(rig, i, STATUS_ABORTED, NULL);
        assert_int_equal(caller_status(&caller), STATUS_ABORTED);
        assert_int_equal(caller.trailing.count, 0);
        caller_close(&caller);
    }
    rig_stop(rig);
}

/* 10,000 calls, at most four of them at once, live in the objects that there were for the first. */
TEST_CASE(test_call_objects_are_used_again)
{
    struct rig *rig = rig_start(1, NULL);
    struct rpc_channel *channel;
    struct error error = ERROR_NONE;
    assert_int_equal(rpc_channel_create(rig->unix_target, &channel, &error), STATUS_OK);
    for (unsigned i = 0; i < 10000; i++) {
        void *response = NULL;
        size_t bytes;
        const char *method = i % 4 == 0 ? "/t.T/EchoCold" : "/t.T/Echo";
        if (rpc_channel_call(channel,
                             &(struct rpc_channel_ask){method, &i, sizeof(i), TIME_NEVER_NS},
                             &response, &bytes, &error) != STATUS_OK)
            fail_msg("call %u: %s", i, error.text);
        assert_int_equal(bytes, sizeof(i));
        assert_memory_equal(response, &i, sizeof(i));
        free(response);
    }
    rpc_channel_destroy(channel);
    rig_wait(rig, &rig->released, 10000);
    rpc_server_stop(rig->server);
    rig_join(rig);
    const struct rpc_queue *queue = &rig->server->queues[0];
    size_t armed = rig->server->arm_count * RIG_ARMED_CALLS;
    assert_int_equal(rig->server->arm_count, 4); /* three hot ones and the rest */
    assert_in_range(queue->call_count, armed, armed + 4);
    rig_destroy(rig);
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
