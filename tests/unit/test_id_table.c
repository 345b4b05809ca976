/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids against an array of what was added: random additions and removals keep ids unique, below the
 * limit and as small as the number of objects has been; references of former generations find
 * nothing, and the generation never is 0.
 */

#include "../random.h"
#include "../test.h"
#include "base/id_table.h"

enum { MAX = 300, STEPS = 40000 };

TEST_CASE(ids_are_unique_and_come_again)
{
    uint64_t random = random_seed(7);
    struct id_table table;
    char objects[MAX];
    char *known[MAX] = {NULL};
    uint32_t former[MAX] = {0}; /* the last generation that has ended */
    uint32_t count = 0, most = 0;
    id_table_init(&table, MAX);
    for (int step = 0; step < STEPS; step++) {
        uint32_t at = (uint32_t)(random_draw(&random) % MAX);
        if (random_draw(&random) % 4096 < (step / 5000 % 2 == 0 ? 2500u : 1500u)) {
            uint32_t id = id_table_add(&table, &objects[at]);
            assert_true(id == ID_NONE ? count == MAX : known[id] == NULL);
            if (id == ID_NONE)
                continue;
            known[id] = &objects[at];
            most = ++count > most ? count : most;
            assert_true(id < most);
            assert_int_not_equal(table.entries[id].generation, 0);
        } else if (known[at] != NULL) {
            former[at] = table.entries[at].generation;
            id_table_remove(&table, at);
            known[at] = NULL;
            count--;
        }
        assert_int_equal(table.count, count);
        assert_ptr_equal(id_table_at(&table, at), known[at]);
        assert_null(id_table_find(&table, at, former[at]));
        if (known[at] != NULL)
            assert_ptr_equal(id_table_find(&table, at, table.entries[at].generation), known[at]);
    }
    assert_int_equal(most, MAX);
    id_table_fini(&table);
}

TEST_CASE(the_limit_holds_and_the_last_id_comes_first)
{
    struct id_table table;
    int object = 0;
    id_table_init(&table, 2);
    assert_null(id_table_at(&table, 0));
    assert_int_equal(id_table_add(&table, &object), 0);
    assert_int_equal(id_table_add(&table, &object), 1);
    assert_int_equal(id_table_add(&table, &object), ID_NONE);
    assert_int_equal(table.count, 2);
    id_table_remove(&table, 0);
    id_table_remove(&table, 1);
    assert_int_equal(id_table_add(&table, &object), 1);
    assert_int_equal(id_table_add(&table, &object), 0);
    assert_null(id_table_at(&table, 2));
    assert_null(id_table_at(&table, ID_NONE));
    assert_null(id_table_find(&table, 2, 0));
    id_table_fini(&table);
    assert_null(id_table_at(&table, 0));
    id_table_init(&table, 0);
    assert_int_equal(id_table_add(&table, &object), ID_NONE);
    id_table_fini(&table);
}

TEST_CASE(generations_skip_zero)
{
    struct id_table table;
    int object = 0;
    id_table_init(&table, 1);
    assert_int_equal(id_table_add(&table, &object), 0);
    id_table_remove(&table, 0);
    assert_null(id_table_find(&table, 0, 1));
    table.entries[0].generation = UINT32_MAX;
    assert_int_equal(id_table_add(&table, &object), 0);
    assert_ptr_equal(id_table_find(&table, 0, 1), &object);
    assert_null(id_table_find(&table, 0, UINT32_MAX));
    id_table_fini(&table);
}

TEST_MAIN()
