/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State shared by the files of this folder: queues, the server and its call objects, the client and
 * its calls, the sending half of streams. A server's call object belongs to the queue it was armed
 * on. Only that queue's stepping thread touches it, except for what other threads reach through
 * rpc_call_reply, _answer, _send, _read and _finish:
 *
 *     tag, ended, reading, pending   atomic
 *     sending                        written before `ended` is set
 *     stream                         under stream->lock; the right to start a sending batch is
 *                                    stream->busy
 *
 * client_call.c has the rules for a client's call. DESIGN.md says when each object is freed.
 */
#pragma once

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "rpc/rpc.h"

enum {
    RPC_STEP_EVENTS_MAX = 64,  /* handled by one step at most */
    RPC_STREAM_QUEUE_MAX = 64, /* messages of one stream waiting to be sent */
    RPC_TEXT_BYTES_MAX = 1024, /* of a status message; the library triples encoded bytes */
    RPC_RECONNECT_MS_INITIAL = 20,
    RPC_RECONNECT_MS_MAX = 1000,
    RPC_CONNECT_MS = 1000,
    RPC_LISTENER_FDS_MAX = 8,
    RPC_PEER_TEXT_MAX = 128,
    RPC_READ_BYTES_MAX = 1 << 17,  /* at once from one connection, so that others are not delayed */
    RPC_FRAME_BYTES_MAX = 1 << 20, /* with a window; the library's default allows more */
    RPC_CONNECTIONS_DEFAULT = 2048,
    RPC_WATCH_MS = 200,       /* how often calls are checked while there are connections */
    RPC_HANDSHAKE_MS = 20000, /* from connecting to HTTP/2's first settings */
    RPC_MESSAGE_BYTES_DEFAULT = 4 << 20, /* the library's default */
};

/* The events of a completion queue. */
enum rpc_event {
    RPC_EVENT_ARRIVED,  /* an armed call was used (or, at the end, was not) */
    RPC_EVENT_RECEIVED, /* a message was read, or there is none */
    RPC_EVENT_SENT,     /* one message, or the initial metadata, of a stream was sent */
    RPC_EVENT_ENDED,    /* the batch with the status is done */
    RPC_EVENT_CLOSED,   /* nobody waits for the call any more */
    RPC_EVENT_WAKE,     /* rpc_queue_wake */
    RPC_EVENT_STOPPED,  /* the library has no call and no connection left */
    RPC_EVENT_WATCHED,  /* a client's connection changed state, or its channel is gone */
    /* of a call that a client makes: */
    RPC_EVENT_MADE_INITIAL,  /* the server's initial metadata arrived */
    RPC_EVENT_MADE_RECEIVED, /* a message was read, or there is none */
    RPC_EVENT_MADE_SENT,     /* a message of ours, or the half-close, was sent */
    RPC_EVENT_MADE_STATUS,   /* the call is over; for a unary call, with everything */
    RPC_EVENT_COUNT,
};

/* Says whether the operations that the event reports succeeded. */
enum rpc_success { RPC_FAILED, RPC_DONE };

enum { RPC_CALL_EVENTS = RPC_EVENT_CLOSED + 1 };
enum { RPC_MADE_EVENTS = RPC_EVENT_COUNT - RPC_EVENT_MADE_INITIAL };

/* Tags for the library's events, which return their addresses. */
struct rpc_tag {
    enum rpc_event event;
    union {
        struct rpc_call *call;
        struct rpc_server *server;
        struct rpc_client *client;
        struct rpc_client_call *made;
    };
};

/* Metadata in the library's form; we release the values. */
struct rpc_headers {
    grpc_metadata *items; /* NULL if there are none */
    size_t count;
};

/* The end of a call. Passed by value: the sender releases it. */
struct rpc_ending {
    enum status status;
    grpc_slice text;
    struct rpc_headers trailers;
};

/* The sending half of a stream on either side; stream.c. */
struct rpc_stream {
    pthread_mutex_t lock;
    grpc_call *core;
    bool client;
    struct rpc_tag *sent_tag;
    struct rpc_tag *ended_tag; /* server: of the batch with the status */
    atomic_uint *pending;      /* client: counts batches under way */
    bool busy;                 /* a batch is under way, or about to be started by the thread that
                                * set this */
    bool dead;                 /* no message will be sent any more */
    bool open_wanted;          /* initial metadata are sent even if there is nothing else */
    bool opened;               /* they were sent, or are in a batch */
    bool finishing;            /* send the end once the queue is empty */
    bool finished;             /* the end was sent, or is in a batch */
    struct rpc_headers initial;
    struct rpc_ending ending;
    grpc_byte_buffer *sending; /* emptied by the library, destroyed by us */
    size_t head;
    size_t count;
    size_t capacity;
    uint64_t waiting_bytes;   /* the cost of those in the queue */
    grpc_byte_buffer **queue; /* a ring; grows */
};

struct rpc_call {
    struct rpc_queue *queue;
    struct rpc_call *next_free;
    const struct rpc_method *method; /* NULL until a catch-all call has arrived */
    const struct rpc_arm *arm;       /* its purpose */
    grpc_call *core;
    grpc_metadata_array metadata;
    grpc_call_details details;
    gpr_timespec deadline;
    grpc_byte_buffer *received;
    grpc_byte_buffer *sending;        /* unary: emptied by the library, destroyed by us */
    int cancelled;                    /* required by the library; `ended` says more */
    atomic_uint pending;              /* outstanding events of ENDED, CLOSED, RECEIVED */
    bool delivered;                   /* the user knows this call */
    bool closed;                      /* CLOSED has come: nobody waits */
    atomic_bool ended;                /* by the user, or by us before the user knew of it */
    _Atomic int64_t sending_since_ns; /* since when the transport holds something unsent; or 0 */
    size_t sending_bytes;             /* its size; written before */
    struct rpc_call *next_of_queue;   /* the list of all call objects */
    atomic_bool reading; /* rpc_any: a message was requested, or none will come any more */
    _Atomic uint64_t tag;
    void *user;
    struct rpc_later open; /* rpc_any: queued until its first message or its end */
    char *path;            /* of a method that is in no table; grows, kept with the object */
    size_t path_room;
    struct rpc_stream *stream;
    struct rpc_tag tags[RPC_CALL_EVENTS];
};

/* The purpose of an armed call: one hot method, or all others. */
struct rpc_arm {
    struct rpc_server *server;
    const struct rpc_method *method; /* NULL: all others */
    void *registered;
    size_t count; /* offered to the library at a time, on each queue */
};

struct rpc_queue {
    struct rpc_server *server; /* its owner; NULL: a queue of rpc_queue_create */
    grpc_completion_queue *core;
    struct rpc_call *free;
    size_t call_count;             /* call objects that exist */
    struct rpc_call *calls;        /* all of them */
    atomic_bool is_watch_due;      /* the next step must run rpc_watch_calls */
    atomic_bool wants_relief;      /* rpc_server_relieve was called since the last check */
    size_t live;                   /* of these, armed or under way */
    atomic_uint handed_over;       /* rpc_queue_hand_over */
    atomic_bool stopped;           /* only clients keep it from ending */
    atomic_uint client_count;      /* clients bound to it */
    bool closing;                  /* the completion queue is shutting down */
    bool closed;                   /* and has done so */
    struct rpc_later *later;       /* to run at the end of this step */
    struct rpc_later *later_still; /* queued in a full step: to run after the next one */
    struct rpc_timer *timers;      /* those that are set, the next one first */
    struct wire_span *spans;       /* of the message being delivered; grows */
    size_t span_capacity;
    struct rpc_metadata *entries; /* of the metadata being delivered; grows */
    size_t entry_capacity;
    pthread_mutex_t lock;
    struct rpc_client *leaving; /* under `lock`: clients destroyed by their users */
    struct rpc_post *posts;     /* under `lock` */
    /* rpc_queue_wake: an empty batch on a call of a dead channel. */
    grpc_channel *wake_channel;
    grpc_call *wake_call;
    atomic_uint wake_state;
    struct rpc_tag wake_tag;
};

/* The certificates of a server. */
struct rpc_tls_use {
    struct rpc_tls *tls; /* NULL: none */
    uint64_t version;    /* in use by the library; under the lock of `tls` */
};

/* One listening address. */
struct rpc_listener {
    int fds[RPC_LISTENER_FDS_MAX]; /* a name may have several addresses */
    size_t fd_count;
    enum rpc_sockets sockets; /* set before it is opened */
    int port;
    char path[108]; /* of a unix socket, else "" */
    dev_t device;   /* identify the file we made: we unlink no other */
    ino_t inode;
    bool is_inherited; /* its file is to get the mode when it accepts */
    mode_t mode;
};

struct rpc_server {
    grpc_server *core;
    const struct rpc_method *methods;
    size_t method_count;
    const struct rpc_any *any;
    struct rpc_method any_method; /* stands for all methods that are in no table */
    void (*on_sent)(void *context, uint64_t tag,
                    size_t waiting); /* of RPC_BIDI_READ, as the next but one */
    void (*on_server_stream_sent)(void *context, uint64_t tag, size_t waiting);
    bool (*is_for_any)(void *context, struct rpc_call *call);
    const char *(*on_unknown)(void *context, const char *method);
    void *context;
    struct rpc_arm *arms;
    size_t arm_count;
    struct rpc_listener *listeners;
    size_t listener_count;
    struct rpc_tls_use tls;
    void *handler; /* of the library's listener "external:" */
    struct rpc_acceptor *acceptor;
    struct rpc_flood *flood;
    _Atomic uint64_t arrived;          /* calls handed to us */
    _Atomic uint64_t released;         /* of these, finished */
    _Atomic int64_t refusing_since_ns; /* 0: it takes calls */
    const char *_Atomic refusal;       /* the text for arriving calls; NULL: it takes them */
    _Atomic uint64_t refused;          /* calls that got it */
    _Atomic int64_t refused_ns;        /* when the last of them arrived, or refusing began */
    struct rpc_queue *queues;
    size_t queue_count;
    struct rpc_tag stopped_tag;
    atomic_bool stopping;
    size_t message_bytes_max;
    int64_t send_timeout_ns; /* 0: none */
    struct rpc_queue *host;  /* the queue of another server that it uses; NULL: it has its own */
    bool has_failed;         /* it uses another server's queue, and its creation failed: freed at
                                STOPPED */
};

/* ---- library.c: the library's value types ---- */

gpr_timespec rpc_time_to_core(int64_t time_ns);
int64_t rpc_time_from_core(gpr_timespec time);
/* Converts a limit: the library counts in int. */
int rpc_limit_to_core(size_t limit);
void *rpc_allocate(size_t count, size_t bytes);
/* Grows to at least `needed` items and at least twice the capacity. */
void *rpc_grow(void *items, size_t *capacity, size_t needed, size_t item_bytes);

/* Arguments of a channel or a server. Keys and strings are not copied. */
struct rpc_args {
    grpc_arg items[24];
    size_t count;
};

void rpc_args_add(struct rpc_args *args, const char *key, int value);
/* Messages arrive as they were sent, even if compressed; returns the limit for rpc_inflate. */
size_t rpc_args_add_message(struct rpc_args *args, size_t bytes_max);
/* The pointer is neither copied nor freed. */
void rpc_args_add_pointer(struct rpc_args *args, const char *key, void *value);
/* Sets how much the other side may send on a stream ahead of requests; 0: the library's default. */
void rpc_args_add_window(struct rpc_args *args, size_t bytes);
/* 0: the library's default. */
void rpc_args_add_limit(struct rpc_args *args, const char *key, size_t limit);
/* Pings after `time_ns` of silence, with or without calls; 0: none. */
void rpc_args_add_keepalive(struct rpc_args *args, int64_t time_ns, int64_t timeout_ns);
/* The name that a server's certificate must have; `tls` NULL: none. */
void rpc_args_add_peer_name(struct rpc_args *args, const struct rpc_tls *tls);
/* Connection settings that rpc_channel and rpc_client share. */
void rpc_args_add_connection(struct rpc_args *args, int connect_ms);

/* ---- tls_files.c ---- */

/* Keeps OpenSSL usable until the process ends. Call before any other use of it. */
void rpc_tls_init(void);

/* The certificates in use, unchanged until the release; looks at the files first. `*version`: as
 * rpc_tls_version. */
const struct rpc_pems *rpc_tls_acquire(struct rpc_tls *tls, uint64_t *version);
void rpc_tls_release(struct rpc_tls *tls);
bool rpc_tls_has_certificate(const struct rpc_tls *tls);

/* ---- tls.c: credentials, released by the caller; `tls` NULL: none are needed ---- */

enum status rpc_tls_check_server(const struct rpc_tls *tls, struct error *error) WARN_UNUSED;
grpc_channel_credentials *rpc_tls_client(struct rpc_tls *tls);
/* Returns the credentials for one attempt to listen. */
grpc_server_credentials *rpc_tls_server(struct rpc_tls_use *use);

/* ---- queue.c ---- */

void rpc_queue_init(struct rpc_queue *queue, struct rpc_server *server);
/* Orders this thread's writes to new objects before the event of the batch started next, so that
 * the stepping thread sees them. */
void rpc_queue_hand_over(struct rpc_queue *queue);
/* Call after its step has returned -1. */
void rpc_queue_fini(struct rpc_queue *queue);

/* ---- server.c ---- */

/* STOPPED has come. Stepping thread. */
void rpc_server_on_stopped(struct rpc_server *server);

/* ---- refuse.c ---- */

/* Returns true if the server takes no calls any more: this one, which has just arrived, was ended.
 * Stepping thread. */
bool rpc_call_refuse_late(struct rpc_call *call);

/* ---- inflate.c ---- */

/* Replaces a compressed message by its contents, at most `bytes_max`; leaves others alone.
 * RESOURCE_EXHAUSTED: it would be larger; INTERNAL: it cannot be read. On failure the message
 * stays. */
enum status rpc_inflate(grpc_byte_buffer **buffer, size_t bytes_max,
                        struct error *error) WARN_UNUSED;

/* ---- message.c ---- */

/* Takes over lent pieces: release is called when the buffer is gone. */
grpc_byte_buffer *rpc_message_to_core(const struct rpc_piece *pieces, size_t piece_count);

/* A message during its callback. */
struct rpc_delivery {
    struct wire_message message; /* its spans are the queue's, until its next message */
    grpc_byte_buffer *buffer;
    struct rpc_kept *kept; /* made by the callback, if any */
};

/* Takes over the buffer. Both on the stepping thread, one delivery at a time. */
void rpc_delivery_begin(struct rpc_delivery *delivery, struct rpc_queue *queue,
                        grpc_byte_buffer *buffer);
void rpc_delivery_end(struct rpc_delivery *delivery);

/* ---- metadata.c ---- */

struct rpc_headers rpc_headers_to_core(const struct rpc_metadata *entries, size_t count);
void rpc_headers_release(struct rpc_headers *headers);
/* Converts two arrays of received metadata, one behind the other in the queue's own array; valid
 * until the queue's next metadata. */
void rpc_headers_from_core(struct rpc_queue *queue, const grpc_metadata_array *first,
                           const grpc_metadata_array *second, const struct rpc_metadata **first_out,
                           const struct rpc_metadata **second_out);
struct wire_span rpc_span_of(const grpc_slice *slice);

/* ---- call.c ---- */

/* Offers one more call object to the library. On the stepping thread, or before there is one. */
void rpc_call_arm(struct rpc_queue *queue, const struct rpc_arm *arm);
void rpc_call_on_event(struct rpc_call *call, enum rpc_event event, enum rpc_success success);
/* Frees a call object that is not in use. */
void rpc_call_destroy(struct rpc_call *call);
/* Starts a batch with a tag of the call. Takes the library's call instead of ours, which may be
 * reused by then; `ops` and what they point to need not outlive the function. */
void rpc_call_start(grpc_call *core, const grpc_op *ops, size_t op_count, struct rpc_tag *tag);
bool rpc_call_is_any(const struct rpc_call *call);

/* ---- watch.c: calls whose callers do not read ---- */

/* Call before `message` goes to the transport; NULL: nothing to watch. */
void rpc_watch_sending(struct rpc_call *call, const grpc_byte_buffer *message);
/* It was sent, or dropped. */
void rpc_watch_sent(struct rpc_call *call);
/* Checks all calls of the queue and ends those over time. Stepping thread. */
void rpc_watch_calls(struct rpc_queue *queue);

/* ---- answer.c ---- */

/* Ends a call with only a status other than OK, even if the user never saw it. */
void rpc_call_fail(struct rpc_call *call, enum status status, const char *text);

/* ---- stream.c: the sending half of streams ---- */

struct rpc_stream *rpc_stream_create(void);
void rpc_stream_destroy(struct rpc_stream *stream);
/* Begins a new call: nothing was sent yet. The tags, `pending` and the role are already set. */
void rpc_stream_begin(struct rpc_stream *stream, grpc_call *core);
enum rpc_stream_next { RPC_STREAM_MORE, RPC_STREAM_LAST };
/* Sends the initial metadata, which are taken over; a client also its first message, if not NULL,
 * and with LAST its half-close. */
void rpc_stream_open(struct rpc_stream *stream, struct rpc_headers initial,
                     grpc_byte_buffer *message, enum rpc_stream_next next);
/* Takes over the message, even on failure. `most`: of messages that wait, or of their cost. */
enum rpc_stream_limit { RPC_STREAM_COUNT, RPC_STREAM_BYTES };
enum status rpc_stream_send(struct rpc_stream *stream, grpc_byte_buffer *message,
                            enum rpc_stream_limit limit, uint64_t most) WARN_UNUSED;
/* Like rpc_stream_send(), with the end of the stream behind the message, even if the queue is full.
 * `message` may be NULL. Everything is taken over; `initial` is for a stream that was not opened
 * yet. */
void rpc_stream_finish(struct rpc_stream *stream, grpc_byte_buffer *message,
                       struct rpc_headers initial, const struct rpc_ending *ending);
/* A batch without the end is done; if it failed, the call ends soon and the rest is dropped.
 * Stepping thread. True if it contained a message; `*waiting` more wait. */
bool rpc_stream_on_sent(struct rpc_stream *stream, size_t *waiting);
/* Drops all waiting messages and releases their lent bytes. */
void rpc_stream_drop(struct rpc_stream *stream);
/* Call after the last event: no batch is under way and nothing waits. */
void rpc_stream_end(struct rpc_stream *stream);

/* ---- listen.c ---- */

/* `socket_mode`: of a unix socket; NULL: by the umask. */
enum status rpc_listener_open(struct rpc_listener *listener, const char *address,
                              const uint32_t *socket_mode, struct error *error) WARN_UNUSED;
/* Call before it accepts. */
void rpc_listener_permit(const struct rpc_listener *listener);
/* Ends listening. */
void rpc_listener_shut(struct rpc_listener *listener);
/* Like rpc_listener_shut(), but also unlinks the socket file if it is still the one we made. */
void rpc_listener_close(struct rpc_listener *listener);

/* ---- peer.c: addresses of callers ---- */

struct rpc_peer {
    sa_family_t family; /* AF_UNIX: nothing else is known */
    uint16_t port;
    uint32_t scope; /* interface of a link-local IPv6 address */
    unsigned char address[16];
};

struct rpc_peer rpc_peer_of(const struct sockaddr_storage *address);
/* Parses the library's forms: "ipv4:192.0.2.7:1234", "ipv6:%5B::1%5D:1234",
 * "ipv6:%5Bfe80::1%252%5D:1234" with the number of an interface. */
bool rpc_peer_parse(const char *text, struct rpc_peer *peer);
/* Ignores the port. */
bool rpc_peer_same_machine(const struct rpc_peer *a, const struct rpc_peer *b);
bool rpc_peer_same(const struct rpc_peer *a, const struct rpc_peer *b);

/* ---- penalty.c: addresses that flooded the server ---- */

#define RPC_PENALTY_NS ((int64_t)NS_PER_S)
#define RPC_PENALTY_AGAIN_NS (8 * (int64_t)NS_PER_S)
#define RPC_PENALTY_MEMORY_NS (60 * (int64_t)NS_PER_S)
#define RPC_PENALTY_STEP_NS (100 * (int64_t)NS_PER_MS)

enum { RPC_PENALTIES_MAX = 64 };

struct rpc_penalty {
    struct rpc_peer peer;
    int64_t until_ns; /* 0: a free entry */
};

struct rpc_penalties {
    struct rpc_penalty items[RPC_PENALTIES_MAX];
};

/* Records that a connection from that address flooded the server. */
void rpc_penalties_add(struct rpc_penalties *penalties, const struct rpc_peer *peer,
                       int64_t now_ns);
/* Returns when the peer's next connection may be handed over; 0 or a past time: now. */
int64_t rpc_penalties_until(struct rpc_penalties *penalties, const struct rpc_peer *peer);
/* A waiting connection was handed over. */
void rpc_penalties_step(struct rpc_penalties *penalties, const struct rpc_peer *peer,
                        int64_t now_ns);

/* ---- linger.c ---- */

/* A connection of which shutdown() ends only what we send; `inode` is 0 if it is not. */
struct rpc_linger {
    uint64_t inode; /* the socket's */
    struct rpc_linger *next;
};

/* `linger`, which is zero and stays at this address until its end, is for the socket `fd`. Any
 * thread. */
void rpc_linger_begin(struct rpc_linger *linger, int fd);
/* No effect if it has not begun. Any thread. */
void rpc_linger_end(struct rpc_linger *linger);

/* ---- accept.c ---- */

struct rpc_acceptor_options {
    struct rpc_server *server; /* whose queues are woken to check their calls */
    void *handler;             /* stored by the library through the argument for "external:" */
    struct rpc_listener *listeners;
    size_t listener_count;
    size_t connections_max;          /* as in rpc_server_options */
    size_t connections_per_peer_max; /* likewise */
};

/* Accepts from now on. Call after the server's start. */
struct rpc_acceptor *rpc_acceptor_create(const struct rpc_acceptor_options *options);
/* Begins to accept. Once. */
void rpc_acceptor_open(struct rpc_acceptor *acceptor);
/* Stops accepting, and keeps the connections: each until its client has closed it, or
 * rpc_acceptor_shut(). */
void rpc_acceptor_part(struct rpc_acceptor *acceptor);
/* Closes the listeners, and the connections that are held back. */
void rpc_acceptor_close(struct rpc_acceptor *acceptor);
/* Like rpc_acceptor_close(), but also hands over no more connections. Call before the server's
 * shutdown. */
void rpc_acceptor_stop(struct rpc_acceptor *acceptor);
/* Hands over no more connections and shuts all of them down. */
void rpc_acceptor_shut(struct rpc_acceptor *acceptor);
void rpc_acceptor_destroy(struct rpc_acceptor *acceptor);
struct rpc_figures rpc_acceptor_figures(struct rpc_acceptor *acceptor);
/* Shuts down the connection with this peer, in the library's form, if it still exists; false: peers
 * of this kind cannot be distinguished. */
bool rpc_acceptor_cut(struct rpc_acceptor *acceptor, const char *peer);
/* Like rpc_acceptor_cut(), for a flood: delays further connections of its address. `number`:
 * channelz's. */
bool rpc_acceptor_cut_flood(struct rpc_acceptor *acceptor, const char *peer, long number,
                            int64_t now_ns);
/* Counts a call that was ended instead. */
void rpc_acceptor_count_cut(struct rpc_acceptor *acceptor);
/* The server's queues are gone: does not wake them any more. */
void rpc_acceptor_forget_queues(struct rpc_acceptor *acceptor);

/* A connection as channelz lists it. */
struct rpc_socket_figures {
    const char *peer;
    long number;     /* later ones are larger */
    uint64_t resets; /* since its start */
};

/* Adds new resets to the connection's bucket, which leaks `per_s` a second, and returns its level;
 * 0: no such connection. Accepting thread. */
uint64_t rpc_acceptor_fill(struct rpc_acceptor *acceptor, const struct rpc_socket_figures *figures,
                           uint64_t per_s, int64_t now_ns);

/* ---- flood.c ---- */

/* Counts of a server: its connections, and calls that reached the stepping threads. */
struct rpc_call_counts {
    uint64_t connections;
    uint64_t handed; /* connections handed to the library in total */
    uint64_t arrived;
    uint64_t released;
};

struct rpc_flood;

/* The library's server, and the means to look at its connections. */
grpc_server *rpc_flood_server_create(const grpc_channel_args *args, size_t streams_max,
                                     struct rpc_flood **flood);
void rpc_flood_destroy(struct rpc_flood *flood);
/* Accepting thread, without the acceptor's lock. Returns when to look again; TIME_NEVER_NS: at the
 * next connection. */
int64_t rpc_flood_look(struct rpc_flood *flood, struct rpc_acceptor *acceptor,
                       const struct rpc_call_counts *counts);

/* ---- client.c, client_call.c ---- */

struct rpc_client {
    struct rpc_queue *queue;
    grpc_channel *core;
    atomic_int state; /* enum rpc_client_state */
    size_t message_bytes_max;
    struct rpc_client *leaving; /* next in the queue's list */
    bool watched;               /* WATCHED is outstanding */
    bool closing;               /* its user destroyed it; stepping thread */
    void (*on_state)(void *context);
    void *context;
    struct rpc_tag watch_tag;
    pthread_mutex_t lock; /* protects `calls`, which are started on any thread */
    struct rpc_client_call *calls;
};

/* Call when its user has destroyed it. Stepping thread. */
void rpc_client_close(struct rpc_client *client);
void rpc_client_on_watched(struct rpc_client *client);
/* A call left the list. Stepping thread. */
void rpc_client_on_call_gone(struct rpc_client *client);
/* Both for calls in the list. */
struct rpc_client_call *rpc_client_call_next(struct rpc_client_call *call);
void rpc_client_call_on_event(struct rpc_client_call *call, enum rpc_event event,
                              enum rpc_success success);
