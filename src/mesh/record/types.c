/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/record/json.h"
#include "mesh/record/record.h"

/* Labels of one list, sorted and unique. */
struct labels {
    const char *at[RECORD_LABELS_MAX];
    uint32_t count;
};

static int
compare_labels(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool
has_label(const struct labels *labels, const char *label)
{
    return labels->count > 0 && bsearch(&label, labels->at, labels->count, sizeof(labels->at[0]),
                                        compare_labels) != NULL;
}

static enum status
label_check(json_t *value, const char *list, struct error *error)
{
    if (!json_is_string(value))
        return record_json_wrong(error, list, "a list of strings", value);
    const char *label = json_string_value(value);
    if (label[0] == '\0' || strlen(label) > RECORD_LABEL_BYTES_MAX || strchr(label, ',') != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: the label \"%.40s\" is empty, longer than %d bytes, or has a comma",
                         list, label, RECORD_LABEL_BYTES_MAX);
    return STATUS_OK;
}

/* Labels in `without` (NULL: none) are omitted. */
static enum status
read_list(json_t *rule, const char *list, const struct labels *without, struct labels *labels,
          struct error *error)
{
    json_t *array;
    labels->count = 0;
    if (record_json_array(rule, list, &array, error) != STATUS_OK)
        return error->status;
    if (json_array_size(array) > RECORD_LABELS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: %zu labels; at most %d are taken",
                         list, json_array_size(array), RECORD_LABELS_MAX);
    for (size_t i = 0; i < json_array_size(array); i++) {
        json_t *value = json_array_get(array, i);
        if (label_check(value, list, error) != STATUS_OK)
            return error->status;
        labels->at[labels->count++] = json_string_value(value);
    }
    qsort(labels->at, labels->count, sizeof(labels->at[0]), compare_labels);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < labels->count; i++) {
        bool again = kept > 0 && strcmp(labels->at[kept - 1], labels->at[i]) == 0;
        if (!again && (without == NULL || !has_label(without, labels->at[i])))
            labels->at[kept++] = labels->at[i];
    }
    labels->count = kept;
    for (uint32_t i = 1; i < kept; i++)
        CHECK(strcmp(labels->at[i - 1], labels->at[i]) < 0);
    return STATUS_OK;
}

/* One block: rules, then lists, then texts, sized for the maximum. */
struct build {
    struct mesh_type_rule *rules;
    const char **lists;
    struct record_block texts;
};

static const char *const *
keep_list(struct build *build, const struct labels *labels)
{
    const char **list = build->lists;
    for (uint32_t i = 0; i < labels->count; i++)
        *build->lists++ = record_block_text(&build->texts, labels->at[i]);
    return list;
}

static enum status
read_rule(struct build *build, const char *type, json_t *value, struct error *error)
{
    struct labels required, preferred;
    if (!json_is_object(value))
        return record_json_wrong(error, type, "an object", value);
    if (read_list(value, "required", NULL, &required, error) != STATUS_OK ||
        read_list(value, "preferred", &required, &preferred, error) != STATUS_OK)
        return error_prefix(error, "%s", type);
    *build->rules++ = (struct mesh_type_rule){
        .type = record_block_text(&build->texts, type),
        .required = keep_list(build, &required),
        .required_count = required.count,
        .preferred = keep_list(build, &preferred),
        .preferred_count = preferred.count,
    };
    return STATUS_OK;
}

static size_t
label_count(json_t *root)
{
    size_t count = 0;
    json_t *members = root;
    for (void *at = json_object_iter(members); at; at = json_object_iter_next(members, at)) {
        json_t *rule = json_object_iter_value(at);
        count += json_array_size(json_object_get(rule, "required"));
        count += json_array_size(json_object_get(rule, "preferred"));
    }
    return count;
}

/* Texts need no more room than in JSON, where each has quotes. */
static enum status
read_root(json_t *root, size_t bytes, struct record_types **types, struct error *error)
{
    json_t *members = root;
    size_t rules = json_object_size(root);
    size_t lists = label_count(root);
    if (rules > RECORD_TYPES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%zu types; at most %d are taken", rules,
                         RECORD_TYPES_MAX);
    struct build build;
    size_t head = sizeof(struct record_types) + rules * sizeof(struct mesh_type_rule) +
                  lists * sizeof(const char *);
    struct record_types *made = record_block_create(&build.texts, head, bytes);
    build.rules = (struct mesh_type_rule *)(made + 1);
    build.lists = (const char **)(build.rules + rules);
    made->rules = build.rules;
    made->rule_count = (uint32_t)rules;
    for (void *at = json_object_iter(members); at; at = json_object_iter_next(members, at))
        if (read_rule(&build, json_object_iter_key(at), json_object_iter_value(at), error) !=
            STATUS_OK) {
            free(made);
            return error->status;
        }
    *types = made;
    return STATUS_OK;
}

enum status
record_types_read(const void *value, size_t bytes, struct record_types **types, struct error *error)
{
    json_t *root = NULL;
    error_clear(error);
    if (record_json_parse(value, bytes, &root, error) == STATUS_OK)
        read_root(root, bytes, types, error);
    json_decref(root);
    if (error->status != STATUS_OK)
        error_prefix(error, "type constraints");
    return error->status;
}
