/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that the files of the catalog share, and nobody else includes.
 *
 *     models.c      the registry: ids, what callers and registrars ask for (models.h)
 *     catalog.c     one model's way through its states, and the loop's turns
 *     catalog_load.c  what is loaded next, how large it will be, room for it
 *     replacement.c  listed models, and those whose files have changed
 *     catalog_seats.c  what the catalog hears of seats and lanes
 *     holder.c      one worker: what it is told, what it answers
 *     model_wait.c  requests that wait for their model
 *     shelf.c       budget, order of use, queue: pure
 *
 * The registry's lock guards what is marked [lock]. Other threads write, with it, only what
 * requests change: who uses a model, when it was used, who waits for it. The rest of it the loop
 * thread alone writes, with the lock, and may read without. All else is the loop thread's.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/check.h"
#include "coordinator/loop/loop.h"
#include "coordinator/models/model_path.h"
#include "coordinator/models/model_size.h"
#include "coordinator/models/models.h"
#include "coordinator/models/shelf.h"
#include "coordinator/pipeline/catalog.h"
#include "coordinator/pipeline/lane.h"

enum {
    MODELS_MAX = MODEL_NUMBER_MAX, /* known, of a pipeline */
    MODELS_LOADED_MAX = 4000,
    LOADS_MAX = 64, /* under way at once */
    /* Of workers that die while they load a model. One that was killed from outside counts half:
     * that may have had nothing to do with it. */
    LOAD_DEATH_WEIGHT = 2,
    LOAD_DEATHS_MAX = 2 * LOAD_DEATH_WEIGHT,
};

struct registry {
    pthread_mutex_t lock;
    struct loop *loop;
    struct model **buckets; /* by id [lock] */
    uint32_t bucket_count;  /* a power of two */
    uint32_t count;
    struct catalog *catalogs[CONFIG_PIPELINES_MAX];
    uint32_t catalog_count;
    const char *pipelines[CONFIG_PIPELINES_MAX]; /* every one's name */
    uint32_t pipeline_count;
    bool in_mesh; /* which decides what is loaded, for all catalogs together */
};

/* Where a model lies, and what its registrar says of it. */
struct model_source {
    char *given; /* the path as it was said */
    char *path;  /* absolute */
    char *key;
    uint64_t version; /* of its content, by who listed it; 0: not known */
};

/* The tensors of a loaded model; kept as long as anybody may look at them. */
struct model_info {
    struct model_info *older;
    struct oip_model_info oip;
    char platform[HANDSHAKE_NAME_BYTES];
    struct handshake_tensor tensors[]; /* inputs, then outputs */
};

/* Somebody who is to be told. */
struct model_waiter {
    struct model_waiter *next;
    model_done *done;
    void *context;
};

enum model_phase {
    PHASE_REST,       /* nothing is under way: KNOWN, queued, LOADED, FAILED */
    PHASE_PREDICTING, /* a worker of each stage is asked how large it will be */
    PHASE_ROOM,       /* room is made */
    PHASE_LOADING,    /* workers load */
    PHASE_LEAVING,    /* requests that were sent with it are waited for */
    PHASE_CLEARING,   /* workers unload */
};

struct model {
    struct registry *registry;
    struct catalog *catalog;
    struct model *next_in_bucket; /* [lock] */
    char *id;
    struct model_source source;
    struct model_source next; /* to be from when it is unloaded; path NULL: none */
    uint32_t number;
    uint32_t life;
    bool forgotten;          /* not in the registry any more [lock] */
    bool attention;          /* among the catalog's `attention` [lock] */
    bool swept;              /* among the catalog's `swept` [lock] */
    bool cancelled;          /* its load is undone because it was unloaded */
    bool hidden;             /* callers mean another one of its id [lock] */
    struct model *successor; /* loads what its files have become; NULL: none */
    struct model
        *predecessor; /* of a successor: what still serves; NULL: not one, or not any more */
    struct shelf_place place; /* [lock] */
    uint32_t sent;            /* of the users, those whose slots may be in the stages [lock] */
    uint32_t uses;            /* that models_harvest has not told of [lock] */
    struct request *waiting_first, *waiting_last; /* [lock] */
    uint32_t held_in;             /* bit i: whoever wants it in lane i has it, or is dead [lock] */
    uint32_t usable_in;           /* bit i: the same of those who are ready [lock] */
    struct model_info *info;      /* of its source; NULL: not known yet [lock] */
    struct model_info *old_infos; /* that somebody may still look at [lock] */
    struct error error;           /* why it FAILED [lock] */
    enum model_phase phase;
    int64_t phase_since_ns;
    uint32_t holdings;        /* workers that have something of it, or are to */
    uint32_t load_deaths;     /* of workers while they loaded it, weighted */
    uint32_t max_concurrency; /* 0: not said */
    int64_t retry_ns;         /* FAILED: not tried again before */
    int64_t retry_wait_ns;
    struct model_hints hints;
    struct prediction *prediction; /* PHASE_PREDICTING: what it waits for */
    struct model_waiter *loaders;
    struct model_waiter *failed; /* of a load that has failed, until it is undone */
    struct model_waiter *unloaders;
    struct model *next_attention;
    struct model *next_swept;
    struct handshake_model_said *said[2]; /* of the first and of the last stage, while it loads */
};

struct catalog {
    struct registry *registry;
    struct pipeline *pipeline;
    struct model_root root;
    struct shelf shelf; /* [lock] */
    struct model_sizes sizes;
    struct model *numbers[MODELS_MAX + 1]; /* all that are not freed [lock] */
    uint32_t lives[MODELS_MAX + 1];        /* of each number, the last [lock] */
    uint32_t number_last;                  /* given */
    uint32_t known;
    struct model *attention;  /* somebody else than the loop thread has changed something [lock] */
    struct model *swept;      /* requests wait for them, or did [lock] */
    bool room_wanted;         /* a load waits for users to leave [lock] */
    int64_t harvested_ns;     /* all uses before are told */
    _Atomic bool kicked;      /* the loop thread is to look */
    _Atomic uint32_t waiting; /* requests */
    struct model *begun[LOADS_MAX]; /* whose loads are under way, in order */
    uint32_t begun_count;
    struct loop_timer *timer; /* runs while something is under way or waits */
    bool ticking;
    bool stopping;
    uint32_t prediction_serial;
};

/* The size of a model is asked of a worker of each stage. */
struct prediction {
    struct catalog *catalog;
    struct model *model; /* whose load waits for it; NULL: somebody has asked */
    uint32_t open;       /* workers that have not answered, and one for who makes it */
    struct model_hints hints;
    model_done *done;
    void *context;
};

/* The memory for loaded models. In a mesh, the mesh decides it for all catalogs together. */
uint64_t catalog_budget_bytes(const struct catalog *catalog);

/* ---- models.c ---- */

static inline void
registry_lock(struct registry *registry)
{
    CHECK(pthread_mutex_lock(&registry->lock) == 0);
}

static inline void
registry_unlock(struct registry *registry)
{
    CHECK(pthread_mutex_unlock(&registry->lock) == 0);
}

static inline struct model *
model_of_place(struct shelf_place *place)
{
    return (struct model *)(void *)((char *)place - offsetof(struct model, place));
}

/* The one that callers mean. */
struct model *registry_find(const struct registry *registry, const char *id);
/* All, or those of one catalog, hidden ones included; to be freed. */
struct model **registry_all(const struct registry *registry, const struct catalog *only,
                            uint32_t *count);
/* With the lock: takes it out of the registry, and frees it if nobody looks at it any more. */
void model_forget(struct model *model);
/* With the lock: one that has entered leaves. */
void model_drop_user(struct model *model);
/* With the lock: of one that was among `sent`. */
void model_drop_sent(struct model *model);
/* With the lock: frees old infos, and a forgotten model, unless somebody may look at them. */
void model_free_unused(struct model *model);
/* With the lock: what it takes and gives from now on; NULL: that is not known. */
void model_set_info(struct model *model, struct model_info *info);
/* Whether callers may name it: one that is neither listed nor ordered is on its way out. */
bool model_is_there(const struct model *model);
/* The spec's model, made if there is none; NULL: refused. `place` is where it lies. */
struct model *model_find_or_make(struct catalog *catalog, const struct model_spec *spec,
                                 struct model_place *place, struct error *error);
/* Hidden, if there is one of its id. NULL: there are as many as there may be. */
struct model *model_make(struct catalog *catalog, const struct model_spec *spec, const char *path);
void model_set_flags(struct model *model, bool listed, bool ordered);
bool model_source_is(const struct model_source *source, const char *path, const char *key);
/* Its source now, or after the unload or the load of a successor that is due. */
struct model_source *model_source_to_be(struct model *model);
/* It is unloaded, and is from there then. */
void model_move_to(struct model *model, const struct model_spec *spec, const char *path);
void model_source_set(struct model_source *source, const char *given, const char *path,
                      const char *key);
void model_source_fini(struct model_source *source);
/* `done` from the loop, soon. */
void tell_later(struct registry *registry, model_done *done, void *context,
                const struct error *error, const struct model_facts *facts);
void waiters_add(struct model_waiter **waiters, model_done *done, void *context);
/* Tells all of them, soon: whoever is told may order anything. */
void waiters_end(struct registry *registry, struct model_waiter **waiters,
                 const struct error *error, const struct model_facts *facts);

/* ---- catalog.c ---- */

/* The loop thread looks, soon. Any thread. */
void catalog_kick(struct catalog *catalog);
/* The same, at this model; with the lock. */
void catalog_attend(struct model *model);
/* Begins all loads that can be begun. */
void catalog_schedule(struct catalog *catalog);
/* It is to be loaded. */
void catalog_want(struct model *model, enum shelf_demand demand);
/* It is to be unloaded, or its load undone; then what was asked for meanwhile happens. */
void catalog_unload(struct model *model);
/* Its load has failed, or a worker that it must be in can't load it. */
void catalog_fail(struct model *model, enum status status, const char *text);
/* Something about its workers has changed. */
void catalog_review(struct model *model);
void catalog_count(struct catalog *catalog, enum counter counter);
void model_enter_phase(struct model *model, enum model_phase phase);
/* Nobody enters any more; when the last request that was sent with it is answered, workers unload
 * it. */
void model_begin_leaving(struct model *model);
void model_take_from_begun(struct model *model);
void model_free_said(struct model *model);

/* ---- catalog_load.c ---- */

/* Every worker has it, for the first time. */
void model_on_loaded(struct model *model, uint64_t bytes);
/* It was loaded anew in the place of a dead worker, or in a new lane. */
void model_measure(struct model *model, uint64_t bytes);
void catalog_predicted(struct prediction *prediction, uint64_t bytes);
/* Asks for one; ends at once if no modelet says. */
void catalog_predict(struct prediction *prediction, const struct model *model);
/* Whether nothing is begun now: a reload is under way, or nothing serves. */
bool catalog_frozen(const struct catalog *catalog);
/* The timer runs from now on, until nothing is under way. */
void catalog_arm(struct catalog *catalog);

/* ---- replacement.c ---- */

/* A successor is loaded: callers mean it from now on. */
void replacement_take_over(struct model *successor);
/* A successor cannot be loaded, for the reason that is its error; its phase is still the one in
 * which it failed. */
void replacement_fail(struct model *successor);
/* The model leaves its workers: a successor of it has nobody to take over from. */
void replacement_end(struct model *model);
/* True: nobody needs the model any more, and it is being unloaded. */
bool replacement_retire(struct model *model);

/* ---- model_wait.c ---- */

/* Requests of `model` that wait in lanes where it is held go on. */
void model_release(struct model *model);
/* All that wait, or those in one lane, fail. */
void model_fail_waiting(struct model *model, const struct lane *only, enum status status,
                        const char *text);
/* Those that wait in vain: cancelled, late, in a lane that can't go on. */
void model_sweep(struct catalog *catalog, int64_t now_ns);

/* ---- holder.c, for the catalog ---- */

enum holding_state {
    HOLDING_NONE,
    HOLDING_TO_LOAD, /* it has not been told yet */
    HOLDING_LOADING,
    HOLDING_HELD,
    HOLDING_TO_UNLOAD,
    HOLDING_UNLOADING,
};

struct holder;

enum holding_state holder_state(const struct holder *holder, const struct model *model);
uint64_t holder_bytes(const struct holder *holder, const struct model *model,
                      uint64_t *mapped_bytes);
void holder_load(struct holder *holder, struct model *model, enum shelf_demand demand);
/* Makes that model the next to load. */
void holder_hurry(struct holder *holder, const struct model *model);
void holder_unload(struct holder *holder, struct model *model);
void holder_predict(struct holder *holder, const struct model *model,
                    struct prediction *prediction);
uint64_t holder_leaked_bytes(const struct holder *holder);
/* Sends what found no room. */
void holder_go_on(struct holder *holder);
bool holder_is_busy(const struct holder *holder);
/* Whether it is at the same since before `since_ns`: at something of `model` (NULL: of none that is
 * known), `loading` it. */
bool holder_is_late(const struct holder *holder, int64_t since_ns, struct model **model,
                    bool *loading);

/* ---- catalog_seats.c ---- */

/* Calls `visit` for every worker that models are told to. */
void catalog_each_holder(struct catalog *catalog,
                         void (*visit)(struct holder *holder, void *context), void *context);
/* Works out where the model is held, writes it, and says what it takes in the lane that serves. */
struct model_reach {
    bool everywhere; /* every worker that is ready in the lane that serves has it */
    uint64_t bytes;  /* what they hold of it */
};
struct model_reach catalog_reach(struct model *model);
/* Of one that is to be loaded: whoever has not been told is. */
void catalog_tell_to_load(struct model *model);
/* A worker whose load has no end is replaced. */
void catalog_end_late(struct catalog *catalog, int64_t now_ns);

void catalog_on_loaded(struct model *model, struct holder *holder,
                       const struct handshake_model_said *said);
void catalog_on_refused(struct model *model, struct holder *holder, enum status status,
                        const char *text);
void catalog_on_unloaded(struct model *model, struct holder *holder);
