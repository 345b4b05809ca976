/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text cut to the size of a screen, with the terminal's control sequences.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

struct screen {
    size_t rows;
    size_t columns;
    size_t first; /* line of the text in the first row; reduced if the text ends before */
};

/*
 * Writes lines of `text` from the upper left corner, replacing the screen's contents. A line that
 * is too long ends in `>`. If there are more lines than rows, the last row says which are shown.
 */
void screen_write(struct screen *screen, const char *text, FILE *out);
