/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `shoald --check` says of the JSON that `mesh` names: `type_constraints`, `dataplane`,
 * `register`, and the file of a store in etcd. Read as a start would read them; nothing is
 * connected to.
 */
#pragma once

#include <stdint.h>

#include "coordinator/config/config.h"

/* Calls `say` with each mistake; returns how many there are. */
uint32_t mesh_files_check(const struct config_mesh *mesh, void (*say)(const char *mistake));
