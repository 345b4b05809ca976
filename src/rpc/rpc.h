/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place that knows gRPC C core. A server turns calls into callbacks and answers into
 * replies; a client makes calls and turns what comes back into callbacks. Messages are runs of
 * bytes: this module decodes nothing.
 *
 * Threads. Each completion queue is stepped by one thread (`rpc_server_step`, `rpc_queue_step`),
 * and all callbacks of a call, be it one that came in or one that a client made, run on the thread
 * that steps its queue, one at a time, and never from within a function of this module other than a
 * step. All else may be called from any thread, where it is not said otherwise.
 *
 * Life of a call that came in. `on_message` hands the call to the user, who ends it exactly once,
 * with `rpc_call_reply`, `rpc_call_answer` or `rpc_call_finish`, sooner or later and on any thread;
 * after that the pointer is dead. `on_cancel` tells, at most once and only on the stepping thread,
 * that nobody waits any more (the caller cancelled, vanished, or its deadline passed): the call
 * must still be ended, which then sends nothing. It may run at the same time as another thread ends
 * the call, so it is given the call's tag, not the call: the tag names the user's own state in a
 * way that is safe to look up after that state is gone (a ticket, not a pointer).
 *
 * Life of a call that a client makes: see there.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct rpc_server;
struct rpc_call;
struct rpc_queue;
struct rpc_kept;

/* One contiguous run of bytes that were received; valid until the callback returns. */
struct rpc_span {
    const void *data;
    size_t bytes;
};

/* A message as it lies in memory: the spans in order, `bytes` their sum. */
struct rpc_message {
    const struct rpc_span *spans;
    size_t span_count;
    size_t bytes;
};

/*
 * One run of a message to send, in one of three forms:
 *
 *   copied   `data` and `bytes`: the bytes are copied before the function returns.
 *   lent     with `release`: without a copy. The bytes must not change or go away until
 *            `release(release_context)` is called, exactly once, in success and in failure, on any
 *            thread, perhaps before the function returns. When a call failed it may come only once
 *            that call was ended.
 *   kept     with `kept`: `bytes` bytes of a kept message, from `offset` on, without a copy. The
 *            function takes a reference of its own: the kept message may be released at once.
 */
struct rpc_piece {
    const void *data;
    size_t bytes;
    void (*release)(void *release_context);
    void *release_context;
    const struct rpc_kept *kept;
    size_t offset;
};

/*
 * One entry of metadata, as received or to be sent. Keys are lower-case; the value of a key that
 * ends in "-bin" is any bytes, others are printable ASCII. To be sent they are copied. Entries that
 * cannot be sent are left out without a word: illegal ones, and those that the library makes itself
 * (":path", "te", "content-type", "user-agent", "host", "grpc-timeout", "grpc-encoding" and the
 * like).
 */
struct rpc_metadata {
    struct rpc_span key;
    struct rpc_span value;
};

/* Whether an entry would be sent. */
bool rpc_metadata_is_legal(const struct rpc_metadata *entry);

/* ---- messages that outlive their callback ---- */

/*
 * Keeps a message beyond the callback that it was given to, by reference to the bytes where the
 * library has put them, without a copy; a message that the user has made is copied. Only within
 * that callback; kept twice, it is the same with two references. Everything else on any thread.
 * A kept message holds the library's read buffers as a whole: a few bytes may hold some 8 KiB.
 */
struct rpc_kept *rpc_message_keep(const struct rpc_message *message);
void rpc_kept_acquire(struct rpc_kept *kept); /* one more reference */
void rpc_kept_release(struct rpc_kept *kept); /* the last one gives the bytes back; NULL: nothing */
/* Its spans are valid until the last reference is released. */
const struct rpc_message *rpc_kept_message(const struct rpc_kept *kept);
/* The whole of it as a piece to be sent; a message of no bytes included. */
struct rpc_piece rpc_kept_piece(const struct rpc_kept *kept);

/* ---- server ---- */

enum rpc_kind {
    RPC_UNARY,         /* one message in, one out: end with rpc_call_reply, or rpc_call_finish */
    RPC_SERVER_STREAM, /* one message in, any number out: rpc_call_send, then rpc_call_finish */
    RPC_BIDI_STREAM,   /* any number in and out: on_message each, on_half_close once */
};

struct rpc_method {
    const char *path; /* "/package.Service/Method" */
    enum rpc_kind kind;
    bool hot; /* received together with its message: one round through the queue less */
    void (*on_message)(void *context, struct rpc_call *call, const struct rpc_message *message);
    /* RPC_BIDI_STREAM, required: the caller sends no more. The call is still to be finished. Comes
     * without on_message before it when the caller sent none. A caller that was lost may look like
     * this first; on_cancel then follows. */
    void (*on_half_close)(void *context, struct rpc_call *call);
    /* May be NULL. `tag` is what rpc_call_set_tag said, 0 if it never did: set it in the first
     * callback, before the call is shown to another thread. */
    void (*on_cancel)(void *context, uint64_t tag);
};

/*
 * The handler of calls whose methods are in no table, if there is one
 * (`rpc_call_method` says which). Whether such a method is unary or a stream is not known, so both
 * are served: the first message comes to on_message; the next one, or on_half_close, comes when it
 * was asked for (`rpc_call_read`), which is the back-pressure of a stream. What is sent is any
 * number of messages and a status; `rpc_call_answer` alone, one message and the status, is
 * cheapest, and is all that a unary caller expects. The initial metadata go with whatever is sent
 * first.
 */
struct rpc_any {
    /* May be NULL. The metadata are there, and at the end of the step in which they came neither
     * the first message nor the end was: the caller may be waiting for an answer to them. True: the
     * user takes the call, or has ended it, and its first message comes as if it was asked for.
     * False: the call begins with its first message. */
    bool (*on_open)(void *context, struct rpc_call *call);
    void (*on_message)(void *context, struct rpc_call *call, const struct rpc_message *message);
    void (*on_half_close)(void *context, struct rpc_call *call); /* as in rpc_method; required */
    void (*on_cancel)(void *context, uint64_t tag);              /* as in rpc_method; may be NULL */
    /* May be NULL. A message of rpc_call_send has gone to the transport's buffers, `waiting` more
     * have not. Not once the user has ended the call, but perhaps at that moment. */
    void (*on_sent)(void *context, uint64_t tag, size_t waiting);
};

/* ---- TLS ---- */

/*
 * One side's identity and the peers it trusts, by files of PEM that may be replaced at any time.
 * Connections from then on (a second later at the most) get the new files, if they are good: else
 * what was there before stays in use, which the log says. Connections that are there go on. Used by
 * any number of servers and clients, on any thread.
 */
struct rpc_tls;

/* Whether callers of a server must show certificates. */
enum rpc_tls_clients {
    RPC_TLS_CLIENTS_ANY,      /* they are not asked */
    RPC_TLS_CLIENTS_OPTIONAL, /* who shows one must show a good one */
    RPC_TLS_CLIENTS_REQUIRED,
};

struct rpc_tls_options {
    const char *name; /* in errors and in the log: what these are the certificates of */
    /* Path of our own certificate, those between it and its authority behind it in the file. NULL:
     * none, which a server cannot do without. */
    const char *certificate;
    const char *key;
    /* If the key has a password: a file whose first line it is, or the password itself; and what
     * an error is to call the place where one is given. All NULL: it cannot be given. */
    const char *key_password_file;
    const char *key_password;
    const char *key_password_from;
    const char *ca; /* who signs the other side. NULL, client: the system's; server: nobody */
    const char *peer_name; /* client: the name in the server's certificate; NULL: the target's */
    enum rpc_tls_clients clients; /* server; those but ANY need `ca` */
};

/* Fails for what cannot be read or does not fit together; an expired certificate is a warning in
 * the log. Needs no rpc_init. */
enum status rpc_tls_create(const struct rpc_tls_options *options, struct rpc_tls **tls,
                           struct error *error) WARN_UNUSED;
/* When all that use it are gone. NULL is left alone. */
void rpc_tls_destroy(struct rpc_tls *tls);
/* What a PEM holds, for clients that are not gRPC's. `password` NULL: there is none. */
enum rpc_key_state {
    RPC_KEY_OPEN,    /* a private key, which the password opens if it needs one */
    RPC_KEY_LOCKED,  /* it needs a password, and there is none */
    RPC_KEY_REFUSED, /* the password does not open it */
    RPC_KEY_NONE,    /* no private key */
};
enum rpc_key_state rpc_key_look(const char *pem, const char *password);
/* Another one than before: clients that are made now have other certificates. Looks at the files,
 * once a second at most. */
uint64_t rpc_tls_version(struct rpc_tls *tls);
/* Texts of PEM; NULL: none. The key is open. */
struct rpc_pems {
    const char *ca;
    const char *certificate;
    const char *key;
};

/* For other servers with the same certificates: calls `take` if they are others than those of
 * version `have` (0: none), and returns their version. Looks at the files, as rpc_tls_version. */
uint64_t rpc_tls_fetch(struct rpc_tls *tls, uint64_t have,
                       void (*take)(void *taker, const struct rpc_pems *pems), void *taker);
enum rpc_tls_clients rpc_tls_clients(const struct rpc_tls *tls);
/* NULL: the target's. */
const char *rpc_tls_peer_name(const struct rpc_tls *tls);

/* Whether a server takes compressed messages. Larger than the limit when decompressed, they are
 * refused like any other, and decompressed no further. */
enum rpc_compression {
    RPC_COMPRESSION_ON,
    RPC_COMPRESSION_OFF, /* UNIMPLEMENTED */
};

struct rpc_server_options {
    /* "port:8033" all interfaces, "127.0.0.1:8033", "[::1]:0", "unix:/path" */
    const char *const *listen;
    size_t listen_count;
    /* Of unix sockets: who may connect, as chmod has it. NULL: as the process's umask says. */
    const uint32_t *socket_mode;
    size_t queue_count; /* completion queues, one thread each */
    /* A queue that is not its own and was not stepped yet, instead of one: who steps that handles
     * what comes to this server, too. NULL: its own. */
    struct rpc_queue *queue;
    size_t message_bytes_max; /* larger requests: RESOURCE_EXHAUSTED with both sizes; 0: 4 MiB */
    enum rpc_compression compression;
    size_t metadata_bytes_max;       /* 0: the library's default, 8 KiB */
    size_t connections_max;          /* of each address; 0: 2048. All together have a quarter of the
                                      * descriptors that the process may open */
    size_t connections_per_peer_max; /* of one machine; 0: half of them */
    size_t concurrent_streams_max;   /* per connection, more wait in the client; 0: any number */
    /* With `any`: what a caller may send on a stream ahead of being asked for it. 0, or without
     * `any`: as much as the library thinks that the network takes, without a bound. */
    size_t stream_window_bytes;
    /* Calls offered to the library ahead of need, on each queue: for each hot method, and for all
     * others together. Of a burst, what finds none waits in the library until one is armed again.
     * Each makes every event of the queue a little dearer (DESIGN.md, decision 2). */
    size_t armed_calls;
    size_t armed_calls_other;
    /* A caller that has not taken an answer by then, and a second more for each 64 KiB of it, is
     * disconnected (over a unix socket: the call ends); 0: never. */
    int64_t send_timeout_ns;
    int64_t keepalive_time_ns;        /* ping a silent client after this; 0: never */
    int64_t keepalive_timeout_ns;     /* and give it up after this without an answer */
    const struct rpc_method *methods; /* kept, not copied */
    size_t method_count;
    const struct rpc_any *any; /* kept; NULL: other methods get UNIMPLEMENTED */
    /* Without `any`: the text for the caller of such a method; returns NULL for the usual one. On a
     * stepping thread. May be NULL. */
    const char *(*on_unknown)(void *context, const char *method);
    struct rpc_tls *tls; /* NULL: none. Lives longer than the server */
    void *context;       /* first argument of every callback */
};

/* Once per process, before the first and after the last use of this module. Signals that the
 * program handles must be blocked before rpc_init: the library's threads inherit the mask. */
void rpc_init(void);
void rpc_shutdown(void);

/*
 * Binds all addresses or none. Errors say which address and why: in use (a unix path where somebody
 * still listens, a taken port: FAILED_PRECONDITION), a path that is too long, a directory that is
 * missing. A unix socket file that nobody listens on any more is replaced; a file that is no socket
 * is never touched.
 */
enum status rpc_server_create(const struct rpc_server_options *options, struct rpc_server **server,
                              struct error *error) WARN_UNUSED;

/* Figures of a server's connections. */
struct rpc_figures {
    uint64_t accepted;    /* that there ever were */
    uint64_t connections; /* that are open */
    uint64_t refused;     /* one too many, of all or of a machine */
    uint64_t cut;         /* ended here, because of what they did */
    uint64_t held;        /* made to wait, as their address had flooded the server */
    uint64_t lacks;       /* times that there was no descriptor, or no memory, to accept with */
    bool is_accepting;    /* false: there is none now; it is tried again ten times a second */
};

/* Others are refused for what answers hold that are not taken: callers with most of these, two at
 * least, are ended as at the send time-out, but after a second. Any thread; cheap. Soon, if there
 * is a send time-out at all. */
void rpc_server_relieve(struct rpc_server *server);

/* Any thread, until rpc_server_destroy. */
struct rpc_figures rpc_server_figures(const struct rpc_server *server);

/* The port really bound for listen[index], for ":0"; 0 for a unix socket. */
int rpc_server_port(const struct rpc_server *server, size_t index);

/*
 * Handles what has happened on a queue; waits for something until `deadline_ns` (a time in the
 * past: looks, without waiting). Waiting is in whole milliseconds, rounded up. Returns how many
 * events it handled, 0 when there were none or only a wake, -1 when the server was stopped, every
 * call has ended and no event will ever come again.
 *
 * Every queue must be stepped all the time: each serves some of the connections, and the bytes of
 * these move, replies of other threads included, only while somebody steps.
 */
int rpc_server_step(struct rpc_server *server, size_t queue_index, int64_t deadline_ns);

/* The same queue for rpc_queue_step, rpc_queue_wake and clients. */
struct rpc_queue *rpc_server_queue(struct rpc_server *server, size_t queue_index);

/* Makes a step that waits on that queue, or else the next one, return soon. Several wakes may be
 * one; what the waker wrote before is seen after that step. Harmless after the end of the queue. */
void rpc_server_wake(struct rpc_server *server, size_t queue_index);

/*
 * Stops listening and takes no more calls; those under way go on. Streams that only end when the
 * client says so are for the user to finish. New connections and calls get UNAVAILABLE; calls that
 * have reached the library but not yet the user get CANCELLED from it, and in rare races one of
 * them gets no answer. Then clients are asked to close their connections; one that does not answer
 * holds up the end for 20 s. So call rpc_server_cancel_all after a grace time, always: it ends
 * both. Call once, from any thread.
 */
void rpc_server_stop(struct rpc_server *server);

/* After rpc_server_stop: cancels every call under way, each gets on_cancel and is still to be ended
 * by the user, and drops every connection, replies that are still on their way included. */
void rpc_server_cancel_all(struct rpc_server *server);

/* After every queue's step has returned -1, from one thread. A queue does not end before its
 * clients were destroyed, and servers whose it is not have stopped and their calls ended. Unlinks
 * unix sockets that are still ours. */
void rpc_server_destroy(struct rpc_server *server);

/* ---- a call, from the server's side ---- */

const char *rpc_call_method(const struct rpc_call *call);
/* Whether the server that the call came to has a method of this service, "package.Service". */
bool rpc_call_server_has(const struct rpc_call *call, const char *service);
/* Absolute on the monotonic clock; TIME_NEVER_NS without a deadline. */
int64_t rpc_call_deadline_ns(const struct rpc_call *call);
/* The caller's metadata under a lower-case key, first value; false if absent. Valid until the
 * call ends. */
bool rpc_call_metadata(const struct rpc_call *call, const char *key, struct rpc_span *value);
/* The same from a position on, 0 at first, which it moves behind what it has found: for keys that
 * may come several times. */
bool rpc_call_metadata_next(const struct rpc_call *call, const char *key, size_t *position,
                            struct rpc_span *value);
/* All of them one by one, from position 0 on: what may be passed on. Transport headers are not
 * among them, but for "user-agent" and "host". */
bool rpc_call_metadata_walk(const struct rpc_call *call, size_t *position,
                            struct rpc_metadata *entry);
/* The address of the caller's machine, without the port: "ipv4:192.0.2.7", "unix:". Copied, not
 * terminated, cut at `room`; returns its length, 0 if the library does not know. Costs an
 * allocation of the library's. */
size_t rpc_call_peer(const struct rpc_call *call, char *address, size_t room);
/* Whether the caller has shown a certificate with this name among its alternative names (DNS). */
bool rpc_call_caller_is(const struct rpc_call *call, const char *name);
/* Whether the caller has shown a certificate that has this common name, or this alternative name of
 * any kind. */
bool rpc_call_caller_has_name(const struct rpc_call *call, const char *name);
/* All names in that certificate, one after the other: its subject as RFC 2253 writes it, its common
 * name, its alternative names of all kinds. Valid during the call of `take`. False: none was shown.
 * Neither allocates nor copies. */
bool rpc_call_caller_names(const struct rpc_call *call,
                           void (*take)(void *context, const void *name, size_t bytes),
                           void *context);
/* The common name in that certificate, or else its first alternative name, for a text: control
 * characters are "?". Cut at `room`, terminated; "": it has neither, or none was shown. */
void rpc_call_caller_name(const struct rpc_call *call, char *name, size_t room);
void rpc_call_set_tag(struct rpc_call *call, uint64_t tag);
/* A pointer of the user's, for streams; not given to on_cancel. */
void rpc_call_set_user(struct rpc_call *call, void *user);
void *rpc_call_user(const struct rpc_call *call);

/* Unary: sends the message with status OK and ends the call. No pieces: an empty message. */
void rpc_call_reply(struct rpc_call *call, const struct rpc_piece *pieces, size_t piece_count);
/* Streams: queues one message. Messages go out in the order of the calls. Returns, sending nothing,
 * RESOURCE_EXHAUSTED when the client does not read and too many wait (64), CANCELLED when it is
 * known to be gone. Not at the same time as, nor after, the end of the call. */
enum status rpc_call_send(struct rpc_call *call, const struct rpc_piece *pieces,
                          size_t piece_count) WARN_UNUSED;
/* rpc_any only: asks for the next message, or on_half_close. Asked again before it came, it is the
 * same question. Not at the same time as, nor after, the end of the call. */
void rpc_call_read(struct rpc_call *call);
/* rpc_any only: sends the initial metadata now, ahead of any message. Once, and first. */
void rpc_call_begin(struct rpc_call *call, const struct rpc_metadata *initial,
                    size_t initial_count);

/* The end of a call, with all that may go with it. Everything is copied or taken over. */
struct rpc_answer {
    enum status status;
    struct rpc_span text; /* of the status; cut at 1 KiB */
    /* NULL: no message, and then a unary call that ends with OK gets an empty one. A message that
     * finds the queue of a stream full is sent all the same. Sent with status OK only if unary. */
    const struct rpc_piece *pieces;
    size_t piece_count;
    const struct rpc_metadata *initial; /* ignored when the initial metadata are out */
    size_t initial_count;
    const struct rpc_metadata *trailers;
    size_t trailer_count;
};

/* Ends a call of any kind: a unary one, and one of rpc_any that has sent nothing, in one batch; a
 * stream after all queued messages. */
void rpc_call_answer(struct rpc_call *call, const struct rpc_answer *answer);
/* Ends the call with a status, which for a unary call cannot be OK; for a stream after all queued
 * messages. `text` may be NULL, is copied and cut at 1 KiB; bytes that may not stand in a status
 * message are percent-encoded by the library. */
void rpc_call_finish(struct rpc_call *call, enum status status, const char *text);
/* The same, with a status other than OK, and tells the client in the trailer
 * `grpc-retry-pushback-ms` how long to wait before it asks again, if it retries at all; 0: nothing
 * is said. */
void rpc_call_refuse(struct rpc_call *call, enum status status, const char *text,
                     uint32_t retry_ms);

/* ---- for tools: blocking calls, one at a time per channel ---- */

struct rpc_channel;

/* `target` as the library takes it: "unix:/path", "host:port". Does not connect yet: a target that
 * makes no sense fails its calls. */
enum status rpc_channel_create(const char *target, struct rpc_channel **channel,
                               struct error *error) WARN_UNUSED;
/* `tls` may be NULL, and lives longer than the channel. */
enum status rpc_channel_create_tls(const char *target, struct rpc_tls *tls,
                                   struct rpc_channel **channel, struct error *error) WARN_UNUSED;
void rpc_channel_destroy(struct rpc_channel *channel);

/*
 * One unary call. Waits for the server to become ready within the deadline. On STATUS_OK
 * `*response` is memory to be freed with free(), `*response_bytes` its length (may be 0). On
 * failure `error` holds the server's own status and text.
 */
enum status rpc_channel_call(struct rpc_channel *channel, const char *method, const void *request,
                             size_t request_bytes, int64_t deadline_ns, void **response,
                             size_t *response_bytes, struct error *error) WARN_UNUSED;

/* ---- queues of their own ---- */

struct rpc_queue *rpc_queue_create(void);
/* As rpc_server_step and rpc_server_wake, which are these. */
int rpc_queue_step(struct rpc_queue *queue, int64_t deadline_ns);
void rpc_queue_wake(struct rpc_queue *queue);

/* Something that any thread has the stepping thread do. At zero but for `run`. */
struct rpc_post {
    void (*run)(struct rpc_post *post);
    /* The queue's. */
    struct rpc_post *next;
    bool waits;
};

/* Any thread: `run` is called soon, once for all that have asked meanwhile. Not after the queue's
 * end; what is posted as it ends may not run any more. */
void rpc_queue_post(struct rpc_queue *queue, struct rpc_post *post);

/* Something that is to be done when a step has handled all that had happened: what belongs together
 * has then come, like a message and the end behind it. */
struct rpc_later {
    /* On the stepping thread. It is no longer noted then, and may be noted again, or freed. */
    void (*run)(struct rpc_later *later);
    /* The queue's. */
    struct rpc_later *next;
    struct rpc_later **link; /* NULL: it is not noted */
};

/* Within a callback of that queue. Run at the end of this step, or, if this one has handled as much
 * as a step does, of the next. */
void rpc_queue_later(struct rpc_queue *queue, struct rpc_later *later);
/* The same thread: it is not run. Harmless if it is not noted. */
void rpc_later_drop(struct rpc_later *later);
/* Only a queue of rpc_queue_create, when rpc_client_destroy was called for each of its clients, by
 * the thread that steps it: handles what is still to come, and frees it. */
void rpc_queue_destroy(struct rpc_queue *queue);

/* ---- client: any number of calls at once, over one connection ---- */

struct rpc_client;
struct rpc_client_call;

struct rpc_client_options {
    struct rpc_queue *queue;    /* on which its callbacks come */
    const char *target;         /* as the library takes it: "unix:/path", "host:port" */
    struct rpc_tls *tls;        /* NULL: none. Its certificates of this moment */
    size_t message_bytes_max;   /* larger answers: RESOURCE_EXHAUSTED; 0: 4 MiB */
    size_t metadata_bytes_max;  /* 0: the library's default, 8 KiB */
    size_t stream_window_bytes; /* of the server, as in rpc_server_options */
    int64_t keepalive_time_ns;  /* ping a silent server after this, calls or no calls; 0: never */
    int64_t keepalive_timeout_ns;
    int64_t connect_timeout_ns; /* of one attempt; 0: 1 s */
};

/* Does not connect yet: the first call does. Fails for an empty target; what else makes no sense
 * fails its calls. */
enum status rpc_client_create(const struct rpc_client_options *options, struct rpc_client **client,
                              struct error *error) WARN_UNUSED;

/* The pointer is dead when this returns. Calls under way are cancelled, and each still gets its
 * on_end; the queue must be stepped until it has (rpc_queue_destroy does). NULL: nothing. */
void rpc_client_destroy(struct rpc_client *client);

enum rpc_client_state {
    RPC_CLIENT_IDLE,       /* nothing was asked yet, or the connection was lost or closed */
    RPC_CLIENT_CONNECTING, /* calls wait for the outcome */
    RPC_CLIENT_READY,
    RPC_CLIENT_FAILING, /* the last attempt failed: calls fail at once; it is tried again, after
                         * 20 ms at first and each second at last */
};

/* As of the last event that was handled by the queue: a lost connection, idle ones included, is
 * seen as soon as the kernel knows. */
enum rpc_client_state rpc_client_state(const struct rpc_client *client);
/* Begins to connect, if idle. */
void rpc_client_connect(struct rpc_client *client);

/* How a call ended. All of it is valid until on_end returns; the message may be kept. */
struct rpc_client_end {
    enum status status;
    struct rpc_span text;
    const struct rpc_message *message;  /* unary and OK: the answer, never NULL; else NULL */
    const struct rpc_metadata *initial; /* unary only; a stream's come with on_initial */
    size_t initial_count;
    const struct rpc_metadata *trailers;
    size_t trailer_count;
};

/* The callbacks of a call. All on the stepping thread of the client's queue; on_end is the last. */
struct rpc_client_events {
    /* Streams; may be NULL, which is cheaper. Before the first message. With none when the call
     * failed before the server had sent them, or when it sent nothing but a status. */
    void (*on_initial)(void *context, const struct rpc_metadata *initial, size_t initial_count);
    /* Streams. The first message comes by itself, each other one after rpc_client_read. */
    void (*on_message)(void *context, const struct rpc_message *message);
    /* Streams; may be NULL. A message has gone to the transport's buffers, `waiting` more have
     * not. Not once the status is there: what is still queued then is dropped, and what has just
     * gone is not told of; on_end says so. */
    void (*on_sent)(void *context, size_t waiting);
    /* Exactly once for each call that was started. A stream's good end comes behind its last
     * message: who does not read on does not hear of it. */
    void (*on_end)(void *context, const struct rpc_client_end *end);
};

struct rpc_client_request {
    const char *method; /* "/package.Service/Method"; copied, as all of this */
    /* RPC_UNARY, or RPC_BIDI_STREAM for every kind of stream, and for what may be one: a unary call
     * that is answered by a second message ends at its deadline, or when it is cancelled. */
    enum rpc_kind kind;
    int64_t deadline_ns;
    const struct rpc_metadata *metadata;
    size_t metadata_count;
    /* Unary: the message; no pieces: an empty one. Stream: the first message, NULL: none yet. */
    const struct rpc_piece *pieces;
    size_t piece_count;
    bool last; /* stream: the first message is the only one, as rpc_client_half_close would say */
    /* Stream: on_initial comes with the first message, or with the end: one event less. */
    bool initial_late;
    const struct rpc_client_events *events; /* kept */
    void *context; /* of the callbacks; must live until on_end has returned */
};

/*
 * Starts a call. One that cannot be made fails, by on_end: UNAVAILABLE at once when the client is
 * failing, and with what the network says as soon as it says it; calls do not wait for a server to
 * appear.
 *
 * `call` may be NULL when the call is to be left alone; otherwise it is the user's reference, for
 * the functions below, until rpc_client_release. With it they may be called at any time, the call
 * over or the client destroyed: they do nothing then. The callbacks need no reference; they may
 * come before this function returns, on the stepping thread if this is another one, but not before
 * `*call` is written.
 */
void rpc_client_start(struct rpc_client *client, const struct rpc_client_request *request,
                      struct rpc_client_call **call);

/* The call ends with CANCELLED, unless it was over: on_end comes in any case. */
void rpc_client_cancel(struct rpc_client_call *call);
/* Streams: as rpc_call_send, with the same bound of 64; CANCELLED when the call is over, be it that
 * on_end is still to come. Not at the same time as, nor after, rpc_client_half_close. */
enum status rpc_client_send(struct rpc_client_call *call, const struct rpc_piece *pieces,
                            size_t piece_count) WARN_UNUSED;
/* Streams: no more messages of ours, after those that are queued. */
void rpc_client_half_close(struct rpc_client_call *call);
/* Streams: asks for the next message. Asked again before it came, it is the same question; before
 * the first message came, it is answered by that one. */
void rpc_client_read(struct rpc_client_call *call);
void rpc_client_release(struct rpc_client_call *call);
