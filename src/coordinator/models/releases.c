/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/releases.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/hash_table.h"
#include "base/log.h"
#include "coordinator/models/catalog.h"

enum {
    SERVED_MAX = RELEASE_POLICY_MAX, /* of a model at once */
    ID_BYTES = SHOAL_NAME_BYTES_MAX + 1 + LOOK_RELEASE_BYTES,
};
static_assert(SERVED_MAX * MODEL_RELEASE_BYTES == MODEL_RELEASES_BYTES, "the text of them fits");
static_assert((int)LOOK_RELEASE_BYTES == (int)MODEL_RELEASE_BYTES, "they are the same numbers");

struct release {
    struct look_release seen;
    bool withdrawn; /* by a rollback, until it changes */
    bool broken;    /* it could not be loaded when there was no other */
};

struct releases_served {
    uint32_t count;
    const struct look_release *at[SERVED_MAX]; /* the default first */
};

/* A model that has releases. */
struct released {
    struct hash_entry entry;
    struct catalog *catalog; /* that lists it */
    char *id, *path, *key;
    struct release there[LOOK_RELEASES_MAX]; /* the highest first */
    uint32_t there_count;
    struct release_policy policy;       /* by which they are chosen */
    struct release_policy files_policy; /* that of the model's files */
    struct sidecar_tensors tensors;
    char beside[SERVED_MAX][LOOK_RELEASE_BYTES]; /* listed under ids of their own */
    uint32_t beside_count;
};

struct releases {
    struct hash_table models; /* by id */
};

struct releases *
releases_create(void)
{
    struct releases *releases = calloc(1, sizeof(*releases));
    CHECK(releases != NULL);
    return releases;
}

/* ---- the table ---- */

static uint64_t
hash_of(const char *id)
{
    return hash_fnv1a(HASH_FNV1A_SEED, id, strlen(id));
}

static struct released *
find(const struct releases *releases, const char *id)
{
    struct hash_entry *entry = hash_table_first(&releases->models, hash_of(id));
    while (entry != NULL && strcmp(((struct released *)entry)->id, id) != 0)
        entry = hash_table_next(entry);
    return (struct released *)entry;
}

static void
set_text(char **text, const char *to)
{
    char *copy = strdup(to);
    CHECK(copy != NULL);
    free(*text);
    *text = copy;
}

static struct released *
have(struct releases *releases, const char *id)
{
    struct released *model = find(releases, id);
    if (model != NULL)
        return model;
    model = calloc(1, sizeof(*model));
    CHECK(model != NULL);
    set_text(&model->id, id);
    hash_table_add(&releases->models, &model->entry, hash_of(id));
    return model;
}

static void
drop(struct releases *releases, struct released *model)
{
    hash_table_remove(&releases->models, &model->entry);
    free(model->id);
    free(model->path);
    free(model->key);
    free(model);
}

void
releases_destroy(struct releases *releases)
{
    if (releases == NULL)
        return;
    struct hash_entry *entry;
    while ((entry = hash_table_walk(&releases->models, NULL)) != NULL)
        drop(releases, (struct released *)entry);
    hash_table_fini(&releases->models);
    free(releases);
}

/* ---- which are served ---- */

/* A withdrawn release stays withdrawn while its files are the same. */
static void
take_releases(struct released *model, const struct directory_model *seen)
{
    struct release before[LOOK_RELEASES_MAX];
    uint32_t before_count = model->there_count;
    CHECK(seen->release_count <= LOOK_RELEASES_MAX);
    memcpy(before, model->there, sizeof(before));
    model->there_count = seen->release_count;
    for (uint32_t i = 0; i < seen->release_count; i++) {
        struct release *release = &model->there[i];
        *release = (struct release){.seen = seen->releases[i]};
        for (uint32_t k = 0; k < before_count; k++)
            if (strcmp(before[k].seen.number, release->seen.number) == 0 &&
                before[k].seen.version == release->seen.version)
                release->withdrawn = before[k].withdrawn;
    }
}

/* If the policy leaves none, the highest one is chosen: something must be served. */
static void
choose(const struct released *model, struct releases_served *served)
{
    const struct look_release *highest = NULL;
    served->count = 0;
    for (uint32_t i = 0; i < model->there_count && served->count < SERVED_MAX; i++) {
        const struct release *release = &model->there[i];
        if (release->withdrawn || release->broken)
            continue;
        if (highest == NULL)
            highest = &release->seen;
        if (release_policy_takes(&model->policy, release->seen.number, served->count))
            served->at[served->count++] = &release->seen;
    }
    if (served->count == 0)
        served->at[served->count++] = highest != NULL ? highest : &model->there[0].seen;
}

/* The lowest first. */
static void
put_numbers(const struct releases_served *served, char text[MODEL_RELEASES_BYTES])
{
    size_t used = 0;
    for (uint32_t i = served->count; i-- > 0;)
        used += (size_t)snprintf(text + used, MODEL_RELEASES_BYTES - used, "%s%s",
                                 used > 0 ? " " : "", served->at[i]->number);
}

/* ---- listing them ---- */

static void
beside_id(const struct released *model, const char *number, char id[ID_BYTES])
{
    snprintf(id, ID_BYTES, "%s%c%s", model->id, MODEL_RELEASE_MARK, number);
}

/* `id`: under which it is listed. */
static enum status
list_one(const struct released *model, const struct look_release *release, const char *id,
         const char *numbers, struct error *error)
{
    char path[NAME_MAX + 1 + LOOK_RELEASE_BYTES];
    const struct model_spec spec = {.id = id,
                                    .path = path,
                                    .key = model->key,
                                    .release = release->number,
                                    .releases = numbers,
                                    .tensors = &model->tensors,
                                    .in_root = true};
    snprintf(path, sizeof(path), "%s/%s", model->path, release->number);
    return models_list(model->catalog, &spec, release->version, error);
}

static bool
is_beside(const struct releases_served *served, const char *number)
{
    for (uint32_t i = 1; i < served->count; i++)
        if (strcmp(served->at[i]->number, number) == 0)
            return true;
    return false;
}

/* Lists those beside the default, and unlists those that are not served any more. The default has
 * them in its metadata, so one that cannot be listed is an error of the whole. */
static enum status
list_beside(struct released *model, const struct releases_served *served, const char *numbers,
            struct error *error)
{
    char id[ID_BYTES];
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < model->beside_count; i++) {
        beside_id(model, model->beside[i], id);
        if (!is_beside(served, model->beside[i]))
            (void)models_unlist(model->catalog, id);
    }
    model->beside_count = 0;
    for (uint32_t i = 1; i < served->count; i++) {
        beside_id(model, served->at[i]->number, id);
        struct error why = ERROR_NONE;
        memcpy(model->beside[model->beside_count++], served->at[i]->number, LOOK_RELEASE_BYTES);
        if (list_one(model, served->at[i], id, numbers, &why) != STATUS_OK && status == STATUS_OK)
            status =
                error_set(error, why.status, "version %s: %s", served->at[i]->number, why.text);
    }
    return status;
}

static enum status
list_served(struct released *model, struct releases_served *served, struct error *error)
{
    char numbers[MODEL_RELEASES_BYTES];
    choose(model, served);
    put_numbers(served, numbers);
    enum status status = list_one(model, served->at[0], model->id, numbers, error);
    return status == STATUS_OK ? list_beside(model, served, numbers, error) : status;
}

enum status
releases_list(struct releases *releases, struct catalog *catalog,
              const struct directory_model *seen, struct error *error)
{
    const struct model_spec *spec = &seen->spec;
    struct releases_served served;
    struct released *model = find(releases, spec->id);
    if (model != NULL && model->catalog != catalog && models_is_listed(model->catalog, spec->id))
        return models_list(catalog, spec, seen->version, error); /* refuses */
    if (model != NULL && (model->catalog != catalog || seen->release_count == 0)) {
        const struct releases_served none = {.count = 0};
        (void)list_beside(model, &none, "", error);
        drop(releases, model);
    }
    if (seen->release_count == 0)
        return models_list(catalog, spec, seen->version, error);
    model = have(releases, spec->id);
    model->catalog = catalog;
    set_text(&model->path, spec->path);
    set_text(&model->key, spec->key);
    model->policy = model->files_policy = *seen->policy;
    model->tensors = *spec->tensors;
    take_releases(model, seen);
    bool was_listed = models_is_listed(catalog, spec->id);
    enum status status = list_served(model, &served, error);
    if (status != STATUS_OK && !was_listed) /* not a part of it: nobody would unlist that */
        (void)releases_unlist(releases, catalog, spec->id);
    return status;
}

bool
releases_unlist(struct releases *releases, struct catalog *catalog, const char *id)
{
    struct released *model = find(releases, id);
    if (model != NULL && model->catalog == catalog) {
        const struct releases_served none = {.count = 0};
        struct error error = ERROR_NONE;
        (void)list_beside(model, &none, "", &error);
        drop(releases, model);
    }
    return models_unlist(catalog, id);
}

/* ---- another default ---- */

static struct release *
release_of(struct released *model, const struct look_release *seen)
{
    for (uint32_t i = 0; i < model->there_count; i++)
        if (&model->there[i].seen == seen)
            return &model->there[i];
    CHECK(false);
    return NULL;
}

bool
releases_fall_back(struct releases *releases, const char *id, const char *number)
{
    struct released *model = find(releases, id);
    struct releases_served served;
    struct error error = ERROR_NONE;
    if (model == NULL)
        return false;
    choose(model, &served);
    struct release *from = release_of(model, served.at[0]);
    if (strcmp(from->seen.number, number) != 0)
        return false;
    from->broken = true;
    choose(model, &served);
    const char *next = served.at[0]->number;
    if (look_compare_releases(next, number) < 0 && release_policy_takes(&model->policy, next, 0) &&
        list_served(model, &served, &error) == STATUS_OK)
        return true;
    from->broken = false;
    return false;
}

enum status
releases_judge_policy(const struct releases *releases, const char *id,
                      const struct release_policy *policy, bool *is_other, struct error *error)
{
    const struct released *model = find(releases, id);
    *is_other = false;
    if (model == NULL)
        return STATUS_OK;
    const struct release_policy *wanted = policy != NULL ? policy : &model->files_policy;
    *is_other = !release_policy_is(&model->policy, wanted);
    for (uint32_t i = 0; i < model->there_count; i++)
        if (policy == NULL || (!model->there[i].withdrawn &&
                               release_policy_takes(policy, model->there[i].seen.number, 0)))
            return STATUS_OK;
    return error_set(error, STATUS_NOT_FOUND,
                     "version_policy: the model's folder has none of these versions, or they were "
                     "rolled back");
}

enum status
releases_set_policy(struct releases *releases, const char *id, const struct release_policy *policy,
                    struct error *error)
{
    struct released *model = find(releases, id);
    struct releases_served served;
    if (model == NULL)
        return STATUS_OK;
    model->policy = policy != NULL ? *policy : model->files_policy;
    for (uint32_t i = 0; i < model->there_count; i++)
        model->there[i].broken = false; /* it is tried again */
    return list_served(model, &served, error);
}

enum status
releases_roll_back(struct releases *releases, const char *id, struct releases_step *step,
                   struct error *error)
{
    struct released *model = find(releases, id);
    struct releases_served served;
    if (model == NULL)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "model \"%s\" has no numbered versions in its folder: put the old file "
                         "back, or keep versions as %s/1, %s/2, …",
                         id, id, id);
    choose(model, &served);
    struct release *from = release_of(model, served.at[0]);
    from->withdrawn = true;
    choose(model, &served);
    if (look_compare_releases(served.at[0]->number, from->seen.number) >= 0) {
        from->withdrawn = false;
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "model \"%s\": no lower version than %s is kept in its folder", id,
                         from->seen.number);
    }
    *step = (struct releases_step){{0}, {0}};
    memcpy(step->from, from->seen.number, sizeof(step->from));
    memcpy(step->to, served.at[0]->number, sizeof(step->to));
    log_warn("model_rolled_back pipeline=%s model=\"%s\" from=%s to=%s",
             catalog_pipeline(model->catalog), id, step->from, step->to);
    return list_served(model, &served, error);
}
