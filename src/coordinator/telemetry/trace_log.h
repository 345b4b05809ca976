/* SPDX-License-Identifier: Apache-2.0 */
/* The access log: one line, `call`, for a call that has been answered. */
#pragma once

#include <stdbool.h>

#include "coordinator/telemetry/trace.h"
#include "coordinator/telemetry/trace_json.h"

/* The id of a trace that begins here is drawn in `ids`. False: the log has no room for the line. */
bool trace_log(const struct trace *trace, const struct trace_ids *ids);
