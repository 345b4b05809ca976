/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planted bug that is awake: SHOAL_PLANT's number, none without it. Included by force into the
 * copy of the core that plant.py makes, and known to nothing else.
 */
#pragma once

extern unsigned planted_number;
#define PLANTED(number) (planted_number == (number))
