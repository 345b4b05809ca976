/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first look at a request: one walk over its spans that copies what is small and known (names,
 * types, shapes, parameters) into one piece, ready to be unpacked, and notes where the tensors'
 * elements lie. Unknown fields stay behind. What is copied is limited in bytes and in counts before
 * anything is unpacked, so a hostile message cannot make its unpacked form many times its own size.
 */
#pragma once

#include "rpc/wire.h"
#include "shm/payload.h"

enum {
    GATHER_BYTES_MAX = 65536,  /* names, shapes, id and parameters together */
    GATHER_FIELDS_MAX = 16384, /* fields looked at, known or not, elements apart */
};

/* Where something lies in the message. */
struct oip_range {
    size_t span;
    size_t offset;
    uint64_t bytes;
};

struct oip_gather {
    unsigned char *bytes; /* the copy; grows, is kept from request to request */
    size_t used;
    size_t capacity;
    uint32_t fields;
    uint32_t input_count;
    uint32_t raw_count;
    struct oip_range raw[SHOAL_TENSORS_MAX];
    struct oip_range contents[SHOAL_TENSORS_MAX]; /* of each input; no bytes: it has none */
};

void oip_gather_fini(struct oip_gather *gather);

/* A ModelInferRequest. INVALID_ARGUMENT: malformed, or more than one of the limits. */
enum status oip_gather_infer(struct oip_gather *gather, const struct rpc_message *message,
                             struct error *error) WARN_UNUSED;

/* A parameter of an input or of a requested output. INVALID_ARGUMENT: one that would have to change
 * how the tensor travels, and that nobody here acts upon. */
enum status oip_check_tensor_parameter(const char *key, struct error *error) WARN_UNUSED;

/* A ModelReadyRequest or ModelMetadataRequest: both are a name and a version. `type` is for the
 * error's text. */
enum status oip_gather_named(struct oip_gather *gather, const struct rpc_message *message,
                             const char *type, struct error *error) WARN_UNUSED;

struct wire_cursor oip_range_cursor(const struct rpc_message *message,
                                    const struct oip_range *range);
