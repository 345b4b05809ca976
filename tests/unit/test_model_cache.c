/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model cache alone (model_cache.h), step by step and by random steps against an oracle that
 * recomputes everything from a plain table: a reservation never exceeds the budget, nobody with
 * users or that was ordered is evicted, the least recently used goes first, awaited models are
 * loaded first, and the sums are those of what is there. And model_size.h: predictions, and how
 * they learn.
 */
#include <string.h>

#include "../random.h"
#include "../test.h"
#include "base/clock.h"
#include "coordinator/models/model_size.h"
#include "coordinator/models/model_cache.h"

enum { MODELS = 40, STEPS = 200000 };

static struct model_cache cache;
static struct model_cache_entry places[MODELS];

static int
set_up(void **state)
{
    (void)state;
    memset(places, 0, sizeof(places));
    model_cache_init(&cache, 100, 2, 8);
    for (int i = 0; i < MODELS; i++)
        places[i].listed = true;
    return 0;
}

/* Through the queue to LOADED; everything must go well. */
static void
load(int i, uint64_t bytes, int64_t now_ns)
{
    struct model_cache_entry *victim;
    model_cache_queue(&cache, &places[i], MODEL_CACHE_ORDERED);
    assert_ptr_equal(model_cache_next(&cache), &places[i]);
    assert_int_equal(model_cache_reserve(&cache, &places[i], bytes, &victim), ROOM_RESERVED);
    model_cache_loaded(&cache, &places[i], bytes, now_ns);
}

TEST_CASE(test_life)
{
    struct model_cache_entry *victim;
    model_cache_queue(&cache, &places[0], MODEL_CACHE_ORDERED);
    assert_int_equal(places[0].state, MODEL_IS_LOADING);
    model_cache_drop(&cache, &places[0]);
    assert_int_equal(places[0].state, MODEL_IS_KNOWN);
    assert_null(model_cache_next(&cache));
    model_cache_queue(&cache, &places[0], MODEL_CACHE_ORDERED);
    assert_ptr_equal(model_cache_next(&cache), &places[0]);
    assert_int_equal(model_cache_reserve(&cache, &places[0], 30, &victim), ROOM_RESERVED);
    assert_int_equal(cache.used_bytes, 30);
    model_cache_fail(&cache, &places[0]); /* it counts until it is undone */
    assert_int_equal(cache.used_bytes, 30);
    assert_int_equal(cache.loads, 1);
    model_cache_gone(&cache, &places[0]);
    assert_int_equal(places[0].state, MODEL_IS_FAILED);
    assert_int_equal(cache.used_bytes + cache.loads + cache.held, 0);
    load(0, 40, 5);
    assert_int_equal(places[0].used_ns, 5);
    model_cache_unload(&cache, &places[0]);
    assert_int_equal(places[0].state, MODEL_IS_UNLOADING);
    assert_int_equal(cache.leaving_bytes, 40);
    model_cache_gone(&cache, &places[0]);
    assert_int_equal(places[0].state, MODEL_IS_KNOWN);
    assert_int_equal(cache.used_bytes + cache.leaving_bytes, 0);
}

TEST_CASE(test_queue)
{
    for (int i = 0; i < 4; i++)
        model_cache_queue(&cache, &places[i], MODEL_CACHE_ORDERED);
    model_cache_queue(&cache, &places[4], MODEL_CACHE_AWAITED);
    model_cache_queue(&cache, &places[2], MODEL_CACHE_AWAITED); /* a request has come */
    model_cache_queue(&cache, &places[2], MODEL_CACHE_ORDERED); /* no step back */
    model_cache_queue(&cache, &places[0], MODEL_CACHE_ORDERED); /* nor from the front */
    assert_ptr_equal(model_cache_next(&cache), &places[4]);
    assert_ptr_equal(model_cache_next(&cache), &places[2]);
    assert_null(model_cache_next(&cache)); /* two at once */
    model_cache_unload(&cache, &places[4]);
    assert_null(model_cache_next(&cache));
    model_cache_gone(&cache, &places[4]);
    assert_ptr_equal(model_cache_next(&cache), &places[0]);
    model_cache_unload(&cache, &places[0]);
    model_cache_gone(&cache, &places[0]);
    assert_ptr_equal(model_cache_next(&cache), &places[1]);
}

/* A model that is loaded in advance comes last and evicts nothing; once a request waits for it, it
 * is like any other. */
TEST_CASE(test_preload)
{
    struct model_cache_entry *victim;
    load(0, 60, 1);
    for (int i = 1; i < 5; i++)
        model_cache_queue(&cache, &places[i], MODEL_CACHE_PRELOAD);
    assert_ptr_equal(model_cache_preload(&cache), &places[1]);
    model_cache_queue(&cache, &places[3], MODEL_CACHE_AWAITED);
    model_cache_queue(&cache, &places[5], MODEL_CACHE_ORDERED);
    assert_ptr_equal(model_cache_next(&cache), &places[3]);
    assert_ptr_equal(model_cache_next(&cache), &places[5]);
    model_cache_unload(&cache, &places[3]);
    model_cache_gone(&cache, &places[3]);
    assert_ptr_equal(model_cache_next(&cache), &places[1]);
    assert_int_equal(model_cache_reserve(&cache, &places[1], 50, &victim), ROOM_NOT_IN_ADVANCE);
    assert_null(victim);
    model_cache_queue(&cache, &places[1], MODEL_CACHE_AWAITED);
    assert_int_equal(model_cache_reserve(&cache, &places[1], 50, &victim), ROOM_EVICT);
    assert_ptr_equal(victim, &places[0]);
    model_cache_drop(&cache, model_cache_preload(&cache));
    model_cache_drop(&cache, model_cache_preload(&cache));
    assert_null(model_cache_preload(&cache));
}

TEST_CASE(test_eviction)
{
    struct model_cache_entry *victim;
    for (int i = 0; i < 4; i++)
        load(i, 25, i);
    model_cache_touch(&cache, &places[0], 10);
    places[1].users = 1;
    places[2].ordered = true;
    model_cache_queue(&cache, &places[5], MODEL_CACHE_AWAITED);
    assert_non_null(model_cache_next(&cache));
    assert_int_equal(model_cache_reserve(&cache, &places[5], 40, &victim), ROOM_EVICT);
    assert_ptr_equal(victim, &places[3]);
    model_cache_unload(&cache, victim);
    assert_int_equal(model_cache_reserve(&cache, &places[5], 40, &victim), ROOM_EVICT);
    assert_ptr_equal(victim, &places[0]);
    model_cache_unload(&cache, victim);
    assert_int_equal(model_cache_reserve(&cache, &places[5], 40, &victim), ROOM_WAIT);
    model_cache_gone(&cache, &places[3]);
    assert_int_equal(model_cache_reserve(&cache, &places[5], 40, &victim), ROOM_WAIT);
    model_cache_gone(&cache, &places[0]);
    assert_int_equal(model_cache_reserve(&cache, &places[5], 40, &victim), ROOM_RESERVED);
    model_cache_queue(&cache, &places[6], MODEL_CACHE_AWAITED);
    assert_non_null(model_cache_next(&cache));
    assert_int_equal(model_cache_reserve(&cache, &places[6], 75, &victim),
                     ROOM_WAIT); /* for 1, and 5 */
    assert_int_equal(model_cache_reserve(&cache, &places[6], 76, &victim),
                     ROOM_NEVER); /* beside 2 */
    places[1].users = 0;
    assert_int_equal(model_cache_reserve(&cache, &places[6], 75, &victim), ROOM_EVICT);
    assert_ptr_equal(victim, &places[1]);
}

TEST_CASE(test_excess)
{
    struct model_cache_entry *victim;
    load(0, 50, 0);
    load(1, 30, 1);
    assert_false(model_cache_excess(&cache, NULL, &victim));
    model_cache_resize(&cache, &places[1], 60);
    assert_true(model_cache_excess(&cache, &places[1], &victim));
    assert_ptr_equal(victim, &places[0]);
    places[0].ordered = true;
    assert_true(model_cache_excess(&cache, &places[1], &victim));
    assert_null(victim);
    assert_true(model_cache_excess(&cache, NULL, &victim));
    assert_ptr_equal(victim, &places[1]);
    model_cache_unload(&cache, &places[1]);
    assert_false(model_cache_excess(&cache, NULL, &victim));
}

/* So many at most, however small they are. */
TEST_CASE(test_held_max)
{
    struct model_cache_entry *victim;
    for (int i = 0; i < 8; i++)
        load(i, 1, i);
    model_cache_queue(&cache, &places[8], MODEL_CACHE_AWAITED);
    assert_non_null(model_cache_next(&cache));
    assert_int_equal(model_cache_reserve(&cache, &places[8], 1, &victim), ROOM_EVICT);
    assert_ptr_equal(victim, &places[0]);
}

/* ---- random steps ---- */

static uint64_t
below(uint64_t *random, uint64_t limit)
{
    return random_draw(random) % limit;
}

struct sums {
    uint64_t used_bytes, leaving_bytes, ordered_bytes;
    uint32_t held, leaving, loads, loaded;
    const struct model_cache_entry *oldest; /* evictable, used least recently */
};

static struct sums
sum_up(void)
{
    struct sums sums = {0};
    for (int i = 0; i < MODELS; i++) {
        const struct model_cache_entry *place = &places[i];
        bool leaving = place->state == MODEL_IS_UNLOADING || place->state == MODEL_IS_FAILED;
        bool loaded = place->state == MODEL_IS_LOADED;
        sums.used_bytes += place->bytes;
        sums.held += place->reserved;
        sums.loads += place->begun;
        sums.loaded += loaded;
        if (leaving && place->reserved) {
            sums.leaving_bytes += place->bytes;
            sums.leaving++;
        }
        if (loaded && place->ordered)
            sums.ordered_bytes += place->bytes;
        if (loaded && !place->ordered && place->users == 0 &&
            (sums.oldest == NULL || place->used_ns < sums.oldest->used_ns))
            sums.oldest = place;
    }
    return sums;
}

static void
check_sums(void)
{
    struct sums sums = sum_up();
    assert_int_equal(cache.used_bytes, sums.used_bytes);
    assert_int_equal(cache.leaving_bytes, sums.leaving_bytes);
    assert_int_equal(cache.held, sums.held);
    assert_int_equal(cache.leaving, sums.leaving);
    assert_int_equal(cache.loads, sums.loads);
    assert_int_equal(cache.loaded, sums.loaded);
    assert_int_equal(model_cache_ordered_bytes(&cache), sums.ordered_bytes);
    assert_true(cache.loads <= cache.loads_max && cache.held <= cache.held_max);
}

static uint64_t evicted, reserved, refused;

static void
try_room(struct model_cache_entry *place, uint64_t bytes)
{
    struct sums sums = sum_up();
    struct model_cache_entry *victim;
    switch (model_cache_reserve(&cache, place, bytes, &victim)) {
    case ROOM_RESERVED:
        assert_true(cache.used_bytes <= cache.capacity_bytes);
        reserved++;
        break;
    case ROOM_EVICT:
        assert_ptr_equal(victim, sums.oldest);
        model_cache_unload(&cache, victim);
        evicted++;
        break;
    case ROOM_WAIT: assert_true(sums.leaving > 0 || sums.oldest == NULL); break;
    case ROOM_NEVER:
        assert_true(sums.ordered_bytes + bytes > cache.capacity_bytes);
        model_cache_fail(&cache, place);
        refused++;
        break;
    case ROOM_NOT_IN_ADVANCE:
        assert_int_equal(place->demand, MODEL_CACHE_PRELOAD);
        assert_true(sums.used_bytes + bytes > cache.capacity_bytes || sums.held == cache.held_max);
        model_cache_unload(&cache, place);
        break;
    }
}

static void
step_begun(uint64_t *random, struct model_cache_entry *place, int64_t now_ns)
{
    struct model_cache_entry *victim;
    if (!place->reserved) {
        try_room(place, below(random, 130));
    } else if (below(random, 8) == 0) {
        (below(random, 2) ? model_cache_fail : model_cache_unload)(&cache, place);
    } else {
        model_cache_loaded(&cache, place, below(random, 40), now_ns);
        if (model_cache_excess(&cache, place, &victim)) {
            const struct model_cache_entry *oldest = NULL;
            for (int i = 0; i < MODELS; i++)
                if (&places[i] != place && places[i].state == MODEL_IS_LOADED &&
                    !places[i].ordered && places[i].users == 0 &&
                    (oldest == NULL || places[i].used_ns < oldest->used_ns))
                    oldest = &places[i];
            assert_ptr_equal(victim, oldest);
            if (victim != NULL)
                model_cache_unload(&cache, victim);
            else
                model_cache_fail(&cache, place);
        }
    }
}

static void
step(uint64_t *random, int64_t now_ns)
{
    struct model_cache_entry *place = &places[below(random, MODELS)];
    struct model_cache_entry *next;
    switch (below(random, 8)) {
    case 0:
        if (place->queued || ((place->state == MODEL_IS_KNOWN || place->state == MODEL_IS_FAILED) &&
                              !place->reserved && !place->begun))
            model_cache_queue(&cache, place,
                              (enum model_cache_demand)below(random, MODEL_CACHE_DEMANDS));
        break;
    case 1:
        next = model_cache_next(&cache);
        for (int i = 0; next != NULL && i < MODELS; i++)
            assert_false(places[i].queued && places[i].demand > next->demand);
        break;
    case 2: place->ordered = below(random, 4) == 0; break;
    case 3: place->users = (uint32_t)below(random, 2); break;
    case 4: model_cache_touch(&cache, place, now_ns); break;
    case 5:
        if (place->queued && below(random, 4) == 0)
            model_cache_drop(&cache, place);
        else if (place->state == MODEL_IS_LOADED && below(random, 4) == 0)
            (below(random, 2) ? model_cache_fail : model_cache_unload)(&cache, place);
        break;
    case 6:
        for (int i = 0; i < MODELS; i++, place = place == &places[MODELS - 1] ? places : place + 1)
            if (place->state == MODEL_IS_UNLOADING ||
                (place->state == MODEL_IS_FAILED && (place->reserved || place->begun))) {
                model_cache_gone(&cache, place);
                break;
            }
        break;
    default:
        for (int i = 0; i < MODELS; i++)
            if (places[i].begun && places[i].state == MODEL_IS_LOADING) {
                step_begun(random, &places[i], now_ns);
                break;
            }
    }
}

TEST_CASE(test_random)
{
    uint64_t random = random_seed((uint64_t)clock_now_ns());
    for (int64_t i = 1; i <= STEPS; i++) {
        step(&random, i);
        check_sums();
    }
    print_message("%llu reserved, %llu evicted, %llu refused\n", (unsigned long long)reserved,
                  (unsigned long long)evicted, (unsigned long long)refused);
    assert_true(reserved > 1000 && evicted > 500 && refused > 50);
}

/* ---- sizes ---- */

TEST_CASE(test_sizes)
{
    struct model_sizes sizes = {0};
    struct model_hints nothing = {.default_bytes = 1000};
    struct model_hints file = {.file_bytes = 300, .default_bytes = 1000};
    struct model_hints said = {
        .said_bytes = 50, .said_factor = 4, .file_bytes = 300, .default_bytes = 1000};
    assert_int_equal(model_size_predict(&sizes, &nothing), 1000);
    assert_int_equal(model_size_predict(&sizes, &file), 1000);
    assert_int_equal(model_size_predict(&sizes, &said), 200); /* every worker's own */
    model_size_learn(&sizes, &file, 5000);
    assert_int_equal(model_size_predict(&sizes, &file), 5000);
    file.file_bytes = 500; /* of the same magnitude */
    assert_int_equal(model_size_predict(&sizes, &file), 5000);
    file.file_bytes = 600;
    assert_int_equal(model_size_predict(&sizes, &file), 1000);
    model_size_learn(&sizes, &said, 100); /* they share most of it */
    assert_int_equal(model_size_predict(&sizes, &said), 100);
    model_size_learn(&sizes, &said, 300); /* up at once */
    assert_int_equal(model_size_predict(&sizes, &said), 300);
    model_size_learn(&sizes, &said, 100); /* down by and by */
    assert_int_equal(model_size_predict(&sizes, &said), 275);
    said.said_bytes = UINT64_MAX;
    assert_int_equal(model_size_predict(&sizes, &said), UINT64_C(1) << 47);
    assert_int_equal(model_size_reserve(&sizes, &said), UINT64_C(1) << 47);
}

/* Models of varying size get more room than predicted, so that the largest does not go beyond the
 * budget; what is always the same gets just that. */
TEST_CASE_WITH(test_room_for_the_largest, NULL, NULL)
{
    struct model_sizes sizes = {0};
    struct model_hints file = {.file_bytes = 300, .default_bytes = 1000};
    assert_int_equal(model_size_reserve(&sizes, &file), 1000);
    for (int i = 0; i < 3; i++)
        model_size_learn(&sizes, &file, 3200);
    assert_int_equal(model_size_reserve(&sizes, &file), 3200);
    model_size_learn(&sizes, &file, 4800);
    for (int i = 0; i < 100; i++)
        model_size_learn(&sizes, &file, 3200);
    assert_int_equal(model_size_predict(&sizes, &file), 3200);
    assert_int_equal(model_size_reserve(&sizes, &file), 5100);
    struct model_hints said = {.said_bytes = 100, .said_factor = 1};
    model_size_learn(&sizes, &said, 160);
    assert_int_equal(model_size_reserve(&sizes, &said), 160);
    model_size_learn(&sizes, &said, 80);
    assert_int_equal(model_size_reserve(&sizes, &said), 170);
}

TEST_MAIN(.setup = set_up)
