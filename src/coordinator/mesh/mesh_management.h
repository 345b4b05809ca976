/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves mmesh.ModelMesh and manifests on addresses apart from those of inference:
 *
 *   - always on a unix socket beside the counters file, for the node's own user, which may stop the
 * node anyway; shoalctl finds it there;
 *   - on the addresses of `mesh: management` that are not in `listen`: unix sockets and those with
 *     `plain: yes` in the clear, others with the TLS of callers, if there is one. Over TLS `allow`
 *     decides;
 *   - at the front, if `mesh: management` has all of `listen`, or the environment asks for it:
 *     `at_front`. Manifests are not served there.
 *
 * Its calls arrive on a front thread (DESIGN.md, decision of 2026-11-24). Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"
#include "rpc/rpc.h"

struct mesh_management;
struct mesh_manage;
struct mesh_manifests;
struct pending;

enum { MANAGEMENT_LISTEN_MAX = CONFIG_LISTEN_MAX + 1, MANAGEMENT_PATH_BYTES = 120 };

/* The addresses to serve, by kind. Texts are the configuration's, or `beside`. */
struct management_place {
    char beside[MANAGEMENT_PATH_BYTES]; /* "unix:PATH" */
    const char *plain[MANAGEMENT_LISTEN_MAX];
    uint32_t plain_count;
    const char *secured[MANAGEMENT_LISTEN_MAX];
    uint32_t secured_count;
    bool at_front;
};

/* `listen` is the front's. INVALID_ARGUMENT: only a part of it is for management, or the path of
 * the counters file is too long. Pure. */
enum status management_place_find(const struct config *config, const char *counters_path,
                                  const char *const *listen, uint32_t listen_count,
                                  struct management_place *place, struct error *error) WARN_UNUSED;

struct management_options {
    const struct config *config;
    const struct management_place *place; /* kept */
    struct mesh_manage *manage;
    struct mesh_manifests *manifests;
    struct pending *pending;
    struct rpc_tls *tls;     /* of callers; NULL: none */
    struct rpc_queue *queue; /* a front thread's, not stepped yet */
    enum rpc_accept accept;
};

/* Binds all addresses. */
enum status management_create(const struct management_options *options,
                              struct mesh_management **created, struct error *error) WARN_UNUSED;
/* Begins to accept, after RPC_ACCEPT_LATER. */
void management_accept(struct mesh_management *management);
/* Like rpc_server_part(). */
void management_part(struct mesh_management *management);
/* Sets the health that its servers report. */
void management_set_serving(struct mesh_management *management, bool serving);
/* Connections closed at once, because there were too many. */
uint64_t management_refused(const struct mesh_management *management);
/* Ends the servers. Call once, when no order is to be taken any more and while the queue is still
 * stepped, or will be. */
void management_end(struct mesh_management *management);
/* Call after management_end, when the queue has ended. NULL is ignored. */
void management_destroy(struct mesh_management *management);
