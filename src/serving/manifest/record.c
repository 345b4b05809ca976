/* SPDX-License-Identifier: Apache-2.0 */
/* Records have one form, that of the writers here; other JSON is not read. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serving/manifest/record.h"

struct record_cursor {
    const char *at;
    const char *end;
};

static bool
skip(struct record_cursor *cursor, const char *text)
{
    size_t bytes = strlen(text);
    if ((size_t)(cursor->end - cursor->at) < bytes || memcmp(cursor->at, text, bytes) != 0)
        return false;
    cursor->at += bytes;
    return true;
}

static bool
number(struct record_cursor *cursor, uint64_t *value)
{
    const char *start = cursor->at;
    *value = 0;
    while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9' &&
           *value < UINT64_MAX / 20)
        *value = *value * 10 + (uint64_t)(*cursor->at++ - '0');
    return cursor->at > start;
}

static bool
truth(struct record_cursor *cursor, bool *value)
{
    *value = skip(cursor, "true");
    return *value || skip(cursor, "false");
}

static void
put_number(struct bytes *to, const char *name, uint64_t value)
{
    char text[64];
    snprintf(text, sizeof(text), "%s%" PRIu64, name, value);
    bytes_put_text(to, text);
}

#define CREATED "{\"created_ms\":"
#define DELETED ",\"deleted\":"
#define MANIFEST ",\"manifest\":"

void
manifest_record_write(const struct manifest_record *record, struct bytes *to)
{
    put_number(to, CREATED, (uint64_t)record->created_ms);
    bytes_put_text(to, DELETED);
    bytes_put_text(to, record->deleted ? "true" : "false");
    bytes_put_text(to, MANIFEST);
    bytes_put(to, record->json, record->json_bytes);
    bytes_put_char(to, '}');
}

bool
manifest_record_read(const char *value, size_t bytes, struct manifest_record *record)
{
    struct record_cursor cursor = {value, value + bytes};
    uint64_t created;
    if (!skip(&cursor, CREATED) || !number(&cursor, &created) || !skip(&cursor, DELETED) ||
        !truth(&cursor, &record->deleted) || !skip(&cursor, MANIFEST) ||
        cursor.end - cursor.at < 2 || cursor.end[-1] != '}')
        return false;
    record->created_ms = (int64_t)created;
    record->json = cursor.at;
    record->json_bytes = (size_t)(cursor.end - cursor.at) - 1;
    return true;
}

#define VERSION "{\"version\":"
#define READY ",\"ready\":"
#define SINCE ",\"since_ms\":"
#define EVENTS ",\"events\":"
#define STATUS "],\"status\":"

void
status_record_write(const struct status_record *record, struct bytes *to)
{
    put_number(to, VERSION, record->version);
    bytes_put_text(to, READY);
    bytes_put_text(to, record->ready ? "true" : "false");
    put_number(to, SINCE, (uint64_t)record->since_ms);
    bytes_put_text(to, EVENTS);
    bytes_put(to, record->events, record->events_bytes);
    bytes_put_text(to, &STATUS[1]);
    bytes_put(to, record->status, record->status_bytes);
    bytes_put_char(to, '}');
}

/* The events end where STATUS begins: within a text its quotes would have backslashes. */
bool
status_record_read(const char *value, size_t bytes, struct status_record *record)
{
    struct record_cursor cursor = {value, value + bytes};
    uint64_t since;
    if (!skip(&cursor, VERSION) || !number(&cursor, &record->version) || !skip(&cursor, READY) ||
        !truth(&cursor, &record->ready) || !skip(&cursor, SINCE) || !number(&cursor, &since) ||
        !skip(&cursor, EVENTS))
        return false;
    const char *status =
        memmem(cursor.at, (size_t)(cursor.end - cursor.at), STATUS, strlen(STATUS));
    if (status == NULL || cursor.at[0] != '[' || cursor.end[-1] != '}')
        return false;
    record->since_ms = (int64_t)since;
    record->events = cursor.at;
    record->events_bytes = (size_t)(status + 1 - cursor.at);
    record->status = status + strlen(STATUS);
    record->status_bytes = (size_t)(cursor.end - record->status) - 1;
    return true;
}
