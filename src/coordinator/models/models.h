/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models as data: the node's registry of all models by id, and a catalog for each pipeline that
 * serves models: what its workers hold, the budget, what is loaded next. DESIGN.md has the states
 * and the rules.
 *
 * Threads. registry_enter, registry_describe, model_ask_info and model_leave on any thread (one
 * lock, held for a lookup); everything else on the loop thread. A `done` is called on the loop
 * thread, exactly once, and never before the function that took it has returned.
 *
 * Ownership. Texts passed in are copied. A `struct model` may be used between registry_enter and
 * model_leave.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/protocol/oip.h"
#include "serving/storage/storage.h"

struct catalog;
struct model;
struct pipeline;
struct model_registry;
struct sidecar;
struct sidecar_tensors;

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
    const char *path; /* relative to the catalog's root, or absolute and beneath it; or an URI, or
                         what the key's storage has (serving/storage) */
    const char *key;  /* the registrar's description, by convention JSON; "" for none */
    /* The release of a listed model that has releases (model_look.h); else NULL. */
    const char *release;  /* the number of the one at `path`, which callers may ask for */
    const char *releases; /* the numbers of all that are served, separated by spaces */
    const struct sidecar_tensors *tensors; /* that the loaded model must have; NULL: any */
    bool in_root; /* its path is beneath the root, even if its key names storage */
};

/* A model's id and a release separated by this is the id of that release, where it is not the one
 * that callers get by default. No entry of a directory has a name with it. */
#define MODEL_RELEASE_MARK '/'
enum { MODEL_RELEASE_BYTES = 19, MODEL_RELEASES_BYTES = 16 * MODEL_RELEASE_BYTES };

struct storage;

/* `storage` NULL: no models are fetched. */
struct model_registry *registry_create(struct storage *storage);
/* Call after all of its catalogs are gone. */
void registry_destroy(struct model_registry *registry);

/* ---- the request path ---- */

/* A model as callers name it. */
struct model_name {
    const char *id;
    size_t id_bytes;
    const char *version; /* ""; or a release, or "1" of a model without releases */
};

/*
 * Enters one request into the model of that id, or its release of that version if that is served
 * beside it: the model counts as used now and stays until model_leave. NULL: no such model; whether
 * it has that version is found by oip_check_version. `*pipeline` is the model's. lane_submit deals
 * with one that is not loaded yet.
 */
struct model *registry_enter(struct model_registry *registry, const struct model_name *name,
                             struct pipeline **pipeline);
void model_leave(struct model *model);

/*
 * Like registry_enter() and model_leave(), in a mesh: returns NULL if the model is not loaded here.
 * It is not unloaded before a request that has entered this way is answered or has left by
 * model_leave_loaded. COUNTED: past the mesh's core, so only if the model is open; models_harvest
 * reports this use.
 */
enum model_count { MODEL_COUNTED, MODEL_UNCOUNTED };
struct model *registry_enter_loaded(struct model_registry *registry, const char *id,
                                    size_t id_bytes, enum model_count count,
                                    struct pipeline **pipeline);
void model_leave_loaded(struct model *model);
/* Opens or closes a model for requests past the mesh's core. It begins CLOSED, and is CLOSED before
 * it is unloaded. An unknown id is ignored. */
enum model_admission { MODEL_OPEN, MODEL_CLOSED };
void registry_admit(struct model_registry *registry, const char *id,
                    enum model_admission admission);

/* Looks at a model for ModelReady and ModelMetadata. Returns false if there is no such model.
 * `info` is valid as long as `reported`, until model_leave(reported->model). Does not count as a
 * use. */
struct model_description {
    struct model *model; /* to be left */
    bool ready;          /* it is loaded */
    char version[MODEL_RELEASE_BYTES];
    char versions[MODEL_RELEASES_BYTES];
};

bool registry_describe(struct model_registry *registry, const struct model_name *name,
                       struct oip_model_info *info, struct model_description *reported);

/* Provides the tensors of a model that the caller has entered: if they are not known, the model is
 * loaded as for a request. UNAVAILABLE: it will be; another status: it could not be. */
enum status model_ask_info(struct model *model, struct error *error) WARN_UNUSED;

/* ---- loading and unloading ---- */

/* The result of a load. */
struct model_facts {
    uint64_t bytes; /* of the pipeline's budget */
    uint32_t max_concurrency;
};

/* `error` NULL: success. `facts` are given only then, and only for a load. */
typedef void model_done(void *context, const struct error *error, const struct model_facts *facts);

/*
 * Loads a model, which then stays until it is unloaded by name. A model that is listed with the
 * same path and key is loaded, if it is not, and stays; any other known one is ALREADY_EXISTS.
 * After a failure it is not known any more, unless it is listed. INVALID_ARGUMENT: id or path, and
 * nothing was begun; NOT_FOUND: no such file; RESOURCE_EXHAUSTED: the budget; FAILED_PRECONDITION:
 * the file is no model; or the modelet's own status.
 */
void models_load(struct catalog *catalog, const struct model_spec *spec, model_done *done,
                 void *context);

/* Has a loaded model's requests judged by these settings, instead of those of its files, until it
 * is loaded again; NULL: by those of its files. FAILED_PRECONDITION, INVALID_ARGUMENT: they
 * contradict the model; ABORTED: it is not loaded. */
enum status models_configure(struct model_registry *registry, const char *id,
                             const struct sidecar *settings, struct error *error) WARN_UNUSED;

/* Unloads a model and forgets it, unless it is listed. Done when no worker has anything left of it;
 * a load under way is awaited, a queued one cancelled. An unknown id is no error. */
void models_unload(struct model_registry *registry, const char *id, model_done *done,
                   void *context);

/* Unloads all models of all pipelines, loading ones included; listed ones stay known. */
void models_purge(struct model_registry *registry, model_done *done, void *context);

/* Predicts the bytes that a model will take when loaded (model_size.h): `facts->bytes`. */
void models_predict(struct catalog *catalog, const struct model_spec *spec, model_done *done,
                    void *context);

/* Makes a model known; a request loads it, and it may be evicted. A known model with another path
 * or key is replaced by the rules of replacement.c, and so is one whose content has another
 * `version`, unless it was ordered: then it stays loaded as it is. ALREADY_EXISTS: another catalog
 * has it; ABORTED: likewise, but only for a moment. */
enum status models_list(struct catalog *catalog, const struct model_spec *spec, uint64_t version,
                        struct error *error) WARN_UNUSED;
/* Returns whether this catalog lists it. */
bool models_is_listed(const struct catalog *catalog, const char *id);
/* A listed model's changed files cannot be loaded, and while it is loaded it serves on as it is:
 * logs and keeps the reason for models_visit. */
void models_keep(struct catalog *catalog, const char *id, const struct error *why);
/* Removes a model from the list: it is unloaded and forgotten, unless it was ordered. False: the
 * catalog did not list it. */
bool models_unlist(struct catalog *catalog, const char *id);

/* Has `reported` called after each load that succeeds; once at most. */
void registry_on_loaded(struct model_registry *registry,
                        void (*reported)(void *context, const char *id), void *context);

/* Has `fall_back` called when a listed model's release cannot be loaded and no other of it is: true
 * if it has listed the model with another release. Once at most, and not in a mesh. */
typedef bool registry_fall_back(void *context, const char *id, const char *release);
void registry_on_broken(struct model_registry *registry, registry_fall_back *fall_back,
                        void *context);

/* ---- queries ---- */

/* Returns whether its pipeline has that type in its `types`. */
bool models_take_type(const struct catalog *catalog, const char *type);
/* The catalog that takes loads of this `type`: of the pipeline whose `types` has it; for "", or if
 * none has it, of the only pipeline with models. NULL: none, or ambiguous. */
struct catalog *models_catalog_for(struct pipeline *const *pipelines, uint32_t count,
                                   const char *type);

struct catalog_facts {
    uint64_t capacity_bytes;
    uint64_t used_bytes; /* reservations of loads under way included */
    uint64_t default_bytes;
    uint32_t load_concurrency;
    int64_t load_timeout_ns;
    uint32_t known;
    uint32_t loaded;
    uint64_t leaked_bytes; /* of all workers */
    bool serving;          /* the pipeline is ready for loads */
};

void models_facts(const struct catalog *catalog, struct catalog_facts *facts);

/* Answers to its requests since it became known. */
struct model_answers {
    uint64_t good, good_ns;     /* results, and the time that they took */
    uint64_t failed, failed_ns; /* errors after admission */
};

struct model_row {
    const char *id, *path, *key;
    const char *name;    /* the id without a release */
    const char *version; /* its release; "1": it has none */
    const char *pipeline;
    enum model_state state;
    bool listed;
    bool ordered;
    bool in_root; /* its files are beneath the root, even if its key names storage */
    uint64_t bytes;
    bool is_fetched; /* it is being */
    struct storage_progress fetched;
    uint32_t users;
    int64_t used_ns; /* when it was last used; 0: never */
    struct model_answers answers;
    /* MODEL_IS_FAILED: why; of another: why its changed files are not served; "": neither */
    const char *error;
};

/* Reports the uses of loaded models since the last call. `used_ns`: the latest use. `visit` may
 * call anything; the id is valid during the call. */
void models_harvest(struct model_registry *registry,
                    void (*visit)(void *context, const char *id, uint32_t count, int64_t used_ns),
                    void *context);

/* The bytes of a loaded model. False: it is not loaded. */
bool models_size(struct model_registry *registry, const char *id, uint64_t *bytes);

/* A row's texts are valid during the call. False ends the visit. */
typedef bool model_visit(void *context, const struct model_row *row);

/* Visits the model with that id, if there is one. */
void models_visit_one(struct model_registry *registry, const char *id, model_visit *visit,
                      void *context);

/* Models visited in a turn of the loop: a millisecond or two, so that supervision need not wait. */
enum { MODELS_A_TURN = 256 };

/* A part of the list of all models, which is in the order of their ids. */
struct model_range {
    const char *from; /* it begins with the first id that is not less, */
    uint32_t skip;    /* or so many models later, */
    uint32_t most;    /* and has no more than these */
};

/* False: it ended with the list, or by the visitor. */
bool models_visit(struct model_registry *registry, const struct model_range *range,
                  model_visit *visit, void *context);
