/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a body whose model the gateway looks for. Where Jansson reads an object of which the
 * scan finds the model to be text, it must be the same text: else the gateway would choose by
 * another model than the server answers with. The same bytes are an answer with `usage`. ctest:
 * libs=jansson
 */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/scan/json_scan.h"
#include "gateway/scan/usage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_model(const char *text, size_t size, const struct bytes *meant)
{
    json_t *read = json_loadb(text, size, JSON_ALLOW_NUL, NULL);
    json_t *model = json_object_get(read, "model");
    CHECK(read == NULL || json_is_string(model));
    CHECK(read == NULL || (json_string_length(model) == meant->used &&
                           memcmp(json_string_value(model), meant->data, meant->used) == 0));
    json_decref(read);
}

static void
check_elements(const char *text, size_t size, struct json_span array)
{
    struct json_span element;
    size_t before = 0;
    for (size_t at = 0; json_scan_next(array, &at, &element); before = at) {
        CHECK(at > before && element.bytes > 0);
        CHECK(element.at >= text && element.at + element.bytes <= text + size);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_member members[] = {{.name = "model"}, {.name = "messages"}};
    struct bytes meant = {0};
    char *text = malloc(size > 0 ? size : 1); /* of exactly that size: reading beyond it is seen */
    CHECK(text != NULL);
    memcpy(text, data, size);
    const char *mistake = json_scan_members(text, size, members, ARRAY_COUNT(members));
    bool is_text = mistake == NULL && members[0].value.at != NULL &&
                   json_span_decode(members[0].value, &meant);
    CHECK(meant.used <= size);
    if (is_text && meant.used > 0)
        check_model(text, size, &meant);
    if (mistake == NULL)
        check_elements(text, size, members[1].value);
    struct usage_tail tail = {.used = 0};
    struct usage usage;
    usage_feed(&tail, text, size);
    (void)usage_read(&tail, &usage);
    bytes_fini(&meant);
    free(text);
    return 0;
}
