/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server's load as the headers of its answer report it: ORCA as TEXT, JSON and BIN with the names
   of
 * docs/model-server-protocol.md, vLLM and Triton, and the queue and adapters of the reference's
 * proof of concept. Pure.
 */
#pragma once

#include <stdbool.h>

#include "gateway/core/gateway_core.h"

/* The headers that are read; NULL ends them. */
extern const char *const load_report_headers[];

struct load_report {
    struct gateway_report figures; /* its adapters are those below */
    struct gateway_adapter adapters[GATEWAY_ADAPTERS_MAX];
};

/* Adds to the report what the header with that name says; what it does not say, or says wrongly,
 * stays as it is. Only `figures` need be empty at first. */
void load_report_read(const char *header, const char *value, struct load_report *report);
