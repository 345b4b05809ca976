/* SPDX-License-Identifier: Apache-2.0 */
/* featureGates, flowControl and saturationDetector of EndpointPickerConfig. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/duration.h"
#include "gateway/config/picker_config.h"

void
flow_config_init(struct gateway_flow_control *control)
{
    *control = (struct gateway_flow_control){
        .threshold = 1,
        .no_endpoint_ttl_ms = -1, /* not given: as the other */
        .saturation = {.detector = GATEWAY_DETECT_UTILIZATION,
                       .waiting_max = 5,
                       .kv_used_max = 0.8,
                       .stale_ms = 200},
        .other = {.requests_max = 5000,
                  .bytes_max = 1000000000,
                  .ttl_ms = 60000,
                  .input_weight = 1,
                  .output_weight = 3},
    };
    control->other_negative = control->other;
}

/* ---- values ---- */

static enum status
take_quantity(const struct yaml_file *file, const struct tree_node *map, const char *name,
              uint64_t *number, struct error *error)
{
    const struct tree_node *value = yaml_find(map, name);
    const char *text = yaml_text(value);
    if (value == 0 || (text != NULL && quantity_read(text, number)))
        return STATUS_OK;
    return yaml_mistake(file, value, error, "%s: expected a quantity such as 100 or 1Gi", name);
}

static enum status
take_duration(const struct yaml_file *file, const struct tree_node *map, const char *name,
              int64_t *ms, struct error *error)
{
    const struct tree_node *value = yaml_find(map, name);
    const char *text = yaml_text(value);
    if (value == 0 || (text != NULL && duration_read(text, ms)))
        return STATUS_OK;
    return yaml_mistake(file, value, error, "%s: expected a duration such as 30s or 200ms", name);
}

/* The plugin that a member names; its type is one of `names`. 0, `index` as it is: no member. */
static enum status
take_ref(const struct yaml_file *file, const struct tree_node *map, const char *name,
         const char *const *names, int count, struct plugin_ref *ref)
{
    const char *text = yaml_text(yaml_find(map, name));
    if (text == NULL)
        return STATUS_NOT_FOUND;
    *ref = plugin_find(file, text);
    return plugin_index(ref->type, names, count) >= 0 ? STATUS_OK : STATUS_INVALID_ARGUMENT;
}

static enum status
check_members(const struct yaml_file *file, const struct tree_node *map, const char *const *names,
              int count, struct error *error)
{
    if (map != NULL && !yaml_is_map(map))
        return yaml_mistake(file, map, error, "expected keys with values");
    for (const struct tree_node *value = yaml_first(map); value != NULL; value = value->next)
        if (plugin_index(value->key, names, count) < 0)
            return yaml_mistake(file, value, error, "flow control has no key %.80s here",
                                value->key);
    return STATUS_OK;
}

/* ---- the saturation detector ---- */

static enum status
take_utilization(const struct yaml_file *file, const struct tree_node *entry,
                 struct gateway_saturation *saturation, struct error *error)
{
    const struct tree_node *parameters = yaml_find(entry, "parameters");
    const char *policy = yaml_text(yaml_find(parameters, "stalenessPolicy"));
    saturation->ignores_stale = policy != NULL && strcmp(policy, "ignore") == 0;
    enum status status =
        plugin_number(file, entry, "queueDepthThreshold", &saturation->waiting_max, error);
    if (status == STATUS_OK)
        status =
            plugin_number(file, entry, "kvCacheUtilThreshold", &saturation->kv_used_max, error);
    if (status == STATUS_OK)
        status = take_duration(file, parameters, "metricsStalenessThreshold", &saturation->stale_ms,
                               error);
    if (status == STATUS_OK && !(saturation->waiting_max > 0 && saturation->kv_used_max > 0))
        return yaml_mistake(file, entry, error, "a threshold of 0 would always be exceeded");
    return status;
}

static enum status
take_concurrency(const struct yaml_file *file, const struct tree_node *entry,
                 struct gateway_saturation *saturation, struct error *error)
{
    const struct tree_node *parameters = yaml_find(entry, "parameters");
    const char *mode = yaml_text(yaml_find(parameters, "concurrencyMode"));
    static const char *const modes[] = {"requests", "tokens", "hybrid"};
    enum { REQUESTS, TOKENS };
    int index = mode != NULL ? plugin_index(mode, modes, ARRAY_COUNT(modes)) : REQUESTS;
    saturation->requests_max = 100;
    saturation->tokens_max = 1000000;
    enum status status =
        plugin_number(file, entry, "maxConcurrency", &saturation->requests_max, error);
    if (status == STATUS_OK)
        status = plugin_number(file, entry, "maxTokenConcurrency", &saturation->tokens_max, error);
    if (status != STATUS_OK)
        return status;
    if (index < 0 || !(saturation->requests_max > 0 && saturation->tokens_max > 0))
        return yaml_mistake(
            file, entry, error,
            "concurrencyMode is requests, tokens or hybrid; the maxima are above 0");
    if (index == REQUESTS)
        saturation->tokens_max = 0;
    if (index == TOKENS)
        saturation->requests_max = 0;
    return STATUS_OK;
}

/* Reads the detector in flowControl; the reference had it beside it before. */
static enum status
take_detector(const struct yaml_file *file, struct gateway_saturation *saturation,
              struct error *error)
{
    const struct tree_node *root = yaml_root(file);
    const struct tree_node *inside =
        yaml_find(yaml_find(root, "flowControl"), "saturationDetector");
    const struct tree_node *map = inside != NULL ? inside : yaml_find(root, "saturationDetector");
    struct plugin_ref ref;
    enum status status =
        take_ref(file, map, "pluginRef", gateway_detector_names, GATEWAY_DETECTOR_COUNT, &ref);
    if (status == STATUS_INVALID_ARGUMENT)
        return yaml_mistake(file, map, error, "%.80s is no saturation detector", ref.type);
    if (status == STATUS_NOT_FOUND) /* one that is declared is the default one */
        ref = plugin_find(file, gateway_detector_names[GATEWAY_DETECT_UTILIZATION]);
    saturation->detector = (enum gateway_detector)plugin_index(ref.type, gateway_detector_names,
                                                               GATEWAY_DETECTOR_COUNT);
    return saturation->detector == GATEWAY_DETECT_CONCURRENCY
               ? take_concurrency(file, ref.entry, saturation, error)
               : take_utilization(file, ref.entry, saturation, error);
}

/* ---- bands ---- */

static enum status
take_policies(const struct yaml_file *file, const struct tree_node *map, struct gateway_band *band,
              struct error *error)
{
    struct plugin_ref ref;
    enum status status = take_ref(file, map, "orderingPolicyRef", gateway_ordering_names,
                                  GATEWAY_ORDERING_COUNT, &ref);
    if (status == STATUS_INVALID_ARGUMENT)
        return yaml_mistake(file, map, error, "%.80s is no ordering policy", ref.type);
    if (status == STATUS_OK)
        band->ordering = (enum gateway_ordering)plugin_index(ref.type, gateway_ordering_names,
                                                             GATEWAY_ORDERING_COUNT);
    status = take_ref(file, map, "fairnessPolicyRef", gateway_fairness_names,
                      GATEWAY_FAIRNESS_COUNT, &ref);
    if (status == STATUS_INVALID_ARGUMENT)
        return yaml_mistake(file, map, error, "%.80s is no fairness policy", ref.type);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    band->fairness = (enum gateway_fairness)plugin_index(ref.type, gateway_fairness_names,
                                                         GATEWAY_FAIRNESS_COUNT);
    status = plugin_number(file, ref.entry, "inputTokenWeight", &band->input_weight, error);
    return status == STATUS_OK
               ? plugin_number(file, ref.entry, "outputTokenWeight", &band->output_weight, error)
               : status;
}

static enum status
take_band(const struct yaml_file *file, const struct tree_node *map, struct gateway_band *band,
          struct error *error)
{
    static const char *const members[] = {"priority",          "maxBytes",
                                          "maxRequests",       "defaultRequestTTL",
                                          "fairnessPolicyRef", "orderingPolicyRef"};
    uint64_t requests = band->requests_max;
    enum status status = check_members(file, map, members, ARRAY_COUNT(members), error);
    if (status == STATUS_OK)
        status = take_quantity(file, map, "maxBytes", &band->bytes_max, error);
    if (status == STATUS_OK)
        status = take_quantity(file, map, "maxRequests", &requests, error);
    if (status == STATUS_OK)
        status = take_duration(file, map, "defaultRequestTTL", &band->ttl_ms, error);
    band->requests_max = requests < UINT32_MAX ? (uint32_t)requests : 0;
    return status == STATUS_OK ? take_policies(file, map, band, error) : status;
}

static enum status
take_bands(const struct yaml_file *file, const struct tree_node *list,
           struct gateway_flow_control *control, struct error *error)
{
    const struct tree_node *item;
    for (item = yaml_first(list); item != NULL; item = item->next) {
        const struct tree_node *value = yaml_find(item, "priority");
        const char *text = yaml_text(value);
        char *end = NULL;
        long priority = text != NULL ? strtol(text, &end, 10) : 0;
        if (text == NULL || end == text || *end != '\0' || priority < INT32_MIN ||
            priority > INT32_MAX)
            return yaml_mistake(file, item, error, "priority: expected a whole number");
        if (control->band_count == GATEWAY_BANDS_CONFIGURED_MAX)
            return yaml_mistake(file, item, error, "more than %d bands",
                                GATEWAY_BANDS_CONFIGURED_MAX);
        for (uint32_t i = 0; i < control->band_count; i++)
            if (control->bands[i].priority == priority)
                return yaml_mistake(file, item, error, "priority %ld is given twice", priority);
        struct gateway_band *band = &control->bands[control->band_count++];
        *band = priority < 0 ? control->other_negative : control->other;
        band->priority = (int32_t)priority;
        enum status status = take_band(file, item, band, error);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* ---- flowControl ---- */

static bool
is_gate_open(const struct yaml_file *file)
{
    static const char *const open[] = {"flowControl", "flowControl=true"};
    const struct tree_node *list = yaml_find(yaml_root(file), "featureGates");
    const struct tree_node *item;
    for (item = yaml_first(list); item != NULL; item = item->next) {
        const char *name = yaml_text(item);
        if (name != NULL && plugin_index(name, open, ARRAY_COUNT(open)) >= 0)
            return true;
    }
    return false;
}

static enum status
take_threshold(const struct yaml_file *file, const struct tree_node *map, double *threshold,
               struct error *error)
{
    static const char *const name = "static-usage-limit-policy";
    struct plugin_ref ref;
    enum status status = take_ref(file, map, "usageLimitPolicyPluginRef", &name, 1, &ref);
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (status == STATUS_OK)
        status = plugin_number(file, ref.entry, "threshold", threshold, error);
    else
        status = yaml_mistake(file, map, error, "%.80s is no usage limit policy: only %s is known",
                              ref.type, name);
    if (status == STATUS_OK && !(*threshold > 0 && *threshold <= 1))
        status = yaml_mistake(file, ref.entry, error, "threshold: more than 0 and at most 1");
    return status;
}

static enum status
take_flow_control(const struct yaml_file *file, const struct tree_node *map,
                  struct gateway_flow_control *control, struct error *error)
{
    static const char *const members[] = {
        "maxBytes",           "maxRequests",          "defaultRequestTTL",
        "priorityBands",      "defaultPriorityBand",  "defaultNegativePriorityBand",
        "saturationDetector", "noEndpointRequestTTL", "usageLimitPolicyPluginRef"};
    uint64_t requests = 0;
    enum status status = check_members(file, map, members, ARRAY_COUNT(members), error);
    if (status == STATUS_OK)
        status = take_quantity(file, map, "maxBytes", &control->bytes_max, error);
    if (status == STATUS_OK)
        status = take_quantity(file, map, "maxRequests", &requests, error);
    if (status == STATUS_OK)
        status = take_duration(file, map, "defaultRequestTTL", &control->other.ttl_ms, error);
    if (status == STATUS_OK)
        status =
            take_duration(file, map, "noEndpointRequestTTL", &control->no_endpoint_ttl_ms, error);
    if (control->no_endpoint_ttl_ms < 0)
        control->no_endpoint_ttl_ms = control->other.ttl_ms;
    control->requests_max = requests < UINT32_MAX ? (uint32_t)requests : 0;
    if (status == STATUS_OK)
        status = take_threshold(file, map, &control->threshold, error);
    if (status == STATUS_OK)
        status = take_band(file, yaml_find(map, "defaultPriorityBand"), &control->other, error);
    control->other_negative = control->other;
    if (status == STATUS_OK)
        status = take_band(file, yaml_find(map, "defaultNegativePriorityBand"),
                           &control->other_negative, error);
    return status == STATUS_OK ? take_bands(file, yaml_find(map, "priorityBands"), control, error)
                               : status;
}

enum status
flow_config_read(const struct yaml_file *file, struct gateway_flow_control *control,
                 struct error *error)
{
    flow_config_init(control);
    control->is_on = is_gate_open(file);
    enum status status = take_detector(file, &control->saturation, error);
    return status == STATUS_OK
               ? take_flow_control(file, yaml_find(yaml_root(file), "flowControl"), control, error)
               : status;
}
