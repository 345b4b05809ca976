/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets, also for servers of other protocols. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* Opens a non-blocking listening socket. The caller removes and frees `*unix_path`; NULL: it is no
 * unix socket, or not ours to remove. */
enum status http_socket_open(const char *address, int *fd, char **unix_path,
                             struct error *error) WARN_UNUSED;
bool http_socket_is_unix(int fd);
/* The port of a bound socket; 0 for a unix socket. */
unsigned http_socket_port(int fd);
/* Returns whether it is bound to a loopback address. */
bool http_socket_loops(int fd);
