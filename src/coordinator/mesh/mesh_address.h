/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts of this node that its record publishes: its address, its version, the time.
 */
#pragma once

#include <netdb.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"

/* A host of getnameinfo's maximum, brackets, and a port. */
enum { MESH_ADDRESS_BYTES = NI_MAXHOST + 16 };

/* "host:port" of the first of `peers`, which is bound to `port` (0: a unix socket), prefixed with
 * PEERS_TLS if there is TLS between the nodes. FAILED_PRECONDITION: no address is found that
 * another machine could call, and etcd is not on loopback, either; the text says what to set. */
enum status mesh_address_find(const struct config_mesh *config, int port,
                              char address[MESH_ADDRESS_BYTES], struct error *error) WARN_UNUSED;

/* "1.2.3" as a number with the same order. */
int64_t mesh_version(const char *text);

/* Unix time in milliseconds. */
int64_t mesh_wall_ms(void);
