/* SPDX-License-Identifier: Apache-2.0 */
/* The adapters that an answer to GET /v1/models lists: models with a `parent`. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "gateway/core/gateway_core.h"
#include "gateway/scan/json_scan.h"

struct model_list {
    uint64_t base; /* hash of the first model without parent; 0: none */
    struct json_span base_name;
    uint32_t adapter_count;
    uint64_t adapters[GATEWAY_ADAPTERS_MAX];
    struct json_span adapter_names[GATEWAY_ADAPTERS_MAX];
};

/* The names are within the text, escapes as written. Of a text that is no such answer, nothing is
 * taken. */
void model_list_read(const char *text, size_t bytes, struct model_list *list);
