/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the configuration again and gives each pipeline a new generation. The set of pipelines and
 * the keys above them (addresses, threads, limits) stay as at the start; the log names differences
 * there as needing a restart. Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/assembly.h"
#include "coordinator/loop/control.h"
#include "coordinator/node.h"

/* The reloads under way, and whether another one is to follow. */
struct reloads {
    struct assembly *assembly;
    const struct node_options *options;
    uint32_t count; /* under way */
    bool held;      /* a SIGHUP waits for the end of these reloads, or of the start */
    void (*on_count)(void *context); /* `count` has changed */
    void *context;
};

/* Handles SIGHUP: reloads every pipeline and logs the outcome. While a reload is under way the
 * request is held and run once afterwards, however many have come. */
void reload_all(struct reloads *reloads);
/* Handles SIGHUP while the node starts or is upgraded: holds the request `until` then, a text for
 * the log. */
void reload_hold(struct reloads *reloads, const char *until);
/* Runs the held reload, if none is under way. */
void reload_held(struct reloads *reloads);

/* Reloads the pipeline of that name, or all for ""; answers `call` when all have ended. */
void reload_asked(struct reloads *reloads, const char *name, struct control_call *call);
