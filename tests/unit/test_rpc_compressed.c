/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed messages, over real sockets: good ones come as what they were; one that would become
 * larger than the limit is refused with the limit's name, and costs no more memory than the limit;
 * broken ones are refused; where compression is off all are. Answers likewise. And the inflation by
 * itself, where the message comes a byte at a time.
 *
 * ctest: timeout=120 presets=dev,tsan because messages are inflated by other threads
 */
#include "test_rpc_client_rig.h"

#include <grpc/compression.h>
#include <zlib.h>

/* Far more than the limit, and than what a test needs otherwise. */
enum { BOMB_BYTES = 256 << 20, MEMORY_KIB_MAX = 128 << 10 };

static const char *const methods[] = {"/t.T/Echo", "/t.T/EchoCold", "/t.T/Chat"};

/* `bytes` bytes of `fill`, compressed; the length goes to `*length`. */
static unsigned char *
compress_fill(int fill, size_t bytes, grpc_compression_algorithm algorithm, size_t *length)
{
    static unsigned char block[1 << 16];
    memset(block, fill, sizeof(block));
    z_stream stream = {0};
    int bits = algorithm == GRPC_COMPRESS_GZIP ? 31 : 15;
    assert_int_equal(
        deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY),
        Z_OK);
    size_t room = deflateBound(&stream, bytes) / 64 + 4096;
    unsigned char *to = malloc(room);
    assert_non_null(to);
    stream.next_out = to;
    stream.avail_out = (uInt)room;
    for (size_t done = 0; done < bytes; done += sizeof(block)) {
        size_t left = bytes - done;
        stream.next_in = block;
        stream.avail_in = (uInt)(left < sizeof(block) ? left : sizeof(block));
        assert_int_equal(deflate(&stream, Z_NO_FLUSH), Z_OK);
    }
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    *length = stream.total_out;
    deflateEnd(&stream);
    return to;
}

static grpc_byte_buffer *
buffer_of(const void *data, size_t bytes, grpc_compression_algorithm algorithm)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(data, bytes);
    grpc_byte_buffer *buffer = grpc_raw_compressed_byte_buffer_create(&slice, 1, algorithm);
    grpc_slice_unref(slice);
    return buffer;
}

static void
open_compressed(struct caller *caller, const char *target, const char *method,
                grpc_compression_algorithm algorithm)
{
    grpc_metadata encoding = {
        .key = grpc_slice_from_static_string(GRPC_COMPRESSION_REQUEST_ALGORITHM_MD_KEY),
        .value =
            grpc_slice_from_static_string(algorithm == GRPC_COMPRESS_GZIP ? "gzip" : "deflate")};
    caller_open_with(caller, target, method, TIME_NEVER_NS, &encoding, 1);
}

static bool
is_chat(const char *method)
{
    return strcmp(method, "/t.T/Chat") == 0;
}

/* Sends one message that is compressed already; the status, and the answer's length if it was OK.
 */
static int
ask(const char *target, const char *method, grpc_byte_buffer *message,
    grpc_compression_algorithm algorithm, char text[1024], long *length)
{
    struct caller caller;
    open_compressed(&caller, target, method, algorithm);
    caller_start_send(&caller, message);
    (void)caller_pluck(&caller, TAG_SEND, PATIENCE_S * NS_PER_S);
    if (!is_chat(method))
        caller_half_close(&caller);
    *length = caller_receive(&caller, NULL, 0);
    if (is_chat(method) && *length >= 0)
        caller_half_close(&caller);
    int status = caller_status(&caller);
    snprintf(text, 1024, "%.*s", (int)GRPC_SLICE_LENGTH(caller.text),
             (const char *)GRPC_SLICE_START_PTR(caller.text));
    caller_close(&caller);
    return status;
}

static long
memory_kib_highest(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "VmHWM: %ld kB", &kib) == 1)
            break;
    fclose(file);
    assert_true(kib > 0);
    return kib;
}

TEST_CASE(test_good)
{
    struct rig *rig = rig_start(1, NULL);
    static const size_t sizes[] = {0, 1, 4096, 100001, 4 << 20};
    for (int algorithm = GRPC_COMPRESS_DEFLATE; algorithm <= GRPC_COMPRESS_GZIP; algorithm++)
        for (size_t m = 0; m < ARRAY_COUNT(methods); m++)
            for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
                size_t bytes;
                long length;
                char text[1024];
                unsigned char *data = compress_fill('a', sizes[s], algorithm, &bytes);
                int status = ask(rig->tcp_target, methods[m], buffer_of(data, bytes, algorithm),
                                 algorithm, text, &length);
                free(data);
                if (status != GRPC_STATUS_OK || length != (long)sizes[s])
                    fail_msg("%s %zu: %d %ld %s", methods[m], sizes[s], status, length, text);
            }
    rig_stop(rig);
}

TEST_CASE(test_too_large)
{
    struct rig *rig = rig_start(1, NULL);
    char limit[32];
    snprintf(limit, sizeof(limit), "%zu", RIG_LIMIT_BYTES);
    for (int algorithm = GRPC_COMPRESS_DEFLATE; algorithm <= GRPC_COMPRESS_GZIP; algorithm++) {
        static const size_t sizes[] = {RIG_LIMIT_BYTES + 1, BOMB_BYTES};
        for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
            size_t bytes;
            unsigned char *data = compress_fill(0, sizes[s], algorithm, &bytes);
            long before_kib = memory_kib_highest();
            for (size_t m = 0; m < ARRAY_COUNT(methods); m++) {
                long length;
                char text[1024];
                int status = ask(rig->tcp_target, methods[m], buffer_of(data, bytes, algorithm),
                                 algorithm, text, &length);
                if (status != GRPC_STATUS_RESOURCE_EXHAUSTED || strstr(text, limit) == NULL)
                    fail_msg("%s %zu: %d %s", methods[m], sizes[s], status, text);
            }
            assert_true(memory_kib_highest() - before_kib < MEMORY_KIB_MAX);
            free(data);
        }
    }
    assert_int_equal(rig_read(rig, &rig->messages), 0);
    rig_stop(rig);
}

/* A message of a stream whose user knows it: the call is cancelled, and the user is notified. */
TEST_CASE(test_too_large_in_a_stream)
{
    struct rig *rig = rig_start(1, NULL);
    size_t good_bytes;
    size_t bomb_bytes;
    unsigned char *good = compress_fill('a', 1000, GRPC_COMPRESS_GZIP, &good_bytes);
    unsigned char *bomb = compress_fill(0, BOMB_BYTES, GRPC_COMPRESS_GZIP, &bomb_bytes);
    struct caller caller;
    open_compressed(&caller, rig->tcp_target, "/t.T/Chat", GRPC_COMPRESS_GZIP);
    caller_start_send(&caller, buffer_of(good, good_bytes, GRPC_COMPRESS_GZIP));
    assert_true(caller_pluck(&caller, TAG_SEND, PATIENCE_S * NS_PER_S));
    assert_int_equal(caller_receive(&caller, NULL, 0), 1000);
    caller_start_send(&caller, buffer_of(bomb, bomb_bytes, GRPC_COMPRESS_GZIP));
    (void)caller_pluck(&caller, TAG_SEND, PATIENCE_S * NS_PER_S);
    assert_int_equal(caller_status(&caller), GRPC_STATUS_RESOURCE_EXHAUSTED);
    rig_wait(rig, &rig->cancels, 1);
    caller_close(&caller);
    free(good);
    free(bomb);
    rig_stop(rig);
}

TEST_CASE(test_broken)
{
    struct rig *rig = rig_start(1, NULL);
    size_t bytes;
    unsigned char *data = compress_fill('x', 70000, GRPC_COMPRESS_GZIP, &bytes);
    unsigned char *more = calloc(1, bytes + 1);
    assert_non_null(more);
    memcpy(more, data, bytes);
    struct {
        const void *data;
        size_t bytes;
    } cases[] = {{data, bytes - 1}, {data, 5}, {more, bytes + 1}, {"no gzip", 7}, {data, 0}};
    for (size_t m = 0; m < ARRAY_COUNT(methods); m++)
        for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
            char text[1024];
            long length;
            grpc_byte_buffer *message =
                buffer_of(cases[i].data, cases[i].bytes, GRPC_COMPRESS_GZIP);
            int status =
                ask(rig->unix_target, methods[m], message, GRPC_COMPRESS_GZIP, text, &length);
            if (status != GRPC_STATUS_INTERNAL || strstr(text, "decompressed") == NULL)
                fail_msg("%s case %zu: %d %s", methods[m], i, status, text);
        }
    assert_int_equal(rig_read(rig, &rig->messages), 0);
    free(data);
    free(more);
    rig_stop(rig);
}

static void
adjust_off(struct rpc_server_options *options)
{
    options->compression = RPC_COMPRESSION_OFF;
}

TEST_CASE(test_off)
{
    struct rig *rig = rig_start(1, adjust_off);
    size_t bytes;
    unsigned char *data = compress_fill('a', 1000, GRPC_COMPRESS_GZIP, &bytes);
    for (size_t m = 0; m < ARRAY_COUNT(methods); m++) {
        char text[1024];
        long length;
        grpc_byte_buffer *message = buffer_of(data, bytes, GRPC_COMPRESS_GZIP);
        assert_int_equal(
            ask(rig->tcp_target, methods[m], message, GRPC_COMPRESS_GZIP, text, &length),
            GRPC_STATUS_UNIMPLEMENTED);
    }
    assert_int_equal(rig_read(rig, &rig->messages), 0);
    struct error error;
    assert_int_equal(rig_call(rig->tcp_target, methods[0], "plain", 5, &error), STATUS_OK);
    free(data);
    rig_stop(rig);
}

/* However the message was cut on its way. */
TEST_CASE(test_byte_by_byte)
{
    size_t bytes;
    unsigned char *data = compress_fill('b', 3000000, GRPC_COMPRESS_DEFLATE, &bytes);
    grpc_slice *slices = calloc(bytes, sizeof(*slices));
    assert_non_null(slices);
    for (size_t i = 0; i < bytes; i++)
        slices[i] = grpc_slice_from_copied_buffer((const char *)data + i, 1);
    static const struct {
        size_t limit;
        enum status wanted;
    } cases[] = {{3000000, STATUS_OK}, {2999999, STATUS_RESOURCE_EXHAUSTED}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        grpc_byte_buffer *buffer =
            grpc_raw_compressed_byte_buffer_create(slices, bytes, GRPC_COMPRESS_DEFLATE);
        struct error error = ERROR_NONE;
        assert_int_equal(rpc_inflate(&buffer, cases[i].limit, &error), cases[i].wanted);
        if (cases[i].wanted == STATUS_OK) {
            assert_int_equal(buffer->data.raw.compression, GRPC_COMPRESS_NONE);
            assert_int_equal(grpc_byte_buffer_length(buffer), 3000000);
            assert_true(buffer->data.raw.slice_buffer.count < 1000);
        }
        grpc_byte_buffer_destroy(buffer);
    }
    for (size_t i = 0; i < bytes; i++)
        grpc_slice_unref(slices[i]);
    free(slices);
    free(data);
}

/* ---- answers ---- */

/* A server that answers each call with the same compressed message. */
struct liar {
    grpc_server *server;
    grpc_completion_queue *queue;
    pthread_t thread;
    char target[32];
    const unsigned char *data;
    size_t bytes;
};

static void
liar_answer(struct liar *liar, grpc_call *call)
{
    grpc_metadata encoding = {
        .key = grpc_slice_from_static_string(GRPC_COMPRESSION_REQUEST_ALGORITHM_MD_KEY),
        .value = grpc_slice_from_static_string("gzip")};
    grpc_byte_buffer *message = buffer_of(liar->data, liar->bytes, GRPC_COMPRESS_GZIP);
    int cancelled;
    grpc_op ops[] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                     {.op = GRPC_OP_SEND_MESSAGE},
                     {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
                     {.op = GRPC_OP_RECV_CLOSE_ON_SERVER}};
    ops[0].data.send_initial_metadata.metadata = &encoding;
    ops[0].data.send_initial_metadata.count = 1;
    ops[1].data.send_message.send_message = message;
    ops[3].data.recv_close_on_server.cancelled = &cancelled;
    gpr_timespec never = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    CHECK(grpc_call_start_batch(call, ops, ARRAY_COUNT(ops), call, NULL) == GRPC_CALL_OK);
    CHECK(grpc_completion_queue_next(liar->queue, never, NULL).tag == call);
    grpc_byte_buffer_destroy(message);
    grpc_call_unref(call);
}

/* Until it is shut down, one call after the other. */
static void *
liar_run(void *context)
{
    struct liar *liar = context;
    gpr_timespec never = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    for (bool lives = true; lives;) {
        grpc_call *call = NULL;
        grpc_call_details details;
        grpc_metadata_array metadata;
        grpc_call_details_init(&details);
        grpc_metadata_array_init(&metadata);
        CHECK(grpc_server_request_call(liar->server, &call, &details, &metadata, liar->queue,
                                       liar->queue, liar) == GRPC_CALL_OK);
        grpc_event event = grpc_completion_queue_next(liar->queue, never, NULL);
        lives = event.tag == liar && event.success != 0;
        if (lives)
            liar_answer(liar, call);
        grpc_call_details_destroy(&details);
        grpc_metadata_array_destroy(&metadata);
    }
    return NULL;
}

static void
liar_start(struct liar *liar, const unsigned char *data, size_t bytes)
{
    *liar = (struct liar){.data = data, .bytes = bytes};
    liar->queue = grpc_completion_queue_create_for_next(NULL);
    liar->server = grpc_server_create(NULL, NULL);
    grpc_server_register_completion_queue(liar->server, liar->queue, NULL);
    grpc_server_credentials *insecure = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(liar->server, "127.0.0.1:0", insecure);
    grpc_server_credentials_release(insecure);
    assert_true(port > 0);
    snprintf(liar->target, sizeof(liar->target), "127.0.0.1:%d", port);
    grpc_server_start(liar->server);
    assert_int_equal(pthread_create(&liar->thread, NULL, liar_run, liar), 0);
}

static void
liar_stop(struct liar *liar)
{
    gpr_timespec never = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    grpc_completion_queue *end = grpc_completion_queue_create_for_pluck(NULL);
    grpc_server_shutdown_and_notify(liar->server, end, liar);
    assert_int_equal(pthread_join(liar->thread, NULL), 0);
    (void)grpc_completion_queue_pluck(end, liar, never, NULL);
    grpc_server_destroy(liar->server);
    grpc_completion_queue *queues[] = {end, liar->queue};
    for (size_t i = 0; i < ARRAY_COUNT(queues); i++)
        grpc_completion_queue_shutdown(queues[i]);
    CHECK(grpc_completion_queue_next(liar->queue, never, NULL).type == GRPC_QUEUE_SHUTDOWN);
    for (size_t i = 0; i < ARRAY_COUNT(queues); i++)
        grpc_completion_queue_destroy(queues[i]);
}

/* A client gives no more memory to what it is answered than its own limit. */
TEST_CASE(test_answer_too_large)
{
    size_t bytes;
    struct liar liar;
    unsigned char *bomb = compress_fill(0, BOMB_BYTES, GRPC_COMPRESS_GZIP, &bytes);
    liar_start(&liar, bomb, bytes);
    struct side *side = side_start();
    struct rpc_client *client = client_open_with(side->queue, liar.target, RIG_LIMIT_BYTES);
    static const enum rpc_kind kinds[] = {RPC_UNARY, RPC_BIDI_STREAM};
    long before_kib = memory_kib_highest();
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        struct probe probe = {.side = side};
        struct rpc_client_request request = probe_request(&probe, "/t.T/Any", kinds[i]);
        rpc_client_start(client, &request, NULL);
        assert_int_equal(probe_end(&probe), STATUS_RESOURCE_EXHAUSTED);
        assert_int_equal(probe.messages, 0);
    }
    assert_true(memory_kib_highest() - before_kib < MEMORY_KIB_MAX);
    rpc_client_destroy(client);
    side_stop(side);
    liar_stop(&liar);
    free(bomb);
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
