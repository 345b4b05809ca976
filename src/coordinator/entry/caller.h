/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identifies the caller of a request, for fair shares and suspicion:
 *
 *   1. all names in its certificate, hashed together, which only its authority can issue. A
 *      renewed certificate with the same names is the same caller;
 *   2. without a certificate, or with that of a proxy in `caller_proxies`: the value of
 *      `caller_metadata`, which any caller can invent;
 *   3. else the address of its machine; of such a proxy, 1.
 *
 * Metadata can never be taken for a certificate: they are hashed with different keys.
 */
#pragma once

#include <stdbool.h>

#include "coordinator/config/config.h"
#include "coordinator/entry/inbound.h"
#include "coordinator/pipeline/share.h"

struct callers {
    struct share_key key;
    const char *metadata; /* the key of 2 */
    const char *proxies;  /* their names, commas between; NULL: none */
    bool asks;            /* the gRPC server asks callers for certificates */
};

struct callers callers_of(const struct config *config, struct share_key key);

/* Call within the callback that received the call. 0: the caller is unknown. */
uint64_t caller_of(const struct callers *callers, const struct inbound *inbound);

/* Returns whether the caller may use shared memory: it is on this machine, by a loopback address or
 * a unix socket, or has shown a certificate. Call within the callback that received the call. */
bool caller_is_near(const struct inbound *inbound);
