/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline's shelf of models: states, the budget, which model is evicted, which is loaded next.
 * Pure: no I/O, no clock, no lock, no allocation; the caller has the registry's lock, and
 * carries out what is decided here.
 *
 *     KNOWN, FAILED ── shelf_queue ──▶ LOADING, queued ── shelf_next ──▶ LOADING ── shelf_reserve
 *     LOADING ── shelf_loaded ──▶ LOADED ── shelf_unload ──▶ UNLOADING ── shelf_gone ──▶ KNOWN
 *     LOADING ── shelf_unload ──▶ UNLOADING (its load is undone);  queued ── shelf_drop ──▶ KNOWN
 *     LOADING, LOADED ── shelf_fail ──▶ FAILED, which keeps its bytes until shelf_gone
 *
 * Rules of the budget:
 *   1. What is reserved or held never exceeds the capacity because of a reservation. What turns out
 *      larger than was reserved may, until enough has been evicted (shelf_excess).
 *   2. Evicted is the least recently used that is LOADED, has no user and was not ordered.
 *   3. What is being unloaded counts until it is gone.
 *   4. What requests wait for is loaded before what was only ordered; else first come first.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/models/models.h"

struct shelf_link {
    struct shelf_link *prev, *next; /* NULL: in no list */
};

struct shelf {
    uint64_t capacity_bytes;
    uint64_t used_bytes;    /* reserved or held, of every model */
    uint64_t leaving_bytes; /* of it, of those that are being unloaded */
    uint32_t held_max;
    uint32_t held;             /* models with bytes */
    uint32_t leaving;          /* of them, those that are being unloaded */
    uint32_t loads_max;        /* at once */
    uint32_t loads;            /* begun, and neither LOADED nor gone */
    uint32_t loaded;           /* LOADED */
    struct shelf_link by_use;  /* LOADED, least recently used first */
    struct shelf_link awaited; /* queued, a request waits */
    struct shelf_link asked;   /* queued, none waits */
};

/* A model's part of it. Zero at first: KNOWN. */
struct shelf_place {
    enum model_state state;
    bool listed;
    bool ordered;
    bool queued;
    bool awaited;   /* queued: because a request waits */
    bool begun;     /* counts among `loads` */
    bool reserved;  /* counts among `held` */
    uint32_t users; /* requests that name it and are not answered */
    uint64_t bytes;
    int64_t used_ns; /* 0: never */
    struct shelf_link link;
};

void shelf_init(struct shelf *shelf, uint64_t capacity_bytes, uint32_t loads_max,
                uint32_t held_max);

/* It was asked for: most recently used now. */
void shelf_touch(struct shelf *shelf, struct shelf_place *place, int64_t now_ns);

/* Of the LOADED ones the most recently used (`place` NULL), or the one that was used next before
 * `place`; NULL: none. */
struct shelf_place *shelf_used_before(const struct shelf *shelf, const struct shelf_place *place);

/* ---- loading ---- */

enum shelf_demand { SHELF_ORDERED, SHELF_AWAITED };

/* KNOWN, FAILED or queued. One that is queued goes forward if now a request waits. */
void shelf_queue(struct shelf *shelf, struct shelf_place *place, enum shelf_demand demand);
/* Queued: KNOWN again. */
void shelf_drop(struct shelf *shelf, struct shelf_place *place);
/* The next to be loaded, begun; NULL: none, or enough are being loaded. */
struct shelf_place *shelf_next(struct shelf *shelf);

enum shelf_room {
    ROOM_RESERVED,
    ROOM_EVICT, /* `victim` is to be unloaded first (shelf_unload) */
    ROOM_WAIT,  /* what is being unloaded, or in use, will make room */
    ROOM_NEVER, /* not beside what was ordered */
};

/* Room for one that was begun. */
enum shelf_room shelf_reserve(struct shelf *shelf, struct shelf_place *place, uint64_t bytes,
                              struct shelf_place **victim);
/* Every worker has it; `bytes` as measured. */
void shelf_loaded(struct shelf *shelf, struct shelf_place *place, uint64_t bytes, int64_t now_ns);
/* Measured again. */
void shelf_resize(struct shelf *shelf, struct shelf_place *place, uint64_t bytes);
/* Whether there is more on the shelf than it holds, what is leaving left aside; `victim` is who is
 * to be unloaded for it, never `spared`, or NULL: nobody can be. */
bool shelf_excess(struct shelf *shelf, const struct shelf_place *spared,
                  struct shelf_place **victim);

/* ---- unloading ---- */

/* LOADED, or LOADING and begun. */
void shelf_unload(struct shelf *shelf, struct shelf_place *place);
void shelf_fail(struct shelf *shelf, struct shelf_place *place);
/* UNLOADING or FAILED: nothing of it is left anywhere. */
void shelf_gone(struct shelf *shelf, struct shelf_place *place);

/* Bytes of those that are LOADED and were ordered. */
uint64_t shelf_ordered_bytes(const struct shelf *shelf);
