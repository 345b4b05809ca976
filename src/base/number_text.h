/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers as decimal text that reads back as the same number, in the C locale. Floating-point
 * numbers must be finite; they look like those of "%g".
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Room for the shortest decimal of any double. */
enum { NUMBER_ROOM = 32 };

/* Return the text's length. */
size_t number_text_int(char room[NUMBER_ROOM], int64_t number);
size_t number_text_uint(char room[NUMBER_ROOM], uint64_t number);

/* Write the shortest such text. */
void number_text_double(char room[NUMBER_ROOM], double number);
void number_text_float(char room[NUMBER_ROOM], float number);
