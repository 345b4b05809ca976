/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operator's requests to a running node: one message of fixed size each way over a
 * SOCK_SEQPACKET socket beside the node's counters file. Only root and the node's own user may
 * connect. The answer comes when the request is done, which may take as long as a modelet's load; a
 * request whose sender leaves is carried out all the same.
 *
 * Versions. A request of another version is refused. The answer has had the same form in all
 * versions and carries the version of the request, so that its sender can read the reason.
 *
 * Lists do not fit into a message: they come as a sealed memfd, whose descriptor is sent with the
 * answer and which contains `struct control_model` entries, or, for requests about a mesh, `struct
 * control_row` entries. The latter come in pages, whose last row says where the next page begins.
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
    CONTROL_RELOAD = 1,   /* `pipeline`; "": all */
    CONTROL_MODEL_LOAD,   /* `id`, `path`, `key`; `pipeline`, or "": the only one with models */
    CONTROL_MODEL_UNLOAD, /* `id` */
    CONTROL_MODEL_LIST,   /* with a list of control_model */
    /* With a list of control_row, starting at `from` (0: the first), at most `limit` of them, whose
     * id begins with `key`: */
    CONTROL_MESH_NODES,
    CONTROL_MESH_MODELS, /* `path` not "": only those that this node has or is loading */
    CONTROL_MESH_COPIES, /* of the model with the id `key` */
    CONTROL_MESH_VMODELS,
    CONTROL_MESH_MOVES, /* this node's models, and the other nodes that have them */
    /* Drains like SIGTERM. Answered when requests in flight are answered and models moved, before
     * the node exits; with CONTROL_NO_WAIT at once. */
    CONTROL_DRAIN,
    CONTROL_VERBS,
};

enum control_request_flags { CONTROL_NO_WAIT = 1u << 0 };

/* Members that a verb does not use are "" or 0. */
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

/* The order of `texts`, each terminated. */
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
    uint64_t size_bytes; /* charged to the budget; while loading: reserved */
    int64_t used_ns;     /* time of last use, CLOCK_MONOTONIC; 0: never */
    char texts[];
};

/* Reads the texts of a model in a list that has `left` bytes from it on. False: malformed. */
bool control_model_read(const struct control_model *model, size_t left,
                        const char *texts[CONTROL_TEXT_COUNT]);

/* ---- the mesh ---- */

enum control_row_kind {
    CONTROL_ROW_NODE,
    CONTROL_ROW_MODEL,
    CONTROL_ROW_COPY,
    CONTROL_ROW_VMODEL,
    CONTROL_ROW_MOVE,
    CONTROL_ROW_PAGE, /* the last row */
};

enum { CONTROL_NUMBERS = 12, CONTROL_TEXTS = 6, CONTROL_ROWS_MAX = 1000 };

/* The numbers and texts of each kind of row. Times are wall clock; 0: unknown or never. */
enum control_node_number {
    CONTROL_NODE_CAPACITY_BYTES,
    CONTROL_NODE_FREE_BYTES,
    CONTROL_NODE_OLDEST_MS, /* last use of its least recently used model; 0: none */
    CONTROL_NODE_COPIES,
    CONTROL_NODE_LOADING,
    CONTROL_NODE_RATE, /* calls a minute */
    CONTROL_NODE_VERSION,
    CONTROL_NODE_START_MS,
    CONTROL_NODE_LOADERS,
    CONTROL_NODE_FLAGS,
    CONTROL_NODE_UNREACHABLE_MS, /* unreachable since, as seen by the node that is asked */
    CONTROL_NODE_SILENT_MS,      /* etcd silent since, as seen by the node that is asked */
};
enum control_node_flags {
    CONTROL_NODE_SELF = 1u << 0,
    CONTROL_NODE_LEADS = 1u << 1,
    CONTROL_NODE_DRAINS = 1u << 2,
    CONTROL_NODE_FULL = 1u << 3,
    CONTROL_NODE_STORE_FULL = 1u << 4, /* etcd refuses writes, as seen by the node that is asked */
};
enum control_node_text {
    CONTROL_NODE_ID,
    CONTROL_NODE_ZONE,
    CONTROL_NODE_LABELS,
    CONTROL_NODE_LOCATION,
    CONTROL_NODE_ADDRESS,
    CONTROL_NODE_CLOCK, /* seconds that its clock is ahead of mesh time; "": none, or unknown */
};

enum control_mesh_model_number {
    CONTROL_MODEL_LOADED, /* copies */
    CONTROL_MODEL_LOADING,
    CONTROL_MODEL_FAILED,
    CONTROL_MODEL_USED_MS,
    CONTROL_MODEL_REFERENCES, /* from vmodels */
    CONTROL_MODEL_AUTO_DELETE,
};
enum control_mesh_model_text {
    CONTROL_MODEL_ID,
    CONTROL_MODEL_STATE,
    CONTROL_MODEL_TYPE,
    CONTROL_MODEL_PATH,
    CONTROL_MODEL_HERE, /* its state on this node; "": none */
    CONTROL_MODEL_ERROR,
};

enum control_copy_number { CONTROL_COPY_SINCE_MS };
enum control_copy_text {
    CONTROL_COPY_NODE,
    CONTROL_COPY_STATE,
    CONTROL_COPY_HERE, /* this node's copy: its exact step */
    CONTROL_COPY_ERROR,
    CONTROL_COPY_BY, /* this node's copy: "pipelines" or "runtime" */
};

enum control_vmodel_number {
    CONTROL_VMODEL_ACTIVE_COPIES, /* loaded copies */
    CONTROL_VMODEL_TARGET_COPIES,
};
enum control_vmodel_text {
    CONTROL_VMODEL_ID,
    CONTROL_VMODEL_STATE,
    CONTROL_VMODEL_OWNER,
    CONTROL_VMODEL_ACTIVE,
    CONTROL_VMODEL_TARGET,
    CONTROL_VMODEL_TARGET_STATE, /* during a transition */
};

enum control_move_number { CONTROL_MOVE_ELSEWHERE /* copies loaded on other nodes */ };
enum control_move_text {
    CONTROL_MOVE_ID,
    CONTROL_MOVE_HERE,
    CONTROL_MOVE_TO, /* one of the other nodes */
};

enum control_page_number { CONTROL_PAGE_NEXT /* `from` of the next page; 0: none */ };

struct control_row {
    uint32_t bytes; /* of all of it, up to the next one: a multiple of 8 */
    uint32_t kind;  /* enum control_row_kind */
    uint64_t numbers[CONTROL_NUMBERS];
    char texts[]; /* CONTROL_TEXTS of them, each terminated */
};

/* Reads the texts of a row that has `left` bytes from it on. False: malformed. */
bool control_row_read(const struct control_row *row, size_t left, const char *texts[CONTROL_TEXTS]);

/* Writes the path of the socket of the node whose counters are at `counters_path`.
 * INVALID_ARGUMENT: too long for the name of a socket. */
enum status control_path(const char *counters_path, char *path, size_t room,
                         struct error *error) WARN_UNUSED;
/* As control_path, for the socket where a node of a mesh always serves mmesh.ModelMesh. */
enum status control_manage_path(const char *counters_path, char *path, size_t room,
                                struct error *error) WARN_UNUSED;
