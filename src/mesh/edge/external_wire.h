/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of mmesh.ModelRuntime as a mesh writes and reads them. A runtime's answers are judged:
 * what is malformed, or makes no sense, is refused with a text. Pure.
 */
#pragma once

#include <stdbool.h>

#include "base/bytes.h"
#include "mesh/edge/driver.h"
#include "rpc/field_path.h"
#include "rpc/rpc.h"

enum {
    EXTERNAL_METHODS_MAX = 256,
    EXTERNAL_METHOD_BYTES_MAX = 512,
    EXTERNAL_VERSION_BYTES_MAX = 64,
};

enum external_state { EXTERNAL_STARTING, EXTERNAL_READY, EXTERNAL_FAILING };

struct external_method {
    char *name;     /* "package.Service/Method" */
    uint32_t depth; /* 0: the id is in metadata alone */
    uint32_t path[FIELD_PATH_MAX];
};

/* A runtime's own words about itself; to be freed with external_status_fini. */
struct external_status {
    enum external_state state;
    uint64_t capacity_bytes;
    uint64_t default_bytes;
    uint32_t loaders;
    uint32_t load_timeout_ms;
    char version[EXTERNAL_VERSION_BYTES_MAX + 1]; /* cut */
    bool limits_concurrency;
    bool allows_any;
    struct external_method *methods;
    uint32_t method_count;
};

void external_status_fini(struct external_status *status);

/* INVALID_ARGUMENT says what is wrong. In success and failure `status` is to be finished. */
enum status external_status_read(const struct rpc_message *message, struct external_status *status,
                                 struct error *error) WARN_UNUSED;

/* Whether a mesh can work with what a runtime that is READY has said; FAILED_PRECONDITION. */
enum status external_status_check(const struct external_status *status,
                                  struct error *error) WARN_UNUSED;

/* Looks up a method, "/package.Service/Method". False: it must not be called. `*found` is NULL if
 * the status does not mention it. */
bool external_status_permits(const struct external_status *status, const char *method,
                             const struct external_method **found);

/* Reads an answer of inference.GRPCInferenceService/ServerReady; false: not ready, or malformed. */
bool external_read_server_ready(const struct rpc_message *message);

/* The requests that name a model; those of unloadModel and modelSize have its id alone. */
void external_write_model(const struct driver_model *model, struct bytes *out);
void external_write_id(const char *id, struct bytes *out);

/* Of the answers to loadModel, predictModelSize and modelSize: sizeInBytes, and maxConcurrency.
 * False: malformed. */
bool external_read_size(const struct rpc_message *message, uint64_t *size_bytes,
                        uint32_t *max_concurrency) WARN_UNUSED;
