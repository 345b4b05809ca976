/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place that knows gRPC C core. A server turns calls into callbacks and answers into
 * replies; a client makes single calls. Messages are runs of bytes: this module decodes nothing.
 *
 * Server threads. Each completion queue is stepped by one thread (`rpc_server_step`), and all
 * callbacks of a call run on the thread that steps the queue the call came in on, one at a time.
 * `rpc_call_reply`, `rpc_call_send`, `rpc_call_finish` and `rpc_server_wake` may be called from
 * any thread.
 *
 * Life of a call. `on_message` hands the call to the user, who ends it exactly once, with
 * `rpc_call_reply` or `rpc_call_finish`, sooner or later and on any thread; after that the pointer
 * is dead. `on_cancel` tells, at most once and only on the stepping thread, that nobody waits any
 * more (the caller cancelled, vanished, or its deadline passed): the call must still be ended,
 * which then sends nothing. It may run at the same time as another thread ends the call, so it is
 * given the call's tag, not the call: the tag names the user's own state in a way that is safe
 * to look up after that state is gone (a ticket, not a pointer).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct rpc_server;
struct rpc_call;

/* One contiguous run of a message that was received; valid until the callback returns. */
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
 * One run of a message to send. With `release` NULL the bytes are copied before the function
 * returns. Otherwise they are lent, without a copy: they must not change or go away until
 * `release(release_context)` is called, exactly once, in success and in failure, on any thread,
 * perhaps before the function returns. When a call failed it may come only once that call was
 * ended.
 */
struct rpc_piece {
    const void *data;
    size_t bytes;
    void (*release)(void *release_context);
    void *release_context;
};

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

struct rpc_server_options {
    /* "port:8033" all interfaces, "127.0.0.1:8033", "[::1]:0", "unix:/path" */
    const char *const *listen;
    size_t listen_count;
    size_t queue_count;        /* completion queues, one thread each */
    size_t message_bytes_max;  /* larger requests: RESOURCE_EXHAUSTED with both sizes; 0: 4 MiB */
    size_t metadata_bytes_max; /* 0: the library's default, 8 KiB */
    size_t concurrent_streams_max; /* per connection, more wait in the client; 0: any number */
    /* Calls offered to the library ahead of need, on each queue: for each hot method, and for all
     * others together. Of a burst, what finds none waits in the library until one is armed again.
     * Each makes every event of the queue a little dearer (DESIGN.md, decision 2). */
    size_t armed_calls;
    size_t armed_calls_other;
    int64_t keepalive_time_ns;        /* ping a silent client after this; 0: never */
    int64_t keepalive_timeout_ns;     /* and give it up after this without an answer */
    const struct rpc_method *methods; /* kept, not copied */
    size_t method_count;
    void *context; /* first argument of every callback */
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

/* After every queue's step has returned -1, from one thread. Unlinks unix sockets that are still
 * ours. */
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
/* The address of the caller's machine, without the port: "ipv4:192.0.2.7", "unix:". Copied, not
 * terminated, cut at `room`; returns its length, 0 if the library does not know. Costs an
 * allocation of the library's. */
size_t rpc_call_peer(const struct rpc_call *call, char *address, size_t room);
void rpc_call_set_tag(struct rpc_call *call, uint64_t tag);
/* A pointer of the user's, for streams; not given to on_cancel. */
void rpc_call_set_user(struct rpc_call *call, void *user);
void *rpc_call_user(const struct rpc_call *call);

/* Unary: sends the message with status OK and ends the call. No pieces: an empty message. */
void rpc_call_reply(struct rpc_call *call, const struct rpc_piece *pieces, size_t piece_count);
/* Streams: queues one message. Messages go out in the order of the calls. Returns, sending nothing,
 * RESOURCE_EXHAUSTED when the client does not read and too many wait (64), CANCELLED when it is
 * known to be gone. Not at the same time as, nor after, rpc_call_finish. */
enum status rpc_call_send(struct rpc_call *call, const struct rpc_piece *pieces,
                          size_t piece_count) WARN_UNUSED;
/* Ends the call with a status, which for a unary call cannot be OK; for a stream after all queued
 * messages. `text` may be NULL, is copied and cut at 1 KiB; bytes that may not stand in a status
 * message are percent-encoded by the library. */
void rpc_call_finish(struct rpc_call *call, enum status status, const char *text);
/* The same for a unary call, and tells the client in the trailer `grpc-retry-pushback-ms` how long
 * to wait before it asks again, if it retries at all. */
void rpc_call_refuse(struct rpc_call *call, enum status status, const char *text,
                     uint32_t retry_ms);

/* ---- client: blocking calls, one at a time per channel ---- */

struct rpc_channel;

/* `target` as the library takes it: "unix:/path", "host:port". Does not connect yet: a target that
 * makes no sense fails its calls. */
enum status rpc_channel_create(const char *target, struct rpc_channel **channel,
                               struct error *error) WARN_UNUSED;
void rpc_channel_destroy(struct rpc_channel *channel);

/*
 * One unary call. Waits for the server to become ready within the deadline. On STATUS_OK
 * `*response` is memory to be freed with free(), `*response_bytes` its length (may be 0). On
 * failure `error` holds the server's own status and text.
 */
enum status rpc_channel_call(struct rpc_channel *channel, const char *method, const void *request,
                             size_t request_bytes, int64_t deadline_ns, void **response,
                             size_t *response_bytes, struct error *error) WARN_UNUSED;
