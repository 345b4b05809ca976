/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a call with any number of messages each way reaches another node and comes back as it
 * was sent, with any lengths, in order; that a sender beyond its window is cut off, and one within
 * it never waits forever; that a flow which is cancelled, or whose node goes, ends once on both
 * sides, and is not to be repeated.
 *
 * The house echoes each message on its server's thread. The caller sends on the thread of its
 * queue, within what it is told there, as a flow's owner must.
 *
 * ctest: timeout=120 presets=dev,tsan because flows cross three threads
 */
#include "test_peer_rig.h"

#include "mesh/edge/peer_flow.h"
#include "mesh/edge/peer_wire.h"

/* ---- the house's end ---- */

struct echo {
    struct peer_request *request;
    uint32_t number;
};

static struct echo echo; /* one at a time; of the server's thread */
static bool echo_takes;  /* else messages are never taken */

static void
echo_part(const struct rpc_piece *pieces, size_t piece_count)
{
    static const struct rpc_piece nothing[1];
    const struct rpc_metadata initial = {span_of("x-initial"), span_of("1")};
    const struct rpc_answer part = {.pieces = piece_count == 0 ? nothing : pieces,
                                    .piece_count = piece_count,
                                    .initial = &initial,
                                    .initial_count = 1};
    peer_flow_part(echo.request->flow, &part);
}

static void
echo_end(enum status status)
{
    struct peer_request *request = echo.request;
    const struct rpc_metadata trailer = {span_of("x-last"), span_of("22")};
    const struct rpc_answer answer = {
        .status = status, .text = span_of("said"), .trailers = &trailer, .trailer_count = 1};
    static const struct runner_end end = {.end = MESH_END_OK};
    request->type->on_ended(request, echo.number, &end, &answer);
    request->type->release(request);
    echo.request = NULL;
}

static enum status
echo_send(void *context, const struct rpc_piece *pieces, size_t piece_count,
          enum peer_flow_next next, struct error *error)
{
    (void)context;
    (void)error;
    if (pieces != NULL && echo_takes)
        echo_part(pieces, piece_count);
    if (next == PEER_FLOW_LAST)
        echo_end(STATUS_ABORTED);
    return STATUS_OK;
}

/* Each consumed part of the answer makes room for as much of the request. */
static void
echo_taken(void *context, uint64_t cost)
{
    (void)context;
    echo.request->type->on_room(echo.request, cost);
}

static const struct peer_flow_sink echo_sink = {echo_send, echo_taken, PEER_FLOW_WINDOW_BYTES};

static void
echo_serve(struct peer_request *request, uint32_t number)
{
    bool closed;
    echo = (struct echo){request, number};
    CHECK(peer_flow_shape(request->flow) == PEER_FLOW_OPEN);
    CHECK(peer_flow_attach(request->flow, PEER_FLOW_OPEN, &echo_sink, NULL, &closed) == NULL &&
          !closed);
}

static void
echo_cancel(struct peer_request *request)
{
    CHECK(request == echo.request);
    echo_end(STATUS_CANCELLED);
}

/* ---- the caller's end ---- */

struct talk {
    struct ask *ask;
    struct peer_flow flow;
    const size_t *lengths; /* sent in turn, again and again */
    unsigned length_count;
    unsigned sent;
    unsigned sent_max; /* then the last */
    bool is_last_sent;
    bool is_reckless; /* does not wait for room */
    uint64_t out;
    /* Under the rig's lock. */
    unsigned parts;
    unsigned wrong;
    bool has_initial;
};

static struct talk *talking;

static size_t
length_of(const struct talk *talk, unsigned index)
{
    return talk->lengths[index % talk->length_count];
}

static void
talk_send(struct talk *talk)
{
    struct error error = ERROR_NONE;
    while (talk->sent < talk->sent_max &&
           (talk->out < PEER_FLOW_WINDOW_BYTES || talk->is_reckless)) {
        size_t bytes = length_of(talk, talk->sent++);
        struct rpc_piece piece = {.kept = talk->ask->kept, .bytes = bytes};
        talk->out += peer_flow_cost(bytes);
        CHECK(peer_flow_send(&talk->flow, &piece, 1, PEER_FLOW_MORE, &error) == STATUS_OK);
    }
    if (talk->sent == talk->sent_max && !talk->is_last_sent) {
        talk->is_last_sent = true;
        CHECK(peer_flow_send(&talk->flow, NULL, 0, PEER_FLOW_LAST, &error) == STATUS_OK);
    }
}

static void
talk_on_part(struct peer_request *request, const struct rpc_answer *part)
{
    struct talk *talk = talking;
    size_t bytes = (size_t)peer_pieces_bytes(part->pieces, part->piece_count);
    struct ask come = {.answer = NULL};
    ask_take_message(&come, part);
    pthread_mutex_lock(&rig_lock);
    unsigned index = talk->parts++;
    talk->has_initial = talk->has_initial || part->initial_count == 1;
    talk->wrong += part->pieces == NULL || bytes != length_of(talk, index) ||
                   come.answer_bytes != bytes ||
                   (bytes > 0 && memcmp(come.answer, talk->ask->message, bytes) != 0);
    pthread_cond_broadcast(&rig_changed);
    pthread_mutex_unlock(&rig_lock);
    free(come.answer);
    peer_flow_taken(request->flow, peer_flow_cost(bytes));
}

static void
talk_on_room(struct peer_request *request, uint64_t cost)
{
    (void)request;
    CHECK(cost <= talking->out);
    talking->out -= cost;
    talk_send(talking);
}

static void
talk_on_ended(struct peer_request *request, uint32_t number, const struct runner_end *end,
              const struct rpc_answer *answer)
{
    struct peer_flow_end as_reported;
    peer_flow_detach(request->flow, end, answer, &as_reported);
    ask_ended(request, number, &as_reported.end, as_reported.answer);
}

static const struct peer_request_type talk_type = {
    .on_ended = talk_on_ended,
    .hold = ask_hold,
    .release = ask_release,
    .on_part = talk_on_part,
    .on_room = talk_on_room,
};

/* The first messages wait in the flow for the try; the others are sent as room is made. */
static void
talk_begin(struct talk *talk, struct caller *caller, const size_t *lengths, unsigned length_count)
{
    talk->lengths = lengths;
    talk->length_count = length_count;
    talk->ask = ask_create("/t.T/Flow", LARGE_BYTES);
    talk->ask->request.type = &talk_type;
    talk->ask->request.piece_count = 1;
    talk->ask->piece.bytes = 5; /* the first message */
    peer_flow_init(&talk->flow, &talk->ask->request, PEER_FLOW_WINDOW_BYTES);
    talking = talk;
    talk_send(talk);
    assert_int_equal(ask_send(caller, talk->ask), RUNNER_UNDER_WAY);
}

static void
talk_end(struct talk *talk)
{
    RIG_WAIT(talk->ask->held == 0);
    peer_flow_fini(&talk->flow);
    ask_free(talk->ask);
    assert_int_equal(talk->wrong, 0);
}

/* ---- tests ---- */

static const size_t lengths[] = {
    3,    0,           1,  PEER_PART_BYTES_MAX - 1, 17, PEER_PART_BYTES_MAX,
    2000, LARGE_BYTES, 70, PEER_PART_BYTES_MAX + 1, 0};

static struct house *house;
static struct caller *caller;

static int
set_up(void **state)
{
    (void)state;
    rig_flow_serve = echo_serve;
    rig_flow_cancel = echo_cancel;
    echo_takes = true;
    house = house_open();
    caller = caller_open(house->address);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    caller_close(caller);
    house_close(house);
    return 0;
}

TEST_CASE(test_there_and_back)
{
    static const unsigned counts[] = {1, 2, 44};
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++) {
        struct talk talk = {.sent_max = counts[i]};
        talk_begin(&talk, caller, lengths, ARRAY_COUNT(lengths));
        RIG_WAIT(talk.ask->ended == 1);
        assert_int_equal(talk.ask->end.end, MESH_END_OK);
        assert_int_equal(talk.ask->status, STATUS_ABORTED);
        assert_string_equal(talk.ask->text, "said");
        assert_string_equal(talk.ask->trailer, "x-last=2");
        assert_int_equal(talk.parts, counts[i]);
        assert_true(talk.has_initial);
        talk_end(&talk);
    }
}

/* Small ones: their price is what bounds them. */
TEST_CASE(test_many_small)
{
    struct talk talk = {.sent_max = 1000};
    talk_begin(&talk, caller, lengths, 1);
    RIG_WAIT(talk.ask->ended == 1);
    assert_int_equal(talk.parts, 1000);
    talk_end(&talk);
}

static void
check_cut_off(struct talk *talk)
{
    RIG_WAIT(talk->ask->ended == 1);
    assert_int_equal(talk->ask->end.end, MESH_END_UNREACHABLE);
    assert_true(talk->ask->end.is_answered); /* it is not to be tried again */
    assert_int_equal(talk->ask->status, STATUS_UNAVAILABLE);
    assert_string_equal(talk->ask->text,
                        "the stream was cut off: the serving node or runtime was lost");
}

TEST_CASE(test_beyond_the_window)
{
    struct talk talk = {.sent_max = 1000, .is_reckless = true};
    echo_takes = false;
    talk_begin(&talk, caller, lengths, 1);
    check_cut_off(&talk);
    RIG_WAIT(house->cancelled == 1);
    talk_end(&talk);
}

TEST_CASE(test_cancelled)
{
    struct talk talk = {.sent_max = UINT32_MAX};
    talk_begin(&talk, caller, lengths, ARRAY_COUNT(lengths));
    RIG_WAIT(talk.parts >= 20);
    if (!caller->to.abandon(caller->to.context, &talk.ask->call, 7))
        fail_msg("it has ended");
    RIG_WAIT(house->cancelled == 1);
    talk_end(&talk);
}

TEST_CASE(test_the_node_goes)
{
    struct talk talk = {.sent_max = UINT32_MAX};
    talk_begin(&talk, caller, lengths, ARRAY_COUNT(lengths));
    RIG_WAIT(talk.parts >= 20);
    house_stop(house);
    check_cut_off(&talk);
    assert_int_equal(house->cancelled, 1);
    talk_end(&talk);
}

TEST_MAIN(.setup = set_up, .teardown = tear_down, .group_setup = rig_group_setup,
          .group_teardown = rig_group_teardown)
