/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

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
    if (listed->count == MODELS_LISTED_MAX ||
        json_scan_members(model.at, model.bytes, &id, 1) != NULL ||
        !json_span_string(id.value, &name))
        return false;
    uint64_t hash = gateway_name_hash(name.at, name.bytes);
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

void
endpoint_pool_write_metrics(const struct endpoint_pool *pool, struct bytes *out)
{
    const struct gateway_counts *counts = gateway_counts(pool->core);
    put_count(out, "sent", counts->sent);
    put_count(out, "retried", counts->retried);
    put_count(out, "refused", counts->refused);
    put_count(out, "ejected", counts->ejected);
    put_count(out, "returned", counts->returned);
    put_count(out, "scrapes", counts->scrapes);
    put_count(out, "scrapes_failed", counts->scrapes_failed);
    put_count(out, "prefix_blocks", counts->blocks);
    put_count(out, "prefix_blocks_matched", counts->blocks_matched);
    put_count(out, "adapters_ignored", counts->adapters_ignored);
    put_count(out, "metrics_lines_ignored", pool->lines_ignored);
    put_count(out, "models_ignored", pool->models_ignored);
    put_count(out, "endpoint_file_reloads", pool->file_reloads);
    put_count(out, "endpoint_file_mistakes", pool->file_mistakes);
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
}
