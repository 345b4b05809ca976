/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text cut to the size of a screen, as what a terminal is to be sent.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

/*
 * The first `rows` lines of `text`, each cut at `columns` characters, from the screen's upper left
 * corner on; what stood there before goes away.
 */
void screen_write(const char *text, size_t rows, size_t columns, FILE *out);
