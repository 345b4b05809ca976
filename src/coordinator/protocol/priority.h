/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call's priority in its metadata, for methods whose messages are not decoded.
 */
#pragma once

#include "base/error.h"
#include "rpc/rpc.h"

/* The values of the request parameter `priority`. */
enum priority { PRIORITY_HIGH = 1, PRIORITY_NORMAL = 2, PRIORITY_LOW = 3 };

#define PRIORITY_METADATA "shoal-priority"

/* `value` NULL: not given, which is normal. INVALID_ARGUMENT: not a priority. */
enum status priority_read(const struct wire_span *value, enum priority *priority,
                          struct error *error) WARN_UNUSED;
