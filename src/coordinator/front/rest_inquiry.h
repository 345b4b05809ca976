/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One REST request while it is looked at: shared by the files of the REST front. HTTP thread, but
 * for the reading of a large body (rest_reader.h).
 */
#pragma once

#include "coordinator/front/rest_call.h"
#include "http/inflate.h"

struct inquiry {
    struct rest *rest;
    struct http_request *request;
    struct rest_route route;
    struct trace *trace; /* NULL: it is not traced, or not the inquiry's any more */
    enum http_coding coding;
    struct bytes inflated;     /* the body, if it came compressed */
    struct oip_schema *schema; /* of v1's model, asked of the mesh; NULL: it is here */
    int64_t deadline_ns;       /* 0: not read yet */
    struct error error;
    int code;          /* of a refusal, where HTTP has a better one than the status */
    uint32_t retry_ms; /* of a refusal */
};

/* Reads `Grpc-Timeout`; TIME_NEVER_NS: there is none. */
enum status rest_deadline(struct inquiry *inquiry, int64_t *deadline_ns) WARN_UNUSED;
/* Sets the error of a node that takes no more. */
enum status rest_stopping(struct inquiry *inquiry);
/* Answers with the error. */
void rest_notify_error(const struct inquiry *inquiry);

/* Asks about the path's model as the gRPC call of that method does, here or in the mesh. The call
 * is answered, now or later, unless it is refused. */
enum status rest_ask_model(struct inquiry *inquiry, struct rest_call *call, enum oip_method method,
                           int64_t deadline_ns) WARN_UNUSED;
/* Answers an inference, now or later. */
void rest_infer(struct inquiry *inquiry);
/* Answers, later, what Triton's extensions have, and the list of models. */
enum status rest_triton(struct inquiry *inquiry) WARN_UNUSED;
