/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that real workers serve the regions of local clients beside their lane's: that a client's
 * pushes wake them, two of them side by side; that lane and client regions have their turns; that
 * client regions come and go while workers run and hold items of them, and end with what had begun
 * finished; that the dead worker's part of a client region can be repaired by its client; that a
 * client region with anything in it that cannot be is dropped, and nobody else notices. The test
 * plays coordinator and clients (test_worker_client_region_rig.h).
 *
 * ctest: timeout=300
 */
#include "../random.h"
#include "test_worker_client_region_rig.h"

#include <pthread.h>

#include "shm/repair.h"
#include "shm/ring.h"

/* ---- tests ---- */

TEST_CASE(test_served_through_stages)
{
    static const struct rig_stage stages[] = {{.modelet = "probe"}, {.modelet = "probe"}};
    struct rig *lane = rig_start(stages, 2);
    static struct client_region client_regions[2];
    client_region_come(&client_regions[0], lane, 0);
    client_region_come(&client_regions[1], lane, CLIENT_REGIONS_MAX - 1);
    for (int64_t i = 1; i <= 50; i++) {
        for (uint32_t g = 0; g < 2; g++) {
            struct rig_outcome outcome = client_region_call(
                &client_regions[g], (struct rig_request){.command = PROBE_FORWARD, .tag = i});
            assert_int_equal(outcome.status, STATUS_OK);
            assert_int_equal(outcome.words[2], i);
        }
        assert_int_equal(
            rig_call(lane, (struct rig_request){.command = PROBE_FORWARD, .tag = i}).words[2], i);
    }
    struct rig_outcome failed = client_region_call(
        &client_regions[0],
        (struct rig_request){.command = PROBE_FAIL, .argument = STATUS_OUT_OF_RANGE});
    assert_int_equal(failed.status, STATUS_OUT_OF_RANGE);
    struct rig_outcome late = client_region_call(
        &client_regions[0],
        (struct rig_request){.command = PROBE_FORWARD, .deadline_ns = clock_now_ns() - 1});
    assert_int_equal(late.status, STATUS_DEADLINE_EXCEEDED);
    client_region_assert_empty(&client_regions[0]);
    client_region_assert_empty(&client_regions[1]);
    client_region_go(&client_regions[0]);
    client_region_go(&client_regions[1]);
    rig_stop(lane);
}

/* A client wakes sleepers, and each push wakes one as long as somebody sleeps: the second request
 * is answered while the first is being run. */
TEST_CASE(test_workers_run_side_by_side)
{
    static const struct rig_stage stages[] = {{.modelet = "probe", .workers = 2}};
    struct rig *lane = rig_start(stages, 1);
    static struct client_region client_region;
    client_region_come(&client_region, lane, 3);
    for (int i = 0; i < 20; i++) {
        struct shm_ticket first =
            client_region_submit(&client_region, (struct rig_request){.command = PROBE_WAIT});
        wait_held(&client_region.rig.region, first);
        struct rig_outcome second = client_region_call(
            &client_region, (struct rig_request){.command = PROBE_ECHO, .tag = i});
        assert_int_equal(second.status, STATUS_OK);
        assert_int_equal(second.words[2], i);
        slot_cancel(&client_region.rig.region, first);
        assert_int_equal(rig_wait_outcome(&client_region.rig).ticket.index, first.index);
    }
    client_region_assert_empty(&client_region);
    client_region_go(&client_region);
    rig_stop(lane);
}

/* An open batch takes items of lane and client region, and is closed by the one that fills it. */
TEST_CASE(test_one_batch_of_lane_and_client_region)
{
    static const struct rig_stage stages[] = {
        {.modelet = "probe", .workers = 2, .batch_size = 2, .batch_wait_ns = 60 * NS_PER_S}};
    struct rig *lane = rig_start(stages, 1);
    static struct client_region client_region;
    client_region_come(&client_region, lane, 0);
    for (int i = 0; i < 20; i++) {
        if (i % 2 == 0) {
            wait_held(&lane->region, rig_submit(lane, (struct rig_request){.command = PROBE_ECHO}));
            client_region_submit(&client_region, (struct rig_request){.command = PROBE_ECHO});
        } else {
            wait_held(
                &client_region.rig.region,
                client_region_submit(&client_region, (struct rig_request){.command = PROBE_ECHO}));
            rig_submit(lane, (struct rig_request){.command = PROBE_ECHO});
        }
        assert_int_equal(rig_wait_outcome(lane).words[PROBE_BATCH_COUNT], 2);
        assert_int_equal(rig_wait_outcome(&client_region.rig).words[PROBE_BATCH_COUNT], 2);
    }
    client_region_go(&client_region);
    rig_stop(lane);
}

enum { QUEUED = 8 };

/* Of what waits in both, the picks alternate. */
TEST_CASE(test_lane_and_client_region_have_their_turns)
{
    static const struct rig_stage stages[] = {{.modelet = "probe"}};
    struct rig *lane = rig_start(stages, 1);
    static struct client_region client_region;
    client_region_come(&client_region, lane, 0);
    struct shm_ticket first = rig_submit(lane, (struct rig_request){.command = PROBE_WAIT});
    wait_held(&lane->region, first);
    for (int i = 0; i < QUEUED; i++) {
        rig_submit(lane, (struct rig_request){.command = PROBE_ECHO});
        client_region_submit(&client_region, (struct rig_request){.command = PROBE_ECHO});
    }
    slot_cancel(&lane->region, first);
    rig_wait_outcome(lane); /* the one that waited */
    int64_t last = 0;
    for (int i = 0; i < QUEUED; i++) {
        int64_t ours = rig_wait_outcome(lane).words[PROBE_RUNS];
        int64_t theirs = rig_wait_outcome(&client_region.rig).words[PROBE_RUNS];
        assert_int_equal(ours - last + theirs - last, i == 0 ? ours + theirs : 3);
        last = ours > theirs ? ours : theirs;
    }
    client_region_go(&client_region);
    rig_stop(lane);
}

/* It comes and goes while the worker is in a run, and while items of it are in the worker's hands.
 */
TEST_CASE(test_goes_while_items_are_held)
{
    static const struct rig_stage stages[] = {{.modelet = "probe"}};
    struct rig *lane = rig_start(stages, 1);
    static struct client_region client_region;
    struct shm_ticket busy = rig_submit(lane, (struct rig_request){.command = PROBE_WAIT});
    wait_held(&lane->region, busy);
    client_region_come(&client_region, lane, 0);
    struct shm_ticket held =
        client_region_submit(&client_region, (struct rig_request){.command = PROBE_WAIT});
    slot_cancel(&lane->region, busy);
    rig_wait_outcome(lane);
    wait_held(&client_region.rig.region, held);
    assert_int_equal(atomic_load(&region_worker(&lane->region, 0, 0)->run_client_regions), 1);
    struct handshake_client_region word = word_of(&client_region, CLIENT_REGION_DISCARD);
    announce(lane, &word, -1);
    slot_cancel(&client_region.rig.region, held);
    expect_word(&client_region, 0, 0, CLIENT_REGION_CLOSED);
    region_detach(&client_region.rig.region);
    client_region_come(&client_region, lane, 0); /* the number is free again */
    assert_int_equal(
        client_region_call(&client_region, (struct rig_request){.command = PROBE_ECHO}).status,
        STATUS_OK);
    assert_int_equal(rig_call(lane, (struct rig_request){.command = PROBE_ECHO}).status, STATUS_OK);
    client_region_go(&client_region);
    rig_stop(lane);
}

/* A worker's items are answered before it leaves; waiting ones stay in the ring. */
TEST_CASE(test_ends_with_what_is_held)
{
    static const struct rig_stage stages[] = {{.modelet = "probe"}};
    struct rig *lane = rig_start(stages, 1);
    static struct client_region client_region;
    client_region_come(&client_region, lane, 7);
    struct shm_ticket held =
        client_region_submit(&client_region, (struct rig_request){.command = PROBE_WAIT});
    wait_held(&client_region.rig.region, held);
    struct shm_ticket waits =
        client_region_submit(&client_region, (struct rig_request){.command = PROBE_ECHO});
    assert_false(client_region_is_ending(&client_region.rig.region));
    client_region_end_at(&client_region, 0);
    slot_cancel(&client_region.rig.region, held);
    expect_word(&client_region, 0, 0, CLIENT_REGION_CLOSED);
    assert_true(client_region_is_ending(&client_region.rig.region));
    assert_int_equal(rig_wait_outcome(&client_region.rig).ticket.index, held.index);
    struct shm_word word = slot_where(&client_region.rig.region, waits.index);
    assert_true(!word.held && word.place == 0 && word.generation == waits.generation);
    region_detach(&client_region.rig.region);
    client_region_come(&client_region, lane, 7); /* the number is free again */
    assert_int_equal(
        client_region_call(&client_region, (struct rig_request){.command = PROBE_ECHO}).status,
        STATUS_OK);
    client_region_go(&client_region);
    rig_stop(lane);
}

enum { ENDING = 8 };

/* Stage by stage: in the end nothing is between the first stage's ring and the results. */
TEST_CASE(test_ends_stage_by_stage)
{
    static const struct rig_stage stages[] = {{.modelet = "probe", .workers = 2},
                                              {.modelet = "probe", .workers = 2},
                                              {.modelet = "probe"}};
    struct rig *lane = rig_start(stages, 3);
    static struct client_region client_region;
    for (int64_t delay_ms = 0; delay_ms < 6; delay_ms++) {
        client_region_come(&client_region, lane, 0);
        struct shm_ticket tickets[ENDING];
        for (int i = 0; i < ENDING; i++)
            tickets[i] = client_region_submit(
                &client_region, (struct rig_request){.command = PROBE_SLOW, .argument = delay_ms});
        for (uint32_t stage = 0; stage < lane->stage_count; stage++) {
            client_region_end_at(&client_region, stage);
            for (uint32_t k = 0; k < rig_worker_count(lane, stage); k++)
                expect_word(&client_region, stage, k, CLIENT_REGION_CLOSED);
        }
        for (int i = 0; i < ENDING; i++) {
            struct shm_word word = slot_where(&client_region.rig.region, tickets[i].index);
            assert_false(word.held);
            assert_true(word.place == 0 || word.place == lane->stage_count);
        }
        region_detach(&client_region.rig.region);
    }
    rig_stop(lane);
}

/* A request straight into the ring of the second stage, which no honest client does. */
static void
push_beyond(const struct region *region, struct shm_ticket ticket, int64_t command,
            int64_t argument)
{
    static struct payload_builder builder;
    struct shoal_tensor tensor = {.name = "probe",
                                  .datatype = SHOAL_INT64,
                                  .rank = 1,
                                  .shape = {PROBE_WORDS},
                                  .bytes = PROBE_WORDS * sizeof(int64_t)};
    struct error error = ERROR_NONE;
    void *data;
    builder_init(&builder, region, ticket.index, OWNER_COORDINATOR, NULL, NULL);
    assert_int_equal(builder_add(&builder, &tensor, &data, &error), STATUS_OK);
    memcpy(data, (int64_t[]){command, argument, 0}, tensor.bytes);
    struct shm_slot *slot = region_slot(region, ticket.index);
    assert_int_equal(builder_seal(&builder, &slot->payload[1], &error), STATUS_OK);
    slot_set_deadline(slot, TIME_NEVER_NS);
    assert_int_equal(slot_push(region, ticket, PLACE_FREE, 1, OWNER_COORDINATOR, 1), RING_OK);
}

/* A client that fills a later stage's ring again and again, and never lets its worker find it
 * empty, does not keep it. */
TEST_CASE(test_ends_against_its_client)
{
    static const struct rig_stage stages[] = {{.modelet = "probe"}, {.modelet = "probe"}};
    struct rig *lane = rig_start(stages, 2);
    static struct client_region client_region;
    client_region_come(&client_region, lane, 0);
    const struct region *region = &client_region.rig.region;
    struct shm_ticket ticket;
    while (slot_acquire(region, OWNER_COORDINATOR, &ticket) == RING_OK)
        push_beyond(region, ticket, PROBE_SLOW, 2);
    client_region_end_at(&client_region, 0);
    expect_word(&client_region, 0, 0, CLIENT_REGION_CLOSED);
    client_region_end_at(&client_region, 1);
    int64_t deadline_ns = clock_now_ns() + RIG_PATIENCE_NS;
    struct pollfd said = {.fd = lane->workers[1][0].control, .events = POLLIN};
    while (poll(&said, 1, 0) == 0 && clock_now_ns() < deadline_ns)
        if (slot_pop(region, 2, OWNER_COORDINATOR, &ticket) == RING_OK)
            assert_int_equal(slot_push(region, ticket, 2, 1, OWNER_COORDINATOR, 1), RING_OK);
    assert_true(clock_now_ns() < deadline_ns);
    expect_word(&client_region, 1, 0, CLIENT_REGION_CLOSED);
    assert_int_equal(slot_pop(region, PLACE_ERROR, OWNER_COORDINATOR, &ticket), RING_EMPTY);
    region_detach(&client_region.rig.region);
    assert_int_equal(rig_call(lane, (struct rig_request){.command = PROBE_ECHO}).status, STATUS_OK);
    rig_stop(lane);
}

/* A client region that is only looked at has no part in what the lane's items do to a worker. */
TEST_CASE(test_idle_client_region_is_not_held)
{
    static const struct rig_stage stages[] = {{.modelet = "probe", .batch_size = 4}};
    struct rig *lane = rig_start(stages, 1);
    struct shm_worker *entry = region_worker(&lane->region, 0, 0);
    static struct client_region client_region;
    client_region_come(&client_region, lane, 2);
    assert_int_equal(
        client_region_call(&client_region, (struct rig_request){.command = PROBE_ECHO}).status,
        STATUS_OK);
    for (int i = 0; i < 20; i++) {
        struct shm_ticket ticket = rig_submit(lane, (struct rig_request){.command = PROBE_WAIT});
        int64_t deadline_ns = clock_now_ns() + RIG_PATIENCE_NS;
        while (atomic_load(&entry->run_began_ns) == 0 && clock_now_ns() < deadline_ns)
            poll(NULL, 0, 1);
        assert_int_not_equal(atomic_load(&entry->run_began_ns), 0);
        assert_int_equal(atomic_load(&entry->run_client_regions), 0);
        slot_cancel(&lane->region, ticket);
        rig_wait_outcome(lane);
    }
    client_region_go(&client_region);
    rig_stop(lane);
}

static enum repair_verdict
run_again(void *context, struct shm_ticket ticket, uint8_t stage, struct error *error)
{
    (void)stage;
    (void)error;
    slot_run_alone(context, ticket);
    return REPAIR_RUN_AGAIN;
}

/* The place tells whose items the dead one held; the client repairs, and another worker runs it. */
TEST_CASE(test_client_repairs_after_a_death)
{
    static const struct rig_stage stages[] = {{.modelet = "probe", .workers = 2}};
    struct rig *lane = rig_start(stages, 1);
    static struct client_region client_region;
    client_region_come(&client_region, lane, 5);
    struct shm_ticket ticket =
        client_region_submit(&client_region, (struct rig_request){.command = PROBE_WAIT});
    uint16_t owner = wait_held(&client_region.rig.region, ticket);
    uint32_t index = atomic_load(&region_worker(&lane->region, 0, 0)->owner) == owner ? 0 : 1;
    assert_int_equal(atomic_load(&region_worker(&lane->region, 0, index)->run_client_regions),
                     1 << 5);
    kill(lane->workers[0][index].pid, SIGKILL);
    rig_wait_worker(lane, 0, index);
    struct repair_judge judge = {run_again, &client_region.rig.region};
    struct repair_report report;
    struct error error = ERROR_NONE;
    const struct repair_dead worker = {owner, 0, index};
    const struct repair_dead sharer = {owner, STAGES_MAX, 0};
    assert_int_equal(
        region_repair(&lane->region, &worker, OWNER_COORDINATOR, &judge, &report, &error),
        STATUS_OK);
    assert_int_equal(report.run_again, 0);
    assert_int_equal(region_repair(&client_region.rig.region, &sharer, OWNER_COORDINATOR, &judge,
                                   &report, &error),
                     STATUS_OK);
    assert_int_equal(report.run_again, 1);
    assert_int_not_equal(wait_held(&client_region.rig.region, ticket), owner);
    slot_cancel(&client_region.rig.region, ticket);
    assert_int_equal(rig_wait_outcome(&client_region.rig).ticket.index, ticket.index);
    client_region_assert_empty(&client_region);
    client_region_go(&client_region);
    rig_stop(lane);
}

/* Nobody else checks a client's requests against what the modelet declares. */
TEST_CASE(test_inputs_are_checked)
{
    static const struct rig_stage stages[] = {
        {.modelet = "probe", .param_name = "describe", .param_value = "inputs"}};
    struct rig *lane = rig_start(stages, 1);
    static struct client_region client_region;
    client_region_come(&client_region, lane, 0);
    assert_int_equal(
        client_region_call(&client_region, (struct rig_request){.command = PROBE_ECHO}).status,
        STATUS_OK);
    struct shm_ticket ticket =
        rig_push(&client_region.rig, (struct rig_request){.command = PROBE_ECHO});
    struct shm_slot *slot = region_slot(&client_region.rig.region, ticket.index);
    uint16_t block = slot->payload[0].blocks[slot->payload[0].table_block];
    struct payload_tensor *tensor =
        (void *)(arena_block(&client_region.rig.region, block) + slot->payload[0].table_offset);
    tensor->datatype = SHOAL_FP64; /* of the same size */
    doorbell_ring(client_region_bell(&client_region.rig.region, 0));
    struct rig_outcome outcome = rig_wait_outcome(&client_region.rig);
    assert_int_equal(outcome.status, STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(outcome.text, "datatype FP64, the model takes INT64"));
    client_region_go(&client_region);
    rig_stop(lane);
}

/* ---- hostile clients ---- */

static void
spoil_cell(const struct region *region)
{
    struct shm_ring ring = region_slot_ring(region, 0);
    uint64_t head = atomic_load(&ring.shared->head);
    atomic_fetch_or(&ring.shared->cells[head & (ring.cell_count - 1)],
                    CELL_FULL | CELL_INDEX_MASK); /* an index that there is not */
}

static void
spoil_head(const struct region *region)
{
    struct shm_ring ring = region_slot_ring(region, 0);
    atomic_fetch_add(&ring.shared->head, 3 * ring.cell_count); /* ahead of what any cell has seen */
}

static void
spoil_words(const struct region *region)
{
    for (uint32_t i = 0; i < region->slots.count; i++)
        atomic_store(object_word(&region->slots, i), 0);
}

/* Lost for each worker that meets it, and for nobody else; the worker lives, and forgets it. */
TEST_CASE(test_corrupt_client_region_is_lost)
{
    static void (*const spoilers[])(const struct region *) = {spoil_cell, spoil_head, spoil_words};
    static const struct rig_stage stages[] = {{.modelet = "probe"}};
    struct rig *lane = rig_start(stages, 1);
    static struct client_region good;
    static struct client_region bad;
    client_region_come(&good, lane, 1);
    for (size_t i = 0; i < sizeof(spoilers) / sizeof(spoilers[0]); i++) {
        client_region_come(&bad, lane, 0);
        assert_int_equal(
            client_region_call(&bad, (struct rig_request){.command = PROBE_ECHO}).status,
            STATUS_OK);
        rig_push(&bad.rig, (struct rig_request){.command = PROBE_ECHO});
        spoilers[i](&bad.rig.region);
        doorbell_ring(client_region_bell(&bad.rig.region, 0));
        expect_word(&bad, 0, 0, CLIENT_REGION_LOST);
        assert_int_equal(
            client_region_call(&good, (struct rig_request){.command = PROBE_ECHO}).status,
            STATUS_OK);
        assert_int_equal(rig_call(lane, (struct rig_request){.command = PROBE_ECHO}).status,
                         STATUS_OK);
        client_region_go(&bad);
    }
    client_region_go(&good);
    rig_stop(lane);
}

/* The word changes while the item is being run: what comes of it has nowhere to go. */
TEST_CASE(test_slot_taken_away_in_a_run)
{
    static const struct rig_stage stages[] = {{.modelet = "probe"}};
    struct rig *lane = rig_start(stages, 1);
    static struct client_region client_region;
    client_region_come(&client_region, lane, 0);
    struct shm_ticket ticket =
        client_region_submit(&client_region, (struct rig_request){.command = PROBE_WAIT});
    wait_held(&client_region.rig.region, ticket);
    atomic_fetch_add(object_word(&client_region.rig.region.slots, ticket.index), UINT64_C(1) << 32);
    slot_cancel(&client_region.rig.region, ticket);
    expect_word(&client_region, 0, 0, CLIENT_REGION_LOST);
    assert_int_equal(rig_call(lane, (struct rig_request){.command = PROBE_ECHO}).status, STATUS_OK);
    client_region_go(&client_region);
    rig_stop(lane);
}

/* An item that no worker can serve is lost on arrival. */
TEST_CASE(test_refused_on_arrival)
{
    static const struct rig_stage stages[] = {{.modelet = "probe"}};
    struct rig *lane = rig_start(stages, 1);
    static struct client_region client_region;
    client_region_make(&client_region, lane, 0);
    client_region.rig.region.header->magic++;
    struct handshake_client_region word = word_of(&client_region, CLIENT_REGION_OPEN);
    announce(lane, &word, client_region.rig.region.fd);
    expect_word(&client_region, 0, 0, CLIENT_REGION_LOST);
    assert_int_equal(rig_call(lane, (struct rig_request){.command = PROBE_ECHO}).status, STATUS_OK);
    client_region_go(&client_region);
    rig_stop(lane);
}

struct scribbler {
    const struct region *region;
    _Atomic bool stop;
    uint64_t random;
};

/* Writes into descriptors and tables, all the time: two loads of one word may differ. */
static void *
scribble(void *context)
{
    struct scribbler *scribbler = context;
    const struct region *region = scribbler->region;
    while (!atomic_load(&scribbler->stop)) {
        uint64_t word = random_draw(&scribbler->random);
        _Atomic uint8_t *place;
        if (word & 1) {
            struct shm_slot *slot = region_slot(region, (word >> 1) % region->slots.count);
            place = (_Atomic uint8_t *)&slot->payload[0] + (word >> 32) % 64;
        } else {
            place = (_Atomic uint8_t *)arena_block(region, (word >> 1) % 64) + (word >> 32) % 512;
        }
        atomic_store_explicit(place, (uint8_t)(word >> 48), memory_order_relaxed);
    }
    return NULL;
}

enum { ROUNDS = 40, CALLS = 50 };

/* A client whose descriptors change while they are read: the worker is the same at the end, and the
 * lane's requests are answered meanwhile. */
TEST_CASE(test_descriptors_change_while_read)
{
    static const struct rig_stage stages[] = {{.modelet = "probe", .batch_size = 4}};
    struct rig *lane = rig_start(stages, 1);
    pid_t pid = lane->workers[0][0].pid;
    static struct client_region client_region;
    uint64_t random = random_seed((uint64_t)clock_now_ns());
    for (int round = 0; round < ROUNDS; round++) {
        client_region_come(&client_region, lane, 0);
        struct scribbler scribbler = {.region = &client_region.rig.region,
                                      .random = random_draw(&random)};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, scribble, &scribbler), 0);
        for (int i = 0; i < CALLS; i++) {
            /* forwards only: what the probe is told may change too */
            struct shm_ticket ticket;
            if (slot_acquire(&client_region.rig.region, OWNER_COORDINATOR, &ticket) != RING_OK)
                break;
            struct shm_payload *payload =
                &region_slot(&client_region.rig.region, ticket.index)->payload[0];
            *payload = (struct shm_payload){.block_count = 1, .tensor_count = 1, .table_bytes = 96};
            (void)!slot_push(&client_region.rig.region, ticket, PLACE_FREE, 0, OWNER_COORDINATOR,
                             clock_now_ns());
            doorbell_ring(client_region_bell(&client_region.rig.region, 0));
            assert_int_equal(rig_call(lane, (struct rig_request){.command = PROBE_ECHO}).status,
                             STATUS_OK);
        }
        atomic_store(&scribbler.stop, true);
        pthread_join(thread, NULL);
        struct handshake_client_region word = word_of(&client_region, CLIENT_REGION_DISCARD);
        announce(lane, &word, -1);
        struct handshake_client_region said = receive(lane, 0, 0);
        if (said.event == CLIENT_REGION_LOST)
            said = receive(lane, 0, 0);
        assert_int_equal(said.event, CLIENT_REGION_CLOSED);
        region_detach(&client_region.rig.region);
    }
    assert_int_equal(lane->workers[0][0].pid, pid);
    rig_stop(lane);
}

TEST_MAIN()
