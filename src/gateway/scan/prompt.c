/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/scan/prompt.h"

#include <string.h>

#include "base/check.h"
#include "gateway/core/gateway_core.h"
#include "wire/wire.h"

enum { BYTES_PER_TOKEN = 4 };

/* Clients may escape a name, as PHP does each slash. Logs and labels of metrics show it, so it must
 * be a text. Returns NULL or the mistake. */
static const char *
read_model(struct json_span value, uint64_t *hash)
{
    struct json_span name;
    struct bytes room = {0};
    const char *mistake = NULL;
    if (!json_span_text(value, &room, &name) || name.bytes == 0)
        mistake = "the member `model` is missing, or not a string";
    else if (!wire_text_ok((const unsigned char *)name.at, name.bytes))
        mistake = "the model's name is not UTF-8, or has a zero byte";
    else
        *hash = gateway_name_hash(name.at, name.bytes);
    bytes_fini(&room);
    return mistake;
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
    mistake = read_model(members[0].value, &prompt->model);
    if (mistake != NULL)
        return mistake;
    for (size_t i = MESSAGES; i < STREAM && prompt->prompt.bytes < GATEWAY_BLOCK_BYTES; i++)
        if (members[i].value.at != NULL)
            prompt->prompt = members[i].value;
    const struct json_span *stream = &members[STREAM].value;
    prompt->is_streamed = stream->bytes == 4 && memcmp(stream->at, "true", 4) == 0;
    prompt->tokens = 1 + prompt->prompt.bytes / BYTES_PER_TOKEN;
    return NULL;
}
