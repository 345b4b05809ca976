/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/manifest/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "serving/manifest/check.h"
#include "serving/manifest/model.h"

enum { CONTAINERS_MAX = 64, FORMATS_MAX = 256, PROTOCOLS_MAX = 16 };

/* The deepest field has depth 11: a value of an expression of a term of an affinity. */
static const struct tree_limits limits = {
    .what = "manifest",
    .empty = "the file is empty: at least one manifest is needed",
    .bytes_max = MANIFEST_FILE_BYTES_MAX,
    .depth_max = 16,
    .nodes_max = 1000000,
    .documents_max = MANIFEST_DOCUMENTS_MAX,
    .has_secrets = true,
};

/* ---- rules that the table cannot state ---- */

/* Letters, digits, "-" and "." as in Kubernetes' names, with a letter or digit at both ends. */
static bool
is_name(const char *name)
{
    static const char ends[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    size_t bytes = strlen(name);
    return bytes >= 1 && bytes <= MANIFEST_NAME_BYTES_MAX &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.")] == '\0' &&
           strchr(ends, name[0]) != NULL && strchr(ends, name[bytes - 1]) != NULL;
}

static void
check_name(const struct tree_node *metadata, const char *key, struct tree_report *report)
{
    char shown[REPORT_VALUE_BYTES];
    const struct tree_node *name = manifest_find(metadata, key);
    if (name != NULL && !is_name(name->text))
        report_add(report, name->line,
                   "metadata.%s: must have 1 to %d lower-case letters, digits, - and ., with a "
                   "letter or digit at both ends, not %s",
                   key, MANIFEST_NAME_BYTES_MAX, node_show(name, shown));
}

/* Its time and memory grow faster than its length: those of a node, and of each node that derives
 * types from it. */
static void
check_count(const struct tree_node *spec, const char *key, uint32_t most,
            struct tree_report *report)
{
    const struct tree_node *list = manifest_find(spec, key);
    if (list != NULL && list->count > most)
        report_add(report, list->line, "spec.%s: has %u entries: must be at most %u", key,
                   list->count, most);
}

/* Two sockets of one runtime share a folder. */
static void
check_endpoints(const struct tree_node *spec, struct tree_report *report)
{
    const struct tree_node *data = manifest_find(spec, "grpcDataEndpoint");
    const char *management = manifest_text(spec, "grpcEndpoint");
    if (data == NULL || management == NULL || strncmp(data->text, "unix:", 5) != 0 ||
        strncmp(management, "unix:", 5) != 0)
        return;
    size_t folder = (size_t)(strrchr(data->text, '/') - data->text);
    if ((size_t)(strrchr(management, '/') - management) != folder ||
        strncmp(management, data->text, folder) != 0)
        report_add(report, data->line,
                   "spec.grpcDataEndpoint: must be in the folder of grpcEndpoint (%.100s)",
                   management);
}

static void
check_variable(const struct tree_node *variable, struct tree_report *report)
{
    const struct tree_node *from = manifest_find(variable, "valueFrom");
    if (from == NULL)
        return;
    if (manifest_find(variable, "value") != NULL)
        report_add(report, from->line, "env: \"%.60s\" has value and valueFrom: one is too many",
                   manifest_text(variable, "name"));
    if (from->count != 1)
        report_add(report, from->line, "env: \"%.60s\": valueFrom must have one source",
                   manifest_text(variable, "name"));
}

static void
check_containers(const struct tree_node *spec, struct tree_report *report)
{
    const struct tree_node *containers = manifest_find(spec, "containers");
    if (containers->count == 0)
        report_add(report, containers->line, "spec.containers: at least one is needed");
    check_count(spec, "containers", CONTAINERS_MAX, report);
    if (containers->count > CONTAINERS_MAX)
        return;
    for (const struct tree_node *one = containers->first; one != NULL; one = one->next) {
        const struct tree_node *env = manifest_find(one, "env");
        for (const struct tree_node *other = containers->first; other != one; other = other->next)
            if (strcmp(manifest_text(one, "name"), manifest_text(other, "name")) == 0)
                report_add(report, one->line, "spec.containers: \"%.60s\" is there twice",
                           manifest_text(one, "name"));
        for (const struct tree_node *at = env != NULL ? env->first : NULL; at != NULL;
             at = at->next)
            check_variable(at, report);
    }
}

/* ModelMesh is the only mode here; without the annotation it is meant. */
static void
check_mode(const struct tree_node *metadata, struct tree_report *report)
{
    const struct tree_node *mode =
        manifest_find(manifest_find(metadata, "annotations"), "serving.kserve.io/deploymentMode");
    char shown[REPORT_VALUE_BYTES];
    if (mode != NULL && strcmp(mode->text, "ModelMesh") != 0)
        report_add(report, mode->line,
                   "metadata.annotations.serving.kserve.io/deploymentMode: must be ModelMesh, not "
                   "%s: no server of its own is started for a model",
                   node_show(mode, shown));
}

/* Annotations of other programs are kept; these would have an effect in ModelMesh Serving or
 * KServe. */
static void
check_annotations(const struct tree_node *metadata, struct tree_report *report)
{
    static const char copies[] = "copies of a model follow its use, and a runtime's `replicas` say "
                                 "on how many nodes it runs: remove it";
    static const char instead[] = "write shoal.dev/min-copies and max-copies instead";
    static const struct {
        const char *name, *why;
    } refused[] = {
        {"autoscaling.knative.dev/maxScale", instead},
        {"autoscaling.knative.dev/minScale", instead},
        {"serving.kserve.io/autoscalerClass", copies},
        {"serving.kserve.io/max-scale", instead},
        {"serving.kserve.io/metrics", copies},
        {"serving.kserve.io/min-scale", instead},
        {"serving.kserve.io/targetUtilizationPercentage", copies},
    };
    const struct tree_node *annotations = manifest_find(metadata, "annotations");
    for (size_t i = 0; i < ARRAY_COUNT(refused); i++) {
        const struct tree_node *one = manifest_find(annotations, refused[i].name);
        if (one != NULL)
            report_add(report, one->key_line, "metadata.annotations.%s: is not supported: %s",
                       refused[i].name, refused[i].why);
    }
}

/* Checks the annotations with a model's bounds, on an object that is none. */
static void
check_bounds(enum manifest_kind kind, const struct tree_node *metadata, struct tree_report *report)
{
    const struct tree_node *annotations = manifest_find(metadata, "annotations");
    if (kind == MANIFEST_INFERENCE_SERVICE || kind == MANIFEST_PREDICTOR || annotations == NULL)
        return;
    for (const struct tree_node *one = annotations->first; one != NULL; one = one->next)
        if (manifest_is_bound(one->key))
            report_add(report, one->key_line,
                       "metadata.annotations.%s: is for an InferenceService or a Predictor: "
                       "remove it",
                       one->key);
}

static void
check_rules(enum manifest_kind kind, const struct tree_node *document, struct tree_report *report)
{
    const struct tree_node *metadata = manifest_find(document, "metadata");
    const struct tree_node *spec = manifest_find(document, "spec");
    check_name(metadata, "name", report);
    check_name(metadata, "namespace", report);
    if (manifest_is_runtime(kind)) {
        check_count(spec, "supportedModelFormats", FORMATS_MAX, report);
        check_count(spec, "protocolVersions", PROTOCOLS_MAX, report);
        check_endpoints(spec, report);
        check_containers(spec, report);
    }
    if (kind == MANIFEST_INFERENCE_SERVICE)
        check_mode(metadata, report);
    if (manifest_is_of_gateway(kind))
        manifest_gateway_check(kind, document, report);
    check_annotations(metadata, report);
    check_bounds(kind, metadata, report);
}

/* ---- documents ---- */

static void
report_kind(const struct tree_node *named, enum manifest_kind first, struct tree_report *report)
{
    char shown[REPORT_VALUE_BYTES];
    char names[512] = "";
    size_t used = 0;
    for (enum manifest_kind kind = first; kind < MANIFEST_KINDS; kind++)
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                 kind == first                ? ""
                                 : kind + 1 == MANIFEST_KINDS ? " and "
                                                              : ", ",
                                 manifest_kind_name(kind));
    report_add(report, named->line, "kind: %s is not supported: %s are", node_show(named, shown),
               names);
}

bool
manifest_find_kind(const struct tree_node *document, enum manifest_kind first,
                   enum manifest_kind *kind, struct tree_report *report)
{
    char shown[REPORT_VALUE_BYTES];
    const struct tree_node *named = manifest_find(document, "kind");
    const struct tree_node *api = manifest_find(document, "apiVersion");
    if (named == NULL || named->kind != NODE_SCALAR) {
        report_add(report, document->line, "a manifest has apiVersion, kind and metadata");
        return false;
    }
    for (*kind = first; *kind < MANIFEST_KINDS; (*kind)++)
        if (strcmp(manifest_kind_name(*kind), named->text) == 0)
            break;
    if (*kind == MANIFEST_KINDS) {
        report_kind(named, first, report);
        return false;
    }
    const char *wanted = manifest_schemas[*kind].api;
    if (api == NULL && !manifest_is_of_gateway(*kind)) { /* files of llm-d leave it out */
        report_add(report, document->line, "a manifest has apiVersion, kind and metadata");
        return false;
    }
    if (api != NULL && (api->kind != NODE_SCALAR || !manifest_is_word(wanted, api->text)))
        report_add(report, api->line, "apiVersion: must be %s for this kind, not %s", wanted,
                   node_show(api, shown));
    return true;
}

static void
read_document(const struct tree_node *document, struct manifest_file *file,
              struct tree_report *report)
{
    struct manifest *manifest = &file->items[file->count];
    *manifest = (struct manifest){.grace_ns = TIME_NEVER_NS};
    uint32_t mistakes = report_total(report);
    struct bytes json = {0};
    if (!manifest_find_kind(document, MANIFEST_SERVING_RUNTIME, &manifest->kind, report))
        return;
    manifest_check(document, &manifest_schemas[manifest->kind], report, &json);
    const struct tree_node *metadata = manifest_find(document, "metadata");
    manifest->name = manifest_text(metadata, "name");
    manifest->folder = manifest_text(manifest_find(metadata, "annotations"), MANIFEST_FOLDER);
    if (report_total(report) == mistakes)
        check_rules(manifest->kind, document, report);
    if (report_total(report) == mistakes && json.used > MANIFEST_BYTES_MAX)
        report_add(report, document->line, "has %zu bytes: must be at most %d", json.used,
                   MANIFEST_BYTES_MAX);
    if (report_total(report) == mistakes)
        manifest_model_find(document, report, manifest);
    if (report_total(report) == mistakes)
        manifest_adapter_find(document, report, manifest);
    if (report_total(report) == mistakes)
        manifest_config_find(document, report, manifest);
    if (report_total(report) == mistakes) {
        bytes_put_char(&json, '\0');
        CHECK(!json.failed);
        manifest->line = document->line;
        manifest->document = document;
        manifest_runtime_find(document, manifest);
        manifest->json = bytes_take(&json, &(size_t){0});
        file->count++;
    }
    bytes_fini(&json);
}

static int
by_object(const void *a, const void *b)
{
    const struct manifest *const *one = a, *const *other = b;
    int kinds = (int)(*one)->kind - (int)(*other)->kind;
    return kinds != 0 ? kinds : strcmp((*one)->name, (*other)->name);
}

static void
refuse_repetition(const struct manifest_file *file, struct tree_report *report)
{
    const struct manifest **sorted =
        must_allocate(file->count + 1, sizeof(const struct manifest *));
    for (uint32_t i = 0; i < file->count; i++)
        sorted[i] = &file->items[i];
    qsort(sorted, file->count, sizeof(const struct manifest *), by_object);
    for (uint32_t i = 1; i < file->count; i++)
        if (by_object(&sorted[i - 1], &sorted[i]) == 0) {
            bool ordered = sorted[i - 1]->line < sorted[i]->line;
            report_add(report, sorted[ordered ? i : i - 1]->line,
                       "%s \"%.100s\" is also on line %d", manifest_kind_name(sorted[i]->kind),
                       sorted[i]->name, sorted[ordered ? i - 1 : i]->line);
        }
    free(sorted);
}

enum status
manifest_read(const char *name, const char *text, size_t bytes, struct manifest_file *file,
              struct error *error)
{
    struct tree_report report = {.file = name};
    struct tree_node *tree = tree_read(text, bytes, &limits, &report);
    size_t documents = 0;
    *file = (struct manifest_file){0};
    for (const struct tree_node *node = tree; node != NULL; node = node->next)
        documents++;
    file->items = must_allocate(documents + 1, sizeof(*file->items));
    for (const struct tree_node *node = tree; node != NULL; node = node->next)
        if (!node_is_null(node) && node->kind != NODE_BROKEN)
            read_document(node, file, &report);
    file->tree = tree;
    refuse_repetition(file, &report);
    if (file->count == 0 && report_total(&report) == 0)
        report_add(&report, 1, "%s", limits.empty);
    uint32_t count = report_total(&report);
    file->mistakes = report_finish(&report, &file->mistake_count);
    if (count == 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s: %u mistake%s", name, count,
                     count == 1 ? "" : "s");
}

void
manifest_file_free(struct manifest_file *file)
{
    for (uint32_t i = 0; i < file->count; i++) {
        struct manifest *manifest = &file->items[i];
        free(manifest->json);
        free(manifest->url);
        free(manifest->model.id);
        free(manifest->model.type);
        free(manifest->model.path);
        free(manifest->model.key);
        free((void *)(uintptr_t)manifest->runtime.formats);
        free((void *)(uintptr_t)manifest->runtime.protocols);
    }
    for (uint32_t i = 0; i < file->mistake_count; i++)
        free(file->mistakes[i]);
    tree_free(file->tree);
    free(file->items);
    free(file->mistakes);
    *file = (struct manifest_file){0};
}

/* ---- other forms ---- */

/* The canonical form of a changed tree, which is freed. */
static char *
write_again(struct tree_node *tree, enum manifest_kind kind)
{
    struct tree_report report = {.file = ""};
    struct bytes json = {0};
    manifest_check(tree, &manifest_schemas[kind], &report, &json);
    tree_free(tree);
    bytes_put_char(&json, '\0');
    CHECK(!json.failed && report_total(&report) == 0);
    return bytes_take(&json, &(size_t){0});
}

static struct tree_node *
read_again(const struct manifest *manifest)
{
    struct tree_report report = {.file = manifest->name};
    struct tree_node *tree = tree_read(manifest->json, strlen(manifest->json), &limits, &report);
    CHECK(tree != NULL);
    return tree;
}

/* The link to the entry of a map; without one, to NULL at the map's end. */
static struct tree_node **
entry_of(struct tree_node *map, const char *key)
{
    struct tree_node **at = &map->first;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a map is somewhere */
    while (*at != NULL && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    return at;
}

static struct tree_node *
add_entry(struct tree_node *map, const char *key, enum node_kind kind)
{
    CHECK(map != NULL);
    struct tree_node *node = must_allocate(1, sizeof(*node));
    *node = (struct tree_node){.kind = kind, .style = NODE_QUOTED, .key = must_copy(key)};
    *entry_of(map, key) = node;
    map->count++;
    return node;
}

static void
remove_entry(struct tree_node *map, const char *key)
{
    CHECK(map != NULL);
    struct tree_node **at = entry_of(map, key);
    struct tree_node *gone = *at;
    if (gone == NULL)
        return;
    *at = gone->next;
    gone->next = NULL;
    map->count--;
    tree_free(gone);
}

char *
manifest_mark(const struct manifest *manifest, const char *folder)
{
    struct tree_node *tree = read_again(manifest);
    struct tree_node *metadata = *entry_of(tree, "metadata");
    struct tree_node *notes = *entry_of(metadata, "annotations");
    if (notes == NULL)
        notes = add_entry(metadata, "annotations", NODE_MAP);
    remove_entry(notes, MANIFEST_FOLDER);
    if (folder != NULL)
        add_entry(notes, MANIFEST_FOLDER, NODE_SCALAR)->text = must_copy(folder);
    else if (notes->count == 0)
        remove_entry(metadata, "annotations");
    return write_again(tree, manifest->kind);
}

void
manifest_secret_visit(const struct manifest *secret,
                      void (*visit)(void *context, const char *name, const char *text),
                      void *context)
{
    const struct tree_node *plain = manifest_find(secret->document, "stringData");
    const struct tree_node *coded = manifest_find(secret->document, "data");
    for (const struct tree_node *at = plain != NULL ? plain->first : NULL; at != NULL;
         at = at->next)
        visit(context, at->key, at->text);
    for (const struct tree_node *at = coded != NULL ? coded->first : NULL; at != NULL;
         at = at->next) {
        size_t bytes = strlen(at->text);
        char *text = must_allocate(bytes + 1, 1);
        bool good = base64_decode(at->text, bytes, (unsigned char *)text, &bytes);
        text[good ? bytes : 0] = '\0';
        if (good && strlen(text) == bytes && manifest_find(plain, at->key) == NULL)
            visit(context, at->key, text);
        explicit_bzero(text, bytes);
        free(text);
    }
}

/* kubectl's copy of what was applied has the values too. */
static void
hide_last_applied(struct tree_node *metadata)
{
    static const char copy[] = "kubectl.kubernetes.io/last-applied-configuration";
    for (struct tree_node *map = metadata->first; map != NULL; map = map->next)
        if (strcmp(map->key, "annotations") == 0)
            for (struct tree_node *value = map->first; value != NULL; value = value->next)
                if (strcmp(value->key, copy) == 0)
                    value->text[0] = '\0';
}

char *
manifest_hide(const struct manifest *secret)
{
    struct tree_node *tree = read_again(secret);
    CHECK(secret->kind == MANIFEST_SECRET);
    for (struct tree_node *map = tree->first; map != NULL; map = map->next)
        if (strcmp(map->key, "data") == 0 || strcmp(map->key, "stringData") == 0)
            for (struct tree_node *value = map->first; value != NULL; value = value->next)
                value->text[0] = '\0';
        else if (strcmp(map->key, "metadata") == 0)
            hide_last_applied(map);
    return write_again(tree, secret->kind);
}
