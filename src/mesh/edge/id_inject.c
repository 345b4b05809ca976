/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/id_inject.h"

#include "base/check.h"

/* The last field of its number on a level: where its head, its content, and what follows begin. */
struct found {
    uint64_t head;
    uint64_t content;
    uint64_t end;
};

struct walk {
    const uint32_t *numbers;
    uint32_t depth;
    uint32_t fields; /* looked at so far */
    uint32_t level;  /* how many were found, from the outermost in */
    struct found found[FIELD_PATH_MAX];
};

static enum status
wrong_type(const struct walk *walk, uint32_t level, struct error *error)
{
    char text[FIELD_PATH_TEXT_BYTES];
    field_path_text(walk->numbers, level + 1, text);
    return error_set(error, STATUS_INVALID_ARGUMENT, "field %s is no %s", text,
                     level + 1 < walk->depth ? "message" : "string");
}

/* Looks through one message, which begins at `begin`, for its field of the path. */
static enum status
walk_level(struct walk *walk, struct wire_cursor message, uint64_t begin, bool *any,
           struct wire_cursor *inside, struct error *error)
{
    uint32_t level = walk->level;
    uint64_t end = begin + message.left;
    struct wire_field field;
    enum wire_result result;
    uint64_t head = begin;
    *any = false;
    while ((result = wire_next(&message, &field)) == WIRE_FIELD) {
        if (++walk->fields > FIELD_PATH_FIELDS_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d fields",
                             FIELD_PATH_FIELDS_MAX);
        uint64_t after = end - message.left;
        if (field.number == walk->numbers[level]) {
            if (field.type != WIRE_BYTES)
                return wrong_type(walk, level, error);
            walk->found[level] = (struct found){head, after - field.value, after};
            *inside = field.data;
            *any = true;
        }
        head = after;
    }
    if (result == WIRE_MALFORMED)
        return error_set(error, STATUS_INVALID_ARGUMENT, "malformed, or cut short");
    return STATUS_OK;
}

/* The length of each field's content, the new id in it. */
static void
lengths(const struct walk *walk, uint64_t id_bytes, uint64_t length[FIELD_PATH_MAX])
{
    unsigned char unused[WIRE_VARINT_BYTES_MAX];
    length[walk->depth - 1] = id_bytes;
    for (uint32_t i = walk->depth - 1; i-- > 0;) {
        uint64_t inner = wire_put_varint(unused, wire_tag(walk->numbers[i + 1], WIRE_BYTES)) +
                         wire_put_varint(unused, length[i + 1]) + length[i + 1];
        uint64_t rest = 0; /* what else was in there */
        if (i < walk->level)
            rest = walk->found[i].end - walk->found[i].content;
        if (i + 1 < walk->level)
            rest -= walk->found[i + 1].end - walk->found[i + 1].head;
        length[i] = rest + inner;
    }
}

static void
plan_write(const struct walk *walk, uint64_t id_bytes, uint64_t bytes, struct id_inject *plan)
{
    uint64_t length[FIELD_PATH_MAX];
    unsigned char *heads = plan->heads;
    uint64_t from = 0;
    lengths(walk, id_bytes, length);
    plan->range_count = 0;
    for (uint32_t i = 0; i < walk->depth; i++) {
        /* The first that is missing goes to the end of what it is missing in; the others are in
         * it, with nothing between. */
        uint64_t to = i < walk->level    ? walk->found[i].head
                      : i > walk->level  ? from
                      : walk->level == 0 ? bytes
                                         : walk->found[walk->level - 1].end;
        unsigned char *head = heads;
        heads += wire_put_varint(heads, wire_tag(walk->numbers[i], WIRE_BYTES));
        heads += wire_put_varint(heads, length[i]);
        plan->ranges[plan->range_count] = (struct id_range){from, to};
        plan->head_bytes[plan->range_count++] = (uint8_t)(heads - head);
        from = i < walk->level ? walk->found[i].content : to;
    }
    if (walk->level == walk->depth)
        from = walk->found[walk->depth - 1].end; /* the former id goes */
    plan->ranges[plan->range_count] = (struct id_range){from, bytes};
    plan->head_bytes[plan->range_count++] = 0;
}

enum status
id_inject_plan(const struct rpc_message *message, const uint32_t *numbers, uint32_t depth,
               uint64_t id_bytes, struct id_inject *plan, struct error *error)
{
    CHECK(depth >= 1 && depth <= FIELD_PATH_MAX);
    struct walk walk = {.numbers = numbers, .depth = depth};
    struct wire_cursor cursor = wire_begin(message);
    uint64_t begin = 0;
    bool any = true;
    while (any && walk.level < depth) {
        struct wire_cursor inside = {0};
        enum status status = walk_level(&walk, cursor, begin, &any, &inside, error);
        if (status != STATUS_OK)
            return status;
        begin = walk.found[walk.level].content;
        cursor = inside;
        walk.level += any;
    }
    plan_write(&walk, id_bytes, message->bytes, plan);
    return STATUS_OK;
}
