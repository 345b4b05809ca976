/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The waiting transactions that go to etcd together: rules B1 to B5 of batch.h, each with one that
 * joins and one that does not, and random queues of which none is forgotten or taken twice.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"
#include "../test.h"
#include "mesh/store/batch.h"

enum { ASKED_MAX = 1000, ID_MAX = 16 };

static struct store_request *asked[ASKED_MAX]; /* in order */
static size_t asked_count;
static struct request_queue queue;
static struct store_batch batch;

static int
set_up(void **state)
{
    (void)state;
    asked_count = 0;
    queue = (struct request_queue){0};
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < asked_count; i++)
        free(asked[i]);
    return 0;
}

static struct store_request *
ask_txn(const struct store_txn *txn)
{
    struct error error = ERROR_NONE;
    struct store_request *request = NULL;
    assert_int_equal(request_create(txn, (struct store_reply){0}, &request, &error), STATUS_OK);
    assert_true(asked_count < ASKED_MAX);
    asked[asked_count++] = request;
    request_queue_put(&queue, request);
    return request;
}

/* Compares one record, NULL: none; changes another, NULL: none. */
static struct store_request *
ask(const char *compared, const char *changed, const char *value)
{
    const struct store_compare compare = {STORE_MODELS, compared, 0};
    const struct store_change change = {STORE_MODELS, changed, value,
                                        value == NULL ? 0 : strlen(value)};
    return ask_txn(
        &(struct store_txn){1, &compare, compared != NULL ? 1 : 0, &change, changed != NULL});
}

static struct store_request *
create(size_t number)
{
    char id[ID_MAX];
    snprintf(id, sizeof(id), "m%zu", number);
    return ask(id, id, "x");
}

static void
expect(const char *numbers)
{
    char text[512] = "";
    batch_take(&queue, BATCH_OPS_MAX, &batch);
    for (size_t i = 0; i < batch.count; i++)
        for (size_t k = 0; k < asked_count; k++)
            if (batch.requests[i] == asked[k])
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%zu",
                         i == 0 ? "" : " ", k);
    assert_string_equal(text, numbers);
}

/* ---- cases ---- */

TEST_CASE(in_order)
{
    for (size_t i = 0; i < 4; i++)
        create(i);
    expect("0 1 2 3");
    assert_null(queue.first);
    create(4);
    expect("4");
}

/* B1, B5 */
TEST_CASE(dependent)
{
    ask("a", "a", "0");
    ask("b", "a", "1"); /* changed twice */
    ask("a", "c", "2"); /* compared here, changed there */
    ask("d", "d", "3");
    ask("e", "d", "4");
    ask("f", "g", "5");
    ask("f", "h", "6"); /* compared by both: fine */
    expect("0 3 5 6");
    expect("1 4");
    expect("2");
    assert_null(queue.first);
    ask("x", "y", "7");
    ask("y", "x", "8");
    expect("7");
    expect("8"); /* each compares what the other changes */
}

TEST_CASE(tables_are_apart)
{
    const struct store_change changes[] = {{STORE_MODELS, "a", "x", 1},
                                           {STORE_VMODELS, "a", "x", 1}};
    ask_txn(&(struct store_txn){1, NULL, 0, &changes[0], 1});
    ask_txn(&(struct store_txn){1, NULL, 0, &changes[1], 1});
    expect("0 1");
}

/* B2 */
TEST_CASE(kinds)
{
    ask("a", "a", "0");
    ask("b", "b", NULL);
    ask("c", NULL, NULL);
    ask("d", "d", "3");
    ask("e", "e", NULL);
    ask("f", NULL, NULL);
    expect("0 3");
    expect("1 4");
    expect("2 5");
}

/* Of one session: the fence is one for all. */
TEST_CASE(sessions)
{
    create(0);
    create(1)->txn.session = 2;
    create(2);
    expect("0 2");
    expect("1");
}

/* B4 */
TEST_CASE(company)
{
    create(0)->company = REQUEST_AGAIN;
    create(1)->company = REQUEST_ALONE;
    create(2);
    create(3)->company = REQUEST_AGAIN;
    create(4)->company = REQUEST_ALONE;
    create(5);
    expect("0 3");
    expect("1");
    expect("2 5");
    expect("4");
}

/* B3: an operation to put what is new, two for what is there; a compare each, and the session's. */
TEST_CASE(operations)
{
    for (size_t i = 0; i < 200; i++)
        create(i);
    batch_take(&queue, BATCH_OPS_MAX, &batch);
    assert_int_equal(batch.count, BATCH_OPS_MAX - 1);
    batch_take(&queue, 8, &batch);
    assert_int_equal(batch.count, 7);
    batch_take(&queue, 1, &batch);
    assert_int_equal(batch.count, 1);
    queue = (struct request_queue){0};
    for (size_t i = 0; i < 200; i++) {
        char id[ID_MAX];
        snprintf(id, sizeof(id), "m%zu", i);
        ask_txn(
            &(struct store_txn){1, NULL, 0, &(struct store_change){STORE_MODELS, id, "x", 1}, 1});
    }
    batch_take(&queue, BATCH_OPS_MAX, &batch);
    assert_int_equal(batch.count, BATCH_OPS_MAX / 2);
}

/* B3: those of all members and the session's. */
TEST_CASE(compares)
{
    enum { COMPARES = 5 };
    for (size_t i = 0; i < 100; i++) {
        char ids[COMPARES][ID_MAX];
        struct store_compare compares[COMPARES];
        for (size_t k = 0; k < COMPARES; k++) {
            snprintf(ids[k], ID_MAX, "m%zu", COMPARES * i + k);
            compares[k] = (struct store_compare){STORE_MODELS, ids[k], 0};
        }
        ask_txn(&(struct store_txn){1, compares, COMPARES,
                                    &(struct store_change){STORE_MODELS, ids[0], "x", 1}, 1});
    }
    batch_take(&queue, BATCH_OPS_MAX, &batch);
    assert_int_equal(batch.count, (BATCH_OPS_MAX - 1) / COMPARES);
}

/* The first goes in any case. */
TEST_CASE(a_large_one)
{
    char *value = malloc(BATCH_BYTES_MAX + 1);
    assert_non_null(value);
    memset(value, 'x', BATCH_BYTES_MAX);
    value[BATCH_BYTES_MAX] = '\0';
    create(0);
    ask("large", "large", value);
    create(1);
    expect("0 2");
    expect("1");
    free(value);
}

/* Each is taken once, and the first of the queue each time, of any kind. */
TEST_CASE(random_queues)
{
    uint64_t seed = 1;
    bool taken[ASKED_MAX] = {false};
    size_t taken_count = 0;
    for (size_t i = 0; i < ASKED_MAX; i++) {
        char one[ID_MAX], other[ID_MAX];
        snprintf(one, sizeof(one), "m%u", (unsigned)(random_draw(&seed) % 300));
        snprintf(other, sizeof(other), "m%u", (unsigned)(random_draw(&seed) % 300));
        struct store_request *request = ask(one, random_draw(&seed) % 8 == 0 ? NULL : other,
                                            random_draw(&seed) % 8 == 0 ? NULL : "x");
        request->company = random_draw(&seed) % 8 == 0 ? REQUEST_AGAIN : REQUEST_FIRST;
    }
    while (queue.first != NULL) {
        const struct store_request *first = queue.first;
        batch_take(&queue, BATCH_OPS_MAX, &batch);
        assert_ptr_equal(batch.requests[0], first);
        for (size_t i = 0; i < batch.count; i++)
            for (size_t k = 0; k < ASKED_MAX; k++)
                if (batch.requests[i] == asked[k]) {
                    assert_false(taken[k]);
                    taken[k] = true;
                    taken_count++;
                }
    }
    assert_int_equal(taken_count, ASKED_MAX);
}

TEST_MAIN(.setup = set_up, .teardown = tear_down)
