/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream of answers over any protocol: its requests, and the messages that wait to leave.
 * ModelStreamInfer (stream_infer.h) has many requests on one stream, a REST call (rest_stream.h)
 * one. Each is a call of its own to the rest of the node.
 *
 * Limits. The messages of a request that have not left hold at most its pipeline's stream_mib; one
 * message may be larger. A request of which more would be unread fails. Of another node's answer
 * they hold the window of one hop (peer_flow.h), and that node has the limit.
 *
 * Ownership. A request lives from stream_add until it has been answered and the last of its
 * messages has left. Both are under the stream's lock, which is taken within a lane's `pieces_lock`
 * and never around a call to a pipeline.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coordinator/front/dispatch.h"
#include "rpc/rpc.h"

struct answer_stream;

struct stream_request {
    struct answer_stream *stream;
    struct stream_request *prev, *next; /* of those that are not answered */
    uint64_t tag;                       /* of the pipeline or the mesh; 0: none yet */
    size_t unread;                      /* bytes of its messages that have not left */
    uint32_t messages;                  /* their number */
    bool answered;
    bool wants_end;     /* a last message even without outputs */
    size_t names_bytes; /* the carrier's: what a failure's message has */
    unsigned char names[];
};

/* The content of a message: a failure, or pieces. */
struct stream_answer {
    enum status status;
    const char *error; /* NULL: none */
    const struct rpc_piece *pieces;
    size_t piece_count;
    bool is_final;
};

struct stream_message {
    struct stream_message *next;
    struct stream_request *request;
    enum status status;
    bool is_final;
    size_t bytes;        /* counted as unread */
    uint64_t mesh_bytes; /* of another node's piece */
    bool is_owed;        /* it is one, which is reported to the mesh when it has left */
    unsigned char *data; /* what is not lent */
    size_t data_bytes;
    size_t piece_count;
    struct rpc_piece pieces[];
};

struct stream_queue {
    struct stream_message *first, *last;
    uint32_t count;
};

/* The functions of a carrier. */
struct stream_carrier {
    /* Makes a message, by stream_message_create. Any thread, not under the lock, except for a last
     * message. */
    struct stream_message *(*make)(struct stream_request *request,
                                   const struct stream_answer *answer);
    /* A message has come, or a request was answered. Any thread, under the lock. */
    void (*changed)(struct answer_stream *stream);
};

struct answer_stream {
    pthread_mutex_t lock;
    const struct stream_carrier *carrier;
    const struct dispatch *dispatch;
    struct stream_request *requests; /* that are not answered */
    struct stream_queue waiting;
    size_t unread; /* bytes of all messages that have not left */
    bool cancelled;
};

void stream_init(struct answer_stream *stream, const struct stream_carrier *carrier,
                 const struct dispatch *dispatch);
/* Call when no request is left. */
void stream_fini(struct answer_stream *stream);

/* Adds a request from calloc. */
void stream_add(struct answer_stream *stream, struct stream_request *request);
/* Takes back a request that was not submitted. */
void stream_remove(struct answer_stream *stream, struct stream_request *request);
/* Drops what waits and cancels the requests, because nobody reads any more. */
void stream_cancel(struct answer_stream *stream);

/* The functions of a sink whose `call` is the request. */
void stream_sink_tagged(void *request, uint64_t tag);
enum status stream_sink_piece(void *request, const struct rpc_piece *pieces, size_t piece_count,
                              uint64_t unread_max) WARN_UNUSED;
void stream_sink_reply(void *request, const struct rpc_piece *pieces, size_t piece_count);
void stream_sink_finish(void *request, const struct rpc_piece *pieces, size_t piece_count);
void stream_sink_fail(void *request, enum status status, const char *text);

/* The functions of an inbound_type whose `call` may be the request. */
void stream_mesh_piece(void *request, const struct rpc_piece *pieces, size_t piece_count);
void stream_mesh_answer(void *request, const struct rpc_answer *answer);
void stream_mesh_refuse(void *request, enum status status, const char *text, uint32_t retry_ms);

/* ---- messages ---- */

/* Bytes of the pieces. */
size_t stream_answer_bytes(const struct stream_answer *answer);
/* Takes what is lent and copies the other pieces, between bytes for the carrier to fill: the first
 * and last of `data`. */
struct stream_message *stream_message_create(const struct stream_answer *answer, size_t head_bytes,
                                             size_t tail_bytes);
/* Frees it with what it holds. */
void stream_message_drop(struct stream_message *message);

/* The amounts that a message gives back when it has left. */
struct stream_credit {
    uint64_t tag;
    uint64_t bytes;
    bool is_owed;
};

/* Queue a message, and account for one that has left or will not. Call under the lock. */
void stream_queue_put(struct stream_queue *queue, struct stream_message *message);
struct stream_message *stream_queue_take(struct stream_queue *queue);
struct stream_credit stream_forget(struct answer_stream *stream,
                                   const struct stream_message *message);
/* Call without the lock. */
void stream_give_back(const struct answer_stream *stream, struct stream_credit credit);
