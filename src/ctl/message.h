/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ModelInfer's messages: a request made of tensors, and tensors out of an answer. Typed contents
 * exist only here; on both sides of this file a tensor's elements are the bytes that raw contents
 * have.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "ctl/json.h"
#include "ctl/tensor.h"
#include "inference/open_inference.pb-c.h"

enum { INPUTS_MAX = 64, PARAMETERS_MAX = 64 };

struct parameter {
    char *key;
    Inference__InferParameter value;
};

/* PARAMETER_ANY: true or false, a whole number, a number, or else text. */
enum parameter_form { PARAMETER_ANY, PARAMETER_TEXT };

/* From KEY=VALUE. */
enum status parameter_read(const char *text, enum parameter_form form, struct parameter *parameter,
                           struct error *error) WARN_UNUSED;
void parameter_free(struct parameter *parameter);

struct request {
    char *model; /* the message code wants strings that could be changed, and changes none */
    char *version;
    char *id;
    bool typed;
    struct tensor inputs[INPUTS_MAX];
    size_t input_count;
    char *outputs[INPUTS_MAX]; /* requested; none: all */
    size_t output_count;
    struct parameter parameters[PARAMETERS_MAX];
    size_t parameter_count;
};

/* Rows `row_first` to `row_first + row_count` of the inputs that have rows, the others whole.
 * `*packed` is to be freed. INVALID_ARGUMENT: a datatype that typed contents do not have. */
enum status request_pack(const struct request *request, size_t row_first, size_t row_count,
                         uint8_t **packed, size_t *packed_bytes, struct error *error) WARN_UNUSED;

struct answer {
    Inference__ModelInferResponse *message;
    struct tensor *outputs; /* validated; names and raw contents are the message's */
    size_t output_count;
};

/* DATA_LOSS: it is no answer, or does not hold what it says. */
enum status answer_unpack(struct answer *answer, const void *packed, size_t packed_bytes,
                          struct error *error) WARN_UNUSED;
void answer_free(struct answer *answer);

void answer_print(const struct answer *answer, bool full, FILE *out);
/* As the protocol's REST form has it, in one line. */
void answer_json(const struct answer *answer, FILE *out);
