/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"
#include "gateway/endpoints/internal.h"
#include "gateway/scan/json_scan.h"

enum { MODELS_LISTED_MAX = 4096 };

static bool
is_usable(const struct endpoint_member *member)
{
    return member->is_used && (member->state == GATEWAY_UP || member->state == GATEWAY_SUSPECT);
}

uint32_t
endpoint_pool_usable(const struct endpoint_pool *pool)
{
    uint32_t count = 0;
    for (int64_t i = 0; i < pool->settings->endpoints_max; i++)
        count += is_usable(&pool->members[i]);
    return count;
}

/* ---- models ---- */

struct models_listed {
    uint64_t ids[MODELS_LISTED_MAX];
    uint32_t count;
};

static bool
is_new(struct models_listed *listed, struct json_span model)
{
    struct json_member id = {.name = "id"};
    struct json_span name;
    struct bytes room = {0};
    if (listed->count == MODELS_LISTED_MAX ||
        json_scan_members(model.at, model.bytes, &id, 1) != NULL ||
        !json_span_text(id.value, &room, &name))
        return false;
    uint64_t hash = gateway_name_hash(name.at, name.bytes);
    bytes_fini(&room);
    for (uint32_t i = 0; i < listed->count; i++)
        if (listed->ids[i] == hash)
            return false;
    listed->ids[listed->count++] = hash;
    return true;
}

void
endpoint_pool_write_models(const struct endpoint_pool *pool, struct bytes *out)
{
    struct models_listed listed = {.count = 0};
    bytes_put_text(out, "{\"object\":\"list\",\"data\":[");
    for (int64_t i = 0; i < pool->settings->endpoints_max; i++) {
        const struct endpoint_member *member = &pool->members[i];
        struct json_member data = {.name = "data"};
        if (!is_usable(member) || member->models.used == 0 ||
            json_scan_members(member->models.data, member->models.used, &data, 1) != NULL)
            continue;
        struct json_span model;
        for (size_t at = 0; json_scan_next(data.value, &at, &model);) {
            bool is_first = listed.count == 0;
            if (!is_new(&listed, model))
                continue;
            if (!is_first)
                bytes_put_char(out, ',');
            bytes_put(out, model.at, model.bytes);
        }
    }
    bytes_put_text(out, "]}");
}

/* ---- metrics ---- */

static void
put_count(struct bytes *out, const char *name, uint64_t value)
{
    char line[160];
    int used =
        snprintf(line, sizeof(line),
                 "# TYPE shoal_gateway_%s_total counter\nshoal_gateway_%s_total %" PRIu64 "\n",
                 name, name, value);
    bytes_put(out, line, (size_t)used);
}

static void
put_endpoint(struct bytes *out, const struct endpoint_member *member, const char *figure,
             double value)
{
    char line[320];
    int used = snprintf(line, sizeof(line), "shoal_gateway_endpoint_%s{endpoint=\"%s\"} %g\n",
                        figure, member->entry.name, value);
    bytes_put(out, line, (size_t)used);
}

static void put_line(struct bytes *out, const char *format, ...) PRINTF_LIKE(2, 3);

static void
put_line(struct bytes *out, const char *format, ...)
{
    char line[512]; /* a model's name, and what is around it */
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    CHECK(used > 0 && (size_t)used < sizeof(line));
    bytes_put(out, line, (size_t)used);
}

/* The queue under the reference's names. It has no label for tenants: clients choose their names.
 */
static void
put_band(struct bytes *out, const struct gateway_band_view *band)
{
    static const char wait[] = "inference_extension_flow_control_request_queue_duration_seconds";
    uint64_t sum = 0;
    put_line(out, "inference_extension_flow_control_queue_size{priority=\"%d\"} %u\n",
             band->priority, band->requests);
    put_line(out, "inference_extension_flow_control_queue_bytes{priority=\"%d\"} %" PRIu64 "\n",
             band->priority, band->bytes);
    for (int i = 0; i < GATEWAY_WAIT_BUCKETS; i++) {
        sum += band->waits[i];
        put_line(out, "%s_bucket{priority=\"%d\",outcome=\"Dispatched\",le=\"%g\"} %" PRIu64 "\n",
                 wait, band->priority, gateway_wait_buckets_ms[i] / 1e3, sum);
    }
    sum += band->waits[GATEWAY_WAIT_BUCKETS];
    put_line(out, "%s_bucket{priority=\"%d\",outcome=\"Dispatched\",le=\"+Inf\"} %" PRIu64 "\n",
             wait, band->priority, sum);
    put_line(out, "%s_count{priority=\"%d\",outcome=\"Dispatched\"} %" PRIu64 "\n", wait,
             band->priority, sum);
    put_line(out, "%s_sum{priority=\"%d\",outcome=\"Dispatched\"} %g\n", wait, band->priority,
             (double)band->waited_ms / 1e3);
}

/* Writes the saturation of each InferencePool; without any, all endpoints are one without a
 * name. */
static void
put_saturation(struct bytes *out, const struct endpoint_pool *pool)
{
    static const char name[] = "inference_extension_flow_control_pool_saturation";
    const struct resource_set *set = pool->resources;
    if (set == NULL || set->pool_count == 0)
        put_line(out, "%s %g\n", name, gateway_pool_saturation(pool->core, GATEWAY_ALL_POOLS));
    for (uint32_t i = 0; set != NULL && i < set->count; i++)
        if (set->items[i].kind == RESOURCE_POOL)
            put_line(out, "%s{inference_pool=\"%s\"} %g\n", name, set->items[i].name,
                     gateway_pool_saturation(pool->core, UINT64_C(1) << set->items[i].number));
}

static void
put_flow_control(struct bytes *out, const struct endpoint_pool *pool)
{
    struct gateway_band_view band;
    put_saturation(out, pool);
    for (uint32_t i = 0; i < GATEWAY_BANDS_MAX; i++)
        if (gateway_look_band(pool->core, i, &band))
            put_band(out, &band);
}

static void
put_pool(struct bytes *out, const struct endpoint_pool *pool)
{
    double count = 0;
    double waiting = 0;
    double running = 0;
    double kv_used = 0;
    double in_flight = 0;
    for (int64_t i = 0; i < pool->settings->endpoints_max; i++) {
        struct gateway_view view;
        if (!is_usable(&pool->members[i]))
            continue;
        gateway_look(pool->core, pool->members[i].number, &view);
        count++;
        waiting += view.waiting;
        running += view.running;
        kv_used += view.kv_used;
        in_flight += view.in_flight;
    }
    double by = count > 0 ? count : 1;
    put_line(out, "inference_objective_running_requests %g\n", in_flight);
    put_line(out, "inference_pool_ready_pods %g\n", count);
    put_line(out, "inference_pool_average_queue_size %g\n", waiting / by);
    put_line(out, "inference_pool_average_running_requests %g\n", running / by);
    put_line(out, "inference_pool_average_kv_cache_utilization %g\n", kv_used / by);
}

/* Writes the objective of each LLMRoute that has one. Names of models need no escapes. */
static void
put_objectives(struct bytes *out, const struct endpoint_pool *pool)
{
    for (uint32_t i = 0; pool->resources != NULL && i < pool->resources->route_count; i++) {
        const char *name = pool->resources->route_names[i];
        struct gateway_objective_view view;
        if (name == NULL || !gateway_look_objective(pool->core, i, &view))
            continue;
        put_line(out, "inference_objective_output_token_latency_met{model_name=\"%s\"} %d\n", name,
                 !view.is_missed);
        put_line(out,
                 "shoal_gateway_objective_windows_total{model=\"%s\",result=\"met\"} %" PRIu64 "\n",
                 name, view.met);
        put_line(out,
                 "shoal_gateway_objective_windows_total{model=\"%s\",result=\"missed\"} %" PRIu64
                 "\n",
                 name, view.missed);
    }
}

void
endpoint_pool_write_metrics(const struct endpoint_pool *pool, struct bytes *out)
{
    const struct gateway_counts *counts = gateway_counts(pool->core);
    put_count(out, "sent", counts->sent);
    put_count(out, "retried", counts->retried);
    put_count(out, "refused", counts->refused);
    put_count(out, "ejected", counts->ejected);
    put_count(out, "returned", counts->returned);
    put_count(out, "ports_shut", counts->ports_shut);
    put_count(out, "scrapes", counts->scrapes);
    put_count(out, "scrapes_failed", counts->scrapes_failed);
    put_count(out, "prefix_blocks", counts->blocks);
    put_count(out, "prefix_blocks_matched", counts->blocks_matched);
    put_count(out, "adapters_ignored", counts->adapters_ignored);
    put_count(out, "queued", counts->queued);
    put_count(out, "queue_left", counts->queue_left);
    put_count(out, "queue_full", counts->queue_full);
    put_count(out, "queue_expired", counts->queue_expired);
    put_count(out, "shed", counts->shed);
    put_count(out, "share_exceeded", counts->share_exceeded);
    put_count(out, "unknown_models", counts->unknown);
    put_count(out, "fallbacks", counts->fallbacks);
    put_flow_control(out, pool);
    put_count(out, "adapters_loaded", pool->adapters_loaded);
    put_count(out, "adapters_unloaded", pool->adapters_unloaded);
    put_count(out, "adapters_failed", pool->adapters_failed);
    put_pool(out, pool);
    put_objectives(out, pool);
    put_count(out, "metrics_lines_ignored", pool->lines_ignored);
    put_count(out, "models_ignored", pool->models_ignored);
    put_count(out, "dashboard_refused", pool->viewers[POOL_VIEWER_REFUSED]);
    put_count(out, "dashboard_skipped", pool->viewers[POOL_VIEWER_SKIPPED]);
    put_count(out, "dashboard_cut", pool->viewers[POOL_VIEWER_CUT]);
    put_count(out, "endpoint_file_reloads", pool->file_reloads);
    put_count(out, "endpoint_file_mistakes", pool->file_mistakes);
    if (pool->store != NULL) {
        put_count(out, "store_troubles", gateway_store_counts(pool->store)->troubles);
        put_count(out, "store_records_skipped", gateway_store_counts(pool->store)->skipped);
    }
    const struct endpoint_names_counts *names = endpoint_names_counts(pool->names);
    put_count(out, "name_lookups", names->lookups);
    put_count(out, "name_lookups_failed", names->failed);
    put_count(out, "name_addresses_ignored", names->ignored);
    for (int64_t i = 0; i < pool->settings->endpoints_max; i++) {
        const struct endpoint_member *member = &pool->members[i];
        struct gateway_view view;
        if (!member->is_used)
            continue;
        gateway_look(pool->core, member->number, &view);
        put_endpoint(out, member, "up", view.state == GATEWAY_UP);
        put_endpoint(out, member, "in_flight", view.in_flight);
        put_endpoint(out, member, "waiting", view.waiting);
        put_endpoint(out, member, "running", view.running);
        put_endpoint(out, member, "kv_cache_used", view.kv_used);
        put_endpoint(out, member, "adapters", view.adapter_count);
    }
    if (pool->picker.write_metrics != NULL)
        pool->picker.write_metrics(pool->picker.context, out);
}
