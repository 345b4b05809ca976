/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/scan/metrics_page.h"

#include <stdlib.h>
#include <string.h>

/* A name="value" of a series; false: no such label. */
static bool
label_find(const char *labels, const char *name, const char **value, size_t *bytes)
{
    size_t name_bytes = strlen(name);
    for (const char *at = labels; *at != '\0' && *at != '}';) {
        at += strspn(at, ", ");
        size_t length = strcspn(at, "=}");
        if (at[length] != '=' || at[length + 1] != '"')
            return false;
        const char *from = at + length + 2;
        const char *end = from;
        while (*end != '\0' && *end != '"')
            end += *end == '\\' && end[1] != '\0' ? 2 : 1;
        if (*end == '\0')
            return false;
        if (length == name_bytes && memcmp(at, name, length) == 0) {
            *value = from;
            *bytes = (size_t)(end - from);
            return true;
        }
        at = end + 1;
    }
    return false;
}

static uint32_t
as_count(double value)
{
    return value >= 0 && value < UINT32_MAX ? (uint32_t)value : 0; /* 0 also for NaN */
}

static bool
is_text(const char *text, size_t bytes, const char *wanted)
{
    return bytes == strlen(wanted) && memcmp(text, wanted, bytes) == 0;
}

static void
add_adapter(struct metrics_page *page, const char *name, size_t bytes,
            enum gateway_adapter_state state, uint32_t pending)
{
    struct gateway_figures *figures = &page->figures;
    if (bytes == 0 || figures->adapter_count == GATEWAY_ADAPTERS_MAX)
        return;
    page->adapters[figures->adapter_count++] = (struct gateway_adapter){
        .name = gateway_name_hash(name, bytes), .state = state, .pending = pending};
}

static void
add_adapters(struct metrics_page *page, const char *labels, const char *label,
             enum gateway_adapter_state state)
{
    const char *names;
    size_t bytes;
    if (!label_find(labels, label, &names, &bytes))
        return;
    for (const char *end = names + bytes; names < end;) {
        const char *comma = memchr(names, ',', (size_t)(end - names));
        size_t length = (size_t)((comma != NULL ? comma : end) - names);
        add_adapter(page, names, length, state, 0);
        names += length + 1;
    }
}

/* ---- series ---- */

static void
take_waiting(struct metrics_page *page, const char *labels, double value)
{
    const char *model;
    size_t bytes;
    page->figures.waiting += as_count(value);
    if (label_find(labels, "model_name", &model, &bytes) && bytes > 0)
        page->figures.base_model = gateway_name_hash(model, bytes);
}

/* Ours: the first model is the base; a server without adapters may have others. */
static void
take_model_waiting(struct metrics_page *page, const char *labels, double value)
{
    const char *model;
    size_t bytes;
    page->figures.waiting += as_count(value);
    if (!label_find(labels, "model", &model, &bytes) || bytes == 0)
        return;
    if (page->figures.base_model == 0)
        page->figures.base_model = gateway_name_hash(model, bytes);
    else if (page->figures.base_model != gateway_name_hash(model, bytes))
        add_adapter(page, model, bytes, GATEWAY_ADAPTER_LOADED, 0);
}

static void
take_running(struct metrics_page *page, const char *labels, double value)
{
    (void)labels;
    page->figures.running += as_count(value);
}

static void
take_kv_cache(struct metrics_page *page, const char *labels, double value)
{
    (void)labels;
    page->has_kv_cache = true;
    if (value > page->figures.kv_used)
        page->figures.kv_used = value < 1 ? value : 1;
}

static void
take_room(struct metrics_page *page, const char *labels, double value)
{
    (void)labels;
    page->requests_max += as_count(value);
}

static void
take_adapter(struct metrics_page *page, const char *labels, double value)
{
    const char *state;
    const char *name;
    size_t bytes;
    page->has_states = true;
    if (!label_find(labels, "state", &state, &bytes))
        return;
    bool is_loaded = is_text(state, bytes, "loaded");
    if ((is_loaded || is_text(state, bytes, "waiting")) &&
        label_find(labels, "adapter", &name, &bytes))
        add_adapter(page, name, bytes, is_loaded ? GATEWAY_ADAPTER_LOADED : GATEWAY_ADAPTER_WAITING,
                    as_count(value));
}

/* The two of the reference's proof of concept. */
static void
take_active(struct metrics_page *page, const char *labels, double value)
{
    const char *name;
    size_t bytes;
    page->has_states = true;
    if (label_find(labels, "active_lora_adapters", &name, &bytes))
        add_adapter(page, name, bytes, GATEWAY_ADAPTER_LOADED, as_count(value));
}

static void
take_all_active(struct metrics_page *page, const char *labels, double value)
{
    (void)value;
    page->has_states = true;
    add_adapters(page, labels, "active_adapters", GATEWAY_ADAPTER_LOADED);
}

static void
take_info(struct metrics_page *page, const char *labels, double value)
{
    if (page->has_info && !(value > page->info_time))
        return;
    page->has_info = true;
    page->info_time = value;
    memcpy(page->info, labels, strlen(labels) + 1);
}

static void
take_loaded(struct metrics_page *page, const char *labels, double value)
{
    const char *text;
    size_t bytes;
    bool is_elsewhere = label_find(labels, "level", &text, &bytes) && !is_text(text, bytes, "gpu");
    if (value > 0 && !is_elsewhere && label_find(labels, "adapter_name", &text, &bytes)) {
        page->has_states = true;
        add_adapter(page, text, bytes, GATEWAY_ADAPTER_LOADED, 0);
    }
}

static void
take_adapters_max(struct metrics_page *page, const char *labels, double value)
{
    (void)labels;
    page->figures.adapters_max = as_count(value);
}

/* Triton has one name for several figures: a label tells them apart. */
static const struct metrics_series {
    const char *name;
    void (*take)(struct metrics_page *page, const char *labels, double value);
    const char *label;
    const char *label_value;
} known[] = {
    {"model_server_requests_waiting", take_model_waiting, NULL, NULL},
    {"model_server_requests_running", take_running, NULL, NULL},
    {"model_server_requests_max", take_room, NULL, NULL},
    {"model_server_kv_cache_used_ratio", take_kv_cache, NULL, NULL},
    {"model_server_adapter_requests", take_adapter, NULL, NULL},
    {"model_server_adapters_max", take_adapters_max, NULL, NULL},
    {"vllm:num_requests_waiting", take_waiting, NULL, NULL},
    {"vllm:num_requests_running", take_running, NULL, NULL},
    {"vllm:kv_cache_usage_perc", take_kv_cache, NULL, NULL},
    {"vllm:gpu_cache_usage_perc", take_kv_cache, NULL, NULL}, /* its name before vLLM 0.10 */
    {"vllm:lora_requests_info", take_info, NULL, NULL},
    {"vllm:lora_adapter_loaded", take_loaded, NULL, NULL},
    {"vllm:max_gpu_lora_adapters", take_adapters_max, NULL, NULL},
    {"vllm:active_lora_adapters", take_active, NULL, NULL},
    {"vllm:info_active_adapters_info", take_all_active, NULL, NULL},
    {"sglang:num_queue_reqs", take_waiting, NULL, NULL},
    {"sglang:num_running_reqs", take_running, NULL, NULL},
    {"sglang:token_usage", take_kv_cache, NULL, NULL},
    {"trtllm_num_requests_waiting", take_waiting, NULL, NULL},
    {"trtllm_num_requests_running", take_running, NULL, NULL},
    {"trtllm_kv_cache_utilization", take_kv_cache, NULL, NULL},
    {"llamacpp:requests_deferred", take_waiting, NULL, NULL},
    {"llamacpp:requests_processing", take_running, NULL, NULL},
    {"llamacpp:kv_cache_usage_ratio", take_kv_cache, NULL, NULL},
    {"nv_trt_llm_request_metrics", take_waiting, "request_type", "waiting"},
    {"nv_trt_llm_request_metrics", take_running, "request_type", "scheduled"},
    {"nv_trt_llm_kv_cache_block_metrics", take_kv_cache, "kv_cache_block_type", "fraction"},
};

static bool
is_of(const struct metrics_series *series, const char *name, size_t name_bytes, const char *labels)
{
    const char *value;
    size_t bytes;
    if (!is_text(name, name_bytes, series->name))
        return false;
    return series->label == NULL || (label_find(labels, series->label, &value, &bytes) &&
                                     is_text(value, bytes, series->label_value));
}

/* Returns the position behind the brace that ends the labels, whose values may contain braces;
 * NULL: there is none. */
static const char *
labels_end(const char *at)
{
    bool is_quoted = false;
    for (; *at != '\0' && (is_quoted || *at != '}'); at++)
        if (*at == '"')
            is_quoted = !is_quoted;
        else if (is_quoted && *at == '\\' && at[1] != '\0')
            at++;
    return *at == '}' ? at + 1 : NULL;
}

/* NAME{LABELS} VALUE, and behind it perhaps a time and an exemplar */
static void
take_line(struct metrics_page *page)
{
    char *line = page->line;
    if (line[0] == '#')
        return;
    size_t name = strcspn(line, "{ \t");
    const char *rest = line + name + strspn(line + name, " \t");
    const char *labels = *rest == '{' ? rest + 1 : "";
    const char *value = *rest == '{' ? labels_end(labels) : rest;
    char *end = NULL;
    double number = value != NULL ? strtod(value, &end) : 0;
    if (end == value)
        return;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (is_of(&known[i], line, name, labels)) {
            page->figures.is_known = true;
            known[i].take(page, labels, number);
        }
}

/* ---- pieces ---- */

void
metrics_page_begin(struct metrics_page *page)
{
    page->figures = (struct gateway_figures){.adapters = page->adapters};
    page->requests_max = 0;
    page->has_states = page->has_info = page->skips = page->has_kv_cache = false;
    page->info_time = 0;
    page->lines_ignored = 0;
    page->bytes = page->used = 0;
}

void
metrics_page_feed(struct metrics_page *page, const char *data, size_t bytes)
{
    while (bytes > 0 && page->bytes < METRICS_PAGE_BYTES_MAX) {
        const char *end = memchr(data, '\n', bytes);
        size_t length = end != NULL ? (size_t)(end - data) : bytes;
        size_t room = sizeof(page->line) - 1 - page->used;
        page->skips = page->skips || length > room;
        if (!page->skips) {
            memcpy(page->line + page->used, data, length);
            page->used += length;
        }
        if (end != NULL)
            length++;
        page->bytes += length;
        data += length;
        bytes -= length;
        if (end == NULL)
            continue;
        page->line[page->used] = '\0';
        page->lines_ignored += page->skips;
        if (!page->skips)
            take_line(page);
        page->used = 0;
        page->skips = false;
    }
}

void
metrics_page_take_models(struct metrics_page *page, const struct model_list *models)
{
    struct gateway_figures *figures = &page->figures;
    if (figures->base_model == 0)
        figures->base_model = models->base;
    if (page->has_info || page->has_states)
        return;
    uint64_t adapters[GATEWAY_ADAPTERS_MAX];
    uint32_t count = model_list_adapters(models, figures->base_model, adapters);
    for (uint32_t i = 0; /* behind the page's other models */
         i < count && figures->adapter_count < GATEWAY_ADAPTERS_MAX; i++)
        page->adapters[figures->adapter_count++] =
            (struct gateway_adapter){.name = adapters[i], .state = GATEWAY_ADAPTER_LOADED};
}

void
metrics_page_end(struct metrics_page *page)
{
    const char *max;
    size_t bytes;
    metrics_page_feed(page, "\n", 1); /* the last line may lack it */
    struct gateway_figures *figures = &page->figures;
    if (page->requests_max > 0 && !page->has_kv_cache) {
        double used = ((double)figures->waiting + figures->running) / page->requests_max;
        figures->kv_used = used < 1 ? used : 1;
    }
    if (!page->has_info)
        return;
    if (!page->has_states)
        add_adapters(page, page->info, "running_lora_adapters", GATEWAY_ADAPTER_LOADED);
    add_adapters(page, page->info, "waiting_lora_adapters", GATEWAY_ADAPTER_WAITING);
    if (page->figures.adapters_max == 0 && label_find(page->info, "max_lora", &max, &bytes))
        page->figures.adapters_max = as_count(strtod(max, NULL));
}
