/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A string field is found in messages of which nothing else is known: where it lies, however the
 * message is cut into spans; which one counts when fields come several times; what is refused. The
 * judge of the random messages is how they were made: fields are written in order, and the last
 * string that was written at the end of the path is the one. (fuzz_field_path.c asks protobuf-c.)
 */
#include "wire/field_path.h"
#include "test_oip_rig.h"

struct find {
    enum status status;
    bool any;
    char text[64];
    struct error error;
};

static struct find
find_in(const struct wire_message *message, const uint32_t *numbers, uint32_t depth)
{
    struct find find = {.error = ERROR_NONE};
    struct wire_cursor found;
    find.status = field_path_find(message, numbers, depth, &found, &find.any, &find.error);
    if (find.status == STATUS_OK && find.any) {
        assert_true(found.left < sizeof(find.text));
        wire_read(&found, find.text, found.left);
    }
    return find;
}

static struct find
find_in_blob(const struct blob *blob, const uint32_t *numbers, uint32_t depth)
{
    struct spans spans = spans_whole(blob);
    struct find find = find_in(&spans.message, numbers, depth);
    spans_free(&spans);
    return find;
}

/* ---- found ---- */

TEST_CASE(test_every_cut)
{
    static const uint32_t numbers[] = {2, 300, 1};
    struct blob blob = {0};
    struct blob middle = {0};
    struct blob inner = {0};
    blob_field_text(&inner, 1, "the-id");
    blob_field_varint(&middle, 1, UINT64_MAX);
    blob_field_blob(&middle, 300, &inner);
    blob_field_text(&blob, 1, "not this");
    blob_field_blob(&blob, 2, &middle);
    blob_field_text(&blob, 300, "nor this");
    for (size_t at = 0; at <= blob.used; at++) {
        struct spans spans = spans_cut(blob.bytes, blob.used, at);
        struct find find = find_in(&spans.message, numbers, 3);
        assert_int_equal(find.status, STATUS_OK);
        assert_true(find.any);
        assert_string_equal(find.text, "the-id");
        spans_free(&spans);
        spans = spans_cut(blob.bytes, at, at);
        find =
            find_in(&spans.message, numbers, 3); /* cut short: found by now, or not, or refused */
        assert_true(find.status == STATUS_OK || find.status == STATUS_INVALID_ARGUMENT);
        spans_free(&spans);
    }
    blob_free(&blob);
}

struct literal {
    const char *bytes;
    size_t count;
};

#define BYTES(text)                                                                                \
    {                                                                                              \
        (text), sizeof(text) - 1                                                                   \
    }

TEST_CASE(test_which_one)
{
    static const uint32_t numbers[] = {1, 2};
    static const struct {
        const char *what;
        struct literal message;
        const char *text; /* NULL: none */
    } cases[] = {
        {"an empty message", BYTES(""), NULL},
        {"other fields", BYTES("\x12\x01x\x18\x05"), NULL},
        {"an empty message on the way", BYTES("\x0a\x00"), NULL},
        {"one", BYTES("\x0a\x03\x12\x01x"), "x"},
        {"an empty one", BYTES("\x0a\x02\x12\x00"), ""},
        {"the last of two strings", BYTES("\x0a\x06\x12\x01x\x12\x01y"), "y"},
        {"the last, which is empty", BYTES("\x0a\x05\x12\x01x\x12\x00"), ""},
        {"the last of two messages", BYTES("\x0a\x03\x12\x01x\x0a\x03\x12\x01y"), "y"},
        {"two messages are one: the second says nothing",
         BYTES("\x0a\x03\x12\x01x\x0a\x02\x18\x05"), "x"},
        {"two messages are one: the second is empty", BYTES("\x0a\x03\x12\x01x\x0a\x00"), "x"},
        {"the same number elsewhere", BYTES("\x1a\x05\x0a\x03\x12\x01x"), NULL},
        {"a tag longer than it must be", BYTES("\x8a\x00\x03\x12\x01x"), "x"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct spans spans =
            spans_cut(cases[i].message.bytes, cases[i].message.count, cases[i].message.count);
        struct find find = find_in(&spans.message, numbers, 2);
        if (find.status != STATUS_OK || find.any != (cases[i].text != NULL) ||
            (find.any && strcmp(find.text, cases[i].text) != 0))
            fail_msg("%s: %s any=%d \"%s\"", cases[i].what, find.error.text, find.any, find.text);
        spans_free(&spans);
    }
}

/* ---- refused ---- */

TEST_CASE(test_refused)
{
    static const uint32_t numbers[] = {1, 2};
    static const struct {
        struct literal message;
        const char *text;
    } cases[] = {
        {BYTES("\x08\x01"), "field 1 has wire type 0, not that of a message"},
        {BYTES("\x0d\1\2\3\4"), "field 1 has wire type 5, not that of a message"},
        {BYTES("\x0a\x02\x10\x01"), "field 1.2 has wire type 0, not that of a string"},
        {BYTES("\x0a\x09\x11\1\2\3\4\5\6\7\x08"),
         "field 1.2 has wire type 1, not that of a string"},
        {BYTES("\x0a\x03\x12\x01x\x0a\x02\x10\x01"), "field 1.2 has wire type 0"},
        {BYTES("\x0a\x04\x12\x01x"), "malformed, or cut short"},
        {BYTES("\x0a\x03\x12\x02x"), "malformed, or cut short"},
        {BYTES("\x0a\x03\x12\x01x\x12"), "malformed, or cut short"},
        {BYTES("\x0a\x03\x12\x01x\x02\x00"), "malformed, or cut short"},
        {BYTES("\x0a\x05\x12\x01x\x0b\x0c"), "malformed, or cut short"},
        {BYTES("\x0b\x0c\x0a\x03\x12\x01x"), "malformed, or cut short"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct spans spans =
            spans_cut(cases[i].message.bytes, cases[i].message.count, cases[i].message.count);
        struct find find = find_in(&spans.message, numbers, 2);
        assert_int_equal(find.status, STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(find.error.text, cases[i].text));
        spans_free(&spans);
    }
}

/* Fields of all messages that are walked count; what is skipped does not. */
TEST_CASE(test_too_many_fields)
{
    static const uint32_t numbers[] = {1, 2};
    struct blob many = {0};
    for (int i = 0; i < FIELD_PATH_FIELDS_MAX - 2; i++)
        blob_field_varint(&many, 3, 1);
    struct blob skipped = {0};
    blob_field_bytes(&skipped, 4, many.bytes, many.used);
    blob_field_blob(&skipped, 1, &many);
    struct find find = find_in_blob(&skipped, numbers, 2);
    assert_int_equal(find.status, STATUS_OK);
    blob_field_varint(&skipped, 3, 1);
    find = find_in_blob(&skipped, numbers, 2);
    assert_int_equal(find.status, STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(find.error.text, "more than 65536 fields"));
    blob_free(&skipped);
}

/* ---- random messages ---- */

enum { ROUNDS = 3000 };

struct made {
    uint32_t numbers[FIELD_PATH_MAX];
    uint32_t depth;
    bool any;
    char text[8];
};

static void
put_noise(struct blob *blob, const struct made *made, uint32_t level)
{
    uint32_t number = made->numbers[level];
    while (number == made->numbers[level])
        number = 1 + (uint32_t)random_below(40);
    switch (random_below(3)) {
    case 0: blob_field_varint(blob, number, random_draw(&random_state)); break;
    case 1: blob_field_bytes(blob, number, "\x0a\x03\x12\x01x", random_below(6)); break;
    default:
        blob_varint(blob, wire_tag(number, WIRE_FIXED64));
        blob_put(blob, "12345678", 8);
        break;
    }
}

/* One message of the path, with what is on it any number of times. */
static void
put_level(struct blob *blob, struct made *made, uint32_t level)
{
    for (uint64_t i = random_below(4); i > 0; i--) {
        if (random_below(2) == 0) {
            put_noise(blob, made, level);
        } else if (level + 1 == made->depth) {
            int bytes =
                snprintf(made->text, sizeof(made->text), "%u", (unsigned)random_below(1000000));
            if (random_below(8) == 0)
                made->text[bytes = 0] = '\0';
            made->any = true;
            blob_field_bytes(blob, made->numbers[level], made->text, (size_t)bytes);
        } else {
            struct blob inner = {0};
            put_level(&inner, made, level + 1);
            blob_field_blob(blob, made->numbers[level], &inner);
        }
    }
}

TEST_CASE(test_random)
{
    random_init();
    unsigned there = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct made made = {.depth = 1 + (uint32_t)random_below(round % 10 == 0 ? 16 : 3)};
        for (uint32_t i = 0; i < made.depth; i++)
            made.numbers[i] = 1 + (uint32_t)random_below(20);
        struct blob blob = {0};
        put_level(&blob, &made, 0);
        struct spans spans = spans_random(blob.bytes, blob.used);
        struct find find = find_in(&spans.message, made.numbers, made.depth);
        if (find.status != STATUS_OK || find.any != made.any || strcmp(find.text, made.text) != 0)
            fail_msg("round %d: %s any=%d \"%s\", made any=%d \"%s\"", round, find.error.text,
                     find.any, find.text, made.any, made.text);
        there += made.any;
        spans_free(&spans);
        blob_free(&blob);
    }
    print_message("%u of %d had it\n", there, ROUNDS);
    assert_true(there > ROUNDS / 10);
}

TEST_CASE(test_text)
{
    static const uint32_t numbers[] = {1, 20, 536870911};
    char text[FIELD_PATH_TEXT_BYTES];
    field_path_text(numbers, 3, text);
    assert_string_equal(text, "1.20.536870911");
    field_path_text(numbers, 0, text);
    assert_string_equal(text, "");
    uint32_t longest[FIELD_PATH_MAX];
    for (int i = 0; i < FIELD_PATH_MAX; i++)
        longest[i] = 536870911;
    field_path_text(longest, FIELD_PATH_MAX, text);
    assert_int_equal(strlen(text), FIELD_PATH_TEXT_BYTES - 1);
}

TEST_MAIN()
