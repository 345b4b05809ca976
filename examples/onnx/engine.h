/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ONNX Runtime in this process: its functions, its environment, the options of sessions, and its
 * errors as gRPC statuses. Everything is made in `engine_open`, on one thread, and only read
 * afterwards, by any thread. ONNX Runtime's messages go to the host's log.
 */
#pragma once

#include <shoal/modelet.h>
#include <stdbool.h>

#include "ort_api.h"

struct engine_options {
    int intra_threads; /* share the work of one operator */
    int inter_threads; /* run operators side by side */
    GraphOptimizationLevel optimization;
    bool batches;    /* concatenate items of models that allow it */
    bool prepacking; /* lay weights out anew for this processor, in the worker's memory */
};

struct engine {
    const struct shoal_host *host;
    const OrtApi *api;       /* NULL: there is no library, and every load fails */
    OrtEnv *env;             /* the process's; never released */
    OrtMemoryInfo *memory;   /* plain memory of this process */
    OrtAllocator *allocator; /* for names; the library's own, never released */
    OrtRunOptions *run_options;
    struct engine_options options;
};

/* `engine` must be all zero; close it even after a failure. If there is no library, and none is
 * asked for, the engine is open and can load nothing. */
int engine_open(struct engine *engine, const struct engine_options *options,
                const struct shoal_host *host, struct shoal_error *error);
/* FAILED_PRECONDITION if there is no library: the text says how to get one. */
int engine_check(const struct engine *engine, struct shoal_error *error);
void engine_close(struct engine *engine);

/* Returns options for one session, which the caller releases. NULL: see `error`. */
OrtSessionOptions *engine_session_options(const struct engine *engine, struct shoal_error *error);

/* Consumes the result of an ONNX Runtime function. Returns SHOAL_OK, or the nearest status with the
 * first line of its text. */
int engine_status(const struct engine *engine, OrtStatus *status, struct shoal_error *error);
