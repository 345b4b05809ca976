/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller of a request, for fair shares and suspicion, by either protocol:
 *
 *   1. the names in the certificate that it has shown, all of them together, which only its
 *      authority can give. A renewed certificate with the same names is the same caller;
 *   2. if it has shown none, or that of a proxy in `caller_proxies`: what it says of itself by
 *      `caller_metadata`, which anybody can invent;
 *   3. else the address of its machine; of such a proxy, 1.
 *
 * Metadata can never be taken for a certificate: they are hashed with different keys.
 */
#pragma once

#include <stdbool.h>

#include "coordinator/config/config.h"
#include "coordinator/pipeline/share.h"

struct http_request;
struct rpc_call;

struct callers {
    struct share_key key;
    const char *metadata; /* the key of 2 */
    const char *proxies;  /* their names, commas between; NULL: none */
    bool asks;            /* gRPC callers for certificates */
};

struct callers callers_of(const struct config *config, struct share_key key);

/* On the front's threads. */
uint64_t caller_of_call(const struct callers *callers, const struct rpc_call *call);
/* On the HTTP thread. */
uint64_t caller_of_request(const struct callers *callers, const struct http_request *request);
