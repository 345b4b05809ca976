/* SPDX-License-Identifier: Apache-2.0 */
/* Kubernetes' quantities: "2", "500m", "1.5Gi". Pure; any thread. */
#pragma once

#include <stdint.h>

/* Thousandths of the amount, which the manifest's schema has checked; UINT64_MAX: as much or more.
 */
uint64_t amount_milli(const char *text);

/* Returns how often the divisor is in an amount, rounded up; either in thousandths. */
uint64_t amount_divide(uint64_t milli, uint64_t divisor_milli);
