/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/endpoints/journal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/endpoints/internal.h"

struct pool_journal *
journal_create(uint32_t endpoints_max)
{
    struct pool_journal *journal =
        calloc(1, sizeof(struct pool_journal) + endpoints_max * sizeof(struct endpoint_latency));
    CHECK(journal != NULL);
    return journal;
}

void
journal_add(struct endpoint_pool *pool, const struct gateway_choice *choice)
{
    struct pool_journal *journal = pool->journal;
    struct placement *placement = &journal->placements[journal->count++ % PLACEMENTS_MAX];
    placement->number = journal->count;
    placement->at_ns = clock_now_ns();
    placement->choice = *choice;
    for (uint32_t i = 0; i < choice->reason_count; i++) {
        const char *name = pool->members[choice->reasons[i].endpoint].entry.name;
        memcpy(placement->names[i], name, strlen(name) + 1);
    }
}

void
endpoint_pool_note_viewer(struct endpoint_pool *pool, enum pool_viewer viewer)
{
    pool->viewers[viewer]++;
}

void
endpoint_pool_note_answer(struct endpoint_pool *pool, uint32_t endpoint, int64_t first_ns,
                          int64_t token_ns)
{
    if (pool->journal == NULL)
        return;
    struct endpoint_latency *latency = &pool->journal->latencies[endpoint];
    int64_t now_ns = clock_now_ns();
    latency_note(&latency->first, now_ns, first_ns);
    if (token_ns >= 0)
        latency_note(&latency->token, now_ns, token_ns);
}

/* ---- names of models: the core has their hashes ---- */

/* Writes the model as the endpoint's catalogue has it; otherwise a part of the hash. */
static void
put_model(const struct endpoint_pool *pool, struct json *json, uint32_t endpoint, uint64_t hash)
{
    const struct model_list *list = &pool->members[endpoint].model_list;
    struct json_span name;
    struct bytes room = {0};
    char text[24];
    for (uint32_t i = 0; i < list->count; i++)
        if (list->models[i] == hash && json_span_text(list->names[i], &room, &name)) {
            json_put_text(json, name.at, name.bytes);
            bytes_fini(&room);
            return;
        }
    snprintf(text, sizeof(text), "#%08" PRIx32, (uint32_t)hash);
    json_put_string(json, hash != 0 ? text : "");
}

/* ---- the state ---- */

static void
put_times(struct json *json, const char *name, struct latency_window *window)
{
    int64_t now_ns = clock_now_ns();
    int64_t half_us = latency_quantile_us(window, now_ns, 0.5);
    int64_t most_us = latency_quantile_us(window, now_ns, 0.9);
    json_field_open(json, name, '[');
    if (half_us >= 0) {
        json_put_int(json, half_us);
        json_put_int(json, most_us);
    }
    json_close(json, ']');
}

static void
put_adapters(const struct endpoint_pool *pool, struct json *json, uint32_t endpoint)
{
    struct gateway_adapter adapters[GATEWAY_ADAPTERS_MAX];
    uint32_t count = gateway_look_adapters(pool->core, endpoint, adapters, GATEWAY_ADAPTERS_MAX);
    json_field_open(json, "adapters", '[');
    for (uint32_t i = 0; i < count; i++) {
        json_open(json, '{');
        json_name(json, "name");
        put_model(pool, json, endpoint, adapters[i].name);
        json_field_bool(json, "loaded", adapters[i].state == GATEWAY_ADAPTER_LOADED);
        json_field_uint(json, "pending", adapters[i].pending);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void
put_endpoint(struct endpoint_pool *pool, struct json *json, const struct endpoint_member *member)
{
    static const char *const states[] = {
        [GATEWAY_FREE] = "free", [GATEWAY_DOWN] = "down",       [GATEWAY_SUSPECT] = "suspect",
        [GATEWAY_UP] = "up",     [GATEWAY_LEAVING] = "removed",
    };
    struct endpoint_latency *latency = &pool->journal->latencies[member->number];
    struct gateway_view view;
    gateway_look(pool->core, member->number, &view);
    json_open(json, '{');
    json_field_string(json, "name", member->entry.name);
    json_field_string(json, "address", member->entry.address);
    json_field_string(json, "state", states[view.state]);
    json_field_uint(json, "in_flight", view.in_flight);
    json_field_uint(json, "waiting", view.waiting);
    json_field_uint(json, "running", view.running);
    json_field_double(json, "kv_used", view.kv_used);
    json_field_uint(json, "adapters_max", view.adapters_max);
    put_adapters(pool, json, member->number);
    put_times(json, "first_us", &latency->first);
    put_times(json, "token_us", &latency->token);
    json_close(json, '}');
}

static void
put_endpoints(struct endpoint_pool *pool, struct json *json)
{
    uint32_t shown = 0;
    uint32_t hidden = 0;
    json_field_open(json, "endpoints", '[');
    for (int64_t i = 0; i < pool->settings->endpoints_max; i++) {
        if (!pool->members[i].is_used)
            continue;
        if (shown++ < SHOWN_MAX)
            put_endpoint(pool, json, &pool->members[i]);
        else
            hidden++;
    }
    json_close(json, ']');
    json_field_uint(json, "hidden", hidden);
}

static void
put_queue(const struct endpoint_pool *pool, struct json *json)
{
    json_field_open(json, "queue", '[');
    for (uint32_t i = 0; i < GATEWAY_BANDS_MAX; i++) {
        struct gateway_band_view band;
        if (!gateway_look_band(pool->core, i, &band))
            continue;
        json_open(json, '{');
        json_field_int(json, "priority", band.priority);
        json_field_uint(json, "requests", band.requests);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void
put_placement(const struct endpoint_pool *pool, struct json *json,
              const struct placement *placement)
{
    const struct gateway_choice *choice = &placement->choice;
    json_open(json, '{');
    json_field_uint(json, "number", placement->number);
    json_field_int(json, "age_ms", (clock_now_ns() - placement->at_ns) / NS_PER_MS);
    json_name(json, "model");
    put_model(pool, json, choice->endpoint, choice->model);
    json_field_int(json, "priority", choice->priority);
    json_field_uint(json, "tries", choice->tries);
    json_field_uint(json, "usable", choice->usable_count);
    json_field_uint(json, "candidates", choice->candidate_count);
    json_field_open(json, "reasons", '[');
    for (uint32_t i = 0; i < choice->reason_count; i++) {
        json_open(json, '{');
        json_field_string(json, "endpoint", placement->names[i]);
        json_field_double(json, "total", choice->reasons[i].total);
        for (int part = 0; part < GATEWAY_SCORER_COUNT; part++)
            if (pool->settings->scheduler.weights[part] > 0)
                json_field_double(json, gateway_scorer_names[part], choice->reasons[i].parts[part]);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_close(json, '}');
}

uint64_t
endpoint_pool_write_state(struct endpoint_pool *pool, struct json *json, uint64_t reported)
{
    const struct pool_journal *journal = pool->journal;
    const struct gateway_counts *counts = gateway_counts(pool->core);
    CHECK(journal != NULL);
    json_field_double(json, "saturation", gateway_pool_saturation(pool->core, GATEWAY_ALL_POOLS));
    json_field_string(json, "picker", gateway_picker_names[pool->settings->scheduler.picker]);
    json_field_uint(json, "sent", counts->sent);
    json_field_uint(json, "retried", counts->retried);
    json_field_uint(json, "refused", counts->refused);
    json_field_uint(json, "ejected", counts->ejected);
    json_field_uint(json, "blocks", counts->blocks);
    json_field_uint(json, "blocks_matched", counts->blocks_matched);
    put_queue(pool, json);
    put_endpoints(pool, json);
    uint64_t kept = journal->count < PLACEMENTS_MAX ? journal->count : PLACEMENTS_MAX;
    uint64_t first = journal->count - kept > reported ? journal->count - kept : reported;
    json_field_open(json, "placements", '[');
    for (uint64_t i = first; i < journal->count; i++)
        put_placement(pool, json, &journal->placements[i % PLACEMENTS_MAX]);
    json_close(json, ']');
    return journal->count;
}
