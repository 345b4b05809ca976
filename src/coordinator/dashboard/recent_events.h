/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's newest log events, for the dashboard's time axes and lists. The memory is fixed; older
 * events give way to newer ones. Any thread.
 */
#pragma once

#include <stdint.h>

#include "base/json.h"
#include "base/log.h"

enum { RECENT_EVENTS_MAX = 512 };

struct recent_events;

/* Every event of level info or more severe goes to it from now on. There is one in a process. */
struct recent_events *recent_events_start(void);
void recent_events_stop(void);

/* Writes an array of the events numbered above `after`, oldest first: `number`, `time_ms`, `level`
 * and `text`, the event's name and values. Returns the newest number. */
uint64_t recent_events_json(struct recent_events *events, uint64_t after, struct json *json);
