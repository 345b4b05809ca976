/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/scan/model_list.h"

#include "base/check.h"

void
model_list_read(const char *text, size_t bytes, struct model_list *list)
{
    struct json_member data = {.name = "data"};
    struct json_span model;
    struct bytes room = {0};
    *list = (struct model_list){.base = 0};
    if (json_scan_members(text, bytes, &data, 1) != NULL)
        return;
    for (size_t at = 0; json_scan_next(data.value, &at, &model);) {
        struct json_member members[] = {{.name = "id"}, {.name = "parent"}};
        struct json_span name;
        struct json_span parent;
        if (json_scan_members(model.at, model.bytes, members, ARRAY_COUNT(members)) != NULL ||
            !json_span_text(members[0].value, &room, &name) || name.bytes == 0)
            continue;
        uint64_t hash = gateway_name_hash(name.at, name.bytes);
        if (list->base == 0 && !json_span_string(members[1].value, &parent))
            list->base = hash;
        if (list->count == MODEL_LIST_MAX)
            continue;
        list->names[list->count] = members[0].value;
        list->models[list->count++] = hash;
    }
    bytes_fini(&room);
}

uint32_t
model_list_adapters(const struct model_list *list, uint64_t base,
                    uint64_t adapters[GATEWAY_ADAPTERS_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->count && count < GATEWAY_ADAPTERS_MAX; i++)
        if (list->models[i] != base)
            adapters[count++] = list->models[i];
    return count;
}
