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

#include "base/error.h"
#include "coordinator/config/config.h"
#include "coordinator/front/http_thread.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/pipeline/share.h"

enum { REST_HEADER_BYTES_MAX = 32 * 1024 };

struct http_pool;
struct mesh_node;
struct repository;
struct shared_memory;
struct model_registry;
struct rest;

struct rest_options {
    const struct config *config;
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct model_registry *registry; /* of the node's models */
    struct repository *repository;   /* of them */
    struct shared_memory *shared_memory;
    struct mesh_node *mesh;     /* NULL: the node is of no mesh */
    _Atomic uint64_t *counters; /* of the node */
    struct share_key share_key; /* of the hashes that identify callers */
    struct tracer *tracer;      /* NULL: nothing is traced */
};

/* Its requests come on that thread. */
struct rest *rest_create(const struct rest_options *options, struct http_thread *thread);
struct http_service rest_service(struct rest *rest);

/* Where its clients are. Before its thread starts. */
void rest_set_pool(struct rest *rest, struct http_pool *pool);

/* For readiness. Any thread. NULL is left alone. */
void rest_set_node_ready(struct rest *rest, bool ready);

/* When all pipelines have stopped: from here on requests are refused, and those that were in flight
 * have been handed back to the HTTP thread. Before the
 * HTTP thread ends. NULL is left alone. */
void rest_stop(struct rest *rest);
/* After the HTTP thread. NULL is left alone. */
void rest_destroy(struct rest *rest);
