/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of `shoald serve`.
 */
#pragma once

#include "base/usage.h"
#include "coordinator/node.h"

extern const struct usage_command serve_command;

enum { SERVE_GO_ON = -1 };

/* Reads the arguments behind `serve`, and makes the configuration that `node` is to run. Returns
 * SERVE_GO_ON, or the exit code. */
int serve_read(int argc, char **argv, struct node_options *node);

/* Names, after a start that failed, each port that another program has, and the option that chooses
 * one. */
void serve_explain(void);
