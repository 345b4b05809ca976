/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/scan/usage.h"

#include <string.h>

#include "gateway/scan/json_scan.h"

void
usage_feed(struct usage_tail *tail, const void *data, size_t bytes)
{
    const char *at = data;
    if (bytes > USAGE_TAIL_BYTES) {
        at += bytes - USAGE_TAIL_BYTES;
        bytes = USAGE_TAIL_BYTES;
    }
    size_t kept = USAGE_TAIL_BYTES - bytes;
    if (tail->used > kept) {
        memmove(tail->bytes, tail->bytes + tail->used - kept, kept);
        tail->used = (uint32_t)kept;
    }
    memcpy(tail->bytes + tail->used, at, bytes);
    tail->used += (uint32_t)bytes;
}

/* The object after the last `"usage":` that has one; a stream's earlier events may say null. */
static struct json_span
find_object(const struct usage_tail *tail)
{
    static const char name[] = "\"usage\"";
    struct json_span found = {NULL, 0};
    const char *at = tail->bytes;
    const char *end = tail->bytes + tail->used;
    while ((at = memmem(at, (size_t)(end - at), name, sizeof(name) - 1)) != NULL) {
        at += sizeof(name) - 1;
        const char *value = at;
        while (value < end && strchr(" \t\r\n:", *value) != NULL)
            value++;
        if (value < end && *value == '{')
            found = (struct json_span){value, (size_t)(end - value)};
    }
    return found;
}

/* Its objects contain no strings but names. */
static size_t
object_bytes(struct json_span text)
{
    uint32_t depth = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        depth += text.at[i] == '{';
        if (text.at[i] == '}' && --depth == 0)
            return i + 1;
    }
    return 0;
}

static bool
read_number(struct json_span value, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < value.bytes; i++) {
        if (value.at[i] < '0' || value.at[i] > '9' || *number > UINT32_MAX / 10)
            return false;
        *number = *number * 10 + (uint64_t)(value.at[i] - '0');
    }
    return true;
}

bool
usage_read(const struct usage_tail *tail, struct usage *usage)
{
    struct json_member members[] = {{.name = "prompt_tokens"}, {.name = "completion_tokens"}};
    struct json_span object = find_object(tail);
    size_t bytes = object.at != NULL ? object_bytes(object) : 0;
    if (bytes == 0 || json_scan_members(object.at, bytes, members, 2) != NULL ||
        members[0].value.at == NULL)
        return false;
    return read_number(members[0].value, &usage->prompt_tokens) &&
           read_number(members[1].value, &usage->answer_tokens);
}
