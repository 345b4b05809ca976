/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proxy's parts: proxy.c takes requests, exchange.c is their memory, forward.c carries one to a
 * server and its answer back, grpc.c does the same for gRPC, whose messages grpc_send.c sends,
 * openai.c writes answers of our own, account.c counts and logs them.
 *
 *     READING -> PLACED -> STARTED -> (free), or (free) from each
 *
 * PLACED: the core has it, and may try several servers. STARTED: the client sees an answer.
 */
#pragma once

#include <stdbool.h>

#include "base/hash_table.h"
#include "gateway/config/endpoint_file.h"
#include "gateway/endpoints/pool.h"
#include "gateway/proxy/keys.h"
#include "gateway/proxy/openai.h"
#include "gateway/proxy/proxy.h"
#include "gateway/scan/oip_call.h"
#include "gateway/scan/usage.h"
#include "http/client.h"
#include "http/http2_client.h"
#include "http/server.h"
#include "loop/timer.h"

enum proxy_counter {
#define PROXY_COUNTER(name, text) PROXY_##name,
#include "gateway/proxy/counters.def"
    PROXY_COUNTER_COUNT
};

enum exchange_state { EXCHANGE_FREE, EXCHANGE_READING, EXCHANGE_PLACED, EXCHANGE_STARTED };

enum { REQUEST_ID_BYTES = 128, HELD_BYTES_MAX = 64 << 10, HEADERS_MAX = 130 };
#define EXCHANGE_NONE UINT32_MAX

struct exchange {
    struct llm_proxy *proxy;
    uint32_t number;
    uint32_t next_free;
    enum exchange_state state;
    struct http_request *request;
    char id[REQUEST_ID_BYTES];
    int64_t began_ns;

    /* the request */
    char *body;
    size_t body_bytes;
    size_t body_room;     /* counted in bodies_bytes */
    size_t body_declared; /* its length; SIZE_MAX: unknown */
    uint64_t model;
    char *model_name;  /* the client's, perhaps cut; NULL: not known yet */
    bool is_oip;       /* Open Inference Protocol: the path names the model */
    char *routed_path; /* for a model that a route chose; NULL: as it came */
    size_t name_at;    /* where the body has it, with quotes */
    size_t name_bytes;
    char *own_name; /* the client's, without quotes; NULL: it is still there */
    size_t own_bytes;
    uint64_t session;
    uint64_t label; /* that its header names; 0: none */
    int32_t priority;
    bool has_priority; /* it names an objective that is there */
    uint64_t flow;
    uint64_t tokens; /* of the prompt, as estimated */
    int64_t slo_ms;
    bool is_streamed; /* as its body asks */
    uint32_t block_count;
    uint64_t *blocks;

    /* the try */
    uint32_t endpoint; /* this and the next: of the last try */
    struct http_target *target;
    uint32_t tries;
    bool is_routed;         /* for a model that a route chose */
    int64_t first_ns;       /* when its answer began; 0: it has not */
    int code;               /* of its answer */
    struct http_call *call; /* NULL: none is under way */
    bool is_held;           /* a short answer is passed on when it is whole */
    bool is_events;         /* text/event-stream that can be added to */
    uint64_t pieces;        /* of a streamed answer */
    uint32_t line_ends;     /* of the answer so far, at its end */
    struct bytes held;
    struct usage_tail tail;
    struct usage usage;

    /* of gRPC */
    const struct oip_call *method; /* NULL: it is no such call */
    struct http2_call *stream;     /* in place of `call` */
    struct http_target *grpc_target;
    struct loop_timer *timer;  /* NULL: not needed yet */
    int64_t deadline_ns;       /* the client's */
    size_t whole_bytes;        /* of the body: messages that are whole */
    size_t sent_bytes;         /* of these, sent to the server of this try */
    size_t part_bytes;         /* of the next one's frame, as the server gets it */
    struct oip_name sent_name; /* of that one: only its place holds */
    bool is_paused;            /* the client, while the server takes no more */
    bool has_ended;            /* the client sends no more of them */
    char *sent_model;          /* its name for the endpoint; NULL: as it came */

    struct api_key *key; /* NULL: none is asked for */
    uint64_t used;       /* tokens that it is charged */
};

struct llm_proxy {
    const struct gateway_settings *settings;
    struct endpoint_pool *endpoints;
    struct pem_files *pems; /* of clients' address, like the next; NULL: no TLS */
    struct http_tls *tls;
    struct event_base *base;
    struct http_server *server;
    struct key_ring *keys; /* NULL: clients need none */
    struct exchange *exchanges;
    uint32_t first_free;
    uint32_t open_count;
    uint32_t left_count; /* those open when draining had lasted too long */
    uint64_t bodies_bytes;
    uint64_t id_seed;
    uint64_t id_next;
    uint64_t counters[PROXY_COUNTER_COUNT];
    uint64_t calls; /* that may be logged */
    struct token_table *tokens;
    struct loop_timer *drain;          /* fires when draining has lasted too long */
    bool is_draining;                  /* takes no more requests */
    void (*on_drained)(void *context); /* NULL: not wanted, or was called */
    void *drained_context;
};

/* It takes requests, and has an endpoint for them. */
static inline bool
proxy_is_ready(const struct llm_proxy *proxy)
{
    return !proxy->is_draining && endpoint_pool_usable(proxy->endpoints) > 0;
}

/* ---- exchange.c ---- */

/* NULL: requests_max are open. The key, if not NULL, was taken; it is released with the exchange.
 */
struct exchange *exchange_begin(struct llm_proxy *proxy, struct http_request *request,
                                struct api_key *key);
/* The request cannot be sent again: frees its body. */
void exchange_forget_body(struct exchange *exchange);
/* The request has been answered or dropped: frees the exchange. */
void exchange_free(struct exchange *exchange);
/* The only writer of its state: one after the other, and free after any. */
void exchange_enter(struct exchange *exchange, enum exchange_state state);
/* Puts a model's name, which needs no escapes in JSON, in the place of the one that came. NULL:
 * puts that back, if another try had another. */
void exchange_rewrite(struct exchange *exchange, const char *model);
struct gateway_ask exchange_ask(const struct exchange *exchange);

/* Ends the call to a server, if there is one. */
void exchange_cancel(struct exchange *exchange);

/* ---- intake.c ---- */

/* Refuses in any state; what is under way ends. Once the answer has begun, only gRPC's can say
 * why. */
void exchange_refuse(struct exchange *exchange, const struct openai_error *error);
/* Adds to the body. False: the limit of all bodies would be exceeded; it was refused. */
bool exchange_add_body(struct exchange *exchange, const void *data, size_t bytes);
/* Reads the header fields that flow control needs. */
void exchange_scan_fields(struct exchange *exchange);
void exchange_keep_model(struct exchange *exchange, const char *name, size_t bytes);
/* The model, which is kept, and the fields. */
void exchange_scan_head(struct exchange *exchange, const char *model, size_t model_bytes);

/* ---- grpc_answer.c ---- */

#define GRPC_CONTENT_TYPE "application/grpc"

struct oip_call {
    const char *path;
    bool is_stream;
    /* The gateway's own; NULL: a server answers. */
    void (*answer)(struct llm_proxy *proxy, struct bytes *out);
};

bool grpc_is_call(const struct http_request *request);
/* NULL: it was answered. */
const struct oip_call *grpc_find(struct llm_proxy *proxy, struct http_request *request);
/* Refuses in the caller's protocol: as OpenAI does, or with a status of gRPC. */
void answer_refuse(struct http_request *request, const struct openai_error *error);
/* Breaks off a call over gRPC whose answer has begun. */
void grpc_break_off(struct http_request *request, const struct openai_error *error);

/* ---- grpc.c ---- */

void grpc_begin(struct exchange *exchange, const struct oip_call *method);
void grpc_send_to(struct exchange *exchange, const struct endpoint_send *send);

/* ---- grpc_send.c ---- */

/* Sends what the server takes of the messages that are whole, and the end behind the last. */
void grpc_send_more(struct exchange *exchange);
/* The stream is another: begins with the first message that is kept. */
void grpc_send_anew(struct exchange *exchange);
/* Messages that were sent need not be kept. */
void grpc_forget_sent(struct exchange *exchange);

/* ---- forward.c ---- */

void forward_send_to(struct exchange *exchange, const struct endpoint_send *send);
/* The callbacks of an endpoint_pool_handler; the context is the proxy. */
void forward_on_refuse(void *context, uint32_t request, enum gateway_refusal refusal);
/* The fields for the server; `count` are there already. Returns how many there are then. */
size_t forward_request_headers(const struct exchange *exchange, struct http_header *headers,
                               size_t count);
/* Keeps the fields that may pass, of those from `own_count` on. */
size_t forward_keep_passing(struct http_header headers[HEADERS_MAX], size_t own_count,
                            size_t count);
/* Events for the core: the try failed before the client saw anything; the answer begins, ends. */
void forward_try_failed(struct exchange *exchange, enum gateway_failure failure);
void forward_started(struct exchange *exchange, const struct gateway_report *report);
void forward_ended(struct exchange *exchange, enum gateway_end how,
                   const struct gateway_report *report);
/* Nothing is reported. */
extern const struct gateway_report forward_no_report;

/* ---- account.c ---- */

struct token_table *account_create(void);
void account_destroy(struct token_table *table);
/* An answer is whole: finds its usage. */
void account_tokens(struct exchange *exchange);
/* The request is over: with this code for the client, and what has become of it in a word. */
void account_log(const struct exchange *exchange, int code, const char *outcome);
void account_write_metrics(const struct token_table *table, struct bytes *out);

/* ---- openai.c ---- */

void openai_refuse(struct http_request *request, const struct openai_error *error);
void openai_answer_json(struct http_request *request, int code, const struct bytes *json);
/* The callback of http_service. */
void openai_error_body(const char *text, char *body, size_t room);
