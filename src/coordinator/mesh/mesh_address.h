/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small facts of this node that its record tells others: where it is reached, which version it is,
 * when it started.
 */
#pragma once

#include <netdb.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"

/* A host as long as getnameinfo tells one, brackets, and a port. */
enum { MESH_ADDRESS_BYTES = NI_MAXHOST + 16 };

/* "host:port", the first of `peers`, which is bound to `port` (0: a unix socket), with PEERS_TLS
 * before it if there is TLS between the nodes. FAILED_PRECONDITION: no address is found that
 * another machine could call, and etcd is not on loopback, too; the text says what to set. */
enum status mesh_address_find(const struct config_mesh *config, int port,
                              char address[MESH_ADDRESS_BYTES], struct error *error) WARN_UNUSED;

/* "1.2.3" as a number that grows with it. */
int64_t mesh_version(const char *text);

/* Milliseconds of the epoch. */
int64_t mesh_wall_ms(void);
