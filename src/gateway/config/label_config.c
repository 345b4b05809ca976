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
take_key(const struct yaml_file *file, int value, char key[LABEL_KEY_BYTES], struct error *error)
{
    const char *text = yaml_text(file, value);
    if (text == NULL || *text == '\0' || strlen(text) >= LABEL_KEY_BYTES)
        return yaml_mistake(file, value, error, "a name of 1 to %d characters is wanted",
                            LABEL_KEY_BYTES - 1);
    memcpy(key, text, strlen(text) + 1);
    return STATUS_OK;
}

/* The next rule, with its key; NULL: there is a mistake. */
static struct label_rule *
add_rule(struct label_config *config, const struct yaml_file *file, int key, struct error *error)
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
take_values(const struct yaml_file *file, int list, struct label_rule *rule, struct error *error)
{
    int value;
    for (uint32_t i = 0; (value = yaml_at(file, list, i, NULL)) != 0; i++) {
        const char *text = yaml_text(file, value);
        if (text == NULL || i == LABEL_VALUES_MAX)
            return yaml_mistake(file, value, error, "at most %d values, each a text, are wanted",
                                LABEL_VALUES_MAX);
        rule->values[rule->value_count++] = hash_of(text);
    }
    return STATUS_OK;
}

static enum status
take_by_label(struct label_config *config, const struct yaml_file *file, int parameters,
              struct error *error)
{
    const char *none = yaml_text(file, yaml_find(file, parameters, "allowsNoLabel"));
    struct label_rule *rule = add_rule(config, file, yaml_find(file, parameters, "label"), error);
    if (rule == NULL)
        return STATUS_INVALID_ARGUMENT;
    rule->allows_none = none != NULL && strcmp(none, "true") == 0;
    return take_values(file, yaml_find(file, parameters, "validValues"), rule, error);
}

static enum status
take_expression(struct label_config *config, const struct yaml_file *file, int expression,
                struct error *error)
{
    static const char *const operators[] = {"In", "NotIn", "Exists", "DoesNotExist"};
    int named = yaml_find(file, expression, "operator");
    const char *name = yaml_text(file, named);
    int found = name != NULL ? plugin_index(name, operators, ARRAY_COUNT(operators)) : -1;
    if (found < 0)
        return yaml_mistake(file, named, error,
                            "operator: In, NotIn, Exists or DoesNotExist is wanted");
    struct label_rule *rule = add_rule(config, file, yaml_find(file, expression, "key"), error);
    if (rule == NULL)
        return STATUS_INVALID_ARGUMENT;
    rule->kind = (enum label_operator)found;
    return take_values(file, yaml_find(file, expression, "values"), rule, error);
}

static enum status
take_selector(struct label_config *config, const struct yaml_file *file, int parameters,
              struct error *error)
{
    int labels = yaml_find(file, parameters, "matchLabels");
    int expressions = yaml_find(file, parameters, "matchExpressions");
    enum status status = STATUS_OK;
    const char *key;
    int value;
    for (uint32_t i = 0; status == STATUS_OK && (value = yaml_at(file, labels, i, &key)) != 0;
         i++) {
        const char *text = yaml_text(file, value);
        if (config->rule_count == LABEL_RULES_MAX || text == NULL || strlen(key) >= LABEL_KEY_BYTES)
            return yaml_mistake(file, value, error,
                                "matchLabels: at most %d texts with names of less than %d "
                                "characters are wanted",
                                LABEL_RULES_MAX, LABEL_KEY_BYTES);
        struct label_rule *rule = &config->rules[config->rule_count++];
        *rule = (struct label_rule){.value_count = 1, .values = {hash_of(text)}};
        memcpy(rule->key, key, strlen(key) + 1);
    }
    for (uint32_t i = 0; status == STATUS_OK && (value = yaml_at(file, expressions, i, NULL)) != 0;
         i++)
        status = take_expression(config, file, value, error);
    return status;
}

static enum status
take_plugin(struct label_config *config, const struct yaml_file *file,
            const struct plugin_ref *plugin, struct error *error)
{
    int parameters = yaml_find(file, plugin->entry, "parameters");
    if (strcmp(plugin->type, gateway_scorer_names[GATEWAY_SCORE_LABEL]) == 0) {
        enum status status =
            take_key(file, yaml_find(file, parameters, "headerName"), config->header, error);
        return status == STATUS_OK ? take_key(file, yaml_find(file, parameters, "labelKey"),
                                              config->header_key, error)
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
    int profile = yaml_at(file, yaml_find(file, yaml_root(file), "schedulingProfiles"), 0, NULL);
    int list = yaml_find(file, profile, "plugins");
    enum status status = STATUS_OK;
    int reference;
    *config = (struct label_config){.rule_count = 0};
    for (uint32_t i = 0; status == STATUS_OK && (reference = yaml_at(file, list, i, NULL)) != 0;
         i++) {
        const char *name = yaml_text(file, yaml_find(file, reference, "pluginRef"));
        struct plugin_ref plugin = plugin_find(file, name != NULL ? name : "");
        if (plugin.entry != 0)
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
label_config_passes(const struct label_config *config, const struct yaml_file *file, int labels)
{
    for (uint32_t i = 0; i < config->rule_count; i++)
        if (!passes(&config->rules[i],
                    yaml_text(file, yaml_find(file, labels, config->rules[i].key))))
            return false;
    return true;
}

uint64_t
label_config_value(const struct label_config *config, const struct yaml_file *file, int labels)
{
    const char *text = yaml_text(file, yaml_find(file, labels, config->header_key));
    return config->header[0] != '\0' && text != NULL ? hash_of(text) : 0;
}
