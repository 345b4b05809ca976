/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Type constraints as ModelMesh Serving's controller derives them: each runtime that is for several
 * models and not disabled requires its labels for its formats, with and without a protocol, and for
 * its name. Each node derives the same from the same manifests. Unknown types, which that
 * controller forbids, may be on any node: they are those of pipelines.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "mesh/record/record.h"
#include "serving/leader/inside.h"

enum { LABELS = 2 };

struct derived_type {
    char *name;
    const char *labels[LABELS];
    uint32_t label_count;
};

struct derived_types {
    struct derived_type *at;
    uint32_t count;
    uint32_t capacity;
};

static char *
join(const char *one, const char *two, const char *three, const char *four)
{
    char *text = NULL;
    CHECK(asprintf(&text, "%s%s%s%s", one, two, three, four) >= 0);
    return text;
}

/* Takes the labels. `protocol` NULL: none. */
static void
add(struct derived_types *types, char *label,
    char *protocol) // NOLINT(readability-non-const-parameter): kept
{
    if (types->count == types->capacity) {
        types->capacity = types->capacity * 2 + 16;
        types->at = realloc(types->at, types->capacity * sizeof(*types->at));
        CHECK(types->at != NULL);
    }
    types->at[types->count++] = (struct derived_type){
        .name = join(label, protocol != NULL ? "|" : "", protocol != NULL ? protocol : "", ""),
        .labels = {label, protocol},
        .label_count = protocol != NULL ? 2 : 1};
}

static void
add_formats(struct derived_types *types, const struct serving_runtime *runtime,
            const char *protocol)
{
    for (uint32_t i = 0; i < runtime->format_count; i++) {
        const struct serving_format *format = &runtime->formats[i];
        if (!format->auto_select)
            continue;
        add(types, join("mt:", format->name, "", ""),
            protocol != NULL ? join("pv:", protocol, "", "") : NULL);
        if (format->version != NULL)
            add(types, join("mt:", format->name, ":", format->version),
                protocol != NULL ? join("pv:", protocol, "", "") : NULL);
    }
}

static void
add_runtime(struct derived_types *types, const struct serving_runtime *runtime)
{
    if (runtime->disabled || !runtime->multi_model)
        return;
    add(types, join("rt:", runtime->name, "", ""), NULL);
    add_formats(types, runtime, NULL);
    for (uint32_t i = 0; i < runtime->protocol_count; i++)
        add_formats(types, runtime, runtime->protocols[i]);
}

static int
by_name(const void *a, const void *b)
{
    return strcmp(((const struct derived_type *)a)->name, ((const struct derived_type *)b)->name);
}

static void
type_fini(struct derived_type *type)
{
    free(type->name);
    for (size_t i = 0; i < LABELS; i++)
        free((void *)(uintptr_t)type->labels[i]);
}

/* Several runtimes may take one format. */
static void
sort(struct derived_types *types)
{
    uint32_t kept = 0;
    if (types->count > 0)
        qsort(types->at, types->count, sizeof(*types->at), by_name);
    for (uint32_t i = 0; i < types->count; i++)
        if (kept > 0 && by_name(&types->at[kept - 1], &types->at[i]) == 0)
            type_fini(&types->at[i]);
        else
            types->at[kept++] = types->at[i];
    types->count = kept;
}

static void
give(struct serving_leader *leader, const struct derived_types *types)
{
    struct mesh_type_rule *rules = calloc(types->count + 1, sizeof(*rules));
    uint32_t count = types->count < RECORD_TYPES_MAX ? types->count : RECORD_TYPES_MAX;
    CHECK(rules != NULL);
    for (uint32_t i = 0; i < count; i++)
        rules[i] = (struct mesh_type_rule){.type = types->at[i].name,
                                           .required = types->at[i].labels,
                                           .required_count = types->at[i].label_count};
    runner_types(leader->options.runner, rules, count);
    leader->types_derived = count > 0;
    log_info("serving_types count=%u left_out=%u", count, types->count - count);
    free(rules);
}

void
types_derive(struct serving_leader *leader)
{
    struct derived_types types = {0};
    struct hash_entry *entry = NULL;
    if (leader->options.types == SERVING_TYPES_GIVEN)
        return;
    while ((entry = hash_table_walk(&leader->objects, entry)) != NULL) {
        const struct serving_object *object = (struct serving_object *)(void *)entry;
        if (manifest_is_runtime(object->kind) && object->revision != 0)
            add_runtime(&types, &object->file.items[0].runtime);
    }
    sort(&types);
    if (types.count > 0 || leader->types_derived)
        give(leader, &types);
    for (uint32_t i = 0; i < types.count; i++)
        type_fini(&types.at[i]);
    free(types.at);
}
