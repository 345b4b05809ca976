/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread's event loop: descriptors, timers (timer.h) and work handed over by other threads.
 * Everything runs on the thread that calls loop_run, except loop_post.
 */
#pragma once

#include "base/error.h"
#include "loop/timer.h"

struct loop;
struct loop_watch;

enum status loop_create(struct loop **loop, struct error *error) WARN_UNUSED;
void loop_destroy(struct loop *loop);

/* Runs until loop_stop. */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);
/* CHECKs that the loop does not run, or that the calling thread runs it. */
void loop_check_thread(struct loop *loop);

/* Runs posted work that has not run yet: for the end, when no other thread posts any more. */
void loop_run_posted(struct loop *loop);

/* Calls `on_readable` whenever the descriptor is readable, until the watch is removed. */
struct loop_watch *loop_watch_add(struct loop *loop, int fd, void (*on_readable)(void *context),
                                  void *context);
/* Does not close the descriptor. NULL is ignored. */
void loop_watch_remove(struct loop_watch *watch);

/* Any thread: runs `work` on the loop thread soon. Posts run in order; those made after the loop
 * stopped do not run. */
void loop_post(struct loop *loop, void (*work)(void *context), void *context);

/* Returns the event base, for timers and wake-ups, and for modules that use libevent themselves. */
struct event_base *loop_base(struct loop *loop);
