/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/config/settings.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/config/yaml_file.h"

/* ---- our keys ---- */

struct settings_key {
    const char *name;
    size_t offset;
    bool is_text;
    int64_t min;
    int64_t max;
    int64_t number;
    const char *text;
    const char *help;
};

static const struct settings_key keys[] = {
#define SETTING_TEXT(name, initial, help)                                                          \
    {#name, offsetof(struct gateway_settings, name), true, 0, 0, 0, initial, help},
#define SETTING_NUMBER(name, min, max, initial, help)                                              \
    {#name, offsetof(struct gateway_settings, name), false, min, max, initial, NULL, help},
#include "gateway/config/settings.def"
};

static void *
place_of(struct gateway_settings *settings, const struct settings_key *key)
{
    return (char *)settings + key->offset;
}

void
settings_init(struct gateway_settings *settings)
{
    memset(settings, 0, sizeof(*settings));
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++)
        if (keys[i].is_text)
            memcpy(place_of(settings, &keys[i]), keys[i].text, strlen(keys[i].text) + 1);
        else
            *(int64_t *)place_of(settings, &keys[i]) = keys[i].number;
    settings->scheduler = (struct gateway_scheduler){
        .weights = {[GATEWAY_SCORE_QUEUE] = 2,
                    [GATEWAY_SCORE_KV_CACHE] = 2,
                    [GATEWAY_SCORE_ADAPTER] = 2,
                    [GATEWAY_SCORE_PREFIX] = 3},
        .picker = GATEWAY_PICK_MAX_SCORE,
    };
}

void
settings_print_manual(FILE *out)
{
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++)
        if (keys[i].is_text)
            fprintf(out, "%s (text, default \"%s\")\n    %s\n", keys[i].name, keys[i].text,
                    keys[i].help);
        else
            fprintf(out, "%s (%" PRId64 " to %" PRId64 ", default %" PRId64 ")\n    %s\n",
                    keys[i].name, keys[i].min, keys[i].max, keys[i].number, keys[i].help);
    fputs("plugins, schedulingProfiles\n    as in EndpointPickerConfig. Scorers:", out);
    for (int i = 0; i < GATEWAY_SCORER_COUNT; i++)
        fprintf(out, "%s %s", i > 0 ? "," : "", gateway_scorer_names[i]);
    fputs(".\n    Pickers:", out);
    for (int i = 0; i < GATEWAY_PICKER_COUNT; i++)
        fprintf(out, "%s %s", i > 0 ? "," : "", gateway_picker_names[i]);
    fputs(".\n    Also utilization-filter and single-profile-handler.\n", out);
}

static enum status
take_key(struct gateway_settings *settings, const struct yaml_file *file,
         const struct settings_key *key, int value, struct error *error)
{
    const char *text = yaml_text(file, value);
    char *end;
    if (text == NULL)
        return yaml_mistake(file, value, error, "%s: a single value is wanted", key->name);
    if (key->is_text) {
        if (strlen(text) >= SETTING_TEXT_BYTES)
            return yaml_mistake(file, value, error, "%s: longer than %d bytes", key->name,
                                SETTING_TEXT_BYTES - 1);
        memcpy(place_of(settings, key), text, strlen(text) + 1);
        return STATUS_OK;
    }
    long long number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || number < key->min || number > key->max)
        return yaml_mistake(file, value, error,
                            "%s: %.40s is no number from %" PRId64 " to %" PRId64, key->name, text,
                            key->min, key->max);
    *(int64_t *)place_of(settings, key) = number;
    return STATUS_OK;
}

/* ---- EndpointPickerConfig ---- */

/* Reads a parameter of a plugin; `otherwise` if it is not given. */
static enum status
read_parameter(const struct yaml_file *file, int plugin, const char *name, double *number,
               struct error *error)
{
    int value = yaml_find(file, yaml_find(file, plugin, "parameters"), name);
    const char *text = yaml_text(file, value);
    char *end = NULL;
    if (value == 0)
        return STATUS_OK;
    double read = text != NULL ? strtod(text, &end) : -1;
    if (!(read >= 0) || end == text || *end != '\0')
        return yaml_mistake(file, value, error, "%s: a number of at least 0 is wanted", name);
    *number = read;
    return STATUS_OK;
}

static int
index_of(const char *type, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(type, names[i]) == 0)
            return i;
    return -1;
}

static enum status
take_filter(struct gateway_scheduler *scheduler, const struct yaml_file *file, int plugin,
            struct error *error)
{
    struct gateway_filter filter = {.waiting_max = 5, .kv_used_max = 0.8};
    if (scheduler->filter_count == GATEWAY_FILTERS_MAX)
        return yaml_mistake(file, plugin, error, "more than %d filters", GATEWAY_FILTERS_MAX);
    enum status status =
        read_parameter(file, plugin, "queueDepthThreshold", &filter.waiting_max, error);
    if (status == STATUS_OK)
        status = read_parameter(file, plugin, "kvCacheUtilThreshold", &filter.kv_used_max, error);
    scheduler->filters[scheduler->filter_count++] = filter;
    return status;
}

static enum status
take_picker(struct gateway_scheduler *scheduler, const struct yaml_file *file, int plugin,
            enum gateway_picker picker, struct error *error)
{
    double threshold = 100000; /* the proof of concept's */
    enum status status = read_parameter(file, plugin, "threshold", &threshold, error);
    scheduler->picker = picker;
    scheduler->seed_pending_max = threshold < UINT32_MAX ? (uint32_t)threshold : UINT32_MAX;
    return status;
}

/* One entry of the profile: {pluginRef, weight}. */
static enum status
take_reference(struct gateway_scheduler *scheduler, const struct yaml_file *file, int plugins,
               int reference, struct error *error)
{
    const char *wanted = yaml_text(file, yaml_find(file, reference, "pluginRef"));
    const char *weight = yaml_text(file, yaml_find(file, reference, "weight"));
    const char *type = NULL;
    int plugin = 0;
    if (wanted == NULL)
        return yaml_mistake(file, reference, error, "pluginRef is missing");
    for (uint32_t i = 0; type == NULL && (plugin = yaml_at(file, plugins, i, NULL)) != 0; i++) {
        const char *name = yaml_text(file, yaml_find(file, plugin, "name"));
        const char *its_type = yaml_text(file, yaml_find(file, plugin, "type"));
        if (its_type != NULL && strcmp(name != NULL ? name : its_type, wanted) == 0)
            type = its_type;
    }
    if (type == NULL)
        return yaml_mistake(file, reference, error, "no entry of `plugins` has the name %.80s",
                            wanted);
    int scorer = index_of(type, gateway_scorer_names, GATEWAY_SCORER_COUNT);
    int picker = index_of(type, gateway_picker_names, GATEWAY_PICKER_COUNT);
    char *end = NULL;
    double factor = weight != NULL ? strtod(weight, &end) : 1;
    if (weight != NULL && (end == weight || *end != '\0' || !(factor >= 0 && factor <= 1e6)))
        return yaml_mistake(file, reference, error, "weight: a number from 0 to 1000000 is wanted");
    if (scorer >= 0)
        scheduler->weights[scorer] = factor;
    else if (picker >= 0)
        return take_picker(scheduler, file, plugin, (enum gateway_picker)picker, error);
    else if (strcmp(type, "utilization-filter") == 0)
        return take_filter(scheduler, file, plugin, error);
    else if (strcmp(type, "single-profile-handler") != 0)
        return yaml_mistake(file, plugin, error,
                            "no plugin of type %.80s is known: see --help-config", type);
    return STATUS_OK;
}

static enum status
take_profile(struct gateway_settings *settings, const struct yaml_file *file, struct error *error)
{
    int plugins = yaml_find(file, yaml_root(file), "plugins");
    int profiles = yaml_find(file, yaml_root(file), "schedulingProfiles");
    if (plugins == 0 && profiles == 0)
        return STATUS_OK;
    int list = yaml_find(file, yaml_at(file, profiles, 0, NULL), "plugins");
    if (!yaml_is_list(file, plugins) || !yaml_is_list(file, list) ||
        yaml_at(file, profiles, 1, NULL) != 0)
        return yaml_mistake(
            file, profiles != 0 ? profiles : plugins, error,
            "a list `plugins` and one scheduling profile with `plugins` are wanted");
    enum status status = STATUS_OK;
    settings->scheduler = (struct gateway_scheduler){.picker = GATEWAY_PICK_MAX_SCORE};
    int reference;
    for (uint32_t i = 0; status == STATUS_OK && (reference = yaml_at(file, list, i, NULL)) != 0;
         i++)
        status = take_reference(&settings->scheduler, file, plugins, reference, error);
    return status;
}

/* ---- the file ---- */

static enum status
take_member(struct gateway_settings *settings, const struct yaml_file *file, const char *name,
            int value, struct error *error)
{
    static const char *const others[] = {"apiVersion", "kind", "plugins", "schedulingProfiles"};
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++)
        if (strcmp(name, keys[i].name) == 0) {
            if (yaml_find(file, yaml_root(file), name) != value)
                return yaml_mistake(file, value, error, "%s is given twice", name);
            return take_key(settings, file, &keys[i], value, error);
        }
    if (index_of(name, others, ARRAY_COUNT(others)) >= 0)
        return STATUS_OK;
    return yaml_mistake(file, value, error, "the key %.80s is not known: --help-config lists all",
                        name);
}

/* Relations between keys; paths are relative to the file's folder. */
static enum status
settle(struct gateway_settings *settings, const char *path, struct error *error)
{
    if (settings->scrape_ms_min > settings->scrape_ms_max)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: scrape_ms_min is more than scrape_ms_max", path);
    if (settings->endpoints[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: the key endpoints is missing: the file that lists the servers", path);
    int64_t blocks = 8;
    while (blocks < settings->prefix_blocks_max)
        blocks *= 2;
    settings->prefix_blocks_max = blocks;
    const char *slash = strrchr(path, '/');
    if (slash == NULL || settings->endpoints[0] == '/')
        return STATUS_OK;
    char name[SETTING_TEXT_BYTES];
    memcpy(name, settings->endpoints, sizeof(name));
    int used = snprintf(settings->endpoints, sizeof(settings->endpoints), "%.*s%s",
                        (int)(slash + 1 - path), path, name);
    return used < SETTING_TEXT_BYTES
               ? STATUS_OK
               : error_set(error, STATUS_INVALID_ARGUMENT, "%s: the path is too long", path);
}

enum status
settings_read(struct gateway_settings *settings, const char *path, struct error *error)
{
    struct yaml_file *file;
    enum status status = yaml_file_read(path, &file, error);
    if (status != STATUS_OK)
        return status;
    int root = yaml_root(file);
    if (!yaml_is_map(file, root))
        status = yaml_mistake(file, root, error, "keys with values are wanted");
    const char *name;
    int value;
    for (uint32_t i = 0; status == STATUS_OK && (value = yaml_at(file, root, i, &name)) != 0; i++)
        status = take_member(settings, file, name, value, error);
    if (status == STATUS_OK)
        status = take_profile(settings, file, error);
    yaml_file_free(file);
    return status == STATUS_OK ? settle(settings, path, error) : status;
}
