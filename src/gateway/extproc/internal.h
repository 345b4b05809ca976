/* SPDX-License-Identifier: Apache-2.0 */
/*
 * extproc.c is the service, stream.c one request, streams.c their memory.
 *
 *     OPENED -> READING -> PLACED -> PICKED -> STARTED -> ENDED -> (free), or (free) from each
 *
 * The core has the request from PLACED until ENDED. OPENED becomes ENDED if Envoy shows only the
 * answer. `is_sending` runs beside them: the body goes back to Envoy in pieces.
 */
#pragma once

#include "gateway/extproc/extproc.h"
#include "gateway/extproc/grpc.h"
#include "gateway/extproc/message.h"
#include "gateway/scan/usage.h"
#include "loop/timer.h"

enum extproc_counter {
#define EXTPROC_COUNTER(name, text) EXTPROC_COUNT_##name,
#include "gateway/extproc/counters.def"
    EXTPROC_COUNT_END
};

enum extproc_state {
    EXTPROC_FREE,
    EXTPROC_FULL, /* the one that all streams share for which there is no other */
    EXTPROC_OPENED,
    EXTPROC_READING,
    EXTPROC_PLACED,
    EXTPROC_PICKED,
    EXTPROC_STARTED,
    EXTPROC_ENDED,
};

enum {
    EXTPROC_ID_BYTES = 128,
    EXTPROC_SUBSET_MAX = 4096,
    EXTPROC_LIST_BYTES = 1024,
    EXTPROC_NAME_MAX = 1024
};
#define EXTPROC_NONE UINT32_MAX

/* The needs of a request, freed when it is placed. */
struct extproc_ask {
    uint64_t model;
    uint64_t session;
    uint64_t label;
    int32_t priority;
    bool has_priority; /* it names an objective that is there */
    size_t name_at;    /* where the body has the model's name, with quotes */
    size_t name_bytes; /* 0: it was not read */
    uint64_t flow;
    uint64_t tokens;
    int64_t slo_ms;
    uint64_t blocks[GATEWAY_BLOCKS_MAX];
    uint32_t block_count;
    bool has_subset;
    uint64_t *subset;
    uint32_t subset_count;
    char *rewrite; /* the model's name for the server; NULL: as it is */
};

struct extproc_stream {
    struct extproc *extproc;
    uint32_t number;
    uint32_t next_free;
    enum extproc_state state;
    struct grpc_stream *rpc;
    uint64_t request_mode;
    uint64_t response_mode;
    char id[EXTPROC_ID_BYTES];
    bool has_own_id; /* made here */
    struct extproc_ask *ask;

    char *body;
    size_t body_bytes;
    size_t body_room;     /* held */
    size_t body_declared; /* SIZE_MAX: unknown */
    size_t sent;
    enum extproc_phase decided_at;
    bool is_rewritten;
    bool is_sending;
    bool has_trailers; /* to be answered after the body */

    bool holds_answer; /* a short JSON answer goes back as one piece */
    bool broke;        /* Envoy answered in the server's place */
    struct bytes held;
    struct usage_tail tail;
};

struct extproc {
    const struct gateway_settings *settings;
    struct endpoint_pool *endpoints;
    struct grpc_server *server;
    uint32_t first_number; /* of our requests, in the core */
    struct extproc_stream *streams;
    struct extproc_stream full;
    uint32_t first_free;
    uint32_t open_count;
    uint64_t id_seed;
    uint64_t id_next;
    uint64_t counters[EXTPROC_COUNT_END];
    struct loop_timer *drain;
    bool is_draining;
    void (*on_drained)(void *context);
    void *drained_context;
};

/* ---- stream.c ---- */

/* The callbacks of a grpc_method, for Process. */
void extproc_on_open(void *context, struct grpc_stream *rpc);
void extproc_on_message(struct grpc_stream *rpc, const void *data, size_t bytes);
void extproc_on_half_close(struct grpc_stream *rpc);
void extproc_on_gone(struct grpc_stream *rpc);
void extproc_on_overflow(struct grpc_stream *rpc, enum grpc_overflow overflow);
void extproc_on_writable(struct grpc_stream *rpc);

/* The callbacks of an endpoint_pool_picker. */
void extproc_on_send(void *context, const struct endpoint_send *send);
void extproc_on_refuse(void *context, uint32_t request, enum gateway_refusal refusal);

/* ---- streams.c ---- */

/* NULL: ext_proc_streams_max are open, or it drains. */
struct extproc_stream *extproc_stream_take(struct extproc *extproc, struct grpc_stream *rpc);
void extproc_stream_give(struct extproc_stream *stream);
/* Ends a drain when nothing is open. */
void extproc_drain_look(struct extproc *extproc);
