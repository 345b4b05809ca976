/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts the process that is to take this node's place, and watches it until it is ready or has
 * failed (DESIGN-upgrade.md). Loop thread; nothing here waits, except upgrade_destroy for the end
 * of a process that was killed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "coordinator/loop/control.h"
#include "coordinator/node.h"
#include "loop/loop.h"

struct upgrade;

struct upgrade_options {
    struct loop *loop;
    const struct node_options *node;
    void (*on_ready)(void *context, pid_t successor); /* to be followed by upgrade_yield */
    void (*on_failed)(void *context);                 /* its process is gone */
    void *context;
};

struct upgrade *upgrade_create(const struct upgrade_options *options);

/* Carries out a CONTROL_UPGRADE, which is answered when it fails. On an error here nothing has
 * begun, and the call is not answered. */
enum status upgrade_begin(struct upgrade *upgrade, const struct control_request *request,
                          int64_t timeout_ns, struct control_call *call,
                          struct error *error) WARN_UNUSED;

/* A process has been started, and neither failed nor is it ready. NULL, here and below: no. */
bool upgrade_is_under_way(const struct upgrade *upgrade);
/* The successor has everything, or is about to have. */
bool upgrade_has_yielded(const struct upgrade *upgrade);

/* Within on_ready: tells the successor to go on. Returns the call, whose answer is the drain's
 * end. */
struct control_call *upgrade_yield(struct upgrade *upgrade);
/* Passes on a signal that is for the successor, after upgrade_yield. */
void upgrade_signal(struct upgrade *upgrade, int number);
/* Kills a process that is not ready; `why` is kept. */
void upgrade_cancel(struct upgrade *upgrade, const char *why);

/* NULL is ignored. */
void upgrade_destroy(struct upgrade *upgrade);
