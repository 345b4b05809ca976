/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/rest_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/front/rest_route.h"
#include "coordinator/loop/loop.h"
#include "coordinator/models/target.h"
#include "coordinator/telemetry/trace_call.h"

#define JSON_TYPE "application/json"
#define BINARY_TYPE "application/octet-stream"

/* How often it is looked whether others are refused while answers are not taken. */
#define RELIEF_LOOK_NS (NS_PER_S / 4)

static const char late_text[] = "the deadline has passed";

/* ---- answers ---- */

void
rest_answer(struct http_request *request, int code, struct bytes *json,
            const struct http_header *more)
{
    static const char no_memory[] = "{\"error\":\"no memory to write the answer\"}";
    struct http_header headers[2] = {{"Content-Type", JSON_TYPE}};
    size_t header_count = 1;
    if (more != NULL)
        headers[header_count++] = *more;
    struct http_piece piece = {no_memory, sizeof(no_memory) - 1, NULL, NULL};
    if (json->failed) {
        code = rest_code(STATUS_RESOURCE_EXHAUSTED);
        bytes_fini(json);
    } else {
        piece.data = piece.release_context = bytes_take(json, &piece.bytes);
        piece.release = free;
    }
    http_answer(request, code, headers, header_count, &piece, 1);
}

void
rest_answer_error(struct http_request *request, int code, const char *text, uint32_t retry_ms)
{
    struct bytes json = {0};
    char seconds[16];
    struct http_header retry = {"Retry-After", seconds};
    snprintf(seconds, sizeof(seconds), "%u", (retry_ms + 999) / 1000); /* it knows whole ones */
    oip_json_put_error(&json, text);
    rest_answer(request, code, &json, retry_ms > 0 ? &retry : NULL);
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
    if (--rest->unanswered == 0)
        pthread_cond_signal(&rest->all_answered);
    pthread_mutex_unlock(&rest->lock);
}

struct rest_call *
rest_call_create(struct rest *rest, struct http_request *request, struct oip_json *json)
{
    if (!rest_one_more(rest)) {
        oip_json_destroy(json);
        return NULL;
    }
    struct rest_call *call = calloc(1, sizeof(*call));
    CHECK(call != NULL);
    call->rest = rest;
    call->request = request;
    call->json = json;
    return call;
}

/* The lent memory goes back to its slot. */
static void
give_back(struct rest_call *call)
{
    for (size_t i = 0; i < call->piece_count; i++)
        if (call->pieces[i].release != NULL)
            call->pieces[i].release(call->pieces[i].release_context);
    call->piece_count = 0;
}

/* ---- answers that hold slots ---- */

/* Others are refused while answers are not taken. By the pipelines' counters, since they may be
 * refused by any protocol. */
static void
on_relief(void *context)
{
    struct rest *rest = context;
    uint64_t refused = pipelines_refused(rest->options.pipelines, rest->options.pipeline_count);
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
    call->is_lent = true;
    rest->lent_count++;
    http_request_set_scarce(call->request);
}

/* Also within on_relief, and when the server is destroyed. */
static void
unlend(struct rest_call *call)
{
    struct rest *rest = call->rest;
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
    rest->refused_before = pipelines_refused(rest->options.pipelines, rest->options.pipeline_count);
    rest->relief = loop_timer_create(http_thread_loop(rest->thread), on_relief, rest);
    loop_timer_set(rest->relief, RELIEF_LOOK_NS);
}

static void
call_free(struct rest_call *call)
{
    give_back(call);
    unlend(call);
    bytes_fini(&call->copied);
    oip_json_destroy(call->json);
    free(call);
}

void
rest_call_cancel(struct rest_call *call)
{
    const struct rest_options *options = &call->rest->options;
    uint64_t tag = atomic_load_explicit(&call->tag, memory_order_relaxed);
    uint32_t number = tag_pipeline(tag);
    if (tag != 0 && number < options->pipeline_count)
        pipeline_cancel(options->pipelines[number], tag);
}

/* A gRPC caller keeps the time itself; one over HTTP is told. */
static void
on_late(void *context)
{
    struct rest_call *call = context;
    struct http_request *request = call->request;
    call->request = NULL;
    rest_call_cancel(call);
    http_request_set_user(request, NULL);
    rest_answer_error(request, rest_code(STATUS_DEADLINE_EXCEEDED), late_text, 0);
}

void
rest_call_taken(struct rest_call *call, int64_t deadline_ns)
{
    oip_json_forget_message(call->json); /* it is in the arena, or in the queue as a copy */
    call->deadline_ns = deadline_ns;
    if (deadline_ns == TIME_NEVER_NS)
        return;
    int64_t left_ns = deadline_ns - clock_now_ns();
    call->timer = loop_timer_create(http_thread_loop(call->rest->thread), on_late, call);
    loop_timer_set(call->timer, left_ns > 0 ? left_ns : 0);
}

void
rest_call_refused(struct rest_call *call)
{
    rest_one_answered(call->rest);
    call_free(call);
}

/* A piece of the answer has been sent, or dropped with its connection. */
static void
piece_sent(void *context)
{
    struct rest_call *call = context;
    if (--call->holds == 0)
        call_free(call);
}

/* ---- back on the HTTP thread ---- */

/* The JSON is the call's until it is sent; the tensors that follow it are lent from the arena. */
static void
send_answer(struct rest_call *call, struct oip_json_answer *answer)
{
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
    bytes_fini(&call->copied);
    snprintf(json_bytes, sizeof(json_bytes), "%zu", answer->text.used);
    call->copied = answer->text;
    answer->text = (struct bytes){0};
    pieces[0] = (struct http_piece){call->copied.data, call->copied.used, piece_sent, call};
    for (size_t i = 0; i < answer->data_count; i++)
        pieces[i + 1] =
            (struct http_piece){answer->data[i].data, answer->data[i].bytes, piece_sent, call};
    call->holds = (uint32_t)count;
    struct rest *rest = call->rest;
    http_answer(request, 200, headers, answer->binary ? 2 : 1, pieces, count);
    free(pieces);
    look_after(rest);
}

static void
send_failure(struct rest_call *call, enum status status, const char *text)
{
    if (call->request != NULL)
        rest_answer_error(call->request, rest_code(status), text, call->retry_ms);
    call_free(call);
}

static enum status
write_answer(struct rest_call *call, struct oip_json_answer *answer, struct error *error)
{
    struct rpc_span spans[OIP_PIECES_MAX];
    struct rpc_message response = {spans, call->piece_count, 0};
    if (call->copied.failed)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to write the answer");
    size_t copied = 0;
    for (size_t i = 0; i < call->piece_count; i++) {
        const struct rpc_piece *piece = &call->pieces[i];
        spans[i] = (struct rpc_span){piece->data, piece->bytes};
        if (piece->release == NULL) {
            spans[i].data = call->copied.data + copied;
            copied += piece->bytes;
        }
        response.bytes += piece->bytes;
    }
    return oip_json_write(call->json, &response, answer, error);
}

static void
deliver(void *context)
{
    struct rest_call *call = context;
    struct oip_json_answer answer = {0};
    struct error error = ERROR_NONE;
    loop_timer_destroy(call->timer);
    call->timer = NULL;
    if (call->request != NULL)
        http_request_set_user(call->request, NULL); /* there is nothing to cancel any more */
    if (call->gone || call->request == NULL)
        send_failure(call, STATUS_CANCELLED, "the client has gone");
    else if (call->status != STATUS_OK)
        send_failure(call, call->status, call->copied.failed ? "" : call->copied.data);
    else if (write_answer(call, &answer, &error) != STATUS_OK)
        send_failure(call, error.status, error.text);
    else
        send_answer(call, &answer);
    oip_json_answer_fini(&answer);
}

/* ---- the sink: any thread ---- */

static void
hand_back(struct rest_call *call)
{
    struct rest *rest = call->rest;
    /* This wakes the HTTP thread. It costs what it costs: a connection is written to, and JSON
     * made, by that thread alone, and whoever gathers has others' answers to see to. */
    http_thread_post(rest->thread, deliver, call);
    rest_one_answered(rest);
}

static void
sink_tagged(void *context, uint64_t tag)
{
    struct rest_call *call = context;
    atomic_store_explicit(&call->tag, tag, memory_order_relaxed);
}

static void
sink_reply(void *context, const struct rpc_piece *pieces, size_t piece_count)
{
    struct rest_call *call = context;
    CHECK(piece_count <= OIP_PIECES_MAX);
    memcpy(call->pieces, pieces, piece_count * sizeof(pieces[0]));
    call->piece_count = piece_count;
    for (size_t i = 0; i < piece_count; i++)
        if (pieces[i].release == NULL)
            bytes_put(&call->copied, pieces[i].data, pieces[i].bytes);
    call->status = STATUS_OK;
    hand_back(call);
}

static void
sink_fail(void *context, enum status status, const char *text)
{
    struct rest_call *call = context;
    call->status = status == STATUS_OK ? STATUS_UNKNOWN : status;
    bytes_put_text(&call->copied, text == NULL ? "" : text);
    bytes_put_char(&call->copied, '\0');
    hand_back(call);
}

/* It had to wait for a slot, and gets none. */
static void
sink_refused(const struct submission *submission, const struct error *error)
{
    struct rest_call *call = submission->call;
    struct target target = {NULL, submission->model, submission->model_held};
    target_leave(&target);
    counter_add_shared(call->rest->options.counters, NODE_CALLS_REFUSED, 1);
    if (submission->trace != NULL)
        tracer_end(submission->trace, error->status, error->text);
    call->retry_ms = submission->retry_ms;
    sink_fail(call, error->status, error->text);
}

const struct request_sink rest_sink = {
    .tagged = sink_tagged, .reply = sink_reply, .fail = sink_fail, .refused = sink_refused};
