/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the storage of a configuration, with its defaults. */
#pragma once

#include <limits.h>

#include "base/error.h"
#include "coordinator/config/config.h"
#include "loop/loop.h"
#include "serving/storage/storage.h"

/* `*storage` is NULL if the configuration wants none. */
enum status node_storage_open(const struct config_storage *config, struct loop *loop,
                              struct storage **storage, struct error *error) WARN_UNUSED;

/*
 * Fetches what an URI names, for `shoald serve`, before the node exists: returns when it is there,
 * and keeps it in the cache for as long as this process lives.
 */
enum status node_storage_fetch(const struct config_storage *config, const char *uri,
                               char path[PATH_MAX], struct error *error) WARN_UNUSED;
