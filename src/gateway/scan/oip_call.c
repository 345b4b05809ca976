/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/scan/oip_call.h"

#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "wire/wire.h"

enum grpc_scan
grpc_scan_frame(const void *data, size_t bytes, size_t max, size_t *message_bytes)
{
    const unsigned char *prefix = data;
    if (bytes < GRPC_FRAME_BYTES)
        return GRPC_SCAN_MORE;
    *message_bytes =
        (size_t)prefix[1] << 24 | (size_t)prefix[2] << 16 | (size_t)prefix[3] << 8 | prefix[4];
    if (prefix[0] != 0)
        return GRPC_SCAN_COMPRESSED;
    if (*message_bytes > max)
        return GRPC_SCAN_LARGE;
    return bytes - GRPC_FRAME_BYTES < *message_bytes ? GRPC_SCAN_MORE : GRPC_SCAN_WHOLE;
}

void
grpc_put_prefix(unsigned char to[GRPC_FRAME_BYTES], size_t message_bytes)
{
    CHECK(message_bytes <= UINT32_MAX);
    to[0] = 0;
    to[1] = (unsigned char)(message_bytes >> 24);
    to[2] = (unsigned char)(message_bytes >> 16);
    to[3] = (unsigned char)(message_bytes >> 8);
    to[4] = (unsigned char)message_bytes;
}

/* Servers take the last of several names, so a second one could slip past what was decided for the
 * first. */
const char *
oip_scan_name(const void *message, size_t bytes, struct oip_name *name)
{
    const struct wire_span span = {.data = message, .bytes = bytes};
    const struct wire_message whole = {.spans = &span, .span_count = 1, .bytes = bytes};
    struct wire_cursor cursor = wire_begin(&whole);
    struct wire_field field;
    enum wire_result result;
    uint64_t left = cursor.left;
    *name = (struct oip_name){.text = NULL};
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        if (field.number == 1 && (field.type != WIRE_BYTES || name->text != NULL))
            return "the message names its model twice, or not as a text";
        if (field.number == 1) {
            const char *start = message;
            name->field_at = bytes - (size_t)left;
            name->field_bytes = (size_t)(left - cursor.left);
            name->text_bytes = (size_t)field.value;
            name->text = start + name->field_at + name->field_bytes - name->text_bytes;
        }
        left = cursor.left;
    }
    if (result == WIRE_MALFORMED)
        return "the message is not protobuf";
    if (name->text == NULL || name->text_bytes == 0)
        return "the message does not name a model";
    if (!wire_text_ok((const unsigned char *)name->text, name->text_bytes))
        return "the model's name is not UTF-8, or has a zero byte";
    return NULL;
}

void
oip_rename(struct oip_frame *frame, const void *message, size_t bytes, const struct oip_name *name,
           const char *model)
{
    const char *start = message;
    size_t end = name->field_at + name->field_bytes;
    size_t model_bytes = strlen(model);
    size_t head_bytes = wire_put_head(frame->head, 1, model_bytes);
    size_t renamed_bytes = bytes - name->field_bytes + head_bytes + model_bytes;
    grpc_put_prefix(frame->prefix, renamed_bytes);
    frame->bytes = sizeof(frame->prefix) + renamed_bytes;
    frame->pieces[0] = (struct oip_piece){frame->prefix, sizeof(frame->prefix)};
    frame->pieces[1] = (struct oip_piece){start, name->field_at};
    frame->pieces[2] = (struct oip_piece){frame->head, head_bytes};
    frame->pieces[3] = (struct oip_piece){model, model_bytes};
    frame->pieces[4] = (struct oip_piece){start + end, bytes - end};
}

bool
grpc_read_timeout(const char *text, int64_t *timeout_ns)
{
    enum { DIGITS_MAX = 8 };
    static const struct {
        char unit;
        int64_t ns;
    } units[] = {{'H', 3600 * NS_PER_S}, {'M', 60 * NS_PER_S}, {'S', NS_PER_S},
                 {'m', NS_PER_MS},       {'u', NS_PER_US},     {'n', 1}};
    size_t digits = strspn(text, "0123456789");
    int64_t number = 0;
    if (digits == 0 || digits > DIGITS_MAX || strlen(text) != digits + 1)
        return false;
    for (size_t i = 0; i < digits; i++)
        number = number * 10 + (text[i] - '0');
    for (size_t i = 0; i < ARRAY_COUNT(units); i++)
        if (text[digits] == units[i].unit) {
            *timeout_ns =
                number > INT64_MAX / units[i].ns / 2 ? INT64_MAX / 2 : number * units[i].ns;
            return true;
        }
    return false;
}
