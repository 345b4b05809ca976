/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct oip_request, for the oip files: what decoding leaves for copying and
 * answering.
 */
#pragma once

#include "coordinator/protocol/oip.h"
#include "coordinator/protocol/oip_gather.h"
#include "coordinator/protocol/oip_scratch.h"
#include "inference/open_inference.pb-c.h"

#ifndef SHOAL_VERSION
#define SHOAL_VERSION "0.1.0"
#endif

struct oip_input {
    struct shoal_tensor tensor; /* `data` unused; `bytes` as they will be in the arena */
    struct oip_range elements;  /* raw, or an InferTensorContents */
};

struct oip_request {
    struct oip_gather gather;
    struct oip_scratch scratch;
    Inference__ModelInferRequest *message; /* in the scratch; NULL: nothing is decoded */
    struct oip_input *inputs;              /* in the scratch, message->n_inputs of them */
    bool raw;                              /* how the inputs' elements came */
};

/* protobuf-c's allocator on a scratch. */
ProtobufCAllocator oip_scratch_allocator(struct oip_scratch *scratch);

/* protobuf-c's structures want what they only read as not const. */
static inline void *
oip_loose(const void *memory)
{
    return (void *)(uintptr_t)memory;
}
