/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the local node over the socket beside its counters (ipc/control.h): one request, one answer,
 * which may take long. An order continues even if shoalctl stops waiting.
 */
#pragma once

#include <stdint.h>
#include <sys/un.h>

#include "base/error.h"
#include "ipc/control.h"

enum { ASK_TIMEOUT_MS_MAX = 24 * 3600 * 1000 };

struct ctl_ask {
    int fd;
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
};

/* UNAVAILABLE: nobody listens there. Close `ask` only after STATUS_OK. */
enum status ask_send(struct ctl_ask *ask, const char *counters_path,
                     const struct control_request *request, struct error *error) WARN_UNUSED;
/* DEADLINE_EXCEEDED: no answer yet; may be called again. UNAVAILABLE: the node went away. `list_fd`
 * NULL: no list is expected; otherwise -1, or a descriptor that the caller owns. */
enum status ask_receive(struct ctl_ask *ask, int64_t timeout_ns, struct control_answer *answer,
                        int *list_fd, struct error *error) WARN_UNUSED;
void ask_close(struct ctl_ask *ask);

/* End a command without an answer, and with one; both return shoalctl's exit code. */
int ask_failed(bool json, const struct error *error);
int ask_notify(bool json, const struct control_answer *answer);

/* The option that all such commands have. */
#define ASK_COUNTERS_HELP                                                                          \
    "the node's counters file; its socket is beside it; default\n"                                 \
    "/run/shoal/counters for root, else $XDG_RUNTIME_DIR/shoal/counters\n"                         \
    "or /tmp/shoal-<uid>/counters"
