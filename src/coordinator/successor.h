/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes that a process makes to its configuration to take over from another one: in a mesh both
 * are instances for a while (DESIGN-upgrade.md). Pure, except that addresses are tried.
 */
#pragma once

#include <sys/types.h>

#include "coordinator/config/config.h"

/* The instance's id gets the pid; `peers` becomes `upgrade_peers`, or the same with any port, if
 * the predecessor has an address of it. */
void successor_configure(struct config_mesh *mesh, pid_t pid);
