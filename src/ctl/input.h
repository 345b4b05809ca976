/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors in the form that users write:
 *
 *     NAME=DATATYPE[2,3]:1,2,3,4,5,6      values
 *     NAME=DATATYPE[2,3]@FILE             bytes of a file, "-" for stdin; for BYTES one element
 *     NAME=DATATYPE[-1,3]@csv:FILE        one row of a CSV file per index of the first dimension
 *
 * One dimension may be -1: it follows from the number of values. For CSV it is the first, and stays
 * open until the rows are divided among requests.
 */
#pragma once

#include "base/error.h"
#include "ctl/tensor.h"

struct input_options {
    bool csv_header;         /* the first row of a CSV file contains no values */
    size_t csv_column_first; /* counting from 1; 0: all columns */
    size_t csv_column_last;
};

/* INVALID_ARGUMENT: wrong syntax. Another status: the file cannot be read. On failure there is
 * nothing to free. */
enum status input_read(const char *text, const struct input_options *options,
                       struct ctl_tensor *tensor, struct error *error) WARN_UNUSED;

/* Reads the rows of a CSV text (commas, quotes with "" inside, LF or CRLF, blank lines skipped). */
enum status csv_read(const char *text, size_t bytes, const struct input_options *options,
                     struct ctl_tensor *tensor, struct error *error) WARN_UNUSED;
