/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Open Inference Protocol's messages, as bytes in and bytes out: no gRPC here, no threads, no
 * clock.
 *
 * A ModelInferRequest arrives as spans anywhere in memory. Decoding walks them once: everything but
 * the tensors' elements, raw or typed, is copied into the request's own small memory. The elements
 * are checked in place and copied once, straight into the arena, by oip_copy_tensors.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shoal/modelet.h>

#include "base/error.h"
#include "coordinator/protocol/priority.h"
#include "ipc/handshake.h"
#include "rpc/rpc.h"
#include "shm/payload.h"
#include "wire/wire.h"

struct oip_model_info {
    const char *name;
    const char *version;  /* "1", or the number of its release; NULL: not known yet */
    const char *versions; /* all that are served, separated by spaces; NULL: only `version` */
    const char *platform;
    const struct handshake_tensor *inputs; /* count 0: not known, any are taken */
    uint32_t input_count;
    const struct handshake_tensor *outputs;
    uint32_t output_count;
    uint32_t rows_max; /* of a request, in inputs of any number of rows; 0: any */
};

struct shared_memory;

/* A decoded request. One per slot, reused; its memory grows to what requests need. */
struct oip_request;

struct oip_request *oip_request_create(void);
void oip_request_destroy(struct oip_request *request);

/*
 * Decodes, and checks everything that needs no model: form, limits, names, types, shapes, byte
 * counts, raw and typed contents not mixed, no duplicates. INVALID_ARGUMENT names the tensor and
 * the rule. `message` must live until oip_copy_tensors.
 */
enum status oip_decode(struct oip_request *request, const struct wire_message *message,
                       struct error *error) WARN_UNUSED;

/*
 * A request that was filled from JSON (oip_json.h) is not decoded, but validated by the same rules.
 * Its elements, raw, are all of `message`, here and for oip_copy_tensors.
 */
enum status oip_validate(struct oip_request *request, const struct wire_message *message,
                         struct error *error) WARN_UNUSED;
/* The message has been copied into one span. */
void oip_elements_moved(struct oip_request *request);
/* Bytes of such a request without its elements. */
size_t oip_small_bytes(const struct oip_request *request);
/* Encodes it as a ModelInferRequest, once, in its own memory. */
const struct wire_message *oip_pack(struct oip_request *request,
                                    const struct wire_message *elements);

/* The caller's id of the request; "": none. Valid until the next oip_decode with it. */
const char *oip_request_id(const struct oip_request *request);

/* The numbers that admission needs of the request parameters, as int64, uint64 or text. */
enum { OIP_PRIORITY, OIP_TIMEOUT, OIP_NUMBERS };

/* The part of a request that is needed before it is decoded. */
struct oip_head {
    bool is_read;
    struct wire_cursor name;       /* of the model, unchecked; nothing left: none */
    struct wire_cursor version;    /* likewise */
    struct wire_cursor id;         /* of the request, likewise */
    uint64_t numbers[OIP_NUMBERS]; /* 0: none; UINT64_MAX: not a number */
};

/* INVALID_ARGUMENT: malformed, or too many fields; the head has what was found before. */
enum status oip_head_read(struct oip_head *head, const struct wire_message *message,
                          struct error *error) WARN_UNUSED;
/* Returns the head of a request that was filled from JSON; valid as long as it. */
const struct oip_head *oip_request_head(const struct oip_request *request);

/* `priority`: 1 high, 2 normal, 3 low; 0 and none are normal. `timeout`: the microseconds that the
 * caller waits; TIME_NEVER_NS: none, or 0. INVALID_ARGUMENT: anything else. */
enum status oip_head_judge(const struct oip_head *head, enum priority *priority,
                           int64_t *timeout_ns, struct error *error) WARN_UNUSED;
/* UINT64_MAX: not a number, or one of more than 18 digits. */
uint64_t oip_number_of_text(struct wire_cursor text);

/* Checks the request against the model's inputs (missing, unknown, wrong type, wrong shape) and the
 * requested outputs against its outputs. INVALID_ARGUMENT names tensor and rule; NOT_FOUND: the
 * version. */
enum status oip_check_model(const struct oip_request *request, const struct oip_model_info *model,
                            struct error *error) WARN_UNUSED;

/* NOT_FOUND unless it is "" or the model's version, or that is not known yet. */
enum status oip_check_version(const char *version, const struct oip_model_info *model,
                              struct error *error) WARN_UNUSED;

/* Returns whether a tensor of it lies in shared memory. */
bool oip_is_shared(const struct oip_request *request);
/* Holds the regions in which its tensors lie, from checking it until oip_forget_shared. With none
 * it does nothing. Returns as shared_memory_permit, shared_memory_hold and shared_region_check;
 * INVALID_ARGUMENT: inputs that take more than a request may have. */
enum status oip_hold_shared(struct oip_request *request, struct shared_memory *memory,
                            struct error *error) WARN_UNUSED;
void oip_forget_shared(struct oip_request *request);

/* Bytes of tensors, alignment included, for builder_reserve. */
uint64_t oip_tensor_bytes(const struct oip_request *request);

/* Writes tensors and parameters into the payload: the one copy of raw contents. Inputs in shared
 * memory are read here, and their contents judged. */
enum status oip_copy_tensors(struct oip_request *request, const struct wire_message *message,
                             struct payload_builder *builder, struct error *error) WARN_UNUSED;

enum { OIP_PIECES_MAX = 2 * SHOAL_TENSORS_MAX + 1 };

/* Called once for each lent piece. */
struct oip_release {
    void (*release)(void *context);
    void *context;
};

struct oip_pieces {
    struct rpc_piece pieces[OIP_PIECES_MAX];
    size_t count;
    size_t lent_count; /* releases to come */
};

/*
 * Encodes the response. Fills `pieces`: first the packed fields (in the request's own memory, valid
 * until the next decode), then each raw output's tag and length and its data, lent from the arena,
 * with `release`. `release` NULL: a piece of an answer, nothing of which is lent; it is valid until
 * the next one, and neither it nor what follows need have each requested output. Outputs: the
 * requested ones in that order, or all; those in shared memory are written there. INVALID_ARGUMENT
 * names a requested output that the last stage did not give, or that does not fit where it is to
 * lie.
 */
enum status oip_encode_response(struct oip_request *request, const struct oip_model_info *model,
                                const struct payload_view *outputs,
                                const struct oip_release *release, struct oip_pieces *pieces,
                                struct error *error) WARN_UNUSED;

/* ---- the five small methods: request in, packed response out (malloc'ed, caller frees) ---- */

enum oip_method {
    OIP_SERVER_LIVE,
    OIP_SERVER_READY,
    OIP_SERVER_METADATA,
    OIP_MODEL_READY,
    OIP_MODEL_METADATA
};

/* A model as a request names it. */
struct oip_named {
    const char *name;
    const char *version; /* "": any */
};

/* The node's view of itself and its models. */
struct oip_node {
    const char *server_name;
    bool (*ready)(void *context);
    /* NOT_FOUND; or the model's info and whether it is ready. */
    enum status (*model)(void *context, const struct oip_named *named, struct oip_model_info *info,
                         bool *ready, struct error *error);
    void *context;
};

enum status oip_answer(enum oip_method method, const struct oip_node *node,
                       const struct wire_message *message, void **response, size_t *response_bytes,
                       struct error *error) WARN_UNUSED;
