/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of models. A caller's metadata go on, except the mesh's own; the model's id goes into
 * "mm-model-id-bin", into "mm-model-id" if it is printable ASCII, and into the message if the
 * runtime has named a path. Everything that comes back is returned, trailers included.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/edge/external_state.h"

enum { TEXT_BYTES_MAX = 1024 };

/* ---- how it ended ---- */

static void
served_end(struct served *served, const struct runner_end *end, const struct rpc_answer *answer)
{
    struct peer_request *request = served->request;
    request->type->on_ended(request, served->number, end, answer);
    request->type->release(request);
    if (served->call != NULL)
        rpc_client_release(served->call);
    external_flow_free(served->flow);
    free(served);
}

static bool
begins(struct wire_span text, const char *with)
{
    size_t bytes = strlen(with);
    return text.bytes >= bytes && memcmp(text.data, with, bytes) == 0;
}

static bool
ends(struct wire_span text, const char *with)
{
    size_t bytes = strlen(with);
    return text.bytes >= bytes &&
           memcmp((const char *)text.data + text.bytes - bytes, with, bytes) == 0;
}

/* The runtime does not know the model. Triton and MLServer have their own codes for that. */
static bool
is_unknown(enum status status, struct wire_span text)
{
    switch (status) {
    case STATUS_NOT_FOUND: return true;
    case STATUS_UNAVAILABLE:
        return begins(text, "Request for unknown model") &&
               (ends(text, " is not found") || ends(text, " has no available versions"));
    case STATUS_INVALID_ARGUMENT: return begins(text, "Model ") && ends(text, " not found");
    default: return false;
    }
}

static enum mesh_end
end_of(const struct served *served, const struct rpc_client_end *end)
{
    if (is_unknown(end->status, end->text))
        return MESH_END_NOT_HERE;
    if (end->status == STATUS_UNAVAILABLE)
        return MESH_END_UNREACHABLE;
    if (end->status == STATUS_DEADLINE_EXCEEDED && clock_now_ns() >= served->deadline_ns)
        return MESH_END_DEADLINE;
    return MESH_END_OK;
}

/* "package.Service/Method: CODE: the runtime's text" */
static struct wire_span
text_of(const struct served *served, const struct rpc_client_end *end, char text[TEXT_BYTES_MAX])
{
    if (end->status == STATUS_OK)
        return (struct wire_span){NULL, 0};
    int room = TEXT_BYTES_MAX / 2;
    int said = end->text.bytes < TEXT_BYTES_MAX / 2 ? (int)end->text.bytes : room;
    int bytes =
        snprintf(text, TEXT_BYTES_MAX, "%.*s: %s: %.*s", room / 2, served->request->method + 1,
                 status_name(end->status), said, said == 0 ? "" : (const char *)end->text.data);
    return (struct wire_span){text, (size_t)bytes};
}

static uint64_t
took_us(const struct served *served)
{
    return (uint64_t)(clock_now_ns() - served->begun_ns) / NS_PER_US;
}

/* Locked. Calls ended by the node itself are no answers, nor are those of a former runtime; a
 * caller's cancellation may arrive before their common deadline. */
static void
judge(const struct served *served, const struct rpc_client_end *ended, const char *text)
{
    bool is_cut = ended->status == STATUS_CANCELLED || ended->status == STATUS_DEADLINE_EXCEEDED;
    if (served->serving->is_former)
        return;
    if (ended->status == STATUS_UNAVAILABLE && !is_unknown(ended->status, ended->text))
        external_on_unavailable(served->external, served->model, served->begun_ns, text);
    else if (!is_cut)
        external_on_answer(served->external);
    else if (clock_now_ns() >= served->deadline_ns)
        external_on_timeout(served->external, served->model);
}

void
external_on_end(void *context, const struct rpc_client_end *ended)
{
    struct served *served = context;
    struct external *external = served->external;
    char text[TEXT_BYTES_MAX];
    struct wire_span told = text_of(served, ended, text);
    pthread_mutex_lock(&external->lock); /* the thread that began it has finished */
    served->request->external = NULL;
    judge(served, ended, text);
    bool is_left = external_serving_ended(external, served->serving);
    pthread_mutex_unlock(&external->lock);
    if (is_left && external->options.on_change != NULL)
        external->options.on_change(external->options.on_change_context);
    struct runner_end end = {.end = end_of(served, ended), .took_us = took_us(served)};
    if (external->options.on_served != NULL)
        external->options.on_served(external->options.context, served->request->method,
                                    ended->status, (int64_t)end.took_us * NS_PER_US);
    end.vanished = end.end == MESH_END_NOT_HERE;
    struct rpc_kept *kept = NULL;
    struct rpc_piece piece;
    struct rpc_answer answer = {
        .status = ended->status,
        .text = told,
        .initial = ended->initial,
        .initial_count = ended->initial_count,
        .trailers = ended->trailers,
        .trailer_count = ended->trailer_count,
    };
    char said[TEXT_BYTES_MAX + 32];
    if (end.end == MESH_END_UNREACHABLE) { /* INTERNAL: no other node could serve it */
        snprintf(said, sizeof(said), "ModelRuntime UNAVAILABLE: %s", text);
        end.said = said;
        end.said_status = STATUS_INTERNAL;
    }
    if (ended->message != NULL) {
        kept = rpc_message_keep(ended->message);
        piece = rpc_kept_piece(kept);
        answer.pieces = &piece;
        answer.piece_count = 1;
    }
    if (served->flow != NULL && external_flow_end(served->flow, &answer))
        end.took_us = 0;                       /* a stream may last as long as it likes */
    if (served->refusal.status != STATUS_OK) { /* of a message after the first */
        end = (struct runner_end){.end = MESH_END_OK};
        answer = (struct rpc_answer){
            .status = served->refusal.status,
            .text = {served->refusal.text, strlen(served->refusal.text)},
        };
    }
    served_end(served, &end, end.end == MESH_END_OK ? &answer : NULL);
    rpc_kept_release(kept);
}

static const struct rpc_client_events events = {.on_end = external_on_end};

void
external_answer_refused(struct external *external)
{
    pthread_mutex_lock(&external->lock);
    struct served *served = external->refused;
    external->refused = NULL;
    pthread_mutex_unlock(&external->lock);
    while (served != NULL) {
        struct served *next = served->next;
        static const struct runner_end end = {.end = MESH_END_OK};
        struct rpc_answer answer = {
            .status = served->refusal.status,
            .text = {served->refusal.text, strlen(served->refusal.text)},
        };
        served_end(served, &end, &answer);
        served = next;
    }
}

/* ---- the message ---- */

static void
list_put(struct external_list *list, struct rpc_piece piece)
{
    if (list->count == list->room) {
        list->room *= 2;
        struct rpc_piece *more = malloc(list->room * sizeof(*more));
        CHECK(more != NULL);
        memcpy(more, list->at, list->count * sizeof(*more));
        if (list->at != list->at_hand)
            free(list->at);
        list->at = more;
    }
    list->at[list->count++] = piece;
}

void
external_list_fini(struct external_list *list)
{
    if (list->at != list->at_hand)
        free(list->at);
}

/* Bytes of the message. */
static void
list_put_range(struct external_list *list, const struct external_pieces *whole,
               struct id_range range)
{
    uint64_t at = 0;
    for (size_t i = 0; i < whole->count && at < range.to; i++) {
        const struct rpc_piece *piece = &whole->at[i];
        uint64_t from = at < range.from ? range.from - at : 0;
        uint64_t to = at + piece->bytes < range.to ? piece->bytes : range.to - at;
        at += piece->bytes;
        if (from >= to)
            continue;
        struct rpc_piece part = *piece;
        part.offset += (size_t)from;
        part.bytes = (size_t)(to - from);
        list_put(list, part);
    }
}

/* The locations of kept pieces' bytes, as one message. */
struct external_spans {
    struct wire_span *at;
    size_t count;
    size_t bytes;
};

static void
spans_put(struct external_spans *spans, const struct rpc_piece *piece)
{
    const struct wire_message *message = rpc_kept_message(piece->kept);
    size_t skip = piece->offset;
    size_t left = piece->bytes;
    for (size_t i = 0; i < message->span_count && left > 0; i++) {
        struct wire_span span = message->spans[i];
        size_t gone = skip < span.bytes ? skip : span.bytes;
        skip -= gone;
        span.bytes -= gone;
        if (span.bytes == 0)
            continue;
        span.data = (const unsigned char *)span.data + gone;
        span.bytes = span.bytes < left ? span.bytes : left;
        left -= span.bytes;
        spans->at[spans->count++] = span;
        spans->bytes += span.bytes;
    }
}

static struct external_spans
spans_of(const struct external_pieces *from)
{
    size_t count = 1;
    for (size_t i = 0; i < from->count; i++)
        count += rpc_kept_message(from->at[i].kept)->span_count;
    struct external_spans spans = {
        .at = malloc(count * sizeof(struct wire_span))}; /* one per block */
    CHECK(spans.at != NULL);
    for (size_t i = 0; i < from->count; i++)
        spans_put(&spans, &from->at[i]);
    return spans;
}

/* The message with the id; `plan` and `model` must stay until it was sent. */
static enum status
message_inject(struct external_list *list, const struct external_pieces *from,
               const struct external_method *method, const char *model, struct id_inject *plan,
               struct error *error)
{
    struct external_spans spans = spans_of(from);
    struct wire_message message = {spans.at, spans.count, spans.bytes};
    size_t id_bytes = strlen(model);
    enum status status =
        id_inject_plan(&message, method->path, method->depth, id_bytes, plan, error);
    free(spans.at);
    if (status != STATUS_OK)
        return error_prefix(error, "request: no place for the model's id");
    const unsigned char *head = plan->heads;
    for (uint32_t i = 0; i < plan->range_count; i++) {
        list_put_range(list, from, plan->ranges[i]);
        if (plan->head_bytes[i] > 0)
            list_put(list, (struct rpc_piece){.data = head, .bytes = plan->head_bytes[i]});
        head += plan->head_bytes[i];
        if (i + 2 == plan->range_count)
            list_put(list, (struct rpc_piece){.data = model, .bytes = id_bytes});
    }
    return STATUS_OK;
}

enum status
external_list_make(struct external_list *list, const struct external_method *method,
                   const struct external_pieces *from, const char *model, struct id_inject *plan,
                   struct error *error)
{
    list->at = list->at_hand;
    list->count = 0;
    list->room = ARRAY_COUNT(list->at_hand);
    if (method != NULL && method->depth > 0)
        return message_inject(list, from, method, model, plan, error);
    list_put_range(list, from, (struct id_range){0, UINT64_MAX});
    return STATUS_OK;
}

/* ---- sending ---- */

static bool
is_printable(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text < 0x20 || *text > 0x7e)
            return false;
    return true;
}

static struct rpc_metadata
entry_of(const char *key, const char *value)
{
    return (struct rpc_metadata){{key, strlen(key)}, {value, strlen(value)}};
}

/* Locked. */
static void
send(struct served *served, const struct runner_attempt *attempt, enum peer_flow_shape shape,
     const struct external_list *message)
{
    const struct peer_request *from = served->request;
    struct rpc_metadata metadata[PEERS_METADATA_MAX + 2];
    size_t count = from->metadata_count;
    CHECK(count <= PEERS_METADATA_MAX);
    if (count > 0)
        memcpy(metadata, from->metadata, count * sizeof(*metadata));
    metadata[count++] = entry_of("mm-model-id-bin", attempt->model);
    if (is_printable(attempt->model))
        metadata[count++] = entry_of("mm-model-id", attempt->model);
    struct rpc_client_request request = {
        .method = from->method,
        .kind = RPC_UNARY,
        .deadline_ns = attempt->deadline_ns,
        .metadata = metadata,
        .metadata_count = count,
        .pieces = peer_flow_has_message(shape) ? message->at : NULL,
        .piece_count = message->count,
        .events = &events,
        .context = served,
    };
    struct rpc_client *client = served->external->serving->clients[from->queue];
    char name[EXTERNAL_NAME_BYTES];
    if (shape != PEER_FLOW_UNARY)
        external_flow_start(served, client, &request, shape,
                            external_name(served->external, attempt->model, name));
    else
        rpc_client_start(client, &request, &served->call);
}

static struct served *
served_create(struct external *external, struct peer_request *request,
              const struct runner_attempt *attempt)
{
    struct served *served = malloc(sizeof(*served)); /* one per call */
    CHECK(served != NULL);
    served->next = NULL;
    served->external = external;
    served->request = request;
    served->serving = NULL;
    served->call = NULL;
    served->flow = NULL;
    served->model = external_circuit_model(attempt->model);
    served->number = attempt->number;
    served->begun_ns = clock_now_ns();
    served->deadline_ns = attempt->deadline_ns;
    error_clear(&served->refusal);
    request->type->hold(request);
    return served;
}

/* Locked: refuses the call with a status for the caller. */
static enum status
permits(const struct external *external, const char *method, const struct external_method **found,
        struct error *error)
{
    if (external_status_permits(&external->status, method, found))
        return STATUS_OK;
    return error_set(error, STATUS_UNIMPLEMENTED, "Method not found or not permitted: %s",
                     method + 1);
}

/* Locked. */
static enum status
serve(struct served *served, const struct runner_attempt *attempt)
{
    const struct peer_request *request = served->request;
    const struct external_method *method;
    struct id_inject plan;
    struct external_list list;
    char name[EXTERNAL_NAME_BYTES];
    enum status status = permits(served->external, request->method, &method, &served->refusal);
    if (status != STATUS_OK)
        return status;
    enum peer_flow_shape shape = peer_flow_shape(request->flow);
    if (shape == PEER_FLOW_CLOSED && strcmp(request->method, PEER_FLOW_INFER) == 0)
        shape = PEER_FLOW_UNARY;
    bool has_message = peer_flow_has_message(shape);
    struct external_pieces message = {0};
    if (has_message)
        message = (struct external_pieces){request->pieces, request->piece_count};
    const char *model = external_name(served->external, attempt->model, name);
    status = external_list_make(&list, has_message ? method : NULL, &message, model, &plan,
                                &served->refusal);
    if (status == STATUS_OK)
        send(served, attempt, shape, &list);
    external_list_fini(&list);
    return status;
}

enum runner_begun
external_serve(struct external *external, struct runner_call *call,
               const struct runner_attempt *attempt, struct runner_end *end)
{
    struct peer_request *request = call->request;
    *end = (struct runner_end){.end = MESH_END_UNREACHABLE};
    pthread_mutex_lock(&external->lock);
    if (!external->is_ready || external->is_closing) {
        pthread_mutex_unlock(&external->lock);
        return RUNNER_ENDED;
    }
    CHECK(request->queue < external->options.queue_count);
    CHECK(external->serving != NULL && external->serving->clients[request->queue] != NULL);
    struct served *served = served_create(external, request, attempt);
    if (serve(served, attempt) == STATUS_OK) {
        request->external = served;
        served->serving = external->serving;
        served->serving->calls++;
    } else {
        served->next = external->refused;
        external->refused = served;
        external_wake(external);
    }
    pthread_mutex_unlock(&external->lock);
    return RUNNER_UNDER_WAY;
}

void
external_cancel(struct external *external, struct peer_request *request)
{
    pthread_mutex_lock(&external->lock);
    const struct served *served = request->external;
    if (served != NULL)
        rpc_client_cancel(served->call);
    pthread_mutex_unlock(&external->lock);
}

enum status
external_permits(struct external *external, const char *method, struct error *error)
{
    const struct external_method *found;
    pthread_mutex_lock(&external->lock);
    enum status status = external->is_ready ? permits(external, method, &found, error)
                                            : error_set(error, STATUS_UNAVAILABLE,
                                                        "the runtime of this node is not ready");
    pthread_mutex_unlock(&external->lock);
    return status;
}
