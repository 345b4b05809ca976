/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of `shoald --check` for the JSON that `mesh` names: `type_constraints`, `dataplane`,
 * `register`, and the file of a store in etcd. Reads them as a start does, without connecting.
 */
#pragma once

#include <stdint.h>

#include "coordinator/config/config.h"

/* Calls `say` with each mistake; returns their number. */
uint32_t mesh_files_check(const struct config_mesh *mesh, void (*say)(const char *mistake));
