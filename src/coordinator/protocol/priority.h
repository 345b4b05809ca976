/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How urgent a call is, as its metadata say: for methods whose messages nobody looks into.
 */
#pragma once

#include "base/error.h"
#include "rpc/rpc.h"

/* As callers write it: the request parameter `priority`. */
enum priority { PRIORITY_HIGH = 1, PRIORITY_NORMAL = 2, PRIORITY_LOW = 3 };

#define PRIORITY_METADATA "shoal-priority"

/* `value` NULL: nothing was said, which is normal. INVALID_ARGUMENT: it is none. */
enum status priority_read(const struct rpc_span *value, enum priority *priority,
                          struct error *error) WARN_UNUSED;
/* That of a call, by its metadata. */
enum status priority_of_call(const struct rpc_call *call, enum priority *priority,
                             struct error *error) WARN_UNUSED;
