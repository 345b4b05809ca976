/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps web pages of others from calling this node through the browser of a visitor that can reach
 * it: pages that send requests to it as they are, and pages whose name begins to mean this
 * machine's address (DNS rebinding). Other clients send no Origin, and are not affected. Pure.
 *
 *   1. An `Origin` must have the request's own host and port, or a name of `http_hosts`.
 *   2. A `Host` must be an address, localhost, this machine's name, or a name of `http_hosts`:
 *      on loopback addresses, and on all others but unix sockets and TLS if there are `http_hosts`.
 *      A certificate proves the name by itself, and a server may have any name in its network.
 */
#pragma once

#include "base/error.h"
#include "http/server.h"

struct rest_guard {
    const char *hosts; /* of the key, commas between; NULL: none */
    char machine[256]; /* this machine's name */
};

void rest_guard_init(struct rest_guard *guard, const char *hosts);

/* `host` and `origin`: the headers, or NULL. PERMISSION_DENIED names the header and the key. */
enum status rest_guard_check(const struct rest_guard *guard, enum http_place place,
                             const char *host, const char *origin, struct error *error) WARN_UNUSED;
