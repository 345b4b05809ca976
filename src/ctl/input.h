/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors as a user writes them:
 *
 *     NAME=DATATYPE[2,3]:1,2,3,4,5,6      values
 *     NAME=DATATYPE[2,3]@FILE             bytes of a file, "-" for stdin; of BYTES the only element
 *     NAME=DATATYPE[-1,3]@csv:FILE        one row of a CSV file per index of the first dimension
 *
 * One dimension may be -1: it follows from how many values there are. In CSV that is the first, and
 * stays open until the rows are divided among requests.
 */
#pragma once

#include "base/error.h"
#include "ctl/tensor.h"

struct input_options {
    bool csv_header;         /* the first row of a CSV file is none of values */
    size_t csv_column_first; /* counting from 1; 0: all columns */
    size_t csv_column_last;
};

/* INVALID_ARGUMENT: it is written wrong. Another status: the file cannot be read. What failed has
 * nothing to free. */
enum status input_read(const char *text, const struct input_options *options, struct tensor *tensor,
                       struct error *error) WARN_UNUSED;

/* The rows of a CSV text (commas, quotes with "" inside, LF or CRLF, blank lines skipped). */
enum status csv_read(const char *text, size_t bytes, const struct input_options *options,
                     struct tensor *tensor, struct error *error) WARN_UNUSED;
