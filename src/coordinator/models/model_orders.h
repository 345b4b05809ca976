/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operator's orders about models: takes them from the control socket, passes them to registry
 * and catalogs, and answers with a text. Loop thread.
 */
#pragma once

#include <stdint.h>

#include "coordinator/loop/control.h"
#include "coordinator/models/directories.h"
#include "coordinator/models/models.h"

struct model_orders;

/* The arguments outlive the result. */
struct model_orders *model_orders_create(struct model_registry *registry,
                                         struct pipeline *const *pipelines, uint32_t count);
/* Call before the control socket ends, which answers pending calls; later results are dropped. NULL
 * is ignored. */
void model_orders_destroy(struct model_orders *orders);

/* Writes a page of the node's models as an object with `rows` (ipc/control.h), in the order of
 * their ids; of MODELS_A_TURN at most, if the request has a limit. */
void model_orders_list(const struct model_orders *orders, const struct control_request *request,
                       struct bytes *list);
/* Carries out CONTROL_MODEL_LOAD or _UNLOAD; answers `call` when it is done. */
void model_orders_take(struct model_orders *orders, const struct control_request *request,
                       struct control_call *call);
/* Carries out CONTROL_MODEL_ROLLBACK, and answers at once: the load that it begins takes its time.
 */
void model_orders_roll_back(struct model_directories *directories,
                            const struct control_request *request, struct control_call *call);
