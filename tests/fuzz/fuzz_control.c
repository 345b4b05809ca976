/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an operator's request: it is refused with words, or its texts are UTF-8, within the
 * packet and their limits, and what they are written as is read as the same request.
 */
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "coordinator/loop/control_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
write_again(struct bytes *out, const struct control_request *request)
{
    struct json json = json_begin(out, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_field_int(&json, "version", CONTROL_VERSION);
    json_field_string(&json, "verb", control_verb_name(request->verb));
    json_field_string(&json, "pipeline", request->pipeline);
    json_field_string(&json, "id", request->id);
    json_field_string(&json, "path", request->path);
    json_field_string(&json, "key", request->key);
    json_field_string(&json, "prefix", request->prefix);
    json_field_string(&json, "node", request->node);
    json_field_string(&json, "config", request->config);
    json_field_int(&json, "from", request->from);
    json_field_int(&json, "limit", request->limit);
    json_field_bool(&json, "no_wait", request->no_wait);
    json_close(&json, '}');
}

static void
check_text(const char *packet, const char *text, size_t room)
{
    size_t bytes = strlen(text);
    CHECK(bytes < room && utf8_is_text(text, bytes));
    CHECK(bytes == 0 || (text >= packet && text + bytes < packet + CONTROL_REQUEST_BYTES));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char packet[CONTROL_REQUEST_BYTES], other[CONTROL_REQUEST_BYTES];
    struct control_request request, again;
    struct error error = ERROR_NONE;
    struct bytes first = {0}, second = {0};
    memcpy(packet, data, size < sizeof(packet) ? size : sizeof(packet));
    if (control_request_read(packet, size, &request, &error) != STATUS_OK) {
        CHECK(error.status != STATUS_OK && error.text[0] != '\0');
        return 0;
    }
    check_text(packet, request.pipeline, CONTROL_NAME_BYTES);
    check_text(packet, request.id, CONTROL_KEY_BYTES);
    check_text(packet, request.path, CONTROL_PATH_BYTES);
    check_text(packet, request.key, CONTROL_KEY_BYTES);
    check_text(packet, request.prefix, CONTROL_KEY_BYTES);
    check_text(packet, request.node, CONTROL_PATH_BYTES);
    check_text(packet, request.config, CONTROL_PATH_BYTES);
    write_again(&first, &request);
    if (first.used <= sizeof(other)) { /* escapes may make it longer */
        memcpy(other, first.data, first.used);
        CHECK(control_request_read(other, first.used, &again, &error) == STATUS_OK);
        write_again(&second, &again);
        CHECK(second.used == first.used && memcmp(first.data, second.data, first.used) == 0);
    }
    bytes_fini(&first);
    bytes_fini(&second);
    return 0;
}
