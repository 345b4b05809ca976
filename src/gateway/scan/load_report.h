/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an answer's headers say of its server: ORCA reports as TEXT, JSON and BIN, and the queue of
 * the reference's proof of concept. Pure.
 */
#pragma once

#include <stdbool.h>

#include "gateway/core/gateway_core.h"

/* The headers that are read; NULL ends them. */
extern const char *const load_report_headers[];

/* Adds to the report what the header with that name says; what it does not say, or says wrongly,
 * stays as it is. */
void load_report_read(const char *header, const char *value, struct gateway_report *report);
