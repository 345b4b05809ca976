/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The certificates that the configuration names: those shown to callers (`tls`) and those that
 * nodes of a mesh show each other (`mesh: tls`). Their files are read when opened and whenever they
 * change (rpc.h).
 */
#pragma once

#include "base/error.h"
#include "coordinator/config/config.h"
#include "rpc/rpc.h"

struct certificates {
    struct rpc_tls *callers; /* this and the next: NULL without TLS */
    struct rpc_tls *peers;
};

/* The error names the key, the file and what is wrong with it. */
enum status certificates_open(const struct config *config, struct certificates *certificates,
                              struct error *error) WARN_UNUSED;
/* Opens each by itself: calls `say` with each mistake, returns their number. */
uint32_t certificates_check(const struct config *config, uint32_t *good,
                            void (*say)(const char *mistake));
/* Call after any result of certificates_open, when nobody uses them any more. */
void certificates_close(struct certificates *certificates);
