/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what a stream between nodes sends, and when: whole frames in their order, those that wait
 * together, parts of large messages in turn, a part only when the transport has taken the last
 * ones, small frames not behind a large message; that what is dropped is not sent; that a window
 * bounds what waits; and that each lent piece is given back once in every case. The
 * transport is the test.
 */
#include <stdlib.h>
#include <string.h>

#include "../random.h"
#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "mesh/edge/peer_pipe.h"
#include "mesh/edge/peer_wire.h"
#include "rpc/rpc.h"

enum { SENT_MAX = 4096, ROUNDS = 300 };

/* A frame that was sent. */
struct sent {
    enum peer_kind kind;
    uint32_t number;
    uint64_t payload_bytes;
    unsigned char first; /* of the payload */
    unsigned message;    /* the how manieth it lay in */
};

static struct sent sent[SENT_MAX];
static unsigned sent_count;
static unsigned message_count;
static bool breaks; /* the transport refuses what comes */
static unsigned lent, given_back;
static char texts[PEER_HEAD_BYTES_MAX];

static void
give_back(void *context)
{
    given_back++;
    free(context);
}

static void
note(const unsigned char *bytes, size_t count)
{
    static struct peer_frame frame;
    struct error error = ERROR_NONE;
    struct wire_span span = {bytes, count};
    struct wire_message message = {&span, 1, count};
    struct wire_cursor cursor = wire_begin(&message);
    unsigned frames = 0;
    assert_true(count <= PEER_MESSAGE_BYTES_MAX);
    for (; cursor.left > 0; frames++) {
        uint64_t offset = message.bytes - cursor.left;
        assert_int_equal(peer_frame_open(&message, &cursor, &frame, &error), STATUS_OK);
        assert_int_equal(peer_frame_read(&frame, texts, &error), STATUS_OK);
        assert_int_equal(frame.offset, offset);
        assert_int_equal(peer_frame_at(&message, offset).left, count - offset);
        assert_true(sent_count < SENT_MAX);
        sent[sent_count++] = (struct sent){
            .kind = frame.kind,
            .number = frame.kind == PEER_ANSWER ? frame.answer.number : frame.about.number,
            .payload_bytes = frame.payload_bytes,
            .first = frame.payload_bytes > 0 ? bytes[frame.payload_offset] : 0,
            .message = message_count,
        };
    }
    assert_true(frames == 1 || (frames > 1 && count <= PEER_PIPE_TOGETHER_BYTES));
    message_count++;
}

/* rpc_call_send, by its contract. */
static enum status
transport(void *stream, const struct rpc_piece *pieces, size_t piece_count)
{
    (void)stream;
    static unsigned char all[2 * PEER_PART_BYTES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < piece_count; i++) {
        const unsigned char *data = pieces[i].data;
        if (pieces[i].kept != NULL) {
            const struct wire_message *message = rpc_kept_message(pieces[i].kept);
            assert_true(message->span_count <= 1);
            assert_true(pieces[i].offset + pieces[i].bytes <= message->bytes);
            data = (const unsigned char *)message->spans[0].data + pieces[i].offset;
        }
        assert_true(count + pieces[i].bytes <= sizeof(all));
        if (pieces[i].bytes > 0)
            memcpy(all + count, data, pieces[i].bytes);
        count += pieces[i].bytes;
        if (pieces[i].kept == NULL && pieces[i].release != NULL)
            pieces[i].release(pieces[i].release_context);
    }
    if (breaks)
        return STATUS_CANCELLED;
    note(all, count);
    return STATUS_OK;
}

static struct peer_pipe pipe_;

static int
set_up(void **state)
{
    (void)state;
    sent_count = message_count = lent = given_back = 0;
    breaks = false;
    peer_pipe_init(&pipe_, transport, NULL, 64 << 20);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    peer_pipe_fini(&pipe_);
    assert_int_equal(given_back, lent);
    return 0;
}

static struct rpc_piece
lend(size_t bytes, unsigned char filled)
{
    unsigned char *memory = malloc(bytes + 1);
    assert_non_null(memory);
    memset(memory, filled, bytes);
    lent++;
    return (struct rpc_piece){
        .data = memory, .bytes = bytes, .release = give_back, .release_context = memory};
}

/* An answer of one lent piece. */
static enum status
put(uint32_t number, size_t bytes)
{
    static struct peer_frame frame;
    memset(&frame, 0, sizeof(frame));
    frame.kind = PEER_ANSWER;
    frame.answer.number = number;
    frame.answer.message_bytes = bytes;
    struct rpc_piece piece = lend(bytes, (unsigned char)number);
    return peer_pipe_put(&pipe_, &frame, &piece, 1, bytes);
}

static void
check_sent(unsigned index, enum peer_kind kind, uint32_t number, uint64_t bytes)
{
    assert_true(index < sent_count);
    assert_int_equal(sent[index].kind, kind);
    assert_int_equal(sent[index].number, number);
    assert_int_equal(sent[index].payload_bytes, bytes);
    if (bytes > 0)
        assert_int_equal(sent[index].first, (unsigned char)number);
}

/* The transport takes all that it has now but so many. */
static void
take_all_but(uint32_t left)
{
    for (uint32_t count = pipe_.out; count > left; count--)
        peer_pipe_on_sent(&pipe_);
}

/* With anything queued meanwhile. */
static void
take_all(void)
{
    while (pipe_.out > 0)
        peer_pipe_on_sent(&pipe_);
}

TEST_CASE(test_at_once_and_in_order)
{
    for (uint32_t i = 1; i <= PEER_PIPE_OUT_MAX + 5; i++)
        assert_int_equal(put(i, 100), STATUS_OK);
    assert_int_equal(sent_count, PEER_PIPE_OUT_MAX); /* the transport has room for no more */
    take_all_but(PEER_PIPE_OUT_MAX - 1);
    assert_int_equal(sent_count, PEER_PIPE_OUT_MAX + 5); /* all that waited */
    assert_int_equal(message_count, PEER_PIPE_OUT_MAX + 1);
    for (uint32_t i = 1; i <= sent_count; i++)
        check_sent(i - 1, PEER_ANSWER, i, 100);
    assert_int_equal(pipe_.bytes, 0);
}

/* As many as fit; one that is larger alone. Copied memory may be reused at once; other memory is
 * given back when it was sent. */
TEST_CASE(test_together)
{
    static const struct {
        size_t bytes;
        unsigned message;
    } cases[] = {
        {PEER_PIPE_COPIED_BYTES, 0},
        {PEER_PIPE_COPIED_BYTES + 1, 0},
        {6000, 0},
        {0, 0},
        {PEER_PIPE_TOGETHER_BYTES, 1},
        {100, 2},
        {PEER_PART_BYTES_MAX, 3},
        {10, 4},
        {PEER_PIPE_TOGETHER_BYTES / 2, 4},
        {PEER_PIPE_TOGETHER_BYTES / 2, 5},
    };
    while (pipe_.out < PEER_PIPE_OUT_MAX)
        put(1000, 10);
    unsigned begun = sent_count;
    for (uint32_t i = 0; i < ARRAY_COUNT(cases); i++)
        assert_int_equal(put(i, cases[i].bytes), STATUS_OK);
    assert_int_equal(given_back, begun + 4); /* the small ones were copied */
    for (uint32_t i = 0; i < ARRAY_COUNT(cases); i++) {
        while (sent_count == begun + i)
            peer_pipe_on_sent(&pipe_);
        check_sent(begun + i, PEER_ANSWER, i, cases[i].bytes);
        assert_int_equal(sent[begun + i].message, begun + cases[i].message);
    }
}

TEST_CASE(test_parts_in_turn)
{
    const uint64_t part = PEER_PART_BYTES_MAX;
    assert_int_equal(put(1, 7 * part), STATUS_OK);
    assert_int_equal(put(2, 6 * part + 7), STATUS_OK);
    take_all();
    assert_int_equal(sent_count, 14);
    check_sent(0, PEER_ANSWER, 1, part);
    check_sent(1, PEER_PART, 1, part); /* while it was alone */
    check_sent(2, PEER_ANSWER, 2, part);
    for (uint32_t i = 3; i < 13; i++)
        check_sent(i, PEER_PART, i % 2 == 1 ? 1 : 2, part);
    check_sent(13, PEER_PART, 2, 7);
}

/* A frame that comes behind a large message goes before all but what the transport has of it. */
TEST_CASE(test_small_overtakes_large)
{
    put(1, 64 * (uint64_t)PEER_PART_BYTES_MAX);
    unsigned before = sent_count;
    assert_int_equal(before, PEER_PIPE_OUT_MAX);
    put(2, 10);
    peer_pipe_on_sent(&pipe_);
    check_sent(before, PEER_ANSWER, 2, 10);
}

/* And the other way round: many small frames do not keep a large message from getting on. */
TEST_CASE(test_large_is_not_starved)
{
    put(1, 4 * (uint64_t)PEER_PART_BYTES_MAX);
    uint32_t number = 2;
    for (unsigned turn = 0; turn < 200; turn++) {
        put(number++, 10);
        put(number++, 10);
        put(number++, 10);
        take_all_but(PEER_PIPE_OUT_MAX - 1); /* it is never empty */
        assert_int_equal(pipe_.out, PEER_PIPE_OUT_MAX);
    }
    unsigned parts = 0;
    for (unsigned i = 0; i < sent_count; i++)
        parts += sent[i].number == 1;
    assert_int_equal(parts, 4);
}

TEST_CASE(test_dropped)
{
    put(1, 4 * (uint64_t)PEER_PART_BYTES_MAX); /* on its way */
    for (uint32_t i = 2; pipe_.out < PEER_PIPE_OUT_MAX; i++)
        put(i, 10);
    put(1000, 2 * (uint64_t)PEER_PART_BYTES_MAX); /* not begun */
    put(1001, 10);
    unsigned before = sent_count;
    peer_pipe_drop(&pipe_, 1);
    peer_pipe_drop(&pipe_, 1000);
    peer_pipe_drop(&pipe_, 4711);
    put(1002, 2 * (uint64_t)PEER_PART_BYTES_MAX); /* the last in its list */
    peer_pipe_drop(&pipe_, 1002);
    put(1003, 10);
    take_all();
    assert_int_equal(sent_count, before + 2);
    check_sent(before++, PEER_ANSWER, 1001, 10);
    check_sent(before, PEER_ANSWER, 1003, 10);
    assert_int_equal(pipe_.bytes, 0);
    put(5000, 10);
    put(5001, 2 * (uint64_t)PEER_PART_BYTES_MAX);
    check_sent(before + 1, PEER_ANSWER, 5000, 10);
    check_sent(before + 2, PEER_ANSWER, 5001, PEER_PART_BYTES_MAX);
}

/* A message of a flow, and all later frames of that call, behind its former ones in parts. */
static void
put_behind(uint32_t number, enum peer_kind kind, size_t bytes)
{
    static struct peer_frame frame;
    memset(&frame, 0, sizeof(frame));
    frame.kind = kind;
    if (kind == PEER_ANSWER)
        frame.answer.number = number;
    else
        frame.message.number = number;
    struct rpc_piece piece = lend(bytes, (unsigned char)number);
    assert_int_equal(peer_pipe_put_behind(&pipe_, &frame, &piece, 1, bytes), STATUS_OK);
}

TEST_CASE(test_flows_keep_their_order)
{
    const uint64_t part = PEER_PART_BYTES_MAX;
    pipe_.window = 1; /* is not theirs */
    put_behind(1, PEER_MESSAGE, 3 * part);
    put_behind(1, PEER_MESSAGE, 10);
    put_behind(1, PEER_MESSAGE, 2 * part);
    put_behind(1, PEER_MESSAGE, 20);
    put_behind(1, PEER_ANSWER, 0);
    put_behind(2, PEER_MESSAGE, 30); /* another call's: it waits for nobody */
    peer_pipe_on_sent(&pipe_);
    check_sent(2, PEER_MESSAGE, 2, 30);
    take_all();
    assert_int_equal(sent_count, 9);
    check_sent(3, PEER_PART, 1, part);
    check_sent(4, PEER_MESSAGE, 1, 10);
    check_sent(5, PEER_MESSAGE, 1, part);
    check_sent(6, PEER_PART, 1, part);
    check_sent(7, PEER_MESSAGE, 1, 20);
    check_sent(8, PEER_ANSWER, 1, 0);
    assert_int_equal(pipe_.bytes, 0);
}

/* With all that is behind it. */
TEST_CASE(test_a_flow_is_dropped)
{
    const uint64_t part = PEER_PART_BYTES_MAX;
    for (uint32_t number = 1; number <= 2; number++) {
        put_behind(number, PEER_MESSAGE, 6 * part);
        put_behind(number, PEER_MESSAGE, 2 * part);
        put_behind(number, PEER_MESSAGE, 10);
    }
    peer_pipe_drop(&pipe_, 1);
    unsigned before = sent_count;
    take_all();
    for (unsigned i = before; i < sent_count; i++)
        assert_int_equal(sent[i].number, 2);
    assert_int_equal(pipe_.bytes, 0);
    put_behind(3, PEER_MESSAGE, 6 * part);
    put_behind(3, PEER_MESSAGE, 10); /* tear_down has them given back */
}

TEST_CASE(test_window)
{
    pipe_.window = 1000;
    while (pipe_.out < PEER_PIPE_OUT_MAX)
        put(1, 10);
    assert_int_equal(put(2, 2000), STATUS_OK); /* one may always wait */
    assert_int_equal(put(3, 10), STATUS_RESOURCE_EXHAUSTED);
    take_all_but(0);
    assert_int_equal(put(4, 10), STATUS_OK);
}

TEST_CASE(test_broken)
{
    put(1, 3 * (uint64_t)PEER_PART_BYTES_MAX);
    breaks = true;
    take_all_but(0);
    assert_true(pipe_.is_broken);
    assert_int_equal(put(2, 10), STATUS_CANCELLED);
}

static size_t
random_below(uint64_t *state, size_t limit)
{
    return (size_t)(random_draw(state) % limit);
}

/* Random traffic: each message whole, its parts in order, kept, lent and copied pieces mixed. */
TEST_CASE(test_random)
{
    static uint64_t expected[ROUNDS + 1];
    static uint64_t came[ROUNDS + 1];
    static bool dropped[ROUNDS + 1];
    uint64_t seed = random_seed((uint64_t)clock_now_ns());
    memset(came, 0, sizeof(came));
    memset(dropped, 0, sizeof(dropped));
    for (uint32_t number = 1; number <= ROUNDS; number++) {
        static struct peer_frame frame;
        memset(&frame, 0, sizeof(frame));
        frame.kind = PEER_ANSWER;
        frame.answer.number = number;
        struct rpc_piece pieces[20];
        static unsigned char stays[200000];
        struct rpc_kept *kept[20];
        size_t kept_count = 0;
        size_t count = random_below(&seed, 20);
        memset(stays, (int)number, sizeof(stays));
        expected[number] = 0;
        for (size_t i = 0; i < count; i++) {
            size_t bytes = random_below(&seed, random_below(&seed, 3) == 0 ? 200000 : 50);
            struct wire_span span = {stays, bytes};
            unsigned form = (unsigned)random_below(&seed, 3);
            if (form == 0) {
                pieces[i] = lend(bytes, (unsigned char)number);
            } else if (form == 1) {
                kept[kept_count] = rpc_message_keep(&(struct wire_message){&span, 1, bytes});
                pieces[i] = rpc_kept_piece(kept[kept_count++]);
            } else {
                pieces[i] = (struct rpc_piece){.data = stays, .bytes = bytes};
            }
            expected[number] += bytes;
        }
        frame.answer.message_bytes = expected[number];
        (void)!peer_pipe_put(&pipe_, &frame, pieces, count, expected[number]);
        memset(stays, 0, sizeof(stays)); /* what was copied was copied */
        while (kept_count > 0)
            rpc_kept_release(kept[--kept_count]);
        if (random_below(&seed, 20) == 0) {
            peer_pipe_drop(&pipe_, number);
            dropped[number] = true;
        }
        if (random_below(&seed, 3) > 0)
            take_all_but((uint32_t)random_below(&seed, pipe_.out + 1));
    }
    take_all();
    for (unsigned i = 0; i < sent_count; i++) {
        assert_int_equal(sent[i].kind, came[sent[i].number] == 0 ? PEER_ANSWER : PEER_PART);
        came[sent[i].number] += sent[i].payload_bytes;
        if (sent[i].payload_bytes > 0)
            assert_int_equal(sent[i].first, (unsigned char)sent[i].number);
    }
    for (uint32_t number = 1; number <= ROUNDS; number++)
        if (!dropped[number])
            assert_int_equal(came[number], expected[number]);
    assert_int_equal(pipe_.bytes, 0);
}

TEST_MAIN(.setup = set_up, .teardown = tear_down)
