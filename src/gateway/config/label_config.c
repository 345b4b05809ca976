/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/config/label_config.h"

#include <string.h>

#include "base/check.h"
#include "gateway/config/picker_config.h"
#include "gateway/core/gateway_core.h"

static const char *const filter_types[] = {"label-selector-filter", "by-label-selector",
                                           "by-label"};
enum { SELECTOR, SELECTOR_FORMERLY, BY_LABEL };

bool
label_config_is_filter(const char *type)
{
    return plugin_index(type, filter_types, ARRAY_COUNT(filter_types)) >= 0;
}

static uint64_t
hash_of(const char *text)
{
    return gateway_name_hash(text, strlen(text));
}

/* ---- reading ---- */

static enum status
take_key(const struct yaml_file *file, const struct tree_node *value, char key[LABEL_KEY_BYTES],
         struct error *error)
{
    const char *text = yaml_text(value);
    if (text == NULL || *text == '\0' || strlen(text) >= LABEL_KEY_BYTES)
        return yaml_mistake(file, value, error, "expected a name of 1 to %d characters",
                            LABEL_KEY_BYTES - 1);
    memcpy(key, text, strlen(text) + 1);
    return STATUS_OK;
}

/* The next rule, with its key; NULL: there is a mistake. */
static struct label_rule *
add_rule(struct label_config *config, const struct yaml_file *file, const struct tree_node *key,
         struct error *error)
{
    if (config->rule_count == LABEL_RULES_MAX) {
        (void)yaml_mistake(file, key, error, "more than %d conditions on labels", LABEL_RULES_MAX);
        return NULL;
    }
    struct label_rule *rule = &config->rules[config->rule_count++];
    *rule = (struct label_rule){.kind = LABEL_IN};
    return take_key(file, key, rule->key, error) == STATUS_OK ? rule : NULL;
}

static enum status
take_values(const struct yaml_file *file, const struct tree_node *list, struct label_rule *rule,
            struct error *error)
{
    const struct tree_node *value;
    for (value = yaml_first(list); value != NULL; value = value->next) {
        const char *text = yaml_text(value);
        if (text == NULL || rule->value_count == LABEL_VALUES_MAX)
            return yaml_mistake(file, value, error, "expected at most %d values, each a string",
                                LABEL_VALUES_MAX);
        rule->values[rule->value_count++] = hash_of(text);
    }
    return STATUS_OK;
}

static enum status
take_by_label(struct label_config *config, const struct yaml_file *file,
              const struct tree_node *parameters, struct error *error)
{
    const char *none = yaml_text(yaml_find(parameters, "allowsNoLabel"));
    struct label_rule *rule = add_rule(config, file, yaml_find(parameters, "label"), error);
    if (rule == NULL)
        return STATUS_INVALID_ARGUMENT;
    rule->allows_none = none != NULL && strcmp(none, "true") == 0;
    return take_values(file, yaml_find(parameters, "validValues"), rule, error);
}

static enum status
take_expression(struct label_config *config, const struct yaml_file *file,
                const struct tree_node *expression, struct error *error)
{
    static const char *const operators[] = {"In", "NotIn", "Exists", "DoesNotExist"};
    const struct tree_node *named = yaml_find(expression, "operator");
    const char *name = yaml_text(named);
    int found = name != NULL ? plugin_index(name, operators, ARRAY_COUNT(operators)) : -1;
    if (found < 0)
        return yaml_mistake(file, named, error,
                            "operator: expected In, NotIn, Exists or DoesNotExist");
    struct label_rule *rule = add_rule(config, file, yaml_find(expression, "key"), error);
    if (rule == NULL)
        return STATUS_INVALID_ARGUMENT;
    rule->kind = (enum label_operator)found;
    return take_values(file, yaml_find(expression, "values"), rule, error);
}

static enum status
take_selector(struct label_config *config, const struct yaml_file *file,
              const struct tree_node *parameters, struct error *error)
{
    const struct tree_node *labels = yaml_find(parameters, "matchLabels");
    const struct tree_node *expressions = yaml_find(parameters, "matchExpressions");
    enum status status = STATUS_OK;
    const struct tree_node *value;
    for (value = yaml_first(labels); status == STATUS_OK && value != NULL; value = value->next) {
        const char *text = yaml_text(value);
        const char *key = value->key != NULL ? value->key : "";
        if (config->rule_count == LABEL_RULES_MAX || text == NULL || strlen(key) >= LABEL_KEY_BYTES)
            return yaml_mistake(file, value, error,
                                "matchLabels: expected at most %d strings with names of "
                                "less than %d characters",
                                LABEL_RULES_MAX, LABEL_KEY_BYTES);
        struct label_rule *rule = &config->rules[config->rule_count++];
        *rule = (struct label_rule){.value_count = 1, .values = {hash_of(text)}};
        memcpy(rule->key, key, strlen(key) + 1);
    }
    for (value = yaml_first(expressions); status == STATUS_OK && value != NULL; value = value->next)
        status = take_expression(config, file, value, error);
    return status;
}

static enum status
take_plugin(struct label_config *config, const struct yaml_file *file,
            const struct plugin_ref *plugin, struct error *error)
{
    const struct tree_node *parameters = yaml_find(plugin->entry, "parameters");
    if (strcmp(plugin->type, gateway_scorer_names[GATEWAY_SCORE_LABEL]) == 0) {
        enum status status =
            take_key(file, yaml_find(parameters, "headerName"), config->header, error);
        return status == STATUS_OK
                   ? take_key(file, yaml_find(parameters, "labelKey"), config->header_key, error)
                   : status;
    }
    int filter = plugin_index(plugin->type, filter_types, ARRAY_COUNT(filter_types));
    return filter < 0           ? STATUS_OK
           : filter == BY_LABEL ? take_by_label(config, file, parameters, error)
                                : take_selector(config, file, parameters, error);
}

enum status
label_config_read(const struct yaml_file *file, struct label_config *config, struct error *error)
{
    const struct tree_node *profile = yaml_first(yaml_find(yaml_root(file), "schedulingProfiles"));
    const struct tree_node *list = yaml_find(profile, "plugins");
    enum status status = STATUS_OK;
    const struct tree_node *reference;
    *config = (struct label_config){.rule_count = 0};
    for (reference = yaml_first(list); status == STATUS_OK && reference != NULL;
         reference = reference->next) {
        const char *name = yaml_text(yaml_find(reference, "pluginRef"));
        struct plugin_ref plugin = plugin_find(file, name != NULL ? name : "");
        if (plugin.entry != NULL)
            status = take_plugin(config, file, &plugin, error);
    }
    return status;
}

/* ---- judging ---- */

static bool
passes(const struct label_rule *rule, const char *text)
{
    bool is_listed = false;
    for (uint32_t i = 0; text != NULL && i < rule->value_count; i++)
        is_listed = is_listed || rule->values[i] == hash_of(text);
    switch (rule->kind) {
    case LABEL_IN: return text == NULL ? rule->allows_none : is_listed;
    case LABEL_NOT_IN: return !is_listed;
    case LABEL_EXISTS: return text != NULL;
    case LABEL_ABSENT: return text == NULL;
    }
    UNREACHABLE();
}

bool
label_config_passes(const struct label_config *config, const struct tree_node *labels)
{
    for (uint32_t i = 0; i < config->rule_count; i++)
        if (!passes(&config->rules[i], yaml_text(yaml_find(labels, config->rules[i].key))))
            return false;
    return true;
}

uint64_t
label_config_value(const struct label_config *config, const struct tree_node *labels)
{
    const char *text = yaml_text(yaml_find(labels, config->header_key));
    return config->header[0] != '\0' && text != NULL ? hash_of(text) : 0;
}
