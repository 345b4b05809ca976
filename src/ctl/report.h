/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot of counters as tables and as JSON.
 */
#pragma once

#include <stdio.h>

#include "ipc/snapshot.h"

/* `pipeline`: only that one, or all if NULL. */
enum report_form { REPORT_WIDE, REPORT_SCREEN /* at most 80 columns */ };
void report_print(const struct snapshot *snapshot, const char *pipeline, enum report_form form,
                  FILE *out);
/* Like snapshot_json(), on a line. */
void report_json(const struct snapshot *snapshot, const char *pipeline, FILE *out);

/* "ready, pid 17, up 3 min 2 s" or "dead, since 2026-01-31 10:00:00". */
void report_node_line(const struct snapshot *snapshot, FILE *out);

/* Every counter with its scope, type, unit and meaning. */
void report_manual(FILE *out);
void report_manual_json(FILE *out);
