/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the configuration anew and giving each pipeline the generation that it asks for. Which
 * pipelines there are, and everything above them (addresses, threads, limits), stays as it was at
 * the start: what differs there is named in the log as needing a restart. Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/assembly.h"
#include "coordinator/loop/control.h"
#include "coordinator/node.h"

/* Those that are under way, and whether another one is to follow. */
struct reloads {
    struct assembly *assembly;
    const struct node_options *options;
    uint32_t count; /* under way */
    bool held;      /* SIGHUP has come, and waits for the end of these or of the start */
};

/* Every pipeline; how it went is in the log. For SIGHUP: while the node starts (not `serving`) or a
 * reload is under way it is held, and run once after that, however many have come. */
void reload_all(struct reloads *reloads, bool serving);
/* Runs what was held, if nothing is under way. */
void reload_held(struct reloads *reloads);

/* The pipeline of that name, or every one if it is ""; answers `call` when all have ended. */
void reload_asked(struct reloads *reloads, const char *name, struct control_call *call);
