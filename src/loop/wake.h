/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wakes the thread that runs an event base: its callback runs there once, soon, however often
 * wake_up was called.
 */
#pragma once

struct event_base; /* libevent's */
struct wake;

/* Returns NULL and sets errno if no descriptor is left. */
struct wake *wake_create(struct event_base *base, void (*on_wake)(void *context), void *context);
/* Any thread. */
void wake_up(struct wake *wake);
/* Call when no thread calls wake_up any more. NULL is ignored. */
void wake_destroy(struct wake *wake);
