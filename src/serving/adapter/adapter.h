/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Built-in adapters: Triton, MLServer and TensorFlow Serving as runtimes of a node (DESIGN.md). An
 * adapter translates mmesh.ModelRuntime, as the mesh's edge speaks it, into a server's own
 * management API, and lays each model out in the folder that the server reads.
 */
#pragma once

#include <stdint.h>

#include "mesh/edge/external.h"

enum adapter_type { ADAPTER_TRITON, ADAPTER_MLSERVER, ADAPTER_TFSERVING, ADAPTER_TYPES };

/* The server of an external_aim, as the translator gets it. */
struct adapter_server {
    enum adapter_type type;
    uint32_t size_percent; /* a model's size, of that of its files */
    uint32_t loaders;
    uint32_t load_timeout_ms;
    uint64_t capacity_bytes; /* for models */
    uint64_t default_bytes;  /* of a model of unknown size */
};

/* All copied. */
struct adapter_options {
    const char *repository; /* absolute: the folder that the server reads; made if it is missing */
    /* Folders that models may be in: `files_root`, and that of fetched models. NULL: none. */
    const char *roots[2];
    struct rpc_queue *home;              /* the external's first */
    const struct adapter_server *server; /* NULL: external_aim names it */
};

/* The type that the configuration and manifests call triton, mlserver or tfserving. */
enum adapter_type adapter_type_of(const char *word);

/* Returns the translator of external_options. */
struct external_translator adapter_create(const struct adapter_options *options);
