/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/model_orders.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "coordinator/models/releases.h"
#include "coordinator/pipeline/pipeline.h"
#include "serving/storage/storage.h"

enum { MIB = 1 << 20 };

/* An order under way; lives until its outcome is known. */
struct model_order {
    struct model_orders *orders; /* NULL: the operator is gone */
    struct control_call *call;
    struct model_order *next;
    bool listed; /* of a model to be unloaded: it stays known */
    char id[SHOAL_NAME_BYTES_MAX + 1];
};

struct model_orders {
    struct model_registry *registry;
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct model_order *first;
};

struct model_orders *
model_orders_create(struct model_registry *registry, struct pipeline *const *pipelines,
                    uint32_t count)
{
    struct model_orders *orders = calloc(1, sizeof(*orders));
    CHECK(orders != NULL);
    *orders = (struct model_orders){registry, pipelines, count, NULL};
    return orders;
}

void
model_orders_destroy(struct model_orders *orders)
{
    if (orders == NULL)
        return;
    for (struct model_order *order = orders->first; order != NULL; order = order->next)
        order->orders = NULL;
    free(orders);
}

static struct model_order *
order_begin(struct model_orders *orders, struct control_call *call, const char *id)
{
    struct model_order *order = calloc(1, sizeof(*order));
    CHECK(order != NULL);
    *order = (struct model_order){.orders = orders, .call = call, .next = orders->first};
    snprintf(order->id, sizeof(order->id), "%s", id);
    orders->first = order;
    return order;
}

/* `error` NULL: done, and `text` says what. */
static void
order_end(struct model_order *order, const struct error *error, const char *text)
{
    if (order->orders != NULL) {
        struct model_order **at = &order->orders->first;
        while (*at != order)
            at = &(*at)->next;
        *at = order->next;
        control_answer(order->call, error, text);
    }
    free(order);
}

/* ---- loading ---- */

static void
on_loaded(void *context, const struct error *error, const struct model_facts *facts)
{
    struct model_order *order = context;
    char text[ERROR_TEXT_MAX] = "";
    if (error == NULL)
        snprintf(text, sizeof(text), "%s is loaded: %.3f MiB", order->id,
                 (double)facts->bytes / MIB);
    order_end(order, error, text);
}

static struct catalog *
catalog_named(const struct model_orders *orders, const char *name, struct error *error)
{
    for (uint32_t i = 0; i < orders->pipeline_count; i++) {
        const struct pipeline *pipeline = orders->pipelines[i];
        if (strcmp(pipeline->name, name) != 0)
            continue;
        if (pipeline->catalog == NULL)
            error_set(error, STATUS_FAILED_PRECONDITION,
                      "pipeline \"%s\" has no `models` in its configuration: it serves the one "
                      "that it was configured with",
                      name);
        return pipeline->catalog;
    }
    error_set(error, STATUS_NOT_FOUND, "this node serves no pipeline \"%s\"", name);
    return NULL;
}

/* "a, b" of the pipelines with models; cut if there are too many. */
static uint32_t
names_with_models(const struct model_orders *orders, char *names, size_t room)
{
    uint32_t count = 0;
    size_t used = 0;
    names[0] = '\0';
    for (uint32_t i = 0; i < orders->pipeline_count; i++) {
        if (orders->pipelines[i]->catalog == NULL)
            continue;
        int bytes = snprintf(names + used, room - used, "%s%s", count > 0 ? ", " : "",
                             orders->pipelines[i]->name);
        used = (size_t)bytes < room - used ? used + (size_t)bytes : room - 1;
        count++;
    }
    return count;
}

static struct catalog *
catalog_for(const struct model_orders *orders, const char *name, struct error *error)
{
    char names[256];
    if (name[0] != '\0')
        return catalog_named(orders, name, error);
    struct catalog *catalog = models_catalog_for(orders->pipelines, orders->pipeline_count, "");
    if (catalog != NULL)
        return catalog;
    if (names_with_models(orders, names, sizeof(names)) == 0)
        error_set(error, STATUS_FAILED_PRECONDITION,
                  "no pipeline of this node has `models` in its configuration");
    else
        error_set(error, STATUS_INVALID_ARGUMENT,
                  "several pipelines serve models: choose one by --pipeline: %s", names);
    return NULL;
}

static void
load(struct model_orders *orders, const struct control_request *request, struct control_call *call)
{
    struct error error = ERROR_NONE;
    struct catalog *catalog = catalog_for(orders, request->pipeline, &error);
    if (catalog == NULL) {
        control_answer(call, &error, NULL);
        return;
    }
    const struct model_spec spec = {.id = request->id, .path = request->path, .key = request->key};
    models_load(catalog, &spec, on_loaded, order_begin(orders, call, request->id));
}

/* ---- unloading ---- */

static void
on_unloaded(void *context, const struct error *error, const struct model_facts *facts)
{
    struct model_order *order = context;
    char text[ERROR_TEXT_MAX];
    (void)facts;
    snprintf(text, sizeof(text), "%s is unloaded%s", order->id,
             order->listed
                 ? "; it stays listed by its directory, and is loaded when it is asked for"
                 : "");
    order_end(order, error, text);
}

struct orders_search {
    bool found;
    bool listed;
};

static bool
search_row(void *context, const struct model_row *row)
{
    struct orders_search *search = context;
    *search = (struct orders_search){.found = true, .listed = row->listed};
    return true;
}

/* Unloading an unknown model is no error for a mesh, but an operator has mistyped. */
static void
unload(struct model_orders *orders, const struct control_request *request,
       struct control_call *call)
{
    struct orders_search search = {0};
    models_visit_one(orders->registry, request->id, search_row, &search);
    if (!search.found) {
        struct error error = ERROR_NONE;
        error_set(
            &error, STATUS_NOT_FOUND,
            "this node knows no model \"%s\": `shoalctl model list` lists those that it knows",
            request->id);
        control_answer(call, &error, NULL);
        return;
    }
    struct model_order *order = order_begin(orders, call, request->id);
    order->listed = search.listed;
    models_unload(orders->registry, request->id, on_unloaded, order);
}

/* ---- back to the previous version ---- */

void
model_orders_roll_back(struct model_directories *directories, const struct control_request *request,
                       struct control_call *call)
{
    struct releases_step step;
    struct error error = ERROR_NONE;
    char text[ERROR_TEXT_MAX];
    if (model_directories_roll_back(directories, request->id, &step, &error) != STATUS_OK) {
        control_answer(call, &error, NULL);
        return;
    }
    snprintf(text, sizeof(text),
             "%s: version %s takes the place of version %s as soon as it is loaded: see `shoalctl "
             "model list`. Remove the folder %s, or a restart serves it again",
             request->id, step.to, step.from, step.from);
    control_answer(call, NULL, text);
}

/* ---- what there is ---- */

struct orders_listing {
    struct json json;
    int64_t now_ns;
    const char *prefix;
    uint32_t most; /* rows; the next one is only seen */
    uint32_t count;
    bool has_more;
};

static bool
list_row(void *context, const struct model_row *row)
{
    struct orders_listing *listing = context;
    struct json *json = &listing->json;
    char path[PATH_MAX];
    if (strncmp(row->id, listing->prefix, strlen(listing->prefix)) != 0)
        return false;
    listing->has_more = listing->count == listing->most;
    if (listing->has_more)
        return false;
    listing->count++;
    json_open(json, '{');
    json_field_string(json, "id", row->id);
    json_field_string(json, "pipeline", row->pipeline);
    json_field_string(json, "state", model_state_name(row->state));
    storage_show_path(row->path, path, sizeof(path));
    json_field_string(json, "path", path);
    json_field_string(json, "key", row->key);
    json_field_bool(json, "listed", row->listed);
    json_field_bool(json, "ordered", row->ordered);
    json_field_uint(json, "bytes", row->bytes);
    if (row->is_fetched) {
        json_field_uint(json, "fetched_bytes", row->fetched.bytes);
        json_field_uint(json, "fetch_bytes", row->fetched.total);
    }
    json_field_uint(json, "users", row->users);
    json_name(json, "idle_ns");
    if (row->used_ns != 0)
        json_put_int(json, listing->now_ns - row->used_ns);
    else
        json_put_null(json);
    json_field_string(json, "error", row->error);
    json_close(json, '}');
    return true;
}

void
model_orders_list(const struct model_orders *orders, const struct control_request *request,
                  struct bytes *list)
{
    const struct model_range range = {
        .from = request->prefix, .skip = request->from, .most = UINT32_MAX};
    struct orders_listing listing = {.json = json_begin(list, JSON_STYLE_ANY),
                                     .now_ns = clock_now_ns(),
                                     .prefix = request->prefix,
                                     .most = UINT32_MAX};
    if (request->limit != 0)
        listing.most = request->limit < MODELS_A_TURN ? request->limit : MODELS_A_TURN;
    json_open(&listing.json, '{');
    json_field_open(&listing.json, "rows", '[');
    (void)models_visit(orders->registry, &range, list_row, &listing);
    json_close(&listing.json, ']');
    if (request->limit != 0)
        json_field_uint(&listing.json, "next",
                        listing.has_more ? request->from + listing.count : 0);
    json_close(&listing.json, '}');
}

void
model_orders_take(struct model_orders *orders, const struct control_request *request,
                  struct control_call *call)
{
    if (request->verb == CONTROL_MODEL_LOAD)
        load(orders, request, call);
    else
        unload(orders, request, call);
}
