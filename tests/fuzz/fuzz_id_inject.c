/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a message that an id is put into, cut into spans of any length: where there was a
 * place for it, it is found there afterwards, every other byte of the fields beside it is as it
 * was, and putting it there once more changes nothing. For several models the one message that came
 * gets each one's id: that is the same as to put it where another's is.
 *
 * The first bytes: depth and numbers of the path, length of the spans, length of the id.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/edge/id_inject.h"
#include "spans.h"

enum { HEAD_BYTES = 3, ID_BYTES_MAX = 300 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The new message; to be freed. */
static uint8_t *
build(const struct id_inject *plan, const uint8_t *old, size_t old_bytes, const char *id,
      size_t *bytes)
{
    uint8_t *out = malloc(old_bytes + ID_INJECT_HEADS_BYTES_MAX + ID_BYTES_MAX + 1);
    CHECK(out != NULL && plan->range_count >= 2 && plan->range_count <= ID_INJECT_RANGES_MAX);
    const unsigned char *head = plan->heads;
    uint64_t at = 0;
    *bytes = 0;
    for (uint32_t i = 0; i < plan->range_count; i++) {
        struct id_range range = plan->ranges[i];
        CHECK(range.from >= at && range.from <= range.to && range.to <= old_bytes);
        at = range.to;
        memcpy(out + *bytes, old + range.from, range.to - range.from);
        *bytes += range.to - range.from;
        memcpy(out + *bytes, head, plan->head_bytes[i]);
        *bytes += plan->head_bytes[i];
        head += plan->head_bytes[i];
        if (i + 2 == plan->range_count) {
            memcpy(out + *bytes, id, strlen(id));
            *bytes += strlen(id);
        }
    }
    CHECK(at == old_bytes && head <= plan->heads + ID_INJECT_HEADS_BYTES_MAX);
    return out;
}

/* `old` with the id of another model, and `out`, which is `old` with that of one, with it. */
static void
check_another(const struct wire_message *old_message, const uint8_t *old, const uint32_t *numbers,
              uint32_t depth, const uint8_t *out, size_t out_bytes, const char *id)
{
    struct wire_span span = {out, out_bytes};
    struct wire_message message = {&span, 1, out_bytes};
    struct id_inject plan;
    struct error error = ERROR_NONE;
    size_t bytes, over_bytes;
    CHECK(id_inject_plan(old_message, numbers, depth, strlen(id), &plan, &error) == STATUS_OK);
    uint8_t *other = build(&plan, old, old_message->bytes, id, &bytes);
    CHECK(id_inject_plan(&message, numbers, depth, strlen(id), &plan, &error) == STATUS_OK);
    uint8_t *over = build(&plan, out, out_bytes, id, &over_bytes);
    CHECK(bytes == over_bytes && memcmp(other, over, bytes) == 0);
    free(other);
    free(over);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct wire_span spans[SPANS_MAX];
    char id[ID_BYTES_MAX + 1];
    char found_id[ID_BYTES_MAX + 1];
    char another[ID_BYTES_MAX + 1];
    uint32_t numbers[FIELD_PATH_MAX];
    if (size < HEAD_BYTES)
        return 0;
    uint32_t depth = 1 + data[0] % FIELD_PATH_MAX;
    for (uint32_t i = 0; i < depth; i++)
        numbers[i] = 1 + (data[0] >> (4 + i % 4) & 1);
    memset(id, 'i', sizeof(id));
    id[data[2]] = '\0';
    const uint8_t *old = data + HEAD_BYTES;
    struct wire_message message = cut(old, size - HEAD_BYTES, data[1], spans);
    struct id_inject plan;
    struct error error = ERROR_NONE;
    if (id_inject_plan(&message, numbers, depth, strlen(id), &plan, &error) != STATUS_OK) {
        CHECK(error.status == STATUS_INVALID_ARGUMENT && error.text[0] != '\0');
        return 0;
    }
    size_t bytes;
    uint8_t *out = build(&plan, old, message.bytes, id, &bytes);
    struct wire_span span = {out, bytes};
    struct wire_message made = {&span, 1, bytes};
    struct wire_cursor found;
    bool any;
    /* A message that comes several times is looked through in all its parts to find the id, and
     * only in the last to insert it: the others may be malformed. */
    if (field_path_find(&made, numbers, depth, &found, &any, &error) == STATUS_OK) {
        CHECK(any && found.left == strlen(id));
        wire_read(&found, found_id, found.left);
        CHECK(memcmp(found_id, id, strlen(id)) == 0);
    }
    size_t again_bytes;
    CHECK(id_inject_plan(&made, numbers, depth, strlen(id), &plan, &error) == STATUS_OK);
    uint8_t *again = build(&plan, out, bytes, id, &again_bytes);
    CHECK(again_bytes == bytes && memcmp(again, out, bytes) == 0);
    memset(another, 'j', sizeof(another));
    another[data[1]] = '\0';
    check_another(&message, old, numbers, depth, out, bytes, another);
    free(again);
    free(out);
    return 0;
}
