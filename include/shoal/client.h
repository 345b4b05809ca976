/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libshoal: inference on the same host through shared memory. No gRPC, no copy: the caller writes
 * inputs where the node's workers read them and reads answers where they wrote them.
 *
 *     struct shoal_client *client;
 *     struct shoal_client_options options = {SHOAL_CLIENT_OPTIONS, .pipeline = "digits"};
 *     struct shoal_error error;
 *     if (shoal_client_open(&options, &client, &error) != SHOAL_OK) …
 *
 *     struct shoal_request *request;
 *     if (shoal_request_begin(client, &request, &error) != SHOAL_OK) …
 *     float *pixels = shoal_request_input(request, "input", SHOAL_FP32, 2, (int64_t[]){1, 64});
 *     … write pixels …
 *     if (shoal_request_submit(request, INT64_MAX) == SHOAL_OK)
 *         shoal_request_wait(request, INT64_MAX);
 *     if (shoal_request_status(request) == SHOAL_OK) … shoal_request_output(request, 0)->data …
 *     shoal_request_release(request);
 *
 *     cc $(pkg-config --cflags --libs shoal) client.c
 *
 * The pipeline's `local_clients` must allow it. Types, datatypes, limits and status numbers are
 * those of <shoal/modelet.h>.
 *
 * Threads. A client and its requests may be used by one thread at a time, not always the same;
 * different clients share nothing. A signal does not interrupt any call. The library has no thread
 * of its own: it collects answers, enforces deadlines and repairs after workers' deaths while the
 * caller is in a function that waits. A program with requests in flight must call one now and then
 * (shoal_client_wait_any with a time in the past does not block). A child process cannot use its
 * parent's clients after fork.
 *
 * Time is CLOCK_MONOTONIC in nanoseconds; INT64_MAX means never. Names, texts and shapes that the
 * caller passes are copied.
 *
 * Memory. All requests of a client share the memory that the node gave it: inputs, names, and the
 * outputs of every stage that a request passes. A request can therefore fail with
 * SHOAL_RESOURCE_EXHAUSTED while fewer than requests_max are in use; releasing requests helps.
 *
 * A reload of the pipeline loses nothing. Requests that a worker has begun are finished; the rest
 * are submitted again to the new generation, with their deadlines, which takes some milliseconds.
 * The new generation checks them again, and those that it does not accept fail with its reason. A
 * node that is asked to stop finishes what is in flight for clients that wait for answers, and
 * refuses new requests (SHOAL_UNAVAILABLE), as does a client whose node is away. Requests in flight
 * when a node ends are submitted to the next node if one runs by the time the client notices; else
 * they fail with SHOAL_UNAVAILABLE.
 *
 * A request may therefore run more than once, always after the death of a worker that held it (at
 * most the stage's attempts_max times) or of the node. It fails instead if the modelet changes its
 * inputs.
 *
 * Requests of local clients are not traced.
 */
#ifndef SHOAL_CLIENT_H
#define SHOAL_CLIENT_H

#include <shoal/modelet.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shoal_client;
struct shoal_request;

/* A field that is zero or NULL has its default. */
struct shoal_client_options {
    uint32_t struct_size;       /* SHOAL_CLIENT_OPTIONS */
    uint32_t requests_max;      /* requests in use at a time; at most, and by default, what the node
                                 * allows */
    const char *pipeline;       /* required: the model's name */
    const char *socket;         /* default: $SHOAL_LOCAL, else the socket of the user's own node,
                                 * which is its `counters` path followed by ".local" */
    uint64_t message_bytes_max; /* of one request or answer; default: what the node allows */
    int64_t connect_timeout_ns; /* default: 5 s; for connecting and reconnecting, independent of a
                                   waiting function's time */
    int64_t spin_ns;            /* default: 100 µs; time to poll for an answer before sleeping;
                                 * negative: none */
};

#define SHOAL_CLIENT_OPTIONS sizeof(struct shoal_client_options)

/*
 * Connects. UNAVAILABLE: no node, or one that is starting or stopping; NOT_FOUND: no such pipeline;
 * FAILED_PRECONDITION: the pipeline takes no local clients, or the node has another version;
 * PERMISSION_DENIED: the node belongs to another user, and the caller is not root;
 * RESOURCE_EXHAUSTED: the node's limit of clients or memory is reached; INVALID_ARGUMENT: the
 * options, or a larger message than the node allows; DEADLINE_EXCEEDED: no answer in time. On
 * failure `*client` is not written, and `error`, if not NULL, has the reason.
 */
int32_t shoal_client_open(const struct shoal_client_options *options, struct shoal_client **client,
                          struct shoal_error *error);

/* Closes the client with all its requests, released or not; requests in flight do not run. NULL is
 * ignored. */
void shoal_client_close(struct shoal_client *client);

/* Begins a request, which belongs to the caller until released. RESOURCE_EXHAUSTED: all are in use;
 * FAILED_PRECONDITION: seven lost connections have requests that are not released; otherwise as
 * shoal_client_open. `error` may be NULL. */
int32_t shoal_request_begin(struct shoal_client *client, struct shoal_request **request,
                            struct shoal_error *error);

/*
 * Adds an input and returns its memory, aligned to 64 bytes and not zeroed, which the caller fills
 * before submitting. At most SHOAL_TENSORS_MAX inputs of SHOAL_RANK_MAX dimensions. Returns NULL on
 * failure; submitting then fails with the reason. The second form takes the size in bytes, for
 * SHOAL_BYTES tensors. Only the answer tells whether the model has such an input.
 */
void *shoal_request_input(struct shoal_request *request, const char *name, uint32_t datatype,
                          uint32_t rank, const int64_t *shape);
void *shoal_request_input_bytes(struct shoal_request *request, const char *name, uint32_t datatype,
                                uint32_t rank, const int64_t *shape, size_t bytes);

/* Adds a parameter, which every stage can read. INVALID_ARGUMENT: bad name or type, or too many;
 * FAILED_PRECONDITION: the request is already submitted. `priority` has no effect: it is for
 * callers over the network. */
int32_t shoal_request_parameter(struct shoal_request *request, const char *name,
                                const struct shoal_parameter *parameter);

/* Submits the request to the node; the caller must not touch its inputs afterwards. Without a
 * deadline (INT64_MAX) the pipeline's `default_timeout_ms` applies. Any result but SHOAL_OK is the
 * request's status: it was not submitted. FAILED_PRECONDITION without a text: it was submitted
 * before. */
int32_t shoal_request_submit(struct shoal_request *request, int64_t deadline_ns);

/* Waits for the answer until `until_ns`, or longer if it has to reconnect. Returns the request's
 * status, or SHOAL_UNSET if it was not answered by then or not submitted. */
int32_t shoal_request_wait(struct shoal_request *request, int64_t until_ns);

/* Returns the next of this client's requests that has ended, in the order in which they ended:
 * successful, failed, late or cancelled, and whether or not shoal_request_wait reported it. Each is
 * returned once. NULL: none by `until_ns`, or none in flight. */
struct shoal_request *shoal_client_wait_any(struct shoal_client *client, int64_t until_ns);

/* Cancels the request: it is answered at once with SHOAL_CANCELLED, and not run if that can be
 * avoided. Does nothing to a request that is answered or not submitted. */
void shoal_request_cancel(struct shoal_request *request);

/* Status and text: SHOAL_UNSET until the request is answered; the text is "" unless it failed, and
 * valid until the request is released. */
int32_t shoal_request_status(const struct shoal_request *request);
const char *shoal_request_text(const struct shoal_request *request);

/* The answer's tensors, valid until the request is released or its client closed. NULL: no such
 * index or name. */
uint32_t shoal_request_output_count(const struct shoal_request *request);
const struct shoal_tensor *shoal_request_output(const struct shoal_request *request,
                                                uint32_t index);
const struct shoal_tensor *shoal_request_output_named(const struct shoal_request *request,
                                                      const char *name);

/* A pointer of the caller's, kept with the request until it is released; NULL at first. */
void shoal_request_set_tag(struct shoal_request *request, void *tag);
void *shoal_request_tag(const struct shoal_request *request);

/* Releases the request and all its memory, in any state. NULL is ignored. */
void shoal_request_release(struct shoal_request *request);

#ifdef __cplusplus
}
#endif

#endif
