/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/rest_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/models/target.h"
#include "loop/loop.h"

#define JSON_TYPE "application/json"
#define BINARY_TYPE "application/octet-stream"

/* Time between two looks whether others are refused while answers are not taken. */
#define RELIEF_LOOK_NS (NS_PER_S / 4)

static const char late_text[] = "the deadline has passed";

/* ---- the node's life ---- */

bool
rest_is_ready(struct rest *rest)
{
    pthread_mutex_lock(&rest->lock);
    bool ready = rest->node_ready;
    pthread_mutex_unlock(&rest->lock);
    return ready;
}

/* ---- a call's life ---- */

bool
rest_one_more(struct rest *rest)
{
    pthread_mutex_lock(&rest->lock);
    bool stopping = rest->stopping;
    rest->unanswered += !stopping;
    pthread_mutex_unlock(&rest->lock);
    return !stopping;
}

void
rest_one_answered(struct rest *rest)
{
    pthread_mutex_lock(&rest->lock);
    CHECK(rest->unanswered > 0);
    if (--rest->unanswered == 0)
        pthread_cond_signal(&rest->all_answered);
    pthread_mutex_unlock(&rest->lock);
}

struct rest_call *
rest_call_create(struct rest *rest, struct http_request *request, enum rest_what what,
                 struct oip_json *json)
{
    if (!rest_one_more(rest)) {
        oip_json_destroy(json);
        return NULL;
    }
    struct rest_call *call = calloc(1, sizeof(*call));
    CHECK(call != NULL);
    call->rest = rest;
    call->request = request;
    call->what = what;
    call->json = json;
    http_request_set_user(request, call);
    return call;
}

/* Lent memory goes back to its slot, what is kept is kept no more. */
static void
give_back(struct rest_call *call)
{
    rpc_pieces_release(call->pieces, call->piece_count);
    for (size_t i = 0; i < call->piece_count; i++)
        rpc_kept_release((struct rpc_kept *)(uintptr_t)call->pieces[i].kept);
    call->piece_count = 0;
}

/* ---- answers that hold slots ---- */

/* Others are refused while answers are not taken. The pipelines' counters say so, since any
 * protocol may refuse them. */
static void
on_relief(void *context)
{
    struct rest *rest = context;
    uint64_t refused = pipelines_refused(rest->node.pipelines, rest->node.pipeline_count);
    if (refused != rest->refused_before)
        http_pool_relieve(rest->pool);
    rest->refused_before = refused;
    if (rest->relief != NULL)
        loop_timer_set(rest->relief, RELIEF_LOOK_NS);
}

static void
lend(struct rest_call *call)
{
    struct rest *rest = call->rest;
    bool is_lent = false;
    for (size_t i = 0; i < call->piece_count; i++)
        is_lent = is_lent || call->pieces[i].release != NULL;
    if (!is_lent)
        return;
    call->is_lent = true;
    rest->lent_count++;
    http_request_set_scarce(call->request);
}

/* Called also within on_relief, and when the server is destroyed. */
static void
unlend(struct rest_call *call)
{
    struct rest *rest = call->rest;
    CHECK(!call->is_lent || rest->lent_count > 0);
    if (!call->is_lent || --rest->lent_count > 0)
        return;
    loop_timer_destroy(rest->relief);
    rest->relief = NULL;
}

/* Most answers are sent at once, and need nobody to look after them. */
static void
look_after(struct rest *rest)
{
    if (rest->lent_count == 0 || rest->relief != NULL)
        return;
    rest->refused_before = pipelines_refused(rest->node.pipelines, rest->node.pipeline_count);
    rest->relief = loop_timer_create(loop_base(http_thread_loop(rest->thread)), on_relief, rest);
    loop_timer_set(rest->relief, RELIEF_LOOK_NS);
}

void
rest_call_free(struct rest_call *call)
{
    if (call->stream != NULL)
        call->stream_type->destroy(call->stream);
    give_back(call);
    unlend(call);
    bytes_fini(&call->copied);
    oip_json_answer_fini(&call->written);
    oip_json_destroy(call->json);
    free(call->pieces);
    free(call);
}

void
rest_call_cancel(struct rest_call *call)
{
    uint64_t tag = atomic_load_explicit(&call->tag, memory_order_relaxed);
    if (call->stream != NULL)
        call->stream_type->cancel(call);
    dispatch_cancel(&call->rest->dispatch, tag);
}

/* A gRPC caller keeps the time itself; one over HTTP gets an answer. */
static void
on_late(void *context)
{
    struct rest_call *call = context;
    struct http_request *request = call->request;
    if (call->stream != NULL) {
        if (request != NULL)
            call->stream_type->fail(call, STATUS_DEADLINE_EXCEEDED, late_text);
        return;
    }
    call->request = NULL;
    rest_call_cancel(call);
    http_request_set_user(request, NULL);
    rest_answer_error(request, rest_code(STATUS_DEADLINE_EXCEEDED), late_text, 0);
}

void
rest_call_taken(struct rest_call *call, int64_t deadline_ns)
{
    if (call->json != NULL)
        oip_json_forget_elements(call->json); /* they are in the arena, or somewhere as a copy */
    if (deadline_ns == TIME_NEVER_NS)
        return;
    int64_t left_ns = deadline_ns - clock_now_ns();
    call->timer = loop_timer_create(loop_base(http_thread_loop(call->rest->thread)), on_late, call);
    loop_timer_set(call->timer, left_ns > 0 ? left_ns : 0);
}

void
rest_call_refused(struct rest_call *call)
{
    http_request_set_user(call->request, NULL);
    rest_one_answered(call->rest);
    rest_call_free(call);
}

/* A piece of the answer has been sent, or dropped with its connection. */
static void
piece_sent(void *context)
{
    struct rest_call *call = context;
    CHECK(call->holds > 0);
    if (--call->holds == 0)
        rest_call_free(call);
}

/* ---- back on the HTTP thread ---- */

/* The JSON is the call's until it is sent; the tensors that follow it are lent from the arena. */
static void
send_answer(struct rest_call *call, int code)
{
    const struct oip_json_answer *answer = &call->written;
    struct http_request *request = call->request;
    char json_bytes[24];
    struct http_header headers[2] = {{"Content-Type", answer->binary ? BINARY_TYPE : JSON_TYPE},
                                     {"Inference-Header-Content-Length", json_bytes}};
    size_t count = 1 + answer->data_count;
    struct http_piece *pieces = calloc(count, sizeof(*pieces));
    CHECK(pieces != NULL);
    if (answer->data_count == 0)
        give_back(call);
    else
        lend(call);
    snprintf(json_bytes, sizeof(json_bytes), "%zu", answer->text.used);
    pieces[0] = (struct http_piece){answer->text.data, answer->text.used, piece_sent, call};
    for (size_t i = 0; i < answer->data_count; i++)
        pieces[i + 1] =
            (struct http_piece){answer->data[i].data, answer->data[i].bytes, piece_sent, call};
    call->holds = (uint32_t)count;
    struct rest *rest = call->rest;
    http_answer(request, code, headers, answer->binary ? 2 : 1, pieces, count);
    free(pieces);
    look_after(rest);
}

static void
send_failure(struct rest_call *call, enum status status, const char *text)
{
    if (call->request != NULL)
        rest_answer_error(call->request, rest_code(status), text, call->retry_ms);
    rest_call_free(call);
}

static void
deliver(void *context)
{
    struct rest_call *call = context;
    struct error error = ERROR_NONE;
    int code = 0;
    loop_timer_destroy(call->timer);
    call->timer = NULL;
    if (call->request != NULL)
        http_request_set_user(call->request, NULL); /* there is nothing to cancel any more */
    if (call->reported != NULL)
        call->reported(call);
    else if (call->gone || call->request == NULL)
        send_failure(call, STATUS_CANCELLED, "the client has gone");
    else if (call->status != STATUS_OK)
        send_failure(call, call->status, call->copied.failed ? "" : call->copied.data);
    else if (rest_call_write(call, &code, &error) != STATUS_OK)
        send_failure(call, error.status, error.text);
    else
        send_answer(call, code);
}

/* ---- the sink: any thread ---- */

static void
hand_back(struct rest_call *call)
{
    struct rest *rest = call->rest;
    /* This wakes the HTTP thread. It costs what it costs: a connection is written to, and JSON
     * made, by that thread alone, and a gathering thread has other answers to handle. */
    http_thread_post(rest->thread, deliver, call);
    rest_one_answered(rest);
}

static void
sink_tagged(void *context, uint64_t tag)
{
    struct rest_call *call = context;
    atomic_store_explicit(&call->tag, tag, memory_order_relaxed);
    if (call->stream != NULL)
        call->stream_type->tagged(call, tag);
}

static bool
is_answered(const struct rest_call *call)
{
    return call->pieces != NULL || call->copied.used > 0;
}

/* Lent and kept parts are the call's from here on, the rest is copied. */
static void
take_pieces(struct rest_call *call, const struct rpc_piece *pieces, size_t piece_count)
{
    size_t bytes = 0;
    CHECK(!is_answered(call));
    call->pieces = malloc((piece_count + 1) * sizeof(*pieces));
    CHECK(call->pieces != NULL);
    for (size_t i = 0; i < piece_count; i++)
        bytes += pieces[i].kept == NULL && pieces[i].release == NULL ? pieces[i].bytes : 0;
    char *room = bytes_reserve(&call->copied, bytes);
    for (size_t i = 0; i < piece_count; i++) {
        struct rpc_piece *piece = &call->pieces[call->piece_count++];
        *piece = pieces[i];
        if (piece->kept != NULL) {
            rpc_kept_acquire((struct rpc_kept *)(uintptr_t)piece->kept);
        } else if (piece->release == NULL && room != NULL && piece->bytes > 0) {
            piece->data = memcpy(room, piece->data, piece->bytes);
            room += piece->bytes;
        }
    }
    call->status = STATUS_OK;
}

static void
take_failure(struct rest_call *call, enum status status, const char *text, size_t bytes)
{
    CHECK(!is_answered(call));
    call->status = status == STATUS_OK ? STATUS_UNKNOWN : status;
    if (bytes == 0 && status == STATUS_DEADLINE_EXCEEDED)
        bytes_put_text(&call->copied, late_text);
    if (bytes > 0)
        bytes_put(&call->copied, text, bytes);
    bytes_put_char(&call->copied, '\0');
}

static void
sink_reply(void *context, const struct rpc_piece *pieces, size_t piece_count)
{
    struct rest_call *call = context;
    take_pieces(call, pieces, piece_count);
    hand_back(call);
}

static void
sink_fail(void *context, enum status status, const char *text)
{
    struct rest_call *call = context;
    take_failure(call, status, text, text == NULL ? 0 : strlen(text));
    hand_back(call);
}

/* It had to wait for a slot, and gets none. */
static void
sink_refused(const struct submission *submission, const struct error *error)
{
    struct rest_call *call = submission->call;
    struct target target = {NULL, submission->model, submission->model_held};
    target_leave(&target);
    dispatch_refused(&call->rest->dispatch, INBOUND_INFER, submission->message->bytes,
                     submission->trace, error);
    call->retry_ms = submission->retry_ms;
    sink_fail(call, error->status, error->text);
}

static const struct request_sink sink = {
    .tagged = sink_tagged, .reply = sink_reply, .fail = sink_fail, .refused = sink_refused};

/* ---- as a call that came in ---- */

static bool
metadata(const void *context, const char *key, size_t *position, struct wire_span *value)
{
    const struct rest_call *call = context;
    return rest_headers_find(call->request, key, position, value);
}

static bool
walk(void *context, size_t *position, struct rpc_metadata *entry)
{
    struct rest_call *call = context;
    return rest_headers_walk(call->request, position, call->key, entry);
}

static bool
names(const void *context, void (*take)(void *taker, const void *name, size_t bytes), void *taker)
{
    const struct rest_call *call = context;
    return http_request_peer_names(call->request, take, taker);
}

/* Writes the address as gRPC does. */
static size_t
address(const void *context, char *text, size_t room)
{
    const struct rest_call *call = context;
    const char *peer = http_request_peer(call->request);
    snprintf(text, room, strchr(peer, ':') == NULL ? "ipv4:%s" : "ipv6:%%5B%s%%5D", peer);
    return strlen(text);
}

static void
take_answer(void *context, const struct rpc_answer *answer)
{
    struct rest_call *call = context;
    if (call->stream != NULL) {
        call->stream_type->answer(call, answer);
        return;
    }
    if (answer->status == STATUS_OK) {
        take_pieces(call, answer->pieces, answer->piece_count);
    } else {
        rpc_pieces_release(answer->pieces, answer->piece_count);
        take_failure(call, answer->status, answer->text.data, answer->text.bytes);
    }
    hand_back(call);
}

static void
take_piece(void *context, const struct rpc_piece *pieces, size_t piece_count)
{
    struct rest_call *call = context;
    call->stream_type->piece(call, pieces, piece_count);
}

static void
take_refusal(void *context, enum status status, const char *text, uint32_t retry_ms)
{
    struct rest_call *call = context;
    call->retry_ms = retry_ms;
    const struct rpc_answer answer = {.status = status,
                                      .text = {text, text == NULL ? 0 : strlen(text)}};
    take_answer(call, &answer);
}

#define INBOUND_TYPE                                                                               \
    .metadata = metadata, .walk = walk, .names = names, .address = address, .sink = &sink,         \
    .answer = take_answer, .refuse = take_refusal

static const struct inbound_type inbound_type = {INBOUND_TYPE};
static const struct inbound_type events_type = {INBOUND_TYPE, .piece = take_piece};

#undef INBOUND_TYPE

struct inbound
rest_call_inbound(struct rest_call *call, const struct wire_message *message, int64_t deadline_ns)
{
    static const char *const methods[] = {
        [REST_MODEL] = INBOUND_OIP "ModelMetadata",
        [REST_MODEL_READY] = INBOUND_OIP "ModelReady",
        [REST_INFER] = INBOUND_INFER,
        [REST_PREDICT] = INBOUND_INFER,
        [REST_GENERATE] = INBOUND_INFER,
        [REST_GENERATE_STREAM] = INBOUND_INFER,
        [REST_MODELS] = NULL, /* not for the mesh */
        [REST_OPENAPI] = NULL,
        [REST_TRITON] = NULL,
    };
    struct rest *rest = call->rest;
    return (struct inbound){
        .type = call->stream != NULL ? &events_type : &inbound_type,
        .call = call,
        .method = methods[call->what],
        .message = message,
        .deadline_ns = deadline_ns,
        .queue = rest->next_queue++ % rest->node.config->front_threads,
    };
}

void
rest_call_answered(struct rest_call *call, void *response, size_t bytes)
{
    struct rpc_piece piece = {response, bytes, free, response, NULL, 0};
    take_pieces(call, &piece, 1);
    rest_one_answered(call->rest);
    deliver(call);
}
