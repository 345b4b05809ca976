/* SPDX-License-Identifier: Apache-2.0 */
/* The probe, declaring that it changes its inputs. */
#define PROBE_ABILITIES (SHOAL_RUNS_BATCHES | SHOAL_CHANGES_INPUTS)
#include "modelet_probe.c"
