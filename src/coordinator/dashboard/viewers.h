/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open pages, each an endless answer of server-sent events (`event: sample`). A page that has not
 * taken its last sample gets no further one until it has, and then the latest: nothing queues up
 * behind a slow viewer. One that takes nothing for a minute is disconnected. HTTP thread.
 */
#pragma once

#include "base/bytes.h"
#include "http/server.h"
#include "ipc/counters.h"

struct viewers;

/* `counters`: the node's. */
struct viewers *viewers_create(uint32_t most, _Atomic uint64_t *counters);
/* Call after the HTTP server has ended. NULL is ignored. */
void viewers_destroy(struct viewers *viewers);

/* Begins the answer. RESOURCE_EXHAUSTED: as many pages are open as may be. */
enum status viewers_add(struct viewers *viewers, struct http_request *request,
                        struct error *error) WARN_UNUSED;
/* Removes the viewer of a request whose client has gone. */
void viewers_remove(struct viewers *viewers, struct http_request *request);
uint32_t viewers_count(const struct viewers *viewers);

/* Sends the JSON to all that have taken the last one. Takes the bytes. */
void viewers_send(struct viewers *viewers, struct bytes *json);
/* Ends all answers. */
void viewers_end(struct viewers *viewers);
