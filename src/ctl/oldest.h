/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oldest requests in flight as the node last published them: the state and owner of each.
 */
#pragma once

#include <stdio.h>

#include "ipc/snapshot.h"

/* A table over all pipelines; nothing if no request is in flight. */
void oldest_print(const struct snapshot *snapshot, FILE *out);
