/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The combined meaning of a set of resources: for each model that clients may name, the targets
   that
 * stand for it, as the core takes them (gateway_core.h, routes).
 *
 * A definition is one backend of a model: an LLMRoute's backendRef, an InferenceModel, or a name
 * that an InferenceModelRewrite matches and nothing else defines in that pool. A pool with one of
 * the first two is closed: it takes no other names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/duration.h"
#include "gateway/resources/internal.h"

#define ALL_POOLS GATEWAY_ALL_POOLS

_Static_assert(GATEWAY_TRIES_MAX == MANIFEST_ATTEMPTS_MAX + 1, "a retry is a try");
_Static_assert(RESOURCE_KINDS == MANIFEST_KINDS - MANIFEST_POOL, "as many kinds");

struct definition {
    const char *model;
    uint64_t pool; /* its bit; 0: there is no such pool */
    double weight;
    const struct resource *by;
    const struct tree_node *ref; /* an LLMRoute's backendRef; else NULL */
    uint32_t order;
};

struct route_builder {
    struct resource_set *set;
    struct definition *definitions;
    uint32_t count;
    uint64_t closed; /* pools */
    bool is_full;
};

/* ---- conditions ---- */

static void
object(struct resource *resource, enum resource_condition_type type, const char *reason,
       const char *text, const char *name)
{
    struct resource_condition *condition = &resource->conditions[type];
    if (condition->reason != NULL)
        return;
    condition->reason = reason;
    (void)snprintf(condition->message, sizeof(condition->message), "%s: %.100s", text, name);
}

/* Without pools all endpoints are one, which every name means. */
static uint64_t
pool_of(const struct resource_set *set, const char *name, struct resource *by)
{
    if (set->pool_count == 0)
        return ALL_POOLS;
    const struct resource *pool = resources_find(set, RESOURCE_POOL, name);
    if (pool != NULL)
        return UINT64_C(1) << pool->number;
    object(by, RESOURCE_RESOLVED_REFS, "BackendNotFound", "there is no such InferencePool", name);
    return 0;
}

static uint64_t
pool_referred(const struct resource_set *set, struct resource *by)
{
    const char *name = manifest_text(manifest_find(by->spec, "poolRef"), "name");
    return name != NULL ? pool_of(set, name, by) : ALL_POOLS;
}

/* ---- numbers ---- */

int32_t
resource_priority(const struct tree_node *spec)
{
    const char *text = manifest_text(spec, "priority");
    return text != NULL ? (int32_t)strtol(text, NULL, 10) : 0;
}

static double
weight_of(const struct tree_node *map)
{
    const char *text = manifest_text(map, "weight");
    return text != NULL ? (double)strtol(text, NULL, 10) : 1;
}

/* ---- definitions ---- */

static bool
is_defined(const struct route_builder *builder, const char *model, uint64_t pool)
{
    for (uint32_t i = 0; i < builder->count; i++)
        if (builder->definitions[i].pool == pool &&
            strcmp(builder->definitions[i].model, model) == 0)
            return true;
    return false;
}

static void
define(struct route_builder *builder, const struct definition *definition)
{
    if (builder->count == GATEWAY_TARGETS_MAX) {
        builder->is_full = true;
        return;
    }
    builder->definitions[builder->count] = *definition;
    builder->definitions[builder->count].order = builder->count;
    builder->count++;
}

static void
define_closed(struct route_builder *builder, struct resource *by,
              const struct definition *definition)
{
    if (definition->pool != 0 && is_defined(builder, definition->model, definition->pool)) {
        object(by, RESOURCE_ACCEPTED, "Conflicted",
               "an earlier resource defines this model for the same pool", definition->model);
        return;
    }
    builder->closed |= definition->pool;
    define(builder, definition);
}

/* A field of an LLMRoute may stand with the backendRef or in spec. */
static const struct tree_node *
llm_field(const struct resource *by, const struct tree_node *ref, const char *field)
{
    const struct tree_node *own = ref != NULL ? manifest_find(ref, field) : NULL;
    return own != NULL ? own : manifest_find(by->spec, field);
}

/* An adapter with a path is to be loaded by the servers of its pools. */
static void
roll_out(struct route_builder *builder, const struct tree_node *adapter, uint64_t pool)
{
    struct resource_set *set = builder->set;
    const char *name = manifest_text(adapter, "name");
    uint64_t hash = gateway_name_hash(name, strlen(name));
    uint32_t at = 0;
    if (manifest_text(adapter, "path") == NULL || pool == 0)
        return;
    while (at < set->rollout_count && set->rollouts[at].adapter != hash)
        at++;
    if (at == GATEWAY_ROLLOUTS_MAX) {
        builder->is_full = true;
        return;
    }
    if (at == set->rollout_count) {
        set->rollouts[set->rollout_count++] = (struct gateway_rollout){.adapter = hash};
        set->rollout_adapters[at] = adapter;
    }
    set->rollouts[at].pools |= pool;
}

static void
define_llm_route(struct route_builder *builder, struct resource *by)
{
    const struct tree_node *ref = manifest_find(by->spec, "backendRefs")->first;
    for (; ref != NULL; ref = ref->next) {
        const struct definition definition = {
            .model = manifest_text(llm_field(by, ref, "adapter"), "name"),
            .pool = pool_of(builder->set, manifest_text(ref, "name"), by),
            .weight = weight_of(ref),
            .by = by,
            .ref = ref};
        roll_out(builder, llm_field(by, ref, "adapter"), definition.pool);
        define_closed(builder, by, &definition);
    }
}

static void
define_rewrites(struct route_builder *builder, struct resource *by)
{
    uint64_t pool = by->pool = pool_referred(builder->set, by);
    const struct tree_node *rule = manifest_find(by->spec, "rules")->first;
    for (; rule != NULL; rule = rule->next) {
        const struct tree_node *matches = manifest_find(rule, "matches");
        for (const struct tree_node *match = matches != NULL ? matches->first : NULL; match != NULL;
             match = match->next) {
            const char *model = manifest_text(manifest_find(match, "model"), "value");
            if (!is_defined(builder, model, pool))
                define(builder,
                       &(struct definition){.model = model, .pool = pool, .weight = 1, .by = by});
        }
    }
}

static void
define_all(struct route_builder *builder)
{
    struct resource_set *set = builder->set;
    for (uint32_t i = 0; i < set->count; i++) {
        struct resource *resource = &set->items[i];
        if (resource->kind == RESOURCE_LLM_ROUTE)
            define_llm_route(builder, resource);
        else if (resource->kind == RESOURCE_MODEL)
            define_closed(builder, resource,
                          &(struct definition){.model = manifest_text(resource->spec, "modelName"),
                                               .pool = pool_referred(set, resource),
                                               .weight = 1,
                                               .by = resource});
        else if (resource->kind == RESOURCE_OBJECTIVE)
            (void)pool_referred(set, resource);
    }
    for (uint32_t i = 0; i < set->count; i++)
        if (set->items[i].kind == RESOURCE_REWRITE)
            define_rewrites(builder, &set->items[i]);
}

/* ---- targets ---- */

static void
add_target(struct route_builder *builder, const char *name, const struct gateway_target *target)
{
    struct resource_set *set = builder->set;
    struct gateway_route *route = &set->routes[set->route_count];
    if (set->target_count == GATEWAY_TARGETS_MAX) {
        builder->is_full = true;
        return;
    }
    set->targets[set->target_count] = *target;
    set->targets[set->target_count].model =
        name != NULL ? gateway_name_hash(name, strlen(name)) : 0;
    set->target_names[set->target_count++] = name;
    route->target_count++;
}

/* Shares the weight of a backend among a list of names. */
static void
add_split(struct route_builder *builder, const struct tree_node *list, const char *field,
          const struct gateway_target *backend)
{
    double sum = 0;
    for (const struct tree_node *at = list->first; at != NULL; at = at->next)
        sum += weight_of(at);
    for (const struct tree_node *at = list->first; at != NULL; at = at->next) {
        struct gateway_target target = *backend;
        target.weight = backend->weight * weight_of(at) / sum;
        add_target(builder, manifest_text(at, field), &target);
    }
}

/* Returns whether a rule matches by the name; `model` NULL: whether it matches all names. */
static bool
is_rule_for(const struct tree_node *rule, const char *model)
{
    const struct tree_node *matches = manifest_find(rule, "matches");
    if (matches == NULL || matches->count == 0)
        return model == NULL;
    for (const struct tree_node *at = matches->first; at != NULL && model != NULL; at = at->next)
        if (strcmp(manifest_text(manifest_find(at, "model"), "value"), model) == 0)
            return true;
    return false;
}

/* The targets of the first rule of the oldest rewrite for it; NULL: none. */
static const struct tree_node *
rewrite_of(const struct resource_set *set, uint64_t pool, const char *model)
{
    for (uint32_t i = 0; i < set->count; i++) {
        const struct resource *by = &set->items[i];
        if (by->kind != RESOURCE_REWRITE || by->pool != pool)
            continue;
        for (const struct tree_node *rule = manifest_find(by->spec, "rules")->first; rule != NULL;
             rule = rule->next)
            if (is_rule_for(rule, model))
                return manifest_find(rule, "targets");
    }
    return NULL;
}

/* An exact rule goes before one for all names, and both before the name itself. */
static void
add_backend(struct route_builder *builder, const char *model, const struct gateway_target *backend)
{
    const struct tree_node *exact =
        model != NULL ? rewrite_of(builder->set, backend->pools, model) : NULL;
    const struct tree_node *targets =
        exact != NULL ? exact : rewrite_of(builder->set, backend->pools, NULL);
    if (targets != NULL)
        add_split(builder, targets, "modelRewrite", backend);
    else
        add_target(builder, model, backend);
}

/* ---- routes ---- */

static void
begin_route(struct route_builder *builder, const char *model)
{
    struct resource_set *set = builder->set;
    set->routes[set->route_count] =
        (struct gateway_route){.model = model != NULL ? gateway_name_hash(model, strlen(model)) : 0,
                               .first_target = set->target_count};
}

static uint32_t
tries_of(const struct tree_node *retry)
{
    const char *attempts = manifest_text(retry, "attempts");
    return attempts != NULL ? 1 + (uint32_t)strtoul(attempts, NULL, 10) : 0;
}

static void
set_priority(struct gateway_route *route, int32_t priority)
{
    if (!route->has_priority)
        route->priority = priority;
    route->has_priority = true;
}

/* Takes the first objective, if the route has none yet. */
static void
take_objective(struct gateway_route *route, const struct tree_node *objectives)
{
    enum { DENOMINATOR = 100, NUMERATOR = 99 };
    if (objectives == NULL || objectives->count == 0 || route->latency_ms > 0)
        return;
    const struct tree_node *latency = manifest_find(objectives->first, "latency");
    const struct tree_node *quantile = manifest_find(latency, "quantile");
    const char *numerator = manifest_text(quantile, "numerator");
    const char *denominator = manifest_text(quantile, "denominator");
    double met = numerator != NULL ? (double)strtol(numerator, NULL, 10) : NUMERATOR;
    double whole = denominator != NULL ? (double)strtol(denominator, NULL, 10) : DENOMINATOR;
    CHECK(duration_read(manifest_text(latency, "value"), &route->latency_ms));
    route->over_share = (whole - met) / whole;
}

/* The oldest definition of a model sets its rules. */
static void
take_rules(struct gateway_route *route, const struct definition *definition)
{
    const struct resource *by = definition->by;
    if (by->kind == RESOURCE_LLM_ROUTE) {
        const struct tree_node *ref = definition->ref;
        if (manifest_text(ref, "priority") != NULL)
            set_priority(route, resource_priority(ref));
        else if (manifest_text(by->spec, "priority") != NULL)
            set_priority(route, resource_priority(by->spec));
        if (route->tries_max == 0)
            route->tries_max = tries_of(manifest_find(by->spec, "retry"));
        take_objective(route, llm_field(by, ref, "objectives"));
    }
    if (by->kind == RESOURCE_MODEL) {
        const char *word = manifest_text(by->spec, "criticality");
        set_priority(route, word == NULL                     ? 0
                            : strcmp(word, "Critical") == 0  ? RESOURCE_PRIORITY_CRITICAL
                            : strcmp(word, "Sheddable") == 0 ? -1
                                                             : 0);
    }
}

static void
add_fallbacks(struct route_builder *builder, const struct definition *definition)
{
    if (definition->by->kind != RESOURCE_LLM_ROUTE)
        return;
    const struct tree_node *names = manifest_find(definition->by->spec, "fallbacks");
    uint32_t tier = 0;
    for (const struct tree_node *at = names != NULL ? names->first : NULL; at != NULL;
         at = at->next)
        add_target(
            builder, at->text,
            &(struct gateway_target){.pools = definition->pool, .weight = 1, .tier = ++tier});
}

/* One model's definitions, the oldest first. */
static void
add_route(struct route_builder *builder, const struct definition *first, uint32_t count)
{
    struct resource_set *set = builder->set;
    if (set->route_count == GATEWAY_ROUTES_MAX) {
        builder->is_full = true;
        return;
    }
    struct gateway_route *route = &set->routes[set->route_count];
    begin_route(builder, first->model);
    for (uint32_t i = 0; i < count; i++) {
        const struct definition *definition = &first[i];
        const struct gateway_target backend = {.pools = definition->pool,
                                               .weight = definition->weight};
        const struct tree_node *own = definition->by->kind == RESOURCE_MODEL
                                          ? manifest_find(definition->by->spec, "targetModels")
                                          : NULL;
        take_rules(route, definition);
        if (own != NULL && own->count > 0)
            add_split(builder, own, "name", &backend);
        else
            add_backend(builder, definition->model, &backend);
    }
    add_fallbacks(builder, first);
    set->route_count++;
}

/* The rule of the oldest HTTPRoute; NULL: there is none. */
static const struct tree_node *
http_rule(struct resource_set *set)
{
    const struct tree_node *rule = NULL;
    for (uint32_t i = 0; i < set->count; i++) {
        struct resource *route = &set->items[i];
        if (route->kind != RESOURCE_HTTP_ROUTE)
            continue;
        if (rule != NULL)
            object(route, RESOURCE_ACCEPTED, "Conflicted", "only the first HTTPRoute is used, not",
                   route->name);
        else
            rule = manifest_find(route->spec, "rules")->first;
    }
    return rule;
}

static void
add_default_pool(struct route_builder *builder, uint64_t pool, double weight)
{
    if (pool != 0 && (builder->closed & pool) == 0 && weight > 0)
        add_backend(builder, NULL, &(struct gateway_target){.pools = pool, .weight = weight});
}

/* All other names: to the pools that take them. */
static void
add_default(struct route_builder *builder, const struct tree_node *rule)
{
    struct resource_set *set = builder->set;
    begin_route(builder, NULL);
    struct resource *by = NULL;
    for (uint32_t i = 0; i < set->count && by == NULL; i++)
        if (set->items[i].kind == RESOURCE_HTTP_ROUTE)
            by = &set->items[i];
    const struct tree_node *ref = rule != NULL ? manifest_find(rule, "backendRefs")->first : NULL;
    for (; ref != NULL; ref = ref->next)
        add_default_pool(builder, pool_of(set, manifest_text(ref, "name"), by), weight_of(ref));
    if (rule == NULL && set->pool_count == 0)
        add_default_pool(builder, ALL_POOLS, 1);
    for (uint32_t i = 0; i < set->pool_count && rule == NULL; i++)
        add_default_pool(builder, UINT64_C(1) << i, 1);
    if (set->routes[set->route_count].target_count > 0)
        set->route_count++;
}

static int
by_model(const void *a, const void *b)
{
    const struct definition *one = a;
    const struct definition *other = b;
    int order = strcmp(one->model, other->model);
    return order != 0 ? order : one->order < other->order ? -1 : 1;
}

static int
by_hash(const void *a, const void *b)
{
    const struct gateway_route *one = a;
    const struct gateway_route *other = b;
    return one->model < other->model ? -1 : one->model > other->model;
}

static void
name_routes(struct resource_set *set, const struct definition *definitions, uint32_t count)
{
    set->route_names = must_allocate(set->route_count + 1, sizeof(*set->route_names));
    for (uint32_t i = 0; i < count; i++) {
        const char *model = definitions[i].model;
        const struct gateway_route key = {.model = gateway_name_hash(model, strlen(model))};
        const struct gateway_route *route =
            bsearch(&key, set->routes, set->route_count, sizeof(key), by_hash);
        if (route != NULL)
            set->route_names[route - set->routes] = model;
    }
}

static uint64_t
open_pools(const struct resource_set *set)
{
    uint64_t open = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        const char *mode =
            manifest_text(manifest_find(set->items[i].spec, "endpointPickerRef"), "failureMode");
        if (set->items[i].kind == RESOURCE_POOL && mode != NULL && strcmp(mode, "FailOpen") == 0)
            open |= UINT64_C(1) << set->items[i].number;
    }
    return open;
}

enum status
resources_resolve(struct resource_set *set, struct error *error)
{
    struct route_builder builder = {.set = set};
    builder.definitions = must_allocate(GATEWAY_TARGETS_MAX, sizeof(*builder.definitions));
    set->routes = must_allocate(GATEWAY_ROUTES_MAX + 1, sizeof(*set->routes));
    set->targets = must_allocate(GATEWAY_TARGETS_MAX, sizeof(*set->targets));
    set->target_names = must_allocate(GATEWAY_TARGETS_MAX, sizeof(*set->target_names));
    define_all(&builder);
    qsort(builder.definitions, builder.count, sizeof(*builder.definitions), by_model);
    for (uint32_t first = 0, next; first < builder.count; first = next) {
        for (next = first + 1; next < builder.count; next++)
            if (strcmp(builder.definitions[next].model, builder.definitions[first].model) != 0)
                break;
        add_route(&builder, &builder.definitions[first], next - first);
    }
    const struct tree_node *rule = http_rule(set);
    add_default(&builder, rule);
    uint32_t tries_max = tries_of(manifest_find(rule, "retry"));
    for (uint32_t i = 0; i < set->route_count; i++)
        if (set->routes[i].tries_max == 0)
            set->routes[i].tries_max = tries_max;
    qsort(set->routes, set->route_count, sizeof(*set->routes), by_hash);
    name_routes(set, builder.definitions, builder.count);
    set->open_pools = open_pools(set);
    free(builder.definitions);
    return builder.is_full
               ? error_set(error, STATUS_INVALID_ARGUMENT,
                           "the resources define more than %d models, %d targets or %d "
                           "adapters with a path",
                           GATEWAY_ROUTES_MAX, GATEWAY_TARGETS_MAX, GATEWAY_ROLLOUTS_MAX)
               : STATUS_OK;
}
