/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The storage helper of an external runtime: models whose path is an URI, or whose key names a
 * storage, are fetched before the runtime loads them. It gets the path in the cache and the key
 * with `disk_size_bytes` and `bucket`, as KServe's puller gives them.
 *
 * A model's files stay in the cache until the runtime has unloaded it, has failed to load it, or is
 * gone.
 */
#pragma once

#include "mesh/edge/external.h"

struct storage;

/* Returns the `files` of external_options. NULL: the runtime gets paths and keys as they were
 * given. */
struct external_files mesh_fetch_files(struct storage *storage);
