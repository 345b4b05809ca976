/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/models/model.h"
#include "coordinator/pipeline/pipeline.h"

/* Call with the lock. */
static struct oip_model_info
info_of(const struct model *model)
{
    if (model->info == NULL)
        return (struct oip_model_info){.name = model->name, .version = "1", .platform = ""};
    struct oip_model_info info = model->info->oip;
    info.rows_max = model->rows_max;
    return info;
}

/* Call with the lock. The texts are copied: they change while the model is looked at. */
static void
notify_versions(const struct model *model, struct oip_model_info *info,
                struct model_description *reported)
{
    if (model->info == NULL && model->source.release[0] != '\0') {
        snprintf(reported->version, sizeof(reported->version), "%s", model->source.release);
        info->version = reported->version;
    }
    if (model->releases != NULL) {
        snprintf(reported->versions, sizeof(reported->versions), "%s", model->releases);
        info->versions = reported->versions;
    }
}

bool
registry_describe(struct model_registry *registry, const struct model_name *name,
                  struct oip_model_info *info, struct model_description *reported)
{
    registry_lock(registry);
    struct model *model = registry_find_named(registry, name);
    bool there = model_is_there(model);
    if (there) {
        const struct pipeline *pipeline = model->catalog->pipeline;
        model->place.users++;
        *info = info_of(model);
        notify_versions(model, info, reported);
        reported->ready =
            model->place.state == MODEL_IS_LOADED && !atomic_load(&pipeline->draining);
        reported->model = model;
    }
    registry_unlock(registry);
    if (!there)
        return false;
    struct lane *lane = pipeline_lane(model->catalog->pipeline);
    reported->ready = reported->ready && lane != NULL && atomic_load(&lane->dead_stages) == 0;
    if (lane != NULL)
        lane_unref(lane);
    return true;
}

void
model_set_releases(struct model *model, const char *releases)
{
    char *copy = releases != NULL ? strdup(releases) : NULL;
    CHECK(releases == NULL || copy != NULL);
    registry_lock(model->registry);
    free(model->releases);
    model->releases = copy;
    registry_unlock(model->registry);
}

struct oip_model_info
model_info(const struct lane *lane, struct model *model)
{
    registry_lock(model->registry);
    bool is_known = model->info != NULL;
    struct oip_model_info info = info_of(model);
    registry_unlock(model->registry);
    if (is_known)
        return info;
    struct oip_model_info of_lane = lane->info;
    of_lane.name = model->name;
    of_lane.version = NULL; /* known when it is loaded */
    return of_lane;
}

enum status
models_configure(struct model_registry *registry, const char *id, const struct sidecar *settings,
                 struct error *error)
{
    struct model *model = registry_find(registry, id);
    if (model == NULL || model->info == NULL || model->place.state != MODEL_IS_LOADED)
        return error_set(error, STATUS_ABORTED, "it was unloaded meanwhile: try again");
    if (settings != NULL && sidecar_check_loaded(settings, &model->info->oip, error) != STATUS_OK)
        return error_prefix(error, "config");
    const struct sidecar_tensors *tensors =
        settings != NULL ? &settings->tensors : model->source.tensors;
    registry_lock(registry);
    model->rows_max = tensors != NULL ? tensors->rows_max : 0;
    registry_unlock(registry);
    return STATUS_OK;
}
