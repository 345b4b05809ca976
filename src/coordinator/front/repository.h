/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Triton's extensions that are about models: index, load, unload, configuration, statistics. A call
 * of gRPC or REST is handed to the loop thread, which alone knows and changes what is loaded, and
 * answered there: one a turn, and a list in parts, which supervision need not wait for.
 *
 * Threads. repository_take on any thread; everything else on the loop thread.
 */
#pragma once

#include "coordinator/config/config.h"
#include "coordinator/entry/inbound.h"
#include "coordinator/protocol/triton.h"
#include "ipc/counters.h"
#include "loop/loop.h"

struct model_directories;
struct model_registry;
struct repository;

/* The answer to orders to load and unload by name. In a mesh, which says what is loaded, they are
 * refused. */
enum repository_rule { REPOSITORY_OPEN, REPOSITORY_CONTROL_OFF, REPOSITORY_OF_MESH };

struct repository_options {
    struct loop *loop;
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct model_registry *registry;
    struct model_directories *const *directories; /* NULL there: nothing is watched */
    enum repository_rule rule;
    uint32_t waiting_max;            /* calls that are not answered yet */
    const struct counters *counters; /* the node's */
};

struct repository *repository_create(const struct repository_options *options);
/* Refuses all calls that wait, and all later ones. NULL is ignored. */
void repository_stop(struct repository *repository);
/* Call when nothing takes calls any more and the loop has run what was posted to it. NULL is
 * ignored. */
void repository_destroy(struct repository *repository);

/* Answers or refuses the call, on this thread or later on the loop thread. RESOURCE_EXHAUSTED: too
 * many wait; PERMISSION_DENIED names the key that permits it. */
void repository_take(struct repository *repository, const struct inbound *inbound,
                     const struct triton_request *request);
