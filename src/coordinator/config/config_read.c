/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tree to structs, by the table. A map's keys are collected first and read in the table's order, so
 * that what a key is checked against (a stage's batch against its pipeline's slots) has been read
 * before it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/config/config_tree.h"

static void read_list_of_maps(struct config_reader *reader, const struct config_key *key,
                              const struct tree_node *list, void *base);
static void read_map(struct config_reader *reader, enum config_where where,
                     const struct tree_node *map, void *base, struct config_given *given);

static void
report_type(struct config_reader *reader, const struct config_key *key,
            const struct tree_node *node)
{
    char shown[REPORT_VALUE_BYTES];
    char range[128];
    config_range_text(key, range, sizeof(range));
    report_add(reader->report, node->line, "`%s` must be %s%s%s%s, not %s", key->name,
               config_type_name(key->type), range[0] != '\0' ? " (" : "", range,
               range[0] != '\0' ? ")" : "", node_show(node, shown));
}

static void
report_range(struct config_reader *reader, const struct config_key *key,
             const struct tree_node *node)
{
    char shown[REPORT_VALUE_BYTES];
    char range[128];
    config_range_text(key, range, sizeof(range));
    report_add(reader->report, node->line, "`%s` is out of range: must be %s, not %s", key->name,
               range, node_show(node, shown));
}

/* ---- numbers ---- */

enum fractions { FRACTIONS_NO, FRACTIONS_YES };

static bool
is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits, a point and digits after it if allowed, a minus before: nothing else is a number. */
static bool
number_parse(const char *text, enum fractions fractions, double *value)
{
    bool negative = *text == '-';
    const char *c = text + negative;
    if (!is_digit(*c))
        return false;
    double sum = 0;
    for (; is_digit(*c); c++)
        sum = sum * 10 + (*c - '0');
    if (*c == '.' && fractions == FRACTIONS_YES && is_digit(c[1])) {
        double place = 1;
        for (c++; is_digit(*c); c++) {
            place /= 10;
            sum += place * (*c - '0');
        }
    }
    *value = negative ? -sum : sum;
    return *c == '\0';
}

static void
store_number(const struct config_key *key, double value, void *base)
{
    void *field = (char *)base + key->offset;
    uint64_t scaled =
        (uint64_t)(value * (double)key->factor + 0.5); /* no range permits less than 0 */
    switch (key->field) {
    case FIELD_U32: *(uint32_t *)field = (uint32_t)scaled; break;
    case FIELD_U64: *(uint64_t *)field = scaled; break;
    case FIELD_I64: *(int64_t *)field = (int64_t)scaled; break;
    case FIELD_NONE: UNREACHABLE();
    }
}

static void
read_number(struct config_reader *reader, const struct config_key *key,
            const struct tree_node *node, void *base)
{
    enum fractions fractions = key->type == CONFIG_DECIMAL ? FRACTIONS_YES : FRACTIONS_NO;
    double value;
    if (node->kind != NODE_SCALAR || node->style != NODE_PLAIN ||
        !number_parse(node->text, fractions, &value))
        report_type(reader, key, node);
    else if (value < key->min || value > key->max)
        report_range(reader, key, node);
    else
        store_number(key, value, base);
}

/* ---- texts ---- */

static bool
is_name(const char *text)
{
    return text[strspn(
               text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")] == '\0';
}

enum { CHOICE_NONE = -1 };

/* The index of a word in "a|b|c". */
static int
choice_index(const char *choices, const char *text)
{
    size_t length = strlen(text);
    int index = 0;
    for (const char *word = choices; *word != '\0'; word += *word == '|', index++) {
        size_t size = strcspn(word, "|");
        if (size == length && memcmp(word, text, size) == 0)
            return index;
        word += size;
    }
    return CHOICE_NONE;
}

static bool
has_control_characters(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    return false;
}

static void
read_text(struct config_reader *reader, const struct config_key *key, const struct tree_node *node,
          void *base)
{
    if (node->kind != NODE_SCALAR || node_is_null(node) ||
        (key->type == CONFIG_CHOICE && choice_index(key->choices, node->text) < 0)) {
        report_type(reader, key, node);
        return;
    }
    double length = (double)strlen(node->text);
    bool is_json = key->type == CONFIG_JSON && config_is_json(node->text);
    bool sized = key->type == CONFIG_CHOICE || (length >= key->min && length <= key->max);
    if (key->type == CONFIG_NAME && (!sized || !is_name(node->text))) {
        report_type(reader, key, node);
    } else if (!sized) {
        report_add(reader->report, node->line, "`%s` must have %.0f to %.0f bytes, not %.0f",
                   key->name, key->min, key->max, length);
    } else if (!is_json && has_control_characters(node->text)) {
        report_add(reader->report, node->line,
                   "`%s` holds a control character (a line break?): it must be one line",
                   key->name);
    } else {
        char **field = (char **)(void *)((char *)base + key->offset);
        free(*field);
        *field = must_copy(node->text);
    }
}

/* ---- lists ---- */

/* False: reported. An element too many is reported at its own line. */
static bool
list_fits(struct config_reader *reader, const struct config_key *key, const struct tree_node *list)
{
    if (list->kind != NODE_LIST) {
        report_type(reader, key, list);
        return false;
    }
    if (list->count < key->min) {
        report_range(reader, key, list);
        return false;
    }
    uint32_t index = 0;
    for (const struct tree_node *item = list->first; item != NULL; item = item->next, index++)
        if (index == key->max) {
            report_add(reader->report, item->line, "`%s` has %u elements: must be at most %.0f",
                       key->name, list->count, key->max);
            return false;
        }
    return true;
}

/* The map with the options of an address; NULL: it has no address, which is reported. */
static const struct tree_node *
read_transport(struct config_reader *reader, const struct tree_node *map,
               struct config_transport *transport)
{
    struct config_given given;
    read_map(reader, WHERE_ADDRESS, map, transport, &given);
    return given.nodes[KEY_ADDRESS];
}

static void
read_address(struct config_reader *reader, const struct config_key *key,
             const struct tree_node *item, struct config_addresses *addresses)
{
    struct config_transport transport = {.line = item->line};
    char *address = NULL;
    if (item->kind == NODE_MAP && key->type == CONFIG_HTTP_ADDRESSES)
        item = read_transport(reader, item, &transport);
    if (item != NULL && item->kind != NODE_BROKEN)
        address = config_check_address(reader, key, item, addresses);
    if (address == NULL) {
        free(transport.tls);
        free(transport.plain);
        return;
    }
    addresses->transports[addresses->count] = transport;
    addresses->items[addresses->count++] = address;
}

static void
read_addresses(struct config_reader *reader, const struct config_key *key,
               const struct tree_node *node, void *base)
{
    struct config_addresses *addresses = (void *)((char *)base + key->offset);
    bool alone =
        key->type == CONFIG_HTTP_ADDRESSES && (node->kind == NODE_SCALAR || node->kind == NODE_MAP);
    if ((alone && node_is_null(node)) || (!alone && node->kind != NODE_LIST)) {
        report_type(reader, key, node);
        return;
    }
    if (!alone && !list_fits(reader, key, node))
        return;
    while (addresses->count > 0) /* the default */
        free(addresses->items[--addresses->count]);
    if (alone)
        read_address(reader, key, node, addresses);
    for (const struct tree_node *item = alone ? NULL : node->first; item != NULL; item = item->next)
        read_address(reader, key, item, addresses);
}

static void
read_choices(struct config_reader *reader, const struct config_key *key,
             const struct tree_node *list, void *base)
{
    if (!list_fits(reader, key, list))
        return;
    uint32_t chosen = 0;
    for (const struct tree_node *item = list->first; item != NULL; item = item->next) {
        char shown[REPORT_VALUE_BYTES];
        if (item->kind == NODE_BROKEN)
            continue;
        int index = CHOICE_NONE;
        if (item->kind == NODE_SCALAR)
            index = choice_index(key->choices, item->text);
        if (index < 0)
            report_add(reader->report, item->line, "`%s` must list words of %s, not %s", key->name,
                       key->choices, node_show(item, shown));
        else if (chosen & 1u << index)
            report_add(reader->report, item->line, "`%s`: %s is given twice", key->name,
                       node_show(item, shown));
        else
            chosen |= 1u << index;
    }
    *(uint32_t *)(void *)((char *)base + key->offset) = chosen;
}

/* Reads the types of a pipeline's `models`, whose count is a member of its own. */
static void
read_names(struct config_reader *reader, const struct config_key *key, const struct tree_node *list,
           struct config_pipeline *pipeline)
{
    struct config_models *models = &pipeline->models;
    if (!list_fits(reader, key, list))
        return;
    models->types = must_allocate(list->count, sizeof(*models->types));
    for (const struct tree_node *item = list->first; item != NULL; item = item->next) {
        char shown[REPORT_VALUE_BYTES];
        uint32_t same = 0;
        if (item->kind == NODE_BROKEN)
            continue;
        if (item->kind != NODE_SCALAR || item->text[0] == '\0' || !is_name(item->text) ||
            strlen(item->text) > CONFIG_NAME_BYTES_MAX) {
            report_add(reader->report, item->line,
                       "`%s` must list names (1 to %d letters, digits, `.`, `_`, `-`), not %s",
                       key->name, CONFIG_NAME_BYTES_MAX, node_show(item, shown));
            continue;
        }
        while (same < models->type_count && strcmp(models->types[same], item->text) != 0)
            same++;
        if (same < models->type_count)
            report_add(reader->report, item->line, "`%s`: %s is given twice", key->name,
                       node_show(item, shown));
        else
            models->types[models->type_count++] = must_copy(item->text);
    }
}

/* A `*` elsewhere than at the end would seem to match more than it does. */
static void
read_patterns(struct config_reader *reader, const struct config_key *key,
              const struct tree_node *list, struct config_allow *allow)
{
    if (!list_fits(reader, key, list))
        return;
    allow->models = must_allocate(list->count, sizeof(*allow->models));
    for (const struct tree_node *item = list->first; item != NULL; item = item->next) {
        char shown[REPORT_VALUE_BYTES];
        if (item->kind == NODE_BROKEN)
            continue;
        const char *star = item->kind == NODE_SCALAR ? strchr(item->text, '*') : NULL;
        if (item->kind != NODE_SCALAR || item->text[0] == '\0' || (star != NULL && star[1] != '\0'))
            report_add(reader->report, item->line,
                       "`%s` must list ids, or prefixes of ids followed by `*`, not %s", key->name,
                       node_show(item, shown));
        else
            allow->models[allow->model_count++] = must_copy(item->text);
    }
}

static int
compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool
is_label(const struct tree_node *node)
{
    if (node->kind != NODE_SCALAR || strlen(node->text) > CONFIG_LABEL_BYTES_MAX)
        return false;
    return node->text[0] != '\0' && strpbrk(node->text, ", ") == NULL &&
           !has_control_characters(node->text);
}

/* Sorted and joined: the form of records, in which they are compared. */
static void
read_labels(struct config_reader *reader, const struct config_key *key,
            const struct tree_node *list, char **labels)
{
    const char *found[CONFIG_LABELS_MAX];
    uint32_t count = 0;
    bool is_good = true;
    if (!list_fits(reader, key, list))
        return;
    for (const struct tree_node *item = list->first; item != NULL; item = item->next) {
        char shown[REPORT_VALUE_BYTES];
        if (item->kind == NODE_BROKEN)
            continue;
        is_good &= is_label(item);
        if (!is_label(item))
            report_add(reader->report, item->line,
                       "`%s` must list labels (1 to %d bytes without commas and spaces), not %s",
                       key->name, CONFIG_LABEL_BYTES_MAX, node_show(item, shown));
        else
            found[count++] = item->text;
    }
    if (!is_good)
        return;
    qsort(found, count, sizeof(found[0]), compare_texts);
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && strcmp(found[i], found[i - 1]) == 0)
            continue;
        char *longer = must_format("%s%s%s", i > 0 ? *labels : "", i > 0 ? "," : "", found[i]);
        free(*labels);
        *labels = longer;
    }
}

enum { CPU_MAX = 1023 }; /* what cpu_set_t holds */

static void
read_cpus(struct config_reader *reader, const struct config_key *key, const struct tree_node *list,
          int **cpus, uint32_t *count)
{
    if (!list_fits(reader, key, list))
        return;
    int *found = must_allocate(list->count, sizeof(int));
    uint32_t found_count = 0;
    for (const struct tree_node *item = list->first; item != NULL; item = item->next) {
        char shown[REPORT_VALUE_BYTES];
        double cpu;
        if (item->kind == NODE_BROKEN)
            continue;
        if (item->kind != NODE_SCALAR || item->style != NODE_PLAIN ||
            !number_parse(item->text, FRACTIONS_NO, &cpu) || cpu < 0 || cpu > CPU_MAX) {
            report_add(reader->report, item->line,
                       "`%s` must list numbers of CPUs (0 to %d), not %s", key->name, CPU_MAX,
                       node_show(item, shown));
            continue;
        }
        config_check_cpu(reader, item->line, (int)cpu);
        found[found_count++] = (int)cpu;
    }
    *count = list->count;
    if (reader->options.pinning == CONFIG_NO_PIN) {
        free(found);
        return;
    }
    *cpus = found;
}

/* The field numbers of protobuf; those in between are reserved. */
enum { FIELD_NUMBER_MAX = (1 << 29) - 1, FIELD_RESERVED_MIN = 19000, FIELD_RESERVED_MAX = 19999 };

static void
read_id_path(struct config_reader *reader, const struct config_key *key,
             const struct tree_node *list, struct config_pipeline *pipeline)
{
    if (!list_fits(reader, key, list))
        return;
    pipeline->id_path = must_allocate(list->count, sizeof(*pipeline->id_path));
    for (const struct tree_node *item = list->first; item != NULL; item = item->next) {
        char shown[REPORT_VALUE_BYTES];
        double number = 0;
        if (item->kind == NODE_BROKEN)
            continue;
        bool taken = item->kind == NODE_SCALAR && item->style == NODE_PLAIN &&
                     number_parse(item->text, FRACTIONS_NO, &number) && number >= 1 &&
                     number <= FIELD_NUMBER_MAX &&
                     (number < FIELD_RESERVED_MIN || number > FIELD_RESERVED_MAX);
        if (taken)
            pipeline->id_path[pipeline->id_path_count++] = (uint32_t)number;
        else
            report_add(reader->report, item->line,
                       "`%s` must list numbers of protobuf fields (1 to %d, but for %d to %d), not "
                       "%s",
                       key->name, FIELD_NUMBER_MAX, FIELD_RESERVED_MIN, FIELD_RESERVED_MAX,
                       node_show(item, shown));
    }
}

/* ---- maps ---- */

static void
read_params(struct config_reader *reader, const struct config_key *key, const struct tree_node *map,
            struct config_stage *stage)
{
    if (map->kind != NODE_MAP) {
        report_type(reader, key, map);
        return;
    }
    stage->params = must_allocate(CONFIG_PARAMS_MAX, sizeof(*stage->params));
    for (const struct tree_node *item = map->first; item != NULL; item = item->next) {
        char name[REPORT_VALUE_BYTES];
        char shown[REPORT_VALUE_BYTES];
        uint32_t same = 0;
        while (same < stage->param_count && strcmp(stage->params[same].name, item->key) != 0)
            same++;
        text_show(item->key, name);
        if (item->kind == NODE_BROKEN)
            continue;
        if (same < stage->param_count) {
            report_add(reader->report, item->key_line, "parameter %s is given twice", name);
        } else if (item->key[0] == '\0' || has_control_characters(item->key)) {
            report_add(reader->report, item->key_line, "%s is not a name for a parameter", name);
        } else if (item->kind != NODE_SCALAR) {
            report_add(reader->report, item->line, "parameter %s must be a single value, not %s",
                       name, node_show(item, shown));
        } else if (stage->param_count == CONFIG_PARAMS_MAX) {
            report_add(reader->report, item->key_line, "`params` has more than %d values",
                       CONFIG_PARAMS_MAX);
            return;
        } else {
            stage->params[stage->param_count++] =
                (struct config_param){must_copy(item->key), must_copy(item->text)};
        }
    }
}

static bool
has_variable(char *const *variables, const char *name)
{
    size_t length = strlen(name);
    for (; *variables != NULL; variables++)
        if (strncmp(*variables, name, length) == 0 && (*variables)[length] == '=')
            return true;
    return false;
}

/* Reads variables into an array of "NAME=value" that ends with NULL. */
static void
read_variables(struct config_reader *reader, const struct config_key *key,
               const struct tree_node *map, char ***variables)
{
    uint32_t count = 0;
    if (map->kind != NODE_MAP) {
        report_type(reader, key, map);
        return;
    }
    *variables = must_allocate(CONFIG_VARIABLES_MAX + 1, sizeof(**variables));
    for (const struct tree_node *item = map->first; item != NULL; item = item->next) {
        char name[REPORT_VALUE_BYTES];
        char shown[REPORT_VALUE_BYTES];
        text_show(item->key, name);
        if (item->kind == NODE_BROKEN)
            continue;
        if (item->key[0] == '\0' || has_control_characters(item->key) ||
            strchr(item->key, '=') != NULL) {
            report_add(reader->report, item->key_line, "%s is not a name in `%s`", name, key->name);
        } else if (has_variable(*variables, item->key)) {
            report_add(reader->report, item->key_line, "`%s`: %s is given twice", key->name, name);
        } else if (item->kind != NODE_SCALAR) {
            report_add(reader->report, item->line, "`%s`: %s must be a single value, not %s",
                       key->name, name, node_show(item, shown));
        } else if (count == CONFIG_VARIABLES_MAX) {
            report_add(reader->report, item->key_line, "`%s` has more than %d names", key->name,
                       CONFIG_VARIABLES_MAX);
            return;
        } else {
            (*variables)[count++] = must_format("%s=%s", item->key, item->text);
        }
    }
}

/* A map whose values belong to the enclosing struct. */
static void
read_map_within(struct config_reader *reader, const struct config_key *key,
                const struct tree_node *map, void *base)
{
    struct config_given given;
    if (map->kind != NODE_MAP) {
        report_type(reader, key, map);
        return;
    }
    bool models = key->type == CONFIG_MODELS;
    enum config_where within = key->type == CONFIG_ADAPTER ? WHERE_ADAPTER : WHERE_MODEL;
    read_map(reader, models ? WHERE_MODELS : within, map, base, &given);
    if (models)
        config_check_models(reader, base, &given);
}

void
config_read_mesh(struct config_reader *reader, const struct tree_node *map)
{
    reader->config->mesh.on = true;
    reader->config->mesh.line = map->line;
    read_map(reader, WHERE_MESH, map, reader->config, &reader->mesh_given);
}

static void
read_mesh(struct config_reader *reader, const struct config_key *key, const struct tree_node *map)
{
    if (map->kind == NODE_MAP)
        config_read_mesh(reader, map);
    else
        report_type(reader, key, map);
}

static void
read_tls(struct config_reader *reader, const struct config_key *key, const struct tree_node *map)
{
    bool of_mesh = key->where == WHERE_MESH;
    struct config *config = reader->config;
    struct config_given given;
    if (map->kind != NODE_MAP) {
        report_type(reader, key, map);
        return;
    }
    (of_mesh ? &config->mesh.tls : &config->tls)->line = map->line;
    read_map(reader, of_mesh ? WHERE_MESH_TLS : WHERE_TLS, map, config, &given);
}

static bool
has_address(const struct tree_node *map)
{
    for (const struct tree_node *entry = map->first; entry != NULL; entry = entry->next)
        if (config_key_find(WHERE_ADDRESS, entry->key) == &config_keys[KEY_ADDRESS])
            return true;
    return false;
}

static void
read_management(struct config_reader *reader, const struct tree_node *node)
{
    struct config_given given;
    if (node->kind == NODE_MAP && !has_address(node))
        read_map(reader, WHERE_MANAGEMENT, node, reader->config, &given);
    else
        read_addresses(reader, &config_keys[KEY_MANAGEMENT_ADDRESSES], node, reader->config);
}

static void
read_value(struct config_reader *reader, const struct config_key *key, const struct tree_node *node,
           void *base)
{
    struct config_stage *stage = base; /* for the keys of a stage */
    switch (key->type) {
    case CONFIG_NAME:
    case CONFIG_TEXT:
    case CONFIG_JSON:
    case CONFIG_CHOICE: read_text(reader, key, node, base); break;
    case CONFIG_CHOICES: read_choices(reader, key, node, base); break;
    case CONFIG_INTEGER:
    case CONFIG_DECIMAL: read_number(reader, key, node, base); break;
    case CONFIG_ADDRESSES:
    case CONFIG_HTTP_ADDRESSES: read_addresses(reader, key, node, base); break;
    case CONFIG_ADDRESS: break; /* read_address judges it */
    case CONFIG_CPUS:
        if (key->where == WHERE_STAGE)
            read_cpus(reader, key, node, &stage->cpus, &stage->worker_count);
        else
            read_cpus(reader, key, node, &reader->config->cpus, &reader->config->cpu_count);
        break;
    case CONFIG_FIELD_NUMBERS: read_id_path(reader, key, node, base); break;
    case CONFIG_PARAMS: read_params(reader, key, node, stage); break;
    case CONFIG_VARIABLES:
        read_variables(reader, key, node, (char ***)(void *)((char *)base + key->offset));
        break;
    case CONFIG_NAMES: read_names(reader, key, node, base); break;
    case CONFIG_LABELS:
        read_labels(reader, key, node, (char **)(void *)((char *)base + key->offset));
        break;
    case CONFIG_MESH: read_mesh(reader, key, node); break;
    case CONFIG_TLS: read_tls(reader, key, node); break;
    case CONFIG_MANAGEMENT: read_management(reader, node); break;
    case CONFIG_PATTERNS: read_patterns(reader, key, node, base); break;
    case CONFIG_ADAPTER:
    case CONFIG_MODEL:
    case CONFIG_MODELS: read_map_within(reader, key, node, base); break;
    case CONFIG_ALLOW:
    case CONFIG_STAGES:
    case CONFIG_PIPELINES: read_list_of_maps(reader, key, node, base); break;
    }
}

void
config_read_value(struct config_reader *reader, const struct config_key *key,
                  const struct tree_node *node)
{
    read_value(reader, key, node, reader->config);
}

static void
set_default(struct config_reader *reader, const struct config_key *key, void *base)
{
    char text[32];
    CHECK(strlen(key->fallback) < sizeof(text));
    memcpy(text, key->fallback, strlen(key->fallback) + 1);
    struct tree_node scalar = {.kind = NODE_SCALAR, .text = text};
    struct tree_node list = {.kind = NODE_LIST, .first = &scalar, .count = 1};
    read_value(reader, key, key->type == CONFIG_ADDRESSES ? &list : &scalar, base);
}

static void
report_unknown(struct config_reader *reader, enum config_where where, const struct tree_node *entry)
{
    char shown[REPORT_VALUE_BYTES];
    text_show(entry->key, shown);
    const struct config_key *meant = config_key_nearest(where, entry->key);
    if (meant == NULL)
        report_add(reader->report, entry->key_line,
                   "%s is not a key of %s: `shoald --help-config` lists them all", shown,
                   config_where_name(where));
    else if (meant->where != where)
        report_add(reader->report, entry->key_line, "%s is not a key of %s, but of %s", shown,
                   config_where_name(where), config_where_name(meant->where));
    else
        report_add(reader->report, entry->key_line, "%s is not a key of %s: did you mean `%s`?",
                   shown, config_where_name(where), meant->name);
}

static void
collect(struct config_reader *reader, enum config_where where, const struct tree_node *map,
        struct config_given *given)
{
    *given = (struct config_given){0};
    for (const struct tree_node *entry = map->first; entry != NULL; entry = entry->next) {
        const struct config_key *key = config_key_find(where, entry->key);
        if (key == NULL) {
            report_unknown(reader, where, entry);
            continue;
        }
        const struct tree_node **slot = &given->nodes[key - config_keys];
        if (*slot == NULL)
            *slot = entry;
        else
            report_add(reader->report, entry->key_line, "`%s` is given twice: first on line %d",
                       key->name, (*slot)->key_line);
    }
}

static void
read_map(struct config_reader *reader, enum config_where where, const struct tree_node *map,
         void *base, struct config_given *given)
{
    collect(reader, where, map, given);
    for (size_t i = 0; i < KEY_COUNT; i++) {
        const struct config_key *key = &config_keys[i];
        const struct tree_node *node = given->nodes[i];
        if (key->where != where)
            continue;
        if (key->fallback != NULL)
            set_default(reader, key, base); /* stays if the value turns out wrong */
        if (node == NULL && key->need == REQUIRED)
            report_add(reader->report, map->line, "`%s` is missing: %s needs it (%s)", key->name,
                       config_where_name(where), config_type_name(key->type));
        uint32_t before = report_total(reader->report);
        if (node != NULL && node->kind != NODE_BROKEN)
            read_value(reader, key, node, base);
        given->refused[i] = report_total(reader->report) > before;
    }
}

static void
read_stages(struct config_reader *reader, const struct tree_node *list,
            struct config_pipeline *pipeline)
{
    pipeline->stages = must_allocate(list->count, sizeof(*pipeline->stages));
    for (const struct tree_node *item = list->first; item != NULL; item = item->next) {
        if (item->kind != NODE_MAP)
            continue;
        struct config_stage *stage = &pipeline->stages[pipeline->stage_count];
        struct config_given given;
        stage->line = item->line;
        read_map(reader, WHERE_STAGE, item, stage, &given);
        config_check_stage(reader, pipeline, stage, &given);
        pipeline->stage_count++;
    }
}

static void
read_pipelines(struct config_reader *reader, const struct tree_node *list)
{
    struct config *config = reader->config;
    config->pipelines = must_allocate(list->count, sizeof(*config->pipelines));
    for (const struct tree_node *item = list->first; item != NULL; item = item->next) {
        if (item->kind != NODE_MAP)
            continue;
        struct config_pipeline *pipeline = &config->pipelines[config->pipeline_count];
        struct config_given given;
        pipeline->line = item->line;
        read_map(reader, WHERE_PIPELINE, item, pipeline, &given);
        config_check_pipeline(reader, pipeline, &given);
        config->pipeline_count++;
    }
}

static void
read_allow(struct config_reader *reader, const struct tree_node *list)
{
    struct config_management *management = &reader->config->mesh.management;
    management->allow = must_allocate(list->count, sizeof(*management->allow));
    for (const struct tree_node *item = list->first; item != NULL; item = item->next) {
        struct config_given given;
        if (item->kind == NODE_MAP)
            read_map(reader, WHERE_ALLOW, item, &management->allow[management->allow_count++],
                     &given);
    }
}

static void
read_list_of_maps(struct config_reader *reader, const struct config_key *key,
                  const struct tree_node *list, void *base)
{
    if (!list_fits(reader, key, list))
        return;
    for (const struct tree_node *item = list->first; item != NULL; item = item->next) {
        char shown[REPORT_VALUE_BYTES];
        if (item->kind != NODE_MAP && item->kind != NODE_BROKEN)
            report_add(reader->report, item->line, "`%s` must list maps with keys, not %s",
                       key->name, node_show(item, shown));
    }
    if (key->type == CONFIG_PIPELINES)
        read_pipelines(reader, list);
    else if (key->type == CONFIG_ALLOW)
        read_allow(reader, list);
    else
        read_stages(reader, list, base);
}

bool
config_read(struct config_reader *reader, const struct tree_node *tree, struct config_given *given)
{
    if (tree->kind == NODE_MAP) {
        read_map(reader, WHERE_TOP, tree, reader->config, given);
        return true;
    }
    if (node_is_null(tree)) {
        report_add(reader->report, 1, "the file is empty: at least `pipelines` is needed");
    } else if (tree->kind != NODE_BROKEN) {
        char shown[REPORT_VALUE_BYTES];
        report_add(reader->report, tree->line, "the file must be a map with keys, not %s",
                   node_show(tree, shown));
    }
    return false;
}
