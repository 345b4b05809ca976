/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct oip_json, for the oip_json files: what reading leaves for sending on and for
 * answering.
 */
#pragma once

#include <stdbool.h>

#include <shoal/modelet.h>

#include "coordinator/protocol/oip_json.h"
#include "coordinator/protocol/oip_json_skim.h"

/* How an output is to be written. */
struct oip_json_form {
    bool binary;
    bool base64; /* of BYTES that are not binary */
};

/* Raw contents of an input, and how much of the header goes before them. */
struct oip_json_raw {
    const void *data;
    size_t bytes;
    void *owned; /* NULL: they lie in the body */
    size_t header_end;
};

struct oip_json {
    struct bytes header; /* all of the message but the contents */
    uint32_t raw_count;
    struct oip_json_raw raws[SHOAL_TENSORS_MAX];
    struct rpc_span spans[2 * SHOAL_TENSORS_MAX + 1];
    struct rpc_message message;
    int64_t timeout_ns;
    struct oip_json_form form; /* of outputs that were not asked for by name */
    uint32_t output_count;     /* asked for by name; the answer has them in this order */
    struct oip_json_form outputs[SHOAL_TENSORS_MAX];
};
