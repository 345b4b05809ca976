/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other threads call the thread that turns an event base: however often it was called, it comes
 * once, soon.
 */
#pragma once

struct event_base; /* libevent's */
struct wake;

struct wake *wake_create(struct event_base *base, void (*on_wake)(void *context), void *context);
/* Any thread. */
void wake_up(struct wake *wake);
/* When nobody calls any more. NULL is left alone. */
void wake_destroy(struct wake *wake);
