/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of Triton's extensions (open_inference.proto), as bytes and as JSON. A request is
 * read from either form into one struct; a response is appended to a buffer as a message, and
 * printed from it. Pure: no gRPC, no HTTP, no threads.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"
#include "coordinator/protocol/oip.h"
#include "wire/wire.h"

enum triton_method {
    TRITON_STATISTICS,
    TRITON_CONFIG,
    TRITON_INDEX,
    TRITON_LOAD,
    TRITON_UNLOAD,
    TRITON_SHARED_STATUS, /* from here on: regions of shared memory */
    TRITON_SHARED_REGISTER,
    TRITON_SHARED_UNREGISTER,
    TRITON_CUDA_STATUS,
    TRITON_CUDA_REGISTER,
    TRITON_CUDA_UNREGISTER,
    TRITON_METHOD_COUNT
};

/* "/inference.GRPCInferenceService/ModelStatistics", …: the gRPC methods. */
extern const char *const triton_paths[TRITON_METHOD_COUNT];
/* The method has one of these paths (CHECK). */
enum triton_method triton_method_of(const char *path);

enum {
    TRITON_REQUEST_BYTES_MAX = 64 * 1024, /* of any of these requests */
    TRITON_CONFIG_BYTES_MAX = 8 * 1024 - 1,
};

struct triton_request {
    enum triton_method method;
    char name[SHOAL_NAME_BYTES_MAX + 1]; /* of a model or region; "": all */
    char version[SHOAL_NAME_BYTES_MAX + 1];
    bool ready;                               /* INDEX: only models that can be called */
    char after[SHOAL_NAME_BYTES_MAX + 1];     /* INDEX: only names after this one */
    uint32_t limit;                           /* INDEX: of rows; 0: none */
    char parameter[SHOAL_NAME_BYTES_MAX + 1]; /* LOAD, UNLOAD: one that is not supported; "" */
    bool has_config;
    char config[TRITON_CONFIG_BYTES_MAX + 1]; /* LOAD: instead of the files' configuration */
    char key[SHOAL_NAME_BYTES_MAX + 1];       /* of shared memory, this and the next */
    uint64_t offset;
    uint64_t bytes;
};

/* Fill a request whose `method` is set. INVALID_ARGUMENT: malformed, too large, a text too long or
 * not UTF-8, a number that is none. JSON may be absent, and leaves alone what the path has set. */
enum status triton_read(struct triton_request *request, const struct wire_message *message,
                        struct error *error) WARN_UNUSED;
enum status triton_read_json(struct triton_request *request, const void *body, size_t bytes,
                             struct error *error) WARN_UNUSED;

/* ---- responses: each appends a row to a message, which is empty at first ---- */

struct triton_index_row {
    const char *name;
    const char *version;
    const char *state;
    const char *reason;
};
void triton_put_index(struct bytes *out, const struct triton_index_row *row);

struct triton_statistics {
    const char *name;
    const char *version;
    uint64_t last_inference_ms; /* since 1970; 0: not known */
    struct {
        uint64_t count;
        uint64_t ns;
    } success, fail;
    uint64_t memory_bytes; /* 0: not known */
};
void triton_put_statistics(struct bytes *out, const struct triton_statistics *statistics);

/* `batch_size` of the largest batches, 0 if requests run singly, which wait for `batch_wait_ns`. */
struct triton_batching {
    uint32_t batch_size;
    int64_t batch_wait_ns;
};
void triton_put_config(struct bytes *out, const struct oip_model_info *model,
                       const struct triton_batching *batching);

/* Writes a response as Triton's REST has it. INTERNAL: it is none. */
enum status triton_write_json(enum triton_method method, const struct wire_message *response,
                              struct bytes *json, struct error *error) WARN_UNUSED;
/* Writes the names of an index, `limit` of them, and `next` if there are more. */
enum status triton_write_names(const struct wire_message *response, uint32_t limit,
                               struct bytes *json, struct error *error) WARN_UNUSED;
