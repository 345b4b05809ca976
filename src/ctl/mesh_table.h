/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a mesh's rows (mesh_rows.h) as a table, or as one JSON object per line. */
#pragma once

#include <stdio.h>

#include "ctl/mesh_rows.h"

/* `verb`: the request that the rows answer. */
void mesh_table_print(enum control_verb verb, const struct mesh_rows *rows, FILE *out);
void mesh_table_json(const struct mesh_row *row, FILE *out);
