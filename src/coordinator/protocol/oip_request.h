/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct oip_request, shared by the oip files: the result of decoding, needed for
 * copying and for the answer. Messages (oip_fields.c) and JSON (oip_json.c) fill it by the same
 * functions, which limit its memory, so that nothing hostile can unpack to many times its size.
 */
#pragma once

#include "base/bump.h"
#include "coordinator/protocol/oip.h"
#include "coordinator/protocol/shared_memory.h"
#include "inference/open_inference.pb-c.h"

#ifndef SHOAL_VERSION
#define SHOAL_VERSION "0.1.0"
#endif

enum {
    OIP_SMALL_BYTES_MAX = 65536, /* names, shapes, id and parameters together */
    OIP_FIELDS_MAX = 16384,      /* fields of a message looked at, known or not */
};

/* A place in the message. */
struct oip_range {
    size_t span;
    size_t offset;
    uint64_t bytes;
};

struct oip_input {
    struct shoal_tensor tensor; /* `data` unused; `bytes` is the size in the arena */
    struct oip_range elements;  /* raw, or an InferTensorContents */
};

/* A tensor that lies in shared memory, by its own parameters. */
struct oip_shared {
    char *region; /* NULL: it has no such parameter, and is in the message */
    uint64_t offset;
    uint64_t bytes;
    bool has_offset;
    bool has_bytes;
    struct shared_region *held; /* NULL: not yet, or not any more */
};

struct oip_request {
    struct bump scratch;
    struct bump of_piece;                  /* the last piece of an answer, encoded */
    Inference__ModelInferRequest *message; /* in the scratch; NULL: nothing is decoded */
    struct oip_input *inputs;              /* likewise, one for each; NULL: not validated yet */
    size_t small_bytes;
    bool in_pieces; /* a piece of the answer was encoded */
    uint32_t fields;
    uint32_t raw_count; /* 0: the inputs have typed contents, if any */
    struct oip_range raw[SHOAL_TENSORS_MAX];
    struct oip_range contents[SHOAL_TENSORS_MAX]; /* of each input; no bytes: none */
    struct oip_shared *shared; /* in the scratch: of all inputs, and of all outputs from
                                  SHOAL_TENSORS_MAX on; NULL: none has such parameters */

    /* of a request that was filled from JSON */
    struct oip_head head;
    struct wire_span name; /* for the head's cursors */
    struct wire_span version;
    struct wire_span id;
    struct wire_message packed; /* in the scratch; no bytes: not packed yet */
};

/* Forgets the previous request, and begins an empty one. */
void oip_request_begin(struct oip_request *request);
void oip_request_fini(struct oip_request *request);

/* INVALID_ARGUMENT: more than OIP_SMALL_BYTES_MAX in all. */
enum status oip_count_small(struct oip_request *request, size_t bytes,
                            struct error *error) WARN_UNUSED;
/* Copies a text. INVALID_ARGUMENT, also: it is not UTF-8, or has a zero byte; errors call it
 * `field`. */
enum status oip_keep_text(struct oip_request *request, const char *field, struct wire_cursor text,
                          char **kept, struct error *error) WARN_UNUSED;

/* Adds an empty one. At most SHOAL_TENSORS_MAX inputs and outputs, and PARAMETERS_MAX parameters.
 */
Inference__ModelInferRequest__InferInputTensor *oip_add_input(struct oip_request *request);
Inference__ModelInferRequest__InferRequestedOutputTensor *
oip_add_output(struct oip_request *request);
Inference__ModelInferRequest__ParametersEntry *oip_add_parameter(struct oip_request *request);
/* The entry's value, empty at first. */
Inference__InferParameter *
oip_parameter_value(struct oip_request *request,
                    Inference__ModelInferRequest__ParametersEntry *entry);

/* Fills the request. INVALID_ARGUMENT: malformed, or over one of the limits. */
enum status oip_read_infer(struct oip_request *request, const struct wire_message *message,
                           struct error *error) WARN_UNUSED;

/* Reads a ModelReadyRequest or ModelMetadataRequest: both are a name and a version. `type` is for
 * the error's text. */
enum status oip_read_named(struct oip_request *request, const struct wire_message *message,
                           const char *type, Inference__ModelReadyRequest *named,
                           struct error *error) WARN_UNUSED;

/* ---- tensors in shared memory (oip_shared.c) ---- */

enum oip_side { OIP_INPUT, OIP_OUTPUT };

/* Finds the meaning of a tensor's own parameter. INVALID_ARGUMENT: the tensor would have to travel
 * in a way that is not supported. */
enum oip_own { OIP_OWN_NONE, OIP_OWN_REGION, OIP_OWN_OFFSET, OIP_OWN_BYTES };
enum status oip_own_parameter(const char *key, enum oip_own *own, struct error *error) WARN_UNUSED;
/* Keeps that parameter's value for the input or output that was added last. A string must be in the
 * request's memory. INVALID_ARGUMENT: the value's type. */
enum status oip_put_own(struct oip_request *request, enum oip_side side, enum oip_own own,
                        const Inference__InferParameter *value, struct error *error) WARN_UNUSED;

/* NULL: the tensor is in the message. */
const struct oip_shared *oip_shared_of(const struct oip_request *request, enum oip_side side,
                                       size_t index);
/* Inputs that have their contents in the message. */
uint32_t oip_sent_count(const struct oip_request *request);
/* Checks all parameters about shared memory. INVALID_ARGUMENT names the tensor and the rule. */
enum status oip_check_shared(const struct oip_request *request, struct error *error) WARN_UNUSED;
/* Reads an input into memory of its size. */
enum status oip_read_shared(const struct oip_shared *shared, const struct shoal_tensor *tensor,
                            void *to, struct error *error) WARN_UNUSED;

/* Appends an InferOutputTensor's parameters: where `bytes` of contents were written. */
enum {
    OIP_PUT_SHARED_BYTES_MAX =
        3 * (4 * WIRE_HEAD_BYTES_MAX + WIRE_VARINT_BYTES_MAX + 24) + SHOAL_NAME_BYTES_MAX
};
void oip_put_shared(const struct oip_shared *shared, uint64_t bytes, struct bytes *out);

static inline struct wire_cursor
oip_range_cursor(const struct wire_message *message, const struct oip_range *range)
{
    return (struct wire_cursor){message->spans, range->span, range->offset, range->bytes};
}

/* protobuf-c's structures have non-const pointers to data that is only read. */
static inline void *
oip_loose(const void *memory)
{
    return (void *)(uintptr_t)memory;
}
