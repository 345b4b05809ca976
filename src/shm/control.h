/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator may ask of a running node: one message of fixed size each way over a
 * SOCK_SEQPACKET socket that stands beside the node's file of counters. Only root and the node's
 * own user are heard. The answer comes when what was asked is done, which may take as long as a
 * modelet takes to load.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { CONTROL_VERSION = 1, CONTROL_NAME_BYTES = 64 };

enum control_verb {
    CONTROL_RELOAD = 1, /* `name`: a pipeline; "": all of them */
};

struct control_request {
    uint32_t version;
    uint32_t verb; /* enum control_verb */
    char name[CONTROL_NAME_BYTES];
};

struct control_answer {
    uint32_t version;
    uint32_t status; /* enum status */
    char text[ERROR_TEXT_MAX];
};

/* The socket of the node whose counters are at `counters_path`. INVALID_ARGUMENT: that is too long
 * for the name of a socket. */
enum status control_path(const char *counters_path, char *path, size_t room,
                         struct error *error) WARN_UNUSED;
