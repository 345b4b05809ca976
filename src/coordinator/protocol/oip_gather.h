/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first look at a request: one walk over its spans that copies the small known fields (names,
 * types, shapes, parameters) into one piece, ready to be unpacked, and notes where the tensors'
 * elements lie. Unknown fields are dropped. The copy is limited in bytes and counts before anything
 * is unpacked, so a hostile message cannot unpack to many times its own size.
 */
#pragma once

#include "shm/payload.h"
#include "wire/wire.h"

enum {
    GATHER_BYTES_MAX = 65536,  /* names, shapes, id and parameters together */
    GATHER_FIELDS_MAX = 16384, /* fields looked at, known or not, elements apart */
};

/* A place in the message. */
struct oip_range {
    size_t span;
    size_t offset;
    uint64_t bytes;
};

struct oip_gather {
    unsigned char *bytes; /* the copy; grows, and is reused by the next request */
    size_t used;
    size_t capacity;
    uint32_t fields;
    uint32_t input_count;
    uint32_t raw_count;
    struct oip_range raw[SHOAL_TENSORS_MAX];
    struct oip_range contents[SHOAL_TENSORS_MAX]; /* of each input; no bytes: none */
};

void oip_gather_fini(struct oip_gather *gather);

/* Gathers a ModelInferRequest. INVALID_ARGUMENT: malformed, or over one of the limits. */
enum status oip_gather_infer(struct oip_gather *gather, const struct wire_message *message,
                             struct error *error) WARN_UNUSED;

/* Checks a parameter of an input or of a requested output. INVALID_ARGUMENT: the parameter would
 * change how the tensor travels, and is not supported. */
enum status oip_check_tensor_parameter(const char *key, struct error *error) WARN_UNUSED;

/* Gathers a ModelReadyRequest or ModelMetadataRequest: both are a name and a version. `type` is for
 * the error's text. */
enum status oip_gather_named(struct oip_gather *gather, const struct wire_message *message,
                             const char *type, struct error *error) WARN_UNUSED;

struct wire_cursor oip_range_cursor(const struct wire_message *message,
                                    const struct oip_range *range);
