/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models of pipelines, as pipelines and lanes use them: a table of functions that models/ fills
 * (models/catalog.h) and the assembly hands over with the pipeline's options. Nothing in pipeline/
 * calls models/ in any other way, so calls by name go in one direction only: from models/ to here.
 * A catalog is the models of one pipeline. A NULL catalog, that of a pipeline without models, is
 * allowed everywhere and does nothing. Loop thread, except for the request path.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/protocol/oip.h"
#include "shm/word.h"

struct catalog;
struct config_pipeline;
struct lane;
struct model;
struct pipeline;
struct request;

/* Says whether a request has a place among those that may wait for their models
 * (`lane.models_waiting`). */
enum wait_place { WAIT_PLACE_NONE, WAIT_PLACE_RESERVED };

struct pipeline_models {
    /* Creates the pipeline's catalog; `*catalog` is NULL if its configuration has no `models`. */
    enum status (*create)(void *context, struct pipeline *pipeline, struct catalog **catalog,
                          struct error *error);
    /* Called after the pipeline has stopped; nobody waits any more. */
    void (*destroy)(struct catalog *catalog);
    /* The pipeline stops: ends all waiting requests. */
    void (*stop)(struct catalog *catalog);
    void (*publish)(struct catalog *catalog);
    /* Checks that a generation of that configuration may take over. */
    enum status (*accepts)(const struct catalog *catalog, const char *name,
                           const struct config_pipeline *config, struct error *error);
    /* A lane serves, or a reload has ended: resumes loads and unloads that waited for that. */
    void (*go_on)(struct catalog *catalog);

    /* ---- the request path; `model` is that of a submission or a request ---- */

    /* Checks that a request for the model may be admitted. WAIT_PLACE_RESERVED: it may have to wait
     * and has a place for that, which lane_return_wait_place returns or `sends` uses up. */
    enum status (*admit)(struct lane *lane, struct model *model, enum wait_place *place,
                         struct error *error);
    /* The model's tensors as far as known. Valid until the model is left. */
    struct oip_model_info (*info)(const struct lane *lane, struct model *model);
    /* True: the complete and admitted request may be pushed. False: it waits now, and the slot no
     * longer belongs to the calling thread. */
    bool (*sends)(struct request *request, struct shm_ticket ticket, enum wait_place place);
    /* A worker of `stage` did not hold the model; the slot was popped from PLACE_ERROR, and the
     * request is in flight. */
    void (*came_back)(struct request *request, struct shm_ticket ticket, uint32_t stage);
    /* The request has been answered, `took_ns` after it came. */
    void (*end)(struct request *request, enum status status, int64_t took_ns);

    void *context; /* of `create`: the node's registry of models */
};
