/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two small services every generic gRPC client expects: grpc.health.v1.Health (Check, Watch)
 * and server reflection (v1 and v1alpha), as handlers for rpc.h. Not thread-safe: health_set may be
 * called from any thread, the handlers run on the stepping threads; one mutex, off the inference
 * path, covers both.
 */
#pragma once

#include <stdbool.h>

#include "rpc/rpc.h"

struct health;

/* Whom else Check may ask about: models come and go by the thousand, and are not entered here.
 * False: not known. Watch does not see them: SERVICE_UNKNOWN. Any thread. */
struct health_others {
    bool (*find)(void *context, const char *name, bool *serving); /* NULL: nobody */
    void *context;
};

struct health *health_create(struct health_others others);
/* After the server is gone. */
void health_destroy(struct health *health);

/* Sets "" (the node) or a model's name, known from then on, to SERVING or NOT_SERVING; watchers are
 * told. */
void health_set(struct health *health, const char *service, bool serving);
/* Ends all Watch streams with UNAVAILABLE: a server that stops must not wait for its watchers. */
void health_end_watches(struct health *health);

void health_on_check(struct health *health, struct rpc_call *call,
                     const struct rpc_message *message);
void health_on_watch(struct health *health, struct rpc_call *call,
                     const struct rpc_message *message);
/* For calls whose user pointer health set: the watcher is gone. */
void health_on_cancel(struct health *health, uint64_t tag);

enum reflection_version { REFLECTION_V1, REFLECTION_V1ALPHA };
/* Answers from the descriptors built into the program (proto/descriptors.h); of the services it
 * lists those that the call's server has methods of. */
void reflection_on_message(enum reflection_version version, struct rpc_call *call,
                           const struct rpc_message *message);

/* ---- as methods of a server ---- */

/* The context of a server that has SERVICES_METHODS begins with this. */
struct services {
    struct health *health;
};

void services_on_check(void *context, struct rpc_call *call, const struct rpc_message *message);
void services_on_watch(void *context, struct rpc_call *call, const struct rpc_message *message);
void services_on_watch_cancel(void *context, uint64_t tag);
void services_on_reflection(void *context, struct rpc_call *call,
                            const struct rpc_message *message);
void services_on_reflection_alpha(void *context, struct rpc_call *call,
                                  const struct rpc_message *message);
void services_on_reflection_end(void *context, struct rpc_call *call);
void services_on_reflection_cancel(void *context, uint64_t tag);

/* Whether a method that is in no table belongs to one of our services. Only the external runtime of
 * a model may have it, and ModelStreamInfer counts as a method of a service that is not ours. */
bool services_lack(const char *path);
/* Whether a method is never passed on: those by which a mesh manages its runtimes. */
bool services_reserve(const char *path);

/* Rows of a table of methods. */
#define SERVICES_REFLECTION(version, on_message)                                                   \
    {                                                                                              \
        "/grpc.reflection." version ".ServerReflection/ServerReflectionInfo", RPC_BIDI_STREAM,     \
            false, on_message, services_on_reflection_end, services_on_reflection_cancel           \
    }
#define SERVICES_METHODS                                                                           \
    {"/grpc.health.v1.Health/Check", RPC_UNARY, false, services_on_check, NULL, NULL},             \
        {"/grpc.health.v1.Health/Watch", RPC_SERVER_STREAM, false, services_on_watch, NULL,        \
         services_on_watch_cancel},                                                                \
        SERVICES_REFLECTION("v1", services_on_reflection),                                         \
        SERVICES_REFLECTION("v1alpha", services_on_reflection_alpha)
