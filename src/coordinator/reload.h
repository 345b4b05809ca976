/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the configuration anew and giving each pipeline the generation that it asks for. Which
 * pipelines there are, and everything above them (addresses, threads, limits), stays as it was at
 * the start: what differs there is named in the log as needing a restart. Loop thread.
 */
#pragma once

#include "coordinator/assembly.h"
#include "coordinator/loop/control.h"
#include "coordinator/node.h"

/* Every pipeline; how it went is in the log. For SIGHUP. */
void reload_all(struct assembly *assembly, const struct node_options *options);

/* The pipeline of that name, or every one if it is ""; answers `call` when all have ended. */
void reload_asked(struct assembly *assembly, const struct node_options *options, const char *name,
                  struct control_call *call);
