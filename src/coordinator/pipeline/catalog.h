/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of a pipeline, its lanes and its seats on their models, beside models.h. Defined
 * in models/, and declared down here because they stand below that. Each function takes a catalog
 * that is NULL, of a pipeline without models, and does nothing then. Loop thread, but for the
 * request path.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/protocol/oip.h"
#include "shm/word.h"

struct catalog;
struct config_pipeline;
struct holder;
struct lane;
struct model;
struct pipeline;
struct registry;
struct request;
struct roster;
struct seat;

/* The pipeline's, by its configuration; `*catalog` NULL: it has none. */
enum status catalog_create(struct registry *registry, struct pipeline *pipeline,
                           struct catalog **catalog, struct error *error) WARN_UNUSED;
/* When the pipeline has stopped: whoever waited has been told. */
void catalog_destroy(struct catalog *catalog);
/* The pipeline stops: whoever waits is told so. */
void catalog_stop(struct catalog *catalog);
void catalog_publish(struct catalog *catalog);

/* The root that its workers may read; "": none. */
const char *catalog_root(const struct catalog *catalog);

/* ---- the pipeline's lanes ---- */

/* Whether a generation of that configuration may take over. */
enum status catalog_accepts(const struct catalog *catalog, const char *name,
                            const struct config_pipeline *config, struct error *error) WARN_UNUSED;
/* A lane serves, or a reload has ended: what waited for that goes on. */
void catalog_go_on(struct catalog *catalog);
/* FAILED_PRECONDITION: no stage loads models. UNAVAILABLE: the workers of a lane that is to take
 * over have not all that are loaded; roster_check_complete is called again when they have more. */
enum status catalog_lane_complete(struct catalog *catalog, const struct roster *roster,
                                  struct error *error) WARN_UNUSED;

/* ---- its seats ---- */

/* Before a process is started there. */
void catalog_on_seat_start(struct catalog *catalog, struct seat *seat);
void catalog_on_seat_ready(struct catalog *catalog, struct seat *seat);
/* Its process is dead, and reaped. True: of loading a model, and nothing else is charged with it.
 */
bool catalog_on_seat_death(struct catalog *catalog, struct seat *seat, bool from_outside);
/* Its process has been told to load or unload something, and has not said how that went. */
bool catalog_seat_is_busy(const struct seat *seat);
/* The seat is empty, and its successor decided upon. */
void catalog_on_seat_left(struct catalog *catalog, struct seat *seat);

/* ---- the request path ---- */

/* Whether a request for it may come in. It may have to wait then: `*reserved`, which is to be given
 * back with model_unreserve or spent by model_sends. Else the refusal. */
enum status model_admit(struct lane *lane, struct model *model, bool *reserved,
                        struct error *error) WARN_UNUSED;
void model_unreserve(struct lane *lane);
/* The tensors of the model, as far as they are known. Valid until model_leave. */
struct oip_model_info model_info(const struct lane *lane, struct model *model);
const char *model_id(const struct model *model);
/* The request, which is complete and admitted, may be pushed; false: it waits now, and the slot is
 * not the caller's any more. */
bool model_sends(struct request *request, struct shm_ticket ticket, bool reserved);
/* A worker of `stage` did not hold the model; the slot has been popped from PLACE_ERROR, and the
 * request is in flight. */
void model_came_back(struct request *request, struct shm_ticket ticket, uint32_t stage);
/* The request has been answered. */
void model_end(struct request *request);
