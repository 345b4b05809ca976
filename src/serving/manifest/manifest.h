/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests of ModelMesh Serving and of the gateway: texts become objects that are checked field by
 * field, and in canonical form: JSON with the fields in the order of schema.c, maps sorted, without
 * what a server adds. A field that is not supported is refused by its name (DESIGN.md, rules M).
 *
 * Memory as in yaml/tree.h. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "serving/reconcile/reconcile.h"

struct tree_node;

enum {
    MANIFEST_FILE_BYTES_MAX = 4 << 20,
    MANIFEST_BYTES_MAX = 256 << 10, /* of one, in canonical form */
    MANIFEST_DOCUMENTS_MAX = 4096,
    MANIFEST_NAME_BYTES_MAX = 253,
    MANIFEST_ATTEMPTS_MAX = 7, /* retries of a route */
    MANIFEST_COPIES_MAX = 1000,
    MANIFEST_SIZE_MIB_MAX = 1 << 24,
};

enum manifest_kind {
    MANIFEST_SERVING_RUNTIME,
    MANIFEST_CLUSTER_SERVING_RUNTIME,
    MANIFEST_INFERENCE_SERVICE,
    MANIFEST_PREDICTOR,
    MANIFEST_SECRET,
    MANIFEST_CONFIG_MAP,
    MANIFEST_POOL, /* this and the following are of src/gateway */
    MANIFEST_OBJECTIVE,
    MANIFEST_REWRITE,
    MANIFEST_MODEL,
    MANIFEST_LLM_ROUTE,
    MANIFEST_HTTP_ROUTE,
    MANIFEST_KINDS,
};

/* "InferenceService"; "inferenceservice.serving.kserve.io", as kubectl prints it. */
const char *manifest_kind_name(enum manifest_kind kind);
const char *manifest_kind_resource(enum manifest_kind kind);
/* Finds a kind by its name or one that kubectl takes: "isvc", "inferenceservices". Returns false if
 * there is none. */
bool manifest_kind_find(const char *word, enum manifest_kind *kind);

static inline bool
manifest_is_runtime(enum manifest_kind kind)
{
    return kind == MANIFEST_SERVING_RUNTIME || kind == MANIFEST_CLUSTER_SERVING_RUNTIME;
}

static inline bool
manifest_is_of_gateway(enum manifest_kind kind)
{
    return kind >= MANIFEST_POOL;
}

/* The registration of an InferenceService or a Predictor with the mesh besides its id, in the
 * words of ModelMesh Serving's controller. */
struct manifest_model {
    char *id;   /* "NAME__isvc-3642375d03"; NULL: the manifest is of another kind */
    char *type; /* "mt:FORMAT[:VERSION][|pv:PROTOCOL]" or "rt:RUNTIME" */
    char *path;
    char *key; /* JSON */
};

/* A runtime's server, as its `builtInAdapter` describes it, with KServe's defaults. Without
 * `server_type`, only `model_calls_max` counts. */
struct manifest_adapter {
    const char *server_type; /* NULL: none, or one whose adapter is a container: ovms, torchserve */
    uint64_t port;           /* of its management */
    uint64_t buffer_bytes;   /* of its memory, not for models */
    uint64_t load_timeout_ms;
    uint64_t loaders;
    uint64_t default_bytes;   /* of a model of unknown size */
    uint64_t size_percent;    /* a model's size, of that of its files */
    uint64_t model_calls_max; /* of a copy, at once; 0: as many as the runtime says */
    bool ignores_calls_max;   /* its annotation is not a number that it may have */
};

struct manifest {
    enum manifest_kind kind;
    int line; /* of its document */
    const struct tree_node *document;
    const char *name;
    const char *folder; /* the node whose folder of manifests it is from; NULL: none */
    char *json;
    struct manifest_model model;
    struct serving_wanted wanted;   /* of one with a model */
    struct serving_runtime runtime; /* of a runtime of either kind */
    struct manifest_adapter adapter;
    char *url; /* of the ConfigMap MANIFEST_CONFIG, where callers reach the nodes; or NULL */
    uint64_t pods_per_runtime; /* likewise; 0: not given */
    int64_t grace_ns;          /* likewise, of scaleToZero; TIME_NEVER_NS: runtimes never rest */
};

struct manifest_file {
    struct manifest *items;
    uint32_t count;
    char **mistakes; /* "FILE:LINE: TEXT" */
    uint32_t mistake_count;
    struct tree_node *tree; /* the memory of names */
};

/* INVALID_ARGUMENT: there are mistakes, which `error` counts. manifest_file_free is due after any
 * result. `name` stands in front of mistakes. */
enum status manifest_read(const char *name, const char *text, size_t bytes,
                          struct manifest_file *file, struct error *error) WARN_UNUSED;
void manifest_file_free(struct manifest_file *file);

#define MANIFEST_CONFIG "model-serving-config"

/* The annotation that names the node whose folder of manifests an object is from. */
#define MANIFEST_FOLDER "shoal/folder"
/* The canonical form with that annotation for a node, to be freed. NULL: without it. */
char *manifest_mark(const struct manifest *manifest, const char *folder);

/* Visits the texts of a Secret, of `data` decoded; those with a NUL byte are left out. */
void manifest_secret_visit(const struct manifest *secret,
                           void (*visit)(void *context, const char *name, const char *text),
                           void *context);

/* A Secret's canonical form with empty values, to be freed. */
char *manifest_hide(const struct manifest *secret);
