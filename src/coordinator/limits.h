/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that the process may have what a configuration needs: threads, descriptors, memory. Done
 * before anything starts, because libraries abort when they cannot get theirs, and the kernel kills
 * a process that has taken too much memory.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"

/* The memory limit of this process's cgroup and the cgroups around it, of both versions; 0: none.
 * `root` is put before /proc and /sys; "" except in tests. */
uint64_t limits_memory_bytes(const char *root);

/*
 * Makes all regions fit into `memory_bytes` (0: no limit): arenas without a configured size shrink
 * until all regions together take half of it; the other half is for the processes and the regions
 * of a reload. Logs what it did. RESOURCE_EXHAUSTED, with the sum: the configured sizes do not fit.
 */
enum status limits_fit_memory(struct config *config, uint64_t memory_bytes,
                              struct error *error) WARN_UNUSED;

/* limits_fit_memory and limits_check for this process's cgroup. */
enum status limits_allow(struct config *config, struct error *error) WARN_UNUSED;
