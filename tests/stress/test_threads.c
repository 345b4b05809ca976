/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code of src/shm between threads of one process, where ThreadSanitizer sees a wrong memory
 * order that between two processes passes in silence. One coordinator thread and several worker
 * threads for each of two stages pass requests through a region of few slots, so that rings turn
 * often and all threads meet at the same cells; blocks are few enough that acquiring one sometimes
 * fails. Besides, threads toss objects to and fro between two bare rings on plain memory.
 *
 * ctest: timeout=120 presets=tsan
 */
#include <pthread.h>
#include <stdlib.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "rig.h"
#include "shm/arena.h"
#include "shm/doorbell.h"
#include "shm/former.h"

enum { STAGES = 2, WORKERS = 2, SLOTS = 6, REQUESTS = 20000 };
#define DEADLINE_NS (100 * NS_PER_S)
#define COMPANY_NS (100 * 1000)

static _Atomic bool stop;

/* ---- a pipeline ---- */

struct thread_worker {
    const struct region *region;
    uint32_t stage;
    uint32_t index;
    uint16_t owner;
    pthread_t thread;
    uint64_t run;
};

static void
worker_turn(struct thread_worker *worker)
{
    const struct region *region = worker->region;
    struct shm_doorbell *bell = &region_worker(region, worker->stage, worker->index)->bell;
    if (former_take(region, worker->stage, worker->index, worker->owner)) {
        struct shm_ticket ticket;
        enum ring_result result = slot_pop(region, (uint8_t)worker->stage, worker->owner, &ticket);
        if (result == RING_OK && ticket.generation % 16 == 0) { /* as if it waited for company */
            doorbell_sleep(bell, doorbell_prepare(bell), COMPANY_NS);
            CHECK(atomic_load(&region_stage(region, worker->stage)->former) ==
                  (worker->index << 16 | worker->owner));
        }
        former_leave(region, worker->stage, worker->index, worker->owner);
        CHECK(result != RING_CORRUPT);
        if (result == RING_OK) {
            CHECK(rig_run(region, worker->stage, worker->owner, ticket) == RING_OK);
            worker->run++;
            if (worker->stage + 1 < STAGES)
                stage_notify(region, worker->stage + 1);
            doorbell_ring(&region->header->coordinator_bell);
            return;
        }
    }
    idle_enter(region, worker->stage, worker->index);
    uint32_t prepared = doorbell_prepare(bell);
    if (atomic_load(&stop) ||
        stage_wants_former(region, worker->stage, worker->index, worker->owner))
        doorbell_cancel(bell);
    else
        doorbell_sleep(bell, prepared, NS_PER_S);
    idle_leave(region, worker->stage, worker->index);
}

static void *
worker_main(void *argument)
{
    struct thread_worker *worker = argument;
    while (!atomic_load(&stop))
        worker_turn(worker);
    return NULL;
}

static void
start_workers(const struct region *region, struct thread_worker *workers)
{
    atomic_store(&stop, false);
    for (uint32_t i = 0; i < STAGES * WORKERS; i++) {
        workers[i] = (struct thread_worker){.region = region,
                                            .stage = i / WORKERS,
                                            .index = i % WORKERS,
                                            .owner = (uint16_t)(OWNER_COORDINATOR + 1 + i)};
        atomic_store(&region_worker(region, workers[i].stage, workers[i].index)->owner,
                     workers[i].owner);
        CHECK(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) == 0);
    }
}

static void
stop_workers(const struct region *region, struct thread_worker *workers)
{
    atomic_store(&stop, true);
    stages_awaken(region);
    for (uint32_t i = 0; i < STAGES * WORKERS; i++)
        CHECK(pthread_join(workers[i].thread, NULL) == 0);
}

static void
coordinate(const struct region *region, struct rig_ledger *ledger)
{
    struct shm_doorbell *bell = &region->header->coordinator_bell;
    struct shm_ring results = region_slot_ring(region, region_result_place(region));
    struct shm_ring errors = region_slot_ring(region, PLACE_ERROR);
    int64_t end_ns = clock_now_ns() + DEADLINE_NS;
    while (ledger->answered < REQUESTS) {
        assert_true(clock_now_ns() < end_ns);
        uint32_t done = 0;
        while (rig_gather(region, ledger) == RING_OK)
            done++;
        uint64_t before = ledger->submitted;
        while (ledger->submitted < REQUESTS &&
               rig_submit(region, ledger, ledger->submitted + 1) == RING_OK)
            stage_notify(region, 0);
        if (done > 0 || ledger->submitted > before)
            continue;
        uint32_t prepared = doorbell_prepare(bell);
        if (ring_has_cell(&results) || ring_has_cell(&errors))
            doorbell_cancel(bell);
        else
            doorbell_sleep(bell, prepared, NS_PER_S);
    }
}

enum keeps { NOBODY_KEEPS, COORDINATOR_KEEPS, ALL_KEEP };

/* Blocks are kept (arena.h) by nobody, by the thread that submits and gathers, as in a lane, or by
 * all threads together, as with several fronts. */
static void
run_pipeline(enum keeps keeps)
{
    struct region region;
    struct error error = ERROR_NONE;
    struct region_plan plan = rig_plan(STAGES, WORKERS, SLOTS);
    static struct rig_ledger ledger;
    struct thread_worker workers[STAGES * WORKERS];
    assert_int_equal(region_create(&region, &plan, 1, &error), STATUS_OK);
    ledger = (struct rig_ledger){0};
    struct region keeper = region;
    struct arena_kept kept;
    if (keeps != NOBODY_KEEPS)
        arena_keep(&keeper, &kept);
    start_workers(keeps == ALL_KEEP ? &keeper : &region, workers);
    coordinate(&keeper, &ledger);
    stop_workers(&region, workers);
    uint64_t run = 0;
    for (uint32_t i = 0; i < STAGES * WORKERS; i++)
        run += workers[i].run;
    assert_in_range(run, REQUESTS, (uint64_t)STAGES * REQUESTS);
    assert_int_equal(ledger.answered, REQUESTS);
    assert_int_equal(ledger.strange, 0);
    assert_int_equal(ledger.wrong, 0);
    const char *wrong = rig_conserved(&keeper);
    if (wrong != NULL)
        fail_msg("%s", wrong);
    region_detach(&region);
}

TEST_CASE(test_pipeline)
{
    run_pipeline(NOBODY_KEEPS);
}

TEST_CASE(test_pipeline_keeps)
{
    run_pipeline(COORDINATOR_KEEPS);
}

TEST_CASE(test_pipeline_all_keep)
{
    run_pipeline(ALL_KEEP);
}

/* ---- bare rings ---- */

enum { OBJECTS = 32, TOSSERS = 4, TOSSES = 30000 };

struct object {
    _Alignas(64) _Atomic uint64_t word;
    uint64_t value; /* plain: belongs to the object's owner */
};

static struct object table[OBJECTS];
static struct shm_ring rings[2];
static const struct shm_objects objects = {/* the word is an object's first member */
                                           .first = (char *)table,
                                           .stride = sizeof(struct object),
                                           .count = OBJECTS};

static void
rings_fill(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        rings[i] = (struct shm_ring){
            .cell_count = RING_CELLS_MIN, .cell_count_log2 = 6, .place = (uint8_t)i};
        rings[i].shared = aligned_alloc(64, (ring_bytes(RING_CELLS_MIN) + 63) / 64 * 64);
        assert_non_null(rings[i].shared);
        ring_init(&rings[i]);
    }
    for (uint32_t i = 0; i < OBJECTS; i++) {
        uint64_t held = word_pack((struct shm_word){.generation = 1, .held = true, .owner = 1});
        atomic_store(&table[i].word, held);
        assert_int_equal(ring_push(&rings[i % 2], &objects, i, held, 1, 1), RING_OK);
    }
}

static void *
toss(void *argument)
{
    uint16_t owner = (uint16_t)(uintptr_t)argument;
    uint32_t done = 0;
    while (done < TOSSES) {
        uint8_t from = done & 1;
        struct shm_ticket ticket;
        enum ring_result result = ring_pop(&rings[from], &objects, owner, &ticket);
        CHECK(result != RING_CORRUPT);
        if (result != RING_OK) { /* all are in the other ring */
            done++;
            continue;
        }
        table[ticket.index].value++;
        uint64_t held = word_pack((struct shm_word){
            .generation = ticket.generation, .place = from, .held = true, .owner = owner});
        CHECK(ring_push(&rings[1 - from], &objects, ticket.index, held,
                        generation_next(ticket.generation), owner) == RING_OK);
        done++;
    }
    return NULL;
}

TEST_CASE(test_rings)
{
    rings_fill();
    pthread_t threads[TOSSERS];
    for (uintptr_t i = 0; i < TOSSERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, toss, (void *)(i + 2)), 0);
    for (uint32_t i = 0; i < TOSSERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    uint64_t tosses = 0, generations = 0;
    uint32_t found = 0;
    struct shm_ticket ticket;
    for (uint32_t i = 0; i < 2; i++)
        while (ring_pop(&rings[i], &objects, 1, &ticket) == RING_OK) {
            found++;
            tosses += table[ticket.index].value;
            generations += ticket.generation - 1;
        }
    assert_int_equal(found, OBJECTS);
    assert_int_equal(tosses, generations);
    assert_in_range(tosses, TOSSES, (uint64_t)TOSSERS * TOSSES);
    free(rings[0].shared);
    free(rings[1].shared);
}

TEST_MAIN()
