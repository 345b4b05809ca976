/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctest: presets=tsan
 *
 * Scopes of the counters that come and go: the claims, the readers' view of them, and that a reader
 * that opens the file amid changes sees a whole table every time, and no name with another's
 * values.
 */
#include "test_counters_rig.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "ipc/snapshot.h"

static const struct counters_spec with_spares[] = {
    {SCOPE_NODE, 0, "node"}, {SCOPE_PIPELINE, 0, "digits"}, {SCOPE_STAGE, 1, "classify"},
    {SCOPE_WORKER, 2, "0"},  {SCOPE_SPARE, 0, ""},          {SCOPE_SPARE, 0, ""},
    {SCOPE_SPARE, 0, ""},
};

enum { WITH_SPARES = ARRAY_COUNT(with_spares), CLASSIFY = 2, CLASSIFY_0 = 3, FIRST_SPARE = 4 };

static struct counters
create_with_spares(void)
{
    struct counters counters;
    struct error error = ERROR_NONE;
    if (counters_create(&counters, path, with_spares, WITH_SPARES, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return counters;
}

static uint32_t
claim(struct counters *counters, enum counter_scope kind, uint32_t parent, const char *name)
{
    uint32_t scope = 0;
    struct error error = ERROR_NONE;
    if (counters_claim(counters, kind, parent, name, &scope, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return scope;
}

static enum counter_scope
seen(uint32_t scope)
{
    struct counters reader = open_expecting(true);
    enum counter_scope kind = (enum counter_scope)reader.scopes[scope].kind;
    counters_close(&reader);
    return kind;
}

TEST_CASE(test_worker_is_one_claimant_s)
{
    struct counters counters = create_with_spares();
    assert_int_equal(claim(&counters, SCOPE_STAGE, PIPELINE, "classify"), CLASSIFY);
    assert_int_equal(claim(&counters, SCOPE_WORKER, CLASSIFY, "0"), CLASSIFY_0);
    uint32_t second = claim(&counters, SCOPE_WORKER, CLASSIFY, "0");
    assert_int_equal(second, FIRST_SPARE);
    counter_add(counters_values(&counters, CLASSIFY_0), WORKER_ITEMS, 3);
    counters_release(&counters, CLASSIFY_0);
    /* its values go on with the next one of that name */
    assert_int_equal(claim(&counters, SCOPE_WORKER, CLASSIFY, "0"), CLASSIFY_0);
    assert_int_equal(counter_get(counters_values(&counters, CLASSIFY_0), WORKER_ITEMS), 3);
    /* a worker's whole values fit into what was spare */
    histogram_record(counters_values(&counters, second), WORKER_RUN, UINT64_MAX);
    assert_int_equal(counter_get(counters_values(&counters, FIRST_SPARE + 1), WORKER_PID), 0);
    counters_close(&counters);
}

TEST_CASE(test_stage_is_shared_and_hidden_after_the_last)
{
    struct counters counters = create_with_spares();
    uint32_t label = claim(&counters, SCOPE_STAGE, PIPELINE, "label");
    uint32_t worker = claim(&counters, SCOPE_WORKER, label, "0");
    assert_true(worker > label);
    assert_int_equal(claim(&counters, SCOPE_STAGE, PIPELINE, "label"), label);
    assert_int_equal(seen(label), SCOPE_STAGE);
    assert_int_equal(seen(worker), SCOPE_WORKER);
    counters_release(&counters, label);
    assert_int_equal(seen(label), SCOPE_STAGE);
    counters_release(&counters, worker);
    assert_int_equal(seen(worker), SCOPE_WORKER);
    counters_release(&counters, label);
    assert_int_equal(seen(label), SCOPE_SPARE);
    assert_int_equal(seen(worker), SCOPE_SPARE);
    assert_int_equal(claim(&counters, SCOPE_STAGE, PIPELINE, "label"), label);
    assert_int_equal(claim(&counters, SCOPE_WORKER, label, "0"), worker);
    assert_int_equal(seen(worker), SCOPE_WORKER);
    counters_close(&counters);
}

TEST_CASE(test_no_room)
{
    struct counters counters = create_with_spares();
    claim(&counters, SCOPE_STAGE, PIPELINE, "classify");
    claim(&counters, SCOPE_STAGE, PIPELINE, "a");
    claim(&counters, SCOPE_STAGE, PIPELINE, "b");
    claim(&counters, SCOPE_STAGE, PIPELINE, "c");
    uint32_t scope;
    struct error error = ERROR_NONE;
    assert_int_equal(counters_claim(&counters, SCOPE_STAGE, PIPELINE, "d", &scope, &error),
                     STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "\"d\""));
    /* what nobody claims any more makes room, and begins at 0 */
    uint32_t before = claim(&counters, SCOPE_STAGE, PIPELINE, "a");
    counter_set(counters_values(&counters, before), STAGE_RESTARTS, 7);
    counters_release(&counters, before);
    counters_release(&counters, before);
    assert_int_equal(claim(&counters, SCOPE_STAGE, PIPELINE, "d"), before);
    assert_int_equal(counter_get(counters_values(&counters, before), STAGE_RESTARTS), 0);
    assert_int_equal(seen(before), SCOPE_STAGE);
    counters_close(&counters);
}

TEST_CASE(test_reader_knows_of_changes)
{
    struct counters counters = create_with_spares();
    struct counters reader = open_expecting(true);
    counter_add(counters_values(&counters, CLASSIFY_0), WORKER_ITEMS, 1);
    assert_true(counters_unchanged(&reader));
    uint32_t label = claim(&counters, SCOPE_STAGE, PIPELINE, "label");
    assert_false(counters_unchanged(&reader));
    counters_close(&reader);
    reader = open_expecting(true);
    assert_true(counters_unchanged(&reader));
    counters_release(&counters, label);
    assert_false(counters_unchanged(&reader));
    counters_close(&reader);
    counters_close(&counters);
}

/* ---- amid changes: some fall into every read, but they do pause, as real ones do ---- */

struct changer {
    struct counters *counters;
    pthread_t thread;
    sem_t begun; /* a read begins; several may be one while the other thread gets no time */
    atomic_bool waits;
    atomic_bool stop;
    atomic_uint changes;
};

static void
changer_start(struct changer *changer, struct counters *counters, void *(*run)(void *changer))
{
    *changer = (struct changer){.counters = counters};
    assert_int_equal(sem_init(&changer->begun, 0, 0), 0);
    assert_int_equal(pthread_create(&changer->thread, NULL, run, changer), 0);
}

static void
read_begins(struct changer *changer)
{
    if (atomic_exchange(&changer->waits, false))
        assert_int_equal(sem_post(&changer->begun), 0);
}

/* It waits asleep: on a busy machine, a polling process is given no time for long. */
static void
wait_for_read(struct changer *changer)
{
    atomic_store(&changer->waits, true);
    while (sem_wait(&changer->begun) != 0)
        CHECK(errno == EINTR);
}

static void
changer_stop(struct changer *changer)
{
    atomic_store(&changer->stop, true);
    assert_int_equal(sem_post(&changer->begun), 0);
    assert_int_equal(pthread_join(changer->thread, NULL), 0);
    assert_int_equal(sem_destroy(&changer->begun), 0);
}

enum { BURST = 50 }; /* as long as a few reads last: some fall between two changes, some amid one */

static void *
change(void *context)
{
    struct changer *changer = context;
    for (;;) {
        wait_for_read(changer);
        if (atomic_load(&changer->stop))
            return NULL;
        for (int i = 0; i < BURST; i++) {
            uint32_t stage = claim(changer->counters, SCOPE_STAGE, PIPELINE, "label");
            uint32_t worker = claim(changer->counters, SCOPE_WORKER, stage, "0");
            counters_release(changer->counters, worker);
            counters_release(changer->counters, stage);
        }
        atomic_fetch_add(&changer->changes, 1);
    }
}

/* On a busy machine each change is a wait for the other thread's turn: a few are enough then. */
TEST_CASE(test_readers_see_a_whole_table)
{
    enum { READS = 500, CHANGES = 100 };
    struct counters counters = create_with_spares();
    struct changer changer;
    changer_start(&changer, &counters, change);
    uint32_t reads_with = 0;
    for (int i = 0; i < READS || atomic_load(&changer.changes) < CHANGES; i++) {
        read_begins(&changer);
        struct counters reader = open_expecting(true); /* fails on a torn table */
        for (uint32_t k = FIRST_SPARE; k < WITH_SPARES; k++)
            reads_with += reader.scopes[k].kind == SCOPE_WORKER;
        counters_close(&reader);
    }
    changer_stop(&changer);
    print_message("%u bursts of changes; seen with a worker: %u\n", atomic_load(&changer.changes),
                  reads_with);
    counters_close(&counters);
}

/* The same scope is one stage's, then the other's; each writes a value of its own into it, at any
 * moment of a read. */
static void *
take_turns(void *context)
{
    struct changer *changer = context;
    static const char *const names[] = {"odd", "even"};
    uint32_t stage = claim(changer->counters, SCOPE_STAGE, PIPELINE, names[0]);
    for (unsigned turn = 1; !atomic_load(&changer->stop); turn++) {
        wait_for_read(changer);
        for (unsigned pause = turn * 7919 % 400000; pause > 0 && !atomic_load(&changer->stop);)
            pause--;
        counters_release(changer->counters, stage);
        stage = claim(changer->counters, SCOPE_STAGE, PIPELINE, names[turn % 2]);
        counter_set(counters_values(changer->counters, stage), STAGE_RESTARTS, 1 + turn % 2);
        atomic_fetch_add(&changer->changes, 1);
    }
    return NULL;
}

TEST_CASE(test_snapshots_mix_nothing)
{
    enum { TURNS = 50, WORKERS = 500, LAST = CLASSIFY + 1 + WORKERS };
    struct counters_spec specs[LAST + 1] = {
        {SCOPE_NODE, 0, "node"}, {SCOPE_PIPELINE, 0, "digits"}, {SCOPE_STAGE, 1, "classify"}};
    for (int i = 0; i < WORKERS; i++) /* what takes a while to copy */
        specs[CLASSIFY + 1 + i] = (struct counters_spec){SCOPE_WORKER, CLASSIFY, "0"};
    specs[LAST] = (struct counters_spec){SCOPE_SPARE, 0, ""};
    struct counters counters;
    struct error error = ERROR_NONE;
    assert_int_equal(counters_create(&counters, path, specs, LAST + 1, &error), STATUS_OK);
    assert_int_equal(claim(&counters, SCOPE_STAGE, PIPELINE, "classify"), CLASSIFY);
    struct changer changer;
    changer_start(&changer, &counters, take_turns);
    while (atomic_load(&changer.changes) < TURNS) {
        read_begins(&changer);
        struct snapshot snapshot;
        assert_int_equal(snapshot_read(&snapshot, path, &error), STATUS_OK);
        const struct snapshot_scope *last = &snapshot.scopes[LAST];
        if (last->kind == SCOPE_STAGE) {
            uint64_t own = strcmp(last->name, "odd") == 0 ? 1 : 2;
            uint64_t value = snapshot_value(last, STAGE_RESTARTS);
            if (value != 0 && value != own)
                fail_msg("%s has the other's value", last->name);
        }
        snapshot_free(&snapshot);
    }
    changer_stop(&changer);
    counters_close(&counters);
}

TEST_MAIN(.setup = folder_make, .teardown = folder_remove)
