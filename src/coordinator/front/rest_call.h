/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the REST front: one call, from its submission until its client has received the
 * answer. It belongs to the HTTP thread, except that another thread may store the answer before it
 * hands the call back.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "coordinator/front/rest.h"
#include "coordinator/front/rest_guard.h"
#include "coordinator/front/rest_headers.h"
#include "coordinator/front/rest_route.h"
#include "coordinator/protocol/oip_json.h"

struct rest {
    struct front_node node;
    struct dispatch dispatch;
    struct rest_guard guard;
    struct http_thread *thread;
    struct rest_reader *reader;
    struct payload_builder builder; /* the HTTP thread's */
    struct http_pool *pool;
    uint32_t next_queue;       /* of the front, for the next call's answer from another node */
    uint32_t lent_count;       /* calls whose answers hold slots until they are sent */
    struct loop_timer *relief; /* looks whether others are refused; NULL: none is lent */
    uint64_t refused_before;   /* at its last look */
    LIST_HEAD(, rest_stream) streams;
    struct loop_timer *patience; /* with streams, once the node stops; NULL: it does not */
    pthread_mutex_t lock;        /* of what follows */
    pthread_cond_t all_answered;
    bool node_ready;
    bool stopping;
    uint32_t unanswered; /* calls that are in a pipeline, in the mesh, or with the reader; and
                          * those whose events have not left */
};

struct rest_call;
struct rest_stream;

/* The functions of a call whose answer comes as events (rest_stream.h). */
struct rest_stream_type {
    /* The client has gone, or its deadline has passed. */
    void (*cancel)(struct rest_call *call);
    /* Notifies the client, cancels the call, and releases the request. */
    void (*fail)(struct rest_call *call, enum status status, const char *text);
    /* Take the tag, and of another node's answer the pieces and the end. Any thread. */
    void (*tagged)(struct rest_call *call, uint64_t tag);
    void (*piece)(struct rest_call *call, const struct rpc_piece *pieces, size_t piece_count);
    void (*answer)(struct rest_call *call, const struct rpc_answer *answer);
    void (*destroy)(struct rest_stream *stream);
};

struct rest_call {
    struct rest *rest;
    struct http_request *request; /* NULL: it was answered, as by DEADLINE_EXCEEDED */
    enum rest_what what;          /* REST_SERVER and what needs no call excepted */
    struct oip_json *json;        /* of an inference */
    struct rest_stream *stream;   /* its answer is events; NULL: one answer */
    const struct rest_stream_type *stream_type;
    uint32_t page_rows; /* REST_MODELS, REST_OPENAPI: the most that it shows */
    /* Takes what was answered, and frees the call; NULL: it is written to the client. */
    void (*reported)(struct rest_call *call);
    struct trace *trace; /* for `reported`, as the next */
    int64_t deadline_ns;
    _Atomic uint64_t tag;             /* another one when it is admitted after it has waited */
    struct loop_timer *timer;         /* of its deadline; NULL: it has none */
    bool gone;                        /* the client */
    bool is_lent;                     /* counted by rest.lent_count */
    char key[REST_KEY_BYTES_MAX + 1]; /* of the header that was looked at last */

    /* the answer, as it was given */
    enum status status;
    uint32_t retry_ms;   /* of a refusal; 0: nothing is said */
    struct bytes copied; /* a failure's text, or the pieces that were neither lent nor kept */
    struct oip_json_answer written;
    struct rpc_piece *pieces;
    size_t piece_count;
    uint32_t holds; /* pieces of the HTTP answer that are not sent yet */
};

/* Returns whether the node is: what readiness answers. */
bool rest_is_ready(struct rest *rest);
/* Adds a call to be waited for, unless the node is stopping; rest_one_answered() removes it. */
bool rest_one_more(struct rest *rest);
void rest_one_answered(struct rest *rest);

/* Creates a call, which the end of its request cancels; NULL: the node is stopping. Takes `json`,
 * also on failure; `json` NULL: not an inference. */
struct rest_call *rest_call_create(struct rest *rest, struct http_request *request,
                                   enum rest_what what, struct oip_json *json);
/* Describes the call to dispatch. */
struct inbound rest_call_inbound(struct rest_call *call, const struct wire_message *message,
                                 int64_t deadline_ns);
/* It was accepted: the client is answered by the deadline at the latest. */
void rest_call_taken(struct rest_call *call, int64_t deadline_ns);
/* It was not accepted. Frees it. */
void rest_call_refused(struct rest_call *call);
/* It was answered at once by this malloc'ed message, which the call takes. */
void rest_call_answered(struct rest_call *call, void *response, size_t bytes);

/* Frees the call and the answer that it holds. */
void rest_call_free(struct rest_call *call);

/* Gives the slot back at the next touch; the answer then comes, and is dropped. */
void rest_call_cancel(struct rest_call *call);

/* Writes the answer as JSON. The code is 200, or 503 for a model that is not ready. INTERNAL: the
 * answer is not a message of the method. */
enum status rest_call_write(struct rest_call *call, int *code, struct error *error) WARN_UNUSED;

/* Answers with JSON, whose bytes the server takes. */
void rest_answer(struct http_request *request, int code, struct bytes *json,
                 const struct http_header *more);
/* {"error": text}; `retry_ms` 0: no Retry-After. */
void rest_answer_error(struct http_request *request, int code, const char *text, uint32_t retry_ms);
