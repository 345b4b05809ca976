/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening sockets that the service manager opened and keeps open (sd_listen_fds(3)): they survive
 * this process, and connections wait in them until the next one accepts. At start, one thread.
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

/* Reads $LISTEN_PID and $LISTEN_FDS and removes them. */
void listen_fds_init(void);

/* The socket that listens at this address, non-blocking; -1: there is none. It is the caller's, who
 * closes it but does not unlink its path. */
int listen_fds_take(const struct sockaddr *address);

/* Whether there are any. */
bool listen_fds_are_given(void);

/* The number of those that nobody took. */
unsigned listen_fds_unused(void);
