/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/scan/prompt.h"

#include <string.h>

#include "base/check.h"
#include "gateway/core/gateway_core.h"

enum { BYTES_PER_TOKEN = 4 };

/* Clients may escape a name, as PHP does each slash. 0: it is no text. */
static uint64_t
model_hash(struct json_span value)
{
    struct json_span name;
    struct bytes room = {0};
    bool is_text = json_span_text(value, &room, &name) && name.bytes > 0;
    uint64_t hash = is_text ? gateway_name_hash(name.at, name.bytes) : 0;
    bytes_fini(&room);
    return hash;
}

const char *
prompt_read(const char *body, size_t bytes, struct prompt *prompt)
{
    struct json_member members[] = {{.name = "model"},
                                    {.name = "messages"},
                                    {.name = "prompt"},
                                    {.name = "input"},
                                    {.name = "stream"}};
    enum { MESSAGES = 1, STREAM = 4 };
    *prompt = (struct prompt){0};
    if (bytes == 0)
        return "the body is empty";
    const char *mistake = json_scan_members(body, bytes, members, ARRAY_COUNT(members));
    if (mistake != NULL)
        return mistake;
    prompt->name = members[0].value;
    prompt->model = model_hash(members[0].value);
    if (prompt->model == 0)
        return "the member `model` is missing, or not a string";
    for (size_t i = MESSAGES; i < STREAM && prompt->prompt.bytes < GATEWAY_BLOCK_BYTES; i++)
        if (members[i].value.at != NULL)
            prompt->prompt = members[i].value;
    const struct json_span *stream = &members[STREAM].value;
    prompt->is_streamed = stream->bytes == 4 && memcmp(stream->at, "true", 4) == 0;
    prompt->tokens = 1 + prompt->prompt.bytes / BYTES_PER_TOKEN;
    return NULL;
}
