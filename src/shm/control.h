/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator may ask of a running node: one message of fixed size each way over a
 * SOCK_SEQPACKET socket that stands beside the node's file of counters. Only root and the node's
 * own user are heard. The answer comes when what was asked is done, which may take as long as a
 * modelet takes to load; who goes away before has asked all the same.
 *
 * Versions. A request of another version is refused. The answer has had the same form in all of
 * them and carries the version of the request, so that who asks can read why.
 *
 * Lists do not fit into a message: they come as a file, a sealed memfd whose descriptor is sent
 * with the answer, from whose beginning there is one `struct control_model` after the other.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shoal/modelet.h>

#include "base/error.h"

enum {
    CONTROL_VERSION = 2,
    CONTROL_NAME_BYTES = 64,
    CONTROL_PATH_BYTES = 1024,
    CONTROL_KEY_BYTES = 4096,
};

enum control_verb {
    CONTROL_RELOAD = 1,   /* `pipeline`; "": all of them */
    CONTROL_MODEL_LOAD,   /* `id`, `path`, `key`; `pipeline`, or "": the only one with models */
    CONTROL_MODEL_UNLOAD, /* `id` */
    CONTROL_MODEL_LIST,   /* with a list of control_model */
};

/* Strings that a verb does not need are "". */
struct control_request {
    uint32_t version;
    uint32_t verb; /* enum control_verb */
    char pipeline[CONTROL_NAME_BYTES];
    char id[SHOAL_NAME_BYTES_MAX + 1];
    char path[CONTROL_PATH_BYTES];
    char key[CONTROL_KEY_BYTES];
};

struct control_answer {
    uint32_t version;
    uint32_t status; /* enum status */
    char text[ERROR_TEXT_MAX];
};

enum control_model_flags { CONTROL_LISTED = 1u << 0, CONTROL_ORDERED = 1u << 1 };

/* Of `texts`, each terminated, one behind the other. */
enum control_model_text {
    CONTROL_TEXT_ID,
    CONTROL_TEXT_PIPELINE,
    CONTROL_TEXT_STATE,
    CONTROL_TEXT_PATH,
    CONTROL_TEXT_KEY,
    CONTROL_TEXT_ERROR,
    CONTROL_TEXT_COUNT
};

struct control_model {
    uint32_t bytes; /* of all of it, up to the next one: a multiple of 8 */
    uint32_t flags;
    uint32_t users;
    uint32_t reserved;
    uint64_t size_bytes; /* of the budget: while it is being loaded, what was reserved */
    int64_t used_ns;     /* when it was last used, CLOCK_MONOTONIC; 0: never */
    char texts[];
};

/* The texts of a model in a list, of which `left` bytes are left from it on. False: that is none.
 */
bool control_model_read(const struct control_model *model, size_t left,
                        const char *texts[CONTROL_TEXT_COUNT]);

/* The socket of the node whose counters are at `counters_path`. INVALID_ARGUMENT: that is too long
 * for the name of a socket. */
enum status control_path(const char *counters_path, char *path, size_t room,
                         struct error *error) WARN_UNUSED;
