/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of an operator to a running node: one message of fixed size each way over a
 * SOCK_SEQPACKET socket that stands beside the node's file of counters. Only root and the node's
 * own user are heard. The answer comes when what was asked is done, which may take as long as a
 * modelet takes to load; who goes away before has asked all the same.
 *
 * Versions. A request of another version is refused. The answer has had the same form in all of
 * them and carries the version of the request, so that who asks can read why.
 *
 * Lists do not fit into a message: they come as a file, a sealed memfd whose descriptor is sent
 * with the answer, from whose beginning there is one `struct control_model` after the other, or,
 * for what is asked of a mesh, one `struct control_row`. Those come in pages: the last row of each
 * says where the next one begins.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shoal/modelet.h>

#include "base/error.h"

enum {
    CONTROL_VERSION = 4,
    CONTROL_NAME_BYTES = 64,
    CONTROL_PATH_BYTES = 1024,
    CONTROL_KEY_BYTES = 4096,
};

enum control_verb {
    CONTROL_RELOAD = 1,   /* `pipeline`; "": all of them */
    CONTROL_MODEL_LOAD,   /* `id`, `path`, `key`; `pipeline`, or "": the only one with models */
    CONTROL_MODEL_UNLOAD, /* `id` */
    CONTROL_MODEL_LIST,   /* with a list of control_model */
    /* With a list of control_row, from `from` on (0: the first), `limit` of them at most, of those
     * whose id begins with `key`: */
    CONTROL_MESH_NODES,
    CONTROL_MESH_MODELS, /* `path`: only those that this node has, or is loading; "": all */
    CONTROL_MESH_COPIES, /* of the model with the id `key` */
    CONTROL_MESH_VMODELS,
    CONTROL_MESH_MOVES, /* what this node has, and who else */
    /* As SIGTERM does. Answered when what was in flight is answered and all is moved, before the
     * node ends; with CONTROL_NO_WAIT at once. */
    CONTROL_DRAIN,
    CONTROL_VERBS,
};

enum control_request_flags { CONTROL_NO_WAIT = 1u << 0 };

/* Strings that a verb does not need are "", numbers 0. */
struct control_request {
    uint32_t version;
    uint32_t verb; /* enum control_verb */
    uint32_t limit;
    uint32_t flags;
    uint64_t from;
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

/* ---- what is told of a mesh ---- */

enum control_row_kind {
    CONTROL_ROW_NODE,
    CONTROL_ROW_MODEL,
    CONTROL_ROW_COPY,
    CONTROL_ROW_VMODEL,
    CONTROL_ROW_MOVE,
    CONTROL_ROW_PAGE, /* the last one */
};

enum { CONTROL_NUMBERS = 12, CONTROL_TEXTS = 6, CONTROL_ROWS_MAX = 1000 };

/* Of which row which number and text is what. Times are wall clocks; 0: unknown, or never. */
enum control_node_number {
    CONTROL_NODE_CAPACITY_BYTES,
    CONTROL_NODE_FREE_BYTES,
    CONTROL_NODE_OLDEST_MS, /* last use of its oldest model; 0: it has none */
    CONTROL_NODE_COPIES,
    CONTROL_NODE_LOADING,
    CONTROL_NODE_RATE, /* calls a minute */
    CONTROL_NODE_VERSION,
    CONTROL_NODE_START_MS,
    CONTROL_NODE_LOADERS,
    CONTROL_NODE_FLAGS,
    CONTROL_NODE_UNREACHABLE_MS, /* since when, for the node that is asked */
    CONTROL_NODE_SILENT_MS,      /* of the node that is asked: since when etcd is */
};
enum control_node_flags {
    CONTROL_NODE_SELF = 1u << 0,
    CONTROL_NODE_LEADS = 1u << 1,
    CONTROL_NODE_DRAINS = 1u << 2,
    CONTROL_NODE_FULL = 1u << 3,
    CONTROL_NODE_STORE_FULL = 1u << 4, /* of the node that is asked: its etcd refuses writes */
};
enum control_node_text {
    CONTROL_NODE_ID,
    CONTROL_NODE_ZONE,
    CONTROL_NODE_LABELS,
    CONTROL_NODE_LOCATION,
    CONTROL_NODE_ADDRESS,
    CONTROL_NODE_CLOCK, /* seconds by which its clock is ahead of mesh time; "": in time, or unknown
                         */
};

enum control_mesh_model_number {
    CONTROL_MODEL_LOADED, /* copies; and the next two, of those that count */
    CONTROL_MODEL_LOADING,
    CONTROL_MODEL_FAILED,
    CONTROL_MODEL_USED_MS,
    CONTROL_MODEL_REFERENCES, /* of vmodels */
    CONTROL_MODEL_AUTO_DELETE,
};
enum control_mesh_model_text {
    CONTROL_MODEL_ID,
    CONTROL_MODEL_STATE,
    CONTROL_MODEL_TYPE,
    CONTROL_MODEL_PATH,
    CONTROL_MODEL_HERE, /* what this node has of it; "": nothing */
    CONTROL_MODEL_ERROR,
};

enum control_copy_number { CONTROL_COPY_SINCE_MS };
enum control_copy_text {
    CONTROL_COPY_NODE,
    CONTROL_COPY_STATE,
    CONTROL_COPY_HERE, /* the same, if it is this node's, to the step */
    CONTROL_COPY_ERROR,
    CONTROL_COPY_BY, /* whose it is, if it is this node's: "pipelines" or "runtime" */
};

enum control_vmodel_number {
    CONTROL_VMODEL_ACTIVE_COPIES, /* loaded ones */
    CONTROL_VMODEL_TARGET_COPIES,
};
enum control_vmodel_text {
    CONTROL_VMODEL_ID,
    CONTROL_VMODEL_STATE,
    CONTROL_VMODEL_OWNER,
    CONTROL_VMODEL_ACTIVE,
    CONTROL_VMODEL_TARGET,
    CONTROL_VMODEL_TARGET_STATE, /* while it goes over */
};

enum control_move_number { CONTROL_MOVE_ELSEWHERE /* loaded there */ };
enum control_move_text {
    CONTROL_MOVE_ID,
    CONTROL_MOVE_HERE,
    CONTROL_MOVE_TO, /* one of those others */
};

enum control_page_number { CONTROL_PAGE_NEXT /* `from` of the next; 0: there is none */ };

struct control_row {
    uint32_t bytes; /* of all of it, up to the next one: a multiple of 8 */
    uint32_t kind;  /* enum control_row_kind */
    uint64_t numbers[CONTROL_NUMBERS];
    char texts[]; /* CONTROL_TEXTS of them, each terminated, one behind the other */
};

/* The texts of a row, of which `left` bytes are left from it on. False: that is none. */
bool control_row_read(const struct control_row *row, size_t left, const char *texts[CONTROL_TEXTS]);

/* The socket of the node whose counters are at `counters_path`. INVALID_ARGUMENT: that is too long
 * for the name of a socket. */
enum status control_path(const char *counters_path, char *path, size_t room,
                         struct error *error) WARN_UNUSED;
/* Likewise the socket where a node of a mesh serves mmesh.ModelMesh, whatever else it is told. */
enum status control_manage_path(const char *counters_path, char *path, size_t room,
                                struct error *error) WARN_UNUSED;
