/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/manifest/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/json.h"

/* A longer name in quotes would not be read back: libyaml knows a key only within 1,024 characters.
 */
enum { PATH_BYTES = 512, NAME_BYTES_MAX = 317 };

struct checker {
    struct tree_report *report;
    struct json json;
    bool hides_values;     /* of a Secret */
    char path[PATH_BYTES]; /* of the field at hand */
};

static void check_fields(struct checker *checker, const struct tree_node *map,
                         const struct schema_field *fields);

/* ---- finding ---- */

const struct tree_node *
manifest_find(const struct tree_node *map, const char *key)
{
    if (map == NULL || map->kind != NODE_MAP)
        return NULL;
    for (const struct tree_node *node = map->first; node != NULL; node = node->next)
        if (strcmp(node->key, key) == 0)
            return node_is_null(node) ? NULL : node;
    return NULL;
}

const char *
manifest_text(const struct tree_node *map, const char *key)
{
    const struct tree_node *node = manifest_find(map, key);
    return node != NULL && node->kind == NODE_SCALAR ? node->text : NULL;
}

static int
by_key(const void *a, const void *b)
{
    return strcmp((*(const struct tree_node *const *)a)->key,
                  (*(const struct tree_node *const *)b)->key);
}

const struct tree_node **
manifest_sorted(const struct tree_node *map)
{
    const struct tree_node **sorted =
        must_allocate(map->count + 1, sizeof(const struct tree_node *));
    size_t count = 0;
    for (const struct tree_node *node = map->first; node != NULL; node = node->next)
        sorted[count++] = node;
    qsort(sorted, count, sizeof(const struct tree_node *), by_key);
    return sorted;
}

/* ---- mistakes ---- */

/* Appends ".name", or "[index]" without a name; returns the former length, to return to. */
static size_t
enter(struct checker *checker, const char *name, uint32_t index)
{
    size_t length = strlen(checker->path);
    char *end = checker->path + length;
    if (name == NULL)
        snprintf(end, PATH_BYTES - length, "[%u]", index);
    else
        snprintf(end, PATH_BYTES - length, "%s%.100s", length > 0 ? "." : "", name);
    return length;
}

static void
leave(struct checker *checker, size_t length)
{
    checker->path[length] = '\0';
}

static void
wrong(struct checker *checker, const struct tree_node *node, const char *wanted)
{
    char shown[REPORT_VALUE_BYTES];
    if (node->kind == NODE_BROKEN)
        return;
    const char *is = checker->hides_values && node->kind == NODE_SCALAR ? "the present value"
                                                                        : node_show(node, shown);
    report_add(checker->report, node->line, "%s: must be %s, not %s", checker->path, wanted, is);
}

/* ---- scalars ---- */

/* A word that YAML without quotes reads as another type. */
static bool
is_untyped(const char *text)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on", "off"};
    char *end;
    for (size_t i = 0; i < ARRAY_COUNT(words); i++)
        if (strcasecmp(text, words[i]) == 0)
            return true;
    (void)strtod(text, &end);
    return strpbrk(text, "0123456789") != NULL && end != text && *end == '\0';
}

bool
manifest_is_word(const char *words, const char *text)
{
    size_t bytes = strlen(text);
    for (const char *word = words; *word != '\0'; word += *word == '|') {
        size_t length = strcspn(word, "|");
        if (length == bytes && memcmp(word, text, bytes) == 0)
            return true;
        word += length;
    }
    return false;
}

static void
check_text(struct checker *checker, const struct tree_node *node, const char *words)
{
    char wanted[160] = "a string";
    bool scalar = node->kind == NODE_SCALAR;
    if (words != NULL)
        snprintf(wanted, sizeof(wanted), "one of %s", words);
    if (scalar && node->style == NODE_PLAIN && is_untyped(node->text))
        report_add(checker->report, node->line,
                   "%s: must be a string, and is a number or a truth value: put it in quotes",
                   checker->path);
    else if (!scalar || (words != NULL && !manifest_is_word(words, node->text)))
        wrong(checker, node, wanted);
    else
        json_put_string(&checker->json, node->text);
}

static void
check_bool(struct checker *checker, const struct tree_node *node)
{
    bool plain = node->kind == NODE_SCALAR && node->style == NODE_PLAIN;
    if (plain && strcmp(node->text, "true") == 0)
        json_put_bool(&checker->json, true);
    else if (plain && strcmp(node->text, "false") == 0)
        json_put_bool(&checker->json, false);
    else
        wrong(checker, node, "true or false");
}

static void
check_number(struct checker *checker, const struct tree_node *node, int64_t least)
{
    char wanted[64];
    char *end = NULL;
    errno = 0;
    long long number =
        node->kind == NODE_SCALAR && node->style == NODE_PLAIN ? strtoll(node->text, &end, 10) : 0;
    snprintf(wanted, sizeof(wanted), "an integer from %" PRId64, least);
    if (end == NULL || end == node->text || *end != '\0' || errno != 0 || number < least)
        wrong(checker, node, wanted);
    else
        json_put_int(&checker->json, number);
}

/* Kubernetes' quantity: digits, perhaps a fraction, perhaps a unit. */
static bool
is_amount(const char *text)
{
    static const char units[] = "|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei";
    size_t digits = strspn(text, "0123456789");
    text += digits;
    if (digits > 0 && *text == '.') {
        size_t fraction = strspn(text + 1, "0123456789");
        text += fraction > 0 ? 1 + fraction : 0;
    }
    return digits > 0 && digits <= 18 && (*text == '\0' || manifest_is_word(units, text));
}

static void
check_amount(struct checker *checker, const struct tree_node *node)
{
    if (node->kind != NODE_SCALAR || !is_amount(node->text))
        wrong(checker, node, "an amount such as 2, 500m or 200Mi");
    else
        json_put_string(&checker->json, node->text);
}

static bool
is_point(const char *text)
{
    char *end;
    if (strncmp(text, "unix:", 5) == 0)
        return text[5] == '/' && text[6] != '\0';
    if (strncmp(text, "port:", 5) != 0 || text[5] < '0' || text[5] > '9')
        return false;
    long port = strtol(text + 5, &end, 10);
    return *end == '\0' && port >= 1 && port <= 65535;
}

static void
check_point(struct checker *checker, const struct tree_node *node)
{
    if (node->kind != NODE_SCALAR || !is_point(node->text))
        wrong(checker, node, "an endpoint: port:NUMBER, or unix:PATH with an absolute path");
    else
        json_put_string(&checker->json, node->text);
}

static void
check_base64(struct checker *checker, const struct tree_node *node)
{
    size_t bytes = node->kind == NODE_SCALAR ? strlen(node->text) : 0;
    unsigned char *decoded = must_allocate(bytes, 1);
    if (node->kind != NODE_SCALAR || !base64_decode(node->text, bytes, decoded, &(size_t){0}))
        wrong(checker, node, "bytes in base64 without blanks (stringData takes plain texts)");
    else
        json_put_string(&checker->json, node->text);
    free(decoded);
}

/* ---- lists and maps ---- */

static void
check_value(struct checker *checker, const struct tree_node *node, const struct schema_field *field)
{
    switch (field->type) {
    case FIELD_TEXT: check_text(checker, node, field->detail); break;
    case FIELD_BOOL: check_bool(checker, node); break;
    case FIELD_NUMBER: check_number(checker, node, field->least); break;
    case FIELD_AMOUNT: check_amount(checker, node); break;
    case FIELD_POINT: check_point(checker, node); break;
    case FIELD_BASE64: check_base64(checker, node); break;
    case FIELD_OBJECT:
    case FIELD_OBJECTS: check_fields(checker, node, field->fields); break;
    default: UNREACHABLE();
    }
}

static bool
is_repeated(const struct tree_node *map, const struct tree_node *node)
{
    const struct tree_node *before = map->first;
    while (before != node && strcmp(before->key, node->key) != 0)
        before = before->next;
    return before != node;
}

static bool
is_key(const char *key)
{
    const char *at = key;
    while (*at >= ' ' && *at <= '~')
        at++;
    return *at == '\0' && at - key <= NAME_BYTES_MAX;
}

static void
check_map(struct checker *checker, const struct tree_node *map, const struct schema_field *value)
{
    if (map->kind != NODE_MAP) {
        wrong(checker, map, "a map of names and values");
        return;
    }
    const struct tree_node **sorted = manifest_sorted(map);
    json_open(&checker->json, '{');
    for (uint32_t i = 0; i < map->count; i++) {
        size_t length = enter(checker, sorted[i]->key, 0);
        if (i > 0 && strcmp(sorted[i - 1]->key, sorted[i]->key) == 0)
            report_add(checker->report, sorted[i]->key_line, "%s: is given twice", checker->path);
        if (!is_key(sorted[i]->key))
            report_add(checker->report, sorted[i]->key_line,
                       "%s: a name must have at most %d printable ASCII characters", checker->path,
                       NAME_BYTES_MAX);
        json_name(&checker->json, sorted[i]->key);
        check_value(checker, sorted[i], value);
        leave(checker, length);
    }
    json_close(&checker->json, '}');
    free(sorted);
}

static void
check_list(struct checker *checker, const struct tree_node *list, const struct schema_field *field)
{
    static const struct schema_field text = {.type = FIELD_TEXT};
    if (list->kind != NODE_LIST) {
        wrong(checker, list, "a list");
        return;
    }
    uint32_t index = 0;
    json_open(&checker->json, '[');
    for (const struct tree_node *node = list->first; node != NULL; node = node->next) {
        size_t length = enter(checker, NULL, index++);
        check_value(checker, node, field->type == FIELD_TEXTS ? &text : field);
        leave(checker, length);
    }
    json_close(&checker->json, ']');
}

static void
check_field(struct checker *checker, const struct tree_node *node, const struct schema_field *field)
{
    switch (field->type) {
    case FIELD_DROPPED: return;
    case FIELD_REFUSED:
        report_add(checker->report, node->key_line, "%s: is not supported: %s", checker->path,
                   field->detail);
        return;
    default: break;
    }
    json_name(&checker->json, field->name);
    if (field->type == FIELD_MAP)
        check_map(checker, node, field->fields);
    else if (field->type == FIELD_TEXTS || field->type == FIELD_OBJECTS)
        check_list(checker, node, field);
    else
        check_value(checker, node, field);
}

static const struct schema_field *
field_of(const struct schema_field *fields, const char *name)
{
    while (fields->name != NULL && strcmp(fields->name, name) != 0)
        fields++;
    return fields->name != NULL ? fields : NULL;
}

static void
check_names(struct checker *checker, const struct tree_node *map, const struct schema_field *fields)
{
    const struct tree_node *node = map->first;
    /* Looking for repetitions takes time: no longer than mistakes are listed. */
    for (; node != NULL && report_total(checker->report) <= REPORT_MAX; node = node->next) {
        size_t length = enter(checker, node->key, 0);
        if (field_of(fields, node->key) == NULL)
            report_add(checker->report, node->key_line,
                       "%s: is not a field of it: remove it, or "
                       "correct its name",
                       checker->path);
        else if (is_repeated(map, node))
            report_add(checker->report, node->key_line, "%s: is given twice", checker->path);
        leave(checker, length);
    }
}

static void
check_fields(struct checker *checker, const struct tree_node *map,
             const struct schema_field *fields)
{
    if (map->kind != NODE_MAP) {
        wrong(checker, map, "a map of fields");
        return;
    }
    check_names(checker, map, fields);
    json_open(&checker->json, '{');
    for (const struct schema_field *field = fields; field->name != NULL; field++) {
        const struct tree_node *node = manifest_find(map, field->name);
        size_t length = enter(checker, field->name, 0);
        if (node != NULL)
            check_field(checker, node, field);
        else if (field->need == FIELD_REQUIRED)
            report_add(checker->report, map->line, "%s: is missing", checker->path);
        leave(checker, length);
    }
    json_close(&checker->json, '}');
}

/* ---- the canonical form ---- */

/* A character that YAML in quotes takes for a line break or refuses, which UTF-8 writes in two or
 * three bytes: its length, or 0. */
static size_t
unsafe_length(const char *text, unsigned *character)
{
    unsigned first = (unsigned char)text[0];
    unsigned second = first >= 0xc2 ? (unsigned char)text[1] : 0;
    unsigned third = first >= 0xe0 ? (unsigned char)text[2] : 0;
    bool two = first == 0xc2 && second < 0xa0;
    *character = two ? second : (first & 0x0f) << 12 | (second & 0x3f) << 6 | (third & 0x3f);
    if (two)
        return 2;
    return (first & 0xf0) == 0xe0 && (*character == 0x2028 || *character == 0x2029 ||
                                      *character == 0xfeff || *character >= 0xfffe)
               ? 3
               : 0;
}

/* Escapes them, so that the canonical form reads back as the same object. */
static void
put_readable(struct bytes *to, const struct bytes *json)
{
    char escape[8];
    size_t start = 0;
    for (size_t i = 0; i < json->used; i++) {
        unsigned character;
        size_t length = (unsigned char)json->data[i] >= 0xc2
                            ? unsafe_length((const char *)json->data + i, &character)
                            : 0;
        if (length == 0)
            continue;
        bytes_put(to, json->data + start, i - start);
        snprintf(escape, sizeof(escape), "\\u%04x", character);
        bytes_put_text(to, escape);
        start = i + length;
        i = start - 1;
    }
    bytes_put(to, json->data + start, json->used - start);
}

void
manifest_check(const struct tree_node *document, const struct schema *schema,
               struct tree_report *report, struct bytes *json)
{
    struct bytes plain = {0};
    struct checker checker = {
        .report = report,
        .json = json_begin(&plain, JSON_STYLE_ANY), /* which escapes \x7f */
        .hides_values = schema == &manifest_schemas[MANIFEST_SECRET],
    };
    check_fields(&checker, document, schema->fields);
    put_readable(json, &plain);
    CHECK(!plain.failed && !json->failed);
    bytes_fini(&plain);
}
