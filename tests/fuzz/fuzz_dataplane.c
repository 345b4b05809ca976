/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a mesh's data-plane configuration, and any bytes as a request of a method of it. A
 * text is refused with words, and then the former holds; or taken, and then says of every method
 * the same as often as it is asked, permits what it does not name only if it says so, and leads to
 * an id that is a text, or to none, in every request.
 *
 * The text ends at the first zero byte. Then: length of the request's spans, the request.
 */
#include <string.h>

#include "base/check.h"
#include "coordinator/mesh/mesh_dataplane.h"
#include "coordinator/models/target.h"
#include "spans.h"

static const char *const methods[] = {"/s/m", "/s/n", "/package.Service/Method"};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_id(const struct wire_message *message, const struct dataplane_rule *rule)
{
    struct target_id id;
    struct error error = ERROR_NONE;
    if (target_id_of_message(message, rule->numbers, rule->depth, TARGET_ID_BYTES_MAX, &id,
                             &error) != STATUS_OK)
        CHECK(error.status == STATUS_INVALID_ARGUMENT && error.text[0] != '\0');
    else
        CHECK(id.bytes <= TARGET_ID_BYTES_MAX && (id.bytes == 0 || strlen(id.text) == id.bytes));
}

static void
check_method(struct dataplane *dataplane, const char *method, const struct dataplane_size *size,
             const struct wire_message *message)
{
    struct dataplane_rule rule, again;
    struct error error = ERROR_NONE;
    enum status status = dataplane_find(dataplane, method, &rule, &error);
    CHECK(dataplane_find(dataplane, method, &again, &error) == status);
    CHECK(status == STATUS_OK || (status == STATUS_UNIMPLEMENTED && !size->others));
    CHECK(status != STATUS_OK || size->others || size->methods > 0);
    CHECK(rule.depth == again.depth && rule.name == again.name && rule.depth <= FIELD_PATH_MAX);
    if (rule.depth > 0)
        check_id(message, &rule);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct wire_span spans[SPANS_MAX];
    static const char former[] = "{\"rpcConfigs\": {\"a/former\": {}}}";
    struct dataplane *dataplane = dataplane_create();
    struct dataplane_size said, taken;
    struct dataplane_rule rule;
    struct error error = ERROR_NONE;
    if (size == 0) {
        dataplane_destroy(dataplane);
        return 0;
    }
    size_t bytes = strnlen((const char *)data, size);
    size_t head = bytes + 2 < size ? bytes + 2 : size;
    struct wire_message message =
        cut(data + head, size - head, head < size ? data[head - 1] : 0, spans);
    CHECK(dataplane_set(dataplane, former, strlen(former), &said, &error) == STATUS_OK);
    if (dataplane_set(dataplane, (const char *)data, bytes, &taken, &error) == STATUS_OK) {
        said = taken;
    } else {
        CHECK(error.status == STATUS_INVALID_ARGUMENT && error.text[0] != '\0');
        CHECK(dataplane_find(dataplane, "/a/former", &rule, &error) == STATUS_OK);
    }
    for (size_t i = 0; i < ARRAY_COUNT(methods); i++)
        check_method(dataplane, methods[i], &said, &message);
    dataplane_destroy(dataplane);
    return 0;
}
