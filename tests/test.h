/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cmocka with the headers it needs before it. TEST_CASE(name) begins a test; most read no `state`.
 * TEST_MAIN(...) or TEST_RUN(...), with members of `struct test_fixtures`, runs all of a file's
 * tests in their order. TEST_CASE_WITH has fixtures of its own in place of .setup and .teardown.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

struct test_fixtures {
    char unused; /* so that TEST_MAIN() is C */
    int (*setup)(void **state);
    int (*teardown)(void **state);
    int (*group_setup)(void **state);
    int (*group_teardown)(void **state);
};

struct test_list {
    struct CMUnitTest cases[128];
    int lines[128];
    size_t count;
};

static inline struct test_list *
test_list(void)
{
    static struct test_list list;
    return &list;
}

static inline int
test_default(void **state)
{
    (void)state;
    return 0;
}

/* Constructors of a file may run in any order. */
static inline void
test_add(const struct CMUnitTest *test, int line)
{
    struct test_list *list = test_list();
    size_t i = list->count++;
    if (i >= sizeof(list->cases) / sizeof(list->cases[0]))
        abort();
    for (; i > 0 && list->lines[i - 1] > line; i--) {
        list->cases[i] = list->cases[i - 1];
        list->lines[i] = list->lines[i - 1];
    }
    list->cases[i] = *test;
    list->lines[i] = line;
}

static inline int
test_run(struct test_fixtures fixtures)
{
    struct test_list *list = test_list();
    for (size_t i = 0; i < list->count; i++) {
        if (list->cases[i].setup_func != test_default)
            continue;
        list->cases[i].setup_func = fixtures.setup;
        list->cases[i].teardown_func = fixtures.teardown;
    }
    int failed = _cmocka_run_group_tests("tests", list->cases, list->count, fixtures.group_setup,
                                         fixtures.group_teardown);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE; /* a plain call: main is in backtraces */
}

#define TEST_CASE_WITH(name_, setup, teardown)                                                     \
    static void name_(void **state);                                                               \
    __attribute__((constructor)) static void name_##_is_a_test(void)                               \
    {                                                                                              \
        test_add(&(struct CMUnitTest){#name_, name_, setup, teardown, NULL}, __LINE__);            \
    }                                                                                              \
    static void name_(__attribute__((unused)) void **state)
#define TEST_CASE(name) TEST_CASE_WITH(name, test_default, NULL)

#define TEST_RUN(...) test_run((struct test_fixtures){0, __VA_ARGS__})
#define TEST_MAIN(...)                                                                             \
    int main(void)                                                                                 \
    {                                                                                              \
        return TEST_RUN(__VA_ARGS__);                                                              \
    }
