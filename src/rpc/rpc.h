/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only module that uses gRPC C core. A server turns calls into callbacks and answers into
 * replies; a client makes calls and turns their results into callbacks. Messages are runs of bytes:
 * this module decodes nothing. A received message is valid until its callback returns.
 *
 * Threads. One thread steps each completion queue (`rpc_server_step`, `rpc_queue_step`). All
 * callbacks of a call, received or made, run on the thread that steps its queue, one at a time, and
 * only from within a step. Every other function may be called from any thread unless its comment
 * says otherwise.
 *
 * Life of a received call. `on_message` hands the call to the user, which ends it exactly once, on
 * any thread, with `rpc_call_reply`, `rpc_call_answer` or `rpc_call_finish`; after that the pointer
 * is dead. `on_cancel` reports, at most once and only on the stepping thread, that nobody waits any
 * more (the caller cancelled, vanished, or its deadline passed). The call must still be ended,
 * which then sends nothing. `on_cancel` may run while another thread ends the call, so it gets the
 * call's tag instead of the call: the tag identifies the user's state in a way that is safe to look
 * up after that state is gone (a ticket, not a pointer).
 *
 * Life of a call that a client makes: see rpc_client_start.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "wire/message.h"

struct rpc_server;
struct rpc_call;
struct rpc_queue;
struct rpc_kept;

/*
 * One run of a message to send, in one of three forms:
 *
 *     copied   `data` and `bytes`: the bytes are copied before the function returns.
 *     lent     with `release`: not copied. The bytes must stay unchanged until
 *              `release(release_context)` is called: exactly once, in success and failure, on any
 *              thread, perhaps before the function returns. If a function failed, it may come only
 *              after the call was ended.
 *     kept     with `kept`: `bytes` bytes of a kept message from `offset` on, not copied. The
 *              function takes its own reference: the kept message may be released at once.
 */
struct rpc_piece {
    const void *data;
    size_t bytes;
    void (*release)(void *release_context);
    void *release_context;
    const struct rpc_kept *kept;
    size_t offset;
};

/* Releases the lent pieces of a message that is not sent after all; kept ones stay with their
 * owner. */
void rpc_pieces_release(const struct rpc_piece *pieces, size_t piece_count);

/*
 * One entry of metadata, received or to be sent. Keys are lower-case; the value of a key that ends
 * in "-bin" is any bytes, others are printable ASCII. Entries to be sent are copied. Entries that
 * cannot be sent are silently left out: illegal ones, and those that the library makes itself
 * (":path", "te", "content-type", "user-agent", "host", "grpc-timeout", "grpc-encoding" and
 * others).
 */
struct rpc_metadata {
    struct wire_span key;
    struct wire_span value;
};

/* Returns whether an entry would be sent. */
bool rpc_metadata_is_legal(const struct rpc_metadata *entry);
/* Copies entries with their texts into one block, which the caller frees. */
struct rpc_metadata *rpc_metadata_copy(const struct rpc_metadata *from, size_t count);

/* ---- messages that outlive their callback ---- */

/*
 * Keeps a message beyond its callback by reference to the library's bytes, without a copy; a
 * message made by the user is copied. Only within that callback; keeping it twice returns the same
 * object with two references. Everything else may be called on any thread. A kept message holds
 * whole read buffers of the library, of up to 64 KiB, with bytes of other calls of the connection.
 */
struct rpc_kept *rpc_message_keep(const struct wire_message *message);
/* Like rpc_message_keep(), but copies, so that no more than the message is held: for one that may
 * wait for long. */
struct rpc_kept *rpc_message_copy(const struct wire_message *message);
void rpc_kept_acquire(struct rpc_kept *kept); /* adds a reference */
void rpc_kept_release(struct rpc_kept *kept); /* the last one frees the bytes; NULL is ignored */
/* Returns the message. Its spans are valid until the last reference is released. */
const struct wire_message *rpc_kept_message(const struct rpc_kept *kept);
/* The whole message as a piece to send, even if it is empty. */
struct rpc_piece rpc_kept_piece(const struct rpc_kept *kept);

/* ---- server ---- */

enum rpc_kind {
    RPC_UNARY, /* one message in, one out: end with rpc_call_reply, or rpc_call_finish */
    /* One message in, any number out: rpc_call_send, then rpc_call_finish or rpc_call_reply. A call
     * that sends one message only is the same to its caller, and costs the same, as RPC_UNARY. */
    RPC_SERVER_STREAM,
    RPC_BIDI_STREAM, /* any number in and out: on_message each, on_half_close once */
    RPC_BIDI_READ,   /* the same, but after the first each comes when requested: rpc_call_read */
};

struct rpc_method {
    const char *path; /* "/package.Service/Method" */
    enum rpc_kind kind;
    bool hot; /* received together with its message: saves one event */
    void (*on_message)(void *context, struct rpc_call *call, const struct wire_message *message);
    /* RPC_BIDI_…, required: the caller sends no more. The call must still be finished. Comes
     * without on_message if the caller sent nothing. A lost caller may look like this first;
     * on_cancel then follows. */
    void (*on_half_close)(void *context, struct rpc_call *call);
    /* May be NULL. `tag` is the value of rpc_call_set_tag, or 0 if it was not called: set it in the
     * first callback, before another thread sees the call. */
    void (*on_cancel)(void *context, uint64_t tag);
};

/*
 * The handler of calls whose methods are in no table (`rpc_call_method` names the method). Such a
 * method may be unary or a stream, so both are served: on_message gets the first message; each
 * further one, or on_half_close, comes when requested (`rpc_call_read`), which is the back-pressure
 * of a stream. The user sends any number of messages and a status. `rpc_call_answer` alone, one
 * message and the status, is cheapest and all that a unary caller expects. Initial metadata go with
 * the first thing sent.
 */
struct rpc_any {
    /* May be NULL. Metadata have arrived, but neither the first message nor the end by the end of
     * the step: the caller may be waiting for an answer to them. True: the user takes the call, or
     * has ended it, and its first message comes as if requested. False: the call begins with its
     * first message. */
    bool (*on_open)(void *context, struct rpc_call *call);
    void (*on_message)(void *context, struct rpc_call *call, const struct wire_message *message);
    void (*on_half_close)(void *context, struct rpc_call *call); /* as in rpc_method; required */
    void (*on_cancel)(void *context, uint64_t tag);              /* as in rpc_method; may be NULL */
    /* May be NULL. A message of rpc_call_send has gone to the transport's buffers, `waiting` more
     * have not. Not called after the user has ended the call, but perhaps at that moment. */
    void (*on_sent)(void *context, uint64_t tag, size_t waiting);
};

/* ---- TLS ---- */

/*
 * One side's identity and the peers it trusts, from PEM files that may be replaced at any time.
 * Connections made a second later use the new files if they are good; otherwise the old ones stay
 * in use and the log says so. Existing connections continue. Used by any number of servers and
 * clients, on any thread.
 */
struct rpc_tls;

/* Says whether callers of a server must show certificates. */
enum rpc_tls_clients {
    RPC_TLS_CLIENTS_ANY,      /* certificates are not requested */
    RPC_TLS_CLIENTS_OPTIONAL, /* a certificate that is shown must be valid */
    RPC_TLS_CLIENTS_REQUIRED,
};

struct rpc_tls_options {
    const char *name; /* identifies these certificates in errors and in the log */
    /* Path of our certificate, followed in the file by those between it and its authority. NULL:
     * none; servers need one. */
    const char *certificate;
    const char *key;
    /* Password of the key: a file whose first line it is, or the text itself; and the name of the
     * configured place, for errors. All NULL: there is no way to set one. */
    const char *key_password_file;
    const char *key_password;
    const char *key_password_from;
    const char *ca; /* authorities of the other side. NULL, client: the system's; server: none */
    const char *peer_name; /* client: the name in the server's certificate; NULL: the target's */
    enum rpc_tls_clients clients; /* server; all but ANY need `ca` */
};

/* Fails for files that cannot be read or do not fit together; logs a warning for an expired
 * certificate. Needs no rpc_init. */
enum status rpc_tls_create(const struct rpc_tls_options *options, struct rpc_tls **tls,
                           struct error *error) WARN_UNUSED;
/* Call after all its users are gone. NULL is ignored. */
void rpc_tls_destroy(struct rpc_tls *tls);
/* Examines a PEM, for users other than gRPC. `password` may be NULL. */
enum rpc_key_state {
    RPC_KEY_OPEN,    /* a private key, opened by the password if it needs one */
    RPC_KEY_LOCKED,  /* needs a password, and none was given */
    RPC_KEY_REFUSED, /* the password does not open it */
    RPC_KEY_NONE,    /* no private key */
};
enum rpc_key_state rpc_key_look(const char *pem, const char *password);
/* Changes when new clients would get other certificates. Looks at the files, at most once a
 * second. */
uint64_t rpc_tls_version(struct rpc_tls *tls);
/* PEM texts; NULL: none. The key is decrypted. */
struct rpc_pems {
    const char *ca;
    const char *certificate;
    const char *key;
};

/* Passes the certificates to other servers: calls `take` if their version is not `have` (0: none),
 * and returns the version. Looks at the files like rpc_tls_version. */
uint64_t rpc_tls_fetch(struct rpc_tls *tls, uint64_t have,
                       void (*take)(void *taker, const struct rpc_pems *pems), void *taker);
enum rpc_tls_clients rpc_tls_clients(const struct rpc_tls *tls);
/* NULL: the target's. */
const char *rpc_tls_peer_name(const struct rpc_tls *tls);

/* Says whether a server accepts compressed messages. It refuses a message that exceeds the limit
 * when decompressed, and decompresses it no further. */
enum rpc_compression {
    RPC_COMPRESSION_ON,
    RPC_COMPRESSION_OFF, /* UNIMPLEMENTED */
};

enum rpc_accept { RPC_ACCEPT_AT_ONCE, RPC_ACCEPT_LATER };

/* Says whether the sockets may come from the service manager or a predecessor, and go to a
 * successor (base/listen_fds.h). */
enum rpc_sockets { RPC_SOCKETS_PASSED_ON, RPC_SOCKETS_PRIVATE };

struct rpc_server_options {
    const char *name; /* of the service, for `grpc_listening`; NULL: the user logs the addresses */
    /* "port:8033" all interfaces, "127.0.0.1:8033", "[::1]:0", "unix:/path" */
    const char *const *listen;
    size_t listen_count;
    enum rpc_accept accept; /* LATER: connections wait in the kernel until rpc_server_accept */
    enum rpc_sockets sockets;
    /* Mode of unix sockets, as for chmod. NULL: by the process's umask. */
    const uint32_t *socket_mode;
    size_t queue_count; /* completion queues, one thread each */
    /* Another's queue, not yet stepped, to use instead of an own one: the thread that steps it also
     * handles this server's events. NULL: an own one. */
    struct rpc_queue *queue;
    size_t message_bytes_max; /* larger requests: RESOURCE_EXHAUSTED with both sizes; 0: 4 MiB */
    enum rpc_compression compression;
    size_t metadata_bytes_max;       /* 0: the library's default, 8 KiB */
    size_t connections_max;          /* per address; 0: 2048. All together get a quarter of the
                                      * descriptors that the process may open */
    size_t connections_per_peer_max; /* per client machine; 0: half of them */
    size_t concurrent_streams_max;   /* per connection, more wait in the client; 0: any number */
    /* The bytes that a caller may send on a stream ahead of requests if `any` is set. 0, or without
     * `any`: as much as the library estimates for the network, without a limit. */
    size_t stream_window_bytes;
    /* Calls offered to the library in advance, on each queue: for each hot method, and for all
     * others together. Calls of a burst beyond them wait in the library until one is armed again.
     * Each makes every event of the queue slightly more expensive (DESIGN.md, decision 2). */
    size_t armed_calls;
    size_t armed_calls_other;
    /* A caller that has not read an answer by then, plus a second for each 64 KiB, is disconnected
     * (over a unix socket: the call ends); 0: never. */
    int64_t send_timeout_ns;
    int64_t keepalive_time_ns;        /* ping a silent client after this; 0: never */
    int64_t keepalive_timeout_ns;     /* disconnect it after this time without an answer */
    const struct rpc_method *methods; /* kept, not copied */
    size_t method_count;
    const struct rpc_any *any; /* kept; NULL: other methods get UNIMPLEMENTED */
    /* Called for calls of RPC_BIDI_READ, and of RPC_SERVER_STREAM, as in rpc_any. May be NULL. */
    void (*on_sent)(void *context, uint64_t tag, size_t waiting);
    void (*on_server_stream_sent)(void *context, uint64_t tag, size_t waiting);
    /* Called, if `any` is set, for such a call when only its metadata are there: returns true if
     * `any` handles it. May be NULL. */
    bool (*is_for_any)(void *context, struct rpc_call *call);
    /* Returns, if `any` is not set, the error text for a caller of an unknown method; NULL: the
     * default. Called on a stepping thread. May be NULL. */
    const char *(*on_unknown)(void *context, const char *method);
    struct rpc_tls *tls; /* NULL: none. Lives longer than the server */
    void *context;       /* first argument of every callback */
};

/* Call these once per process, before the first and after the last use of this module. Block the
 * signals that the program handles before rpc_init: the library's threads inherit the mask. */
void rpc_init(void);
void rpc_shutdown(void);

/*
 * Binds all addresses or none. Errors name the address and the reason: in use (a unix path with a
 * listener, a taken port: FAILED_PRECONDITION), a path that is too long, a missing directory. A
 * unix socket file without a listener is replaced; a file that is not a socket is never touched.
 */
enum status rpc_server_create(const struct rpc_server_options *options, struct rpc_server **server,
                              struct error *error) WARN_UNUSED;

/* Begins to accept, after RPC_ACCEPT_LATER. */
void rpc_server_accept(struct rpc_server *server);

/*
 * Asks the clients of all connections to reconnect (GOAWAY), and stops accepting: for a successor
 * that listens on the same sockets. Calls that arrive meanwhile are served as before, and a
 * connection ends when its calls have. To be repeated until there are no connections, for those
 * whose handshake was under way. Any thread, between create and rpc_server_refuse.
 */
void rpc_server_part(struct rpc_server *server);

/* Connection statistics of a server. */
struct rpc_figures {
    uint64_t accepted;    /* in total */
    uint64_t connections; /* open now */
    uint64_t refused;     /* closed at once: a limit was reached */
    uint64_t cut;         /* closed here because of the client's behaviour */
    uint64_t held;        /* delayed because their address had flooded the server */
    uint64_t lacks;       /* times without a descriptor or memory to accept with */
    bool is_accepting;    /* false: it lacks them now and retries ten times a second */
};

/* Calls are being refused because unread answers hold resources: the callers with the most of
 * these, at least two, are disconnected as at the send time-out, but after one second. Any thread;
 * cheap. Takes effect soon, and only with a send time-out. */
void rpc_server_relieve(struct rpc_server *server);

/* Any thread, until rpc_server_destroy. */
struct rpc_figures rpc_server_figures(const struct rpc_server *server);

/* The port bound for listen[index], for ":0"; 0 for a unix socket. */
int rpc_server_port(const struct rpc_server *server, size_t index);

/*
 * Handles a queue's events; waits for one until `deadline_ns` (in the past: does not wait). Waits
 * are whole milliseconds, rounded up. Returns the number of events handled, 0 for none or only a
 * wake, -1 when the server was stopped, every call has ended and no event will come again.
 *
 * Every queue must be stepped continuously: each serves some of the connections, and their bytes,
 * including replies of other threads, move only during a step.
 */
int rpc_server_step(struct rpc_server *server, size_t queue_index, int64_t deadline_ns);

/* The queue for rpc_queue_step, rpc_queue_wake and clients. */
struct rpc_queue *rpc_server_queue(struct rpc_server *server, size_t queue_index);

/* Makes the step that waits on that queue, or the next one, return soon. Several wakes may merge;
 * the waker's earlier writes are visible after that step. Harmless after the queue's end. */
void rpc_server_wake(struct rpc_server *server, size_t queue_index);

/*
 * Stops listening and takes no more calls; calls under way continue. The user must finish streams
 * that only the client would end. New connections and calls get UNAVAILABLE; calls that the library
 * holds but has not handed over get CANCELLED, and in rare races one of them gets no answer. Then
 * clients are asked to close their connections; a client that does not respond delays the end by 20
 * s. Always call rpc_server_cancel_all after a grace time: it ends both. Call once, from any
 * thread.
 */
void rpc_server_stop(struct rpc_server *server);

/* Returns whether calls are under way: received, and not yet ended and sent. Any thread. */
bool rpc_server_has_calls(const struct rpc_server *server);

/* Cancels, after rpc_server_stop, every call under way, each of which gets on_cancel and must still
 * be ended, and drops every connection, with replies that are still being sent. */
void rpc_server_cancel_all(struct rpc_server *server);

/*
 * The graceful end, instead of rpc_server_stop, for a server that still receives calls: no caller
 * gets CANCELLED from it. rpc_server_refuse closes the listeners and answers each call that arrives
 * from then on with UNAVAILABLE and `text`, which must stay valid; calls under way continue. Any
 * thread; calling it again has no effect.
 */
void rpc_server_refuse(struct rpc_server *server, const char *text);

/* Returns true, after rpc_server_refuse, when no client is connected, when no call has arrived for
 * 100 ms, and after 400 ms in any case. Any thread. */
bool rpc_server_is_quiet(const struct rpc_server *server);

/* Waits, after rpc_server_refuse, up to `timeout_ns` for the calls under way. Then shuts down all
 * connections, stops the server, and cancels what is left, as rpc_server_cancel_all does. Blocks;
 * call once, from a thread that steps no queue. */
void rpc_server_end(struct rpc_server *server, int64_t timeout_ns);

/* Call after every queue's step has returned -1, from one thread. A queue ends only after its
 * clients were destroyed and the other servers on it have stopped with their calls ended. Unlinks
 * unix sockets that are still ours. */
void rpc_server_destroy(struct rpc_server *server);

/* ---- a call, from the server's side ---- */

const char *rpc_call_method(const struct rpc_call *call);
/* Returns whether the call's server has a method of this service, "package.Service". */
bool rpc_call_server_has(const struct rpc_call *call, const char *service);
/* Absolute on the monotonic clock; TIME_NEVER_NS without a deadline. */
int64_t rpc_call_deadline_ns(const struct rpc_call *call);
/* The next value of the caller's metadata under a lower-case key, from a position on, 0 at first,
 * which is advanced; false if there is none. Valid until the call ends. */
bool rpc_call_metadata_next(const struct rpc_call *call, const char *key, size_t *position,
                            struct wire_span *value);
/* The next entry, from position 0 on: all that may be forwarded. Excludes transport headers other
 * than "user-agent" and "host". */
bool rpc_call_metadata_walk(const struct rpc_call *call, size_t *position,
                            struct rpc_metadata *entry);
/* The address of the caller's machine, without the port: "ipv4:192.0.2.7", "unix:". Copied, not
 * terminated, cut at `room`; returns its length, 0 if the library does not know it. The library
 * allocates. */
size_t rpc_call_peer(const struct rpc_call *call, char *address, size_t room);
/* Returns whether the caller's certificate has this name among its alternative DNS names. */
bool rpc_call_caller_is(const struct rpc_call *call, const char *name);
/* Returns whether the caller's certificate has this common name, or this alternative name of any
 * kind. */
bool rpc_call_caller_has_name(const struct rpc_call *call, const char *name);
/* Passes all names of the caller's certificate to `take`: its subject as in RFC 2253, its common
 * name, its alternative names of all kinds. A name is valid during `take`. False: no certificate
 * was shown. Neither allocates nor copies. */
bool rpc_call_caller_names(const struct rpc_call *call,
                           void (*take)(void *context, const void *name, size_t bytes),
                           void *context);
/* The common name of that certificate, or its first alternative name, for a text: control
 * characters become "?". Cut at `room`, terminated; "" if it has neither or none was shown. */
void rpc_call_caller_name(const struct rpc_call *call, char *name, size_t room);
void rpc_call_set_tag(struct rpc_call *call, uint64_t tag);
/* A user pointer, for streams; not passed to on_cancel. */
void rpc_call_set_user(struct rpc_call *call, void *user);
void *rpc_call_user(const struct rpc_call *call);

/* RPC_UNARY and RPC_SERVER_STREAM: sends the message with status OK and ends the call. No pieces:
 * an empty message. */
void rpc_call_reply(struct rpc_call *call, const struct rpc_piece *pieces, size_t piece_count);
/* Streams: queues one message. Messages are sent in the order of the calls. Returns, sending
 * nothing, RESOURCE_EXHAUSTED if the client does not read and 64 messages wait, CANCELLED if it is
 * known to be gone. Not concurrently with, nor after, the end of the call. */
enum status rpc_call_send(struct rpc_call *call, const struct rpc_piece *pieces,
                          size_t piece_count) WARN_UNUSED;
/* Like rpc_call_send(), with another limit: RESOURCE_EXHAUSTED if messages wait, and with this one
 * they would hold more than `waiting_bytes_max`, each its bytes and RPC_MESSAGE_COST. */
enum status rpc_call_send_within(struct rpc_call *call, const struct rpc_piece *pieces,
                                 size_t piece_count, uint64_t waiting_bytes_max) WARN_UNUSED;
/* rpc_any and RPC_BIDI_READ: requests the next message, or on_half_close. Repeated requests before
 * it comes count once. Not concurrently with, nor after, the end of the call. */
void rpc_call_read(struct rpc_call *call);
/* rpc_any and RPC_SERVER_STREAM: sends the initial metadata now, before any message. At most once,
 * and first. */
void rpc_call_begin(struct rpc_call *call, const struct rpc_metadata *initial,
                    size_t initial_count);

/* Memory of a message that waits, beside its bytes. */
enum { RPC_MESSAGE_COST = 256 };

/* The end of a call with everything that may go with it. All is copied or taken over. */
struct rpc_answer {
    enum status status;
    struct wire_span text; /* of the status; cut at 1 KiB */
    /* NULL: no message; a unary call that ends with OK then gets an empty one. The message is sent
     * even if a stream's queue is full. Unary: sent with status OK only. */
    const struct rpc_piece *pieces;
    size_t piece_count;
    const struct rpc_metadata *initial; /* ignored if initial metadata were sent */
    size_t initial_count;
    const struct rpc_metadata *trailers;
    size_t trailer_count;
};

/* Ends a call of any kind: a unary call, and one of rpc_any or RPC_SERVER_STREAM that has sent
 * nothing, in one batch; a stream after all queued messages. */
void rpc_call_answer(struct rpc_call *call, const struct rpc_answer *answer);
/* Ends the call with a status, which cannot be OK for a unary call; a stream after all queued
 * messages. `text` may be NULL; it is copied and cut at 1 KiB, and the library percent-encodes
 * bytes that are illegal in a status message. */
void rpc_call_finish(struct rpc_call *call, enum status status, const char *text);
/* Like rpc_call_finish(), with a status other than OK; sends the client in the trailer
 * `grpc-retry-pushback-ms` how long to wait before a retry. 0: no trailer. */
void rpc_call_refuse(struct rpc_call *call, enum status status, const char *text,
                     uint32_t retry_ms);

/* ---- for tools: blocking calls, one at a time per channel ---- */

struct rpc_channel;

/* `target` in the library's form: "unix:/path", "host:port". Does not connect yet: calls to an
 * invalid target fail. */
enum status rpc_channel_create(const char *target, struct rpc_channel **channel,
                               struct error *error) WARN_UNUSED;
/* `tls` may be NULL; it must outlive the channel. */
enum status rpc_channel_create_tls(const char *target, struct rpc_tls *tls,
                                   struct rpc_channel **channel, struct error *error) WARN_UNUSED;
void rpc_channel_destroy(struct rpc_channel *channel);
/* Metadata of all later calls. Kept; illegal entries (rpc_metadata_is_legal) are left out. */
void rpc_channel_set_metadata(struct rpc_channel *channel, const struct rpc_metadata *entries,
                              size_t count);

struct rpc_channel_ask {
    const char *method; /* its path: "/package.Service/Method" */
    const void *request;
    size_t request_bytes;
    int64_t deadline_ns;
};

/*
 * Makes one unary call. Waits for the server to become ready within the deadline. On STATUS_OK the
 * caller frees `*response` with free(); `*response_bytes` is its length (may be 0). On failure
 * `error` holds the server's status and text.
 */
enum status rpc_channel_call(struct rpc_channel *channel, const struct rpc_channel_ask *ask,
                             void **response, size_t *response_bytes,
                             struct error *error) WARN_UNUSED;

/* ---- separate queues ---- */

struct rpc_queue *rpc_queue_create(void);
/* Like rpc_server_step() and rpc_server_wake(). */
int rpc_queue_step(struct rpc_queue *queue, int64_t deadline_ns);
void rpc_queue_wake(struct rpc_queue *queue);

/* Work that any thread hands to the stepping thread. Zero but for `run` at first. */
struct rpc_post {
    void (*run)(struct rpc_post *post);
    /* Private to the queue. */
    struct rpc_post *next;
    bool waits;
};

/* Any thread: `run` is called soon, once for all posts in between. Not after the queue's end; posts
 * made while it ends may not run. */
void rpc_queue_post(struct rpc_queue *queue, struct rpc_post *post);

/* Work to do when a step has handled all pending events: related events have then arrived, like a
 * message and the end behind it. */
struct rpc_later {
    /* Called on the stepping thread. It is no longer queued then, and may be queued again or
     * freed. */
    void (*run)(struct rpc_later *later);
    /* Private to the queue. */
    struct rpc_later *next;
    struct rpc_later **link; /* NULL: not queued */
};

/* Within a callback of that queue. Runs at the end of this step or, if this step was full, of the
 * next. */
void rpc_queue_later(struct rpc_queue *queue, struct rpc_later *later);
/* Cancels it, on the same thread. Harmless if it is not queued. */
void rpc_later_drop(struct rpc_later *later);

/* Work for a certain time. Zero but for `run` at first. */
struct rpc_timer {
    /* Called on the stepping thread. The timer is no longer set then, and may be set again or
     * freed. */
    void (*run)(struct rpc_timer *timer);
    /* Private to the queue. */
    struct rpc_timer *next;
    int64_t at_ns;
    bool is_set;
};

/* Sets a timer, on the stepping thread. `run` is called in the step that finds the time reached,
 * which waits no longer than that. A timer that is set is moved. While any is set, each step reads
 * the clock. */
void rpc_queue_at(struct rpc_queue *queue, struct rpc_timer *timer, int64_t at_ns);
/* Cancels a timer, on the same thread. Harmless if it is not set. */
void rpc_timer_drop(struct rpc_queue *queue, struct rpc_timer *timer);
/* Handles outstanding events and frees a queue of rpc_queue_create. Call on the stepping thread,
 * after rpc_client_destroy of each of its clients. */
void rpc_queue_destroy(struct rpc_queue *queue);

/* ---- client: any number of calls at once, over one connection ---- */

struct rpc_client;
struct rpc_client_call;

struct rpc_client_options {
    struct rpc_queue *queue;    /* runs the callbacks */
    const char *target;         /* in the library's form: "unix:/path", "host:port" */
    struct rpc_tls *tls;        /* NULL: none. Uses its current certificates */
    size_t message_bytes_max;   /* larger answers: RESOURCE_EXHAUSTED; 0: 4 MiB */
    size_t metadata_bytes_max;  /* 0: the library's default, 8 KiB */
    size_t stream_window_bytes; /* of the server, as in rpc_server_options */
    int64_t keepalive_time_ns;  /* ping a silent server after this time, with or without calls; 0:
                                 * never */
    int64_t keepalive_timeout_ns;
    int64_t connect_timeout_ns; /* of one attempt; 0: 1 s */
    /* rpc_client_state may have changed. On the stepping thread, until rpc_client_destroy returns
     * or shortly after; NULL: not reported. */
    void (*on_state)(void *context);
    void *context;
};

/* Does not connect yet: the first call does. Fails for an empty target; calls to other invalid
 * targets fail. */
enum status rpc_client_create(const struct rpc_client_options *options, struct rpc_client **client,
                              struct error *error) WARN_UNUSED;

/* The pointer is dead when this returns. Calls under way are cancelled, and each still gets its
 * on_end; step the queue until then (rpc_queue_destroy does). NULL is ignored. */
void rpc_client_destroy(struct rpc_client *client);

enum rpc_client_state {
    RPC_CLIENT_IDLE,       /* not used yet, or the connection was lost or closed */
    RPC_CLIENT_CONNECTING, /* calls wait for the outcome */
    RPC_CLIENT_READY,
    RPC_CLIENT_FAILING, /* the last attempt failed: calls fail at once; retried after 20 ms at
                         * first, each second at last */
};

/* Returns the state as of the last event that the queue handled. A lost connection, even an idle
 * one, is noticed as soon as the kernel knows. */
enum rpc_client_state rpc_client_state(const struct rpc_client *client);
/* Starts to connect, if idle. */
void rpc_client_connect(struct rpc_client *client);

/* The end of a call. Valid until on_end returns; the message may be kept. */
struct rpc_client_end {
    enum status status;
    struct wire_span text;
    const struct wire_message *message; /* unary and OK: the answer, never NULL; else NULL */
    const struct rpc_metadata *initial; /* unary only; a stream's come with on_initial */
    size_t initial_count;
    const struct rpc_metadata *trailers;
    size_t trailer_count;
};

/* The callbacks of a call. All on the stepping thread of the client's queue; on_end is the last. */
struct rpc_client_events {
    /* Streams; may be NULL, which is cheaper. Comes before the first message. Empty if the call
     * failed before the server sent initial metadata, or if the server sent only a status. */
    void (*on_initial)(void *context, const struct rpc_metadata *initial, size_t initial_count);
    /* Streams. The first message comes unasked, each further one after rpc_client_read. */
    void (*on_message)(void *context, const struct wire_message *message);
    /* Streams; may be NULL. A message has gone to the transport's buffers, `waiting` more have not.
     * Not called once the status has come: queued messages are dropped, and on_end reports that. */
    void (*on_sent)(void *context, size_t waiting);
    /* Exactly once for each started call. A stream's successful end comes after its last message: a
     * user that stops reading does not get it. */
    void (*on_end)(void *context, const struct rpc_client_end *end);
};

struct rpc_client_request {
    const char *method; /* "/package.Service/Method"; copied, as is everything here */
    /* RPC_UNARY, or RPC_BIDI_STREAM for every kind of stream and for methods that may be one: a
     * unary call that is answered by a second message ends at its deadline, or when it is
     * cancelled. */
    enum rpc_kind kind;
    int64_t deadline_ns;
    const struct rpc_metadata *metadata;
    size_t metadata_count;
    /* Unary: the message; no pieces: an empty one. Stream: the first message, NULL: none yet. */
    const struct rpc_piece *pieces;
    size_t piece_count;
    bool last; /* stream: the first message is the only one, as with rpc_client_half_close */
    /* Stream: on_initial comes with the first message or the end; saves an event. */
    bool initial_late;
    const struct rpc_client_events *events; /* kept */
    void *context; /* for the callbacks; must live until on_end has returned */
};

/*
 * Starts a call. A call that cannot be made fails with on_end: UNAVAILABLE at once while the client
 * is failing, otherwise with the network's error; calls do not wait for a server to appear.
 *
 * `call` may be NULL if the user needs no reference; otherwise `*call` is a reference for the
 * functions below until rpc_client_release. They may be called at any time, even after the call's
 * end or the client's destruction: they do nothing then. The callbacks need no reference. They may
 * come before this function returns, on another stepping thread, but not before `*call` is written.
 */
void rpc_client_start(struct rpc_client *client, const struct rpc_client_request *request,
                      struct rpc_client_call **call);

/* The call ends with CANCELLED unless it is over; on_end comes in any case. */
void rpc_client_cancel(struct rpc_client_call *call);
/* Streams: as rpc_call_send, with the same limit of 64; CANCELLED if the call is over, even before
 * on_end. Not concurrently with, nor after, rpc_client_half_close. */
enum status rpc_client_send(struct rpc_client_call *call, const struct rpc_piece *pieces,
                            size_t piece_count) WARN_UNUSED;
/* Streams: ends our messages, after those that are queued. */
void rpc_client_half_close(struct rpc_client_call *call);
/* Streams: requests the next message. Repeated requests before it comes count once; a request
 * before the first message is satisfied by it. */
void rpc_client_read(struct rpc_client_call *call);
void rpc_client_release(struct rpc_client_call *call);
