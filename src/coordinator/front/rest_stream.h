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
/* The `struct rest` stops: answers that their clients do not read are broken off soon. */
void rest_streams_stop(void *rest);
