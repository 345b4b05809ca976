/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves the runner's small parts by themselves: unknown fields go with exactly their own record,
 * the book has what was put last, and this node's record is written when its rules N1 to N4 say.
 */
#include <stdio.h>

#include "../test.h"
#include "mesh/edge/book.h"
#include "mesh/edge/unknown_fields.h"
#include "mesh/edge/publish.h"

/* ---- unknown fields ---- */

TEST_CASE(unknown_fields_go_with_their_revision)
{
    struct unknown_fields unknown_fields = {.seed = 3};
    assert_null(unknown_fields_get(&unknown_fields, STORE_MODELS, "a", 0));
    unknown_fields_set(&unknown_fields, STORE_MODELS, "a", 5, "{\"x\":1}");
    assert_string_equal(unknown_fields_get(&unknown_fields, STORE_MODELS, "a", 5), "{\"x\":1}");
    assert_null(unknown_fields_get(&unknown_fields, STORE_MODELS, "a", 4));
    assert_null(unknown_fields_get(&unknown_fields, STORE_MODELS, "a", 6));
    assert_null(unknown_fields_get(&unknown_fields, STORE_VMODELS, "a", 5));
    unknown_fields_set(&unknown_fields, STORE_MODELS, "a", 4, "{\"old\":1}");
    assert_string_equal(unknown_fields_get(&unknown_fields, STORE_MODELS, "a", 5), "{\"x\":1}");
    unknown_fields_set(&unknown_fields, STORE_MODELS, "a", 4, "");
    assert_non_null(unknown_fields_get(&unknown_fields, STORE_MODELS, "a", 5));
    unknown_fields_drop(&unknown_fields, STORE_MODELS, "a", 4);
    assert_non_null(unknown_fields_get(&unknown_fields, STORE_MODELS, "a", 5));
    unknown_fields_set(&unknown_fields, STORE_MODELS, "a", 6, "");
    assert_null(unknown_fields_get(&unknown_fields, STORE_MODELS, "a", 6));
    assert_int_equal(unknown_fields.all.count, 0);
    unknown_fields_fini(&unknown_fields);
}

TEST_CASE(unknown_fields_stay_when_the_store_is_emptied)
{
    struct unknown_fields unknown_fields = {.seed = 3};
    unknown_fields_set(&unknown_fields, STORE_VMODELS, "v", 500, "{\"x\":1}");
    unknown_fields_restart(&unknown_fields);
    assert_string_equal(unknown_fields_get(&unknown_fields, STORE_VMODELS, "v", 0), "{\"x\":1}");
    unknown_fields_set(&unknown_fields, STORE_VMODELS, "v", 2, "{\"y\":1}");
    assert_string_equal(unknown_fields_get(&unknown_fields, STORE_VMODELS, "v", 2), "{\"y\":1}");
    unknown_fields_fini(&unknown_fields);
}

TEST_CASE(unknown_fields_are_many)
{
    enum { COUNT = 5000 };
    struct unknown_fields unknown_fields = {.seed = 11};
    char id[32], text[48];
    for (uint64_t i = 0; i < COUNT; i++) {
        snprintf(id, sizeof(id), "model-%llu", (unsigned long long)i);
        snprintf(text, sizeof(text), "{\"n\":%llu}", (unsigned long long)i);
        unknown_fields_set(&unknown_fields, STORE_MODELS, id, i + 1, text);
    }
    for (uint64_t i = 0; i < COUNT; i += 2) {
        snprintf(id, sizeof(id), "model-%llu", (unsigned long long)i);
        unknown_fields_drop(&unknown_fields, STORE_MODELS, id, i + 1);
    }
    assert_int_equal(unknown_fields.all.count, COUNT / 2);
    for (uint64_t i = 0; i < COUNT; i++) {
        snprintf(id, sizeof(id), "model-%llu", (unsigned long long)i);
        snprintf(text, sizeof(text), "{\"n\":%llu}", (unsigned long long)i);
        const char *got = unknown_fields_get(&unknown_fields, STORE_MODELS, id, i + 1);
        if (i % 2 == 0)
            assert_null(got);
        else
            assert_string_equal(got, text);
    }
    unknown_fields_fini(&unknown_fields);
}

/* ---- publish ---- */

static const struct publish SAID = {
    .figures = {.capacity_units = 1000,
                .free_units = 500,
                .oldest_ms = INT64_C(1000000000),
                .copies = 100,
                .calls_per_minute = 1000},
    .loaders = 4,
};

static void
check_due_from(const struct publish *said, const struct publish *now, int64_t age_ms)
{
    assert_false(publish_is_due(said, now, age_ms - 1));
    assert_true(publish_is_due(said, now, age_ms));
}

TEST_CASE(publish_never_within_two_seconds)
{
    struct publish now = SAID;
    now.draining = true;
    check_due_from(&SAID, &now, 2000);
}

TEST_CASE(publish_at_once_what_matters)
{
    struct publish now = SAID;
    assert_false(publish_is_due(&SAID, &now, 1000000));
    now.figures.full = true;
    assert_true(publish_is_due(&SAID, &now, 2000));
    now = SAID;
    now.figures.capacity_units = 979;
    assert_true(publish_is_due(&SAID, &now, 2000));
    now.figures.capacity_units = 980;
    assert_false(publish_is_due(&SAID, &now, 2000));
    now = SAID;
    now.figures.loading = 1;
    assert_true(publish_is_due(&SAID, &now, 2000));
}

/* Rooms that the sum of the pools does not show. */
TEST_CASE(publish_what_matters_of_a_pool)
{
    struct publish said = SAID;
    said.pool_count = 2;
    said.pools[0] = said.pools[1] = SAID.figures;
    struct publish now = said;
    assert_false(publish_is_due(&said, &now, 1000000));
    now.pools[1].full = true;
    assert_true(publish_is_due(&said, &now, 2000));
    now = said;
    now.pools[0].free_units += 101;
    now.pools[1].free_units -= 101;
    check_due_from(&said, &now, 40000);
    now = said;
    now.pools[1].copies++;
    check_due_from(&said, &now, 160000);
}

/* Due after 40 s, not before; with the lesser change only after 160 s. */
static void
check_some(const struct publish *much, const struct publish *little)
{
    check_due_from(&SAID, much, 40000);
    check_due_from(&SAID, little, 160000);
}

TEST_CASE(publish_in_time_what_has_moved)
{
    struct publish much = SAID;
    struct publish little = SAID;
    much.figures.free_units = 399; /* of 500 used, more than a fifth */
    little.figures.free_units = 400;
    check_some(&much, &little);
    much = little = SAID;
    much.figures.copies = 110;
    little.figures.copies = 109;
    check_some(&much, &little);
    much = little = SAID;
    much.figures.calls_per_minute = 1100;
    little.figures.calls_per_minute = 1099;
    check_some(&much, &little);
}

TEST_CASE(publish_the_oldest)
{
    struct publish now = SAID;
    now.figures.oldest_ms += 2501; /* a sixteenth of forty seconds is 2.5 s */
    check_due_from(&SAID, &now, 40000);
    now.figures.oldest_ms = INT64_MAX; /* none: as far as can be */
    assert_true(publish_is_due(&SAID, &now, 40000));
}

/* ---- the book ---- */

static struct book_entry
entry_named(const char *instance, const char *zone)
{
    return (struct book_entry){
        .instance = instance, .zone = zone, .location = "loc", .address = "", .loaders = 3};
}

TEST_CASE(book_has_what_was_put_last)
{
    static const char *const names[] = {"m", "a", "z", "b", "y"};
    struct book book = {0};
    assert_null(book_find(&book, "a"));
    book_drop(&book, "a");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct book_entry entry = entry_named(names[i], "first");
        book_put(&book, &entry);
    }
    char zone[] = "second"; /* is copied */
    struct book_entry again = entry_named("b", zone);
    book_put(&book, &again);
    zone[0] = 'X';
    assert_int_equal(book.count, 5);
    assert_string_equal(book_find(&book, "b")->zone, "second");
    assert_string_equal(book_find(&book, "b")->location, "loc");
    assert_string_equal(book_find(&book, "z")->zone, "first");
    assert_int_equal(book_find(&book, "m")->loaders, 3);
    book_drop(&book, "a");
    book_drop(&book, "a");
    assert_null(book_find(&book, "a"));
    assert_int_equal(book.count, 4);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        assert_int_equal(book_find(&book, names[i]) != NULL, names[i][0] != 'a');
    book_fini(&book);
}

TEST_MAIN()
