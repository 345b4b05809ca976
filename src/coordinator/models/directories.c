/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/directories.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/models/catalog.h"
#include "coordinator/models/model_directory.h"
#include "coordinator/models/models.h"
#include "coordinator/models/releases.h"
#include "coordinator/pipeline/pipeline.h"

struct directories_watched {
    struct model_directories *all;
    const struct pipeline *pipeline;
    struct model_directory *directory; /* NULL: not watched */
};

struct model_directories {
    struct model_registry *registry; /* NULL: a release that cannot be loaded has no substitute */
    struct pipeline *const *pipelines;
    uint32_t count;
    struct releases *releases;
    struct directories_watched watched[CONFIG_PIPELINES_MAX];
};

static const struct config_models *
config_of(const struct pipeline *pipeline)
{
    return &pipeline->generation->config->models;
}

static bool
is_watched(const struct pipeline *pipeline)
{
    const char *watch = config_of(pipeline)->watch;
    return pipeline->catalog != NULL && (watch == NULL || watch[0] != 'n');
}

static bool
share_root(const struct pipeline *one, const struct pipeline *other)
{
    return one->catalog != NULL && other->catalog != NULL &&
           strcmp(catalog_root(one->catalog), catalog_root(other->catalog)) == 0;
}

/* The pipeline that a model of that type belongs to; NULL: none. */
static const struct pipeline *
taker_of(const struct directories_watched *asker, const char *type)
{
    const struct model_directories *all = asker->all;
    const struct pipeline *without_types = NULL;
    uint32_t sharers = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        const struct pipeline *pipeline = all->pipelines[i];
        if (!share_root(pipeline, asker->pipeline))
            continue;
        if (type[0] != '\0' && models_take_type(pipeline->catalog, type))
            return pipeline;
        if (without_types == NULL && config_of(pipeline)->type_count == 0)
            without_types = pipeline;
        sharers++;
    }
    return sharers == 1 ? asker->pipeline : without_types;
}

/* Returns true for the one of the pipelines that look at its root that logs what concerns all of
 * them. */
static bool
speaks_for_root(const struct directories_watched *asker)
{
    const struct model_directories *all = asker->all;
    uint32_t i = 0;
    while (!is_watched(all->pipelines[i]) || !share_root(all->pipelines[i], asker->pipeline))
        i++;
    return all->pipelines[i] == asker->pipeline;
}

static enum directory_listing
refuse_type(const char *type, struct error *error)
{
    if (type[0] == '\0')
        error_set(error, STATUS_INVALID_ARGUMENT,
                  "no pipeline of this root takes it: its key.json names no model_type, and its "
                  "files have no known format");
    else
        error_set(error, STATUS_INVALID_ARGUMENT,
                  "no pipeline of this root has type '%s' in its types", type);
    return LISTING_REFUSED;
}

/* Its type has changed: the pipeline that had listed it unlists it now. */
static bool
take_from_others(const struct directories_watched *asker, const char *id)
{
    const struct model_directories *all = asker->all;
    bool taken = false;
    for (uint32_t i = 0; i < all->count; i++)
        if (all->pipelines[i] != asker->pipeline && share_root(all->pipelines[i], asker->pipeline))
            taken = releases_unlist(all->releases, all->pipelines[i]->catalog, id) || taken;
    return taken;
}

static enum directory_listing
list(void *context, const struct directory_model *model, struct error *error)
{
    const struct directories_watched *asker = context;
    const struct model_spec *spec = &model->spec;
    const char *type = model->type;
    struct releases *releases = asker->all->releases;
    struct catalog *catalog = asker->pipeline->catalog;
    const struct pipeline *taker = taker_of(asker, type);
    if (taker == NULL && models_is_listed(catalog, spec->id)) {
        enum directory_listing refused = refuse_type(type, error);
        models_keep(catalog, spec->id, error);
        return refused;
    }
    if (taker != asker->pipeline) {
        (void)releases_unlist(releases, catalog, spec->id);
        return taker == NULL && speaks_for_root(asker) ? refuse_type(type, error) : LISTING_OTHERS;
    }
    enum status status = releases_list(releases, catalog, model, error);
    if (status == STATUS_OK)
        return LISTING_DONE;
    bool is_later = status == STATUS_ABORTED ||
                    (status == STATUS_ALREADY_EXISTS && take_from_others(asker, spec->id));
    return is_later ? LISTING_LATER : LISTING_REFUSED;
}

static void
unlist(void *context, const char *id)
{
    const struct directories_watched *asker = context;
    (void)releases_unlist(asker->all->releases, asker->pipeline->catalog, id);
}

/* All pipelines of the root see the same: the one that lists it keeps it, else one logs it. */
static enum directory_listing
refuse(void *context, const char *id, const struct error *why)
{
    const struct directories_watched *asker = context;
    const struct model_directories *all = asker->all;
    if (models_is_listed(asker->pipeline->catalog, id)) {
        models_keep(asker->pipeline->catalog, id, why);
        return LISTING_DONE;
    }
    for (uint32_t i = 0; i < all->count; i++)
        if (share_root(all->pipelines[i], asker->pipeline) &&
            models_is_listed(all->pipelines[i]->catalog, id))
            return LISTING_OTHERS;
    return speaks_for_root(asker) ? LISTING_REFUSED : LISTING_OTHERS;
}

static enum status
watch(struct directories_watched *watched, struct loop *loop, struct error *error)
{
    const struct pipeline *pipeline = watched->pipeline;
    const struct model_directory_options options = {.loop = loop,
                                                    .pipeline = pipeline->name,
                                                    .root = pipeline->options.config->models.root,
                                                    .id = pipeline->options.config->models.id,
                                                    .list = list,
                                                    .unlist = unlist,
                                                    .refuse = refuse,
                                                    .context = watched};
    return model_directory_create(&options, &watched->directory, error);
}

static bool
fall_back(void *context, const char *id, const char *release)
{
    const struct model_directories *all = context;
    return releases_fall_back(all->releases, id, release);
}

enum status
model_directories_create(struct loop *loop, struct model_registry *registry,
                         struct pipeline *const *pipelines, uint32_t count,
                         struct model_directories **created, struct error *error)
{
    struct model_directories *all = calloc(1, sizeof(*all));
    CHECK(all != NULL && count <= ARRAY_COUNT(all->watched));
    all->pipelines = pipelines;
    all->count = count;
    all->releases = releases_create();
    all->registry = registry;
    if (registry != NULL)
        registry_on_broken(registry, fall_back, all);
    *created = all;
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < count && status == STATUS_OK; i++) {
        all->watched[i] = (struct directories_watched){.all = all, .pipeline = pipelines[i]};
        if (is_watched(pipelines[i]))
            status = watch(&all->watched[i], loop, error);
    }
    return status;
}

uint32_t
model_directories_refused(const struct model_directories *directories)
{
    uint32_t refused = 0;
    for (uint32_t i = 0; i < directories->count; i++)
        if (directories->watched[i].directory != NULL)
            refused += model_directory_refused(directories->watched[i].directory);
    return refused;
}

void
model_directories_destroy(struct model_directories *directories)
{
    if (directories == NULL)
        return;
    if (directories->registry != NULL)
        registry_on_broken(directories->registry, NULL, NULL);
    for (uint32_t i = 0; i < directories->count; i++)
        model_directory_destroy(directories->watched[i].directory);
    releases_destroy(directories->releases);
    free(directories);
}

enum status
model_directories_roll_back(struct model_directories *directories, const char *id,
                            struct releases_step *step, struct error *error)
{
    return releases_roll_back(directories->releases, id, step, error);
}

enum status
model_directories_judge_policy(const struct model_directories *directories, const char *id,
                               const struct release_policy *policy, bool *is_other,
                               struct error *error)
{
    return releases_judge_policy(directories->releases, id, policy, is_other, error);
}

enum status
model_directories_set_policy(struct model_directories *directories, const char *id,
                             const struct release_policy *policy, struct error *error)
{
    return releases_set_policy(directories->releases, id, policy, error);
}
