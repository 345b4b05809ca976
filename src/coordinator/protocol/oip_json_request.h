/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct oip_json, shared by the oip_json files: the result of reading, needed for
 * submission and for the answer.
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

/* Raw contents of an input, and the end of the header's part before them. */
struct oip_json_raw {
    const void *data;
    size_t bytes;
    void *owned; /* NULL: `data` lies in the body */
    size_t header_end;
};

struct oip_json {
    struct bytes header; /* the message without the contents */
    uint32_t raw_count;
    struct oip_json_raw raws[SHOAL_TENSORS_MAX];
    struct wire_span spans[2 * SHOAL_TENSORS_MAX + 1];
    struct wire_message message;
    int64_t timeout_ns;
    struct oip_json_form form; /* for outputs not requested by name */
    uint32_t output_count;     /* requested by name; the answer has them in this order */
    struct oip_json_form outputs[SHOAL_TENSORS_MAX];
};
