/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of gRPC as a call that came in (entry/inbound.h).
 */
#pragma once

#include "coordinator/entry/inbound.h"

/* Of an rpc_call. Its sink's `refused` is front_call_refused. */
extern const struct inbound_type front_call_type;

/* Ends a call that had to wait for a slot and gets none. The submission's context is its front. */
void front_call_refused(const struct submission *submission, const struct error *error);

/* Within its callback. */
struct inbound front_call_inbound(struct rpc_call *call, const struct wire_message *message,
                                  uint32_t queue);
