/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ModelInfer's messages: packs tensors into a request and unpacks an answer. Only this file knows
 * typed contents; its users see a tensor's elements as raw bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "ctl/tensor.h"
#include "inference/open_inference.pb-c.h"

enum { INPUTS_MAX = 64, PARAMETERS_MAX = 64 };

struct parameter {
    char *key;
    Inference__InferParameter value;
};

/* PARAMETER_ANY: true or false, an integer, a number, or else text. */
enum parameter_form { PARAMETER_ANY, PARAMETER_TEXT };

/* Reads a parameter from KEY=VALUE. */
enum status parameter_read(const char *text, enum parameter_form form, struct parameter *parameter,
                           struct error *error) WARN_UNUSED;
void parameter_free(struct parameter *parameter);

struct ctl_request {
    char *model; /* not const because the message types are not */
    char *version;
    char *id;
    bool typed;
    struct ctl_tensor inputs[INPUTS_MAX];
    size_t input_count;
    char *outputs[INPUTS_MAX]; /* requested; none: all */
    size_t output_count;
    struct parameter parameters[PARAMETERS_MAX];
    size_t parameter_count;
};

/* Packs rows `row_first` to `row_first + row_count` of inputs that have rows, and other inputs
 * whole. The caller frees `*packed`. INVALID_ARGUMENT: typed contents do not have this datatype. */
enum status request_pack(const struct ctl_request *request, size_t row_first, size_t row_count,
                         uint8_t **packed, size_t *packed_bytes, struct error *error) WARN_UNUSED;

struct ctl_answer {
    Inference__ModelInferResponse *message;
    struct ctl_tensor *outputs; /* validated; names and raw contents belong to the message */
    size_t output_count;
};

/* DATA_LOSS: it is not an answer, or its contents do not match their description. */
enum status answer_unpack(struct ctl_answer *answer, const void *packed, size_t packed_bytes,
                          struct error *error) WARN_UNUSED;
void answer_free(struct ctl_answer *answer);

void answer_print(const struct ctl_answer *answer, enum tensor_detail detail, FILE *out);
/* Prints the protocol's REST form in one line. */
void answer_json(const struct ctl_answer *answer, FILE *out);
