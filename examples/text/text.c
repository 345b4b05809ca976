/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The method Upper of text.proto: the modelet of a pipeline with a `method`. Its input is the
 * caller's request and its output the response, both in protobuf's wire format. Two fields are read
 * and written by hand here; for larger messages use protobuf-c, or the protobuf library of the
 * modelet's language.
 */
#include <shoal/modelet.h>

#include <stdbool.h>
#include <string.h>

/* A field begins with a tag: its number and wire type. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5, TYPE_BITS = 3 };
enum { TEXT = 1, CHANGED = 2 };
enum { VARINT_BYTES_MAX = 10, HEAD_BYTES_MAX = 2 * VARINT_BYTES_MAX };

/* The rest of a message. */
struct reader {
    const unsigned char *at;
    size_t left;
};

static bool
read_varint(struct reader *reader, uint64_t *value)
{
    *value = 0;
    for (unsigned i = 0; i < VARINT_BYTES_MAX && reader->left > 0; i++) {
        unsigned char byte = *reader->at++;
        reader->left--;
        *value |= (uint64_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* Reads the bytes of a field of any type; a varint is consumed and has none. */
static bool
field_bytes(struct reader *reader, uint64_t tag, uint64_t *bytes)
{
    uint64_t value;
    *bytes = 0;
    switch (tag & ((1 << TYPE_BITS) - 1)) {
    case VARINT: return read_varint(reader, &value);
    case FIXED32: *bytes = 4; break;
    case FIXED64: *bytes = 8; break;
    case BYTES:
        if (!read_varint(reader, bytes))
            return false;
        break;
    default: return false;
    }
    return *bytes <= reader->left;
}

/* Finds the text of an UpperRequest; unknown fields are skipped, as the format demands. */
static bool
read_request(struct reader reader, const unsigned char **text, size_t *text_bytes)
{
    *text = NULL;
    *text_bytes = 0;
    while (reader.left > 0) {
        uint64_t tag;
        uint64_t bytes;
        if (!read_varint(&reader, &tag) || !field_bytes(&reader, tag, &bytes))
            return false;
        if (tag == (TEXT << TYPE_BITS | BYTES)) {
            *text = reader.at;
            *text_bytes = (size_t)bytes;
        }
        reader.at += bytes;
        reader.left -= (size_t)bytes;
    }
    return true;
}

static size_t
put_varint(unsigned char *to, uint64_t value)
{
    size_t bytes = 0;
    for (; value >= 0x80; value >>= 7)
        to[bytes++] = (unsigned char)(value | 0x80);
    to[bytes++] = (unsigned char)value;
    return bytes;
}

static bool
is_small(unsigned char letter)
{
    return letter >= 'a' && letter <= 'z';
}

static size_t
count_small(const unsigned char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++)
        count += is_small(text[i]);
    return count;
}

static void
copy_upper(unsigned char *to, const unsigned char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = is_small(text[i]) ? (unsigned char)(text[i] - 'a' + 'A') : text[i];
}

static int32_t
answer(const struct shoal_host *host, struct shoal_item *item)
{
    const struct shoal_tensor *message = &item->inputs[0]; /* the only input: see describe */
    const unsigned char *text;
    size_t text_bytes;
    if (!read_request((struct reader){message->data, message->bytes}, &text, &text_bytes))
        return host->fail(item, SHOAL_INVALID_ARGUMENT, "not an UpperRequest");
    unsigned char head[HEAD_BYTES_MAX];
    unsigned char tail[HEAD_BYTES_MAX];
    size_t head_bytes = put_varint(head, TEXT << TYPE_BITS | BYTES);
    head_bytes += put_varint(head + head_bytes, text_bytes);
    size_t tail_bytes = put_varint(tail, CHANGED << TYPE_BITS | VARINT);
    tail_bytes += put_varint(tail + tail_bytes, count_small(text, text_bytes));
    int64_t shape[] = {(int64_t)(head_bytes + text_bytes + tail_bytes)};
    unsigned char *to = host->output(item, "message", SHOAL_UINT8, 1, shape);
    if (to == NULL)
        return item->status;
    memcpy(to, head, head_bytes);
    copy_upper(to + head_bytes, text, text_bytes);
    memcpy(to + head_bytes + text_bytes, tail, tail_bytes);
    return SHOAL_OK;
}

static int
run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++)
        batch->items[i]->status = answer(batch->host, batch->items[i]);
    return SHOAL_OK;
}

static int
describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    static const struct shoal_tensor_spec message = {
        .name = "message", .datatype = SHOAL_UINT8, .rank = 1, .shape = {-1}};
    (void)instance;
    (void)error;
    io->inputs = io->outputs = &message;
    io->input_count = io->output_count = 1;
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER, .abilities = SHOAL_RUNS_BATCHES,
    .name = "text",       .version = "1",
    .describe = describe, .run = run,
};
