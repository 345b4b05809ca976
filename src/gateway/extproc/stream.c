/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request of Envoy's: headers and body in, a decision out, then the answer's phases as they
 * come. A body goes back as it came: in FULL_DUPLEX_STREAMED Envoy forwards nothing else.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/json.h"
#include "gateway/extproc/internal.h"
#include "gateway/proxy/openai.h"
#include "gateway/scan/prompt.h"

enum {
    PIECE_BYTES = 62000, /* larger ones break some proxies */
    AHEAD_BYTES = 64 << 10,
    BODY_ROOM_FIRST = 4096,
};

/* ---- memory ---- */

static void
body_free(struct extproc_stream *stream)
{
    grpc_hold_end(stream->extproc->server, stream->body_room);
    free(stream->body);
    stream->body = NULL;
    stream->body_bytes = stream->body_room = stream->sent = 0;
}

static void
ask_free(struct extproc_stream *stream)
{
    if (stream->ask == NULL)
        return;
    free(stream->ask->subset);
    free(stream->ask->rewrite);
    free(stream->ask);
    stream->ask = NULL;
}

static void
stream_free(struct extproc_stream *stream)
{
    body_free(stream);
    ask_free(stream);
    bytes_fini(&stream->held);
    extproc_stream_give(stream);
}

static struct extproc_ask *
ask_of(struct extproc_stream *stream)
{
    if (stream->ask == NULL) {
        stream->ask = calloc(1, sizeof(*stream->ask));
        CHECK(stream->ask != NULL);
    }
    return stream->ask;
}

/* ---- the core ---- */

static void
step(const struct extproc_stream *stream, struct gateway_event event)
{
    event.request = stream->extproc->first_number + stream->number;
    endpoint_pool_step(stream->extproc->endpoints, &event);
}

static bool
is_in_core(const struct extproc_stream *stream)
{
    return stream->state >= EXTPROC_PLACED && stream->state < EXTPROC_ENDED;
}

/* The answer was passed on whole, or will not be. */
static void
end(struct extproc_stream *stream, enum gateway_end how)
{
    static const enum extproc_counter counters[] = {
        [GATEWAY_END_OK] = EXTPROC_COUNT_ANSWERED,
        [GATEWAY_END_CANCELLED] = EXTPROC_COUNT_CANCELLED,
        [GATEWAY_END_BROKE] = EXTPROC_COUNT_BROKE,
        [GATEWAY_END_LATE] = EXTPROC_COUNT_BROKE,
    };
    bool was_in_core = is_in_core(stream);
    stream->state = EXTPROC_ENDED;
    if (!was_in_core)
        return;
    struct extproc *extproc = stream->extproc;
    struct usage usage = {0};
    extproc->counters[counters[how]]++;
    if (how == GATEWAY_END_OK && !usage_read(&stream->tail, &usage))
        extproc->counters[EXTPROC_COUNT_USAGE_UNKNOWN]++;
    extproc->counters[EXTPROC_COUNT_PROMPT_TOKENS] += usage.prompt_tokens;
    extproc->counters[EXTPROC_COUNT_ANSWER_TOKENS] += usage.answer_tokens;
    step(stream, (struct gateway_event){.kind = GATEWAY_ENDED,
                                        .end = how,
                                        .prompt_tokens = usage.prompt_tokens,
                                        .answer_tokens = usage.answer_tokens});
}

/* ---- answers ---- */

static void
send_answer(struct extproc_stream *stream, const struct extproc_answer *answer, const void *tail,
            size_t tail_bytes)
{
    grpc_send(stream->rpc, answer->room + answer->at, EXTPROC_ANSWER_BYTES - answer->at, tail,
              tail_bytes);
}

static void
pass(struct extproc_stream *stream, enum extproc_phase phase)
{
    struct extproc_answer answer;
    extproc_write_pass(&answer, phase);
    send_answer(stream, &answer, NULL, 0);
}

static void
send_pieces(struct extproc_stream *stream, enum extproc_phase phase, struct wire_span data,
            enum extproc_end end_of)
{
    struct extproc_answer answer;
    const char *at = data.data;
    size_t left = data.bytes;
    do {
        size_t piece = left < PIECE_BYTES ? left : PIECE_BYTES;
        left -= piece;
        extproc_write_piece(&answer, phase, piece, left == 0 ? end_of : EXTPROC_MORE);
        send_answer(stream, &answer, at, piece);
        at += piece;
    } while (left > 0);
}

/* Sends the client its answer on `rpc`, and ends the stream. */
static void
notify(struct grpc_stream *rpc, const struct openai_error *error, const char *details)
{
    struct extproc_answer answer;
    struct bytes body = {0};
    char seconds[24];
    openai_error_write(&body, error);
    CHECK(!body.failed);
    snprintf(seconds, sizeof(seconds), "%" PRId64, openai_retry_seconds(error));
    extproc_write_refusal(
        &answer,
        &(struct extproc_refusal){.code = error->code,
                                  .request_id = error->request_id,
                                  .retry_after = error->may_retry ? seconds : NULL,
                                  .details = details},
        body.used);
    grpc_send(rpc, answer.room + answer.at, EXTPROC_ANSWER_BYTES - answer.at, body.data, body.used);
    grpc_finish(rpc, STATUS_OK, NULL);
    bytes_fini(&body);
}

/* The core does not have the request. */
static void
refuse(struct extproc_stream *stream, const struct openai_error *error)
{
    struct grpc_stream *rpc = stream->rpc;
    char id[EXTPROC_ID_BYTES];
    struct openai_error reported = *error;
    memcpy(id, stream->id, sizeof(id));
    reported.request_id = id[0] != '\0' ? id : NULL;
    CHECK(!is_in_core(stream));
    stream->extproc->counters[EXTPROC_COUNT_REFUSED]++;
    stream_free(stream);
    notify(rpc, &reported, "shoal_gateway_refused");
}

static void
refuse_invalid(struct extproc_stream *stream, int code, const char *message)
{
    stream->extproc->counters[EXTPROC_COUNT_INVALID]++;
    refuse(stream, &(struct openai_error){
                       .code = code, .type = "invalid_request_error", .message = message});
}

static void
refuse_full(struct extproc_stream *stream)
{
    static const struct openai_error full = {
        .code = 503,
        .type = "InternalServerError",
        .may_retry = true,
        .message = "the gateway holds as many bytes of requests as it may"};
    refuse(stream, &full);
}

/* Envoy breaks the protocol, or wants what a picker cannot do. */
static void
give_up(struct extproc_stream *stream, enum status status, const char *text)
{
    struct grpc_stream *rpc = stream->rpc;
    stream->extproc->counters[EXTPROC_COUNT_INVALID]++;
    end(stream, GATEWAY_END_CANCELLED);
    stream_free(stream);
    grpc_finish(rpc, status, text);
}

/* ---- the request's head ---- */

static void
add_to_subset(void *context, struct wire_span address)
{
    struct extproc_ask *ask = context;
    if (ask->subset == NULL) {
        ask->subset = calloc(EXTPROC_SUBSET_MAX, sizeof(*ask->subset));
        CHECK(ask->subset != NULL);
    }
    if (ask->subset_count < EXTPROC_SUBSET_MAX && address.bytes > 0)
        ask->subset[ask->subset_count++] = gateway_name_hash(address.data, address.bytes);
}

/* Envoy may give the hint with one message alone: the first one counts. */
static void
take_subset(struct extproc_stream *stream, const struct extproc_event *event)
{
    if (event->metadata.left == 0 || (stream->ask != NULL && stream->ask->has_subset))
        return;
    struct extproc_ask found = {0};
    found.has_subset = extproc_subset(event, add_to_subset, &found);
    if (!found.has_subset)
        return;
    struct extproc_ask *ask = ask_of(stream);
    size_t bytes = sizeof(*ask->subset) * (found.subset_count > 0 ? found.subset_count : 1);
    ask->has_subset = true;
    ask->subset_count = found.subset_count;
    ask->subset = realloc(found.subset, bytes);
    CHECK(ask->subset != NULL);
}

static uint64_t
number_of(struct wire_span text)
{
    char digits[24] = "";
    if (text.bytes == 0 || text.bytes >= sizeof(digits))
        return UINT64_MAX;
    memcpy(digits, text.data, text.bytes);
    char *after;
    unsigned long long number = strtoull(digits, &after, 10);
    return *after == '\0' ? number : UINT64_MAX;
}

/* The reference has two names for each of its headers. */
static bool
is_either(struct wire_span key, const char *name, const char *other)
{
    return extproc_is(key, name) || extproc_is(key, other);
}

static void
take_objective(const struct extproc_stream *stream, struct wire_span objective)
{
    char *name = strndup(objective.data, objective.bytes);
    CHECK(name != NULL);
    stream->ask->priority = 0;
    stream->ask->has_priority =
        endpoint_pool_priority(stream->extproc->endpoints, name, &stream->ask->priority);
    free(name);
}

/* Takes what the core needs from a header. */
static void
take_for_core(const struct extproc_stream *stream, struct wire_span key, struct wire_span value)
{
    struct extproc_ask *ask = stream->ask;
    const char *wanted = stream->extproc->settings->labels.header; /* Envoy's keys: lower case */
    uint64_t slo_ms;
    if (*wanted != '\0' && key.bytes == strlen(wanted) &&
        strncasecmp(key.data, wanted, key.bytes) == 0)
        ask->label = gateway_name_hash(value.data, value.bytes);
    if (extproc_is(key, "x-session-id") ||
        (extproc_is(key, "x-session-token") && ask->session == 0)) {
        ask->session = gateway_name_hash(value.data, value.bytes);
    } else if (is_either(key, "x-gateway-inference-fairness-id", "x-llm-d-inference-fairness-id")) {
        ask->flow = gateway_name_hash(value.data, value.bytes);
    } else if (is_either(key, "x-gateway-inference-objective", "x-llm-d-inference-objective")) {
        take_objective(stream, value);
    } else if (is_either(key, "x-slo-ttft-ms", "x-llm-d-slo-ttft-ms")) {
        slo_ms = number_of(value);
        ask->slo_ms = slo_ms <= INT32_MAX ? (int64_t)slo_ms : 0;
    } else if (is_either(key, "x-gateway-model-name-rewrite", "x-llm-d-model-name-rewrite")) {
        free(ask->rewrite);
        ask->rewrite = strndup(value.data, value.bytes <= EXTPROC_NAME_MAX ? value.bytes
                                                                           : EXTPROC_NAME_MAX + 1);
        CHECK(ask->rewrite != NULL);
    }
}

/* False: the body is encoded. */
static bool
take_header(struct extproc_stream *stream, struct wire_span key, struct wire_span value)
{
    if (value.bytes == 0)
        return true;
    if (extproc_is(key, "content-encoding"))
        return extproc_is(value, "identity");
    if (extproc_is(key, "content-length")) {
        stream->body_declared = number_of(value);
    } else if (extproc_is(key, "x-request-id") && value.bytes < sizeof(stream->id)) {
        memcpy(stream->id, value.data, value.bytes);
        stream->id[value.bytes] = '\0';
        stream->has_own_id = false;
    } else {
        take_for_core(stream, key, value);
    }
    return true;
}

static void decide(struct extproc_stream *stream, enum extproc_phase at);

static void
on_request_headers(struct extproc_stream *stream, struct extproc_event *event)
{
    struct wire_span key;
    struct wire_span value;
    bool is_plain = true;
    bool has_body = !event->is_end && stream->request_mode != EXTPROC_BODY_NONE;
    snprintf(stream->id, sizeof(stream->id), "%016" PRIx64 "%016" PRIx64, stream->extproc->id_seed,
             ++stream->extproc->id_next);
    stream->has_own_id = true;
    (void)ask_of(stream);
    while (extproc_header_next(&event->headers, &key, &value))
        is_plain = take_header(stream, key, value) && is_plain;
    if (stream->ask->rewrite != NULL && strlen(stream->ask->rewrite) > EXTPROC_NAME_MAX) {
        refuse_invalid(stream, 400, "the name that a model shall get is longer than 1,024 bytes");
    } else if (has_body && !is_plain && !stream->extproc->settings->takes_any_body) {
        refuse_invalid(stream, 415, "Content-Encoding: send the body as it is");
    } else if (has_body && stream->request_mode != EXTPROC_BODY_DUPLEX &&
               stream->request_mode != EXTPROC_BODY_BUFFERED) {
        refuse(stream, &(struct openai_error){
                           .code = 500,
                           .type = "InternalServerError",
                           .message = "Envoy's request_body_mode must be FULL_DUPLEX_STREAMED or "
                                      "BUFFERED"});
    } else if (has_body) {
        stream->state = EXTPROC_READING;
        if (stream->request_mode == EXTPROC_BODY_BUFFERED)
            pass(stream, EXTPROC_REQUEST_HEADERS); /* Envoy waits with the body for it */
    } else {
        decide(stream, EXTPROC_REQUEST_HEADERS);
    }
}

/* ---- the request's body ---- */

/* False: it has been refused. */
static bool
body_reserve(struct extproc_stream *stream, size_t needed)
{
    size_t limit = (size_t)stream->extproc->settings->body_mib_max << 20;
    size_t room = stream->body_room > 0 ? stream->body_room : BODY_ROOM_FIRST;
    if (needed > limit || (stream->body_declared != SIZE_MAX && stream->body_declared > limit)) {
        refuse_invalid(stream, 413, "the body is larger than body_mib_max of the gateway allows");
        return false;
    }
    while (room < needed)
        room *= 2;
    if (stream->body_declared >= needed && room > stream->body_declared)
        room = stream->body_declared; /* never more before it comes: clients can declare anything */
    if (room <= stream->body_room)
        return true;
    if (!grpc_hold(stream->extproc->server, room - stream->body_room)) {
        refuse_full(stream);
        return false;
    }
    stream->body = realloc(stream->body, room);
    CHECK(stream->body != NULL);
    stream->body_room = room;
    return true;
}

/* Puts a name, which has quotes and for which there is room, in the place of the client's. */
static void
put_name(struct extproc_stream *stream, const char *quoted, size_t bytes)
{
    struct extproc_ask *ask = stream->ask;
    size_t after = stream->body_bytes - ask->name_at - ask->name_bytes;
    char *at = stream->body + ask->name_at;
    memmove(at + bytes, at + ask->name_bytes, after);
    memcpy(at, quoted, bytes);
    ask->name_bytes = bytes;
    stream->body_bytes = ask->name_at + bytes + after;
    stream->is_rewritten = true;
}

/* The name that the proxy wants. False: it has been refused. */
static bool
rewrite(struct extproc_stream *stream)
{
    struct bytes quoted = {0};
    json_quote(&quoted, stream->ask->rewrite, strlen(stream->ask->rewrite), JSON_STYLE_ANY);
    CHECK(!quoted.failed);
    stream->body_declared = SIZE_MAX;
    bool has_room =
        body_reserve(stream, stream->body_bytes - stream->ask->name_bytes + quoted.used);
    if (has_room)
        put_name(stream, quoted.data, quoted.used);
    bytes_fini(&quoted);
    return has_room;
}

/* The name that a route wants: the core has the request, which cannot be refused any more, so that
 * the limits may be exceeded by no more than a name. */
static void
rewrite_for_route(struct extproc_stream *stream, const char *model)
{
    struct bytes quoted = {0};
    if (stream->ask->name_bytes == 0) /* there is no body, or it was not read */
        return;
    json_quote(&quoted, model, strlen(model), JSON_STYLE_ANY);
    CHECK(!quoted.failed);
    size_t needed = stream->body_bytes - stream->ask->name_bytes + quoted.used;
    if (needed > stream->body_room) {
        stream->body = realloc(stream->body, needed);
        CHECK(stream->body != NULL);
        if (grpc_hold(stream->extproc->server, needed - stream->body_room))
            stream->body_room = needed;
    }
    put_name(stream, quoted.data, quoted.used);
    bytes_fini(&quoted);
}

/* False: it has been refused. */
static bool
read_body(struct extproc_stream *stream)
{
    struct extproc_ask *ask = ask_of(stream);
    struct prompt prompt;
    if (stream->extproc->settings->takes_any_body)
        return true;
    const char *mistake = prompt_read(stream->body, stream->body_bytes, &prompt);
    if (mistake != NULL) {
        refuse_invalid(stream, 400, mistake);
        return false;
    }
    ask->name_at = (size_t)(prompt.name.at - stream->body);
    ask->name_bytes = prompt.name.bytes;
    ask->model = prompt.model;
    ask->tokens = prompt.tokens;
    if (ask->rewrite != NULL)
        ask->model = gateway_name_hash(ask->rewrite, strlen(ask->rewrite));
    ask->block_count =
        gateway_prefix_hash(ask->model, prompt.prompt.at, prompt.prompt.bytes, ask->blocks);
    return ask->rewrite == NULL || rewrite(stream);
}

static struct gateway_ask
ask_for_core(const struct extproc_ask *ask, size_t body_bytes)
{
    return (struct gateway_ask){.model = ask->model,
                                .session = ask->session,
                                .label = ask->label,
                                .block_count = ask->block_count,
                                .blocks = ask->blocks,
                                .priority = ask->priority,
                                .has_priority = ask->has_priority,
                                .flow = ask->flow,
                                .bytes = body_bytes,
                                .tokens = ask->tokens,
                                .slo_ms = ask->slo_ms,
                                .subset = ask->has_subset ? ask->subset : NULL,
                                .subset_count = ask->subset_count};
}

/* The request is known: the core chooses, at once or later. */
static void
decide(struct extproc_stream *stream, enum extproc_phase at)
{
    stream->decided_at = at;
    if (stream->state == EXTPROC_READING && !read_body(stream))
        return;
    const struct gateway_ask ask = ask_for_core(ask_of(stream), stream->body_bytes);
    stream->state = EXTPROC_PLACED;
    step(stream, (struct gateway_event){.kind = GATEWAY_REQUEST, .ask = ask});
}

/* After the decision a body may come once more, as an empty piece: Envoy repeats the end of large
 * ones. */
static void
on_request_body(struct extproc_stream *stream, const struct extproc_event *event)
{
    if (stream->state == EXTPROC_OPENED) {
        give_up(stream, STATUS_INVALID_ARGUMENT, "request_body came before request_headers");
        return;
    }
    if (stream->state != EXTPROC_READING) {
        stream->extproc->counters[EXTPROC_COUNT_REPEATED]++;
        return;
    }
    if (!body_reserve(stream, stream->body_bytes + event->body.bytes))
        return;
    if (event->body.bytes > 0)
        memcpy(stream->body + stream->body_bytes, event->body.data, event->body.bytes);
    stream->body_bytes += event->body.bytes;
    if (event->is_end || stream->request_mode == EXTPROC_BODY_BUFFERED)
        decide(stream, EXTPROC_REQUEST_BODY);
}

static void
on_request_trailers(struct extproc_stream *stream)
{
    if (stream->state == EXTPROC_READING) {
        stream->has_trailers = true;
        decide(stream, EXTPROC_REQUEST_TRAILERS);
    } else if (stream->state == EXTPROC_PLACED || stream->is_sending) {
        stream->has_trailers = true;
    } else {
        pass(stream, EXTPROC_REQUEST_TRAILERS);
    }
}

/* Sends the body back as Envoy takes it. */
static void
send_body(struct extproc_stream *stream)
{
    while (stream->is_sending && grpc_waiting(stream->rpc) < AHEAD_BYTES) {
        size_t left = stream->body_bytes - stream->sent;
        size_t piece = left < PIECE_BYTES ? left : PIECE_BYTES;
        struct wire_span data = {.data = stream->body + stream->sent, .bytes = piece};
        stream->sent += piece;
        stream->is_sending = piece < left;
        send_pieces(stream, EXTPROC_REQUEST_BODY, data,
                    stream->is_sending || stream->has_trailers ? EXTPROC_MORE : EXTPROC_END);
    }
    if (stream->is_sending)
        return;
    body_free(stream);
    if (stream->has_trailers)
        pass(stream, EXTPROC_REQUEST_TRAILERS);
    stream->has_trailers = false;
}

void
extproc_on_writable(struct grpc_stream *rpc)
{
    struct extproc_stream *stream = grpc_stream_user(rpc);
    if (stream->is_sending)
        send_body(stream);
}

/* ---- the decision ---- */

static struct extproc_stream *
stream_of(void *context, uint32_t request)
{
    struct extproc *extproc = context;
    struct extproc_stream *stream = &extproc->streams[request - extproc->first_number];
    CHECK(stream->state == EXTPROC_PLACED);
    return stream;
}

/* "first,second,...": the choice, and what Envoy may try when it cannot be reached. */
static void
list_addresses(struct extproc_stream *stream, uint32_t request, const char *first,
               char list[EXTPROC_LIST_BYTES])
{
    const char *others[GATEWAY_TRIES_MAX];
    const struct gateway_ask ask = ask_for_core(stream->ask, stream->body_bytes);
    uint32_t max = (uint32_t)stream->extproc->settings->ext_proc_fallbacks;
    uint32_t count =
        max > 0 ? endpoint_pool_fallbacks(stream->extproc->endpoints, request, &ask, others, max)
                : 0;
    size_t used = (size_t)snprintf(list, EXTPROC_LIST_BYTES, "%s", first);
    for (uint32_t i = 0; i < count && used < EXTPROC_LIST_BYTES; i++)
        used += (size_t)snprintf(list + used, EXTPROC_LIST_BYTES - used, ",%s", others[i]);
    CHECK(used < EXTPROC_LIST_BYTES);
}

void
extproc_on_send(void *context, const struct endpoint_send *send)
{
    char list[EXTPROC_LIST_BYTES];
    struct extproc_stream *stream = stream_of(context, send->request);
    struct extproc_answer answer;
    if (send->model != NULL)
        rewrite_for_route(stream, send->model);
    bool is_duplex = stream->request_mode == EXTPROC_BODY_DUPLEX;
    bool has_body = stream->decided_at != EXTPROC_REQUEST_HEADERS;
    struct wire_span body = {.data = stream->body, .bytes = stream->body_bytes};
    struct extproc_pick pick = {
        .address = list,
        .request_id = stream->has_own_id ? stream->id : NULL,
        .content_length = has_body && (stream->is_rewritten || (is_duplex && !stream->has_trailers))
                              ? (int64_t)stream->body_bytes
                              : -1,
        .body = has_body && !is_duplex && stream->is_rewritten ? &body : NULL,
    };
    list_addresses(stream, send->request, send->address, list);
    stream->state = EXTPROC_PICKED;
    stream->extproc->counters[EXTPROC_COUNT_PICKED]++;
    extproc_write_pick(
        &answer, has_body && !is_duplex ? EXTPROC_REQUEST_BODY : EXTPROC_REQUEST_HEADERS, &pick);
    send_answer(stream, &answer, pick.body != NULL ? body.data : NULL,
                pick.body != NULL ? body.bytes : 0);
    ask_free(stream);
    stream->is_sending = has_body && is_duplex && (stream->body_bytes > 0 || !stream->has_trailers);
    send_body(stream);
}

void
extproc_on_refuse(void *context, uint32_t request, enum gateway_refusal refusal)
{
    struct extproc_stream *stream = stream_of(context, request);
    struct openai_error error = openai_error_of(refusal);
    if (refusal == GATEWAY_REFUSED_NO_ENDPOINT && stream->ask->has_subset)
        error.message = "none of the model servers that the proxy allows can be reached";
    stream->state = EXTPROC_ENDED;
    refuse(stream, &error);
}

/* ---- the answer ---- */

/* Returns whether Envoy made the answer because it lost the server, or did not reach it. It says so
 * only if response_attributes has response.code_details. */
static bool
is_of_envoy(const struct extproc_event *event)
{
    static const char lost[] = "upstream_reset";
    struct wire_span details = extproc_attribute(event, "response.code_details");
    return details.bytes >= sizeof(lost) - 1 && memcmp(details.data, lost, sizeof(lost) - 1) == 0;
}

static void
on_response_headers(struct extproc_stream *stream, struct extproc_event *event)
{
    static const char json[] = "application/json";
    struct wire_span key;
    struct wire_span value;
    if (stream->state == EXTPROC_READING || stream->state == EXTPROC_PLACED) {
        end(stream, GATEWAY_END_CANCELLED); /* Envoy answered the client without us */
        body_free(stream);
        ask_free(stream);
    }
    while (extproc_header_next(&event->headers, &key, &value))
        if (extproc_is(key, "content-type"))
            stream->holds_answer = value.bytes >= sizeof(json) - 1 &&
                                   strncasecmp(value.data, json, sizeof(json) - 1) == 0;
    stream->holds_answer = stream->holds_answer && stream->response_mode == EXTPROC_BODY_DUPLEX;
    stream->broke = is_of_envoy(event);
    pass(stream, EXTPROC_RESPONSE_HEADERS);
    if (stream->state == EXTPROC_PICKED) {
        stream->state = EXTPROC_STARTED;
        step(stream, (struct gateway_event){.kind = GATEWAY_STARTED});
    }
    if (event->is_end)
        end(stream, stream->broke ? GATEWAY_END_BROKE : GATEWAY_END_OK);
}

static void
send_held(struct extproc_stream *stream, enum extproc_end end_of)
{
    struct wire_span held = {.data = stream->held.data, .bytes = stream->held.used};
    send_pieces(stream, EXTPROC_RESPONSE_BODY, held, end_of);
    bytes_fini(&stream->held);
    stream->holds_answer = false;
}

static void
on_response_body(struct extproc_stream *stream, const struct extproc_event *event)
{
    enum extproc_end end_of = event->is_end ? EXTPROC_END : EXTPROC_MORE;
    if (event->body.bytes > 0)
        usage_feed(&stream->tail, event->body.data, event->body.bytes);
    if (stream->response_mode != EXTPROC_BODY_DUPLEX) {
        pass(stream, EXTPROC_RESPONSE_BODY);
    } else if (stream->holds_answer) {
        bytes_put(&stream->held, event->body.data, event->body.bytes);
        CHECK(!stream->held.failed);
        if (event->is_end || stream->held.used >= PIECE_BYTES)
            send_held(stream, end_of);
    } else {
        send_pieces(stream, EXTPROC_RESPONSE_BODY, event->body, end_of);
    }
    if (event->is_end)
        end(stream, stream->broke ? GATEWAY_END_BROKE : GATEWAY_END_OK);
}

static void
on_response_trailers(struct extproc_stream *stream)
{
    if (stream->holds_answer && stream->held.used > 0)
        send_held(stream, EXTPROC_MORE);
    pass(stream, EXTPROC_RESPONSE_TRAILERS);
    end(stream, stream->broke ? GATEWAY_END_BROKE : GATEWAY_END_OK);
}

/* ---- messages ---- */

static void
on_phase(struct extproc_stream *stream, struct extproc_event *event)
{
    switch (event->phase) {
    case EXTPROC_REQUEST_HEADERS:
        if (stream->state == EXTPROC_OPENED)
            on_request_headers(stream, event);
        else
            give_up(stream, STATUS_INVALID_ARGUMENT, "request_headers came twice");
        break;
    case EXTPROC_REQUEST_BODY: on_request_body(stream, event); break;
    case EXTPROC_REQUEST_TRAILERS: on_request_trailers(stream); break;
    case EXTPROC_RESPONSE_HEADERS: on_response_headers(stream, event); break;
    case EXTPROC_RESPONSE_BODY: on_response_body(stream, event); break;
    case EXTPROC_RESPONSE_TRAILERS: on_response_trailers(stream); break;
    case EXTPROC_NOTHING:
        give_up(stream, STATUS_INVALID_ARGUMENT, "a ProcessingRequest without a phase");
        break;
    }
}

void
extproc_on_message(struct grpc_stream *rpc, const void *data, size_t bytes)
{
    struct extproc_stream *stream = grpc_stream_user(rpc);
    struct extproc_event event;
    if (stream->state == EXTPROC_FULL) {
        const struct openai_error full = {.code = 503,
                                          .type = "InternalServerError",
                                          .may_retry = true,
                                          .message = stream->extproc->is_draining
                                                         ? "the gateway is stopping"
                                                         : "the gateway has as many requests as "
                                                           "ext_proc_streams_max allows"};
        stream->extproc->counters[EXTPROC_COUNT_STREAMS_FULL]++;
        notify(rpc, &full, "shoal_gateway_full");
        return;
    }
    if (!extproc_event_read(&event, data, bytes)) {
        give_up(stream, STATUS_INVALID_ARGUMENT, "this is no ProcessingRequest");
        return;
    }
    if (event.only_observes) {
        give_up(stream, STATUS_FAILED_PRECONDITION,
                "observability_mode ignores the choice of a server");
        return;
    }
    if (event.has_modes && stream->state == EXTPROC_OPENED) {
        stream->request_mode = event.request_mode;
        stream->response_mode = event.response_mode;
    }
    if (stream->state == EXTPROC_OPENED || stream->state == EXTPROC_READING)
        take_subset(stream, &event);
    on_phase(stream, &event);
}

void
extproc_on_open(void *context, struct grpc_stream *rpc)
{
    struct extproc *extproc = context;
    struct extproc_stream *stream = extproc_stream_take(extproc, rpc);
    grpc_stream_set_user(rpc, stream != NULL ? stream : &extproc->full);
}

/* An answer of which we see no end is whole if Envoy shows us no bodies. */
void
extproc_on_half_close(struct grpc_stream *rpc)
{
    struct extproc_stream *stream = grpc_stream_user(rpc);
    if (stream->state != EXTPROC_FULL) {
        bool is_whole =
            stream->state == EXTPROC_STARTED && stream->response_mode == EXTPROC_BODY_NONE;
        end(stream, is_whole ? GATEWAY_END_OK : GATEWAY_END_CANCELLED);
        stream_free(stream);
    }
    grpc_finish(rpc, STATUS_OK, NULL);
}

void
extproc_on_gone(struct grpc_stream *rpc)
{
    struct extproc_stream *stream = grpc_stream_user(rpc);
    if (stream->state == EXTPROC_FULL)
        return;
    end(stream, GATEWAY_END_CANCELLED);
    stream_free(stream);
}

void
extproc_on_overflow(struct grpc_stream *rpc, enum grpc_overflow overflow)
{
    struct extproc_stream *stream = grpc_stream_user(rpc);
    bool is_request = stream->state == EXTPROC_OPENED || stream->state == EXTPROC_READING;
    if (is_request && overflow == GRPC_MESSAGE_TOO_LARGE)
        refuse_invalid(stream, 413, "the body is larger than body_mib_max of the gateway allows");
    else if (is_request)
        refuse_full(stream);
    else /* the status says it */
        extproc_on_gone(rpc);
}
