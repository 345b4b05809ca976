/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctest: timeout=240
 *
 * Lanes that are lost at an awkward moment, each brought about and then seen from the end: a lane
 * that is condemned when all its workers have just said that they are ready; one that never came to
 * serve; a reload that fails while a lost region is being rebuilt; a request that is being pushed
 * into a lane that is condemned meanwhile; a lane whose gather thread sleeps where no bell is
 * received; a request that is lost in a lane that drains. Real workers, no front. Code on the loop
 * thread aborts where it cannot fail.
 */
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>

#include "../test.h"
#include "coordinator/workers/pool_member.h"
#include "test_pipeline_rig.h"

static struct lane *
starting_lane(struct pipeline *pipeline)
{
    for (uint32_t i = 0; i < LANES_MAX; i++)
        if (atomic_load(&pipeline->lanes[i].state) == LANE_STARTING)
            return &pipeline->lanes[i];
    return NULL;
}

/* The one that serves or is to. A starting one may have come to serve before a test got to it, on a
 * busy machine: what is judged holds for either. */
static struct lane *
the_lane(struct pipeline *pipeline)
{
    struct lane *lane = starting_lane(pipeline);
    return lane != NULL ? lane : atomic_load(&pipeline->serving);
}

static void
wait_lane(struct rig *rig)
{
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (the_lane(the_pipeline(rig)) == NULL)
        assert_true(clock_now_ns() < until_ns);
}

static uint32_t
lanes_in_use(struct pipeline *pipeline)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        uint32_t state = atomic_load(&pipeline->lanes[i].state);
        count += state == LANE_STARTING || state == LANE_SERVING;
    }
    return count;
}

static void
condemn_the_lane(struct pipeline *pipeline, struct lane *serving)
{
    (void)serving;
    pipeline_condemn(pipeline, the_lane(pipeline), "the test says so");
}

/* ---- READY, and nobody to receive it ---- */

/* The loop is kept until every worker has spoken: what they said waits in their sockets. */
static void
condemn_unreceived(struct pipeline *pipeline, struct lane *serving)
{
    struct lane *lane = the_lane(pipeline);
    struct pool_member *members = stage_members(pipeline->pools[lane->number], 0);
    for (uint32_t i = 0; i < 2 && serving == NULL; i++) {
        struct pollfd fd = {.fd = members[i].process.control, .events = POLLIN};
        if (members[i].state == MEMBER_STARTING && poll(&fd, 1, WAIT_S * 1000) != 1)
            abort();
    }
    pipeline_condemn(pipeline, lane, "the test says so");
}

TEST_CASE(test_ready_is_received_too_late)
{
    struct rig *rig = *state;
    on_loop(rig, condemn);
    wait_lane(rig);
    on_loop(rig, condemn_unreceived);
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    struct lane *lane;
    while ((lane = atomic_load(&the_pipeline(rig)->serving)) == NULL)
        assert_true(clock_now_ns() < until_ns);
    assert_int_equal(lane->region_generation, 3); /* 2 is dead, and a request to it would hang */
    assert_serves(rig);
}

/* ---- lost before they serve ---- */

static void
age(struct pipeline *pipeline, struct lane *lane)
{
    (void)lane;
    pipeline->serving_since_ns -= 11 * (int64_t)NS_PER_S;
}

TEST_CASE(test_pauses_double_without_serving)
{
    struct rig *rig = *state;
    on_loop(rig, age); /* what one lane has served long since is no merit of the next */
    for (uint32_t i = 0; i < 4; i++) {
        wait_lane(rig);
        int64_t began_ns = clock_now_ns();
        on_loop(rig, condemn_the_lane);
        assert_int_equal(the_pipeline(rig)->resets_in_a_row, i + 1);
        wait_lane(rig);
        assert_true(clock_now_ns() - began_ns >= (int64_t)(100u << i) * NS_PER_MS);
    }
    wait_serving(rig, 2);
    assert_serves(rig);
}

/* ---- a reload that fails meanwhile ---- */

static struct {
    int32_t pids[2];
    struct loop_timer *timer;
    uint32_t fired;
} halt;

static void
on_halt_over(void *context)
{
    struct rig *rig = context;
    pthread_mutex_lock(&rig->lock);
    halt.fired = 1;
    pthread_cond_broadcast(&rig->changed);
    pthread_mutex_unlock(&rig->lock);
}

static void
on_reload_end(void *context, struct pipeline *pipeline, const struct error *error)
{
    bool *failed = context;
    (void)pipeline;
    *failed = error != NULL;
}

/* The rebuilt lane's workers are halted before they are ready, the new generation's lane is lost,
 * and a timer is set that comes after the one that such a failure may set. */
static void
reload_in_vain(struct pipeline *pipeline, struct lane *serving)
{
    struct lane *lane = the_lane(pipeline);
    (void)serving;
    for (uint32_t i = 0; i < 2; i++) {
        halt.pids[i] = worker_pools_process(pipeline->pools[lane->number], 0, i).pid;
        if (halt.pids[i] > 0)
            kill(halt.pids[i], SIGSTOP);
    }
    bool failed = false;
    struct pipeline_reload reload = {on_reload_end, &failed};
    struct error error = ERROR_NONE;
    if (pipeline_reload(pipeline, pipeline->options.source, pipeline->options.config, &reload,
                        &error) != STATUS_OK)
        abort();
    pipeline_condemn(pipeline, pipeline->incoming, "the test says so");
    if (!failed)
        abort();
    loop_timer_set(halt.timer, 150 * (int64_t)NS_PER_MS);
}

TEST_CASE(test_a_failed_reload_starts_no_second_lane)
{
    struct rig *rig = *state;
    halt.fired = 0;
    halt.timer = loop_timer_create(loop_base(rig->loop), on_halt_over, rig);
    on_loop(rig, condemn);
    wait_lane(rig);
    on_loop(rig, reload_in_vain);
    pthread_mutex_lock(&rig->lock);
    wait_for(rig, &halt.fired, 1);
    pthread_mutex_unlock(&rig->lock);
    uint32_t lanes = lanes_in_use(the_pipeline(rig));
    for (uint32_t i = 0; i < 2; i++)
        if (halt.pids[i] > 0)
            kill(halt.pids[i], SIGCONT);
    assert_int_equal(lanes, 1);
    wait_serving(rig, 2);
    assert_serves(rig);
    assert_int_equal(lanes_in_use(the_pipeline(rig)), 1);
    assert_int_equal(count(rig, PIPELINE_RELOADS_FAILED), 1);
    loop_timer_destroy(halt.timer);
}

/* ---- a push that fails meanwhile ---- */

/* Between its tag and its push the request's slot is destroyed, and the lane condemned: the thread
 * that fails all its requests then has not seen this one in flight. */
static void
lose_the_lane(struct rig *rig, uint64_t tag)
{
    struct lane *lane = atomic_load(&the_pipeline(rig)->serving);
    atomic_fetch_xor(object_word(&lane->region.slots, tag_ticket(tag).index), UINT64_MAX);
    on_loop(rig, condemn);
}

TEST_CASE(test_a_failed_push_is_answered)
{
    struct rig *rig = *state;
    struct error error;
    rig->calls[0].admitted = lose_the_lane;
    assert_int_equal(submit(rig, 0, PROBE_ECHO, 7, TIME_NEVER_NS, &error), STATUS_OK);
    const struct call *call = answer_of(rig, 0); /* a second one aborts */
    assert_int_equal(call->status, STATUS_UNAVAILABLE);
    assert_non_null(strstr(call->text, "is being rebuilt"));
    wait_serving(rig, 2);
    assert_serves(rig);
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 1);
}

/* ---- a sleep that no bell ends ---- */

/* As a front thread leaves it that gathers by itself and has gone: nobody is asleep, it says. Then
 * the lane's last reference goes, and the lane is closed. */
static void
close_unreceived(struct pipeline *pipeline, struct lane *serving)
{
    struct lane *lane = &pipeline->lanes[0];
    (void)serving;
    doorbell_cancel(&lane->region.header->coordinator_bell);
    lane_unref(lane);
    pipeline_publish(pipeline);
}

/* Without a clock: the sleep is ended if the bell's number has changed, which the test sees in a
 * mapping of its own. */
TEST_CASE(test_closing_wakes_the_gather_thread)
{
    struct rig *rig = *state;
    struct lane *lane = pipeline_lane(the_pipeline(rig)); /* our reference keeps it open */
    assert_ptr_equal(lane, &the_pipeline(rig)->lanes[0]);
    struct region_header *header =
        mmap(NULL, sizeof(*header), PROT_READ, MAP_SHARED, lane->region.fd, 0);
    assert_true(header != MAP_FAILED);
    on_loop(rig, condemn);
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (atomic_load(&lane->refs) > 1) /* its workers are gone then */
        assert_true(clock_now_ns() < until_ns);
    while (atomic_load(&header->coordinator_bell.asleep) == 0)
        assert_true(clock_now_ns() < until_ns);
    uint32_t sequence = atomic_load(&header->coordinator_bell.sequence);
    on_loop(rig, close_unreceived);
    assert_int_not_equal(atomic_load(&header->coordinator_bell.sequence), sequence);
    assert_int_equal(munmap(header, sizeof(*header)), 0);
    wait_serving(rig, 2);
    assert_serves(rig);
}

/* ---- lost while the lane drains ---- */

static void
reload(struct pipeline *pipeline, struct lane *serving)
{
    static bool failed; /* told, or not, when the test has gone on */
    struct pipeline_reload reload = {on_reload_end, &failed};
    struct error error = ERROR_NONE;
    (void)serving;
    if (pipeline_reload(pipeline, pipeline->options.source, pipeline->options.config, &reload,
                        &error) != STATUS_OK)
        abort();
}

static void
publish(struct pipeline *pipeline, struct lane *serving)
{
    (void)serving;
    pipeline_publish(pipeline);
}

static bool
all_answered(struct rig *rig, uint32_t call_count)
{
    pthread_mutex_lock(&rig->lock);
    bool all = true;
    for (uint32_t i = 0; i < call_count; i++)
        all = all && rig->calls[i].answered;
    pthread_mutex_unlock(&rig->lock);
    return all;
}

/* Both workers hang, so that a third request waits in the ring, and the old lane drains for as long
 * as it may. Then the word of the third says that it is another use of its slot. */
TEST_CASE(test_lost_while_it_drains)
{
    struct rig *rig = *state;
    struct error error;
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(submit(rig, i, i < 2 ? PROBE_HANG : PROBE_ECHO, 7, TIME_NEVER_NS, &error),
                         STATUS_OK);
    struct lane *lane = atomic_load(&the_pipeline(rig)->serving);
    on_loop(rig, reload);
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (atomic_load(&lane->state) != LANE_DRAINING)
        assert_true(clock_now_ns() < until_ns);
    struct shm_ticket lost = tag_ticket(rig->calls[2].tag);
    _Atomic uint64_t *shared = object_word(&lane->region.slots, lost.index);
    struct shm_word word = word_unpack(atomic_load(shared));
    word.generation++;
    atomic_store(shared, word_pack(word));
    while (!all_answered(rig, 3)) { /* what the node's timer does */
        assert_true(clock_now_ns() < until_ns);
        on_loop(rig, publish);
    }
    for (uint32_t i = 0; i < 3; i++) {
        const struct call *call = &rig->calls[i];
        assert_int_equal(call->status, STATUS_UNAVAILABLE);
        assert_non_null(strstr(call->text, "found corrupt"));
    }
    assert_serves(rig);
    assert_int_equal(lanes_in_use(the_pipeline(rig)), 1);
}

int
main(void)
{
    log_init("test_fallbacks_lanes", LOG_ERROR);
    return TEST_RUN(.setup = set_up, .teardown = tear_down);
}
