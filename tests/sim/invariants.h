/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariants, one file each in invariants/. The world says what it sees; an invariant keeps of
 * it what it needs, and ends the run when it is broken, with the seed, its name and what was seen.
 * It looks at the world from outside: at runtimes, etcd, messages; into a core only where there is
 * no other way, and at no core's reasons.
 */
#pragma once

#include <stddef.h>
#include <stdnoreturn.h>

#include "base/error.h"
#include "world.h"

enum sight_kind {
    SAW_STEP,     /* node, event, actions: after the step, before they are carried out */
    SAW_LOAD,     /* node, model, number: its version: begins */
    SAW_LOADED,   /* node, model, ok */
    SAW_UNLOAD,   /* node, model: begins */
    SAW_UNLOADED, /* node, model */
    SAW_LOST,     /* node, model: the runtime does not have it any more */
    SAW_SERVE,    /* node, model, number: its record's creation revision, deadline_ms */
    SAW_FORWARD,  /* node, other, model, hop, client_call, deadline_ms, former_ms: the one before */
    SAW_CALL,     /* client_call */
    SAW_ANSWER,   /* client_call */
    SAW_COMMIT,   /* node, model, commit */
    SAW_MIRROR,   /* node, number: revision up to which it was told */
    SAW_BIRTH,    /* node */
    SAW_DEATH,    /* node */
    SAW_TROUBLE,  /* node, or NODE_NONE: all: something was done to it, or its links */
    SAW_DRAIN,    /* node */
    SAW_DRAINED,  /* node */
    SAW_VMODEL,   /* node, number: the vmodel, vmodel_before, vmodel_after: id NULL: not there */
    SAW_EMPTIED,  /* etcd is about to lose its data */
    SAW_WRITTEN,  /* a transaction of several records, after all that it changed was shown */
    SAW_CONVERGED, /* number: etcd's revision a while ago */
    SAW_WARM,      /* everything was called once, and clients go on */
    SAW_RESTED,    /* for a while then */
    SAW_END,       /* and long after that, if a vmodel was still on its way */
};

/* A node's transaction that was applied. */
struct commit {
    bool creates; /* the record: there is no `before`, which is the same as `after` */
    const struct mesh_model *before;
    const struct mesh_model *after;
    const char *absent; /* NULL: none */
    uint32_t life;      /* of the node when it sent it */
    uint64_t session;
    bool late; /* the node had given it up */
};

struct sight {
    enum sight_kind kind;
    uint32_t node;
    uint32_t other;
    uint32_t model;
    uint32_t client_call;
    enum mesh_hop hop;
    bool ok;
    uint64_t number;
    int64_t deadline_ms;
    int64_t former_ms;
    const struct commit *commit;
    const struct mesh_vmodel *vmodel_before;
    const struct mesh_vmodel *vmodel_after;
    const struct mesh_event *event;
    const struct mesh_actions *actions;
};

#define SEES(kind) (UINT32_C(1) << SAW_##kind)

struct invariant {
    const char *name;
    uint32_t sees;     /* SEES(..) | .. */
    size_t pair_bytes; /* of its own, zeroed, for each node and model */
    size_t node_bytes;
    size_t model_bytes;
    void (*see)(struct world *world, const struct sight *sight);
};

void invariants_init(struct world *world);
void observe(struct world *world, struct sight sight);

/* An invariant's own memory of these. */
void *of_pair(struct world *world, const struct invariant *invariant, uint32_t node,
              uint32_t model);
void *of_node(struct world *world, const struct invariant *invariant, uint32_t node);
void *of_model(struct world *world, const struct invariant *invariant, uint32_t model);

/* Says what and where, and ends the process. */
noreturn void broken(const struct world *world, const struct invariant *invariant,
                     const char *format, ...) PRINTF_LIKE(3, 4);

/* The record as etcd has it now; false: there is none. */
bool record_now(struct world *world, uint32_t model, struct mesh_place *places,
                struct mesh_model *record);
/* The same as of a revision. */
bool record_then(struct world *world, uint32_t model, uint64_t revision, struct mesh_place *places,
                 struct mesh_model *record);
/* The node's key as etcd has it now; false: there is none. */
bool key_now(struct world *world, uint32_t node, struct mesh_instance *instance);
/* The same of a vmodel. */
bool vmodel_now(struct world *world, uint32_t number, struct mesh_vmodel *vmodel);
bool model_differs(const char *a, const char *b);
/* NULL: the record has none of the node. */
const struct mesh_place *place_of(const struct mesh_model *record, uint32_t node);
/* Loading or loaded. */
bool is_registered(const struct mesh_place *place);
/* By etcd: the node's key is there, and not of a later process. */
bool place_is_alive(struct world *world, const struct mesh_place *place);
bool node_may_hold(const struct world *world, uint32_t node, uint32_t model);

extern const struct invariant I01_capacity, I02_one_activity, I03_claims, I04_no_unload_under_call,
    I05_withdraw_first, I06_one_end, I07_no_call_lost, I08_forwarding_ends, I09_deadlines_shrink,
    I10_mirror, I11_no_lost_update, I12_fence, I13_vmodels, I14_references, I15_oldest_first,
    I16_churn, I17_failures, I18_drain, I19_right_answer, L1_convergence, L2_no_orphans, L3_demand,
    L4_rest, L5_one_leader, B3_maximum, B4_minimum, B5_needed_copies, H1_labels, M1_one_time,
    S6_permits, R14_room, W1_nothing_forgotten;
