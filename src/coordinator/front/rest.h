/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The REST front: the Open Inference Protocol over HTTP, on the same pipelines and models of a
 * mesh, and through the same admission, as gRPC. A request is read, and an answer written, on the
 * HTTP thread, but for large bodies, which a thread of their own reads (rest_reader.h); in between
 * it is any other request, and the gathering thread hands it back to the HTTP thread.
 *
 * Limits: a body has at most `message_mib`, a request line with all headers REST_HEADER_BYTES_MAX;
 * the JSON's own are in oip_json.h.
 */
#pragma once

#include "coordinator/front/dispatch.h"
#include "coordinator/front/http_thread.h"

enum { REST_HEADER_BYTES_MAX = 32 * 1024 };

struct http_pool;
struct rest;

/* Requests come on the given thread. */
struct rest *rest_create(const struct front_node *node, struct http_thread *thread);
struct http_service rest_service(struct rest *rest);

/* Sets the pool of the HTTP clients' connections. Before its thread starts. */
void rest_set_pool(struct rest *rest, struct http_pool *pool);

/* Sets readiness. Any thread. NULL is ignored. */
void rest_set_node_ready(struct rest *rest, bool ready);

/* Call when all pipelines have stopped, before the HTTP thread ends. From here on requests are
 * refused, and those that were in flight have been handed back to the HTTP thread. Events that a
 * client does not read within a second are lost. NULL is ignored. */
void rest_stop(struct rest *rest);
/* Call after the HTTP thread has ended. NULL is ignored. */
void rest_destroy(struct rest *rest);
