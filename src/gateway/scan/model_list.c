/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/scan/model_list.h"

#include "base/check.h"

void
model_list_read(const char *text, size_t bytes, struct model_list *list)
{
    struct json_member data = {.name = "data"};
    struct json_span model;
    *list = (struct model_list){.base = 0};
    if (json_scan_members(text, bytes, &data, 1) != NULL)
        return;
    for (size_t at = 0; json_scan_next(data.value, &at, &model);) {
        struct json_member members[] = {{.name = "id"}, {.name = "parent"}};
        struct json_span id;
        struct json_span parent;
        if (json_scan_members(model.at, model.bytes, members, ARRAY_COUNT(members)) != NULL ||
            !json_span_string(members[0].value, &id) || id.bytes == 0)
            continue;
        uint64_t name = gateway_name_hash(id.at, id.bytes);
        if (json_span_string(members[1].value, &parent)) {
            if (list->adapter_count == GATEWAY_ADAPTERS_MAX)
                continue;
            list->adapter_names[list->adapter_count] = id;
            list->adapters[list->adapter_count++] = name;
        } else if (list->base == 0) {
            list->base = name;
            list->base_name = id;
        }
    }
}
