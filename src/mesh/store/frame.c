/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/store/frame.h"

#include <string.h>

#include "base/check.h"

#define FRAME_MARK UINT32_C(0x6d617266)

enum { VERSION = 1 };

static const char magic[8] = {'s', 'h', 'o', 'a', 'l', 'r', 'e', 'g'};

/* ---- numbers ---- */

static void
put_number(char *to, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (char)(number >> 8 * i);
}

static uint64_t
get_number(const char *from, size_t bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < bytes; i++)
        number |= (uint64_t)(unsigned char)from[i] << 8 * i;
    return number;
}

static uint32_t
get_u32(const char *from)
{
    return (uint32_t)get_number(from, 4);
}

/* Reversed polynomial 0x82f63b78, half a byte at a time: a small table, as fast as a disk. */
static uint32_t
frame_checksum(const void *data, size_t bytes)
{
    static const uint32_t table[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    const unsigned char *at = data;
    uint32_t sum = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        sum ^= at[i];
        sum = sum >> 4 ^ table[sum & 15];
        sum = sum >> 4 ^ table[sum & 15];
    }
    return ~sum;
}

/* ---- writing ---- */

void
frame_file_put(struct bytes *to)
{
    char head[FRAME_FILE_BYTES];
    memcpy(head, magic, sizeof(magic));
    put_number(head + 8, VERSION, 4);
    put_number(head + 12, frame_checksum(head, 12), 4);
    bytes_put(to, head, sizeof(head));
}

void
frame_open(struct bytes *to)
{
    static const char head[FRAME_HEAD_BYTES];
    bytes_put(to, head, sizeof(head));
}

void
frame_entry_put(struct bytes *to, enum frame_kind kind, const struct store_record *record)
{
    char head[FRAME_ENTRY_BYTES] = {0};
    size_t id_bytes = strlen(record->id);
    head[0] = (char)kind;
    head[1] = (char)record->table;
    put_number(head + 4, id_bytes, 4);
    put_number(head + 8, record->value_bytes, 4);
    put_number(head + 16, record->create_revision, 8);
    put_number(head + 24, record->revision, 8);
    bytes_put(to, head, sizeof(head));
    bytes_put(to, record->id, id_bytes);
    bytes_put(to, record->value, record->value_bytes);
}

void
frame_close(struct bytes *to, size_t at)
{
    CHECK(!to->failed && to->used - at - FRAME_HEAD_BYTES <= FRAME_BODY_BYTES_MAX);
    char *head = to->data + at;
    size_t body_bytes = to->used - at - FRAME_HEAD_BYTES;
    put_number(head, FRAME_MARK, 4);
    put_number(head + 4, body_bytes, 4);
    put_number(head + 8, frame_checksum(head + FRAME_HEAD_BYTES, body_bytes), 4);
    put_number(head + 12, frame_checksum(head, 12), 4);
}

/* ---- reading ---- */

bool
frame_is_whole(const char *data, size_t bytes, size_t *frame_bytes)
{
    if (bytes < FRAME_HEAD_BYTES || get_u32(data) != FRAME_MARK ||
        get_u32(data + 12) != frame_checksum(data, 12))
        return false;
    size_t body_bytes = get_u32(data + 4);
    if (body_bytes > bytes - FRAME_HEAD_BYTES ||
        get_u32(data + 8) != frame_checksum(data + FRAME_HEAD_BYTES, body_bytes))
        return false;
    *frame_bytes = FRAME_HEAD_BYTES + body_bytes;
    return true;
}

/* Returns its length; 0: not an entry. The id is NUL-terminated while it is shown. */
static size_t
read_entry(const char *at, size_t left, const struct journal_reader *reader)
{
    char id[STORE_ID_BYTES_MAX + 1];
    if (left < FRAME_ENTRY_BYTES)
        return 0;
    size_t id_bytes = get_u32(at + 4);
    size_t value_bytes = get_u32(at + 8);
    left -= FRAME_ENTRY_BYTES;
    if (id_bytes > STORE_ID_BYTES_MAX || id_bytes > left || value_bytes > left - id_bytes ||
        (unsigned char)at[1] >= STORE_TABLES)
        return 0;
    memcpy(id, at + FRAME_ENTRY_BYTES, id_bytes);
    id[id_bytes] = '\0';
    struct store_record record = {
        .table = (enum store_table)at[1],
        .id = id,
        .value = at + FRAME_ENTRY_BYTES + id_bytes,
        .value_bytes = value_bytes,
        .create_revision = get_number(at + 16, 8),
        .revision = get_number(at + 24, 8),
    };
    switch (at[0]) {
    case FRAME_PUT: reader->on_put(reader->context, &record); break;
    case FRAME_DELETE: reader->on_delete(reader->context, record.table, id, record.revision); break;
    case FRAME_REVISION: reader->on_revision(reader->context, record.revision); break;
    default: return 0;
    }
    return FRAME_ENTRY_BYTES + id_bytes + value_bytes;
}

enum status
frame_read(const char *frame, size_t frame_bytes, const struct journal_reader *reader,
           struct error *error)
{
    size_t at = FRAME_HEAD_BYTES;
    while (at < frame_bytes) {
        size_t entry_bytes = read_entry(frame + at, frame_bytes - at, reader);
        if (entry_bytes == 0)
            return error_set(error, STATUS_DATA_LOSS,
                             "its content has another version or is not a registry");
        at += entry_bytes;
    }
    return STATUS_OK;
}
