/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator protocol: requests to a running node over a SOCK_SEQPACKET socket beside its
 * counters file. Only root and the node's own user may connect. One request and one answer for each
 * connection, both JSON objects in UTF-8; members that the receiver does not know are ignored.
 *
 * A request is one packet of at most CONTROL_REQUEST_BYTES:
 *
 *     {"version":5,"verb":"mesh models","prefix":"fraud-","limit":50}
 *
 * The answer comes when the request is done, which may take as long as a modelet's load; a request
 * whose sender leaves is carried out all the same. Before the answer to "upgrade" come packets with
 * a `progress`, a line of text each. An answer of more than CONTROL_PACKET_BYTES
 * comes as a sealed memfd: its descriptor is sent with a packet that contains `{}`. So the node
 * never waits for a reader.
 *
 *     {"version":5,"progress":"started pid 4711: /usr/bin/shoald"}
 *     {"version":5,"status":"OK","text":"digits is loaded: 0.125 MiB"}
 *     {"version":5,"status":"OK","list":{"rows":[{"id":"a",...},...],"next":0}}
 *     {"version":5,"error":"...","status":"NOT_FOUND","code":5}
 *
 * `code` is the status' number in gRPC. `next`, if it is not 0, is the `from` of the next page.
 *
 * Versions: a node refuses a request of another version. An answer with an `error` is readable in
 * all versions. Additions need no new version.
 *
 * Rows have all of their members, in this order. Times are wall clock in milliseconds; 0 and "" are
 * unknown, none or never.
 *
 *     model list    id pipeline state path key listed ordered bytes users idle_ns error. A model
 *                   that was never used has the idle_ns null.
 *     mesh nodes    id zone labels location address clock_ahead_seconds (a text) capacity_bytes
 *                   free_bytes oldest_ms copies loading calls_per_minute version start_ms loaders
 *                   unreachable_since_ms store_silent_since_ms self leads drains full store_full.
 *                   The least recently used model was last used at oldest_ms. Stores and
 *                   unreachable nodes are as the answering node sees them.
 *     mesh models   id state type path here (its state on this node) error loaded loading failed
 *                   (copies) used_ms references (from vmodels) auto_delete
 *     mesh copies   node state here (this node's copy: its exact step) error by ("pipelines" or
 *                   "runtime") since_ms; the list also has `model`, a row as of mesh models
 *     mesh vmodels  id state owner active target target_state (during a transition) active_copies
 *                   target_copies (loaded)
 *     mesh moves    id here to (one of the other nodes that have it)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    CONTROL_VERSION = 5,
    CONTROL_REQUEST_BYTES = 32768,
    CONTROL_PACKET_BYTES = 8192,
    CONTROL_ROWS_MAX = 1000, /* in a page */
    /* Largest sizes, with the NUL. */
    CONTROL_NAME_BYTES = 64,
    CONTROL_PATH_BYTES = 1024,
    CONTROL_KEY_BYTES = 4096,
};

/* Each verb's name in JSON, and the members that it uses. */
enum control_verb {
    CONTROL_RELOAD,         /* "reload": `pipeline`; "": all */
    CONTROL_MODEL_LOAD,     /* "model load": `id`, `path`, `key`; `pipeline`, or "": the only one
                               with models */
    CONTROL_MODEL_UNLOAD,   /* "model unload": `id` */
    CONTROL_MODEL_ROLLBACK, /* "model rollback": `id` */
    /* Lists. Pages start at `from` (0: the first), have at most `limit` rows (0: the most), and
     * only those whose id begins with `prefix`. */
    CONTROL_MODEL_LIST,   /* "model list": one page if there is no `limit`, else pages */
    CONTROL_MESH_NODES,   /* "mesh nodes": pages */
    CONTROL_MESH_MODELS,  /* "mesh models": pages; `node`: only models that it has or is loading */
    CONTROL_MESH_COPIES,  /* "mesh copies": one page, of the model `id` */
    CONTROL_MESH_VMODELS, /* "mesh vmodels": pages */
    CONTROL_MESH_MOVES,   /* "mesh moves": pages; this node's models and the other nodes that have
                             them; all prefixes */
    /* "drain": as SIGTERM does. Answered when requests in flight are answered and models moved,
     * before the node exits; with `no_wait` at once. */
    CONTROL_DRAIN,
    /* "upgrade": `path` is the program, `config` its configuration; "": the present ones. Answered
     * when the successor serves and this process has drained. */
    CONTROL_UPGRADE,
    CONTROL_VERBS,
};

const char *control_verb_name(enum control_verb verb);

/* Members that a verb does not use are "", 0 or false, and may be missing. */
struct control_request {
    enum control_verb verb;
    const char *pipeline, *id, *path, *key, *prefix, *node, *config;
    uint32_t from, limit;
    bool no_wait;
};

/* Writes the path of the socket of the node whose counters are at `counters_path`.
 * INVALID_ARGUMENT: too long for the name of a socket. */
enum status control_path(const char *counters_path, char *path, size_t room,
                         struct error *error) WARN_UNUSED;
/* Like control_path(), for the socket where a node of a mesh always serves mmesh.ModelMesh. */
enum status control_manage_path(const char *counters_path, char *path, size_t room,
                                struct error *error) WARN_UNUSED;
