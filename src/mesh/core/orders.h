/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders: management calls while this node answers them (rules O). An order is looked at whenever a
 * record that it names has changed, when its transaction has ended, and at each tick; a look
 * answers it, sends the one transaction that is missing, or waits. Nothing of it depends on which
 * of its transactions was applied: what the records show counts (T3).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/mesh_core.h"
#include "mesh/core/write.h"

enum order_stage {
    ORDER_FREE,
    ORDER_RECORDS,    /* what it says is being written */
    ORDER_LOAD,       /* a copy is awaited */
    ORDER_TRANSITION, /* the leader is awaited (V4) */
};

struct order {
    struct mesh_order said; /* its texts are in `texts` */
    char *texts;            /* malloc'ed */
    struct bid bid;
    int64_t began_ms;        /* now_ms */
    int64_t asked_ms;        /* LOAD: now_ms when somebody was last asked to load it */
    uint64_t asked_revision; /* of the record then */
    uint64_t was;            /* create_revision of what is to be deleted; 0: not seen yet */
    uint32_t model;          /* NAME_NONE: it names none */
    uint32_t vmodel;
    uint32_t at; /* in the list of those under way */
    uint8_t stage;
    uint8_t asks;
    bool due;       /* to be looked at in this step */
    bool wrote;     /* it has sent more than compares */
    bool confirmed; /* what `bid` compared, holds */
    bool loads;     /* SET_VMODEL: the model that is active now is to be loaded (V2) */
};

struct orders {
    struct order *at;
    uint32_t capacity;
    uint32_t *under_way;
    uint32_t under_way_count;
    uint32_t under_way_capacity;
    uint32_t *due;
    uint32_t due_count;
    uint32_t due_capacity;
};

void orders_fini(struct orders *orders);
void orders_on_order(struct mesh *mesh, const struct mesh_order *said);
void orders_on_cancelled(struct mesh *mesh, uint32_t number);
void orders_on_txn(struct mesh *mesh, uint64_t txn, enum mesh_txn_end end);
void orders_on_model(struct mesh *mesh, uint32_t model);
void orders_on_vmodel(struct mesh *mesh, uint32_t vmodel);
void orders_tick(struct mesh *mesh);
/* One that is due is looked at; false: none is. */
bool orders_work_off(struct mesh *mesh);

/* ---- for those that carry them out ---- */

/* The answer. The order is free after it. */
void order_end(struct mesh *mesh, struct order *order, enum mesh_outcome outcome);
/* The same, with why nobody loads the model. */
void order_end_unloaded(struct mesh *mesh, struct order *order, const char *error);
/* O1: the records that the order names are in etcd what they are here. Else this is being found
 * out, and the order waits. */
bool order_is_sure(struct mesh *mesh, struct order *order);
void order_send(struct mesh *mesh, struct order *order, const struct batch *batch);

/* register.c, vmodel.c: one look. */
void register_look(struct mesh *mesh, struct order *order);
void unregister_look(struct mesh *mesh, struct order *order);
void model_status_look(struct mesh *mesh, struct order *order);
void ensure_loaded_look(struct mesh *mesh, struct order *order);
void load_look(struct mesh *mesh, struct order *order);
void set_vmodel_look(struct mesh *mesh, struct order *order);
void delete_vmodel_look(struct mesh *mesh, struct order *order);
void vmodel_status_look(struct mesh *mesh, struct order *order);
void transition_look(struct mesh *mesh, struct order *order);
/* The type, path and key that the order gives are those of the record. */
bool order_describes(struct mesh *mesh, const struct order *order);
/* O2: the last use that a model begins with. */
int64_t order_used_ms(const struct mesh *mesh, const struct order *order);

/* status.c: what the records say; of the step's memory. */
struct mesh_status status_of(struct mesh *mesh, uint32_t model);
struct mesh_vmodel_status vmodel_status_of(struct mesh *mesh, uint32_t vmodel);
