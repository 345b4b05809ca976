/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline's model cache of models: decides states, the budget, which model is evicted and which
 * is loaded next. Pure: no I/O, no clock, no lock, no allocation. The caller holds the registry's
 * lock and carries out the decisions.
 *
 *     KNOWN, FAILED ── model_cache_queue ──▶ LOADING, queued ── model_cache_next ──▶ LOADING ──
 * model_cache_reserve LOADING ── model_cache_loaded ──▶ LOADED ── model_cache_unload ──▶ UNLOADING
 * ── model_cache_gone ──▶ KNOWN LOADING ── model_cache_unload ──▶ UNLOADING (its load is undone);
 * queued ── model_cache_drop ──▶ KNOWN LOADING, LOADED ── model_cache_fail ──▶ FAILED, which keeps
 * its bytes until model_cache_gone
 *
 * Rules of the budget:
 *   1. A reservation never makes the sum of reserved and held bytes exceed the capacity. A model
 *      that turns out larger than reserved may, until enough has been evicted (model_cache_excess).
 *   2. The least recently used model that is LOADED, has no user and was not ordered is evicted.
 *   3. A model that is being unloaded counts until it is gone.
 *   4. Models that requests wait for are loaded before those only ordered, and these before those
 *      loaded in advance; else first come, first served.
 *   5. A model that is loaded in advance evicts nothing: if it does not fit, it is not loaded.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/models/models.h"

struct model_cache_link {
    struct model_cache_link *prev, *next; /* NULL: in no list */
};

/* Reasons to load a model, the weakest first. */
enum model_cache_demand {
    MODEL_CACHE_PRELOAD, /* in advance */
    MODEL_CACHE_ORDERED,
    MODEL_CACHE_AWAITED, /* a request waits */
    MODEL_CACHE_DEMANDS
};

enum { MODEL_CACHE_ASIDES_MAX = 64 };

struct model_cache {
    uint64_t capacity_bytes;
    uint64_t used_bytes;    /* reserved or held by all models */
    uint64_t leaving_bytes; /* the part of models that are being unloaded */
    uint32_t held_max;
    uint32_t held;                  /* models with bytes */
    uint32_t leaving;               /* those of them that are being unloaded */
    uint32_t loads_max;             /* at once */
    uint32_t loads;                 /* begun, not aside, and neither LOADED nor gone */
    uint32_t asides;                /* begun, and aside */
    uint32_t loaded;                /* LOADED */
    struct model_cache_link by_use; /* LOADED, least recently used first */
    struct model_cache_link queues[MODEL_CACHE_DEMANDS]; /* queued */
};

/* A model on the model cache. Zero at first: KNOWN. */
struct model_cache_entry {
    enum model_state state;
    bool listed;
    bool ordered;
    bool queued;
    enum model_cache_demand demand; /* why it was queued last */
    bool begun;                     /* counted in `loads` or `asides` */
    bool aside;                     /* its files are fetched */
    bool reserved;                  /* counted in `held` */
    uint32_t users;                 /* requests that name it and are not answered */
    uint64_t bytes;
    int64_t used_ns; /* 0: never */
    struct model_cache_link link;
};

void model_cache_init(struct model_cache *cache, uint64_t capacity_bytes, uint32_t loads_max,
                      uint32_t held_max);

/* Makes it the most recently used. */
void model_cache_touch(struct model_cache *cache, struct model_cache_entry *place, int64_t now_ns);

/* The LOADED model used last before `place`, or the most recently used for NULL; NULL: none. */
struct model_cache_entry *model_cache_used_before(const struct model_cache *cache,
                                                  const struct model_cache_entry *place);

/* ---- loading ---- */

/* Queues a model that is KNOWN or FAILED, or moves a queued one forward for a stronger reason. One
 * whose load has begun takes the reason over. */
void model_cache_queue(struct model_cache *cache, struct model_cache_entry *place,
                       enum model_cache_demand demand);
/* The first model that is queued for being loaded in advance; NULL: none. */
struct model_cache_entry *model_cache_preload(const struct model_cache *cache);
/* Makes a queued model KNOWN again. */
void model_cache_drop(struct model_cache *cache, struct model_cache_entry *place);
/* Begins the next load; NULL: none, or as many as permitted are under way or aside. */
struct model_cache_entry *model_cache_next(struct model_cache *cache);
/* A load that was begun lets others pass while its files are fetched. */
void model_cache_step_aside(struct model_cache *cache, struct model_cache_entry *place);
/* It goes on. False: as many as permitted are under way. */
bool model_cache_step_back(struct model_cache *cache, struct model_cache_entry *place);

enum model_cache_room {
    ROOM_RESERVED,
    ROOM_EVICT,          /* `victim` is to be unloaded first (model_cache_unload) */
    ROOM_WAIT,           /* models that are being unloaded, or in use, will make room */
    ROOM_NEVER,          /* it does not fit beside the ordered models */
    ROOM_NOT_IN_ADVANCE, /* rule 5 */
};

/* Reserves room for a load that was begun. */
enum model_cache_room model_cache_reserve(struct model_cache *cache,
                                          struct model_cache_entry *place, uint64_t bytes,
                                          struct model_cache_entry **victim);
/* Every worker has it; `bytes` as measured. */
void model_cache_loaded(struct model_cache *cache, struct model_cache_entry *place, uint64_t bytes,
                        int64_t now_ns);
/* Notes the size after another measurement. */
void model_cache_resize(struct model_cache *cache, struct model_cache_entry *place, uint64_t bytes);
/* Returns whether the models exceed the capacity, not counting those that leave. `*victim` is to be
 * unloaded for that, never `spared`; NULL: none can be. */
bool model_cache_excess(struct model_cache *cache, const struct model_cache_entry *spared,
                        struct model_cache_entry **victim);

/* ---- unloading ---- */

/* Unloads a model that is LOADED, or LOADING and begun. */
void model_cache_unload(struct model_cache *cache, struct model_cache_entry *place);
void model_cache_fail(struct model_cache *cache, struct model_cache_entry *place);
/* No worker has anything left of a model that is UNLOADING or FAILED. */
void model_cache_gone(struct model_cache *cache, struct model_cache_entry *place);

/* Bytes of the models that are LOADED and were ordered. */
uint64_t model_cache_ordered_bytes(const struct model_cache *cache);
