/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A REST call that is answered by server-sent events: "data: {…}" for each message of its answer,
 * and {"error": …} for a failure after the first. Until the first message is there, a failure is an
 * ordinary answer with its code.
 *
 * Messages come on any thread, and wait as in any stream (stream.h) until the HTTP thread writes
 * them as JSON. It writes while less than HTTP_HIGH_WATER_BYTES wait for the client, so one that
 * stops reading makes its own request fail; after `write_timeout_ns` it is disconnected. Nothing is
 * lent: a slot is free once the last message has come.
 */
#pragma once

#include "coordinator/front/rest_call.h"

/* The client takes events: this is what its header Accept names. */
bool rest_stream_is_wanted(const struct http_request *request);

/* Has the call answered by events. Before it is submitted. */
void rest_stream_open(struct rest_call *call);
/* Has the answer of a pipeline, and the tag, go to the call's stream. */
void rest_stream_direct(const struct rest_call *call, struct submission *submission);

/* ---- for rest_call.c, of a call with a stream ---- */

/* The client has gone, or its deadline has passed. */
void rest_stream_cancel(struct rest_call *call);
/* Tells the client, cancels the call, and releases the request. */
void rest_stream_fail(struct rest_call *call, enum status status, const char *text);
/* Take the tag, and of another node's answer the pieces and the end. Any thread. */
void rest_stream_tagged(struct rest_call *call, uint64_t tag);
void rest_stream_piece(struct rest_call *call, const struct rpc_piece *pieces, size_t piece_count);
void rest_stream_answer(struct rest_call *call, const struct rpc_answer *answer);
void rest_stream_destroy(struct rest_stream *stream);

/* The `struct rest` stops: answers that their clients do not read are broken off soon. */
void rest_streams_stop(void *rest);
