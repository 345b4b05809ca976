/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct oip_json, shared by the oip_json files: the result of reading, needed for
 * submission and for the answer.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include <shoal/modelet.h>

#include "base/json.h"
#include "coordinator/protocol/oip_json.h"
#include "coordinator/protocol/oip_json_data.h"
#include "coordinator/protocol/oip_json_skim.h"
#include "coordinator/protocol/oip_request.h"

/* The form in which an output is to be written. */
struct oip_json_form {
    bool binary;
    bool base64;    /* of BYTES that are not binary */
    bool is_shared; /* its contents are elsewhere */
    char *name;     /* of the output, if it is to be found in a piece; NULL: as others are */
};

struct oip_json {
    struct oip_request *request;    /* NULL: it was taken */
    void *owned[SHOAL_TENSORS_MAX]; /* the elements of each input; NULL: they lie in the body */
    struct wire_span spans[SHOAL_TENSORS_MAX];
    struct wire_message elements;
    int64_t timeout_ns;
    bool rows;                 /* v1: the answer is `predictions` */
    bool members;              /* generate: outputs are members of the answer */
    bool wants_end;            /* a last message of a stream even without outputs */
    struct oip_json_form form; /* for outputs not requested by name */
    uint32_t output_count;     /* requested by name; the answer has them in this order */
    struct oip_json_form outputs[SHOAL_TENSORS_MAX];
};

/* ---- while it is read ---- */

struct json_reading {
    const struct oip_json_ask *ask;
    struct oip_json *json;
    struct oip_request *request;
    struct oip_json_skim skim;
    const char *binary; /* the rest of the body's binary part */
    size_t binary_bytes;
    struct error *error;
};

#define REFUSE(reading, ...) error_set((reading)->error, STATUS_INVALID_ARGUMENT, __VA_ARGS__)

/* Reports the error as the decoder of messages does, which has the same limits. */
enum status oip_json_invalid(struct json_reading *reading);
/* Makes these the elements of the next input, which has no more; `owned` is freed with them. */
void oip_json_put_raw(struct json_reading *reading, const void *data, size_t bytes, void *owned);
/* Copies a text into the request. */
enum status oip_json_keep(struct json_reading *reading, const char *field, const char *text,
                          size_t bytes, char **kept) WARN_UNUSED;
/* Reads elements as those of the next input; `tensor->elements` is set here. */
enum status oip_json_put_run(struct json_reading *reading, const struct json_run *run,
                             struct oip_json_tensor *tensor) WARN_UNUSED;
/* Adds an input with the elements of that text, an array nested as deep as the input's shape. */
enum status oip_json_add_rows(struct json_reading *reading, const struct handshake_tensor *spec,
                              const struct json_run *run) WARN_UNUSED;
/* Reads a string, a number or a boolean. */
enum status oip_json_read_value(struct json_reading *reading, const json_t *value,
                                Inference__InferParameter *to) WARN_UNUSED;
/* Read the request's parameters and its id, as parsed and as cut out. */
enum status oip_json_read_parameters(struct json_reading *reading, json_t *parameters) WARN_UNUSED;
enum status oip_json_keep_id(struct json_reading *reading, const json_t *id) WARN_UNUSED;
enum status oip_json_read_parameter(struct json_reading *reading, const struct json_run *key,
                                    const struct json_run *value) WARN_UNUSED;
enum status oip_json_read_id(struct json_reading *reading,
                             const struct json_run *value) WARN_UNUSED;
/* Reads the body as members that are inputs of `ask->members_of`, or parameters. */
enum status oip_json_read_members(struct json_reading *reading) WARN_UNUSED;
/* Reads the instances, cut out as the skim's only run, as the inputs of `ask->rows_of`. */
enum status oip_json_read_rows(struct json_reading *reading) WARN_UNUSED;

/* ---- while it is answered ---- */

enum { OIP_DATATYPE_BYTES_MAX = 16, OIP_OUTPUT_PARAMETERS_MAX = 3 };

/* The places of the parts of a response; `left` 0: absent. */
struct json_answer_parts {
    struct wire_cursor texts[4]; /* by field number, up to the id's */
    uint32_t output_count;
    uint32_t raw_count;
    struct wire_cursor outputs[SHOAL_TENSORS_MAX];
    struct wire_cursor raws[SHOAL_TENSORS_MAX];
};

struct json_output {
    struct wire_cursor name;
    char datatype[OIP_DATATYPE_BYTES_MAX];
    uint32_t rank;
    int64_t shape[SHOAL_RANK_MAX];
    struct wire_cursor contents; /* typed; `left` 0: none */
    uint32_t parameter_count;
    struct wire_cursor parameters[OIP_OUTPUT_PARAMETERS_MAX]; /* entries; more are left out */
};

/* INTERNAL: the response is none. */
enum status oip_json_read_output(struct json_output *output, struct wire_cursor cursor,
                                 struct error *error) WARN_UNUSED;
/* {"predictions": …} of raw contents. INVALID_ARGUMENT: they have no such form. */
enum status oip_json_write_rows(struct bytes *out, const struct json_answer_parts *parts,
                                struct error *error) WARN_UNUSED;
/* Each output as a member of the open object: its only element, or a flat array. */
enum status oip_json_write_members(struct json *json, const struct json_answer_parts *parts,
                                   struct error *error) WARN_UNUSED;
