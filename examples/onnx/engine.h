/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ONNX Runtime, of which a process has one: its functions, its environment, how sessions are to be
 * made, and its errors as statuses of gRPC. All of it is made in `engine_open`, on one thread,
 * and only read afterwards, by any thread. What ONNX Runtime logs goes to the host's log.
 */
#pragma once

#include <onnxruntime_c_api.h>
#include <shoal/modelet.h>
#include <stdbool.h>

struct engine_options {
    int intra_threads; /* that share the work of one operator */
    int inter_threads; /* that run operators side by side */
    GraphOptimizationLevel optimization;
    bool batches;    /* items of models that can may be put side by side */
    bool prepacking; /* weights are laid out anew for this processor, in memory of the worker */
};

struct engine {
    const struct shoal_host *host;
    const OrtApi *api;
    OrtEnv *env;             /* the process's: it stays */
    OrtMemoryInfo *memory;   /* plain memory of this process */
    OrtAllocator *allocator; /* of names; the library's own, never released */
    OrtRunOptions *run_options;
    struct engine_options options;
};

/* `engine` is zeroed; after a failure, too, it is to be closed. */
int engine_open(struct engine *engine, const struct engine_options *options,
                const struct shoal_host *host, struct shoal_error *error);
void engine_close(struct engine *engine);

/* Options for one session; the caller's to release. NULL: `error` says why. */
OrtSessionOptions *engine_session_options(const struct engine *engine, struct shoal_error *error);

/* Takes what a function of ONNX Runtime returned: SHOAL_OK, or the status that comes nearest, and
 * the first line of its text. */
int engine_status(const struct engine *engine, OrtStatus *status, struct shoal_error *error);
