/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders: management calls while this node answers them (rules O). An order is checked when a
 * record that it names changes, when its transaction ends, and at each tick; a check answers it,
 * sends the one missing transaction, or waits. It never depends on which of its transactions was
 * applied: the records decide (T3).
 */
#pragma once

#include "mesh/core/copies/write.h"
#include "mesh/core/state.h"

void orders_fini(struct orders *orders);
void orders_on_order(struct mesh *mesh, const struct mesh_order *said);
void orders_on_cancelled(struct mesh *mesh, uint32_t number);
void orders_on_txn(struct mesh *mesh, uint64_t txn, enum mesh_txn_end end);
void orders_on_model(struct mesh *mesh, uint32_t model);
void orders_on_vmodel(struct mesh *mesh, uint32_t vmodel);
void orders_tick(struct mesh *mesh);
/* Checks one due order; false: none is due. */
bool orders_work_off(struct mesh *mesh);
/* Orders and their lists agree. O(everything). */
void orders_check(const struct mesh *mesh);

/* ---- order.c ---- */

/* The only writer of an order's stage. */
void order_set(struct core_order *order, enum order_stage stage);
/* Answers an order that need not exist: INVALID, FULL and their like. */
struct mesh_action *order_reply(struct mesh *mesh, uint32_t number, enum mesh_outcome outcome);
/* Frees the order without an answer. */
void order_free(struct mesh *mesh, struct core_order *order);
/* Answers and frees the order. */
void order_end(struct mesh *mesh, struct core_order *order, enum mesh_outcome outcome);
/* Like order_end(), but also gives the reason why no node loads the model. */
void order_end_unloaded(struct mesh *mesh, struct core_order *order, const char *error);
/* O1: whether etcd confirmed that the named records are as they are here. Otherwise the question is
 * sent and the order waits. */
bool order_is_sure(struct mesh *mesh, struct core_order *order);
void order_send(struct mesh *mesh, struct core_order *order, const struct write_batch *batch);

/* register.c, vmodel.c: one check each. */
void register_look(struct mesh *mesh, struct core_order *order);
void unregister_look(struct mesh *mesh, struct core_order *order);
void model_status_look(struct mesh *mesh, struct core_order *order);
void ensure_loaded_look(struct mesh *mesh, struct core_order *order);
void load_look(struct mesh *mesh, struct core_order *order);
void set_vmodel_look(struct mesh *mesh, struct core_order *order);
void delete_vmodel_look(struct mesh *mesh, struct core_order *order);
void vmodel_status_look(struct mesh *mesh, struct core_order *order);
void transition_look(struct mesh *mesh, struct core_order *order);
/* Returns whether the order's type, path and key equal the record's. */
bool order_describes(struct mesh *mesh, const struct core_order *order);
/* O2: the last use that a new model begins with. */
int64_t order_used_ms(const struct mesh *mesh, const struct core_order *order);
