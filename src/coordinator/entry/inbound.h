/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call as it came in: over gRPC, over HTTP, or from another node of a mesh. DESIGN.md.
 *
 * Threads. An inbound is on the stack of the callback that received the call, and is used within
 * it. Only the sink, `answer` and `refuse` of its type may be called later, and on any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/models/target.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/protocol/oip.h"
#include "rpc/rpc.h"

struct trace;

/* Paths of the Open Inference Protocol's methods over gRPC; REST calls have them, too. */
#define INBOUND_OIP "/inference.GRPCInferenceService/"
#define INBOUND_INFER INBOUND_OIP "ModelInfer"

/* The functions of an adapter; `call` is the inbound's. */
struct inbound_type {
    /* Finds the next value under a lower-case key, from `position` on, and moves the position
     * behind it. Start at 0. The value is valid until the callback ends. */
    bool (*metadata)(const void *call, const char *key, size_t *position, struct wire_span *value);
    /* Iterates over the entries that may go to other nodes and runtimes. An entry is valid until
     * the next call. */
    bool (*walk)(void *call, size_t *position, struct rpc_metadata *entry);
    /* Passes all names of the caller's certificate to `take`. False: none was shown. NULL: callers
     * of this adapter have none. */
    bool (*names)(const void *call, void (*take)(void *context, const void *name, size_t bytes),
                  void *context);
    /* Writes the address of the caller's machine, not terminated, and returns its length. NULL: the
     * adapter does not know it. */
    size_t (*address)(const void *call, char *address, size_t room);

    /* Receives the call's tag, and the answer of a pipeline that accepted the call. */
    const struct request_sink *sink;
    /* Receive the answer of the mesh instead: exactly one of them is called, once. */
    void (*answer)(void *call, const struct rpc_answer *answer);
    void (*refuse)(void *call, enum status status, const char *text, uint32_t retry_ms);
    /* Takes over a piece of that answer ahead of its end, on any thread, not concurrently with the
     * two. The adapter reports when it has consumed it (dispatch_taken). NULL: calls of this
     * adapter take one answer. */
    void (*piece)(void *call, const struct rpc_piece *pieces, size_t piece_count);
    /* The call is an rpc_call of RPC_SERVER_STREAM, to which the mesh sends messages ahead of the
     * end by itself. Without `piece` of the sink most such calls get one answer. */
    bool is_server_stream;
};

struct inbound {
    const struct inbound_type *type;
    void *call;
    const char *method; /* "/package.Service/Method" */
    const struct wire_message *message;
    struct oip_request *decoded; /* from JSON, with `message` as its elements; NULL: none */
    int64_t deadline_ns;         /* TIME_NEVER_NS: none */
    struct trace *trace;         /* NULL: it is not traced */
    uint32_t queue;              /* of the front, on whose thread an answer of another node comes */
};

/* The first value under a key; false: there is none. */
bool inbound_metadata(const struct inbound *inbound, const char *key, struct wire_span *value);

/* Reads `mm-model-id` and `mm-model-id-bin` by the rules without a mesh; none is no error.
 * INVALID_ARGUMENT: empty, too long, not UTF-8, or not all the same. */
enum status inbound_id(const struct inbound *inbound, struct target_id *id,
                       struct error *error) WARN_UNUSED;

/* The call as a message of its method. It is valid as long as inbound's. */
const struct wire_message *inbound_message(const struct inbound *inbound);

/* Reads the head of a ModelInferRequest unless `head` has it. Returns as oip_head_read. */
enum status inbound_head(const struct inbound *inbound, struct oip_head *head,
                         struct error *error) WARN_UNUSED;

/* Submits the call with its priority, and with a deadline no later than the request's timeout. The
 * pipeline must take calls of this method. `head` may be read already. Returns as pipeline_submit.
 */
enum status inbound_submit(const struct inbound *inbound, struct oip_head *head,
                           struct pipeline *pipeline, struct submission *submission,
                           struct error *error) WARN_UNUSED;
