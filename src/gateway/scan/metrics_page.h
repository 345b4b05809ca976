/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a model server's page of metrics in the text format of Prometheus, in any pieces, without
 * allocation: the names of docs/model-server-protocol.md, vLLM, SGLang, TensorRT-LLM, llama.cpp and
 * Triton. Lines longer than METRICS_LINE_BYTES_MAX and everything behind METRICS_PAGE_BYTES_MAX are
 * ignored. Pure.
 *
 * Engines of one server are added up; of their caches the fullest counts, and without one the share
 * of its requests_max that a server has. Of the series of
 * lora_requests_info the one with the greatest value counts. lora_adapter_loaded, where a server
 * has it, says which adapters are loaded; lora_requests_info says only which are in use. A server
 * that has neither has loaded what it lists as adapters among its models.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "gateway/core/gateway_core.h"
#include "gateway/scan/model_list.h"

enum { METRICS_LINE_BYTES_MAX = 4096, METRICS_PAGE_BYTES_MAX = 4 << 20 };

struct metrics_page {
    struct gateway_figures figures; /* after metrics_page_end; its adapters are those below */
    struct gateway_adapter adapters[GATEWAY_ADAPTERS_MAX];
    uint32_t requests_max;
    bool has_kv_cache;
    bool has_states; /* the page says itself which adapters are loaded */
    bool has_info;
    double info_time;
    uint32_t lines_ignored;
    size_t bytes;
    bool skips; /* the rest of a long line */
    size_t used;
    char line[METRICS_LINE_BYTES_MAX];
    char info[METRICS_LINE_BYTES_MAX]; /* labels of the newest lora_requests_info */
};

void metrics_page_begin(struct metrics_page *page);
void metrics_page_feed(struct metrics_page *page, const char *data, size_t bytes);
void metrics_page_end(struct metrics_page *page);
/* Afterwards: adds what the page does not say. */
void metrics_page_take_models(struct metrics_page *page, const struct model_list *models);
