/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libshoal: inference on the same host, straight through shared memory. No gRPC, no copy: inputs
 * are written where a worker of the node reads them, answers are read where a worker wrote them.
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
 * The node must allow it: `local_clients` of the pipeline. Types, datatypes, limits and the numbers
 * of status are those of <shoal/modelet.h>.
 *
 * Threads. A client and its requests are for one thread at a time, which need not always be the
 * same; different clients share nothing. No call is ended by a signal. The library has no thread of
 * its own: answers are taken, deadlines kept and deaths of workers put right while the caller is in
 * a function that waits, so a program with requests in flight calls one now and then
 * (shoal_client_wait_any with a time that has passed does not wait). A child of fork has no use of
 * its parent's clients.
 *
 * Time is CLOCK_MONOTONIC in nanoseconds; INT64_MAX is never. Names, texts and shapes that are
 * handed in are copied.
 *
 * Memory. All requests of a client share what the node gave it: inputs, names, and the outputs of
 * every stage a request passes. So one may fail with SHOAL_RESOURCE_EXHAUSTED while fewer are in
 * use than requests_max; releasing helps.
 *
 * A reload of the pipeline loses nothing: what a worker has begun is finished, the rest is
 * submitted again to the new generation, deadlines kept, which takes some milliseconds. It is
 * judged anew there: what the new generation does not take fails with its reason. When the node is
 * told to stop it finishes what is in flight for clients that wait for answers, and takes no more
 * (SHOAL_UNAVAILABLE); so too who asks one that is away. What is in flight when a node ends fails
 * with SHOAL_UNAVAILABLE, unless another runs by the time that is seen: then it is submitted there.
 *
 * So a request may be run more than once: always after the death of a worker that held it (as often
 * as the stage's attempts_max), or of the node. It fails instead if its modelet changes inputs.
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

/* Zero, or NULL, in a field is its default. */
struct shoal_client_options {
    uint32_t struct_size;       /* SHOAL_CLIENT_OPTIONS */
    uint32_t requests_max;      /* not released at a time; never more than the node allows, which
                                 * is the default */
    const char *pipeline;       /* required: the model's name */
    const char *socket;         /* $SHOAL_LOCAL, else that of the user's own node: what its
                                 * configuration's `counters` says, followed by ".local" */
    uint64_t message_bytes_max; /* of one request, or answer; as much as the node allows */
    int64_t connect_timeout_ns; /* 5 s: for connecting, also anew, whoever waits for how long */
    int64_t spin_ns;            /* 100 µs: how long to look for an answer before sleeping;
                                 * negative: not at all */
};

#define SHOAL_CLIENT_OPTIONS sizeof(struct shoal_client_options)

/*
 * Connects. UNAVAILABLE: no node, or one that starts or stops; NOT_FOUND: no such pipeline;
 * FAILED_PRECONDITION: it takes no local clients, or the node is of another version;
 * PERMISSION_DENIED: of another user, who is not root; RESOURCE_EXHAUSTED: as many clients, or as
 * much memory, as the node allows; INVALID_ARGUMENT: the options, also a larger message than the
 * node allows; DEADLINE_EXCEEDED: no word from it in time. Then `*client` is not written, and
 * `error` has the reason, if it is not NULL.
 */
int32_t shoal_client_open(const struct shoal_client_options *options, struct shoal_client **client,
                          struct shoal_error *error);

/* Ends it with all its requests, released or not; what is in flight is not run. NULL is left alone.
 */
void shoal_client_close(struct shoal_client *client);

/* Begins a request: it is the caller's until released. RESOURCE_EXHAUSTED: all are in use;
 * FAILED_PRECONDITION: requests of seven connections that were lost are not released; otherwise as
 * shoal_client_open. `error` may be NULL. */
int32_t shoal_request_begin(struct shoal_client *client, struct shoal_request **request,
                            struct shoal_error *error);

/*
 * Adds an input and lends its memory, aligned to 64 bytes and not zeroed, to be filled before the
 * request is submitted; SHOAL_TENSORS_MAX at most, with SHOAL_RANK_MAX dimensions. NULL: it can't
 * be had, and submitting will fail with the reason. The second form states the size: how a
 * SHOAL_BYTES tensor is made. Whether the model has such an input the answer tells.
 */
void *shoal_request_input(struct shoal_request *request, const char *name, uint32_t datatype,
                          uint32_t rank, const int64_t *shape);
void *shoal_request_input_bytes(struct shoal_request *request, const char *name, uint32_t datatype,
                                uint32_t rank, const int64_t *shape, size_t bytes);

/* Adds a parameter, which every stage can read. INVALID_ARGUMENT: its name or type, or too many;
 * FAILED_PRECONDITION: the request is submitted already. `priority` has no effect: admission is for
 * callers over the network. */
int32_t shoal_request_parameter(struct shoal_request *request, const char *name,
                                const struct shoal_parameter *parameter);

/* Hands it to the node; from then on its inputs are not to be touched. Without a deadline
 * (INT64_MAX) the pipeline's `default_timeout_ms` applies. Not SHOAL_OK: it was not handed over,
 * and this is its status; FAILED_PRECONDITION without a text: it had been already. */
int32_t shoal_request_submit(struct shoal_request *request, int64_t deadline_ns);

/* Waits for the answer, until a time at most, but for connecting anew. Returns the request's
 * status; SHOAL_UNSET: it was not answered by then, or not submitted. */
int32_t shoal_request_wait(struct shoal_request *request, int64_t until_ns);

/* The next of this client's requests that have ended, in this order, whether well, failed, late or
 * cancelled, and whether or not shoal_request_wait has told; each once. NULL: none by then, or none
 * is in flight. */
struct shoal_request *shoal_client_wait_any(struct shoal_client *client, int64_t until_ns);

/* Nobody waits for it any more: it is answered at once with SHOAL_CANCELLED, and not run if that
 * can be helped. Nothing happens to one that is answered, or not submitted. */
void shoal_request_cancel(struct shoal_request *request);

/* SHOAL_UNSET until it is answered; the text is "" unless it failed, and valid until released. */
int32_t shoal_request_status(const struct shoal_request *request);
const char *shoal_request_text(const struct shoal_request *request);

/* The answer's tensors, to be read where they lie, until the request is released or its client
 * closed. NULL: no such index or name. */
uint32_t shoal_request_output_count(const struct shoal_request *request);
const struct shoal_tensor *shoal_request_output(const struct shoal_request *request,
                                                uint32_t index);
const struct shoal_tensor *shoal_request_output_named(const struct shoal_request *request,
                                                      const char *name);

/* The caller's own, kept with the request until it is released; NULL at first. */
void shoal_request_set_tag(struct shoal_request *request, void *tag);
void *shoal_request_tag(const struct shoal_request *request);

/* Gives it back, with all its memory, in whatever state. NULL is left alone. */
void shoal_request_release(struct shoal_request *request);

#ifdef __cplusplus
}
#endif

#endif
