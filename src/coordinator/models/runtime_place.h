/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where mmesh.ModelRuntime is served: what the addresses of `runtime` come to beside those of
 * `listen`. An address of both is one endpoint, the front's, which then answers ModelRuntime too;
 * the others belong to a server of its own. Pure, but for asking whether there is IPv6.
 *
 * `port:8085` means this machine here, "127.0.0.1" and "[::1]": who may load models is not to
 * depend on who reaches the machine. Where it is one endpoint with a `listen` that reaches further,
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
    bool front_is_local; /* of the front's calls by TCP those of this machine only */
};

/* INVALID_ARGUMENT: `listen` has addresses that are not of `runtime` beside one that is, and would
 * serve it too. */
enum status runtime_place_find(const struct config_addresses *runtime, const char *const *listen,
                               uint32_t listen_count, struct runtime_place *place,
                               struct error *error) WARN_UNUSED;

/* `peer` as rpc_call_peer has it. */
bool runtime_peer_is_local(const char *peer, size_t bytes);
