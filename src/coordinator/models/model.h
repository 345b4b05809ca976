/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State shared by the catalog's files; nobody else includes it.
 *
 *     models.c the registry: ids, what callers and registrars ask for (models.h) model_describe.c
 *     what callers get to know of a model model_list.c all models in order catalog.c one model's
 *     way through its states, and the loop's turns catalog_load.c the next load, its predicted
 *     size, room for it replacement.c listed models, and those whose files have changed
 *     catalog_workers.c what places and lanes report worker_models.c one worker: its orders and
 *     answers model_wait.c requests that wait for their model model_cache.c budget, order of use,
 *     queue: pure
 *
 * The registry's lock guards the members marked [lock]. Other threads write, with the lock, only
 * what requests change: users of a model, the time of its last use, requests that wait for it. The
 * loop thread alone writes the other marked members, with the lock, and may read them without.
 * Unmarked members belong to the loop thread.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/check.h"
#include "base/hash_table.h"
#include "coordinator/models/catalog.h"
#include "coordinator/models/model_path.h"
#include "coordinator/models/model_size.h"
#include "coordinator/models/sidecar.h"
#include "coordinator/models/models.h"
#include "coordinator/models/model_cache.h"
#include "coordinator/pipeline/lane.h"
#include "loop/loop.h"
#include "serving/storage/storage.h"

enum {
    MODELS_MAX = MODEL_NUMBER_MAX, /* known to a pipeline */
    MODELS_LOADED_MAX = 4000,
    LOADS_MAX = 64 + MODEL_CACHE_ASIDES_MAX, /* under way at once, or fetched */
    /* Deaths of workers that load a model. A kill from outside counts half, since it may have had
     * nothing to do with the load. */
    LOAD_DEATH_WEIGHT = 2,
    LOAD_DEATHS_MAX = 2 * LOAD_DEATH_WEIGHT,
};

struct model_registry {
    pthread_mutex_t lock;
    struct loop *loop;
    struct hash_table models; /* by id [lock] */
    struct model **list;      /* those that are not hidden, in the order of their ids */
    uint32_t list_count, list_room;
    struct catalog *catalogs[CONFIG_PIPELINES_MAX];
    uint32_t catalog_count;
    const char *pipelines[CONFIG_PIPELINES_MAX]; /* the names of all pipelines */
    uint32_t pipeline_count;
    void (*on_loaded)(void *context, const char *id); /* NULL: nobody wants to know */
    void *on_loaded_context;
    registry_fall_back *fall_back; /* NULL: nobody has another release */
    void *fall_back_context;
    struct storage *storage; /* NULL: models are not fetched */
    bool in_mesh;            /* the mesh decides what is loaded, for all catalogs together */
};

/* The place of a model, and its registrar's description. */
struct model_source {
    char *given; /* the path as given */
    char *path;  /* absolute; or another one: it is fetched (storage.h) */
    char *key;
    uint64_t version;                  /* of its content, from the lister; 0: not known */
    struct sidecar_tensors *tensors;   /* as in its spec */
    char release[MODEL_RELEASE_BYTES]; /* the release of `model.source`; "": none [lock] */
};

/* The tensors of a loaded model; kept while anybody may look at them. */
struct model_info {
    struct model_info *older;
    struct oip_model_info oip;
    char platform[HANDSHAKE_NAME_BYTES];
    char version[MODEL_RELEASE_BYTES];
    struct handshake_tensor tensors[]; /* inputs, then outputs */
};

/* A registrar that waits for the end of its order. */
struct model_waiter {
    struct model_waiter *next;
    model_done *done;
    void *context;
};

enum model_phase {
    PHASE_REST,       /* nothing is under way: KNOWN, queued, LOADED, FAILED */
    PHASE_FETCHING,   /* its files are brought into the cache */
    PHASE_FETCHED,    /* they are there; other loads are under way */
    PHASE_PREDICTING, /* a worker of each stage predicts its size */
    PHASE_ROOM,       /* room is made */
    PHASE_LOADING,    /* workers load it */
    PHASE_LEAVING,    /* requests sent with it are finished */
    PHASE_CLEARING,   /* workers unload it */
};

struct model {
    struct hash_entry entry; /* [lock] */
    struct model_registry *registry;
    struct catalog *catalog;
    char *id;
    char *name;     /* what callers see: the id without its release */
    char *releases; /* as in its spec; NULL: it has none [lock] */
    struct model_source source;
    struct model_source next; /* its source once it is unloaded; path NULL: none */
    uint32_t number;
    uint32_t life;
    bool forgotten;                 /* not in the registry any more [lock] */
    bool attention;                 /* in the catalog's list `attention` [lock] */
    bool swept;                     /* in the catalog's list `swept` [lock] */
    bool preload;                   /* to be loaded in advance, once nothing is under way */
    bool cancelled;                 /* its load is undone because it was unloaded */
    bool falls_back;                /* FAILED: `next` is a lower release */
    bool hidden;                    /* callers get another model of this id [lock] */
    struct model *successor;        /* loads its changed files; NULL: none */
    struct model *predecessor;      /* of a successor: the model that still serves; else NULL */
    struct model_cache_entry place; /* [lock] */
    uint32_t sent;                  /* users whose slots may be in the stages [lock] */
    uint32_t rows_max;              /* of a request; 0: any [lock] */
    uint32_t uses;                  /* not yet reported by models_harvest [lock] */
    bool is_open;                   /* to requests past the mesh's core [lock] */
    struct model_answers answers;   /* [lock] */
    struct request *waiting_first, *waiting_last; /* [lock] */
    bool asked;         /* a caller must know its tensors: it is loaded as for a request [lock] */
    uint32_t held_in;   /* bit i: every live worker of lane i that wants it has it [lock] */
    uint32_t usable_in; /* bit i: every ready one has it [lock] */
    struct model_info *info;      /* of its source; NULL: not known yet [lock] */
    struct model_info *old_infos; /* somebody may still look at them [lock] */
    struct error error;           /* why it FAILED [lock] */
    char *kept;                   /* why its changed files are not served; NULL: they are */
    enum model_phase phase;
    int64_t phase_since_ns;
    uint32_t holdings;        /* workers that have some of it, or have to load it */
    uint32_t load_deaths;     /* workers that died while loading it, weighted */
    uint32_t max_concurrency; /* 0: not known */
    int64_t retry_ns;         /* FAILED: the earliest next attempt */
    int64_t retry_wait_ns;
    struct model_hints hints;
    /* Set by a load that exceeded memory_mib alone; its files had that size. 0: none did. */
    uint64_t unfit_bytes, unfit_file_bytes;
    struct storage_fetch *fetch; /* PHASE_FETCHING: it waits for this */
    struct storage_lease *lease; /* while its files must stay in the cache; NULL: none */
    uint64_t fetched_bytes;
    char *fetched;                 /* where they are; NULL: at its source's path */
    struct prediction *prediction; /* PHASE_PREDICTING: it waits for this */
    struct model_waiter *loaders;
    struct model_waiter *failed; /* of a failed load, until it is undone */
    struct model_waiter *unloaders;
    struct model *next_attention;
    struct model *next_swept;
    struct handshake_model_said *said[2]; /* answers of the first and last stage, while it loads */
};

struct catalog {
    struct model_registry *registry;
    struct pipeline *pipeline;
    struct model_root root;
    struct model_cache cache; /* [lock] */
    struct model_sizes sizes;
    struct model *numbers[MODELS_MAX + 1]; /* all that are not freed [lock] */
    uint32_t lives[MODELS_MAX + 1];        /* the last life of each number [lock] */
    uint32_t number_last;                  /* given out last */
    uint32_t known;
    struct model *attention;        /* models that other threads have changed [lock] */
    struct model *swept;            /* models that requests wait for, or did [lock] */
    bool room_wanted;               /* a load waits for users to leave [lock] */
    int64_t harvested_ns;           /* earlier uses are reported */
    _Atomic bool kicked;            /* the loop thread is to look */
    _Atomic uint32_t waiting;       /* requests */
    struct model *begun[LOADS_MAX]; /* models whose loads are under way, in order */
    uint32_t begun_count;
    struct loop_timer *timer; /* runs while something is under way or waits */
    bool ticking;
    bool stopping;
    uint32_t kept; /* models that serve an old version, as their changed files cannot be loaded */
    uint32_t prediction_serial;
};

/* A question for the size of a model, put to a worker of each stage. */
struct prediction {
    struct catalog *catalog;
    struct model *model; /* its load waits for the answer; NULL: models_predict asked */
    uint32_t open;       /* workers without an answer, plus one while it is being put */
    struct model_hints hints;
    model_done *done;
    void *context;
};

/* The memory for loaded models; unlimited in a mesh, which keeps its own account. */
uint64_t catalog_budget_bytes(const struct catalog *catalog);

/* ---- models.c ---- */

static inline void
registry_lock(struct model_registry *registry)
{
    CHECK(pthread_mutex_lock(&registry->lock) == 0);
}

static inline void
registry_unlock(struct model_registry *registry)
{
    CHECK(pthread_mutex_unlock(&registry->lock) == 0);
}

static inline struct model *
model_of_place(struct model_cache_entry *place)
{
    return (struct model *)(void *)((char *)place - offsetof(struct model, place));
}

/* The model that callers get for that id; NULL: none. */
struct model *registry_find(const struct model_registry *registry, const char *id);
/* Finds the model of the release that is asked for, if that is served beside it. */
struct model *registry_find_named(const struct model_registry *registry,
                                  const struct model_name *name);
/* The model after `before` (NULL: the first); NULL: none. As hash_table_walk. */
struct model *registry_walk(const struct model_registry *registry, const struct model *before);
/* All models, or those of one catalog, hidden ones included; to be freed. */
struct model **registry_all(const struct model_registry *registry, const struct catalog *only,
                            uint32_t *count);
/* Removes the model from the registry, and frees it if nobody looks at it any more. Call with the
 * lock. */
void model_forget(struct model *model);
/* Removes a user. Call with the lock. */
void model_drop_user(struct model *model);
/* Removes a user counted in `sent`. Call with the lock. */
void model_drop_sent(struct model *model);
/* Frees old infos and a forgotten model, unless somebody may look at them. Call with the lock. */
void model_free_unused(struct model *model);
/* Sets the model's tensors; NULL: not known. Call with the lock. */
void model_set_info(struct model *model, struct model_info *info);
/* Returns whether callers may name it: a model that is neither listed nor ordered is on its way
 * out. */
bool model_is_there(const struct model *model);
/* The spec's model, made if there is none; NULL: refused. `place` says where its files are. */
struct model *model_find_or_make(struct catalog *catalog, const struct model_spec *spec,
                                 struct model_place *place, struct error *error);
/* Makes a model, hidden if there is one of its id. NULL: too many. */
struct model *model_make(struct catalog *catalog, const struct model_spec *spec, const char *path);
enum model_mark { MODEL_LISTED, MODEL_UNLISTED, MODEL_ORDERED, MODEL_UNORDERED };
void model_set_mark(struct model *model, enum model_mark mark);
bool model_source_is(const struct model_source *source, const char *path, const char *key);
/* Returns the source that the model has after the pending unload or the pending load of its
 * successor, else its source. */
struct model_source *model_source_to_be(struct model *model);
/* Unloads it and gives it a new source afterwards. */
void model_move_to(struct model *model, const struct model_spec *spec, const char *path);
void model_source_set(struct model_source *source, const struct model_spec *spec, const char *path);
void model_source_fini(struct model_source *source);
void model_set_releases(struct model *model, const char *releases);
/* Calls `done` from the loop, soon. */
void notify_later(struct model_registry *registry, model_done *done, void *context,
                  const struct error *error, const struct model_facts *facts);
/* Notifies all of them, soon: they may give any order in turn. */
void waiters_end(struct model_registry *registry, struct model_waiter **waiters,
                 const struct error *error, const struct model_facts *facts);

/* ---- model_list.c ---- */

/* A model is made, or forgotten, that is not hidden. */
void model_list_add(struct model *model);
void model_list_remove(const struct model *model);
/* Callers get the successor from now on. */
void model_list_replace(const struct model *model, struct model *successor);

/* ---- catalog.c ---- */

/* Has the loop thread look soon. Any thread. */
void catalog_kick(struct catalog *catalog);
/* Has it look at this model soon; with the lock. */
void catalog_attend(struct model *model);
/* Begins all loads that can be begun. */
void catalog_schedule(struct catalog *catalog);
/* Has it loaded. */
void catalog_want(struct model *model, enum model_cache_demand demand);
/* Has it loaded in advance if that is due and nothing of it is under way. */
void catalog_preload(struct model *model);
/* Unloads it, or undoes its load; orders given meanwhile are carried out afterwards. */
void catalog_unload(struct model *model);
/* Notes that the model's load has failed, or that a worker that must have it cannot load it. */
void catalog_fail(struct model *model, enum status status, const char *text);
/* It leaves, and a worker that restarted cannot load it for the requests that were sent with it. */
void catalog_fail_returned(struct model *model, enum status status, const char *text);
/* Works out where the model is held after its workers have changed. */
void catalog_review(struct model *model);
void catalog_count(struct catalog *catalog, enum counter counter);
void model_enter_phase(struct model *model, enum model_phase phase);
/* No request enters any more; workers unload it when the last request sent with it is answered. */
void model_begin_leaving(struct model *model);
void model_take_from_begun(struct model *model);
void model_free_said(struct model *model);

/* ---- catalog_fetch.c ---- */

/* Returns whether its files must be fetched. */
bool model_source_is_remote(const struct model_source *source);
/* Resolves a spec's path: beneath the root, or to the text by which it is fetched. */
enum status catalog_find_place(const struct catalog *catalog, const struct model_spec *spec,
                               struct model_place *place, struct error *error) WARN_UNUSED;
/* Begins to fetch, aside from the loads; ends in PHASE_FETCHED or in catalog_fail. */
void catalog_fetch(struct model *model);
/* A fetch ends by itself, with a better reason, unless a disk hangs. */
bool catalog_fetch_hangs(const struct model *model, int64_t now_ns);
/* Gives up what is under way. */
void model_end_fetch(struct model *model);
/* Tells the cache that it may drop the model's files: nothing of the model is in a worker. */
void model_drop_fetched(struct model *model);

/* ---- catalog_load.c ---- */

/* Notes that the model's files are where `fetched` says. */
void catalog_fetched(struct model *model, uint64_t file_bytes);

/* Every worker has it, for the first time. */
void model_on_loaded(struct model *model, uint64_t bytes);
/* A restarted worker or a new lane has loaded it again. */
void model_measure(struct model *model, uint64_t bytes);
void catalog_predicted(struct prediction *prediction, uint64_t bytes);
/* Asks a worker of each stage; ends at once if no modelet can predict. */
void catalog_predict(struct prediction *prediction, const struct model *model);
/* Returns whether no load or unload may begin now: a reload is under way, or no lane serves. */
bool catalog_frozen(const struct catalog *catalog);
/* Starts the timer, which runs until nothing is under way. */
void catalog_arm(struct catalog *catalog);

/* ---- replacement.c ---- */

/* The successor is loaded: callers get it from now on. */
void replacement_take_over(struct model *successor);
/* The successor cannot be loaded, for the reason in its error; its phase is still the one in which
 * it failed. */
void replacement_fail(struct model *successor);
/* R5. Called in the middle of a failure. True: the model has another source, with which it is tried
 * next, and requests that were never sent with it may wait for that. */
bool replacement_falls_back(struct model *model);
/* It has taken that source. */
void replacement_fell_back(struct model *model);
/* The model leaves its workers: its successor, if any, is given up. */
void replacement_end(struct model *model);
/* Unloads a replaced model that nobody needs any more; true: it is being unloaded. */
bool replacement_retire(struct model *model);

/* ---- model_wait.c ---- */

/* Sends on the requests of `model` that wait in lanes where it is held. */
void model_release(struct model *model);
/* The status of a request or an order whose model could not be loaded: a file that is no model is
 * the operator's mistake, not the caller's. */
static inline enum status
model_status_for_callers(enum status status)
{
    return status == STATUS_INVALID_ARGUMENT ? STATUS_FAILED_PRECONDITION : status;
}

/* Fails all requests that wait, or those in one lane. */
void model_fail_waiting(struct model *model, const struct lane *only, enum status status,
                        const char *text);
/* Fails those that came back from a worker that did not hold it. */
void model_fail_returned(struct model *model, enum status status, const char *text);
/* Fails requests that can no longer be served: cancelled, late, or in a lane that cannot go on. */
void model_sweep(struct catalog *catalog, int64_t now_ns);

/* ---- worker_models.c, for the catalog ---- */

enum holding_state {
    HOLDING_NONE,
    HOLDING_TO_LOAD, /* the order has not been sent yet */
    HOLDING_LOADING,
    HOLDING_HELD,
    HOLDING_TO_UNLOAD,
    HOLDING_UNLOADING,
};

struct worker_models;

enum holding_state worker_models_state(const struct worker_models *worker_models,
                                       const struct model *model);
uint64_t worker_models_bytes(const struct worker_models *worker_models, const struct model *model,
                             uint64_t *mapped_bytes);
void worker_models_load(struct worker_models *worker_models, struct model *model,
                        enum model_cache_demand demand);
/* Makes that model the next to load. */
void worker_models_hurry(struct worker_models *worker_models, const struct model *model);
void worker_models_unload(struct worker_models *worker_models, struct model *model);
void worker_models_predict(struct worker_models *worker_models, const struct model *model,
                           struct prediction *prediction);
uint64_t worker_models_leaked_bytes(const struct worker_models *worker_models);
/* Sends orders that found the socket full. */
void worker_models_go_on(struct worker_models *worker_models);
bool worker_models_is_busy(const struct worker_models *worker_models);
/* Returns whether it has been busy with one order since before `since_ns`: of `*model` (NULL: of
 * none that is known); `*loading`: the order is to load. */
bool worker_models_is_late(const struct worker_models *worker_models, int64_t since_ns,
                           struct model **model, bool *loading);

/* ---- catalog_workers.c ---- */

/* Calls `visit` for every worker that takes orders. */
void catalog_each_worker_models(struct catalog *catalog,
                                void (*visit)(struct worker_models *worker_models, void *context),
                                void *context);
/* Works out and notes where the model is held, and what it takes in the serving lane. */
struct model_reach {
    bool everywhere; /* every ready worker of the serving lane has it */
    uint64_t bytes;  /* that they hold of it */
};
struct model_reach catalog_reach(struct model *model);
/* Sends the order to load it to every worker that has not received it yet. */
void catalog_notify_to_load(struct model *model);
/* Replaces workers whose load exceeds `load_timeout_ms`. */
void catalog_end_late(struct catalog *catalog, int64_t now_ns);

void catalog_on_loaded(struct model *model, struct worker_models *worker_models,
                       const struct handshake_model_said *said);
void catalog_on_refused(struct model *model, struct worker_models *worker_models,
                        enum status status, const char *text);
void catalog_on_unloaded(struct model *model, struct worker_models *worker_models);
