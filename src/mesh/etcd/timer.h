/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A timer on libevent's base. One that was cleared or destroyed does not fire any more, also when
 * it was due.
 */
#pragma once

#include <stdint.h>

struct event_base;
struct etcd_timer;

struct etcd_timer *etcd_timer_create(struct event_base *base, void (*on_time)(void *context),
                                     void *context);
/* Fires once, so long from now; less than 0 is 0. */
void etcd_timer_set(struct etcd_timer *timer, int64_t timeout_ns);
void etcd_timer_clear(struct etcd_timer *timer);
/* NULL is left alone. */
void etcd_timer_destroy(struct etcd_timer *timer);
