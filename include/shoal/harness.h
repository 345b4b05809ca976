/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host for one modelet in plain memory, for modelet authors' tests: it loads the
 * plug-in, opens it, and runs batches through it, with a whole host table behind
 * include/shoal/modelet.h, but no region, no worker process and no service. Several may be open at
 * once, one per stage.
 *
 * It holds the modelet to its contract: writing behind a tensor, changing an input without having
 * declared it, or a status that does not exist ends the test by abort(), with the reason on stderr.
 * It treats a request as a service would: an item left unset fails alone, a batch that fails as a
 * whole is run again in halves, a failed item has no outputs.
 */
#ifndef SHOAL_HARNESS_H
#define SHOAL_HARNESS_H

#include <shoal/modelet.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SHOAL_HARNESS_BATCH_MAX = 256 };

struct shoal_harness;

struct shoal_harness_options {
    const char *path;   /* of the plug-in */
    const char *folder; /* what relative paths of the configuration are relative to */
    uint32_t batch_size;
    const struct shoal_param *params;
    uint32_t param_count;
};

struct shoal_harness_item {
    struct shoal_item item; /* first: what the modelet sees, status included */
    struct shoal_error error;
    struct shoal_harness *harness;
    struct shoal_tensor inputs[SHOAL_TENSORS_MAX];
    struct shoal_tensor outputs[SHOAL_TENSORS_MAX];
    uint32_t output_count;
    const char *parameter_name; /* one parameter is enough for tests; NULL: none */
    struct shoal_parameter parameter;
    int cancelled;
    struct shoal_harness_item *next; /* of the harness's */
    uint32_t piece_count;            /* emitted; they are not among `outputs` */
    /* Called for each piece, which `outputs` are then; NULL: pieces are dropped. */
    void (*on_piece)(struct shoal_harness_item *item);
};

/* Refuses a plug-in as the service does (FAILED_PRECONDITION), or returns what its `open` did. */
int shoal_harness_open(const struct shoal_harness_options *options, struct shoal_harness **harness,
                       struct shoal_error *error);
/* Closes the modelet and frees all items. */
void shoal_harness_close(struct shoal_harness *harness);

const struct shoal_modelet *shoal_harness_modelet(const struct shoal_harness *harness);
/* The modelet's declaration; zeroed if it declares nothing. */
struct shoal_io shoal_harness_describe(struct shoal_harness *harness);

/* Loads a model, which what is run from then on is for; NULL: none any more. Unloads the one
 * before. Returns what `load` did. */
int shoal_harness_load(struct shoal_harness *harness, const char *path, struct shoal_error *error);

/* The modelet's description of the loaded model; and its prediction of a model's size. */
struct shoal_io shoal_harness_describe_model(struct shoal_harness *harness);
uint64_t shoal_harness_predict_size(struct shoal_harness *harness, const char *path);

/* Limits the bytes of outputs that one run may make before the host says that the arena is full. */
void shoal_harness_limit(struct shoal_harness *harness, size_t output_bytes_max);

/* A new item, the harness's own. */
struct shoal_harness_item *shoal_harness_item(struct shoal_harness *harness);
/* Adds a copy of a tensor to its inputs; `bytes` follow from type and shape but for SHOAL_BYTES. */
void shoal_harness_input(struct shoal_harness_item *item, const char *name, uint32_t datatype,
                         uint32_t rank, const int64_t *shape, const void *data);
void shoal_harness_input_bytes(struct shoal_harness_item *item, const char *name, uint32_t rank,
                               const int64_t *shape, const void *data, size_t bytes);
/* A new item of the next stage, its inputs the outputs of `item`. */
struct shoal_harness_item *shoal_harness_forward(const struct shoal_harness_item *item,
                                                 struct shoal_harness *next);

/* Runs 1 … SHOAL_HARNESS_BATCH_MAX items as one batch, or one by one if the modelet does not run
 * batches. Then each has its status and, with SHOAL_OK, its outputs; may be repeated. */
void shoal_harness_run(struct shoal_harness *harness, struct shoal_harness_item *const *items,
                       uint32_t count);
/* Returns how often the modelet's `run` was called since it was opened. */
uint64_t shoal_harness_runs(const struct shoal_harness *harness);

/* The output of that name; NULL if there is none. */
const struct shoal_tensor *shoal_harness_output(const struct shoal_harness_item *item,
                                                const char *name);

#ifdef __cplusplus
}
#endif

#endif
