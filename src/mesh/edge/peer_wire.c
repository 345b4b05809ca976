/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table per message describes its members; writer and reader walk the same tables, so they
 * cannot disagree. Members of value zero are not written, as in protobuf.
 */
#include "mesh/edge/peer_wire.h"

#include <string.h>

#include "base/check.h"

enum wire_kind {
    NUMBER_32,
    NUMBER_64, /* signed ones as their bits */
    FLAG,
    CHOICE, /* an enum from 0 to `most` */
    TEXT,   /* a C string of at most `most` bytes */
    RUN,    /* at most `most` bytes */
    ONE,    /* a message; `counter` is the bool that says whether it is present */
    MANY,   /* up to `most` messages; `counter` is their uint32_t count */
};

struct shape;

struct wire_member {
    const char *name;
    enum wire_kind kind;
    uint32_t number;
    size_t at;
    uint32_t most;
    size_t counter;
    const struct shape *shape;
};

struct shape {
    const char *name;
    const struct wire_member *members;
    size_t count;
    size_t bytes; /* of the struct */
};

#define PLAIN(type, kind, number, member, most)                                                    \
    {                                                                                              \
#member, kind, number, offsetof(struct type, member), most, 0, NULL                        \
    }
#define INNER(type, kind, number, member, counter, most, shape)                                    \
    {                                                                                              \
#member, kind, number, offsetof(struct type, member), most,                                \
            offsetof(struct type, counter), shape                                                  \
    }
#define SHAPE(type, members)                                                                       \
    {                                                                                              \
#type, members, ARRAY_COUNT(members), sizeof(struct type)                                  \
    }

/* Enums are read and written in the compiler's representation. */
_Static_assert(sizeof(enum mesh_hop) == 4 && sizeof(enum mesh_end) == 4 &&
                   sizeof(enum mesh_list) == 4 && sizeof(enum mesh_class) == 4 &&
                   sizeof(enum status) == 4 && sizeof(enum peer_flow_shape) == 4,
               "an enumeration takes four bytes");

static const struct wire_member hello_members[] = {
    PLAIN(peer_hello, NUMBER_32, 1, version, 0),
    PLAIN(peer_hello, TEXT, 2, from, MESH_ID_BYTES_MAX),
    PLAIN(peer_hello, TEXT, 3, to, MESH_ID_BYTES_MAX),
    PLAIN(peer_hello, NUMBER_64, 4, start_ms, 0),
    PLAIN(peer_hello, FLAG, 5, tells_clock, 0),
    PLAIN(peer_hello, NUMBER_32, 6, credit_bytes, 0),
};
static const struct shape hello_shape = SHAPE(peer_hello, hello_members);

static const struct wire_member clock_members[] = {
    PLAIN(peer_clock, NUMBER_64, 1, asked_ms, 0),
    PLAIN(peer_clock, NUMBER_64, 2, wall_ms, 0),
    PLAIN(peer_clock, NUMBER_64, 3, mesh_ms, 0),
    PLAIN(peer_clock, FLAG, 4, voted, 0),
};
static const struct shape clock_shape = SHAPE(peer_clock, clock_members);

static const struct wire_member pair_members[] = {
    PLAIN(rpc_metadata, RUN, 1, key, PEER_TEXT_BYTES_MAX),
    PLAIN(rpc_metadata, RUN, 2, value, PEER_HEAD_BYTES_MAX),
};
static const struct shape pair_shape = SHAPE(rpc_metadata, pair_members);

static const struct wire_member tried_members[] = {
    PLAIN(mesh_tried, TEXT, 1, instance, MESH_ID_BYTES_MAX),
    PLAIN(mesh_tried, NUMBER_64, 2, since_ms, 0),
    PLAIN(mesh_tried, CHOICE, 3, list, MESH_LIST_LOAD),
};
static const struct shape tried_shape = SHAPE(mesh_tried, tried_members);

static const struct wire_member call_members[] = {
    PLAIN(peer_call, NUMBER_32, 1, number, 0),
    PLAIN(peer_call, TEXT, 2, method, PEER_METHOD_BYTES_MAX),
    PLAIN(peer_call, TEXT, 3, model, MESH_ID_BYTES_MAX),
    PLAIN(peer_call, NUMBER_64, 4, create_revision, 0),
    PLAIN(peer_call, CHOICE, 5, hop, MESH_HOP_HIT),
    PLAIN(peer_call, NUMBER_64, 6, left_us, 0),
    PLAIN(peer_call, NUMBER_64, 7, message_bytes, 0),
    INNER(peer_call, MANY, 8, tried, tried_count, MESH_TRIED_MAX, &tried_shape),
    INNER(peer_call, MANY, 9, metadata, metadata_count, PEER_METADATA_MAX, &pair_shape),
    PLAIN(peer_call, CHOICE, 10, shape, PEER_FLOW_AWAITED),
};
static const struct shape call_shape = SHAPE(peer_call, call_members);

static const struct wire_member figures_members[] = {
    PLAIN(mesh_figures, NUMBER_64, 1, capacity_units, 0),
    PLAIN(mesh_figures, NUMBER_64, 2, free_units, 0),
    PLAIN(mesh_figures, NUMBER_64, 3, oldest_ms, 0),
    PLAIN(mesh_figures, NUMBER_32, 4, copies, 0),
    PLAIN(mesh_figures, NUMBER_32, 5, loading, 0),
    PLAIN(mesh_figures, NUMBER_32, 6, calls_per_minute, 0),
    PLAIN(mesh_figures, FLAG, 7, full, 0),
};
static const struct shape figures_shape = SHAPE(mesh_figures, figures_members);

static const struct wire_member answer_members[] = {
    PLAIN(peer_answer, NUMBER_32, 1, number, 0),
    PLAIN(peer_answer, CHOICE, 2, end, MESH_END_DEADLINE),
    PLAIN(peer_answer, CHOICE, 3, status, STATUS_COUNT - 1),
    PLAIN(peer_answer, RUN, 4, text, PEER_TEXT_BYTES_MAX),
    PLAIN(peer_answer, FLAG, 5, has_message, 0),
    PLAIN(peer_answer, NUMBER_64, 6, message_bytes, 0),
    INNER(peer_answer, MANY, 7, initial, initial_count, PEER_METADATA_MAX, &pair_shape),
    INNER(peer_answer, MANY, 8, trailing, trailing_count, PEER_METADATA_MAX, &pair_shape),
    INNER(peer_answer, ONE, 9, figures, has_figures, 1, &figures_shape),
};
static const struct shape answer_shape = SHAPE(peer_answer, answer_members);

static const struct wire_member about_members[] = {PLAIN(peer_about, NUMBER_32, 1, number, 0)};
static const struct shape about_shape = SHAPE(peer_about, about_members);

static const struct wire_member ensure_members[] = {
    PLAIN(mesh_ensure, TEXT, 1, model, MESH_ID_BYTES_MAX),
    PLAIN(mesh_ensure, NUMBER_64, 2, used_ms, 0),
    PLAIN(mesh_ensure, CHOICE, 3, class, MESH_CLASS_ADVANCE),
    PLAIN(mesh_ensure, NUMBER_32, 4, target, 0),
    PLAIN(mesh_ensure, NUMBER_64, 5, size_bytes, 0),
};
static const struct shape ensure_shape = {"peer_ensure", ensure_members,
                                          ARRAY_COUNT(ensure_members), sizeof(struct mesh_ensure)};

static const struct wire_member message_members[] = {
    PLAIN(peer_message, NUMBER_32, 1, number, 0),
    PLAIN(peer_message, FLAG, 2, has_message, 0),
    PLAIN(peer_message, FLAG, 3, is_last, 0),
    PLAIN(peer_message, NUMBER_64, 4, message_bytes, 0),
    INNER(peer_message, MANY, 5, initial, initial_count, PEER_METADATA_MAX, &pair_shape),
};
static const struct shape message_shape = SHAPE(peer_message, message_members);

static const struct wire_member credit_members[] = {
    PLAIN(peer_credit, NUMBER_32, 1, number, 0),
    PLAIN(peer_credit, NUMBER_64, 2, cost, 0),
};
static const struct shape credit_shape = SHAPE(peer_credit, credit_members);

static const struct shape bye_shape = {.name = "peer_bye"};

enum { FIELD_FRAME = 1, FIELD_PAYLOAD = 15 };

/* The shapes by the kind's number; all share the union's offset. */
static const struct shape *const shapes[] = {
    [PEER_HELLO] = &hello_shape,     [PEER_CALL] = &call_shape,     [PEER_PART] = &about_shape,
    [PEER_ANSWER] = &answer_shape,   [PEER_CANCEL] = &about_shape,  [PEER_ENSURE] = &ensure_shape,
    [PEER_MESSAGE] = &message_shape, [PEER_CREDIT] = &credit_shape, [PEER_CLOCK] = &clock_shape,
    [PEER_BYE] = &bye_shape,
};
_Static_assert(offsetof(struct peer_frame, hello) == offsetof(struct peer_frame, answer) &&
                   offsetof(struct peer_frame, hello) == offsetof(struct peer_frame, call),
               "members of a union");

/* ---- what lies where ---- */

static uint64_t
number_of(const struct wire_member *member, const unsigned char *from)
{
    uint32_t narrow;
    uint64_t wide;
    switch (member->kind) {
    case NUMBER_64: memcpy(&wide, from + member->at, sizeof(wide)); return wide;
    case FLAG: return *(const bool *)(from + member->at);
    default: memcpy(&narrow, from + member->at, sizeof(narrow)); return narrow;
    }
}

static struct wire_span
span_of(const struct wire_member *member, const unsigned char *from)
{
    struct wire_span span;
    if (member->kind == RUN) {
        memcpy(&span, from + member->at, sizeof(span));
        return span;
    }
    const char *text;
    memcpy(&text, from + member->at, sizeof(text));
    return (struct wire_span){text, text == NULL ? 0 : strlen(text)};
}

static uint32_t
count_of(const struct wire_member *member, const unsigned char *from)
{
    uint32_t count;
    if (member->kind == ONE)
        return *(const bool *)(from + member->counter);
    memcpy(&count, from + member->counter, sizeof(count));
    return count;
}

/* ---- writing ---- */

/* All members' tags take one byte. */
enum { TAG_BYTES = 1 };

static size_t
run_bytes(size_t bytes)
{
    return TAG_BYTES + wire_varint_bytes(bytes) + bytes;
}

static size_t shape_bytes(const struct shape *shape, const unsigned char *from);

static size_t
member_bytes(const struct wire_member *member, const unsigned char *from)
{
    size_t sum = 0;
    switch (member->kind) {
    case NUMBER_32:
    case NUMBER_64:
    case FLAG:
    case CHOICE: {
        uint64_t value = number_of(member, from);
        return value == 0 ? 0 : TAG_BYTES + wire_varint_bytes(value);
    }
    case TEXT:
    case RUN: {
        size_t bytes = span_of(member, from).bytes;
        return bytes == 0 ? 0 : run_bytes(bytes);
    }
    case ONE:
    case MANY:
        for (uint32_t i = 0; i < count_of(member, from); i++)
            sum +=
                run_bytes(shape_bytes(member->shape, from + member->at + i * member->shape->bytes));
        return sum;
    }
    UNREACHABLE();
}

static size_t
shape_bytes(const struct shape *shape, const unsigned char *from)
{
    size_t sum = 0;
    for (size_t i = 0; i < shape->count; i++)
        sum += member_bytes(&shape->members[i], from);
    return sum;
}

static unsigned char *
put_tag(unsigned char *to, uint32_t number, enum wire_type type, uint64_t value)
{
    *to++ = (unsigned char)wire_tag(number, type);
    return to + wire_put_varint(to, value);
}

static unsigned char *
shape_write(const struct shape *shape, const unsigned char *from, unsigned char *to)
{
    for (size_t i = 0; i < shape->count; i++) {
        const struct wire_member *member = &shape->members[i];
        if (member->kind == ONE || member->kind == MANY) {
            for (uint32_t j = 0; j < count_of(member, from); j++) {
                const unsigned char *inner = from + member->at + j * member->shape->bytes;
                to = put_tag(to, member->number, WIRE_BYTES, shape_bytes(member->shape, inner));
                to = shape_write(member->shape, inner, to);
            }
        } else if (member->kind == TEXT || member->kind == RUN) {
            struct wire_span span = span_of(member, from);
            if (span.bytes == 0)
                continue;
            to = put_tag(to, member->number, WIRE_BYTES, span.bytes);
            memcpy(to, span.data, span.bytes);
            to += span.bytes;
        } else if (number_of(member, from) != 0) {
            to = put_tag(to, member->number, WIRE_VARINT, number_of(member, from));
        }
    }
    return to;
}

size_t
peer_frame_write(const struct peer_frame *frame, unsigned char *head)
{
    const struct shape *shape = shapes[frame->kind];
    const unsigned char *from = (const unsigned char *)&frame->hello;
    size_t inner = shape_bytes(shape, from);
    size_t payload =
        frame->payload_bytes == 0 ? 0 : TAG_BYTES + wire_varint_bytes(frame->payload_bytes);
    size_t most = PEER_HEAD_BYTES_MAX - TAG_BYTES - WIRE_VARINT_BYTES_MAX;
    if (run_bytes(inner) + payload > most)
        return 0;
    uint64_t bytes = run_bytes(inner) + payload + frame->payload_bytes;
    unsigned char *to = put_tag(head, FIELD_FRAME, WIRE_BYTES, bytes);
    const unsigned char *begin = to;
    to = put_tag(to, frame->kind, WIRE_BYTES, inner);
    to = shape_write(shape, from, to);
    CHECK((size_t)(to - begin) == run_bytes(inner));
    if (payload > 0)
        to = put_tag(to, FIELD_PAYLOAD, WIRE_BYTES, frame->payload_bytes);
    return (size_t)(to - head);
}

/* ---- reading ---- */

struct wire_reading {
    char *texts; /* room for the next text; each is shorter than it was in the head */
    struct error *error;
    const struct shape *outer;
};

static enum status
refuse(const struct wire_reading *reading, const struct wire_member *member, const char *why)
{
    return error_set(reading->error, STATUS_INVALID_ARGUMENT, "%s: %s: %s", reading->outer->name,
                     member->name, why);
}

static void
shape_clear(const struct shape *shape, unsigned char *to)
{
    static const char *const empty = "";
    for (size_t i = 0; i < shape->count; i++) {
        const struct wire_member *member = &shape->members[i];
        switch (member->kind) {
        case NUMBER_64: memset(to + member->at, 0, sizeof(uint64_t)); break;
        case NUMBER_32:
        case CHOICE: memset(to + member->at, 0, sizeof(uint32_t)); break;
        case FLAG: *(bool *)(to + member->at) = false; break;
        case TEXT: memcpy(to + member->at, &empty, sizeof(const char *)); break;
        case RUN: memset(to + member->at, 0, sizeof(struct wire_span)); break;
        case ONE: *(bool *)(to + member->counter) = false; break;
        case MANY: memset(to + member->counter, 0, sizeof(uint32_t)); break;
        }
    }
}

static enum status
read_number(struct wire_reading *reading, const struct wire_member *member,
            const struct wire_field *field, unsigned char *to)
{
    if (field->type != WIRE_VARINT)
        return refuse(reading, member, "must be a number");
    uint64_t value = field->value;
    uint32_t narrow = (uint32_t)value;
    if (member->kind == NUMBER_64)
        memcpy(to + member->at, &value, sizeof(value));
    else if (member->kind == FLAG)
        *(bool *)(to + member->at) = value != 0;
    else if (value > UINT32_MAX || (member->kind == CHOICE && value > member->most))
        return refuse(reading, member, "is out of range");
    else
        memcpy(to + member->at, &narrow, sizeof(narrow));
    return STATUS_OK;
}

static enum status
read_span(struct wire_reading *reading, const struct wire_member *member, struct wire_field *field,
          unsigned char *to)
{
    if (field->type != WIRE_BYTES)
        return refuse(reading, member, "must be a run of bytes");
    if (field->value > member->most)
        return refuse(reading, member, "is too long");
    char *text = reading->texts;
    size_t bytes = (size_t)field->value;
    wire_read(&field->data, text, bytes);
    if (member->kind == RUN) {
        struct wire_span span = {text, bytes};
        memcpy(to + member->at, &span, sizeof(span));
        reading->texts += bytes;
        return STATUS_OK;
    }
    if (!wire_text_ok((const unsigned char *)text, bytes))
        return refuse(reading, member, "is not UTF-8 without zero bytes");
    text[bytes] = '\0';
    memcpy(to + member->at, &text, sizeof(text));
    reading->texts += bytes + 1;
    return STATUS_OK;
}

static enum status shape_read(struct wire_reading *reading, const struct shape *shape,
                              struct wire_cursor cursor, unsigned char *to);

static enum status
read_inner(struct wire_reading *reading, const struct wire_member *member,
           const struct wire_field *field, unsigned char *to)
{
    uint32_t count = member->kind == ONE ? 0 : count_of(member, to);
    if (field->type != WIRE_BYTES)
        return refuse(reading, member, "must be a message");
    if (count == member->most)
        return refuse(reading, member, "are too many");
    enum status status = shape_read(reading, member->shape, field->data,
                                    to + member->at + count * member->shape->bytes);
    count++;
    if (member->kind == ONE)
        *(bool *)(to + member->counter) = true;
    else
        memcpy(to + member->counter, &count, sizeof(count));
    return status;
}

static enum status
member_read(struct wire_reading *reading, const struct wire_member *member,
            struct wire_field *field, unsigned char *to)
{
    switch (member->kind) {
    case NUMBER_32:
    case NUMBER_64:
    case FLAG:
    case CHOICE: return read_number(reading, member, field, to);
    case TEXT:
    case RUN: return read_span(reading, member, field, to);
    case ONE:
    case MANY: return read_inner(reading, member, field, to);
    }
    UNREACHABLE();
}

/* Recurses as deep as the tables, which is two. */
static enum status
shape_read(struct wire_reading *reading, const struct shape *shape, struct wire_cursor cursor,
           unsigned char *to)
{
    struct wire_field field;
    enum wire_result result;
    shape_clear(shape, to);
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD)
        for (size_t i = 0; i < shape->count; i++) {
            if (shape->members[i].number != field.number)
                continue;
            enum status status = member_read(reading, &shape->members[i], &field, to);
            if (status != STATUS_OK)
                return status;
        }
    if (result == WIRE_MALFORMED)
        return error_set(reading->error, STATUS_INVALID_ARGUMENT, "%s: malformed, or cut short",
                         reading->outer->name);
    return STATUS_OK;
}

static bool
is_kind(uint32_t number)
{
    return number < ARRAY_COUNT(shapes) && shapes[number] != NULL;
}

/* Finds the one head and the payload; `end`: the frame's end in its message. */
static enum status
frame_split(struct wire_cursor cursor, uint64_t end, struct peer_frame *frame,
            struct wire_field *head, struct error *error)
{
    struct wire_field field;
    enum wire_result result;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        if (field.number == FIELD_PAYLOAD && field.type == WIRE_BYTES) {
            frame->payload_bytes = field.value;
            frame->payload_offset = end - cursor.left - field.value;
        } else if (is_kind(field.number)) {
            if (head->number != 0)
                return error_set(error, STATUS_INVALID_ARGUMENT, "frame: has two kinds");
            if (field.type != WIRE_BYTES)
                return error_set(error, STATUS_INVALID_ARGUMENT,
                                 "frame: its kind is not a message");
            *head = field;
        }
    }
    if (result == WIRE_MALFORMED)
        return error_set(error, STATUS_INVALID_ARGUMENT, "frame: malformed, or cut short");
    return STATUS_OK;
}

struct wire_cursor
peer_frame_at(const struct wire_message *message, uint64_t offset)
{
    struct wire_cursor cursor = wire_begin(message);
    wire_skip(&cursor, offset);
    return cursor;
}

enum status
peer_frame_open(const struct wire_message *message, struct wire_cursor *cursor,
                struct peer_frame *frame, struct error *error)
{
    struct wire_field head = {.number = 0};
    struct wire_field all;
    frame->offset = message->bytes - cursor->left;
    frame->payload_offset = frame->payload_bytes = 0;
    if (wire_next(cursor, &all) != WIRE_FIELD || all.number != FIELD_FRAME ||
        all.type != WIRE_BYTES)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "message: a frame is missing or truncated");
    enum status status = frame_split(all.data, message->bytes - cursor->left, frame, &head, error);
    if (status != STATUS_OK)
        return status;
    if (head.number == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "frame: unknown kind");
    if (head.value > PEER_HEAD_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "frame: a head of %llu bytes, at most %d",
                         (unsigned long long)head.value, PEER_HEAD_BYTES_MAX);
    if (frame->payload_bytes > PEER_PART_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "frame: a payload of %llu bytes, at most %d",
                         (unsigned long long)frame->payload_bytes, PEER_PART_BYTES_MAX);
    frame->kind = (enum peer_kind)head.number;
    frame->head = head.data;
    frame->head_bytes = (uint32_t)head.value;
    return STATUS_OK;
}

enum status
peer_frame_read(struct peer_frame *frame, char *texts, struct error *error)
{
    const struct shape *shape = shapes[frame->kind];
    struct wire_reading reading = {.error = error, .outer = shape};
    reading.texts = texts;
    return shape_read(&reading, shape, frame->head, (unsigned char *)&frame->hello);
}
