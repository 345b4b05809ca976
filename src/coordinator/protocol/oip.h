/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Open Inference Protocol's messages, as bytes in and bytes out: no gRPC here, no threads, no
 * clock.
 *
 * A ModelInferRequest arrives as spans that lie anywhere. Decoding goes over them once: everything
 * but the tensors' elements, raw or typed, is gathered into the request's own small memory and
 * unpacked there; the elements are only noted, checked where they lie, and copied once, straight
 * into the arena, by oip_copy_tensors.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shoal/modelet.h>

#include "base/error.h"
#include "coordinator/protocol/priority.h"
#include "rpc/rpc.h"
#include "shm/handshake.h"
#include "shm/payload.h"

struct oip_model_info {
    const char *name;
    const char *version; /* the one there is: "1" */
    const char *platform;
    const struct handshake_tensor *inputs; /* count 0: not known, anything is taken */
    uint32_t input_count;
    const struct handshake_tensor *outputs;
    uint32_t output_count;
};

/* A decoded request. One per slot, kept and used again: its memory grows to what requests need. */
struct oip_request;

struct oip_request *oip_request_create(void);
void oip_request_destroy(struct oip_request *request);

/*
 * Decodes and checks all that can be checked without knowing the model: well-formed, limits, names,
 * types, shapes, byte counts, raw and typed contents not mixed, no duplicates. INVALID_ARGUMENT
 * naming the tensor and the rule. `message` need only live until oip_copy_tensors.
 */
enum status oip_decode(struct oip_request *request, const struct rpc_message *message,
                       struct error *error) WARN_UNUSED;

/* Valid until the next oip_decode with this request. */
const char *oip_model_name(const struct oip_request *request);
const char *oip_model_version(const struct oip_request *request);

/* Reads the parameter `priority`, as int64, uint64 or text: 1 high, 2 normal, 3 low; 0 and none
 * are normal. INVALID_ARGUMENT: anything else. Also a skim, for before a request object is taken;
 * judges nothing but this parameter. */
enum status oip_skim_priority(const struct rpc_message *message, enum priority *priority,
                              struct error *error) WARN_UNUSED;

/* The same, and what the parameter `timeout` says: microseconds that the caller waits, as int64,
 * uint64 or text; TIME_NEVER_NS: none, or 0. */
enum status oip_skim(const struct rpc_message *message, enum priority *priority,
                     int64_t *timeout_ns, struct error *error) WARN_UNUSED;

/* The request against what the model takes: missing, unknown, wrong type, wrong shape; and
 * requested outputs against what it gives. INVALID_ARGUMENT naming tensor and rule; NOT_FOUND for
 * the version. */
enum status oip_check_model(const struct oip_request *request, const struct oip_model_info *model,
                            struct error *error) WARN_UNUSED;

/* "" and the one there is are fine; else NOT_FOUND. */
enum status oip_check_version(const char *version, const struct oip_model_info *model,
                              struct error *error) WARN_UNUSED;

/* Bytes of tensors, alignment included: what builder_reserve wants to know. */
uint64_t oip_tensor_bytes(const struct oip_request *request);

/* Writes tensors and parameters into the payload: the one copy of raw contents. */
enum status oip_copy_tensors(struct oip_request *request, const struct rpc_message *message,
                             struct payload_builder *builder, struct error *error) WARN_UNUSED;

/*
 * The response. Fills `pieces`: first the packed fields (in the request's own memory, valid until
 * the next decode), then per raw output its tag and length and its data, lent from the arena with
 * `release(release_context)` set on every lent piece. Outputs: those requested, in that order, or
 * all. INVALID_ARGUMENT naming a requested output that the last stage did not give. Returns through
 * `lent_count` how many releases there will be.
 */
enum { OIP_PIECES_MAX = 2 * SHOAL_TENSORS_MAX + 1 };
enum status oip_encode_response(struct oip_request *request, const struct oip_model_info *model,
                                const struct payload_view *outputs,
                                void (*release)(void *release_context), void *release_context,
                                struct rpc_piece pieces[OIP_PIECES_MAX], size_t *piece_count,
                                size_t *lent_count, struct error *error) WARN_UNUSED;

/* ---- the five small methods: request in, packed response out (malloc'ed, caller frees) ---- */

enum oip_method {
    OIP_SERVER_LIVE,
    OIP_SERVER_READY,
    OIP_SERVER_METADATA,
    OIP_MODEL_READY,
    OIP_MODEL_METADATA
};

/* The node's view of its models. */
struct oip_node {
    bool (*ready)(void *context);
    /* NOT_FOUND; or the model's info and whether it is ready. */
    enum status (*model)(void *context, const char *name, struct oip_model_info *info, bool *ready,
                         struct error *error);
    void *context;
};

enum status oip_answer(enum oip_method method, const struct oip_node *node,
                       const struct rpc_message *message, void **response, size_t *response_bytes,
                       struct error *error) WARN_UNUSED;
