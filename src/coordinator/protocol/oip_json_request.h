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

struct oip_json {
    struct oip_request *request;    /* NULL: it was taken */
    void *owned[SHOAL_TENSORS_MAX]; /* the elements of each input; NULL: they lie in the body */
    struct wire_span spans[SHOAL_TENSORS_MAX];
    struct wire_message elements;
    int64_t timeout_ns;
    struct oip_json_form form; /* for outputs not requested by name */
    uint32_t output_count;     /* requested by name; the answer has them in this order */
    struct oip_json_form outputs[SHOAL_TENSORS_MAX];
};
