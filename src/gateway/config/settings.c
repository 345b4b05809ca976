/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/config/settings.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/config/picker_config.h"
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
    picker_config_init(&settings->scheduler, &settings->flow_control);
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
    picker_config_print_manual(out);
}

static enum status
take_key(struct gateway_settings *settings, const struct yaml_file *file,
         const struct settings_key *key, const struct tree_node *value, struct error *error)
{
    const char *text = yaml_text(value);
    char *end;
    if (text == NULL)
        return yaml_mistake(file, value, error, "%s: expected a single value", key->name);
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

/* ---- the file ---- */

static enum status
take_member(struct gateway_settings *settings, const struct yaml_file *file, const char *name,
            const struct tree_node *value, struct error *error)
{
    for (size_t i = 0; i < ARRAY_COUNT(keys); i++)
        if (strcmp(name, keys[i].name) == 0) {
            if (yaml_find(yaml_root(file), name) != value)
                return yaml_mistake(file, value, error, "%s is given twice", name);
            return take_key(settings, file, &keys[i], value, error);
        }
    if (picker_config_has(name))
        return STATUS_OK;
    return yaml_mistake(file, value, error, "the key %.80s is not known: --help-config lists all",
                        name);
}

/* Paths are relative to the configuration's folder. */
static enum status
resolve_path(char name[SETTING_TEXT_BYTES], const char *config, struct error *error)
{
    const char *slash = strrchr(config, '/');
    char given[SETTING_TEXT_BYTES];
    if (slash == NULL || name[0] == '/' || name[0] == '\0')
        return STATUS_OK;
    memcpy(given, name, sizeof(given));
    int used =
        snprintf(name, SETTING_TEXT_BYTES, "%.*s%s", (int)(slash + 1 - config), config, given);
    return used < SETTING_TEXT_BYTES
               ? STATUS_OK
               : error_set(error, STATUS_INVALID_ARGUMENT, "%s: the path is too long", config);
}

/* A TTL of 0 is none in the reference; here requests end after total_timeout_ms. */
static void
limit_ttls(struct gateway_flow_control *control, int64_t longest_ms)
{
    int64_t *ttls[GATEWAY_BANDS_CONFIGURED_MAX + 3] = {
        &control->other.ttl_ms, &control->other_negative.ttl_ms, &control->no_endpoint_ttl_ms};
    for (uint32_t i = 0; i < control->band_count; i++)
        ttls[3 + i] = &control->bands[i].ttl_ms;
    for (uint32_t i = 0; i < 3 + control->band_count; i++)
        if (*ttls[i] == 0)
            *ttls[i] = longest_ms;
}

static enum status
resolve_tls(struct gateway_settings *settings, const char *path, struct error *error)
{
    char *const paths[] = {settings->store_ca,
                           settings->store_certificate,
                           settings->store_key,
                           settings->store_password_file,
                           settings->tls_certificate,
                           settings->tls_key,
                           settings->tls_client_ca,
                           settings->endpoints_ca,
                           settings->endpoints_certificate,
                           settings->endpoints_key};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < ARRAY_COUNT(paths) && status == STATUS_OK; i++)
        status = resolve_path(paths[i], path, error);
    if (status != STATUS_OK)
        return status;
    bool has_certificate = settings->tls_certificate[0] != '\0';
    if (has_certificate != (settings->tls_key[0] != '\0') ||
        (!has_certificate && settings->tls_client_ca[0] != '\0'))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: tls_certificate and tls_key need each other, and tls_client_ca needs "
                         "both",
                         path);
    if ((settings->endpoints_certificate[0] == '\0') != (settings->endpoints_key[0] == '\0'))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: endpoints_certificate and endpoints_key need each other", path);
    return STATUS_OK;
}

/* Relations between keys. */
static enum status
resolve(struct gateway_settings *settings, const char *path, struct error *error)
{
    if (settings->scrape_ms_min > settings->scrape_ms_max)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: scrape_ms_min is more than scrape_ms_max", path);
    const struct gateway_flow_control *control = &settings->flow_control;
    if (control->is_on && control->saturation.detector == GATEWAY_DETECT_UTILIZATION &&
        control->saturation.stale_ms < 2 * settings->scrape_ms_min)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: metricsStalenessThreshold is less than twice scrape_ms_min, so that "
                         "figures would always be stale: raise it, or lower scrape_ms_min",
                         path);
    if (settings->endpoints[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: the key endpoints is missing: the file that lists the servers", path);
    limit_ttls(&settings->flow_control, settings->total_timeout_ms);
    int64_t blocks = 8;
    while (blocks < settings->prefix_blocks_max)
        blocks *= 2;
    settings->prefix_blocks_max = blocks;
    enum status status = resolve_path(settings->endpoints, path, error);
    if (status == STATUS_OK)
        status = resolve_path(settings->objectives, path, error);
    if (status == STATUS_OK)
        status = resolve_path(settings->resources, path, error);
    if (status == STATUS_OK)
        status = resolve_path(settings->keys, path, error);
    return status == STATUS_OK ? resolve_tls(settings, path, error) : status;
}

/* The list may be named as the reference does. */
static enum status
take_discovery(struct gateway_settings *settings, const struct yaml_file *file, struct error *error)
{
    const struct tree_node *path;
    enum status status = picker_config_find_endpoints(file, &path, error);
    bool is_wanted = path != NULL && settings->endpoints[0] == '\0';
    for (size_t i = 0; status == STATUS_OK && is_wanted && i < ARRAY_COUNT(keys); i++)
        if (strcmp(keys[i].name, "endpoints") == 0)
            status = take_key(settings, file, &keys[i], path, error);
    return status;
}

enum status
settings_read(struct gateway_settings *settings, const char *path, struct error *error)
{
    struct yaml_file *file;
    enum status status = yaml_file_read(path, &file, error);
    if (status != STATUS_OK)
        return status;
    const struct tree_node *root = yaml_root(file);
    if (!yaml_is_map(root))
        status = yaml_mistake(file, root, error, "expected keys with values");
    for (const struct tree_node *value = yaml_first(root); status == STATUS_OK && value != NULL;
         value = value->next)
        status = take_member(settings, file, value->key, value, error);
    if (status == STATUS_OK)
        status = picker_config_read(file, &settings->scheduler, &settings->flow_control, error);
    if (status == STATUS_OK)
        status = label_config_read(file, &settings->labels, error);
    if (status == STATUS_OK)
        status = picker_config_read_parser(file, &settings->takes_any_body, error);
    if (status == STATUS_OK)
        status = take_discovery(settings, file, error);
    yaml_file_free(file);
    return status == STATUS_OK ? resolve(settings, path, error) : status;
}
