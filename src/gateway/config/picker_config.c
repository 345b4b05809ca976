/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/config/picker_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/config/label_config.h"

/* The reference's, for token-load-scorer: 128 requests of 32 Ki. */
enum { TOKENS_MAX = 4194304 };

/* tests/gateway/lora_mix.c compares it with others. The filter lets an adapter spread whose servers
 * are full. */
void
picker_config_init(struct gateway_scheduler *scheduler, struct gateway_flow_control *flow_control)
{
    *scheduler = (struct gateway_scheduler){
        .weights = {[GATEWAY_SCORE_QUEUE] = 2,
                    [GATEWAY_SCORE_KV_CACHE] = 2,
                    [GATEWAY_SCORE_ADAPTER] = 4,
                    [GATEWAY_SCORE_PREFIX] = 3},
        .filters = {{.waiting_max = 16, .kv_used_max = 0.8}},
        .filter_count = 1,
        .tokens_max = TOKENS_MAX,
        .picker = GATEWAY_PICK_MAX_SCORE,
    };
    flow_config_init(flow_control);
}

bool
picker_config_has(const char *name)
{
    static const char *const members[] = {"apiVersion",         "kind",        "plugins",
                                          "featureGates",       "flowControl", "saturationDetector",
                                          "schedulingProfiles", "parser",      "dataLayer"};
    return plugin_index(name, members, ARRAY_COUNT(members)) >= 0;
}

static void
print_names(FILE *out, const char *title, const char *const *names, int count)
{
    fprintf(out, "    %s:", title);
    for (int i = 0; i < count; i++)
        fprintf(out, "%s %s", i > 0 ? "," : "", names[i]);
    fputs(".\n", out);
}

void
picker_config_print_manual(FILE *out)
{
    fputs("plugins, schedulingProfiles, featureGates, flowControl, saturationDetector, dataLayer\n"
          "    as in EndpointPickerConfig. The file that a file-discovery of dataLayer names is "
          "that\n"
          "    of `endpoints`, unless this key is given; metrics are read without "
          "dataLayer.sources.\n",
          out);
    print_names(out, "Scorers", gateway_scorer_names, GATEWAY_SCORER_COUNT);
    print_names(out, "Pickers", gateway_picker_names, GATEWAY_PICKER_COUNT);
    print_names(out, "Saturation detectors", gateway_detector_names, GATEWAY_DETECTOR_COUNT);
    print_names(out, "Fairness policies", gateway_fairness_names, GATEWAY_FAIRNESS_COUNT);
    print_names(out, "Ordering policies", gateway_ordering_names, GATEWAY_ORDERING_COUNT);
    fputs("    Also utilization-filter, label-selector-filter, by-label, single-profile-handler,\n"
          "    static-usage-limit-policy;\n"
          "    passthrough-parser, named by `parser`, leaves bodies unread (ext_proc only).\n",
          out);
}

static enum status
take_filter(struct gateway_scheduler *scheduler, const struct yaml_file *file,
            const struct tree_node *plugin, struct error *error)
{
    struct gateway_filter filter = {.waiting_max = 5, .kv_used_max = 0.8};
    if (scheduler->filter_count == GATEWAY_FILTERS_MAX)
        return yaml_mistake(file, plugin, error, "more than %d filters", GATEWAY_FILTERS_MAX);
    enum status status =
        plugin_number(file, plugin, "queueDepthThreshold", &filter.waiting_max, error);
    if (status == STATUS_OK)
        status = plugin_number(file, plugin, "kvCacheUtilThreshold", &filter.kv_used_max, error);
    double headroom = 0;
    if (status == STATUS_OK)
        status = plugin_number(file, plugin, "headroom", &headroom, error);
    filter.waiting_max *= 1 + headroom;
    filter.kv_used_max *= 1 + headroom;
    scheduler->filters[scheduler->filter_count++] = filter;
    return status;
}

static enum status
take_picker(struct gateway_scheduler *scheduler, const struct yaml_file *file,
            const struct tree_node *plugin, enum gateway_picker picker, struct error *error)
{
    double threshold = 100000; /* the proof of concept's */
    enum status status = plugin_number(file, plugin, "threshold", &threshold, error);
    scheduler->picker = picker;
    scheduler->seed_pending_max = threshold < UINT32_MAX ? (uint32_t)threshold : UINT32_MAX;
    return status;
}

/* One entry of the profile: {pluginRef, weight}. */
static enum status
take_reference(struct gateway_scheduler *scheduler, const struct yaml_file *file,
               const struct tree_node *reference, struct error *error)
{
    const char *wanted = yaml_text(yaml_find(reference, "pluginRef"));
    const char *weight = yaml_text(yaml_find(reference, "weight"));
    if (wanted == NULL)
        return yaml_mistake(file, reference, error, "pluginRef is missing");
    struct plugin_ref plugin = plugin_find(file, wanted);
    if (plugin.entry == NULL)
        return yaml_mistake(file, reference, error, "no entry of `plugins` has the name %.80s",
                            wanted);
    int scorer = plugin_index(plugin.type, gateway_scorer_names, GATEWAY_SCORER_COUNT);
    int picker = plugin_index(plugin.type, gateway_picker_names, GATEWAY_PICKER_COUNT);
    char *end = NULL;
    double factor = weight != NULL ? strtod(weight, &end) : 1;
    if (weight != NULL && (end == weight || *end != '\0' || !(factor >= 0 && factor <= 1e6)))
        return yaml_mistake(file, reference, error, "weight: expected a number from 0 to 1000000");
    if (scorer >= 0)
        scheduler->weights[scorer] = factor;
    if (scorer == GATEWAY_SCORE_TOKENS)
        return plugin_number(file, plugin.entry, "queueThresholdTokens", &scheduler->tokens_max,
                             error);
    if (scorer >= 0)
        return STATUS_OK;
    if (picker >= 0)
        return take_picker(scheduler, file, plugin.entry, (enum gateway_picker)picker, error);
    if (strcmp(plugin.type, "utilization-filter") == 0 ||
        strcmp(plugin.type, gateway_detector_names[GATEWAY_DETECT_UTILIZATION]) == 0)
        return take_filter(scheduler, file, plugin.entry, error);
    if (strcmp(plugin.type, "single-profile-handler") != 0 && !label_config_is_filter(plugin.type))
        return yaml_mistake(file, plugin.entry, error,
                            "no plugin of type %.80s is known: see --help-config", plugin.type);
    return STATUS_OK;
}

static enum status
take_profile(struct gateway_scheduler *scheduler, const struct yaml_file *file, struct error *error)
{
    const struct tree_node *plugins = yaml_find(yaml_root(file), "plugins");
    const struct tree_node *profiles = yaml_find(yaml_root(file), "schedulingProfiles");
    if (plugins == NULL && profiles == NULL)
        return STATUS_OK;
    const struct tree_node *list = yaml_find(yaml_first(profiles), "plugins");
    if (!yaml_is_list(plugins) || !yaml_is_list(list) || yaml_first(profiles)->next != NULL)
        return yaml_mistake(file, profiles != NULL ? profiles : plugins, error,
                            "expected a list `plugins` and one scheduling profile with `plugins`");
    enum status status = STATUS_OK;
    *scheduler =
        (struct gateway_scheduler){.tokens_max = TOKENS_MAX, .picker = GATEWAY_PICK_MAX_SCORE};
    const struct tree_node *reference;
    for (reference = yaml_first(list); status == STATUS_OK && reference != NULL;
         reference = reference->next)
        status = take_reference(scheduler, file, reference, error);
    return status;
}

enum status
picker_config_read(const struct yaml_file *file, struct gateway_scheduler *scheduler,
                   struct gateway_flow_control *flow_control, struct error *error)
{
    enum status status = take_profile(scheduler, file, error);
    return status == STATUS_OK ? flow_config_read(file, flow_control, error) : status;
}

enum status
picker_config_read_parser(const struct yaml_file *file, bool *takes_any_body, struct error *error)
{
    static const char *const parsers[] = {"openai-parser", "passthrough-parser"};
    enum { OPENAI, PASSTHROUGH };
    const struct tree_node *parser = yaml_find(yaml_root(file), "parser");
    const char *wanted = yaml_text(yaml_find(parser, "pluginRef"));
    int which = parser == NULL ? OPENAI : -1;
    if (wanted != NULL)
        which = plugin_index(plugin_find(file, wanted).type, parsers, ARRAY_COUNT(parsers));
    *takes_any_body = which == PASSTHROUGH;
    return which >= 0 ? STATUS_OK
                      : yaml_mistake(file, parser, error,
                                     "pluginRef: expected openai-parser or passthrough-parser");
}

enum status
picker_config_find_endpoints(const struct yaml_file *file, const struct tree_node **path,
                             struct error *error)
{
    const struct tree_node *layer = yaml_find(yaml_root(file), "dataLayer");
    const struct tree_node *discovery = yaml_find(layer, "discovery");
    const char *wanted = yaml_text(yaml_find(discovery, "pluginRef"));
    struct plugin_ref plugin = plugin_find(file, wanted != NULL ? wanted : "");
    *path = yaml_find(yaml_find(plugin.entry, "parameters"), "path");
    if (discovery != NULL && (strcmp(plugin.type, "file-discovery") != 0 || *path == NULL))
        return yaml_mistake(file, discovery, error,
                            "pluginRef: expected a file-discovery with the parameter path");
    return STATUS_OK;
}
