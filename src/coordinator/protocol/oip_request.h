/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct oip_request, shared by the oip files: the result of decoding, needed for
 * copying and for the answer.
 */
#pragma once

#include "base/bump.h"
#include "coordinator/protocol/oip.h"
#include "coordinator/protocol/oip_gather.h"
#include "inference/open_inference.pb-c.h"

#ifndef SHOAL_VERSION
#define SHOAL_VERSION "0.1.0"
#endif

struct oip_input {
    struct shoal_tensor tensor; /* `data` unused; `bytes` is the size in the arena */
    struct oip_range elements;  /* raw, or an InferTensorContents */
};

struct oip_request {
    struct oip_gather gather;
    struct bump scratch;
    Inference__ModelInferRequest *message; /* in the scratch; NULL: nothing is decoded */
    struct oip_input *inputs;              /* in the scratch, message->n_inputs of them */
    bool raw;                              /* the inputs came as raw contents */

    /* of a request that was filled from JSON */
    struct oip_head head;
    struct wire_span name;      /* for its cursor */
    struct wire_message packed; /* in the scratch; no bytes: not packed yet */
};

/* Forgets the previous request. */
void oip_request_begin(struct oip_request *request);

/* protobuf-c's allocator on a scratch. */
ProtobufCAllocator oip_scratch_allocator(struct bump *scratch);

/* protobuf-c's structures have non-const pointers to data that is only read. */
static inline void *
oip_loose(const void *memory)
{
    return (void *)(uintptr_t)memory;
}
