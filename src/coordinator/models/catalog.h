/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models of a pipeline, in addition to models.h: the tables through which pipelines, lanes and
 * places use them, and the functions behind these that models/ calls itself. A NULL catalog, that
 * of a pipeline without models, is allowed everywhere and does nothing.
 */
#pragma once

#include "coordinator/pipeline/pipeline_models.h"
#include "coordinator/workers/member_models.h"

struct model_registry;

/* Returns the value of `pipeline_options.models`. */
struct pipeline_models registry_pipeline_models(struct model_registry *registry);
/* The argument of worker_pools_lane_workers. */
extern const struct member_models catalog_member_models;

/* ---- loop thread ---- */

/* See pipeline_models.h. */
void catalog_publish(struct catalog *catalog);
enum status catalog_accepts(const struct catalog *catalog, const char *name,
                            const struct config_pipeline *config, struct error *error) WARN_UNUSED;
void catalog_go_on(struct catalog *catalog);

/* See member_models.h. */
const char *catalog_root(const struct catalog *catalog);
const char *catalog_cache(const struct catalog *catalog);
/* The name of its pipeline. */
const char *catalog_pipeline(const struct catalog *catalog);
bool catalog_worker_is_busy(const struct pool_member *member);

/* ---- the request path: see pipeline_models.h ---- */

enum status model_admit(struct lane *lane, struct model *model, enum wait_place *place,
                        struct error *error) WARN_UNUSED;
struct oip_model_info model_info(const struct lane *lane, struct model *model);
bool model_sends(struct request *request, struct shm_ticket ticket, enum wait_place place);
void model_came_back(struct request *request, struct shm_ticket ticket, uint32_t stage);
void model_end(struct request *request, enum status status, int64_t took_ns);
