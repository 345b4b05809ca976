/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of this folder share: the server, its queues, its call objects. A call object
 * belongs to the queue it was armed on and is touched by that queue's stepping thread, with these
 * exceptions, which are what other threads reach through rpc_call_reply, _send and _finish:
 *
 *     tag, ended       atomic
 *     sending          written before `ended` is set (or, of a stream, under its lock)
 *     stream           under stream->lock; the right to start a sending batch is stream->busy
 *
 * See DESIGN.md for the table of who frees what, when.
 */
#pragma once

#include <grpc/grpc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "rpc/rpc.h"

enum {
    RPC_STEP_EVENTS_MAX = 64,  /* handled by one step before it returns */
    RPC_STREAM_QUEUE_MAX = 64, /* messages of one stream that wait to be sent */
    RPC_TEXT_BYTES_MAX = 1024, /* of a status message; the library triples what it has to encode */
};

/* What can come out of a completion queue. */
enum rpc_event {
    RPC_EVENT_ARRIVED,  /* an armed call was used (or, at the end, was not) */
    RPC_EVENT_RECEIVED, /* a message was read, or there is none */
    RPC_EVENT_SENT,     /* one message, or the initial metadata, of a stream is out */
    RPC_EVENT_ENDED,    /* the batch with the status is done */
    RPC_EVENT_CLOSED,   /* nobody waits for the call any more */
    RPC_EVENT_WAKE,     /* rpc_server_wake */
    RPC_EVENT_STOPPED,  /* the library has no call and no connection left */
};

/* The library gives back the address of one of these. */
struct rpc_tag {
    enum rpc_event event;
    struct rpc_call *call;
};

/* The sending half of a stream. Made when a call object first serves a stream, kept with it. */
struct rpc_stream {
    pthread_mutex_t lock;
    bool busy;      /* a sending batch is under way, or about to be started by who set this */
    bool dead;      /* nothing will ever be sent again, but for the status */
    bool finishing; /* status and text below are to be sent when the queue is empty */
    enum status status;
    grpc_slice text;
    size_t head;
    size_t count;
    grpc_byte_buffer *queue[RPC_STREAM_QUEUE_MAX];
};

struct rpc_call {
    struct rpc_queue *queue;
    struct rpc_call *next_free;
    const struct rpc_method *method; /* NULL until a call of the catch-all kind has arrived */
    const struct rpc_arm *arm;       /* what it was armed for */
    grpc_call *core;
    grpc_metadata_array metadata;
    grpc_call_details details;
    gpr_timespec deadline;
    grpc_byte_buffer *received;
    grpc_byte_buffer *sending; /* the library has emptied it, but it is ours to destroy */
    int cancelled;             /* required by the library; `ended` tells us more */
    unsigned pending;          /* of ENDED, CLOSED, RECEIVED: events still to come */
    bool delivered;            /* the user knows of this call */
    bool closed;               /* CLOSED has come: nobody waits */
    atomic_bool ended;         /* by the user, or by us before the user knew */
    _Atomic uint64_t tag;
    void *user;
    struct rpc_stream *stream;
    struct rpc_tag tags[RPC_EVENT_CLOSED + 1];
};

/* What calls are armed for: one hot method, or everything else. */
struct rpc_arm {
    const struct rpc_method *method; /* NULL: everything else */
    void *registered;
    size_t count; /* calls armed at any time, on each queue */
};

struct rpc_queue {
    struct rpc_server *server;
    grpc_completion_queue *core;
    struct rpc_call *free;
    size_t call_count;      /* call objects that exist */
    size_t live;            /* of these, armed or under way */
    bool closing;           /* the completion queue was told to shut down */
    bool closed;            /* and has done so */
    struct rpc_span *spans; /* of the message being delivered; grown as needed */
    size_t span_capacity;
    /* rpc_server_wake: an empty batch on a call that goes nowhere. */
    grpc_call *wake_call;
    atomic_uint wake_state;
    struct rpc_tag wake_tag;
};

/* One address that is listened on. */
struct rpc_listener {
    int port;
    char path[108]; /* of a unix socket, else "" */
    dev_t device;   /* the file we made, to be unlinked by us only */
    ino_t inode;
};

struct rpc_server {
    grpc_server *core;
    const struct rpc_method *methods;
    size_t method_count;
    void *context;
    struct rpc_arm *arms;
    size_t arm_count;
    struct rpc_listener *listeners;
    size_t listener_count;
    struct rpc_queue *queues;
    size_t queue_count;
    grpc_channel *wake_channel;
    struct rpc_tag stopped_tag;
    atomic_bool stopping;
    atomic_bool stopped;
};

/* ---- library.c: the library's own kinds of value ---- */

/* Set while this thread does what may fail and is reported by us in better words. */
extern _Thread_local bool rpc_library_log_quiet;

gpr_timespec rpc_time_to_core(int64_t time_ns);
int64_t rpc_time_from_core(gpr_timespec time);
/* A limit as the library takes it: it counts in int. */
int rpc_limit_to_core(size_t limit);
void *rpc_allocate(size_t count, size_t bytes);

/* ---- message.c ---- */

/* Takes over what the pieces lend: release is called when the buffer is gone. */
grpc_byte_buffer *rpc_message_to_core(const struct rpc_piece *pieces, size_t piece_count);
/* The spans live in the queue until its next message; the bytes in the buffer. */
struct rpc_message rpc_message_from_core(struct rpc_queue *queue, grpc_byte_buffer *buffer);

/* ---- call.c ---- */

/* Puts one more call object at the library's disposal. Stepping thread, or before there is one. */
void rpc_call_arm(struct rpc_queue *queue, const struct rpc_arm *arm);
void rpc_call_on_event(struct rpc_call *call, enum rpc_event event, bool ok);
/* Frees the memory of a call object that is in no use. */
void rpc_call_destroy(struct rpc_call *call);
/* Starts a batch, of which `tag` is a tag of the call. Given the library's call and not ours, which
 * may be in other use by then; `ops` and what they point to may be gone afterwards. */
void rpc_call_start(grpc_call *core, const grpc_op *ops, size_t op_count, struct rpc_tag *tag);
grpc_slice rpc_text_to_core(const char *text);

/* ---- stream.c: the sending half of streams ---- */

void rpc_stream_begin(struct rpc_call *call);
/* Also of a message that failed: the call is then CLOSED soon, and the rest dropped. */
void rpc_stream_on_sent(struct rpc_call *call);
/* Nothing that waits will be sent any more: the bytes go back to who lent them. */
void rpc_stream_drop(struct rpc_call *call);
void rpc_stream_finish(struct rpc_call *call, enum status status, const char *text);
void rpc_stream_end(struct rpc_call *call);
void rpc_stream_destroy(struct rpc_stream *stream);

/* ---- listen.c ---- */

enum status rpc_listener_open(struct rpc_listener *listener, grpc_server *server,
                              const char *address, struct error *error) WARN_UNUSED;
/* Removes the socket file if it is still the one we made. */
void rpc_listener_close(struct rpc_listener *listener);
