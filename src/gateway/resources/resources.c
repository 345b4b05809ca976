/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/resources/resources.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "gateway/resources/internal.h"

static const struct tree_limits limits = {
    .what = "file of resources",
    .empty = "", /* such a file is valid */
    .bytes_max = RESOURCE_FILE_BYTES_MAX,
    .depth_max = 16,
    .nodes_max = 200000,
    .documents_max = RESOURCES_MAX,
};

/* ---- files ---- */

static int
is_resource_file(const struct dirent *entry)
{
    static const char *const ends[] = {".yaml", ".yml", ".json"};
    const char *end = strrchr(entry->d_name, '.');
    for (size_t i = 0; i < ARRAY_COUNT(ends) && entry->d_name[0] != '.'; i++)
        if (end != NULL && strcmp(end, ends[i]) == 0)
            return 1;
    return 0;
}

/* The files of a path, in the order of their names: allocated, and each of them too. NULL: it
 * cannot be looked at, and errno says why. */
static char **
list_files(const char *path, uint32_t *count)
{
    struct stat found;
    struct dirent **entries = NULL;
    *count = 0;
    if (stat(path, &found) != 0)
        return NULL;
    int entry_count =
        S_ISDIR(found.st_mode) ? scandir(path, &entries, is_resource_file, alphasort) : 0;
    if (entry_count < 0) /* no empty folder: its resources are there */
        return NULL;
    char **files = must_allocate((size_t)(entry_count > 0 ? entry_count : 1), sizeof(*files));
    if (!S_ISDIR(found.st_mode))
        files[(*count)++] = must_copy(path);
    for (int i = 0; i < entry_count; i++) {
        files[(*count)++] = must_format("%s/%s", path, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return files;
}

uint64_t
resources_stamp(const char *path)
{
    uint32_t count;
    struct stat at;
    uint64_t stamp = HASH_FNV1A_SEED;
    char **files = list_files(path, &count);
    if (files == NULL)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        if (stat(files[i], &at) == 0) {
            const int64_t facts[] = {(int64_t)at.st_ino, (int64_t)at.st_size, at.st_mtim.tv_sec,
                                     at.st_mtim.tv_nsec};
            stamp = hash_fnv1a(stamp, files[i], strlen(files[i]));
            stamp = hash_fnv1a(stamp, facts, sizeof(facts));
        }
        free(files[i]);
    }
    free(files);
    return stamp != 0 ? stamp : 1;
}

/* Returns whether nothing but comments is there: no resources, and no mistake. */
static bool
is_blank(const char *text)
{
    for (const char *line = text; *line != '\0'; line += *line == '\n') {
        line += strspn(line, " \t\r");
        if (*line != '#' && *line != '\n' && *line != '\0')
            return false;
        line += strcspn(line, "\n");
    }
    return true;
}

/* NULL: reported. */
static char *
read_text(const char *path, size_t *bytes, struct tree_report *report)
{
    struct stat found;
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) { /* a pipe would be waited for */
        report_add(report, 0, "is not a regular file");
        return NULL;
    }
    FILE *in = fopen(path, "re");
    if (in == NULL) {
        report_add(report, 0, "cannot be opened: %s", strerror(errno));
        return NULL;
    }
    char *text = must_allocate(1, RESOURCE_FILE_BYTES_MAX + 2);
    *bytes = fread(text, 1, RESOURCE_FILE_BYTES_MAX + 1, in);
    bool failed = ferror(in) != 0;
    (void)fclose(in);
    if (!failed)
        return text;
    report_add(report, 0, "cannot be read");
    free(text);
    return NULL;
}

/* ---- documents ---- */

const char *
resource_kind_name(enum resource_kind kind)
{
    return manifest_kind_name(MANIFEST_POOL + kind);
}

static void
add_document(struct resource_set *set, const struct tree_node *document, const char *file,
             struct tree_report *report)
{
    struct resource *resource = &set->items[set->count];
    uint32_t mistakes = report_total(report);
    struct bytes canonical = {0};
    enum manifest_kind kind;
    if (!manifest_find_kind(document, MANIFEST_POOL, &kind, report))
        return;
    manifest_check(document, &manifest_schemas[kind], report, &canonical);
    bytes_fini(&canonical);
    if (report_total(report) != mistakes)
        return;
    resource->kind = (enum resource_kind)(kind - MANIFEST_POOL);
    resource->name = manifest_text(manifest_find(document, "metadata"), "name");
    resource->file = file;
    resource->line = document->line;
    resource->spec = manifest_find(document, "spec");
    const struct resource *other = resources_find(set, resource->kind, resource->name);
    if (resource->name[0] == '\0' || strlen(resource->name) > RESOURCE_NAME_MAX)
        report_add(report, document->line, "metadata.name: must have 1 to %d bytes",
                   RESOURCE_NAME_MAX);
    else if (other != NULL)
        report_add(report, document->line, "%s \"%.100s\" is also at %.200s:%d",
                   resource_kind_name(resource->kind), resource->name, other->file, other->line);
    else if (set->count == RESOURCES_MAX)
        report_add(report, document->line, "more than %d resources", RESOURCES_MAX);
    else if (resource->kind == RESOURCE_POOL && set->pool_count == RESOURCE_POOLS_MAX)
        report_add(report, document->line, "more than %d pools", RESOURCE_POOLS_MAX);
    else
        manifest_gateway_check(kind, document, report);
    if (report_total(report) != mistakes)
        return;
    resource->number = resource->kind == RESOURCE_POOL ? set->pool_count++ : 0;
    set->count++;
}

/* Takes the name. `text` ends in a NUL. */
static void
add_text(struct resource_set *set, char *name, const char *text, size_t bytes,
         struct tree_report *report)
{
    struct resource_file *file = &set->files[set->file_count++];
    *file = (struct resource_file){.name = name};
    if (!(is_blank(text) && strlen(text) == bytes))
        file->tree = tree_read(text, bytes, &limits, report);
    for (const struct tree_node *node = file->tree; node != NULL; node = node->next)
        if (!node_is_null(node) && node->kind != NODE_BROKEN)
            add_document(set, node, name, report);
}

/* Takes the path. */
static void
read_file(struct resource_set *set, char *path, struct tree_report *report)
{
    size_t bytes = 0;
    char *text = read_text(path, &bytes, report);
    add_text(set, path, text != NULL ? text : "", bytes, report);
    free(text);
}

/* ---- sets ---- */

static void
take_mistakes(struct resource_set *set, struct tree_report *report)
{
    uint32_t count;
    char **lines = report_finish(report, &count);
    char **all = realloc(set->mistakes, (set->mistake_count + count + 1) * sizeof(*all));
    CHECK(all != NULL);
    memcpy(all + set->mistake_count, lines, count * sizeof(*lines));
    set->mistakes = all;
    set->mistake_count += count;
    free(lines);
}

/* INVALID_ARGUMENT is left to the mistakes. */
static enum status
read_path(struct resource_set *set, const char *path, struct error *error)
{
    uint32_t count;
    char **files = list_files(path, &count);
    if (files == NULL)
        return error_set_errno(error, "%s", path);
    set->files = realloc(set->files, (set->file_count + count + 1) * sizeof(*set->files));
    CHECK(set->files != NULL);
    for (uint32_t i = 0; i < count; i++) {
        struct tree_report report = {.file = files[i]};
        if (i == RESOURCE_FILES_MAX)
            report_add(&report, 0, "more than %d files in one folder", RESOURCE_FILES_MAX);
        if (i < RESOURCE_FILES_MAX)
            read_file(set, files[i], &report);
        take_mistakes(set, &report);
        if (i >= RESOURCE_FILES_MAX)
            free(files[i]);
    }
    free(files);
    return STATUS_OK;
}

static struct resource_set *
make_set(void)
{
    struct resource_set *set = must_allocate(1, sizeof(*set));
    set->items = must_allocate(RESOURCES_MAX + 1, sizeof(*set->items));
    return set;
}

/* All documents have been added. */
static enum status
finish(struct resource_set *set, struct error *error)
{
    if (set->mistake_count > 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s", set->mistakes[0]);
    return resources_resolve(set, error);
}

static void
read_one(struct resource_set *set, const struct resource_text *text)
{
    struct tree_report report = {.file = text->name};
    uint32_t first = set->count;
    char *copy = must_allocate(1, text->bytes + 1);
    if (text->bytes > 0)
        memcpy(copy, text->text, text->bytes);
    add_text(set, must_copy(text->name), copy, text->bytes, &report);
    free(copy);
    take_mistakes(set, &report);
    for (uint32_t i = first; i < set->count; i++)
        set->items[i].version = text->version;
}

enum status
resources_read_texts(const struct resource_text *texts, uint32_t count,
                     struct resource_set **created, struct error *error)
{
    struct resource_set *set = *created = make_set();
    set->files = must_allocate(count + 1, sizeof(*set->files));
    for (uint32_t i = 0; i < count; i++)
        read_one(set, &texts[i]);
    return finish(set, error);
}

enum status
resources_read(const char *const *paths, uint32_t count, struct resource_set **created,
               struct error *error)
{
    struct resource_set *set = *created = make_set();
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < count && status == STATUS_OK; i++)
        if (paths[i][0] != '\0')
            status = read_path(set, paths[i], error);
    return status == STATUS_OK ? finish(set, error) : status;
}

void
resources_free(struct resource_set *set)
{
    if (set == NULL)
        return;
    for (uint32_t i = 0; i < set->file_count; i++) {
        tree_free(set->files[i].tree);
        free(set->files[i].name);
    }
    for (uint32_t i = 0; i < set->mistake_count; i++)
        free(set->mistakes[i]);
    free(set->mistakes);
    free(set->routes);
    free(set->targets);
    free((void *)set->target_names);
    free((void *)set->route_names);
    free(set->files);
    free(set->items);
    free(set);
}

/* ---- what the edge asks ---- */

bool
resources_priority(const struct resource_set *set, const char *objective, int32_t *priority)
{
    const struct resource *found = resources_find(set, RESOURCE_OBJECTIVE, objective);
    if (found == NULL)
        return false;
    *priority = resource_priority(found->spec);
    return true;
}

static bool
has_labels(const struct tree_node *wanted, const char *labels)
{
    for (const struct tree_node *at = wanted != NULL ? wanted->first : NULL; at != NULL;
         at = at->next) {
        char *line = must_format("\n%s=%s\n", at->key, at->text);
        bool has = strstr(labels, line) != NULL;
        free(line);
        if (!has)
            return false;
    }
    return true;
}

static bool
has_port(const struct tree_node *ports, uint32_t port)
{
    for (const struct tree_node *at = ports != NULL ? ports->first : NULL; at != NULL;
         at = at->next)
        if (strtoul(manifest_text(at, "number"), NULL, 10) == port)
            return true;
    return ports == NULL || ports->count == 0;
}

uint64_t
resources_pools_of(const struct resource_set *set, const char *labels, uint32_t port)
{
    uint64_t pools = set != NULL && set->pool_count > 0 ? 0 : UINT64_MAX;
    for (uint32_t i = 0; set != NULL && i < set->count; i++) {
        const struct resource *pool = &set->items[i];
        if (pool->kind == RESOURCE_POOL &&
            has_port(manifest_find(pool->spec, "targetPorts"), port) &&
            has_labels(manifest_find(manifest_find(pool->spec, "selector"), "matchLabels"), labels))
            pools |= UINT64_C(1) << pool->number;
    }
    return pools;
}

bool
resources_adapter(const struct resource_set *set, uint64_t adapter, const char **name,
                  const char **path)
{
    for (uint32_t i = 0; i < set->rollout_count; i++) {
        if (set->rollouts[i].adapter != adapter)
            continue;
        *name = manifest_text(set->rollout_adapters[i], "name");
        *path = manifest_text(set->rollout_adapters[i], "path");
        return true;
    }
    return false;
}

/* ---- status ---- */

static const char *const condition_names[RESOURCE_CONDITIONS] = {"Accepted", "ResolvedRefs"};

void
resource_write_conditions(const struct resource *resource, struct json *json)
{
    json_field_open(json, "conditions", '[');
    for (int type = 0; type < RESOURCE_CONDITIONS; type++) {
        const struct resource_condition *condition = &resource->conditions[type];
        const char *reason = condition->reason != NULL ? condition->reason : condition_names[type];
        json_open(json, '{');
        json_field_string(json, "type", condition_names[type]);
        json_field_string(json, "status", condition->reason == NULL ? "True" : "False");
        json_field_string(json, "reason", reason);
        json_field_string(json, "message", condition->message);
        json_close(json, '}');
    }
    json_close(json, ']');
}

void
resources_write_json(const struct resource_set *set, struct bytes *out)
{
    struct json json = json_begin(out, JSON_STYLE_ANY);
    json_open(&json, '[');
    for (uint32_t i = 0; i < set->count; i++) {
        const struct resource *resource = &set->items[i];
        json_open(&json, '{');
        json_field_string(&json, "kind", resource_kind_name(resource->kind));
        json_field_string(&json, "name", resource->name);
        json_field_string(&json, "file", resource->file);
        json_field_int(&json, "line", resource->line);
        resource_write_conditions(resource, &json);
        json_close(&json, '}');
    }
    json_close(&json, ']');
}

void
resources_write_text(const struct resource_set *set, struct bytes *out)
{
    for (uint32_t i = 0; i < set->count; i++) {
        const struct resource *resource = &set->items[i];
        char *line = must_format("%s/%s %s:%d", resource_kind_name(resource->kind), resource->name,
                                 resource->file, resource->line);
        bytes_put_text(out, line);
        free(line);
        for (int type = 0; type < RESOURCE_CONDITIONS; type++) {
            const struct resource_condition *condition = &resource->conditions[type];
            char text[320];
            if (condition->reason == NULL)
                snprintf(text, sizeof(text), " %s", condition_names[type]);
            else
                snprintf(text, sizeof(text), " %s=False (%s: %s)", condition_names[type],
                         condition->reason, condition->message);
            bytes_put_text(out, text);
        }
        bytes_put_char(out, '\n');
    }
}
