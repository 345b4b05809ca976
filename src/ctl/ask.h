/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the local node over the socket beside its counters (ipc/control.h): one request, one answer,
 * which may take long. An order continues even if shoalctl stops waiting.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <sys/un.h>

#include "base/error.h"
#include "ctl/ctl.h"
#include "ipc/control.h"

enum { ASK_TIMEOUT_MS_MAX = 24 * 3600 * 1000 };

struct ctl_ask {
    int fd;
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
};

/* UNAVAILABLE: nobody listens there. Close `ask` only after STATUS_OK. */
enum status ask_send(struct ctl_ask *ask, const char *counters_path,
                     const struct control_request *request, struct error *error) WARN_UNUSED;
/*
 * CTL_OK: `answer` is an object, to be released by json_decref. Otherwise `error` says what is
 * wrong: CTL_NEGATIVE: the node answered with an error. CTL_LATE: no answer yet; may be called
 * again. CTL_UNREACHABLE: the node went away, or its answer cannot be read.
 */
enum ctl_exit ask_receive(struct ctl_ask *ask, int64_t timeout_ns, json_t **answer,
                          struct error *error);
void ask_close(struct ctl_ask *ask);

/* Ends a command: prints the answer's text, or the error if `code` is not CTL_OK; releases the
 * answer; returns `code`. */
int ask_end(enum ctl_exit code, enum ctl_output output, json_t *answer, const struct error *error);
/* "" if there is no such text. */
const char *ask_text(const json_t *object, const char *name);
/* 0 if there is no such number. */
int64_t ask_number(const json_t *object, const char *name);

/* The option that all such commands have. */
#define ASK_COUNTERS_HELP                                                                          \
    "the node's counters file; its socket is beside it; default\n"                                 \
    "/run/shoal/counters for root, else $XDG_RUNTIME_DIR/shoal/counters\n"                         \
    "or /tmp/shoal-<uid>/counters"
