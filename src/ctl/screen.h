/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text cut to the size of a screen, with the terminal's control sequences.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

/*
 * Writes the first `rows` lines of `text`, each cut at `columns` characters, from the upper left
 * corner, replacing the screen's contents.
 */
void screen_write(const char *text, size_t rows, size_t columns, FILE *out);
