/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening sockets that live longer than a process: the service manager's (sd_listen_fds(3)), in
 * which connections wait until the next process accepts, and a process's own, which it passes to
 * its successor (coordinator/DESIGN-upgrade.md). At start, one thread, unless stated.
 */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

enum { LISTEN_FDS_MAX = 256 };

/* The paths of unix sockets belong to the one that opened them. */
enum listen_owner { LISTEN_OURS, LISTEN_MANAGERS };

struct listen_fd {
    int fd;
    enum listen_owner owner;
};

/* Reads $LISTEN_PID and $LISTEN_FDS and removes them; reads the umask. */
void listen_fds_init(void);

/* The mode of a new unix socket for which no other was asked. */
mode_t listen_fds_mode(void);

/* The socket that listens at this address, non-blocking; -1: there is none. It belongs to the
caller, which
 * closes it, and, if it is LISTEN_OURS, calls listen_fds_unlink for its path. */
int listen_fds_take(const struct sockaddr *address, enum listen_owner *owner);

/* Returns whether the service manager has passed any. */
bool listen_fds_are_given(void);

/* The number of the service manager's that nobody took. */
unsigned listen_fds_unused(void);

/* Unlinks the path of a socket of ours, unless it belongs to a predecessor or a successor. */
void listen_fds_unlink(const char *path);

/* ---- the loop thread of a node that is upgraded ---- */

/* Writes the sockets that this process listens on, for its successor; false: they are more than
 * LISTEN_FDS_MAX, or cannot be found. */
bool listen_fds_find(struct listen_fd fds[LISTEN_FDS_MAX], unsigned *count);

/* Leaves all paths to the successor. */
void listen_fds_leave_paths(void);

/* ---- a successor ---- */

/* Notes a socket of the predecessor's. The paths are its own until listen_fds_own_paths. False: it
 * is no open descriptor, or there are too many. */
bool listen_fds_inherit(const struct listen_fd *inherited);

/* The paths are ours. Closes the sockets of the predecessor's own that nobody took. */
void listen_fds_own_paths(void);
