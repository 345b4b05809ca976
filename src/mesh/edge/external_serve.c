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
    free(served->infer_id);
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

/* ---- sending ---- */

/* The way in which a request goes to the runtime. */
struct external_sending {
    const char *method;
    const char *id; /* of the model */
    enum peer_flow_shape shape;
};

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
send(struct served *served, const struct external_sending *sending,
     const struct external_list *message)
{
    const struct peer_request *from = served->request;
    struct rpc_metadata metadata[PEERS_METADATA_MAX + 2];
    size_t count = from->metadata_count;
    CHECK(count <= PEERS_METADATA_MAX);
    if (count > 0)
        memcpy(metadata, from->metadata, count * sizeof(*metadata));
    metadata[count++] = entry_of("mm-model-id-bin", sending->id);
    if (is_printable(sending->id))
        metadata[count++] = entry_of("mm-model-id", sending->id);
    struct rpc_client_request request = {
        .method = sending->method,
        .kind = RPC_UNARY,
        .deadline_ns = served->deadline_ns,
        .metadata = metadata,
        .metadata_count = count,
        .pieces = peer_flow_has_message(sending->shape) ? message->at : NULL,
        .piece_count = message->count,
        .events = &events,
        .context = served,
    };
    struct rpc_client *client = served->external->serving->clients[from->queue];
    char name[EXTERNAL_NAME_BYTES];
    if (sending->shape != PEER_FLOW_UNARY)
        external_flow_start(served, client, &request, sending->shape,
                            external_name(served->external, sending->id, name));
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
    served->infer_id = NULL;
    served->is_cancelled = false;
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
serve_as(struct served *served, const struct external_sending *sending)
{
    const struct peer_request *request = served->request;
    const struct external_method *method;
    struct id_inject plan;
    struct external_list list;
    char name[EXTERNAL_NAME_BYTES];
    enum status status = permits(served->external, sending->method, &method, &served->refusal);
    if (status != STATUS_OK)
        return status;
    bool has_message = peer_flow_has_message(sending->shape);
    struct external_pieces message = {0};
    if (has_message)
        message = (struct external_pieces){request->pieces, request->piece_count};
    const char *model = external_name(served->external, sending->id, name);
    status = external_list_make(&list, has_message ? method : NULL, &message, model, &plan,
                                &served->refusal);
    if (status == STATUS_OK)
        send(served, sending, &list);
    external_list_fini(&list);
    return status;
}

/* Locked. */
static enum status
serve(struct served *served, const struct runner_attempt *attempt)
{
    const struct peer_request *request = served->request;
    struct external_sending sending = {request->method, attempt->model,
                                       peer_flow_shape(request->flow)};
    if (sending.shape == PEER_FLOW_CLOSED && strcmp(request->method, PEER_FLOW_INFER) == 0) {
        sending.shape = PEER_FLOW_UNARY;
        served->infer_id = strdup(attempt->model);
        CHECK(served->infer_id != NULL);
    }
    return serve_as(served, &sending);
}

/* Locked. A runtime refuses ModelInfer for a model that answers in pieces (Triton's decoupled
 * ones), and the caller takes pieces: the request goes there again, on a stream of its own. True:
 * it is under way. */
static bool
goes_on_as_stream(struct served *served, const struct rpc_client_end *ended)
{
    const struct external *external = served->external;
    const struct external_sending sending = {PEER_FLOW_STREAM_INFER, served->infer_id,
                                             PEER_FLOW_CLOSED};
    const struct external_method *method;
    if (served->infer_id == NULL || served->flow != NULL || served->is_cancelled ||
        ended->status != STATUS_UNIMPLEMENTED || served->serving != external->serving ||
        external->is_closing ||
        !external_status_permits(&external->status, sending.method, &method))
        return false;
    rpc_client_release(served->call);
    served->call = NULL;
    return serve_as(served, &sending) == STATUS_OK;
}

void
external_on_end(void *context, const struct rpc_client_end *ended)
{
    struct served *served = context;
    struct external *external = served->external;
    char text[TEXT_BYTES_MAX];
    struct wire_span received = text_of(served, ended, text);
    pthread_mutex_lock(&external->lock); /* the thread that began it has finished */
    if (goes_on_as_stream(served, ended)) {
        pthread_mutex_unlock(&external->lock);
        return;
    }
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
        .text = received,
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
    request->runtime = external;
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
    struct served *served = request->external;
    if (served != NULL) {
        served->is_cancelled = true;
        rpc_client_cancel(served->call);
    }
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
