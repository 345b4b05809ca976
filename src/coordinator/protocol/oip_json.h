/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Open Inference Protocol's JSON form and its binary tensor data extension, and the forms of
 * KServe's v1 protocol and of Triton's generate extension, as bytes in and bytes out: no HTTP here,
 * no threads, no clock.
 *
 * A request becomes a decoded one (oip.h) with its elements as spans, so that all rules are applied
 * in one place with the same texts; a ModelInferResponse becomes JSON, or JSON and binary data.
 * Binary tensors are lent from the body and from the response, not copied.
 *
 * Memory: numbers take at most four times their JSON and `message_bytes_max`, strings twice their
 * JSON; the rest is limited to SKIM_BYTES_MAX of text, of which the library's tree takes 10 MB at
 * worst while the request is read.
 */
#pragma once

#include "base/bytes.h"
#include "base/error.h"
#include "coordinator/protocol/oip.h"
#include "rpc/rpc.h"

struct oip_json_ask {
    const char *model; /* this and the version are from the URL; "" if there is none */
    const char *version;
    const char *body;
    size_t body_bytes;
    size_t json_bytes; /* of the body; binary data follows */
    uint64_t message_bytes_max;
    const struct oip_model_info *rows_of;    /* KServe's v1: `instances` are rows of this model's
                                                inputs, and outputs are `predictions`; NULL: v2 */
    const struct oip_model_info *members_of; /* Triton's generate: members of the body are this
                                                model's inputs, those of the answer its outputs */
};

/* One request, from its reading to its answer. */
struct oip_json;

/*
 * The body must live while the elements are used. INVALID_ARGUMENT names the place and the rule;
 * OUT_OF_RANGE: the tensors exceed `message_bytes_max`; UNIMPLEMENTED: the model does not
 * declare inputs that v1 could fill.
 */
enum status oip_json_read(const struct oip_json_ask *ask, struct oip_json **json,
                          struct error *error) WARN_UNUSED;
void oip_json_destroy(struct oip_json *json);

/* The request, for oip_validate; the caller destroys it. Once. */
struct oip_request *oip_json_take_request(struct oip_json *json);
/* Returns the elements. */
const struct wire_message *oip_json_elements(const struct oip_json *json);
/* The parameter `timeout`; TIME_NEVER_NS: none, or 0. */
int64_t oip_json_timeout_ns(const struct oip_json *json);
/* The parameter `triton_enable_empty_final_response`. */
bool oip_json_wants_end(const struct oip_json *json);
/* Returns whether no output is asked for as binary data. */
bool oip_json_is_text(const struct oip_json *json);
/* Frees the elements; keeps what the answer needs. */
void oip_json_forget_elements(struct oip_json *json);

struct oip_json_answer {
    struct bytes text;      /* the JSON */
    struct wire_span *data; /* malloc'ed; within the response, or within */
    void *typed;            /* contents that the response had typed; malloc'ed */
    size_t data_count;
    bool binary; /* data follows the JSON */
};

void oip_json_answer_fini(struct oip_json_answer *answer);

/*
 * Writes the answer for a ModelInferResponse to this request's message. INVALID_ARGUMENT names an
 * output without a JSON form and how to ask for it instead. oip_json_answer_fini is due after any
 * result.
 */
enum status oip_json_write(const struct oip_json *json, const struct wire_message *response,
                           struct oip_json_answer *answer, struct error *error) WARN_UNUSED;

/* Appends one of the messages of an answer in pieces, as text: the same JSON, with the parameter
 * `triton_final_response` in v2. Returns as oip_json_write. */
enum oip_json_part { OIP_JSON_PIECE, OIP_JSON_LAST, OIP_JSON_WHOLE };
enum status oip_json_append(const struct oip_json *json, const struct wire_message *response,
                            enum oip_json_part part, struct bytes *text,
                            struct error *error) WARN_UNUSED;

/* ---- the small methods ---- */

/* A ModelReadyRequest, or a ModelMetadataRequest, of these. */
void oip_json_put_named(struct bytes *out, const char *model, const char *version);

void oip_json_put_server(struct bytes *out, const char *name);
/* Writes a ModelMetadataResponse. INTERNAL: it is none. */
enum status oip_json_put_model(struct bytes *out, const struct wire_message *response,
                               struct error *error) WARN_UNUSED;
/* The inputs of a model of another node, for `rows_of`; to be freed. INTERNAL: the response is no
 * ModelMetadataResponse. A shape [-1] stands for any, too, and is read as one dimension. */
struct oip_schema {
    struct oip_model_info info;
    char name[SHOAL_NAME_BYTES_MAX + 1]; /* cut */
    struct handshake_tensor inputs[SHOAL_TENSORS_MAX];
};
enum status oip_read_schema(const struct wire_message *response, struct oip_schema **schema,
                            struct error *error) WARN_UNUSED;
/* Writes a ModelReadyResponse about that model, and returns what it says. INTERNAL: it is no such
 * response. */
enum status oip_json_put_model_ready(struct bytes *out, const char *model,
                                     const struct wire_message *response, bool *ready,
                                     struct error *error) WARN_UNUSED;

/* {"error": text}; bytes that are not UTF-8 are replaced. */
void oip_json_put_error(struct bytes *out, const char *text);
