/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctest: timeout=180
 *
 * Answers in pieces, without gRPC: real workers, real shared memory, sinks of the test's. Proves
 * that a caller gets the pieces in order, each once, then one end; that cancelling, deadlines and
 * callers that take no more reach the modelet at its next piece; and, by killing workers amid their
 * pieces (SHOAL_KILLS of them, 24), that a request is run again only if nothing of its answer was
 * sent. Every wait has a deadline.
 */
#include <signal.h>
#include <string.h>

#include "../random.h"
#include "../test.h"
#include "shm/piece.h"

#define RIG_SLOTS 16
#define RIG_CONFIG
#include "test_pipeline_rig.h"

static void
rig_config(const struct rig *rig, FILE *file)
{
    (void)rig;
    fprintf(file,
            "pipelines:\n"
            "  - name: probe\n"
            "    slots: %d\n"
            "    stages:\n"
            "      - { name: only, modelet: %s/tests/modelets/libprobe.so, workers: 2,\n"
            "          batch_size: 4, attempts_max: 8, quarantine_deaths: 0, collect: %s }\n",
            SLOTS, getenv("SHOAL_BUILD_DIR"), getenv("COLLECT"));
}

/* The pieces that the caller of calls[i] has received, under the rig's lock. */
static struct {
    uint32_t pieces;
    uint32_t wrong; /* pieces that were not the next one, or not of this call, or after its end */
    bool finished;  /* at the end there was no output */
    uint32_t takes; /* pieces; then it has read too little. 0: any number */
} seen[CALLS_MAX];

static uint32_t pieces_seen; /* of all calls */

static enum status
on_piece(void *context, const struct rpc_piece *pieces, size_t piece_count, uint64_t unread_max)
{
    struct call *call = context;
    struct rig *rig = call->rig;
    size_t number = (size_t)(call - rig->calls);
    int64_t words[PROBE_END] = {0};
    const struct rpc_piece *last = &pieces[piece_count - 1];
    if (last->bytes == sizeof(words))
        memcpy(words, last->data, sizeof(words));
    pthread_mutex_lock(&rig->lock);
    bool right = last->release == NULL && unread_max == 4 << 20 && words[0] == PROBE_EMIT &&
                 words[1] == seen[number].pieces && (size_t)words[2] == number && !call->answered;
    seen[number].wrong += !right;
    seen[number].pieces++;
    pieces_seen++;
    bool enough = seen[number].takes != 0 && seen[number].pieces >= seen[number].takes;
    pthread_cond_broadcast(&rig->changed);
    pthread_mutex_unlock(&rig->lock);
    return enough ? STATUS_RESOURCE_EXHAUSTED : STATUS_OK;
}

static void
on_finish(void *context, const struct rpc_piece *pieces, size_t piece_count)
{
    struct call *call = context;
    seen[call - call->rig->calls].finished = true;
    assert_true(piece_count == 1 && pieces[0].release == NULL);
    end_call(call, STATUS_OK, "");
}

static const struct request_sink streams = {.tagged = on_tagged,
                                            .reply = on_reply,
                                            .fail = on_fail,
                                            .piece = on_piece,
                                            .finish = on_finish};

static void
begin(struct rig *rig, uint32_t number, uint32_t pieces, enum probe_ending ending)
{
    struct error error;
    uint32_t takes = seen[number].takes;
    memset(&seen[number], 0, sizeof(seen[number]));
    seen[number].takes = takes;
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (submit(rig, number, PROBE_EMIT, PROBE_PIECES(pieces, ending), TIME_NEVER_NS, &error) !=
           STATUS_OK) /* between the deaths of all workers and the start of one */
        if (strstr(error.text, "no worker") == NULL || clock_now_ns() > until_ns)
            fail_msg("refused: %s", error.text);
}

static void
wait_pieces(struct rig *rig, const uint32_t *what, uint32_t least)
{
    pthread_mutex_lock(&rig->lock);
    wait_for(rig, what, least);
    pthread_mutex_unlock(&rig->lock);
}

static void
check_end(struct rig *rig, uint32_t number, enum status status, const char *text)
{
    const struct call *call = answer_of(rig, number);
    assert_int_equal(seen[number].wrong, 0);
    if (strstr(call->text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", call->text, text);
    assert_int_equal(call->status, status);
}

static int
set_up_with(void **state, const char *collect)
{
    setenv("COLLECT", collect, 1);
    memset(seen, 0, sizeof(seen));
    pieces_seen = 0;
    int result = set_up(state);
    ((struct rig *)*state)->sink = &streams;
    return result;
}

static int
set_up_refusing(void **state)
{
    return set_up_with(state, "refuse");
}

static int
set_up_joining(void **state)
{
    return set_up_with(state, "concat");
}

static int
set_up_last(void **state)
{
    return set_up_with(state, "last");
}

/* ---- callers that take pieces ---- */

TEST_CASE(test_pieces_come_in_order_before_the_end)
{
    struct rig *rig = *state;
    static const uint32_t counts[] = {0, 1, 2, PIECES_AHEAD_MAX, PIECES_AHEAD_MAX + 1, 3000};
    for (uint32_t i = 0; i < ARRAY_COUNT(counts); i++)
        begin(rig, i, counts[i], PROBE_END_ANSWER);
    for (uint32_t i = 0; i < ARRAY_COUNT(counts); i++) {
        check_end(rig, i, STATUS_OK, "");
        assert_int_equal(seen[i].pieces, counts[i]);
        assert_int_equal(rig->calls[i].words[1], counts[i]);
        assert_int_equal(rig->calls[i].words[2], i);
        assert_false(seen[i].finished);
    }
    wait_returned(rig);
    assert_int_equal(count(rig, PIPELINE_PIECES), pieces_seen);
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 0);
}

TEST_CASE(test_end_without_outputs)
{
    struct rig *rig = *state;
    begin(rig, 0, 5, PROBE_END_NOTHING);
    check_end(rig, 0, STATUS_OK, "");
    assert_int_equal(seen[0].pieces, 5);
    assert_true(seen[0].finished);
    begin(rig, 1, 0, PROBE_END_NOTHING);
    check_end(rig, 1, STATUS_INTERNAL, "gave no output");
    wait_returned(rig);
}

/* Tensors in several blocks, and one that is the input, are brought together. */
TEST_CASE(test_wide_pieces)
{
    struct rig *rig = *state;
    begin(rig, 0, 100, PROBE_END_WIDE);
    check_end(rig, 0, STATUS_OK, "");
    assert_int_equal(seen[0].pieces, 100);
    wait_returned(rig);
}

/* Large ones wait for the coordinator: the arena has few blocks for them. */
TEST_CASE(test_large_pieces)
{
    struct rig *rig = *state;
    for (uint32_t i = 0; i < 4; i++)
        begin(rig, i, 30, PROBE_END_LARGE);
    for (uint32_t i = 0; i < 4; i++) {
        check_end(rig, i, STATUS_OK, "");
        assert_int_equal(seen[i].pieces, 30);
    }
    wait_returned(rig);
}

TEST_CASE(test_failures_say_how_many_pieces_were_sent)
{
    struct rig *rig = *state;
    begin(rig, 0, 3, PROBE_END_FAIL);
    check_end(rig, 0, STATUS_ABORTED, "told to fail at last (3 pieces of the answer were sent)");
    begin(rig, 1, 4, PROBE_END_BATCH);
    check_end(rig, 1, STATUS_ABORTED, "told to fail the batch (4 pieces");
    begin(rig, 2, 7, PROBE_END_CRASH);
    check_end(rig, 2, STATUS_UNAVAILABLE,
              "died in stage \"only\" after it had begun to answer this request (7 pieces");
    assert_int_equal(seen[2].pieces, 7);
    assert_int_equal(count(rig, PIPELINE_STREAMS_BROKEN), 1);
    assert_int_equal(count(rig, PIPELINE_RUN_AGAIN), 0);
    wait_returned(rig);
}

TEST_CASE(test_caller_that_reads_too_slowly)
{
    struct rig *rig = *state;
    seen[0].takes = 5;
    begin(rig, 0, 0, PROBE_END_ENDLESS);
    begin(rig, 1, 500, PROBE_END_ANSWER);
    check_end(rig, 0, STATUS_RESOURCE_EXHAUSTED, "stream_mib");
    assert_int_equal(seen[0].pieces, 5);
    check_end(rig, 1, STATUS_OK, "");
    assert_int_equal(seen[1].pieces, 500);
    assert_int_equal(count(rig, PIPELINE_STREAMS_SLOW), 1);
    wait_returned(rig);
}

TEST_CASE(test_cancelling_reaches_the_next_piece)
{
    struct rig *rig = *state;
    begin(rig, 0, 0, PROBE_END_ENDLESS);
    wait_pieces(rig, &seen[0].pieces, 3);
    pipeline_cancel(the_pipeline(rig), rig->calls[0].tag);
    check_end(rig, 0, STATUS_CANCELLED, "cancelled after");
    wait_returned(rig);
}

TEST_CASE(test_deadline_reaches_the_next_piece)
{
    struct rig *rig = *state;
    struct error error;
    assert_int_equal(submit(rig, 0, PROBE_EMIT, PROBE_PIECES(0, PROBE_END_ENDLESS),
                            clock_now_ns() + NS_PER_S / 4, &error),
                     STATUS_OK);
    check_end(rig, 0, STATUS_DEADLINE_EXCEEDED, "deadline");
    wait_returned(rig);
}

/* The lane ends a request while its worker emits: nothing comes after that, and the end says how
 * many came. */
TEST_CASE(test_condemned_amid_pieces)
{
    struct rig *rig = *state;
    begin(rig, 0, 0, PROBE_END_ENDLESS);
    wait_pieces(rig, &seen[0].pieces, 100);
    on_loop(rig, condemn);
    char sent[64];
    (void)answer_of(rig, 0);
    snprintf(sent, sizeof(sent), "(%u pieces of the answer were sent)", seen[0].pieces);
    check_end(rig, 0, STATUS_UNAVAILABLE, sent);
    wait_serving(rig, 2);
    begin(rig, 1, 50, PROBE_END_ANSWER);
    check_end(rig, 1, STATUS_OK, "");
    wait_returned(rig);
}

/* ---- callers that take none ---- */

TEST_CASE(test_others_are_refused)
{
    struct rig *rig = *state;
    rig->sink = NULL;
    begin(rig, 0, 3, PROBE_END_ANSWER);
    check_end(rig, 0, STATUS_UNIMPLEMENTED, "stage only answers in pieces: call ModelStreamInfer");
    begin(rig, 1, 0, PROBE_END_ANSWER);
    check_end(rig, 1, STATUS_OK, "");
    wait_returned(rig);
    assert_int_equal(count(rig, PIPELINE_PIECES), 0);
}

/* The reply's last piece is all that on_reply knows of: its size shows how many were joined. */
static size_t reply_bytes;

static void
on_long_reply(void *context, const struct rpc_piece *pieces, size_t piece_count)
{
    reply_bytes = pieces[piece_count - 1].bytes;
    on_reply(context, pieces, piece_count);
}

static const struct request_sink measures = {
    .tagged = on_tagged, .reply = on_long_reply, .fail = on_fail};

TEST_CASE_WITH(test_others_get_all_joined, set_up_joining, tear_down)
{
    struct rig *rig = *state;
    rig->sink = &measures;
    begin(rig, 0, 9, PROBE_END_ANSWER);
    check_end(rig, 0, STATUS_OK, "");
    assert_int_equal(reply_bytes, 10 * PROBE_END * sizeof(int64_t));
    begin(rig, 1, 9, PROBE_END_NOTHING);
    check_end(rig, 1, STATUS_OK, "");
    assert_int_equal(reply_bytes, 9 * PROBE_END * sizeof(int64_t));
    begin(rig, 2, 0, PROBE_END_ENDLESS);
    check_end(rig, 2, STATUS_RESOURCE_EXHAUSTED, "larger than an answer may be");
    wait_returned(rig);
}

TEST_CASE_WITH(test_others_get_the_last, set_up_last, tear_down)
{
    struct rig *rig = *state;
    rig->sink = NULL;
    begin(rig, 0, 9, PROBE_END_ANSWER);
    check_end(rig, 0, STATUS_OK, "");
    assert_int_equal(rig->calls[0].words[1], 9);
    begin(rig, 1, 9, PROBE_END_NOTHING);
    check_end(rig, 1, STATUS_OK, "");
    assert_int_equal(rig->calls[1].words[1], 8);
    wait_returned(rig);
}

/* ---- deaths ---- */

static uint64_t draw;

static uint32_t
random_below(uint32_t end)
{
    return (uint32_t)(random_draw(&draw) % end);
}

/* Returns 1 if a worker in a place drawn at random was killed, which was running something. */
static uint32_t
kill_one(struct rig *rig)
{
    static int32_t last[2];
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    uint32_t index = random_below(2);
    const struct shm_worker *worker = region_worker(&lane->region, 0, index);
    int32_t pid = atomic_load(&worker->pid);
    bool runs =
        atomic_load(&worker->owner) != OWNER_NONE && atomic_load(&worker->run_began_ns) != 0;
    lane_unref(lane);
    if (!runs || pid <= 0 || pid == last[index] || kill(pid, SIGKILL) != 0)
        return 0;
    last[index] = pid;
    return 1;
}

/* Until the callers have seen so many more pieces, or this call has ended. */
static void
let_emit(struct rig *rig, uint32_t number, uint32_t more)
{
    pthread_mutex_lock(&rig->lock);
    uint32_t enough = pieces_seen + more;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    while (pieces_seen < enough && !rig->calls[number].answered)
        if (pthread_cond_timedwait(&rig->changed, &rig->lock, &until) != 0)
            fail_msg("no piece and no answer within %d s", WAIT_S);
    pthread_mutex_unlock(&rig->lock);
}

enum { AT_ONCE = 12 };

static uint32_t wanted[AT_ONCE]; /* pieces, of the call in each place */
static uint32_t ended_well;
static uint32_t ended_broken;
static uint32_t ended_before; /* without a piece, because no worker was left */

static void
check_survivor(struct rig *rig, uint32_t number)
{
    const struct call *call = answer_of(rig, number);
    assert_int_equal(seen[number].wrong, 0);
    if (call->status == STATUS_OK) {
        assert_int_equal(seen[number].pieces, wanted[number]);
        assert_int_equal(call->words[1], wanted[number]);
        assert_int_equal(call->words[2], number);
        ended_well++;
        return;
    }
    if (strstr(call->text, "no worker") != NULL) {
        assert_int_equal(seen[number].pieces, 0);
        ended_before++;
        return;
    }
    if (call->status != STATUS_UNAVAILABLE || strstr(call->text, "begun to answer") == NULL)
        fail_msg("%s", call->text);
    char reported[64];
    snprintf(reported, sizeof(reported), "(%u pieces", seen[number].pieces);
    if (seen[number].pieces > 0 && strstr(call->text, reported) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", call->text, reported);
    assert_true(seen[number].pieces <= wanted[number]);
    ended_broken++;
}

TEST_CASE(test_kills_amid_pieces)
{
    struct rig *rig = *state;
    const char *given = getenv("SHOAL_KILLS");
    uint32_t kills = given != NULL ? (uint32_t)atoi(given) : 24;
    draw = random_seed((uint64_t)clock_now_ns());
    ended_well = ended_broken = ended_before = 0;
    for (uint32_t i = 0; i < AT_ONCE; i++)
        begin(rig, i, wanted[i] = random_below(200), PROBE_END_ANSWER);
    uint32_t killed = 0;
    for (uint32_t turn = 0; killed < kills; turn++) {
        uint32_t number = turn % AT_ONCE;
        let_emit(rig, number, random_below(20));
        killed += kill_one(rig);
        check_survivor(rig, number);
        begin(rig, number, wanted[number] = random_below(200), PROBE_END_ANSWER);
    }
    for (uint32_t i = 0; i < AT_ONCE; i++)
        check_survivor(rig, i);
    wait_returned(rig);
    print_message("kills %u pieces %u answers %u broken %u no worker %u run again %llu\n", killed,
                  pieces_seen, ended_well, ended_broken, ended_before,
                  (unsigned long long)count(rig, PIPELINE_RUN_AGAIN));
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 0);
    assert_int_equal(count(rig, PIPELINE_STREAMS_BROKEN), ended_broken);
    assert_true(ended_well > 0 && ended_broken > 0);
}

int
main(void)
{
    log_init("test_pieces", LOG_ERROR);
    return TEST_RUN(.setup = set_up_refusing, .teardown = tear_down);
}
