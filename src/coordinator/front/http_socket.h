/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets that HTTP listens on: of one interface, or of all, IPv6 and IPv4 together.
 */
#pragma once

#include "base/error.h"

/* `port:N`, `host:N` or `[v6]:N`; bound and listening, non-blocking. UNAVAILABLE or
 * INVALID_ARGUMENT naming the address and why. */
enum status http_socket_open(const char *address, int *fd, struct error *error) WARN_UNUSED;
/* Of a bound socket. */
unsigned http_socket_port(int fd);
