/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that has started this one to take its place (../DESIGN-upgrade.md), on the side of
 * the new one: $SHOAL_UPGRADE, the listening sockets, the link, the log. Loop thread, except
 * predecessor_read.
 *
 * SHOAL_UPGRADE=PID PIDFD LINK STDERR FD… has numbers of descriptors; an m before that of a
 * listening socket says that it is the service manager's.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "loop/loop.h"

#define PREDECESSOR_VARIABLE "SHOAL_UPGRADE"

/* The messages on the link. */
enum { PREDECESSOR_READY = 'R', PREDECESSOR_YIELD = 'Y' };

enum predecessor_end { PREDECESSOR_YIELDS, PREDECESSOR_DIED };

struct predecessor_handler {
    /* Called once: this process owns everything from here on. */
    void (*on_end)(void *context, enum predecessor_end how);
    void *context;
};

/* Reads the variable, removes it and notes the sockets. Call in main, before there are threads. */
enum status predecessor_read(struct error *error) WARN_UNUSED;

/* 0: this process was not started by one. */
pid_t predecessor_pid(void);
/* Returns true until the predecessor has yielded or died. */
bool predecessor_owns(void);
/* Returns true until the predecessor's process has ended. */
bool predecessor_is_alive(void);

/* Watches the link, if there is one. */
void predecessor_watch(struct loop *loop, const struct predecessor_handler *handler);
/* This process could serve. Says it once. */
void predecessor_notify_ready(void);
/* Call before the loop ends. */
void predecessor_close(void);
