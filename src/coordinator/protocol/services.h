/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two small services that every generic gRPC client expects: grpc.health.v1.Health (Check,
 * Watch) and server reflection (v1 and v1alpha), as handlers for rpc.h. health_set may be called on
 * any thread, the handlers run on the stepping threads; one mutex, off the inference path, guards
 * both.
 */
#pragma once

#include <stdbool.h>

#include "rpc/rpc.h"

struct health;

/* Further services that Check knows: models, thousands of which come and go, are not entered here.
 * False: unknown. For Watch they are SERVICE_UNKNOWN. Any thread. */
struct health_others {
    bool (*find)(void *context, const char *name, bool *serving); /* NULL: none */
    void *context;
};

struct health *health_create(struct health_others others);
/* Call after the server is gone. */
void health_destroy(struct health *health);

enum health_state { HEALTH_NOT_SERVING, HEALTH_SERVING };

/* Sets the state of "" (the node) or a service, known from then on; notifies watchers. */
void health_set(struct health *health, const char *service, enum health_state state);
/* Ends all Watch streams with UNAVAILABLE: a server that stops must not wait for its watchers. */
void health_end_watches(struct health *health);

void health_on_check(struct health *health, struct rpc_call *call,
                     const struct wire_message *message);
void health_on_watch(struct health *health, struct rpc_call *call,
                     const struct wire_message *message);
/* Ends the watch of a client that is gone, for calls whose user pointer health set. */
void health_on_cancel(struct health *health, uint64_t tag);

enum reflection_version { REFLECTION_V1, REFLECTION_V1ALPHA };
/* Answers from the descriptors built into the program (proto/descriptors.h); lists the services of
 * which the call's server has methods. */
void reflection_on_message(enum reflection_version version, struct rpc_call *call,
                           const struct wire_message *message);

/* ---- as methods of a server ---- */

/* The context of a server with SERVICES_METHODS begins with this. */
struct services {
    struct health *health;
};

void services_on_check(void *context, struct rpc_call *call, const struct wire_message *message);
void services_on_watch(void *context, struct rpc_call *call, const struct wire_message *message);
void services_on_watch_cancel(void *context, uint64_t tag);
void services_on_reflection(void *context, struct rpc_call *call,
                            const struct wire_message *message);
void services_on_reflection_alpha(void *context, struct rpc_call *call,
                                  const struct wire_message *message);
void services_on_reflection_end(void *context, struct rpc_call *call);
void services_on_reflection_cancel(void *context, uint64_t tag);

/* Returns whether a method that is in no table belongs to one of our services, so that only a
 * model's external runtime may have it. ModelStreamInfer counts as a method of another service. */
bool services_lack(const char *path);
/* Returns whether a method is never passed on, because a mesh manages its runtimes by it. */
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
