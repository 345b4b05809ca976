/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Floating-point numbers as decimal text that reads back as the same number. Finite numbers only;
 * like "%g" in the C locale.
 */
#pragma once

/* Room for the shortest decimal of any double. */
enum { NUMBER_ROOM = 32 };

/* Write the shortest such text. */
void number_text_double(char room[NUMBER_ROOM], double number);
void number_text_float(char room[NUMBER_ROOM], float number);
