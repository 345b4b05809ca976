/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a node's rows (rows.h) as a table, or as one JSON object per line. */
#pragma once

#include <stdio.h>

#include "ctl/rows.h"

/* `verb`: the request that the rows answer. */
void row_table_print(enum control_verb verb, const struct rows *rows, FILE *out);
void row_table_json(const json_t *row, FILE *out);
