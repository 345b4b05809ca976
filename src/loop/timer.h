/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A timer on an event base. A cleared or destroyed timer does not fire, even if it was due. Only on
 * the thread that runs the base.
 */
#pragma once

#include <stdint.h>

struct event_base; /* libevent's */
struct loop_timer;

/* Creates a timer that is not set. `on_time` runs once per loop_timer_set. */
struct loop_timer *loop_timer_create(struct event_base *base, void (*on_time)(void *context),
                                     void *context);
/* Fires once after the timeout; a negative one counts as 0. Replaces the former setting. */
void loop_timer_set(struct loop_timer *timer, int64_t timeout_ns);
void loop_timer_clear(struct loop_timer *timer);
/* NULL is ignored. */
void loop_timer_destroy(struct loop_timer *timer);
