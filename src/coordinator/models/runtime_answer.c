/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/runtime_answer.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/pipeline/pipeline.h"
#include "mmesh/model-runtime.pb-c.h"

size_t
runtime_answer_facts(const struct model_facts *facts, unsigned char message[RUNTIME_ANSWER_BYTES])
{
    Mmesh__LoadModelResponse response = MMESH__LOAD_MODEL_RESPONSE__INIT;
    response.sizeinbytes = facts->bytes;
    response.maxconcurrency = facts->max_concurrency;
    CHECK(mmesh__load_model_response__get_packed_size(&response) <= RUNTIME_ANSWER_BYTES);
    return mmesh__load_model_response__pack(&response, message);
}

/* ---- methods ---- */

enum { METHODS_MAX = CONFIG_PIPELINES_MAX + 3 };

struct method_infos {
    Mmesh__RuntimeStatusResponse__MethodInfosEntry entries[METHODS_MAX];
    Mmesh__RuntimeStatusResponse__MethodInfosEntry *list[METHODS_MAX]; /* of all entries */
    Mmesh__RuntimeStatusResponse__MethodInfo infos[METHODS_MAX];
    size_t count;
};

/* protobuf-c's structures have non-const pointers to data that is only read. */
static void *
loose(const void *memory)
{
    return (void *)(uintptr_t)memory;
}

/* `name` is in a mesh's form: without the slash before it. */
static void
add_method(struct method_infos *methods, const char *name, const uint32_t *path, size_t path_count)
{
    CHECK(methods->count < METHODS_MAX);
    size_t i = methods->count++;
    mmesh__runtime_status_response__method_infos_entry__init(&methods->entries[i]);
    mmesh__runtime_status_response__method_info__init(&methods->infos[i]);
    methods->infos[i].idinjectionpath = loose(path);
    methods->infos[i].n_idinjectionpath = path_count;
    methods->entries[i].key = loose(name);
    methods->entries[i].value = &methods->infos[i];
    methods->list[i] = &methods->entries[i];
}

/* The methods that a mesh may call for a model, and the place of the model's id in each. A mesh
 * takes the list as complete and refuses other methods. */
static void
list_methods(struct method_infos *methods, struct pipeline *const *pipelines, uint32_t count)
{
    static const uint32_t first[] = {1}; /* model_name, or name */
    bool inference = false;
    methods->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (pipelines[i]->catalog == NULL)
            continue;
        struct pipeline_method method = pipeline_method(pipelines[i]);
        if (method.path != NULL)
            add_method(methods, method.path + 1, method.id_path, method.id_path_count);
        else
            inference = true;
    }
    if (inference)
        add_method(methods, "inference.GRPCInferenceService/ModelInfer", first, 1);
    add_method(methods, "inference.GRPCInferenceService/ModelReady", first, 1);
    add_method(methods, "inference.GRPCInferenceService/ModelMetadata", first, 1);
}

/* ---- figures ---- */

/*
 * Several pipelines with models are one runtime to the mesh, which knows one figure of each kind.
 *
 *  capacity     the sum.
 *  concurrency  the smallest: a mesh does not look at types here, and a load that had to wait for
 *               its turn would do so while the mesh's clock for it runs.
 *  time-out     the largest, and a second more: our own text is to come before the mesh gives up.
 *  default size the largest: most models are to be smaller.
 */
struct runtime_figures
runtime_figures(struct pipeline *const *pipelines, uint32_t count)
{
    struct runtime_figures figures = {.are_serving = true};
    int64_t timeout_ns = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct catalog_facts facts;
        if (pipelines[i]->catalog == NULL)
            continue;
        models_facts(pipelines[i]->catalog, &facts);
        figures.are_serving = figures.are_serving && facts.serving;
        figures.capacity_bytes += facts.capacity_bytes;
        if (figures.load_concurrency == 0 || figures.load_concurrency > facts.load_concurrency)
            figures.load_concurrency = facts.load_concurrency;
        if (timeout_ns < facts.load_timeout_ns)
            timeout_ns = facts.load_timeout_ns;
        if (figures.default_bytes < facts.default_bytes)
            figures.default_bytes = facts.default_bytes;
    }
    figures.load_timeout_ms = (uint32_t)((timeout_ns + NS_PER_S) / NS_PER_MS);
    return figures;
}

/*
 * limitModelConcurrency stays false. With it a mesh lets only as many calls of a model through as
 * loadModel said, and one if it said nothing: batches would not fill, and which modelets give a
 * figure is known only after they have loaded a model, which is too late. Excess is refused here,
 * where the batches are made (pipeline/DESIGN-overload.md).
 */
void *
runtime_answer_status(struct pipeline *const *pipelines, uint32_t count, enum runtime_state state,
                      size_t *bytes)
{
    Mmesh__RuntimeStatusResponse response = MMESH__RUNTIME_STATUS_RESPONSE__INIT;
    struct method_infos methods;
    response.status = (Mmesh__RuntimeStatusResponse__Status)state;
    if (state == RUNTIME_READY) {
        struct runtime_figures figures = runtime_figures(pipelines, count);
        response.capacityinbytes = figures.capacity_bytes;
        response.maxloadingconcurrency = figures.load_concurrency;
        response.modelloadingtimeoutms = figures.load_timeout_ms;
        response.defaultmodelsizeinbytes = figures.default_bytes;
        response.runtimeversion = loose(SHOAL_VERSION);
        list_methods(&methods, pipelines, count);
        response.methodinfos = methods.list;
        response.n_methodinfos = methods.count;
    }
    *bytes = mmesh__runtime_status_response__get_packed_size(&response);
    void *message = malloc(*bytes + 1); /* STARTING is no bytes at all */
    CHECK(message != NULL);
    mmesh__runtime_status_response__pack(&response, message);
    return message;
}
