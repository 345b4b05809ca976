/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models that an answer to GET /v1/models lists: the base model and its adapters. An adapter
 * should have a `parent`, but servers list some without: vLLM the prompt adapters and all but the
 * first of several --served-model-name, others all their models. So each model that is not the
 * base model counts as an adapter. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "gateway/core/gateway_core.h"
#include "gateway/scan/json_scan.h"

enum { MODEL_LIST_MAX = GATEWAY_ADAPTERS_MAX + 1 };

struct model_list {
    uint64_t base; /* hash of the first model without parent; 0: none */
    uint32_t count;
    uint64_t models[MODEL_LIST_MAX];        /* hashes of what the names mean */
    struct json_span names[MODEL_LIST_MAX]; /* as written, with quotes */
};

/* The names are within the text. Of a text that is no such answer, nothing is taken. */
void model_list_read(const char *text, size_t bytes, struct model_list *list);

/* Lists all but the base model, which the server's metrics may name otherwise than the list.
 * Returns their number. */
uint32_t model_list_adapters(const struct model_list *list, uint64_t base,
                             uint64_t adapters[GATEWAY_ADAPTERS_MAX]);
