/* SPDX-License-Identifier: Apache-2.0 */
/* The modelet `shelf`, which can't load while it runs. */
#define SHELF_ABILITIES SHOAL_RUNS_BATCHES
#include "modelet_shelf.c"
