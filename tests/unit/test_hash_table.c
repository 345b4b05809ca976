/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash table against an array that is searched: random additions, removals and walks with few
 * distinct hashes, so that chains are long, and with many, so that it grows. A walk meets each
 * entry once, and may remove what it has passed.
 */
#include <stdbool.h>

#include "../random.h"
#include "../test.h"
#include "base/hash_table.h"

enum { THINGS = 600, STEPS = 30000 };

struct thing {
    struct hash_entry entry;
    uint32_t key;
    bool is_in;
    bool is_met;
};

static struct thing things[THINGS];

static uint64_t
hash_of(uint32_t key, uint32_t hashes)
{
    return (uint64_t)(key % hashes) << 40;
}

static struct thing *
find(const struct hash_table *table, uint32_t key, uint32_t hashes)
{
    struct hash_entry *entry = hash_table_first(table, hash_of(key, hashes));
    while (entry != NULL && ((struct thing *)entry)->key != key)
        entry = hash_table_next(entry);
    return (struct thing *)entry;
}

static void
check_walk(const struct hash_table *table)
{
    uint32_t met = 0;
    for (uint32_t i = 0; i < THINGS; i++)
        things[i].is_met = false;
    for (struct hash_entry *at = hash_table_walk(table, NULL); at != NULL;
         at = hash_table_walk(table, at)) {
        struct thing *thing = (struct thing *)at;
        assert_true(thing->is_in && !thing->is_met);
        thing->is_met = true;
        met++;
    }
    assert_int_equal(met, table->count);
}

static void
run(uint32_t hashes)
{
    struct hash_table table = {0};
    uint64_t random = random_seed(5 + hashes);
    uint32_t count = 0;
    for (uint32_t i = 0; i < THINGS; i++)
        things[i] = (struct thing){.key = i};
    for (int step = 0; step < STEPS; step++) {
        uint32_t key = (uint32_t)(random_draw(&random) % THINGS);
        struct thing *thing = &things[key];
        assert_ptr_equal(find(&table, key, hashes), thing->is_in ? thing : NULL);
        if (thing->is_in)
            hash_table_remove(&table, &thing->entry);
        else
            hash_table_add(&table, &thing->entry, hash_of(key, hashes));
        thing->is_in = !thing->is_in;
        count += thing->is_in ? 1 : UINT32_MAX;
        assert_int_equal(table.count, count);
        if (step % 1000 == 0)
            check_walk(&table);
    }
    hash_table_fini(&table);
}

TEST_CASE(it_has_what_was_added_and_not_removed)
{
    run(1);
    run(7);
    run(THINGS);
}

TEST_CASE(an_empty_table_finds_nothing)
{
    struct hash_table table = {0};
    struct hash_entry entry;
    assert_null(hash_table_first(&table, 0));
    assert_null(hash_table_walk(&table, NULL));
    hash_table_add(&table, &entry, 9);
    assert_null(hash_table_first(&table, 8));
    assert_ptr_equal(hash_table_walk(&table, NULL), &entry);
    hash_table_fini(&table);
    assert_null(hash_table_first(&table, 9));
    assert_int_equal(table.count, 0);
}

TEST_CASE(a_walk_may_remove_what_it_has_passed)
{
    struct hash_table table = {0};
    for (uint32_t i = 0; i < THINGS; i++) {
        things[i] = (struct thing){.key = i};
        hash_table_add(&table, &things[i].entry, i / 3);
    }
    struct hash_entry *at = hash_table_walk(&table, NULL);
    while (at != NULL) {
        struct hash_entry *next = hash_table_walk(&table, at);
        if (((struct thing *)at)->key % 2 == 0)
            hash_table_remove(&table, at);
        at = next;
    }
    assert_int_equal(table.count, THINGS / 2);
    for (at = hash_table_walk(&table, NULL); at != NULL; at = hash_table_walk(&table, at))
        assert_int_equal(((struct thing *)at)->key % 2, 1);
    hash_table_fini(&table);
}

TEST_CASE(entries_of_one_hash_are_all_met)
{
    struct hash_table table = {0};
    uint32_t met = 0;
    for (uint32_t i = 0; i < THINGS; i++) {
        things[i] = (struct thing){.key = i};
        hash_table_add(&table, &things[i].entry, i % 2);
    }
    for (struct hash_entry *at = hash_table_first(&table, 1); at != NULL; at = hash_table_next(at))
        met += ((struct thing *)at)->key % 2;
    assert_int_equal(met, THINGS / 2);
    hash_table_fini(&table);
}

TEST_MAIN()
