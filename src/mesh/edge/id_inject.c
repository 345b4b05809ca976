/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/id_inject.h"

#include "base/check.h"

/* The last field with a number on one level: offsets of its head, its content, and the bytes after
 * it. */
struct inject_field {
    uint64_t head;
    uint64_t content;
    uint64_t end;
};

struct inject_walk {
    const uint32_t *numbers;
    uint32_t depth;
    uint32_t fields; /* fields examined so far */
    uint32_t level;  /* levels found, from the outermost */
    struct inject_field found[FIELD_PATH_MAX];
};

static enum status
wrong_type(const struct inject_walk *walk, uint32_t level, struct error *error)
{
    char text[FIELD_PATH_TEXT_BYTES];
    field_path_text(walk->numbers, level + 1, text);
    return error_set(error, STATUS_INVALID_ARGUMENT, "field %s is not a %s", text,
                     level + 1 < walk->depth ? "message" : "string");
}

/* Searches one message, which begins at `begin`, for its field of the path. */
static enum status
walk_level(struct inject_walk *walk, struct wire_cursor message, uint64_t begin, bool *any,
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
            walk->found[level] = (struct inject_field){head, after - field.value, after};
            *inside = field.data;
            *any = true;
        }
        head = after;
    }
    if (result == WIRE_MALFORMED)
        return error_set(error, STATUS_INVALID_ARGUMENT, "malformed, or cut short");
    return STATUS_OK;
}

/* Computes the length of each field's content with the new id. */
static void
lengths(const struct inject_walk *walk, uint64_t id_bytes, uint64_t length[FIELD_PATH_MAX])
{
    length[walk->depth - 1] = id_bytes;
    for (uint32_t i = walk->depth - 1; i-- > 0;) {
        uint64_t inner = wire_head_bytes(walk->numbers[i + 1], length[i + 1]) + length[i + 1];
        uint64_t rest = 0; /* the content's other bytes */
        if (i < walk->level)
            rest = walk->found[i].end - walk->found[i].content;
        if (i + 1 < walk->level)
            rest -= walk->found[i + 1].end - walk->found[i + 1].head;
        length[i] = rest + inner;
    }
}

static void
plan_write(const struct inject_walk *walk, uint64_t id_bytes, uint64_t bytes,
           struct id_inject *plan)
{
    uint64_t length[FIELD_PATH_MAX];
    unsigned char *heads = plan->heads;
    uint64_t from = 0;
    lengths(walk, id_bytes, length);
    plan->range_count = 0;
    for (uint32_t i = 0; i < walk->depth; i++) {
        /* The first missing field goes to the end of its enclosing message; the others nest in it
         * directly. */
        uint64_t to = i < walk->level    ? walk->found[i].head
                      : i > walk->level  ? from
                      : walk->level == 0 ? bytes
                                         : walk->found[walk->level - 1].end;
        unsigned char *head = heads;
        heads += wire_put_head(heads, walk->numbers[i], length[i]);
        plan->ranges[plan->range_count] = (struct id_range){from, to};
        plan->head_bytes[plan->range_count++] = (uint8_t)(heads - head);
        from = i < walk->level ? walk->found[i].content : to;
    }
    if (walk->level == walk->depth)
        from = walk->found[walk->depth - 1].end; /* the former id is dropped */
    plan->ranges[plan->range_count] = (struct id_range){from, bytes};
    plan->head_bytes[plan->range_count++] = 0;
}

enum status
id_inject_plan(const struct wire_message *message, const uint32_t *numbers, uint32_t depth,
               uint64_t id_bytes, struct id_inject *plan, struct error *error)
{
    CHECK(depth >= 1 && depth <= FIELD_PATH_MAX);
    struct inject_walk walk = {.numbers = numbers, .depth = depth};
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
