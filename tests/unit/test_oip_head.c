/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters `priority` and `timeout` as a request's head has them: every form and every value,
 * twice in one map, cut into spans at every byte, among other parameters; what is none is refused
 * by name; and random bytes are survived.
 */
#include "base/clock.h"

#include "../random.h"
#include "test_oip_rig.h"

enum form { FORM_BOOL = 1, FORM_INT64 = 2, FORM_STRING = 3, FORM_DOUBLE = 4, FORM_UINT64 = 5 };

static void
add_entry(struct blob *request, const char *key, struct blob *value)
{
    struct blob entry = {0};
    blob_field_text(&entry, 1, key);
    blob_field_blob(&entry, 2, value);
    blob_field_blob(request, 4, &entry);
}

static void
add_number(struct blob *request, const char *key, enum form form, uint64_t number)
{
    struct blob value = {0};
    blob_field_varint(&value, form, number);
    add_entry(request, key, &value);
}

static void
add_text(struct blob *request, const char *key, const char *text)
{
    struct blob value = {0};
    blob_field_text(&value, FORM_STRING, text);
    add_entry(request, key, &value);
}

static enum status
skim(const struct wire_message *message, enum priority *priority, int64_t *timeout_ns,
     struct error *error)
{
    struct oip_head head;
    enum status status = oip_head_read(&head, message, error);
    return status == STATUS_OK ? oip_head_judge(&head, priority, timeout_ns, error) : status;
}

static enum status
skim_cut(const struct blob *blob, enum priority *priority, struct error *error)
{
    *error = ERROR_NONE;
    enum status first = STATUS_OK;
    int64_t timeout_ns;
    for (size_t at = 0; at <= blob->used; at++) {
        struct spans spans = spans_cut(blob->bytes, blob->used, at);
        enum status status = skim(&spans.message, priority, &timeout_ns, error);
        if (at == 0)
            first = status;
        assert_int_equal(status, first);
        spans_free(&spans);
    }
    return first;
}

/* Takes the request over. 0: it must be refused. */
static void
expect(struct blob *request, int wanted)
{
    enum priority priority;
    struct error error;
    enum status status = skim_cut(request, &priority, &error);
    if (wanted == 0) {
        assert_int_equal(status, STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "parameter \"priority\""));
    } else {
        assert_int_equal(status, STATUS_OK);
        assert_int_equal(priority, wanted);
    }
    blob_free(request);
}

TEST_CASE(test_none_is_normal)
{
    struct blob request = {0};
    blob_field_text(&request, 1, "model");
    expect(&request, PRIORITY_NORMAL);
    add_number(&request, "priorit", FORM_INT64, 3);
    add_number(&request, "priority2", FORM_INT64, 77);
    expect(&request, PRIORITY_NORMAL);
}

TEST_CASE(test_numbers)
{
    static const enum form forms[] = {FORM_INT64, FORM_UINT64};
    static const struct {
        uint64_t number;
        int wanted;
    } cases[] = {{0, PRIORITY_NORMAL},
                 {1, PRIORITY_HIGH},
                 {2, PRIORITY_NORMAL},
                 {3, PRIORITY_LOW},
                 {4, 0},
                 {UINT64_MAX, 0},
                 {UINT32_MAX + 2ull, 0}};
    for (size_t f = 0; f < 2; f++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            struct blob request = {0};
            add_number(&request, "priority", forms[f], cases[i].number);
            expect(&request, cases[i].wanted);
        }
}

TEST_CASE(test_texts)
{
    static const struct {
        const char *text;
        int wanted;
    } cases[] = {{"0", PRIORITY_NORMAL},
                 {"1", PRIORITY_HIGH},
                 {"3", PRIORITY_LOW},
                 {"4", 0},
                 {"", 0},
                 {"high", 0},
                 {"11", 0},
                 {" ", 0}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct blob request = {0};
        add_text(&request, "priority", cases[i].text);
        expect(&request, cases[i].wanted);
    }
}

TEST_CASE(test_other_types)
{
    struct blob request = {0};
    add_number(&request, "priority", FORM_BOOL, 1);
    expect(&request, 0);
    struct blob nothing = {0};
    add_entry(&request, "priority", &nothing);
    expect(&request, 0);
}

TEST_CASE(test_the_last_counts)
{
    struct blob request = {0};
    add_number(&request, "priority", FORM_INT64, 9);
    add_number(&request, "other", FORM_INT64, 5);
    add_number(&request, "priority", FORM_INT64, 1);
    blob_field_text(&request, 1, "model");
    expect(&request, PRIORITY_HIGH);
    struct blob value = {0}; /* of one value's fields, too */
    blob_field_varint(&value, FORM_INT64, 9);
    blob_field_text(&value, FORM_STRING, "3");
    blob_field_varint(&value, 77, 1); /* which nobody knows */
    add_entry(&request, "priority", &value);
    expect(&request, PRIORITY_LOW);
}

/* Takes the request over. -1: it must be refused. */
static void
expect_timeout(struct blob *request, int64_t wanted_ns)
{
    for (size_t at = 0; at <= request->used; at++) {
        struct spans spans = spans_cut(request->bytes, request->used, at);
        enum priority priority;
        int64_t timeout_ns;
        struct error error = ERROR_NONE;
        enum status status = skim(&spans.message, &priority, &timeout_ns, &error);
        assert_int_equal(status, wanted_ns < 0 ? STATUS_INVALID_ARGUMENT : STATUS_OK);
        if (wanted_ns < 0)
            assert_non_null(strstr(error.text, "parameter \"timeout\""));
        else
            assert_int_equal(timeout_ns, wanted_ns);
        spans_free(&spans);
    }
    blob_free(request);
}

TEST_CASE(test_timeout)
{
    struct blob request = {0};
    add_number(&request, "priority", FORM_INT64, 3);
    expect_timeout(&request, TIME_NEVER_NS);
    static const struct {
        uint64_t number;
        int64_t wanted_ns;
    } cases[] = {{0, TIME_NEVER_NS},
                 {1, 1000},
                 {2500000, INT64_C(2500000000)},
                 {INT64_MAX, TIME_NEVER_NS},
                 {UINT64_MAX, -1}};
    static const enum form forms[] = {FORM_INT64, FORM_UINT64};
    for (size_t f = 0; f < 2; f++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            add_number(&request, "timeout", forms[f], cases[i].number);
            expect_timeout(&request, cases[i].wanted_ns);
        }
    add_text(&request, "timeout", "12345");
    expect_timeout(&request, 12345000);
    add_text(&request, "timeout", "1s");
    expect_timeout(&request, -1);
    add_text(&request, "timeout", "");
    expect_timeout(&request, -1);
    add_text(&request, "timeout", "9999999999999999999");
    expect_timeout(&request, -1);
    add_number(&request, "timeout", FORM_BOOL, 1);
    expect_timeout(&request, -1);
}

TEST_CASE(test_garbage)
{
    uint64_t random = 4711;
    for (int i = 0; i < 20000; i++) {
        struct blob request = {0};
        add_number(&request, "priority", FORM_INT64, 3);
        add_text(&request, "priority", "2");
        for (int k = 0; k < 3; k++) {
            uint64_t drawn = random_draw(&random);
            request.bytes[(drawn >> 8) % request.used] = (unsigned char)drawn;
        }
        struct spans spans =
            spans_cut(request.bytes, request.used, random_draw(&random) % request.used);
        enum priority priority;
        struct error error = ERROR_NONE;
        int64_t timeout_ns;
        if (skim(&spans.message, &priority, &timeout_ns, &error) == STATUS_OK)
            assert_true(priority >= PRIORITY_HIGH && priority <= PRIORITY_LOW);
        spans_free(&spans);
        blob_free(&request);
    }
}

TEST_MAIN()
