/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides where mmesh.ModelRuntime is served, from the addresses of `runtime` and `listen`. An
 * address of both is one endpoint, the front's, which then answers ModelRuntime, too; the others
 * belong to a server of its own. Pure, except that it asks whether there is IPv6.
 *
 * `port:8085` means this machine only, "127.0.0.1" and "[::1]", so that not every client that
 * reaches the machine can load models. If it is one endpoint with a `listen` that reaches further,
 * calls from elsewhere are refused (runtime_peer_is_local).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"

enum { RUNTIME_LISTEN_MAX = 2 * CONFIG_LISTEN_MAX, RUNTIME_ADDRESS_BYTES = 272 };

struct runtime_place {
    char own[RUNTIME_LISTEN_MAX][RUNTIME_ADDRESS_BYTES]; /* to be listened on */
    uint32_t own_count;
    bool at_front;
    bool front_is_local; /* of the front's TCP calls only those of this machine */
};

/* INVALID_ARGUMENT: `listen` has an address of `runtime` and others, which would serve it, too. */
enum status runtime_place_find(const struct config_addresses *runtime, const char *const *listen,
                               uint32_t listen_count, struct runtime_place *place,
                               struct error *error) WARN_UNUSED;

/* Returns whether `peer` (rpc_call_peer) is on this machine. */
bool runtime_peer_is_local(const char *peer, size_t bytes);
