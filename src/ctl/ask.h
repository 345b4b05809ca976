/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking the node on this machine, over the socket beside its counters (shm/control.h): one
 * request, one answer, which may take long. Who stops waiting does not stop what was asked for.
 */
#pragma once

#include <stdint.h>
#include <sys/un.h>

#include "base/error.h"
#include "shm/control.h"

enum { ASK_TIMEOUT_MS_MAX = 24 * 3600 * 1000 };

struct ask {
    int fd;
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
};

/* UNAVAILABLE: nobody listens there. To be closed only after STATUS_OK. */
enum status ask_send(struct ask *ask, const char *counters_path,
                     const struct control_request *request, struct error *error) WARN_UNUSED;
/* DEADLINE_EXCEEDED: not yet; one may go on. UNAVAILABLE: the node went away. `list_fd` NULL: no
 * list is expected; else -1, or a descriptor that is the caller's. */
enum status ask_receive(struct ask *ask, int64_t timeout_ns, struct control_answer *answer,
                        int *list_fd, struct error *error) WARN_UNUSED;
void ask_close(struct ask *ask);

/* How a command ends whose question was not answered, and whose was; as shoalctl's exit code. */
int ask_failed(bool json, const struct error *error);
int ask_tell(bool json, const struct control_answer *answer);

/* The option of every such command. */
#define ASK_COUNTERS_HELP                                                                          \
    "the node's counters file, beside which its socket is; default\n"                              \
    "/run/shoal/counters for root, else $XDG_RUNTIME_DIR/shoal/counters\n"                         \
    "or /tmp/shoal-<uid>/counters"
