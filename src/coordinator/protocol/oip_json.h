/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Open Inference Protocol's JSON form and its binary tensor data extension, as bytes in and
 * bytes out: no HTTP here, no threads, no clock.
 *
 * A request becomes the spans of a ModelInferRequest with raw contents, so that all rules are
 * applied in one place (oip.h), in the same words; a ModelInferResponse becomes JSON, or JSON and
 * binary data. Binary tensors are lent from the body and from the response, not copied.
 *
 * Memory: numbers take at most four times their JSON and no more than a message may be
 * (`message_bytes_max`), strings twice their JSON; all else is limited by SKIM_BYTES_MAX of text,
 * of which the library's tree makes 10 MB at worst while the request is read.
 */
#pragma once

#include "base/bytes.h"
#include "base/error.h"
#include "coordinator/protocol/oip.h"
#include "rpc/rpc.h"

struct oip_json_ask {
    const char *model; /* from the URL, as the version; "" if there is none */
    const char *version;
    const char *body;
    size_t body_bytes;
    size_t json_bytes; /* of the body; what follows is binary data */
    uint64_t message_bytes_max;
};

/* One request, from its reading to its answer. */
struct oip_json;

/*
 * The body must live as long as the message is used. INVALID_ARGUMENT naming the place and the
 * rule; OUT_OF_RANGE: the tensors are more than `message_bytes_max`.
 */
enum status oip_json_read(const struct oip_json_ask *ask, struct oip_json **json,
                          struct error *error) WARN_UNUSED;
void oip_json_destroy(struct oip_json *json);

/* A ModelInferRequest. */
const struct rpc_message *oip_json_message(const struct oip_json *json);
/* The parameter `timeout`; TIME_NEVER_NS: none, or 0. */
int64_t oip_json_timeout_ns(const struct oip_json *json);
/* The message's memory is not needed any more: what is left is what the answer must know. */
void oip_json_forget_message(struct oip_json *json);

struct oip_json_answer {
    struct bytes text;     /* the JSON */
    struct rpc_span *data; /* malloc'ed; within the response */
    size_t data_count;
    bool binary; /* data follows the JSON */
};

void oip_json_answer_fini(struct oip_json_answer *answer);

/*
 * The answer to a ModelInferResponse that was made for this request's message. INVALID_ARGUMENT
 * naming an output that has no JSON form and how to ask for it instead. The answer is to be
 * finished in success and in failure.
 */
enum status oip_json_write(const struct oip_json *json, const struct rpc_message *response,
                           struct oip_json_answer *answer, struct error *error) WARN_UNUSED;

/* ---- the bodies of the small answers ---- */

void oip_json_put_server(struct bytes *out);
void oip_json_put_model(struct bytes *out, const struct oip_model_info *model);
void oip_json_put_model_ready(struct bytes *out, const char *model, bool ready);

/* {"error": text}; what is no UTF-8 in it is replaced. */
void oip_json_put_error(struct bytes *out, const char *text);
