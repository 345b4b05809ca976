/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between coordinator and worker: a message arrives whole, and nothing of another
 * version, type or length is taken for one; a ready message is believed only when every string in
 * it ends and every count, type, rank and dimension is within its limits, and so are orders for
 * models and words of them, of which no more is sent than counts. Each case spoils one thing of a
 * message that is right.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../test.h"
#include "ipc/handshake.h"

union message {
    struct handshake_header header;
    struct handshake_start start;
    struct handshake_ready ready;
    struct handshake_failed failed;
};

static union message message;
static union message received;

static void
pair_open(int ends[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    struct timeval short_time = {.tv_usec = 20000};
    assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &short_time, sizeof(short_time)),
                     0);
}

static void
message_begin(uint32_t type, uint32_t bytes)
{
    memset(&message, 0, sizeof(message));
    message.header = (struct handshake_header){HANDSHAKE_VERSION, type, bytes, 0};
}

TEST_CASE(test_each_type_arrives_whole)
{
    const struct {
        uint32_t type;
        uint32_t bytes;
    } types[] = {
        {HANDSHAKE_START, sizeof(struct handshake_start)},
        {HANDSHAKE_READY, sizeof(struct handshake_ready)},
        {HANDSHAKE_FAILED, sizeof(struct handshake_failed)},
    };
    int ends[2];
    pair_open(ends);
    struct error error = ERROR_NONE;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        message_begin(types[i].type, types[i].bytes);
        ((char *)&message)[types[i].bytes - 1] = (char)(i + 1);
        assert_int_equal(handshake_send(ends[0], &message, types[i].bytes, &error), STATUS_OK);
        assert_int_equal(handshake_receive(ends[1], &received, sizeof(received), &error),
                         STATUS_OK);
        assert_memory_equal(&message, &received, types[i].bytes);
    }
    close(ends[0]);
    close(ends[1]);
}

/* Sends the first `bytes` of the message as they are. */
static void
assert_not_taken(uint32_t bytes, uint32_t room, enum status status, const char *text)
{
    int ends[2];
    pair_open(ends);
    assert_int_equal(send(ends[0], &message, bytes, 0), bytes);
    struct error error = ERROR_NONE;
    assert_int_equal(handshake_receive(ends[1], &received, room, &error), status);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
    close(ends[0]);
    close(ends[1]);
}

TEST_CASE(test_anything_else_is_refused)
{
    const uint32_t right = sizeof(struct handshake_failed);
    message_begin(HANDSHAKE_FAILED, right);
    assert_not_taken(3, sizeof(received), STATUS_DATA_LOSS, "3 bytes");
    assert_not_taken(right - 1, sizeof(received), STATUS_DATA_LOSS, "has");
    assert_not_taken(right + 1, sizeof(received), STATUS_DATA_LOSS, "has");
    assert_not_taken(right, right - 1, STATUS_DATA_LOSS, "room for");
    message.header.bytes = right - 1;
    assert_not_taken(right, sizeof(received), STATUS_DATA_LOSS, "it says");
    message.header.bytes = right;
    message.header.type = 77;
    assert_not_taken(right, sizeof(received), STATUS_DATA_LOSS, "type 77");
    message.header.type = HANDSHAKE_START; /* a type that is there, in the length of another */
    assert_not_taken(right, sizeof(received), STATUS_DATA_LOSS, "type 1");
    message.header.type = HANDSHAKE_FAILED;
    message.header.version = 9;
    assert_not_taken(right, sizeof(received), STATUS_FAILED_PRECONDITION, "version 9");
}

TEST_CASE(test_closed_or_silent)
{
    struct error error = ERROR_NONE;
    int ends[2];
    pair_open(ends);
    assert_int_equal(handshake_receive(ends[1], &received, sizeof(received), &error),
                     STATUS_DEADLINE_EXCEEDED);
    close(ends[0]);
    assert_int_equal(handshake_receive(ends[1], &received, sizeof(received), &error),
                     STATUS_UNAVAILABLE);
    message_begin(HANDSHAKE_FAILED, sizeof(struct handshake_failed));
    assert_int_equal(handshake_send(ends[1], &message, sizeof(struct handshake_failed), &error),
                     STATUS_UNAVAILABLE); /* and no SIGPIPE */
    close(ends[1]);
    int pipe_ends[2]; /* a descriptor that is no socket */
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_not_equal(handshake_receive(pipe_ends[0], &received, sizeof(received), &error),
                         STATUS_OK);
    assert_int_not_equal(
        handshake_send(pipe_ends[1], &message, sizeof(struct handshake_failed), &error), STATUS_OK);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

/* ---- handshake_ready_validate ---- */

static struct handshake_ready *
ready_right(void)
{
    message_begin(HANDSHAKE_READY, sizeof(struct handshake_ready));
    struct handshake_ready *ready = &message.ready;
    ready->abilities = SHOAL_RUNS_BATCHES;
    snprintf(ready->name, sizeof(ready->name), "modelet");
    ready->input_count = 2;
    ready->inputs[0] = (struct handshake_tensor){
        .name = "a", .datatype = SHOAL_FP32, .rank = 2, .shape = {-1, 64}};
    ready->inputs[1] = (struct handshake_tensor){.name = "b", .datatype = SHOAL_BYTES};
    ready->output_count = 1;
    ready->outputs[0] =
        (struct handshake_tensor){.name = "a", .datatype = SHOAL_BF16, .rank = SHOAL_RANK_MAX};
    return ready;
}

static void
assert_refused(const char *text)
{
    struct error error = ERROR_NONE;
    assert_int_equal(handshake_ready_validate(&message.ready, &error), STATUS_INVALID_ARGUMENT);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

TEST_CASE(test_ready_right)
{
    struct error error = ERROR_NONE;
    struct handshake_ready *ready = ready_right();
    assert_int_equal(handshake_ready_validate(ready, &error), STATUS_OK);
    memset(ready->name, 'n', sizeof(ready->name) - 1);
    memset(ready->modelet_version, 'v', sizeof(ready->modelet_version) - 1);
    memset(ready->platform, 'p', sizeof(ready->platform) - 1);
    memset(ready->inputs[0].name, 't', sizeof(ready->inputs[0].name) - 1);
    assert_int_equal(handshake_ready_validate(ready, &error), STATUS_OK);
    /* what lies behind the counts is nobody's business */
    ready->inputs[2].datatype = 1000;
    assert_int_equal(handshake_ready_validate(ready, &error), STATUS_OK);
}

TEST_CASE(test_ready_wrong)
{
    ready_right()->header.type = HANDSHAKE_FAILED;
    assert_refused("type 3");
    ready_right()->header.bytes = 5;
    assert_refused("5 bytes");
    ready_right()->abilities = SHOAL_ABILITIES_ALL + 1;
    assert_refused("abilities");
    ready_right()->name[0] = '\0';
    assert_refused("name");
    memset(ready_right()->name, 'x', HANDSHAKE_NAME_BYTES);
    assert_refused("name");
    memset(ready_right()->modelet_version, 'x', HANDSHAKE_NAME_BYTES);
    assert_refused("version");
    memset(ready_right()->platform, 'x', HANDSHAKE_NAME_BYTES);
    assert_refused("platform");
    ready_right()->input_count = SHOAL_TENSORS_MAX + 1;
    assert_refused("65 inputs");
    ready_right()->output_count = UINT32_MAX;
    assert_refused("outputs");
    ready_right()->inputs[1].name[0] = '\0';
    assert_refused("input 1");
    memset(ready_right()->inputs[1].name, 'x', sizeof(message.ready.inputs[1].name));
    assert_refused("input 1");
    ready_right()->inputs[1].name[0] = 'a';
    assert_refused("\"a\": declared twice");
    ready_right()->inputs[1].datatype = SHOAL_DATATYPE_END;
    assert_refused("\"b\": no such datatype");
    ready_right()->outputs[0].datatype = SHOAL_DATATYPE_END;
    assert_refused("\"a\": no such datatype");
    ready_right()->outputs[0].rank = SHOAL_RANK_MAX + 1;
    assert_refused("rank 9");
    ready_right()->inputs[0].shape[1] = -2;
    assert_refused("dimension 1 is -2");
}

/* ---- models ---- */

static struct handshake_model order;
static struct handshake_model_said said;

static void
order_right(void)
{
    order = (struct handshake_model){
        .header = {HANDSHAKE_VERSION, HANDSHAKE_MODEL, sizeof(order), 0},
        .event = MODEL_LOAD,
        .number = MODEL_NUMBER_MAX,
        .life = 1,
    };
}

static struct handshake_model_said *
said_right(void)
{
    said = (struct handshake_model_said){
        .header = {HANDSHAKE_VERSION, HANDSHAKE_MODEL_SAID, sizeof(said), 0},
        .event = MODEL_LOADED,
        .number = 1,
        .life = UINT32_MAX,
        .input_count = 1,
        .bytes = MODEL_BYTES_MAX,
    };
    said.inputs[0].name[0] = 'x';
    return &said;
}

static void
order_refused(const char *text)
{
    struct error error = ERROR_NONE;
    assert_int_equal(handshake_model_validate(&order, &error), STATUS_INVALID_ARGUMENT);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
    order_right();
}

static void
said_refused(const char *text)
{
    struct error error = ERROR_NONE;
    assert_int_equal(handshake_model_said_validate(&said, &error), STATUS_INVALID_ARGUMENT);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
    said_right();
}

TEST_CASE(test_orders)
{
    struct error error = ERROR_NONE;
    order_right();
    assert_int_equal(handshake_model_validate(&order, &error), STATUS_OK);
    order.header.type = HANDSHAKE_MODEL_SAID;
    order_refused("type 6");
    order.event = 0;
    order_refused("event 0");
    order.event = MODEL_LOADED;
    order_refused("event 4");
    order.number = 0;
    order_refused("number 0");
    order.number = MODEL_NUMBER_MAX + 1;
    order_refused("number 65536");
    order.life = 0;
    order_refused("life 0");
    memset(order.id, 'i', sizeof(order.id));
    order_refused("not terminated");
    memset(order.path, 'p', sizeof(order.path));
    order_refused("not terminated");
    memset(order.key, 'k', sizeof(order.key));
    order_refused("not terminated");
}

TEST_CASE(test_words_of_models)
{
    struct error error = ERROR_NONE;
    assert_int_equal(handshake_model_said_validate(said_right(), &error), STATUS_OK);
    said.event = MODEL_FAILED;
    said.status = STATUS_DATA_LOSS;
    memset(said.text, 't', sizeof(said.text) - 1);
    assert_int_equal(handshake_model_said_validate(&said, &error), STATUS_OK);
    said_right()->header.bytes = 7;
    said_refused("7 bytes");
    said.event = MODEL_PREDICT;
    said_refused("event 3");
    said.event = MODEL_PREDICTED + 1;
    said_refused("event 8");
    said.number = 0;
    said_refused("number 0");
    said.life = 0;
    said_refused("life 0");
    said.bytes++;
    said_refused("a model of");
    said.mapped_bytes = UINT64_MAX;
    said_refused("mapped");
    said.leaked_bytes = UINT64_MAX;
    said_refused("leaked");
    memset(said.platform, 'p', sizeof(said.platform));
    said_refused("not terminated");
    memset(said.text, 't', sizeof(said.text));
    said_refused("not terminated");
    said.event = MODEL_FAILED;
    said_refused("status 0");
    said.event = MODEL_FAILED;
    said.status = SLOT_NOT_HELD;
    said_refused("status 100");
    said.input_count = SHOAL_TENSORS_MAX + 1;
    said_refused("65 inputs");
    said.output_count = 1;
    said_refused("output 0: a name");
    said.inputs[0].datatype = SHOAL_DATATYPE_END;
    said_refused("no such datatype");
}

/* Sends as much of `said` as need be, over something else that was there before. */
static void
assert_said_arrives(uint32_t bytes)
{
    int ends[2];
    struct error error = ERROR_NONE;
    static struct handshake_model_said obtained;
    pair_open(ends);
    memset(&obtained, 0xee, sizeof(obtained));
    said.header.bytes = handshake_model_said_bytes(&said);
    assert_int_equal(said.header.bytes, bytes);
    assert_int_equal(handshake_send(ends[0], &said, bytes, &error), STATUS_OK);
    assert_int_equal(handshake_receive(ends[1], &obtained, sizeof(obtained), &error), STATUS_OK);
    said.header.bytes = sizeof(said);
    assert_memory_equal(&obtained, &said, sizeof(said));
    assert_int_equal(handshake_model_said_validate(&obtained, &error), STATUS_OK);
    close(ends[0]);
    close(ends[1]);
}

TEST_CASE(test_words_of_models_are_cut)
{
    enum {
        LEAST = offsetof(struct handshake_model_said, inputs),
        ONE = sizeof(struct handshake_tensor),
        ALL = sizeof(struct handshake_model_said),
    };
    said_right();
    assert_said_arrives(LEAST + ONE);
    said.output_count = SHOAL_TENSORS_MAX;
    for (uint32_t i = 0; i < SHOAL_TENSORS_MAX; i++)
        snprintf(said.outputs[i].name, sizeof(said.outputs[i].name), "y%u", i);
    assert_said_arrives(ALL);
    said.output_count = 1;
    memset(&said.outputs[1], 0, ALL - offsetof(struct handshake_model_said, outputs) - ONE);
    assert_said_arrives(ALL - (SHOAL_TENSORS_MAX - 1) * ONE);
    said_right()->event = MODEL_UNLOADED;
    said.input_count = 0;
    said.inputs[0].name[0] = '\0';
    assert_said_arrives(LEAST);
    /* less than that, another length than it says, and where there is no room for what was cut */
    message_begin(HANDSHAKE_MODEL_SAID, LEAST - 1);
    assert_not_taken(LEAST - 1, sizeof(received), STATUS_DATA_LOSS, "has");
    message_begin(HANDSHAKE_MODEL_SAID, LEAST + 1);
    assert_not_taken(LEAST, sizeof(received), STATUS_DATA_LOSS, "it says");
    message_begin(HANDSHAKE_MODEL_SAID, LEAST);
    assert_not_taken(LEAST, ALL - 1, STATUS_DATA_LOSS, "room for");
}

/* A coordinator never waits: a worker that does not read is found out. */
TEST_CASE(test_no_room)
{
    struct error error = ERROR_NONE;
    int ends[2];
    pair_open(ends);
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    order_right();
    uint32_t sent = 0;
    while (sent < 1000 && handshake_send(ends[0], &order, sizeof(order), &error) == STATUS_OK)
        sent++;
    assert_int_equal(error.status, STATUS_DEADLINE_EXCEEDED);
    assert_true(sent >= 4);
    close(ends[0]);
    close(ends[1]);
}

TEST_MAIN()
