/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operator's orders about models over the control socket, passed on to registry and catalogs,
 * and their results in words. Loop thread.
 */
#pragma once

#include <stdint.h>

#include "coordinator/loop/control.h"
#include "coordinator/models/models.h"

struct model_orders;

/* All of it outlives the orders. */
struct model_orders *model_orders_create(struct registry *registry,
                                         struct pipeline *const *pipelines, uint32_t count);
/* Before the control: what has no answer yet is the control's to answer, and what becomes of it is
 * told to nobody. NULL is left alone. */
void model_orders_destroy(struct model_orders *orders);

/* One of the verbs CONTROL_MODEL_…; answers `call` when it is done. */
void model_orders_take(struct model_orders *orders, const struct control_request *request,
                       struct control_call *call);
