/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The images that trainer and client share. Every fifth row is held out: the trainer never uses
 * those rows, the client uses no others.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { DIGITS_PIXELS = 64, DIGITS_CLASSES = 10, DIGITS_HELD_OUT_EVERY = 5 };

struct digits {
    size_t count;
    float *pixels; /* count rows of DIGITS_PIXELS, each 0..16 */
    float *labels; /* count values, each 0..9; float, as XGBoost wants them */
};

static inline bool
digits_held_out(size_t row)
{
    return row % DIGITS_HELD_OUT_EVERY == DIGITS_HELD_OUT_EVERY - 1;
}

/* Reads all rows of the CSV file. On failure prints the reason to standard error and returns
 * false. */
bool digits_read(const char *path, struct digits *digits);
/* Copies the rows that are held out, or the others, into a set of their own. */
bool digits_select(const struct digits *all, bool held_out, struct digits *selected);
void digits_free(struct digits *digits);
