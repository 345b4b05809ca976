/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oldest requests in flight, as the node has last published them: where each is, and who has
 * it.
 */
#pragma once

#include <stdio.h>

#include "ctl/json.h"
#include "shm/snapshot.h"

/* A table of all pipelines'; nothing if there is none in flight. */
void oldest_print(const struct snapshot *snapshot, FILE *out);

/* An array of those of one pipeline, of all when it is NULL. */
void oldest_json(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
                 struct json *json);
