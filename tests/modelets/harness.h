/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host for one modelet in plain memory, for modelet authors' tests: it loads the
 * plug-in, opens it, and runs batches through it, with a whole host table behind
 * include/shoal/modelet.h, but no region, no worker process and no service. Several may be open at
 * once, one per stage.
 *
 * It holds the modelet to its contract: writing behind a tensor, changing an input without having
 * declared it, or a status that does not exist fails the test that runs. It treats a request as a
 * service would: an item left unset fails alone, a batch that fails as a whole is run again in
 * halves, a failed item has no outputs.
 */
#pragma once

#include <shoal/modelet.h>

enum { HARNESS_BATCH_MAX = 256 };

struct harness;

struct harness_options {
    const char *path;   /* of the plug-in */
    const char *folder; /* what relative paths of the configuration are relative to */
    uint32_t batch_size;
    const struct shoal_param *params;
    uint32_t param_count;
};

struct harness_item {
    struct shoal_item item; /* first: what the modelet sees, status included */
    struct shoal_error error;
    struct harness *harness;
    struct shoal_tensor inputs[SHOAL_TENSORS_MAX];
    struct shoal_tensor outputs[SHOAL_TENSORS_MAX];
    uint32_t output_count;
    const char *parameter_name; /* one parameter is enough for tests; NULL: none */
    struct shoal_parameter parameter;
    int cancelled;
    struct harness_item *next; /* of the harness's */
};

/* Refuses a plug-in as the service does (FAILED_PRECONDITION), or returns what its `open` did. */
int harness_open(const struct harness_options *options, struct harness **harness,
                 struct shoal_error *error);
/* Closes the modelet and frees all items. */
void harness_close(struct harness *harness);

const struct shoal_modelet *harness_modelet(const struct harness *harness);
/* The modelet's declaration; zeroed if it declares nothing. */
struct shoal_io harness_describe(struct harness *harness);

/* Loads a model, which what is run from then on is for; NULL: none any more. Unloads the one
 * before. Returns what `load` did. */
int harness_load(struct harness *harness, const char *path, struct shoal_error *error);

/* The modelet's description of the loaded model; and its prediction of a model's size. */
struct shoal_io harness_describe_model(struct harness *harness);
uint64_t harness_predict_size(struct harness *harness, const char *path);

/* How many bytes of outputs one run may make before the host says that the arena is full. */
void harness_limit(struct harness *harness, size_t output_bytes_max);

/* A new item, the harness's own. */
struct harness_item *harness_item(struct harness *harness);
/* Adds a copy of a tensor to its inputs; `bytes` follow from type and shape but for SHOAL_BYTES. */
void harness_input(struct harness_item *item, const char *name, uint32_t datatype, uint32_t rank,
                   const int64_t *shape, const void *data);
void harness_input_bytes(struct harness_item *item, const char *name, uint32_t rank,
                         const int64_t *shape, const void *data, size_t bytes);
/* A new item of the next stage, its inputs the outputs of `item`. */
struct harness_item *harness_forward(const struct harness_item *item, struct harness *next);

/* Runs 1 … HARNESS_BATCH_MAX items as one batch, or one by one if the modelet does not run batches.
 * Then each has its status and, with SHOAL_OK, its outputs; may be repeated. */
void harness_run(struct harness *harness, struct harness_item *const *items, uint32_t count);
/* How often the modelet's `run` was called since it was opened. */
uint64_t harness_runs(const struct harness *harness);

/* The output of that name; NULL if there is none. */
const struct shoal_tensor *harness_output(const struct harness_item *item, const char *name);
