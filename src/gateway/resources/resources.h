/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resources of the Gateway API Inference Extension and the first proposal's LLMRoute, from a
 * file or from the files of a folder. resources.c reads and checks documents, routes.c finds out
 * what they mean together.
 *
 * A set is read whole or not at all. Its order is that of the files' names, and within a file that
 * of its documents: the earlier one is the older one wherever the reference asks for age.
 *
 * Memory as in yaml/tree.h. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "gateway/core/gateway_core.h"

struct tree_node;

enum {
    RESOURCES_MAX = 1024,
    RESOURCE_FILES_MAX = 1024,
    RESOURCE_FILE_BYTES_MAX = 1 << 20,
    RESOURCE_POOLS_MAX = 64, /* one bit each */
    RESOURCE_NAME_MAX = 253, /* of objects and models, in bytes */
    RESOURCE_PRIORITY_CRITICAL = 100,
};

/* The kinds in the order of the manifests' kinds. */
enum resource_kind {
    RESOURCE_POOL,
    RESOURCE_OBJECTIVE,
    RESOURCE_REWRITE,
    RESOURCE_MODEL,
    RESOURCE_LLM_ROUTE,
    RESOURCE_HTTP_ROUTE,
    RESOURCE_KINDS
};

enum resource_condition_type { RESOURCE_ACCEPTED, RESOURCE_RESOLVED_REFS, RESOURCE_CONDITIONS };

/* True, with the type as its reason, unless a reason was found. */
struct resource_condition {
    const char *reason; /* NULL: it is true */
    char message[192];
};

struct resource {
    enum resource_kind kind;
    const char *name;
    const char *file;
    int line;
    const struct tree_node *spec;
    uint64_t version; /* of its text; 0: of a file */
    uint32_t number;  /* of a pool among the pools */
    uint64_t pool;    /* that a rewrite refers to, as a bit */
    struct resource_condition conditions[RESOURCE_CONDITIONS];
};

/* A text that takes the place of a file. */
struct resource_text {
    const char *name; /* stands in front of mistakes */
    const char *text;
    size_t bytes;
    uint64_t version;
};

struct resource_file {
    char *name;
    struct tree_node *tree;
};

struct resource_set {
    struct resource *items;
    uint32_t count;
    uint32_t pool_count;

    /* for the core */
    struct gateway_route *routes;
    const char **route_names; /* NULL: of all other models */
    uint32_t route_count;
    struct gateway_target *targets;
    const char **target_names; /* NULL: as the client named it */
    uint32_t target_count;
    uint64_t open_pools;
    struct gateway_rollout rollouts[GATEWAY_ROLLOUTS_MAX];
    const struct tree_node *rollout_adapters[GATEWAY_ROLLOUTS_MAX]; /* with name and path */
    uint32_t rollout_count;

    struct resource_file *files;
    uint32_t file_count;
    char **mistakes; /* "FILE:LINE: FIELD: TEXT", of all files */
    uint32_t mistake_count;
};

/* Changes whenever a file there does; 0: nothing is there. */
uint64_t resources_stamp(const char *path);
/* Reads all paths; empty ones are skipped. INVALID_ARGUMENT: there are mistakes, and the error has
 * the first. resources_free is due after any result. */
enum status resources_read(const char *const *paths, uint32_t count, struct resource_set **set,
                           struct error *error) WARN_UNUSED;
/* Like resources_read(), for texts, the oldest first. */
enum status resources_read_texts(const struct resource_text *texts, uint32_t count,
                                 struct resource_set **set, struct error *error) WARN_UNUSED;
/* NULL is ignored. */
void resources_free(struct resource_set *set);

const char *resource_kind_name(enum resource_kind kind);
/* NULL: there is none of that name. */
const struct resource *resources_find(const struct resource_set *set, enum resource_kind kind,
                                      const char *name);
/* The priority of an InferenceObjective; false: there is none of that name. */
bool resources_priority(const struct resource_set *set, const char *objective, int32_t *priority);
/* The pools that have such an endpoint, one bit each; without pools all bits. `labels` is
 * "\nkey=value\n…\n". A set that is NULL has none. */
uint64_t resources_pools_of(const struct resource_set *set, const char *labels, uint32_t port);

/* The adapter to load for a roll-out. False: no resource has a path for that adapter. */
bool resources_adapter(const struct resource_set *set, uint64_t adapter, const char **name,
                       const char **path);
/* Writes the member `conditions`. */
void resource_write_conditions(const struct resource *resource, struct json *json);
/* Appends an array: kind, name, place and conditions of each. */
void resources_write_json(const struct resource_set *set, struct bytes *out);
/* Writes the same as lines for a person. */
void resources_write_text(const struct resource_set *set, struct bytes *out);
