/* SPDX-License-Identifier: Apache-2.0 */
/* The puppet as a modelet that changes its inputs: requests that it has touched never run again. */
#define PUPPET_ABILITIES (SHOAL_RUNS_BATCHES | SHOAL_CHANGES_INPUTS)
#include "modelet_puppet.c"
