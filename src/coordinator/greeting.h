/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows the user who ran `shoald serve` where the node answers and, of each model that is loaded,
 * its tensors and a command that calls it, or why there is none. Lines go to the log's writer, so
 * nobody waits for the reader. Loop thread.
 */
#pragma once

#include <stdint.h>

#include "coordinator/config/config.h"
#include "coordinator/models/models.h"

enum { GREETED_MODELS_MAX = 20 };

struct pipeline;

struct greeting {
    struct model_registry *registry;
    const char *http; /* "127.0.0.1:8008"; NULL: REST is not served */
    uint64_t message_bytes_max;
    uint32_t models; /* announced */
};

/* Call once the node is ready. Prints where it serves and the models of pipelines that have only
 * one; from now on also each model that is loaded. The registry and the configuration outlive
 * it. */
void greeting_start(struct greeting *greeting, const struct config *config,
                    struct model_registry *registry, struct pipeline *const *pipelines,
                    uint32_t count);
