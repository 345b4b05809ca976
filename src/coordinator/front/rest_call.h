/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the REST front: one inference call, from its submission until its client has taken
 * the answer. It belongs to the HTTP thread, but for the answer, which whoever gathers it puts in
 * before the call is handed back.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "coordinator/front/caller.h"
#include "coordinator/front/rest.h"
#include "coordinator/protocol/oip_json.h"

struct rest {
    struct rest_options options;
    struct callers callers;
    struct http_thread *thread;
    struct rest_reader *reader;
    struct payload_builder builder; /* the HTTP thread's */
    struct http_pool *pool;
    uint32_t lent_count;       /* calls whose answers hold slots until they are sent */
    struct loop_timer *relief; /* looks whether others are refused; NULL: none is lent */
    uint64_t refused_before;   /* at its last look */
    pthread_mutex_t lock;      /* of what follows */
    pthread_cond_t all_answered;
    bool node_ready;
    bool stopping;
    uint32_t unanswered; /* calls that are in a pipeline, or with the reader */
};

struct rest_call {
    struct rest *rest;
    struct http_request *request; /* NULL: it was answered that it is late */
    struct oip_json *json;
    _Atomic uint64_t tag;     /* another one when it is admitted after it has waited */
    struct loop_timer *timer; /* of its deadline; NULL: it has none */
    int64_t deadline_ns;      /* TIME_NEVER_NS: none */
    bool gone;                /* the client */
    bool is_lent;             /* counted by rest.lent_count */

    /* the answer, as it was given */
    enum status status;
    uint32_t retry_ms;   /* of a refusal; 0: nothing is said */
    struct bytes copied; /* a failure's text, or the pieces that were not lent */
    struct rpc_piece pieces[OIP_PIECES_MAX];
    size_t piece_count;
    uint32_t holds; /* pieces of the HTTP answer that are not sent yet */
};

/* One more is to be waited for, unless the node is stopping; and one less. */
bool rest_one_more(struct rest *rest);
void rest_one_answered(struct rest *rest);

/* A call that is about to be submitted; NULL: the node is stopping. `json` is the call's then, and
 * otherwise freed. */
struct rest_call *rest_call_create(struct rest *rest, struct http_request *request,
                                   struct oip_json *json);
/* It was taken, with this deadline: the client hears then at the latest. */
void rest_call_taken(struct rest_call *call, int64_t deadline_ns);
/* It was not taken. */
void rest_call_refused(struct rest_call *call);

/* Its slot is given back at the next touch; the answer then comes, and is dropped. */
void rest_call_cancel(struct rest_call *call);

/* Answers a rest_call: what a submission names. */
extern const struct request_sink rest_sink;

/* JSON as an answer, of which the bytes become the server's. */
void rest_answer(struct http_request *request, int code, struct bytes *json,
                 const struct http_header *more);
/* {"error": text}; `retry_ms` 0: nothing is said. */
void rest_answer_error(struct http_request *request, int code, const char *text, uint32_t retry_ms);
