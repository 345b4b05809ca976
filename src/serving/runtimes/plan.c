/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/runtimes/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "serving/manifest/check.h"

enum {
    TARGET_BYTES_MAX = 5 + 107, /* "unix:" and the path */
    TEXTS_BYTES_MAX = 1 << 20,  /* arguments and variables of all containers, expanded */
};

/* ---- labels ---- */

static int
by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Labels as ModelMesh Serving's controller labels a runtime's pods: formats that are selected
 * automatically, protocols, the name. */
static char *
make_labels(const struct serving_runtime *runtime)
{
    size_t most = 2 * (size_t)runtime->format_count + runtime->protocol_count + 1;
    char **labels = must_allocate(most, sizeof(char *));
    size_t count = 0;
    struct bytes text = {0};
    for (uint32_t i = 0; i < runtime->format_count; i++) {
        const struct serving_format *format = &runtime->formats[i];
        if (!format->auto_select)
            continue;
        labels[count++] = must_format("mt:%s", format->name);
        if (format->version != NULL)
            labels[count++] = must_format("mt:%s:%s", format->name, format->version);
    }
    for (uint32_t i = 0; i < runtime->protocol_count; i++)
        labels[count++] = must_format("pv:%s", runtime->protocols[i]);
    labels[count++] = must_format("rt:%s", runtime->name);
    qsort(labels, count, sizeof(char *), by_text);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(labels[i], labels[i - 1]) != 0) {
            bytes_put_text(&text, text.used > 0 ? "," : "");
            bytes_put_text(&text, labels[i]);
        }
    }
    for (size_t i = 0; i < count; i++)
        free(labels[i]);
    free(labels);
    bytes_put_char(&text, '\0');
    CHECK(!text.failed);
    return bytes_take(&text, &(size_t){0});
}

/* A comma would end the label, and begin one that is not the runtime's. */
static void
check_label(const char *field, const char *text, struct bytes *problems)
{
    if (text != NULL && strchr(text, ',') != NULL)
        runtime_problem(problems, "%s \"%.100s\" has a comma, which no label of a node may have",
                        field, text);
}

static void
check_labels(const struct serving_runtime *runtime, struct bytes *problems)
{
    for (uint32_t i = 0; i < runtime->format_count; i++) {
        check_label("supportedModelFormats: name", runtime->formats[i].name, problems);
        check_label("supportedModelFormats: version", runtime->formats[i].version, problems);
    }
    for (uint32_t i = 0; i < runtime->protocol_count; i++)
        check_label("protocolVersions:", runtime->protocols[i], problems);
}

/* ---- addresses ---- */

/* The form of a manifest as a target of gRPC. */
static char *
target_of(const char *endpoint)
{
    return strncmp(endpoint, "port:", 5) == 0 ? must_format("127.0.0.1:%s", endpoint + 5)
                                              : must_copy(endpoint);
}

static void
find_addresses(const struct manifest *manifest, struct runtime_plan *plan, struct bytes *problems)
{
    const struct tree_node *spec = manifest_find(manifest->document, "spec");
    const char *management = manifest_text(spec, "grpcEndpoint");
    const char *calls = manifest_text(spec, "grpcDataEndpoint");
    if (plan->adapter != NULL) {
        plan->management = must_format("127.0.0.1:%" PRIu64, plan->server.port);
    } else if (management != NULL) {
        plan->management = target_of(management);
    } else {
        runtime_problem(problems, "grpcEndpoint is missing: it says where the runtime is managed");
    }
    if (calls != NULL)
        plan->calls = target_of(calls);
    const char *const targets[] = {plan->management, plan->calls};
    for (size_t i = 0; i < ARRAY_COUNT(targets); i++)
        if (targets[i] != NULL && strlen(targets[i]) > TARGET_BYTES_MAX)
            runtime_problem(problems, "%.60s…: the path of a socket has at most 107 bytes",
                            targets[i]);
    if (plan->calls != NULL && plan->management != NULL &&
        strcmp(plan->calls, plan->management) == 0) {
        free(plan->calls);
        plan->calls = NULL;
    }
}

/* ---- the server of a built-in adapter ---- */

/* Finds the server as KServe does: the memory of the container that is named like the type; else of
 * the first. */
static void
find_server(const struct manifest *manifest, const struct runtime_host *host,
            struct runtime_plan *plan, struct bytes *problems)
{
    const struct tree_node *spec = manifest_find(manifest->document, "spec");
    const struct manifest_adapter *server = &manifest->adapter;
    if (!runtime_is_adapted(manifest))
        return;
    const struct tree_node *container = runtime_find_container(manifest, server->server_type, "");
    if (container == NULL)
        container = manifest_find(spec, "containers")->first;
    uint64_t memory = runtime_memory_requested(container);
    plan->adapter = must_copy(server->server_type);
    plan->server = *server;
    plan->server.server_type = plan->adapter;
    plan->capacity_bytes = memory > server->buffer_bytes ? memory - server->buffer_bytes : 0;
    if (host->repository == NULL)
        runtime_problem(problems, "this node has no folder for models: %.400s",
                        host->no_repository);
    if (plan->capacity_bytes / 2 < server->default_bytes)
        runtime_problem(problems,
                        "container \"%.60s\": resources: requests: memory must be at least "
                        "memBufferBytes, %" PRIu64 ", and two models of DEFAULT_MODELSIZE",
                        manifest_text(container, "name"), server->buffer_bytes);
}

/* ---- the whole ---- */

void
runtime_plan_make(const struct manifest *manifest, const struct runtime_host *host,
                  struct runtime_plan *plan)
{
    const struct tree_node *spec = manifest_find(manifest->document, "spec");
    const struct tree_node *list = manifest_find(spec, "containers");
    const char *replicas = manifest_text(spec, "replicas");
    const char *helper = manifest_text(manifest_find(spec, "storageHelper"), "disabled");
    struct bytes problems = {0};
    size_t room = TEXTS_BYTES_MAX;
    *plan = (struct runtime_plan){
        .name = must_copy(manifest->name),
        .containers = must_allocate(list->count, sizeof(*plan->containers)),
        .fetches = helper == NULL || strcmp(helper, "true") != 0,
        .labels = make_labels(&manifest->runtime),
        .model_calls_max = manifest->adapter.model_calls_max,
        .ignored = manifest->adapter.ignores_calls_max
                       ? "the annotation perModelConcurrencyLimit is ignored: it must be a number "
                         "of 0 to 65536"
                       : NULL,
        .replicas = replicas != NULL ? strtoull(replicas, NULL, 10) : UINT64_MAX,
    };
    check_labels(&manifest->runtime, &problems);
    runtime_place(spec, host, &problems, &plan->preference);
    find_server(manifest, host, plan, &problems);
    find_addresses(manifest, plan, &problems);
    for (const struct tree_node *one = list->first; one != NULL; one = one->next)
        runtime_container_make(manifest, one, host, &room,
                               &plan->containers[plan->container_count++], &problems);
    if (problems.used > 0) {
        bytes_put_char(&problems, '\0');
        CHECK(!problems.failed);
        plan->problem = bytes_take(&problems, &(size_t){0});
    }
    bytes_fini(&problems);
}

void
runtime_plan_fini(struct runtime_plan *plan)
{
    for (uint32_t i = 0; i < plan->container_count; i++)
        runtime_container_fini(&plan->containers[i]);
    free(plan->containers);
    free(plan->name);
    free(plan->management);
    free(plan->calls);
    free(plan->adapter);
    free(plan->labels);
    free(plan->problem);
    *plan = (struct runtime_plan){0};
}

static bool
same(const char *one, const char *other)
{
    return one == other || (one != NULL && other != NULL && strcmp(one, other) == 0);
}

static bool
same_server(const struct runtime_plan *one, const struct runtime_plan *other)
{
    const struct manifest_adapter *a = &one->server;
    const struct manifest_adapter *b = &other->server;
    return same(one->adapter, other->adapter) && one->capacity_bytes == other->capacity_bytes &&
           a->load_timeout_ms == b->load_timeout_ms && a->loaders == b->loaders &&
           a->default_bytes == b->default_bytes && a->size_percent == b->size_percent;
}

bool
runtime_plan_same(const struct runtime_plan *one, const struct runtime_plan *other)
{
    if (!same(one->name, other->name) || !same(one->management, other->management) ||
        !same(one->calls, other->calls) || !same_server(one, other) ||
        !same(one->labels, other->labels) || one->fetches != other->fetches ||
        one->model_calls_max != other->model_calls_max ||
        one->container_count != other->container_count)
        return false;
    for (uint32_t i = 0; i < one->container_count; i++)
        if (!runtime_container_same(&one->containers[i], &other->containers[i]))
            return false;
    return true;
}
