/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of mmesh.ModelRuntime as the mesh writes and reads them. A runtime's answers are
 * validated: malformed or senseless ones are refused with a text. Pure.
 */
#pragma once

#include <stdbool.h>

#include "base/bytes.h"
#include "mesh/edge/runner.h"
#include "rpc/rpc.h"
#include "wire/field_path.h"

enum {
    EXTERNAL_METHODS_MAX = 256,
    EXTERNAL_METHOD_BYTES_MAX = 512,
    EXTERNAL_VERSION_BYTES_MAX = 64,
};

enum external_state { EXTERNAL_STARTING, EXTERNAL_READY, EXTERNAL_FAILING };

struct external_method {
    char *name;     /* "package.Service/Method" */
    uint32_t depth; /* 0: the id is in metadata only */
    uint32_t path[FIELD_PATH_MAX];
};

/* A runtime's own description; free it with external_status_fini. */
struct external_status {
    enum external_state state;
    uint64_t capacity_bytes;
    uint64_t default_bytes;
    uint32_t loaders;
    uint32_t load_timeout_ms;
    char version[EXTERNAL_VERSION_BYTES_MAX + 1]; /* truncated */
    bool limits_concurrency;
    bool allows_any;
    struct external_method *methods;
    uint32_t method_count;
};

void external_status_fini(struct external_status *status);

/* INVALID_ARGUMENT with a text. Finish `status` in success and failure. */
enum status external_status_read(const struct wire_message *message, struct external_status *status,
                                 struct error *error) WARN_UNUSED;

/* Checks that a mesh can work with the figures of a READY runtime; FAILED_PRECONDITION if not. */
enum status external_status_check(const struct external_status *status,
                                  struct error *error) WARN_UNUSED;

/* Looks up a method, "/package.Service/Method". False: it must not be called. `*found` is NULL if
 * the status does not mention it. */
bool external_status_permits(const struct external_status *status, const char *method,
                             const struct external_method **found);

/* Reads an answer of inference.GRPCInferenceService/ServerReady; false: not ready, or malformed. */
bool external_read_server_ready(const struct wire_message *message);

/* A ModelStreamInferResponse: where the ModelInferResponse in it is. */
struct external_piece {
    struct wire_cursor error; /* its text; `left` 0: none */
    bool has_response;
    bool is_final;   /* triton_final_response: no more follow */
    uint64_t offset; /* of the response */
    uint64_t bytes;
};
/* False: malformed. */
bool external_read_piece(const struct wire_message *message,
                         struct external_piece *piece) WARN_UNUSED;

/* Requests that name a model; those of unloadModel and modelSize have only its id. */
void external_write_model(const struct runner_model *model, struct bytes *out);
void external_write_id(const char *id, struct bytes *out);

/* Reads sizeInBytes and maxConcurrency from answers to loadModel, predictModelSize and modelSize.
 * Returns false if the answer is malformed. */
bool external_read_size(const struct wire_message *message, uint64_t *size_bytes,
                        uint32_t *max_concurrency) WARN_UNUSED;
