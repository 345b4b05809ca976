/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protobuf's wire format: what the writer wrote, the cursor reads back, wherever the message is
 * split; lengths are known beforehand; cut or endless varints are malformed.
 */
#include <string.h>

#include "../test.h"
#include "base/bytes.h"
#include "wire/wire.h"

static const uint64_t edges[] = {
    0,          1,          127,        128,        16383,      16384,          UINT32_MAX,
    1ULL << 32, 1ULL << 34, 1ULL << 35, 1ULL << 62, 1ULL << 63, UINT64_MAX - 1, UINT64_MAX};
enum { EDGES = sizeof(edges) / sizeof(edges[0]) };

TEST_CASE(test_lengths_are_known_beforehand)
{
    unsigned char out[WIRE_HEAD_BYTES_MAX];
    static const uint32_t numbers[] = {1, 15, 16, 2047, 2048, (1U << 29) - 1};
    for (size_t i = 0; i < EDGES; i++) {
        assert_int_equal(wire_put_varint(out, edges[i]), wire_varint_bytes(edges[i]));
        for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
            size_t bytes = wire_put_head(out, numbers[k], edges[i]);
            assert_int_equal(bytes, wire_head_bytes(numbers[k], edges[i]));
            assert_in_range(bytes, 2, WIRE_HEAD_BYTES_MAX);
        }
    }
}

/* Reads numbers 1 … EDGES, then a text as field 1000. */
static void
check_message(const struct wire_message *message)
{
    static const char text[] = "between spans";
    struct wire_cursor cursor = wire_begin(message);
    struct wire_field field;
    for (uint32_t i = 0; i < EDGES; i++) {
        assert_int_equal(wire_next(&cursor, &field), WIRE_FIELD);
        assert_int_equal(field.type, WIRE_VARINT);
        assert_int_equal(field.number, i + 1);
        assert_true(field.value == edges[i]);
    }
    char read[sizeof(text) - 1];
    assert_int_equal(wire_next(&cursor, &field), WIRE_FIELD);
    assert_int_equal(field.type, WIRE_BYTES);
    assert_int_equal(field.number, 1000);
    assert_int_equal(field.value, sizeof(read));
    wire_read(&field.data, read, sizeof(read));
    assert_memory_equal(read, text, sizeof(read));
    assert_int_equal(wire_next(&cursor, &field), WIRE_END);
}

TEST_CASE(test_written_fields_are_read_from_any_two_spans)
{
    struct bytes out = {0};
    for (uint32_t i = 0; i < EDGES; i++)
        wire_append_number(&out, i + 1, edges[i]);
    wire_append_run(&out, 1000, "between spans", strlen("between spans"));
    assert_false(out.failed);
    for (size_t split = 0; split <= out.used; split++) {
        struct wire_span spans[] = {{out.data, split}, {out.data + split, out.used - split}};
        check_message(&(struct wire_message){spans, 2, out.used});
    }
    bytes_fini(&out);
}

TEST_CASE(test_a_message_cut_within_a_field_is_malformed)
{
    struct bytes out = {0};
    wire_append_run(&out, 3, "content", strlen("content"));
    for (size_t bytes = 1; bytes < out.used; bytes++) {
        struct wire_span span = {out.data, bytes};
        struct wire_cursor cursor = wire_begin(&(struct wire_message){&span, 1, bytes});
        struct wire_field field;
        assert_int_equal(wire_next(&cursor, &field), WIRE_MALFORMED);
    }
    bytes_fini(&out);
}

TEST_CASE(test_a_varint_of_eleven_bytes_is_malformed)
{
    unsigned char endless[WIRE_VARINT_BYTES_MAX + 1];
    memset(endless, 0x80, sizeof(endless));
    endless[WIRE_VARINT_BYTES_MAX] = 0;
    struct wire_span span = {endless, sizeof(endless)};
    struct wire_cursor cursor = wire_begin(&(struct wire_message){&span, 1, sizeof(endless)});
    uint64_t value;
    assert_false(wire_varint(&cursor, &value));
}

/* An entry of map<string, InferParameter>: the key, then field `choice` of the value. */
static void
put_entry(struct bytes *out, const char *key, unsigned char choice, unsigned char value)
{
    size_t key_bytes = strlen(key);
    const unsigned char head[] = {4 << 3 | WIRE_BYTES, (unsigned char)(key_bytes + 6),
                                  1 << 3 | WIRE_BYTES, (unsigned char)key_bytes};
    const unsigned char tail[] = {2 << 3 | WIRE_BYTES, 2, (unsigned char)(choice << 3), value};
    bytes_put(out, head, sizeof(head));
    bytes_put(out, key, key_bytes);
    bytes_put(out, tail, sizeof(tail));
}

static bool
is_true(const struct bytes *from, uint32_t number, const char *key)
{
    const struct wire_span span = {from->data, from->used};
    const struct wire_message message = {&span, 1, from->used};
    return wire_map_is_true(wire_begin(&message), number, key);
}

TEST_CASE(test_a_map_with_true)
{
    struct bytes out = {0};
    assert_false(is_true(&out, 4, "last"));
    put_entry(&out, "first", 1, 1);
    put_entry(&out, "lasr", 1, 1);
    assert_false(is_true(&out, 4, "last"));
    put_entry(&out, "last", 2, 1); /* an int64_param */
    assert_false(is_true(&out, 4, "last"));
    put_entry(&out, "last", 1, 1);
    assert_true(is_true(&out, 4, "last"));
    assert_false(is_true(&out, 5, "last"));
    put_entry(&out, "last", 1, 0); /* the last entry counts */
    assert_false(is_true(&out, 4, "last"));
    bytes_fini(&out);
}

TEST_MAIN()
