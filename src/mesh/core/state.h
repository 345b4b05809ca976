/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that a node knows, and the steps that change it. For the core's own files.
 *
 * A step changes the tables, and puts what must be looked at again on two lists: calls to be
 * routed, and models to be settled. They are worked off at its end (step.c), so that nothing
 * recurses.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/heap.h"
#include "mesh/core/ledger.h"
#include "mesh/core/memory.h"
#include "mesh/core/mesh_core.h"
#include "mesh/core/orders.h"
#include "mesh/core/place.h"
#include "mesh/core/tables.h"
#include "mesh/core/vmodels.h"

enum {
    RETRY_MS = 1000,       /* T4, T5 */
    CLAIM_MS_MAX = 30000,  /* a call for a claim that cannot be written; then it is UNAVAILABLE */
    UNREACHABLE_MS = 2000, /* a peer that did not answer is the last choice for so long */
    HOP_MS = 5,            /* R10 */
    REFUSED_MS = 250,      /* R14: whoever refused a load is left alone by those that wait */
    SAMPLES_MAX = 20,      /* R4 */
    QUESTIONS_MAX = 256,   /* R13 */
    EARLY_MAX = 64,        /* strangers' names that are kept */
};

#define CALL_NONE UINT32_MAX

/* How long calls took, together. */
struct call_times {
    uint64_t us;
    uint64_t count;
};

/* One model on this node: its copy, or the work on it. */
struct entry {
    uint64_t create_revision; /* of the record it is for (T7) */
    int64_t used_ms;          /* wall clock */
    int64_t since_ms;         /* stamp of its place; no two of this node are the same */
    int64_t began_ms;         /* now_ms when it came into its state */
    int64_t waited_ms;        /* now_ms of the first call that waited */
    int64_t claimed_ms;       /* now_ms when its load was begun */
    uint64_t minutes;         /* S1: bit n: used n minutes before `minute` */
    int64_t minute;           /* of now_ms */
    int64_t heavy_ms;         /* now_ms when its rate was last near that of S3 */
    int64_t asked_ms;         /* now_ms when another node was last asked to load it, too */
    uint32_t uses;            /* since the last look at the rates */
    uint32_t rate;            /* a minute, at that look */
    uint32_t serial;          /* with its number: its ticket */
    uint32_t model;
    uint32_t units;
    uint32_t target; /* copies wanted in all, when it was claimed */
    uint32_t in_flight;
    uint32_t concurrency; /* calls that it takes at a time; 0: all that come (S6) */
    uint32_t waiting;     /* calls that wait for it, or for a seat in it, first come first */
    uint32_t first_call;
    uint32_t last_call;
    struct call_times recent; /* S5: the window that is being filled, and the last full one */
    struct call_times before;
    uint32_t reason; /* of its failure; NAME_NONE */
    uint32_t next_free;
    uint8_t state; /* enum mesh_state */
    uint8_t class; /* enum mesh_class */
    bool sized;    /* the prediction has come */
    bool called;   /* by anybody, since it was claimed */
    bool resident;
    bool failed;  /* and the record must say so */
    bool doomed;  /* LOADING: is not wanted any more */
    bool asked;   /* at asked_ms: there was somebody who could */
    bool offered; /* E6: evicted, and loaded elsewhere if there is room */
    bool evicted; /* from memory, for room: it is told with the unload */
    bool yields;  /* WITHDRAWING: to another copy, or as nobody could take it, if so it is still */
    uint8_t pool;
};

/* Models that share memory and loaders, and are lost together (K6). */
struct pool {
    bool runtime; /* there is one */
    struct ledger ledger;
    uint32_t loaders;
    uint32_t loading;
    bool stuck; /* R17: all loaders have been busy with loads for longer than those take */
    uint32_t default_units;
    int64_t load_timeout_ms;
    struct heap lru;   /* may be evicted, by last use (E1) */
    struct heap young; /* are guarded, by when they were loaded (E3) */
    struct heap queue; /* Q */
    uint64_t evictable_units;
};

struct load_wish {
    uint32_t model;
    int64_t used_ms;
    enum mesh_class class;
    uint32_t target;
    uint32_t units; /* 0: not known */
};

enum call_state {
    CALL_FREE,
    CALL_ROUTING,
    CALL_WAITING,
    CALL_SERVED,
    CALL_THERE,
    CALL_PARKED,  /* V8: until the mirror shows where its vmodel has gone */
    CALL_CROWDED, /* R14: until somebody has room */
    CALL_ASKING,  /* R13: whether there is a record of what it names */
};

struct call {
    int64_t deadline_ms;
    uint64_t create_revision;
    int64_t there_since_ms;
    int64_t parked_ms;  /* now_ms, when it first was; 0: never */
    int64_t crowded_ms; /* R14: now_ms, when it first was */
    int64_t asked_ms;   /* R14: now_ms, when a load was last tried for it */
    int64_t waits_ms;   /* WAITING: now_ms, since when */
    uint64_t arrival;   /* R14: in which order; 0: it never was */
    uint32_t model;     /* ASKING for a vmodel: NAME_NONE */
    uint32_t vmodel;    /* V7: that it is for; NAME_NONE */
    uint32_t number;    /* of the last try */
    uint32_t next;      /* in the list it is on */
    uint32_t entry;     /* WAITING, SERVED */
    uint16_t there;     /* THERE */
    uint8_t there_hop;
    uint8_t state;
    uint8_t hop;
    uint8_t balance;
    uint8_t tries;
    uint8_t overloads;
    uint8_t tried_count;
    uint8_t turns;   /* V8: to another model of the vmodel */
    bool gone : 1;   /* another node has seen the model's record go */
    bool let_go : 1; /* R14: it is its turn */
    bool once : 1;   /* R15 */
    bool moved : 1;  /* R17: it has left a load that took too long */
    struct tried tried[MESH_TRIED_MAX];
};

/* R13: what calls of the last second were for, and this node does not know. */
struct question {
    uint64_t txn; /* that is out; 0: none */
    uint32_t model;
    uint32_t vmodel; /* one of both is NAME_NONE; both: it is free */
    uint32_t asked;  /* list of calls: the transaction is theirs */
    uint32_t later;  /* list of calls: those that came since */
    uint32_t times;  /* it was asked, this second */
};

/* A copy that was asked for before the model's record came. */
struct early {
    struct load_wish load; /* with a reference to the model */
    int64_t came_ms;
    enum mesh_where where;
};

struct mesh {
    struct tables tables;
    struct vmodels vmodels;
    struct orders orders;
    struct mesh_config config;
    int64_t now_ms;
    int64_t wall_ms;
    int64_t wall_most_ms; /* the latest that it has been */
    uint64_t random;

    /* the world */
    uint64_t session; /* 0: no transactions */
    bool whole;       /* the mirror is */
    uint64_t seen;    /* up to this revision it was, the last time */
    bool draining;
    bool drained;          /* and it has been said */
    int64_t drain_ms;      /* now_ms of its last look */
    bool keeps_unmovable;  /* D4: what no other node may load is kept, */
    bool unmovable_called; /* and some of it has just been called */
    uint32_t taker;        /* instance that could take what was last looked at (D4) */
    bool leader;
    uint32_t rate;        /* calls served here a minute, at the last look */
    int64_t rates_ms;     /* now_ms of the last look at the rates */
    int64_t cleaned_ms;   /* of the janitor */
    int64_t reaped_ms;    /* of the reaper's last beginning */
    uint32_t reap_at;     /* the model it has come to; UINT32_MAX: it rests */
    bool misplaced;       /* something may be here that may not (H3) */
    uint32_t ahead_units; /* what a model takes that is loaded in advance, as far as is known */
    struct heap unloaded; /* models without a copy that the reaper has come to, by last use */
    struct heap ahead;    /* those to be loaded in advance, latest used first */
    int64_t emptied_ms;   /* now_ms when etcd last was (W1) */
    int64_t contact_ms; /* now_ms when something of etcd's was last heard, or a session was there */
    int64_t ticked_ms;  /* now_ms of the last tick */
    int64_t lost_wait_ms; /* since it was emptied: as what is known was old then */
    bool lost;            /* and something may still have to be written anew */
    uint32_t lost_writes; /* that may still go out this second */
    bool lost_seen;       /* on this sweep */
    uint32_t lost_at;     /* the model that it has come to */
    /* Thousandths of a load that the mesh may begin in advance (G5), and when that last grew. */
    int64_t ahead_budget;
    int64_t ahead_paid_ms;
    struct pool pools[MESH_POOLS_MAX];
    uint32_t pool_count;
    int64_t load_timeout_ms;         /* the longest of theirs */
    int64_t samples_ms[SAMPLES_MAX]; /* how long loads took, the last ones */
    uint32_t samples;

    /* this node's copies */
    struct entry *entries;
    uint32_t entry_capacity;
    uint32_t entry_used;
    uint32_t entry_free;
    uint32_t loaded;
    uint32_t serials;
    int64_t last_since_ms; /* the last stamp of a place here, */
    int64_t most_since_ms; /* and the latest */
    struct heap order;     /* scratch: entries, for who goes through them in an order */
    uint32_t *victims;
    uint32_t victim_capacity;

    /* calls */
    struct call *calls;
    uint32_t call_capacity;
    struct heap deadlines; /* of waiting calls */
    uint32_t routing;      /* list of those to be routed, first in first out */
    uint32_t routing_last;
    uint32_t parked; /* list of those that are */
    uint32_t asking; /* R13: how many are */
    uint32_t crowd;  /* R14: the same, by arrival */
    uint32_t crowd_last;
    bool crowd_due; /* something may have changed for them */
    uint64_t arrivals;
    struct question questions[QUESTIONS_MAX]; /* R13 */
    uint64_t sent;
    uint64_t transitions; /* of vmodels, seen in the mirror */

    struct early early[EARLY_MAX];
    uint32_t early_count;

    /* transactions */
    struct heap retries; /* models, by now_ms */
    struct heap graves;  /* models without a record, by the revision of its end (T6) */
    uint64_t txns;
    uint32_t *unsettled;
    uint32_t unsettled_count;
    uint32_t unsettled_capacity;

    /* what comes out */
    struct mesh_action *actions;
    uint32_t action_count;
    uint32_t action_capacity;
    struct memory_arena arena;
};

static inline struct model *
model_at(struct mesh *mesh, uint32_t number)
{
    return &mesh->tables.models[number];
}

/* NULL: none. */
static inline struct entry *
entry_of(struct mesh *mesh, const struct model *model)
{
    return model->entry == ENTRY_NONE ? NULL : &mesh->entries[model->entry];
}

static inline uint32_t
entry_number(const struct mesh *mesh, const struct entry *entry)
{
    return (uint32_t)(entry - mesh->entries);
}

static inline bool
state_loads(enum mesh_state state)
{
    return state >= MESH_STATE_CLAIMING && state <= MESH_STATE_LOADING;
}

static inline bool
state_serves(enum mesh_state state)
{
    return state == MESH_STATE_LOADED || state == MESH_STATE_WITHDRAWING;
}

static inline struct pool *
pool_of(struct mesh *mesh, const struct entry *entry)
{
    return &mesh->pools[entry->pool];
}

/* It is in memory, and calls are given to it. */
static inline bool
entry_serves(const struct entry *entry)
{
    return state_serves((enum mesh_state)entry->state) && entry->resident && !entry->failed;
}

/* pools.c */
/* Which one a model of that record belongs to; one without a record: the first. */
uint32_t pool_number(const struct mesh *mesh, struct model *model);
static inline struct pool *
pool_for(struct mesh *mesh, struct model *model)
{
    return &mesh->pools[pool_number(mesh, model)];
}
/* R17: no load that is begun here now would begin soon. */
static inline bool
pool_is_stuck(struct mesh *mesh, uint32_t model)
{
    return pool_for(mesh, model_at(mesh, model))->stuck;
}
void pool_open(struct mesh *mesh, const struct mesh_event *event);
/* Of one alone: what a model that belongs to it finds here. */
struct mesh_figures pool_figures(struct mesh *mesh, const struct pool *pool);
void pools_fini(struct mesh *mesh);

/* step.c */
struct mesh_action *act(struct mesh *mesh, enum mesh_action_kind kind);

/* load.c: entries. A pointer to one lasts until the next load_begin. */
enum load_refusal {
    LOAD_BEGUN,
    LOAD_LEAVING,
    LOAD_NOT_HERE,
    LOAD_FAILED_HERE,
    LOAD_TOO_LARGE,
    LOAD_FULL
};

enum load_refusal load_begin(struct mesh *mesh, const struct load_wish *wish);
/* It would be, for a call of now. */
bool load_may_begin(struct mesh *mesh, uint32_t model);
/* True: evictions and refusals are to be worked off. */
bool load_run_queue(struct mesh *mesh);
void load_tick(struct mesh *mesh);
/* E3: who has become old enough to go may go from now on. */
void load_grow_up(struct mesh *mesh);
void load_touch(struct mesh *mesh, struct entry *entry, int64_t used_ms);
/* The wall clock was set by so much, and wall_ms is what it says now. */
void load_on_clock_set(struct mesh *mesh, int64_t by_ms);
/* A call was served by it. */
void load_called(struct mesh *mesh, struct entry *entry);
/* Q3: a call waits for it. */
void load_lift(struct mesh *mesh, struct entry *entry, enum mesh_class class);
/* The one writer of an entry's state; NONE: it is gone. */
void entry_set(struct mesh *mesh, struct entry *entry, enum mesh_state state);
/* The claim and the size are there: room is made for it, and it is queued; or it leaves. */
void entry_admit(struct mesh *mesh, struct entry *entry);
/* To WITHDRAWING, or gone; its waiting calls go on elsewhere. */
void entry_leave(struct mesh *mesh, struct entry *entry);
void load_on_size(struct mesh *mesh, uint64_t ticket, uint64_t size_bytes);
void load_on_load(struct mesh *mesh, const struct mesh_event *event);
void load_on_measured(struct mesh *mesh, uint64_t ticket, uint64_t size_bytes);
void load_on_unload(struct mesh *mesh, uint64_t ticket, bool freed);
/* SIZE, LOAD or UNLOAD. */
void act_on_model(struct mesh *mesh, enum mesh_action_kind kind, const struct entry *entry);
void load_on_runtime_lost(struct mesh *mesh, uint32_t pool);
int64_t load_assumed_ms(const struct mesh *mesh); /* R4 */
int64_t load_churn_ms(const struct mesh *mesh);   /* P2 */
int64_t load_guard_ms(const struct mesh *mesh);   /* E3 */

/* settle.c: transactions. */
void settle_later(struct mesh *mesh, uint32_t model);
void settle(struct mesh *mesh, uint32_t model);
void settle_all(struct mesh *mesh);
void settle_on_txn(struct mesh *mesh, uint64_t txn, enum mesh_txn_end end);
void settle_tick(struct mesh *mesh);
uint32_t model_fresh_failures(const struct mesh *mesh, const struct model *model);

/* G1: the record without the places of an instance, if that one's key is absent. */
void settle_without(struct mesh *mesh, uint32_t model, uint16_t instance);

/* The record as it is now, to be changed and written; of the step's memory. */
struct mesh_model settle_record(struct mesh *mesh, uint32_t model);
/* W1: a record that was lost, as this node knew it, without its own place. */
void settle_anew(struct mesh *mesh, uint32_t model);

/* G2: the record, last used now. */
void settle_used_now(struct mesh *mesh, uint32_t model);

/* J4: the record's last use is this node's. */
void settle_say_used(struct mesh *mesh, uint32_t model);

/* copies.c */
void copies_use(struct mesh *mesh, struct entry *entry, uint32_t count);
/* S5: calls have ended, after so long together. */
void copies_time(struct entry *entry, uint32_t count, uint64_t took_us);
void copies_tick(struct mesh *mesh);

/* move.c */
/* It was to yield, and is wanted here again: it is loaded. False: it goes on leaving. */
bool move_stays(struct mesh *mesh, struct entry *entry);
/* D2, D3: those in `order`, to other nodes, and away from here when they are loaded there. True:
 * some are waited for. */
bool move_in_order(struct mesh *mesh);
/* H3: what may not be here any more. */
void move_tick(struct mesh *mesh);
/* E6: it was evicted, and its place has gone. */
void move_evicted(struct mesh *mesh, struct entry *entry);

/* drain.c */
void drain_begin(struct mesh *mesh);
void drain_tick(struct mesh *mesh);
/* Its record has changed. */
void drain_on_model(struct mesh *mesh, uint32_t model);

/* janitor.c */
void janitor_tick(struct mesh *mesh);

/* reaper.c */
void reaper_tick(struct mesh *mesh);

/* ahead.c: the reaper has come to a model; it has seen all of them; a second has passed. */
void ahead_note(struct mesh *mesh, uint32_t model);
void ahead_plan(struct mesh *mesh);
void ahead_tick(struct mesh *mesh);

/* lost.c */
void lost_on_emptied(struct mesh *mesh);
/* Something of etcd's has come. */
void lost_on_contact(struct mesh *mesh);
void lost_tick(struct mesh *mesh);
/* A record that is about to be put: of a model whose record was lost, or another under its name. */
enum lost { LOST_NOT, LOST_SAME, LOST_OTHER };
enum lost lost_judge(const struct mesh *mesh, const struct mesh_model *record);
/* It has been put: what is held here is held for it, or for none. */
void lost_ends(struct mesh *mesh, uint32_t model, enum lost lost);
/* True: this node writes lost records anew now of which no other node has an entry. */
bool lost_is_mine(const struct mesh *mesh);
/* One record more may be written anew now; what calls wait for is not counted. */
bool lost_may_write(struct mesh *mesh);
/* Others may still speak in revisions from before. */
bool lost_lately(const struct mesh *mesh);

static inline bool
model_is_lost(const struct model *model)
{
    return model->known && model->revision == 0;
}

/* call.c */
void call_on_call(struct mesh *mesh, const struct mesh_event *event);
void call_on_cancelled(struct mesh *mesh, uint32_t call);
void call_on_try(struct mesh *mesh, const struct mesh_event *event);
void call_route(struct mesh *mesh, uint32_t number);
/* All that wait for the entry: it is loaded, or they go on elsewhere. */
void calls_serve(struct mesh *mesh, struct entry *entry);
void calls_reroute(struct mesh *mesh, struct entry *entry, enum mesh_end why);
void call_tick(struct mesh *mesh);
void call_route_later(struct mesh *mesh, uint32_t number);
/* For an entry. */
void call_stop_waiting(struct mesh *mesh, uint32_t number);

/* Forgets tries of another model, or of long ago; nodes that the caller excluded stay excluded. */
void call_forget_tries(struct mesh *mesh, struct call *call);
/* R9 */
void call_list(struct mesh *mesh, struct call *call, uint32_t instance, enum mesh_list which,
               int64_t since_ms);
struct place_wish call_place_wish(struct mesh *mesh, const struct call *call);

void call_answer(struct mesh *mesh, uint32_t number, enum mesh_end end, const char *text);

/* elsewhere.c: loads that hang (R17). */
void elsewhere_tick(struct mesh *mesh);
/* Another node has sent the call back that waited for a load there: that load counts as a copy that
 * was tried in vain. */
void elsewhere_learn(struct mesh *mesh, struct call *call, uint32_t instance);

/* once.c: calls of which a try may not be repeated (R15). */
/* Copies that are out of reach count as tried. */
void once_pass_over(struct mesh *mesh, struct call *call);
/* They do not any more, and the call is routed again. False: there were none. */
bool once_turn_back(struct mesh *mesh, uint32_t call);

/* crowd.c: calls that no node has room for (R14). False: no waiting would help it. */
bool crowd_join(struct mesh *mesh, uint32_t call);
/* Somebody may hold the model, and has not failed to: room is all that is missing. `call`: and it
 * excludes some; NULL: no call. */
bool crowd_may_help(struct mesh *mesh, uint32_t model, const struct call *call);
void crowd_cancelled(struct mesh *mesh, uint32_t call);
void crowd_on_model(struct mesh *mesh, uint32_t model);
/* At the end of a step: if room may have come, who can be let go is routed. */
void crowd_look(struct mesh *mesh);
void crowd_tick(struct mesh *mesh);

/* unknown.c: calls for what this node has not heard of (R13). False: there is nobody to ask. */
bool unknown_ask(struct mesh *mesh, const struct mesh_event *event);
void unknown_on_txn(struct mesh *mesh, uint64_t txn, enum mesh_txn_end end);
void unknown_cancelled(struct mesh *mesh, uint32_t call);
void unknown_tick(struct mesh *mesh);

/* ensure.c */
/* A copy more, at the best place that there is; `used_ms` is what placement goes by (S4). Why
 * nobody takes it; NULL: somebody may, or there are enough. */
const char *ensure_anywhere(struct mesh *mesh, const struct load_wish *load, int64_t used_ms);
/* As many as are missing of `target`, each at another node, none at those in `asked`, which those
 * that are asked are added to. False: nobody would take one. */
bool ensure_copies(struct mesh *mesh, const struct load_wish *load, int64_t used_ms,
                   struct asked *asked);
/* The first in two: where it may be, and there it is asked for; NAME_NONE: nothing happens. */
struct place_wish ensure_wish(struct mesh *mesh, uint32_t model);
/* place_refusal's text, with sizes; of the step's memory. */
const char *ensure_refusal_text(struct mesh *mesh, const struct place_wish *wish,
                                enum place_refusal refusal);
void ensure_at(struct mesh *mesh, const struct load_wish *load, uint32_t there);
void ensure_on_ensure(struct mesh *mesh, const struct mesh_event *event);
/* Its record has changed: a copy may have been asked for before there was one. */
void ensure_on_model(struct mesh *mesh, uint32_t model);
void ensure_tick(struct mesh *mesh);

/* follow.c: calls for vmodels (V7, V8). */
/* The call is not over: it is routed to another model, or waits until the mirror has seen more. */
bool follow_vmodel(struct mesh *mesh, uint32_t call);
/* It has another model from now on, if there is one. */
bool follow_turn(struct mesh *mesh, struct call *call);
void follow_cancelled(struct mesh *mesh, uint32_t call);
void follow_on_vmodel(struct mesh *mesh, uint32_t vmodel);
void follow_on_model(struct mesh *mesh, uint32_t model);
void follow_tick(struct mesh *mesh);
