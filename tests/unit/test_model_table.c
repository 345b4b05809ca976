/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table that a worker's two threads share, between two threads: models are taken out and
 * destroyed while the other thread runs them at random, and none is ever run that is destroyed, nor
 * destroyed while it is run. TSan sees the rest: whether what one thread wrote into a model the
 * other may read.
 *
 * ctest: timeout=120 presets=tsan
 */
#include <pthread.h>
#include <sched.h>

#include "../test.h"
#include "base/clock.h"
#include "ipc/handshake.h"
#include "worker/model_table.h"

enum { NUMBERS = 3, LIVES = 300 };

/* The test defines the models. */
struct loaded_model {
    uint64_t word;
    uint64_t runs; /* by the one thread, read by the other when it is over */
    int alive;
};

struct scene {
    struct model_table table;
    struct shm_doorbell main_bell;
    _Atomic int stop;
    _Atomic uint64_t runs; /* relaxed: the count must not order what is tested */
    uint64_t misses;
    uint64_t flushed;
};

static void *
run_at_random(void *context)
{
    struct scene *scene = context;
    uint32_t random = 1;
    uint32_t lives[NUMBERS + 1] = {0};
    while (!atomic_load(&scene->stop)) {
        random = random * 1664525 + 1013904223;
        uint32_t number = 1 + (random >> 16) % NUMBERS;
        uint64_t word = model_word(number, lives[number] + 1);
        struct loaded_model *loaded = model_table_enter(&scene->table, word);
        if (loaded == NULL) {
            scene->misses++;
            lives[number] = (uint32_t)(atomic_load(&scene->table.entries[number].word) >> 32);
            lives[number] -= lives[number] > 0;
        } else {
            assert_true(loaded->word == word);
            assert_int_equal(loaded->alive, 1);
            loaded->runs++;
            atomic_fetch_add_explicit(&scene->runs, 1, memory_order_relaxed);
            assert_int_equal(loaded->alive, 1);
            model_table_leave(&scene->table);
        }
        if (model_table_flush_wanted(&scene->table)) {
            scene->flushed++;
            model_table_flushed(&scene->table);
        }
    }
    return NULL;
}

/* So that what is taken out next is often run just then. */
static void
wait_for_a_run(struct scene *scene)
{
    uint64_t before = atomic_load_explicit(&scene->runs, memory_order_relaxed);
    int64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    while (atomic_load_explicit(&scene->runs, memory_order_relaxed) == before)
        if (clock_now_ns() > deadline_ns || sched_yield() != 0)
            fail_msg("nothing is run");
}

TEST_CASE(test_two_threads)
{
    static struct scene scene;
    static struct loaded_model models[NUMBERS + 1];
    pthread_t thread;
    assert_true(model_table_init(&scene.table));
    assert_int_equal(pthread_create(&thread, NULL, run_at_random, &scene), 0);
    uint64_t runs = 0;
    for (uint32_t life = 1; life <= LIVES; life++) {
        for (uint32_t number = 1; number <= NUMBERS; number++) {
            models[number] = (struct loaded_model){.word = model_word(number, life), .alive = 1};
            assert_true(model_table_free(&scene.table, models[number].word));
            assert_true(model_table_add(&scene.table, models[number].word, &models[number]));
        }
        wait_for_a_run(&scene);
        for (uint32_t number = 1; number <= NUMBERS; number++) {
            struct loaded_model *loaded =
                model_table_remove(&scene.table, model_word(number, life));
            assert_ptr_equal(loaded, &models[number]);
            runs += loaded->runs;
            loaded->alive = 0;
            assert_null(model_table_remove(&scene.table, model_word(number, life)));
        }
        if (life % 100 == 0)
            model_table_flush(&scene.table, &scene.main_bell, NS_PER_S);
    }
    atomic_store(&scene.stop, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(runs == scene.runs && runs >= LIVES);
    assert_true(scene.flushed > 0);
    print_message("%llu runs, %llu misses\n", (unsigned long long)scene.runs,
                  (unsigned long long)scene.misses);
    model_table_fini(&scene.table);
}

TEST_CASE(test_words_that_are_none)
{
    struct model_table table;
    struct loaded_model model = {0};
    assert_true(model_table_init(&table));
    const uint64_t none[] = {0, model_word(0, 1), model_word(MODEL_NUMBER_MAX + 1, 1),
                             model_word(UINT32_MAX, UINT32_MAX)};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        assert_false(model_table_has(&table, none[i]));
        assert_null(model_table_enter(&table, none[i]));
        assert_null(model_table_remove(&table, none[i]));
    }
    uint64_t last = model_word(MODEL_NUMBER_MAX, 7);
    assert_true(model_table_add(&table, last, &model));
    assert_false(model_table_add(&table, model_word(MODEL_NUMBER_MAX, 8), &model));
    assert_true(model_table_has(&table, last));
    assert_false(model_table_has(&table, model_word(MODEL_NUMBER_MAX, 6)));
    uint32_t from = 0;
    assert_ptr_equal(model_table_next(&table, &from), &model);
    assert_ptr_equal(model_table_remove(&table, last), &model);
    from = 0;
    assert_null(model_table_next(&table, &from));
    model_table_fini(&table);
}

/* A main thread that is in a run, or asleep for good, is not waited for longer than was said. */
TEST_CASE(test_flush_does_not_wait_for_a_run)
{
    struct model_table table;
    struct shm_doorbell bell = {0};
    struct loaded_model model = {0};
    assert_true(model_table_init(&table));
    assert_true(model_table_add(&table, model_word(1, 1), &model));
    assert_ptr_equal(model_table_enter(&table, model_word(1, 1)), &model);
    model_table_flush(&table, &bell, 1000 * NS_PER_S);
    assert_true(model_table_flush_wanted(&table));
    model_table_leave(&table);
    model_table_flush(&table, &bell, NS_PER_MS);
    model_table_flushed(&table);
    assert_false(model_table_flush_wanted(&table));
    model_table_fini(&table);
}

TEST_MAIN()
