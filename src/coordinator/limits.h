/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the process may have what a configuration needs: threads, descriptors, memory. Looked at
 * before anything starts, because libraries end the process where they cannot have theirs, and the
 * kernel ends it where it has taken too much.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"

/* The memory that the kernel lets this process's cgroup have, by both versions of cgroups, the
 * smallest of it and those around it; 0: as much as there is. `root`: where /proc and /sys are, ""
 * but in tests. */
uint64_t limits_memory_bytes(const char *root);

/*
 * Has all regions fit into `memory_bytes` (0: no limit): arenas whose size is not given get less,
 * so that all regions together take half of it at most, the other half being for the processes and
 * for the regions of a reload. Says so in the log. RESOURCE_EXHAUSTED, with the sum: what is given
 * does not fit.
 */
enum status limits_fit_memory(struct config *config, uint64_t memory_bytes,
                              struct error *error) WARN_UNUSED;

/* This and limits_check, for the cgroup that this process is in; false: the reason is on stderr. */
bool limits_allow(struct config *config);

/* By trying: as many threads as the node and its libraries start at least, beside as much address
 * space as the regions take; and enough descriptors. RESOURCE_EXHAUSTED: what there is too little
 * of, and what to do. */
enum status limits_check(const struct config *config, struct error *error) WARN_UNUSED;
