/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ModelStreamInfer, Triton's extension: requests come on one gRPC stream, and answers go back on
 * it, in any number of pieces. Each request is a call of its own to the rest of the node: it is
 * admitted, refused, cancelled and counted alone, and its failure is a message, not the stream's
 * end.
 *
 * Messages wait here until gRPC takes them. Pieces are copies, bounded for each request by its
 * pipeline's stream_mib; the tensors of last pieces are lent, so unread ones hold slots, as unary
 * answers do. While more than STREAM_UNREAD_MAX bytes are unread no further request is read, so a
 * caller that reads nothing cannot go on asking. A caller that takes nothing for send_timeout_ms is
 * disconnected (rpc/watch.c).
 */
#pragma once

#include "coordinator/front/dispatch.h"
#include "rpc/rpc.h"

#define STREAM_INFER_PATH INBOUND_OIP "ModelStreamInfer"

enum { STREAM_UNREAD_MAX = 1 << 20 };

struct stream_infer {
    const struct dispatch *dispatch;
    _Atomic uint64_t *counters; /* of the node */
    struct tracer *tracer;      /* NULL: nothing is traced */
    struct rpc_server *server;
};

/* The thread that steps a queue. */
struct stream_infer_thread {
    uint32_t queue;
    struct payload_builder *builder;
};

/* The handlers of a method of RPC_BIDI_READ; all on the thread that steps the call's queue. */
void stream_infer_on_message(const struct stream_infer *infer,
                             const struct stream_infer_thread *thread, struct rpc_call *call,
                             const struct wire_message *message);
void stream_infer_on_half_close(struct rpc_call *call);
void stream_infer_on_cancel(uint64_t tag);
void stream_infer_on_sent(uint64_t tag);
