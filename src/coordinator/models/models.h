/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models as data: the registry of a node, in which every model is by its id, and the catalog of
 * each pipeline that serves models: what its workers hold, the budget, what is loaded next.
 * DESIGN.md has the states and the rules.
 *
 * Threads. registry_enter, registry_describe and model_leave on any thread (one lock, held for a
 * lookup); everything else on the loop thread. What is `done` is told on the loop thread, exactly
 * once, and never before the function that took it has returned.
 *
 * Ownership. Texts that are passed in are copied. A `struct model` may be used between
 * registry_enter and model_leave.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/protocol/oip.h"

struct catalog;
struct model;
struct pipeline;
struct registry;

enum model_state {
    MODEL_IS_KNOWN,
    MODEL_IS_LOADING,
    MODEL_IS_LOADED,
    MODEL_IS_UNLOADING,
    MODEL_IS_FAILED
};

/* "known", "loading", … */
const char *model_state_name(enum model_state state);

struct model_spec {
    const char *id;   /* 1 … SHOAL_NAME_BYTES_MAX bytes, not the name of a pipeline */
    const char *path; /* relative to the catalog's root, or absolute and beneath it */
    const char *key;  /* the registrar's own words, by convention JSON; "" for none */
};

struct registry *registry_create(void);
/* After every catalog of it. */
void registry_destroy(struct registry *registry);

/* ---- the request path ---- */

/*
 * The model of that id, for one request: it counts as used now, and stays until model_leave. NULL:
 * no such model. `*pipeline` is whose it is. That it is not loaded yet is lane_submit's business.
 */
struct model *registry_enter(struct registry *registry, const char *id, size_t id_bytes,
                             struct pipeline **pipeline);
void model_leave(struct model *model);

/*
 * The same in a mesh, where a model that is not loaded is the mesh's business: NULL, if it is not
 * loaded here. It is not unloaded before the request that has entered so is answered, or has left
 * with model_leave_loaded. `count`: whether models_harvest is to tell of this use.
 */
enum model_count { MODEL_COUNTED, MODEL_UNCOUNTED };
struct model *registry_enter_loaded(struct registry *registry, const char *id, size_t id_bytes,
                                    enum model_count count, struct pipeline **pipeline);
void model_leave_loaded(struct model *model);

/* For ModelReady and ModelMetadata: false: no such model. `*ready`: it is loaded. What `info`
 * points to is valid until model_leave(*model). Does not count as a use. */
bool registry_describe(struct registry *registry, const char *id, struct oip_model_info *info,
                       bool *ready, struct model **model);

/* ---- loading and unloading ---- */

/* The result of a load. */
struct model_facts {
    uint64_t bytes; /* of the pipeline's budget */
    uint32_t max_concurrency;
};

/* `error` NULL: it was done. `facts` only then, and only of a load. */
typedef void model_done(void *context, const struct error *error, const struct model_facts *facts);

/*
 * Loads a model that then stays until it is unloaded by name. It may be known already: with the
 * same path and key as listed, then it is loaded (if it is not) and stays; else ALREADY_EXISTS.
 * After a failure it is known no more, unless it is listed. INVALID_ARGUMENT: id or path;
 * NOT_FOUND: no such file; RESOURCE_EXHAUSTED: the budget; or what the modelet said.
 */
void models_load(struct catalog *catalog, const struct model_spec *spec, model_done *done,
                 void *context);

/* Unloads it and forgets it (one that is listed stays known). Done when nothing of it is left in
 * any worker; a load that is under way is waited for, one that waits is cancelled. An id that is
 * not known is no error. */
void models_unload(struct registry *registry, const char *id, model_done *done, void *context);

/* Unloads all models of all pipelines, those that are loading too; the listed stay known. */
void models_purge(struct registry *registry, model_done *done, void *context);

/* The bytes that a model will take, if it is loaded: what the modelet says, or what files of that
 * size took so far. `facts->bytes`. */
void models_predict(struct catalog *catalog, const struct model_spec *spec, model_done *done,
                    void *context);

/* Makes a model known, which is loaded when it is asked for; it may be evicted then. One that is
 * known by another path or key becomes the new one, as replacement.c has it: while it is loaded,
 * the old one serves until the new one can. So does one whose content is of another `version`,
 * unless somebody has ordered it: that stays loaded as it is. ALREADY_EXISTS: another catalog has
 * it; ABORTED: for a moment still. */
enum status models_list(struct catalog *catalog, const struct model_spec *spec, uint64_t version,
                        struct error *error) WARN_UNUSED;
/* It is gone from the list: unloaded and forgotten, unless somebody has ordered it. Returns false
 * if the catalog did not list it. */
bool models_unlist(struct catalog *catalog, const char *id);

/* ---- what there is ---- */

/* Whether its pipeline has that type in its `types`. */
bool models_take_type(const struct catalog *catalog, const char *type);
/* Of the pipelines, the one that takes loads for this `type`: whose `types` has it; "" or none has
 * it: the only one with models. NULL: none, or not clear. */
struct catalog *models_catalog_for(struct pipeline *const *pipelines, uint32_t count,
                                   const char *type);

struct catalog_facts {
    uint64_t capacity_bytes;
    uint64_t used_bytes; /* of it, what loads under way have reserved included */
    uint64_t default_bytes;
    uint32_t load_concurrency;
    int64_t load_timeout_ns;
    uint32_t known;
    uint32_t loaded;
    uint64_t leaked_bytes; /* of all workers */
    bool serving;          /* its pipeline is ready for loads */
};

void models_facts(const struct catalog *catalog, struct catalog_facts *facts);

struct model_row {
    const char *id, *path, *key;
    const char *pipeline;
    enum model_state state;
    bool listed;
    bool ordered;
    uint64_t bytes;
    uint32_t users;
    int64_t used_ns;   /* when it was last used; 0: never */
    const char *error; /* MODEL_IS_FAILED: why; else "" */
};

/* Uses of loaded models since this was called last. `used_ns`: the last one. `visit` may call
 * anything; the id is valid during the call. */
void models_harvest(struct registry *registry,
                    void (*visit)(void *context, const char *id, uint32_t count, int64_t used_ns),
                    void *context);

/* Bytes of a loaded model. False: it is not. */
bool models_size(struct registry *registry, const char *id, uint64_t *bytes);
/* In the order of their ids. What a row points to is valid during the call. */
void models_visit(struct registry *registry, void (*visit)(void *context, const struct model_row *),
                  void *context);
