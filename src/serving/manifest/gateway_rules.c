/* SPDX-License-Identifier: Apache-2.0 */
/* Rules for a document of the gateway that its kind's table cannot state. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/duration.h"
#include "serving/manifest/check.h"

enum { WEIGHT_MAX = 1000000, PORT_MAX = 65535, POOL_PORTS_MAX = 8, ADAPTER_PATH_MAX = 4096 };

static void
check_most(const struct tree_node *map, const char *key, long long most, struct tree_report *report)
{
    const char *text = manifest_text(map, key);
    if (text != NULL && strtoll(text, NULL, 10) > most)
        report_add(report, manifest_find(map, key)->line, "%s: must be at most %lld, not %.30s",
                   key, most, text);
}

/* A model's name goes into bodies as it is. */
static void
check_model(const struct tree_node *name, const char *field, struct tree_report *report)
{
    char shown[REPORT_VALUE_BYTES];
    if (name == NULL)
        return;
    bool is_plain = name->text[0] != '\0' && strlen(name->text) <= MANIFEST_NAME_BYTES_MAX;
    for (const char *at = name->text; *at != '\0' && is_plain; at++)
        is_plain = *at > ' ' && *at <= '~' && *at != '"' && *at != '\\';
    if (!is_plain)
        report_add(report, name->line,
                   "%s: must be a model's name of 1 to %d printable ASCII characters without "
                   "blanks, quotes and backslashes, not %s",
                   field, MANIFEST_NAME_BYTES_MAX, node_show(name, shown));
}

static void
check_list(const struct tree_node *list, const char *field, struct tree_report *report)
{
    if (list != NULL && list->count == 0)
        report_add(report, list->line, "%s: at least one is needed", field);
}

static const struct tree_node *
first_of(const struct tree_node *list)
{
    return list != NULL ? list->first : NULL;
}

/* Weights are given to all or to none. */
static void
check_targets(const struct tree_node *targets, const char *field, struct tree_report *report)
{
    uint32_t weights = 0;
    for (const struct tree_node *at = first_of(targets); at != NULL; at = at->next) {
        weights += manifest_text(at, "weight") != NULL;
        check_most(at, "weight", WEIGHT_MAX, report);
        check_model(manifest_find(at, field), field, report);
    }
    if (targets != NULL && weights != 0 && weights != targets->count)
        report_add(report, targets->line, "weight: must be given to all targets, or to none");
}

static void
check_pool(const struct tree_node *spec, struct tree_report *report)
{
    const struct tree_node *ports = manifest_find(spec, "targetPorts");
    if (ports != NULL && ports->count > POOL_PORTS_MAX)
        report_add(report, ports->line, "spec.targetPorts: must be at most %d", POOL_PORTS_MAX);
    for (const struct tree_node *at = first_of(ports); at != NULL; at = at->next)
        check_most(at, "number", PORT_MAX, report);
}

static void
check_rewrite(const struct tree_node *spec, struct tree_report *report)
{
    const struct tree_node *rules = manifest_find(spec, "rules");
    check_list(rules, "spec.rules", report);
    for (const struct tree_node *rule = first_of(rules); rule != NULL; rule = rule->next) {
        const struct tree_node *match = first_of(manifest_find(rule, "matches"));
        check_list(manifest_find(rule, "targets"), "targets", report);
        check_targets(manifest_find(rule, "targets"), "modelRewrite", report);
        for (; match != NULL; match = match->next)
            check_model(manifest_find(manifest_find(match, "model"), "value"), "value", report);
    }
}

static void
check_objectives(const struct tree_node *objectives, struct tree_report *report)
{
    int64_t ms;
    if (objectives != NULL && objectives->count > 1)
        report_add(report, objectives->line, "objectives: must be at most one");
    for (const struct tree_node *at = first_of(objectives); at != NULL; at = at->next) {
        const struct tree_node *latency = manifest_find(at, "latency");
        const struct tree_node *value = manifest_find(latency, "value");
        const struct tree_node *quantile = manifest_find(latency, "quantile");
        const char *numerator = manifest_text(quantile, "numerator");
        const char *denominator = manifest_text(quantile, "denominator");
        if (!duration_read(value->text, &ms) || ms < 1)
            report_add(report, value->line,
                       "latency.value: must be a duration such as 2s or 50ms, not %.40s",
                       value->text);
        long long whole = denominator != NULL ? strtoll(denominator, NULL, 10) : 100;
        if (numerator != NULL && strtoll(numerator, NULL, 10) >= whole)
            report_add(report, quantile->line,
                       "latency.quantile: the numerator must be less than the denominator (%lld)",
                       whole);
    }
}

static void
check_of_adapter(const struct tree_node *map, struct tree_report *report)
{
    check_most(map, "priority", INT32_MAX, report);
    check_most(map, "weight", WEIGHT_MAX, report);
    check_model(manifest_find(manifest_find(map, "adapter"), "name"), "adapter.name", report);
    const struct tree_node *path = manifest_find(manifest_find(map, "adapter"), "path");
    if (path != NULL && (path->text[0] == '\0' || strlen(path->text) > ADAPTER_PATH_MAX))
        report_add(report, path->line, "adapter.path: must have 1 to %d bytes", ADAPTER_PATH_MAX);
    check_objectives(manifest_find(map, "objectives"), report);
}

static void
check_llm_route(const struct tree_node *spec, struct tree_report *report)
{
    const struct tree_node *refs = manifest_find(spec, "backendRefs");
    const struct tree_node *name = first_of(manifest_find(spec, "fallbacks"));
    check_list(refs, "spec.backendRefs", report);
    check_of_adapter(spec, report);
    for (const struct tree_node *ref = first_of(refs); ref != NULL; ref = ref->next) {
        check_of_adapter(ref, report);
        if (manifest_find(ref, "adapter") == NULL && manifest_find(spec, "adapter") == NULL)
            report_add(report, ref->line,
                       "adapter: is missing: write it into spec, or into each of backendRefs");
    }
    for (; name != NULL; name = name->next)
        check_model(name, "spec.fallbacks", report);
    check_most(manifest_find(spec, "retry"), "attempts", MANIFEST_ATTEMPTS_MAX, report);
}

static void
check_http_route(const struct tree_node *spec, struct tree_report *report)
{
    const struct tree_node *rules = manifest_find(spec, "rules");
    const struct tree_node *rule = first_of(rules);
    if (rules->count != 1) {
        report_add(report, rules->line, "spec.rules: must be one, for every request");
        return;
    }
    const struct tree_node *ref = first_of(manifest_find(rule, "backendRefs"));
    check_list(manifest_find(rule, "backendRefs"), "spec.rules[0].backendRefs", report);
    for (; ref != NULL; ref = ref->next)
        check_most(ref, "weight", WEIGHT_MAX, report);
    check_most(manifest_find(rule, "retry"), "attempts", MANIFEST_ATTEMPTS_MAX, report);
}

void
manifest_gateway_check(enum manifest_kind kind, const struct tree_node *document,
                       struct tree_report *report)
{
    const struct tree_node *spec = manifest_find(document, "spec");
    switch (kind) {
    case MANIFEST_POOL: check_pool(spec, report); break;
    case MANIFEST_OBJECTIVE: check_most(spec, "priority", INT32_MAX, report); break;
    case MANIFEST_REWRITE: check_rewrite(spec, report); break;
    case MANIFEST_MODEL:
        check_model(manifest_find(spec, "modelName"), "spec.modelName", report);
        check_targets(manifest_find(spec, "targetModels"), "name", report);
        break;
    case MANIFEST_LLM_ROUTE: check_llm_route(spec, report); break;
    case MANIFEST_HTTP_ROUTE: check_http_route(spec, report); break;
    default: UNREACHABLE();
    }
}
