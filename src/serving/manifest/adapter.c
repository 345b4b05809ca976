/* SPDX-License-Identifier: Apache-2.0 */
/* A ServingRuntime's `builtInAdapter`, for servers whose adapter is the node. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "serving/manifest/check.h"
#include "serving/manifest/model.h"

/* The defaults of KServe's controller and adapters. */
static const struct manifest_adapter DEFAULTS = {
    .port = 8001,
    .buffer_bytes = 128 << 20,
    .load_timeout_ms = 90000,
    .loaders = 1,
    .default_bytes = 1000000,
    .size_percent = 125,
};

enum adapter_variable_type { VARIABLE_NUMBER, VARIABLE_FACTOR };

struct adapter_variable {
    const char *name;
    enum adapter_variable_type type;
    double least, most;
    size_t offset; /* of a uint64_t */
};

#define FIELD(name) offsetof(struct manifest_adapter, name)

enum { VARIABLE_LOADERS, VARIABLE_CALLS };

static const struct adapter_variable VARIABLES[] = {
    [VARIABLE_LOADERS] = {"LOADING_CONCURRENCY", VARIABLE_NUMBER, 1, 64, FIELD(loaders)},
    [VARIABLE_CALLS] = {"LIMIT_PER_MODEL_CONCURRENCY", VARIABLE_NUMBER, 0, 65536,
                        FIELD(model_calls_max)},
    {"LOADTIME_TIMEOUT", VARIABLE_NUMBER, 100, 3600000, FIELD(load_timeout_ms)},
    {"DEFAULT_MODELSIZE", VARIABLE_NUMBER, 1, 1e15, FIELD(default_bytes)},
    {"MODELSIZE_MULTIPLIER", VARIABLE_FACTOR, 0.01, 1000, FIELD(size_percent)},
    {"MEM_BUFFER_BYTES", VARIABLE_NUMBER, 0, 1e15, FIELD(buffer_bytes)},
    {"RUNTIME_PORT", VARIABLE_NUMBER, 1, 65535, FIELD(port)},
};

static uint64_t *
field_at(struct manifest_adapter *adapter, size_t offset)
{
    return (uint64_t *)(void *)((char *)adapter + offset);
}

/* Fields of the manifest have been checked to be integers. */
static void
read_number(const struct tree_node *map, const char *key, uint64_t *number)
{
    const char *text = manifest_text(map, key);
    if (text != NULL)
        *number = strtoull(text, NULL, 10);
}

struct adapter_value {
    const char *field, *name; /* where it is written: "spec.builtInAdapter.env", its name there */
    const char *text;
    int line;
};

/* False: it is not a number that the variable may have. */
static bool
set_variable(const struct adapter_variable *variable, const char *text,
             struct manifest_adapter *adapter)
{
    char *end;
    double value = strtod(text, &end);
    bool is_number =
        text[0] >= '0' && text[0] <= '9' && *end == '\0' &&
        (variable->type == VARIABLE_FACTOR || strspn(text, "0123456789") == strlen(text));
    if (!is_number || value < variable->least || value > variable->most)
        return false;
    double scaled = variable->type == VARIABLE_FACTOR ? value * 100 : value;
    *field_at(adapter, variable->offset) = (uint64_t)(scaled + 0.5);
    return true;
}

static void
take_variable(const struct adapter_variable *variable, const struct adapter_value *given,
              struct tree_report *report, struct manifest_adapter *adapter)
{
    if (!set_variable(variable, given->text, adapter))
        report_add(report, given->line, "%s: %s must be a number of %g to %g, not \"%.100s\"",
                   given->field, given->name, variable->least, variable->most, given->text);
}

static void
read_variable(const struct tree_node *entry, struct tree_report *report,
              struct manifest_adapter *adapter)
{
    const char *name = manifest_text(entry, "name");
    const char *text = manifest_text(entry, "value");
    const struct adapter_variable *variable = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(VARIABLES) && variable == NULL; i++)
        if (strcmp(VARIABLES[i].name, name) == 0)
            variable = &VARIABLES[i];
    if (variable == NULL || text == NULL) {
        report_add(report, entry->line,
                   "spec.builtInAdapter.env: \"%.100s\" %s: LOADING_CONCURRENCY, LOADTIME_TIMEOUT, "
                   "LIMIT_PER_MODEL_CONCURRENCY, DEFAULT_MODELSIZE, MODELSIZE_MULTIPLIER, "
                   "MEM_BUFFER_BYTES and RUNTIME_PORT may be there, each with a value",
                   name, variable == NULL ? "is not known" : "has no value");
        return;
    }
    const struct adapter_value given = {"spec.builtInAdapter.env", name, text, entry->line};
    take_variable(variable, &given, report, adapter);
}

/* KServe's annotation, which its controller hands to the adapter as LOADING_CONCURRENCY. */
static void
read_annotation(const struct tree_node *notes, struct tree_report *report,
                struct manifest_adapter *adapter)
{
    static const char name[] = "maxLoadingConcurrency";
    const struct tree_node *note = manifest_find(notes, name);
    if (note == NULL)
        return;
    const struct adapter_value given = {"metadata.annotations", name, note->text, note->line};
    take_variable(&VARIABLES[VARIABLE_LOADERS], &given, report, adapter);
}

/* Records that were written when nobody read it may have anything. */
static void
read_calls_max(const struct tree_node *notes, struct manifest_adapter *adapter)
{
    const char *text = manifest_text(notes, "perModelConcurrencyLimit");
    adapter->ignores_calls_max =
        text != NULL && !set_variable(&VARIABLES[VARIABLE_CALLS], text, adapter);
}

/* Variables of adapters that are containers are theirs. */
void
manifest_adapter_find(const struct tree_node *document, struct tree_report *report,
                      struct manifest *manifest)
{
    const struct tree_node *spec = manifest_find(document, "spec");
    const struct tree_node *given = manifest_find(spec, "builtInAdapter");
    const char *type = manifest_text(given, "serverType");
    const struct tree_node *notes =
        manifest_find(manifest_find(document, "metadata"), "annotations");
    struct manifest_adapter *adapter = &manifest->adapter;
    if (!manifest_is_runtime(manifest->kind))
        return;
    if (type == NULL || strcmp(type, "ovms") == 0 || strcmp(type, "torchserve") == 0) {
        read_calls_max(notes, adapter);
        return;
    }
    *adapter = DEFAULTS;
    adapter->server_type = type;
    read_number(given, "runtimeManagementPort", &adapter->port);
    read_number(given, "memBufferBytes", &adapter->buffer_bytes);
    read_number(given, "modelLoadingTimeoutMillis", &adapter->load_timeout_ms);
    read_annotation(notes, report, adapter);
    read_calls_max(notes, adapter);
    const struct tree_node *env = manifest_find(given, "env");
    for (const struct tree_node *one = env != NULL ? env->first : NULL; one != NULL;
         one = one->next)
        read_variable(one, report, adapter);
}
