/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ServingRuntime as one node would run it: programs with their arguments and environment, the
 * addresses that they serve; or all reasons why the node cannot run it. DESIGN.md has the rules, N.
 *
 * Reads files' attributes and nothing else of the host. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "serving/manifest/manifest.h"

enum runtime_value { RUNTIME_VALUE_FOUND, RUNTIME_VALUE_NO_OBJECT, RUNTIME_VALUE_NO_KEY };

/* Says whether a manifest's `command` may be run (N2). */
enum runtime_commands { RUNTIME_COMMANDS_OF_IMAGES, RUNTIME_COMMANDS_ANY };

struct runtime_host {
    const char *instance;
    const char *address;       /* its IP or name */
    char *const *images;       /* "NAME=COMMAND", NULL at the end */
    char *const *passed;       /* variables that each container has, NULL at the end */
    const char *labels;        /* "KEY=VALUE,…"; NULL: none */
    const char *taints;        /* "KEY=VALUE:EFFECT,…"; NULL: none */
    const char *repository;    /* for models of a server with a built-in adapter; NULL: none */
    const char *no_repository; /* why there is none, and what to do */
    uint64_t memory_bytes;
    uint64_t cpu_milli;
    enum runtime_commands commands;
    /* Appends the value of a key in a Secret or ConfigMap. */
    enum runtime_value (*value)(void *context, enum manifest_kind kind, const char *name,
                                const char *key, struct bytes *value);
    void *context;
};

struct runtime_container {
    char *name;
    char *program;      /* its path */
    char **arguments;   /* from argv[0] on, NULL at the end */
    char **environment; /* likewise */
    char *folder;
    uint64_t memory_bytes; /* this and the next: limits; 0: none */
    uint64_t cpu_milli;
};

struct runtime_plan {
    char *name;
    struct runtime_container *containers; /* in the order of their start */
    uint32_t container_count;
    char *management; /* "unix:/path" or "127.0.0.1:PORT" */
    char *calls;      /* where models are called; NULL: there */
    bool fetches;     /* the storage helper brings its models */
    char *adapter;    /* builtInAdapter.serverType; NULL: it serves mmesh.ModelRuntime itself */
    struct manifest_adapter server; /* with an adapter; else zeros */
    uint64_t capacity_bytes;        /* with an adapter: memory for models */
    char *labels;                   /* of a node that runs it: "mt:…,pv:…,rt:…", sorted */
    uint64_t model_calls_max;       /* of a copy, at once; 0: as many as the runtime says */
    uint64_t replicas;              /* UINT64_MAX: not given */
    int64_t preference;             /* of this node for it, by its affinity and the node's taints */
    const char *ignored;            /* what of the manifest, and why; NULL: nothing */
    char *problem;                  /* why this node cannot run it, each reason; NULL: it can */
};

/* Returns whether the node is the adapter: the manifest has a built-in one, and no container
 * TYPE-adapter. */
bool runtime_is_adapted(const struct manifest *manifest);

void runtime_plan_make(const struct manifest *manifest, const struct runtime_host *host,
                       struct runtime_plan *plan);
void runtime_plan_fini(struct runtime_plan *plan);
/* Returns whether two plans are the same processes at the same addresses. */
bool runtime_plan_same(const struct runtime_plan *one, const struct runtime_plan *other);

/* ---- inside ---- */

/* Appends a reason to those of the plan. */
void runtime_problem(struct bytes *problems, const char *format, ...) PRINTF_LIKE(2, 3);
/* The node's fitness for nodeSelector, affinity and tolerations of `spec` (place.c). */
void runtime_place(const struct tree_node *spec, const struct runtime_host *host,
                   struct bytes *problems, int64_t *preference);
/* The container of that type's name and suffix; NULL: there is none (container.c). */
const struct tree_node *runtime_find_container(const struct manifest *manifest, const char *type,
                                               const char *suffix);
/* The memory that a container requests, or its limit; 0: neither is given. */
uint64_t runtime_memory_requested(const struct tree_node *container);
/* One container of a runtime (container.c). `room`: bytes that are left for its arguments and
 * variables and those of the next ones. */
void runtime_container_make(const struct manifest *manifest, const struct tree_node *container,
                            const struct runtime_host *host, size_t *room,
                            struct runtime_container *made, struct bytes *problems);
void runtime_container_fini(struct runtime_container *container);
bool runtime_container_same(const struct runtime_container *one,
                            const struct runtime_container *other);
