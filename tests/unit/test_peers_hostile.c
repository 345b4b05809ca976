/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that frames that make no sense end the stream they came on, and nothing else: of a node
 * that calls, and of one that is called, in messages of their own and behind others in one.
 *
 * ctest: timeout=180 presets=dev,tsan because streams end on other threads
 */
#include "test_peer_rig.h"

#include "mesh/edge/peer_link.h"
#include "mesh/edge/peer_wire.h"

enum { NUMBER_FIRST = 1 << 14, ROOM = 2 * PEER_HEAD_BYTES_MAX };

/* ---- senseless callers ---- */

struct hostile {
    struct rpc_client *client;
    unsigned ended;
    enum status status;
};

static void
hostile_message(void *context, const struct wire_message *message)
{
    (void)context;
    (void)message;
}

static void
hostile_end(void *context, const struct rpc_client_end *end)
{
    struct hostile *hostile = context;
    pthread_mutex_lock(&rig_lock);
    hostile->status = end->status;
    hostile->ended++;
    pthread_cond_broadcast(&rig_changed);
    pthread_mutex_unlock(&rig_lock);
}

static const struct rpc_client_events hostile_events = {.on_message = hostile_message,
                                                        .on_end = hostile_end};

static const char *hostile_to = "b";
static enum peer_flow_shape hostile_shape = PEER_FLOW_UNARY;

static size_t
hostile_frame(enum peer_kind kind, uint32_t number, unsigned char *head)
{
    static struct peer_frame frame;
    memset(&frame, 0, sizeof(frame));
    frame.kind = kind;
    if (kind == PEER_HELLO) {
        frame.hello = (struct peer_hello){PEER_VERSION, "x", hostile_to, 1, false, 0};
    } else if (kind == PEER_CALL) {
        frame.call.number = number;
        frame.call.method = "/t.T/Hold";
        frame.call.model = "m";
        frame.call.hop = MESH_HOP_LOAD;
        frame.call.shape = hostile_shape;
    } else if (kind == PEER_MESSAGE) {
        frame.message.number = number;
        bool may_follow = hostile_shape == PEER_FLOW_OPEN || hostile_shape == PEER_FLOW_AWAITED;
        frame.message.has_message = !may_follow; /* or nothing, and not the end */
    } else if (kind == PEER_CREDIT) {
        frame.credit = (struct peer_credit){number, 1};
    } else {
        frame.about.number = number;
    }
    return peer_frame_write(&frame, head);
}

/* Kind 0: none, but other bytes. */
static size_t
hostile_body(enum peer_kind kind, unsigned char *head)
{
    if (kind != 0)
        return hostile_frame(kind, 1 << 14, head);
    memcpy(head, "\x0f\xff", 2);
    return 2;
}

enum how { ALONE, TOGETHER };

/* A stream of two frames after its hello, in a message each or in one, ends with that status. */
static void
check_ends(struct caller *caller, const char *address, enum peer_kind first, enum peer_kind second,
           enum status status, enum how how)
{
    unsigned char head[PEER_HEAD_BYTES_MAX];
    struct hostile hostile = {.ended = 0};
    struct rpc_client_call *call;
    struct error error = ERROR_NONE;
    struct rpc_client_options options = {.queue = caller->stepper.queue, .target = address};
    assert_int_equal(rpc_client_create(&options, &hostile.client, &error), STATUS_OK);
    struct rpc_piece hello = {.data = head, .bytes = hostile_frame(PEER_HELLO, 0, head)};
    struct rpc_client_request request = {.method = PEER_METHOD,
                                         .kind = RPC_BIDI_STREAM,
                                         .deadline_ns = TIME_NEVER_NS,
                                         .pieces = &hello,
                                         .piece_count = 1,
                                         .events = &hostile_events,
                                         .context = &hostile};
    rpc_client_start(hostile.client, &request, &call);
    enum peer_kind kinds[] = {first, second};
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        struct rpc_piece piece = {.data = head, .bytes = hostile_body(kinds[i], head + bytes)};
        if (how == TOGETHER)
            bytes += piece.bytes;
        else if (rpc_client_send(call, &piece, 1) != STATUS_OK)
            break; /* it has ended already */
    }
    if (how == TOGETHER)
        (void)!rpc_client_send(call, &(struct rpc_piece){.data = head, .bytes = bytes}, 1);
    RIG_WAIT(hostile.ended == 1);
    assert_int_equal(hostile.status, status);
    rpc_client_release(call);
    rpc_client_destroy(hostile.client);
}

static void
check_refused(struct caller *caller, const char *address, enum peer_kind first,
              enum peer_kind second)
{
    check_ends(caller, address, first, second, STATUS_INVALID_ARGUMENT, ALONE);
    check_ends(caller, address, first, second, STATUS_INVALID_ARGUMENT, TOGETHER);
}

TEST_CASE(test_refused)
{
    struct house *house = house_open();
    struct caller *caller = caller_open(house->address);
    struct ask *held = ask_create("/t.T/Hold", 10);
    ask_send(caller, held);
    RIG_WAIT(house->held == 1);
    check_refused(caller, house->address, PEER_HELLO, PEER_CANCEL);
    check_refused(caller, house->address, PEER_ANSWER, PEER_CANCEL);
    check_refused(caller, house->address, PEER_CALL, PEER_CALL); /* the same number twice */
    check_refused(caller, house->address, PEER_CALL, PEER_PART); /* more than was said */
    check_refused(caller, house->address, PEER_CALL, 0);         /* no frame */
    for (int shape = PEER_FLOW_UNARY; shape <= PEER_FLOW_AWAITED; shape++) {
        hostile_shape = (enum peer_flow_shape)shape;
        check_refused(caller, house->address, PEER_CALL, PEER_MESSAGE);
        check_refused(caller, house->address, PEER_CALL, PEER_CREDIT); /* for nothing */
        check_refused(caller, house->address, PEER_CALL, PEER_PART);
    }
    hostile_to = "c";
    check_ends(caller, house->address, PEER_CANCEL, PEER_CANCEL, STATUS_FAILED_PRECONDITION, ALONE);
    hostile_to = "b";
    pthread_mutex_lock(&rig_lock);
    house->releases_first = true;
    pthread_cond_broadcast(&rig_changed);
    pthread_mutex_unlock(&rig_lock);
    RIG_WAIT(held->ended == 1); /* others do not notice */
    assert_int_equal(held->end.end, MESH_END_OK);
    assert_int_equal(held->answer_bytes, 10);
    ask_free(held);
    caller_close(caller);
    house_close(house);
}

/* ---- senseless servers ---- */

/* Adds a frame, with a payload of so many bytes 'x', to a message that has `at` bytes. */
static size_t
add(unsigned char *message, size_t at, struct peer_frame *frame, size_t payload_bytes)
{
    frame->payload_bytes = payload_bytes;
    size_t bytes = peer_frame_write(frame, message + at);
    assert_true(bytes > 0 && at + bytes + payload_bytes <= ROOM);
    memset(message + at + bytes, 'x', payload_bytes);
    return at + bytes + payload_bytes;
}

static size_t
add_answer(unsigned char *message, size_t at, uint32_t number, size_t payload_bytes,
           size_t message_bytes)
{
    static struct peer_frame frame;
    memset(&frame, 0, sizeof(frame));
    frame.kind = PEER_ANSWER;
    frame.answer.number = number;
    frame.answer.has_message = true;
    frame.answer.message_bytes = message_bytes;
    frame.answer.text = span_of("said");
    frame.answer.trailing_count = 1;
    frame.answer.trailing[0] = (struct rpc_metadata){span_of("t-bin"), {"\0\1", 2}};
    return add(message, at, &frame, payload_bytes);
}

static size_t
add_about(unsigned char *message, size_t at, enum peer_kind kind, uint32_t number,
          size_t payload_bytes)
{
    static struct peer_frame frame;
    memset(&frame, 0, sizeof(frame));
    frame.kind = kind;
    frame.about.number = number;
    if (kind == PEER_MESSAGE)
        frame.message = (struct peer_message){.number = number, .has_message = true};
    else if (kind == PEER_CREDIT)
        frame.credit = (struct peer_credit){number, 1};
    else if (kind == PEER_HELLO)
        frame.hello = (struct peer_hello){PEER_VERSION, "b", "a", 1, false, 0};
    return add(message, at, &frame, payload_bytes);
}

/* The answer to a call. Behind each that makes no sense comes an answer that would, in the
 * same message: it is not listened to. */
enum saying {
    IN_PARTS, /* makes sense: one whose first part lies behind another frame */
    TOO_MUCH,
    BEGUN_TWICE,
    PART_OF_NOTHING,
    PART_WITHOUT_BYTES,
    PART_TOO_LARGE,
    MESSAGE_OF_NO_FLOW,
    CREDIT_OF_NO_FLOW,
    HELLO_TWICE,
    CALL,
    GARBAGE,
    SAYINGS,
};

static size_t
say(enum saying what, uint32_t number, unsigned char *message)
{
    size_t at = 0;
    switch (what) {
    case IN_PARTS:
        at = add_about(message, at, PEER_CREDIT, number + NUMBER_FIRST, 0); /* of no call */
        at = add_answer(message, at, number, 100, 300);
        at = add_about(message, at, PEER_PART, number, 150);
        return add_about(message, at, PEER_PART, number, 50);
    case TOO_MUCH: at = add_answer(message, at, number, 11, 10); break;
    case BEGUN_TWICE:
        at = add_answer(message, at, number, 1, 10);
        at = add_answer(message, at, number, 1, 10);
        break;
    case PART_OF_NOTHING: at = add_about(message, at, PEER_PART, number, 1); break;
    case PART_WITHOUT_BYTES:
        at = add_answer(message, at, number, 1, 10);
        at = add_about(message, at, PEER_PART, number, 0);
        break;
    case PART_TOO_LARGE:
        at = add_answer(message, at, number, 1, 10);
        at = add_about(message, at, PEER_PART, number, 10);
        break;
    case MESSAGE_OF_NO_FLOW: at = add_about(message, at, PEER_MESSAGE, number, 0); break;
    case CREDIT_OF_NO_FLOW: at = add_about(message, at, PEER_CREDIT, number, 0); break;
    case HELLO_TWICE: at = add_about(message, at, PEER_HELLO, 0, 0); break;
    case CALL: at = add_about(message, at, PEER_CANCEL, number, 0); break;
    case GARBAGE:
    case SAYINGS: memcpy(message, "\x0f\xff", at = 2); break;
    }
    return add_answer(message, at, number, 10, 10);
}

/* Node "b", as its port shows it. */
struct liar {
    struct rpc_server *server;
    pthread_t thread;
    char address[64];
    enum saying saying;
    struct rpc_call *call; /* its thread's; NULL: none, or it has ended */
};

static void
liar_send(struct rpc_call *call, const unsigned char *message, size_t bytes)
{
    (void)!rpc_call_send(call, &(struct rpc_piece){.data = message, .bytes = bytes}, 1);
}

static void
liar_message(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct liar *liar = context;
    static struct peer_frame frame;
    static char texts[PEER_HEAD_BYTES_MAX];
    static unsigned char said[ROOM];
    struct wire_cursor cursor = wire_begin(message);
    struct error error = ERROR_NONE;
    liar->call = call;
    while (cursor.left > 0) {
        CHECK(peer_frame_open(message, &cursor, &frame, &error) == STATUS_OK &&
              peer_frame_read(&frame, texts, &error) == STATUS_OK);
        if (frame.kind == PEER_HELLO)
            liar_send(call, said, add_about(said, 0, PEER_HELLO, 0, 0));
        else if (frame.kind == PEER_CALL)
            liar_send(call, said, say(liar->saying, frame.call.number, said));
    }
}

static void
liar_end(struct liar *liar)
{
    if (liar->call != NULL)
        rpc_call_finish(liar->call, STATUS_OK, NULL);
    liar->call = NULL;
}

static void
liar_half_close(void *context, struct rpc_call *call)
{
    (void)call;
    liar_end(context);
}

static void
liar_cancel(void *context, uint64_t tag)
{
    (void)tag;
    liar_end(context);
}

static void *
liar_main(void *context)
{
    struct liar *liar = context;
    while (rpc_server_step(liar->server, 0, TIME_NEVER_NS) >= 0)
        continue;
    return NULL;
}

static void
liar_open(struct liar *liar, enum saying saying)
{
    static const struct rpc_method methods[] = {{.path = PEER_METHOD,
                                                 .kind = RPC_BIDI_STREAM,
                                                 .on_message = liar_message,
                                                 .on_half_close = liar_half_close,
                                                 .on_cancel = liar_cancel}};
    const char *listen[] = {"127.0.0.1:0"};
    struct rpc_server_options options = {.listen = listen,
                                         .listen_count = 1,
                                         .queue_count = 1,
                                         .armed_calls = 1,
                                         .armed_calls_other = 1,
                                         .methods = methods,
                                         .method_count = 1,
                                         .context = liar};
    struct error error = ERROR_NONE;
    *liar = (struct liar){.saying = saying};
    assert_int_equal(rpc_server_create(&options, &liar->server, &error), STATUS_OK);
    snprintf(liar->address, sizeof(liar->address), "127.0.0.1:%d",
             rpc_server_port(liar->server, 0));
    assert_int_equal(pthread_create(&liar->thread, NULL, liar_main, liar), 0);
}

static void
liar_close(struct liar *liar)
{
    rpc_server_stop(liar->server);
    rpc_server_cancel_all(liar->server);
    pthread_join(liar->thread, NULL);
    rpc_server_destroy(liar->server);
}

TEST_CASE(test_answers)
{
    for (int saying = 0; saying < SAYINGS; saying++) {
        struct liar liar;
        liar_open(&liar, (enum saying)saying);
        struct caller *caller = caller_open(liar.address);
        struct ask *ask = ask_create("/t.T/Echo", 10);
        assert_int_equal(ask_send(caller, ask), RUNNER_UNDER_WAY);
        RIG_WAIT(ask->ended == 1);
        if (saying == IN_PARTS) {
            assert_int_equal(ask->end.end, MESH_END_OK);
            assert_int_equal(ask->answer_bytes, 300);
            assert_string_equal(ask->text, "said");
            assert_string_equal(ask->trailer, "t-bin=2");
            for (size_t i = 0; i < 300; i++)
                assert_int_equal(ask->answer[i], 'x');
        } else if (ask->end.end != MESH_END_UNREACHABLE) {
            fail_msg("saying %d was believed", saying);
        }
        ask_free(ask);
        caller_close(caller);
        liar_close(&liar);
    }
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
