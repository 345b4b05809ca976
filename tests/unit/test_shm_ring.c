/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words, cells and rings on plain memory in one process: packing, order, all fill levels, laps and
 * their wrap, hints that lag or are garbage, stale cells, and contents that no honest process
 * writes, which must end in RING_CORRUPT and never in a hang or an access outside.
 */
#include <stdlib.h>

#include "../random.h"
#include "../test.h"
#include "base/check.h"
#include "shm/ring.h"

enum { OBJECTS = 32, CELLS = RING_CELLS_MIN, PARTY = 7, OTHER = 9, PLACE = 3 };

static _Atomic uint64_t words[OBJECTS];
static struct shm_objects objects = {
    .first = (void *)(uintptr_t)words, .stride = sizeof(uint64_t), .count = OBJECTS};
static struct shm_ring ring = {.cell_count = CELLS, .cell_count_log2 = 6, .place = PLACE};

static uint64_t
held(uint32_t index)
{
    struct shm_word word = word_unpack(atomic_load(&words[index]));
    return word_pack((struct shm_word){
        .generation = word.generation, .place = word.place, .held = true, .owner = PARTY});
}

/* All objects held by PARTY, the ring empty, as if it had turned `laps` times. */
static int
fresh_at(uint64_t laps)
{
    free(ring.shared);
    /* exactly as large as it must be, so that ASan sees one byte too far */
    ring.shared = aligned_alloc(64, ring_bytes(CELLS));
    if (ring.shared == NULL)
        return -1;
    ring_init(&ring);
    for (uint32_t i = 0; i < CELLS; i++)
        atomic_store(&ring.shared->cells[i], cell_empty(laps));
    atomic_store(&ring.shared->head, laps * CELLS);
    atomic_store(&ring.shared->tail, laps * CELLS);
    for (uint32_t i = 0; i < OBJECTS; i++)
        atomic_store(&words[i],
                     word_pack((struct shm_word){
                         .generation = 1, .place = PLACE, .held = true, .owner = PARTY}));
    return 0;
}

static int
fresh(void **state)
{
    (void)state;
    return fresh_at(0);
}

static int
dispose(void **state)
{
    (void)state;
    free(ring.shared);
    ring.shared = NULL;
    return 0;
}

static void
push(uint32_t index)
{
    uint32_t generation = word_unpack(atomic_load(&words[index])).generation;
    assert_int_equal(ring_push(&ring, &objects, index, held(index), generation, PARTY), RING_OK);
}

static void
pop_expect(uint32_t index)
{
    struct shm_ticket ticket = {0};
    assert_int_equal(ring_pop(&ring, &objects, PARTY, &ticket), RING_OK);
    assert_int_equal(ticket.index, index);
    assert_int_equal(atomic_load(&words[index]) >> 32, ticket.generation);
}

static void
expect_empty(void)
{
    assert_int_equal(ring_pop(&ring, &objects, PARTY, NULL), RING_EMPTY);
    assert_false(ring_has_cell(&ring));
}

/* ---- words and cells ---- */

TEST_CASE_WITH(test_words, NULL, NULL)
{
    struct shm_word word = {
        .generation = UINT32_MAX, .turn = 127, .place = PLACE_FREE, .held = true, .owner = 0xfffe};
    struct shm_word same = word_unpack(word_pack(word));
    assert_int_equal(same.generation, UINT32_MAX);
    assert_int_equal(same.turn, 127);
    assert_int_equal(same.place, PLACE_FREE);
    assert_true(same.held);
    assert_int_equal(same.owner, 0xfffe);
    /* each field has bits of its own */
    assert_int_equal(word_pack((struct shm_word){.turn = 1}), UINT64_C(1) << 25);
    assert_int_equal(word_pack((struct shm_word){.held = true}), UINT64_C(1) << 24);
    assert_int_equal(word_pack((struct shm_word){.turn = 128}), 0);
    assert_false(word_possible(word_pack((struct shm_word){.held = true, .owner = 1})));
    assert_true(word_possible(word_pack((struct shm_word){.generation = 1})));
    struct shm_word turned = word;
    turned.turn = 0;
    assert_true(word_same_hold(word_pack(word), word_pack(turned)));
    turned.owner = 1;
    assert_false(word_same_hold(word_pack(word), word_pack(turned)));
    assert_int_equal(generation_next(1), 2);
    assert_int_equal(generation_next(UINT32_MAX), 1);
}

TEST_CASE_WITH(test_cells, NULL, NULL)
{
    struct shm_word word = {.generation = 0x12345678, .turn = 5};
    uint64_t lap = CELL_LAP_MASK + 3;
    uint64_t cell = cell_full(lap, 0xffff, word);
    assert_true(cell_is_full(cell));
    assert_int_equal(cell_lap(cell), 2); /* the lap wraps */
    assert_int_equal(cell_index(cell), 0xffff);
    assert_true(cell_names(cell, 0xffff, word));
    assert_false(cell_names(cell, 0xfffe, word));
    word.turn = 6; /* another push of the same use */
    assert_false(cell_names(cell, 0xffff, word));
    word.turn = 5;
    word.generation++;
    assert_false(cell_names(cell, 0xffff, word));
    assert_false(cell_is_full(cell_empty(lap)));
    assert_int_equal(cell_lap(cell_empty(lap)), 2);
}

/* ---- honest use ---- */

TEST_CASE(test_order_and_levels)
{
    expect_empty();
    static const uint32_t levels[] = {1, 2, OBJECTS / 2, OBJECTS - 1, OBJECTS};
    for (uint32_t n = 0; n < ARRAY_COUNT(levels); n++) {
        for (uint32_t i = 0; i < levels[n]; i++)
            push(i);
        assert_true(ring_has_cell(&ring));
        assert_int_equal(ring_depth(&ring), levels[n]);
        for (uint32_t i = 0; i < levels[n]; i++)
            pop_expect(i);
        expect_empty();
        assert_int_equal(ring_depth(&ring), 0);
    }
}

TEST_CASE(test_peek)
{
    struct shm_ticket next;
    assert_false(ring_peek(&ring, &objects, &next));
    push(4);
    push(5);
    for (uint32_t i = 0; i < 3; i++) { /* it takes nothing */
        assert_true(ring_peek(&ring, &objects, &next));
        assert_int_equal(next.index, 4);
        assert_int_equal(next.generation, 1);
    }
    pop_expect(4);
    assert_true(ring_peek(&ring, &objects, &next));
    assert_int_equal(next.index, 5);
    /* claimed by a process that died before it emptied the cell: not returned again */
    struct shm_word word = word_unpack(atomic_load(&words[5]));
    word.held = true;
    atomic_store(&words[5], word_pack(word));
    assert_false(ring_peek(&ring, &objects, &next));
}

TEST_CASE(test_push_of_what_is_not_held)
{
    push(0);
    /* it waits now, or another holds it, or it is of another generation */
    assert_int_equal(ring_push(&ring, &objects, 0, held(0), 1, PARTY), RING_LOST);
    pop_expect(0);
    uint64_t another =
        word_pack((struct shm_word){.generation = 1, .place = PLACE, .held = true, .owner = OTHER});
    assert_int_equal(ring_push(&ring, &objects, 0, another, 1, OTHER), RING_LOST);
    another =
        word_pack((struct shm_word){.generation = 2, .place = PLACE, .held = true, .owner = PARTY});
    assert_int_equal(ring_push(&ring, &objects, 0, another, 2, PARTY), RING_LOST);
    expect_empty();
}

TEST_CASE(test_turn_counts_pushes)
{
    for (uint32_t i = 0; i < 2 * (WORD_TURN_MAX + 1); i++) {
        assert_int_equal(word_unpack(atomic_load(&words[0])).turn, i & WORD_TURN_MAX);
        push(0);
        pop_expect(0);
    }
}

/* The cell of a push that has been claimed says nothing of the next push of the same ticket. */
TEST_CASE(test_stale_cell_names_no_later_push)
{
    push(0);
    uint64_t stale = atomic_load(&ring.shared->cells[0]);
    pop_expect(0);
    /* the popper died before it emptied the cell; then the object was pushed again, but for its
     * cell */
    atomic_store(&ring.shared->cells[0], stale);
    atomic_store(&ring.shared->head, 0);
    struct shm_word again = word_unpack(atomic_load(&words[0]));
    again.held = false;
    again.turn++;
    atomic_store(&words[0], word_pack(again));
    assert_int_equal(ring_pop(&ring, &objects, PARTY, NULL), RING_EMPTY);
    assert_int_equal(ring_fill_cell(&ring, 0, again), RING_OK);
    pop_expect(0);
    expect_empty();
}

static void
turn_ring(uint32_t laps)
{
    for (uint32_t n = 0; n < laps * CELLS / 16; n++) {
        for (uint32_t i = 0; i < 16; i++)
            push((n + i) % OBJECTS);
        for (uint32_t i = 0; i < 16; i++)
            pop_expect((n + i) % OBJECTS);
    }
    expect_empty();
}

TEST_CASE(test_lap_wrap)
{
    /* the lap in the cells wraps at 2^23; the sign of a distance at 2^22 */
    static const uint64_t starts[] = {CELL_LAP_MASK - 1, CELL_LAP_MASK / 2 - 1,
                                      3 * (CELL_LAP_MASK + 1) - 2, UINT32_MAX - UINT64_C(2)};
    for (uint32_t i = 0; i < ARRAY_COUNT(starts); i++) {
        assert_int_equal(fresh_at(starts[i]), 0);
        turn_ring(5);
        assert_int_equal(atomic_load(&ring.shared->head), (starts[i] + 5) * CELLS);
        assert_int_equal(atomic_load(&ring.shared->tail), (starts[i] + 5) * CELLS);
    }
}

TEST_CASE(test_lagging_hints)
{
    static const uint64_t lags[] = {1, 5, CELLS - 1, CELLS, CELLS + 1, 3 * CELLS + 7, 10 * CELLS};
    for (uint32_t n = 0; n < ARRAY_COUNT(lags); n++)
        for (uint32_t which = 0; which < 3; which++) {
            assert_int_equal(fresh_at(CELL_LAP_MASK - 5), 0);
            turn_ring(11);
            for (uint32_t i = 0; i < OBJECTS; i++)
                push(i);
            if (which != 1)
                atomic_fetch_sub(&ring.shared->head, lags[n]);
            if (which != 0)
                atomic_fetch_sub(&ring.shared->tail, lags[n]);
            assert_true(ring_has_cell(&ring));
            pop_expect(0);
            push(0);
            for (uint32_t i = 1; i < OBJECTS; i++)
                pop_expect(i);
            pop_expect(0);
            expect_empty();
        }
}

/* An empty ring whose head hint lags looks as if it had work, once; then the hint is put right. */
TEST_CASE(test_lagging_head_of_an_empty_ring)
{
    turn_ring(2);
    atomic_fetch_sub(&ring.shared->head, 3);
    assert_true(ring_has_cell(&ring));
    assert_int_equal(ring_pop(&ring, &objects, PARTY, NULL), RING_EMPTY);
    assert_false(ring_has_cell(&ring));
}

TEST_CASE(test_stale_cells_are_dropped)
{
    for (uint32_t i = 0; i < 4; i++)
        push(i);
    /* 0 and 2 are claimed by another process that has not emptied their cells */
    for (uint32_t i = 0; i < 4; i += 2) {
        struct shm_word word = word_unpack(atomic_load(&words[i]));
        word.held = true;
        word.owner = OTHER;
        atomic_store(&words[i], word_pack(word));
    }
    pop_expect(1);
    pop_expect(3);
    expect_empty();
}

/* ---- dishonest contents ---- */

TEST_CASE(test_full_ring_is_corrupt)
{
    struct shm_word word = {.generation = 1, .place = PLACE, .owner = PARTY};
    for (uint32_t i = 0; i < CELLS; i++)
        assert_int_equal(ring_fill_cell(&ring, i % OBJECTS, word), RING_OK);
    assert_int_equal(ring_fill_cell(&ring, 0, word), RING_CORRUPT);
}

TEST_CASE(test_impossible_contents)
{
    struct shm_word word = {.generation = 1, .place = PLACE, .owner = PARTY};
    /* an index beyond the table */
    assert_int_equal(ring_fill_cell(&ring, OBJECTS, word), RING_OK);
    assert_int_equal(ring_pop(&ring, &objects, PARTY, NULL), RING_CORRUPT);
    /* a word without a generation */
    assert_int_equal(fresh_at(0), 0);
    push(0);
    atomic_store(&words[0], word_pack((struct shm_word){.place = PLACE}));
    assert_int_equal(ring_pop(&ring, &objects, PARTY, NULL), RING_CORRUPT);
    /* a head or tail ahead of every cell */
    assert_int_equal(fresh_at(0), 0);
    atomic_store(&ring.shared->head, 5 * CELLS);
    assert_int_equal(ring_pop(&ring, &objects, PARTY, NULL), RING_CORRUPT);
    atomic_store(&ring.shared->tail, 5 * CELLS);
    assert_int_equal(ring_fill_cell(&ring, 0, word), RING_CORRUPT);
}

/* With any content of the shared memory every call ends, and stays within it. */
TEST_CASE_WITH(test_garbage, fresh, dispose)
{
    uint64_t random = random_seed(20261120);
    uint32_t results[RING_CORRUPT + 1] = {0};
    for (uint32_t round = 0; round < 3000; round++) {
        assert_int_equal(fresh_at(random_draw(&random) % 8), 0);
        for (uint32_t i = 0; i < 20; i++)
            push(i);
        for (uint32_t n = random_draw(&random) % 16; n > 0; n--) {
            uint64_t value = random_draw(&random);
            switch (random_draw(&random) % 6) {
            case 0: atomic_store(&ring.shared->head, value); break;
            case 1: atomic_store(&ring.shared->tail, value); break;
            case 2: atomic_store(&ring.shared->cells[value % CELLS], random_draw(&random)); break;
            case 3:
                atomic_fetch_xor(&ring.shared->cells[value % CELLS], UINT64_C(1)
                                                                         << value / CELLS % 64);
                break;
            case 4: atomic_store(&words[value % OBJECTS], random_draw(&random)); break;
            case 5: atomic_fetch_add(&ring.shared->head, value % 200); break;
            }
        }
        for (uint32_t i = 0; i < 2 * CELLS; i++) {
            results[ring_pop(&ring, &objects, OTHER, NULL)]++;
            uint32_t index = (uint32_t)(random_draw(&random) % OBJECTS);
            uint64_t word = atomic_load(&words[index]);
            results[ring_push(&ring, &objects, index, word, 1, OTHER)]++;
            (void)ring_has_cell(&ring);
            struct shm_ticket next;
            if (ring_peek(&ring, &objects, &next))
                assert_in_range(next.index, 0, OBJECTS - 1);
            assert_in_range(ring_depth(&ring), 0, CELLS);
        }
    }
    assert_true(results[RING_OK] > 0 && results[RING_CORRUPT] > 0);
}

TEST_MAIN(.setup = fresh)
