/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers of mmesh.ModelRuntime, as bytes. Loop thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "coordinator/models/models.h"

enum { RUNTIME_ANSWER_BYTES = 32 };

/* The answer of loadModel; predictModelSize and modelSize answer with its first field. */
size_t runtime_answer_facts(const struct model_facts *facts,
                            unsigned char message[RUNTIME_ANSWER_BYTES]);

/* The figures of all pipelines with models together, which to a mesh are one runtime. */
struct runtime_figures {
    uint64_t capacity_bytes;
    uint64_t default_bytes;
    uint32_t load_concurrency;
    uint32_t load_timeout_ms;
    bool are_serving; /* all of them are ready for loads */
};
struct runtime_figures runtime_figures(struct pipeline *const *pipelines, uint32_t count);

enum runtime_state { RUNTIME_STARTING, RUNTIME_READY, RUNTIME_FAILING };

/* The answer of runtimeStatus, to be freed; more than the state only for RUNTIME_READY. */
void *runtime_answer_status(struct pipeline *const *pipelines, uint32_t count,
                            enum runtime_state state, size_t *bytes);
