/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's process as the other end of its control socket, for commands that wait for its end.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ctl/ask.h"

/* A pidfd; -1: unknown, as of a process in another namespace. */
int process_of(const struct ctl_ask *ask);
/* True: it has ended, or is unknown. */
bool process_wait(int process, int64_t deadline_ns);
