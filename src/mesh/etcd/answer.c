/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/etcd/answer.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

/* So that a next one exists. */
#define REVISION_MAX (INT64_MAX - 1)

static enum status
malformed(struct error *error, const char *what)
{
    return error_set(error, STATUS_INTERNAL, "invalid answer from etcd: %s", what);
}

static json_t *
parse(const char *text, size_t bytes, struct error *error)
{
    json_error_t failure;
    json_t *root = json_loadb(text, bytes, 0, &failure);
    if (json_is_object(root))
        return root;
    /* the parser's message quotes its input, which may be a token */
    if (root == NULL)
        error_set(error, STATUS_INTERNAL, "invalid answer from etcd: no JSON at byte %d",
                  failure.position);
    else
        malformed(error, "not an object");
    json_decref(root);
    return NULL;
}

static char *
text_copy(struct bump *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(bump_take_zeroed(arena, bytes), text, bytes);
}

/* ---- pieces ---- */

static bool
read_header(const json_t *root, struct etcd_answer *answer)
{
    const json_t *header = etcd_get(root, ETCD_FIELD_HEADER);
    return json_is_object(header) && etcd_get_int(header, ETCD_FIELD_REVISION, &answer->revision) &&
           etcd_get_uint(header, ETCD_FIELD_CLUSTER_ID, &answer->cluster_id) &&
           etcd_get_uint(header, ETCD_FIELD_MEMBER_ID, &answer->member_id) &&
           etcd_get_uint(header, ETCD_FIELD_RAFT_TERM, &answer->raft_term) &&
           answer->revision >= 0 && answer->revision <= REVISION_MAX;
}

static bool
read_kv(const json_t *object, struct bump *arena, struct etcd_kv *kv)
{
    return json_is_object(object) && etcd_get_bytes(object, ETCD_FIELD_KEY, arena, &kv->key) &&
           etcd_get_bytes(object, ETCD_FIELD_VALUE, arena, &kv->value) &&
           etcd_get_int(object, ETCD_FIELD_CREATE_REVISION, &kv->create_revision) &&
           etcd_get_int(object, ETCD_FIELD_MOD_REVISION, &kv->mod_revision) &&
           etcd_get_int(object, ETCD_FIELD_VERSION, &kv->version) &&
           etcd_get_int(object, ETCD_FIELD_LEASE, &kv->lease_id);
}

static bool
read_kvs(const json_t *array, struct bump *arena, struct etcd_response *response)
{
    if (array == NULL)
        return true;
    size_t count = json_array_size(array);
    if (!json_is_array(array))
        return false;
    struct etcd_kv *kvs = bump_take_zeroed(arena, count * sizeof(*kvs));
    for (size_t i = 0; i < count; i++)
        if (!read_kv(json_array_get(array, i), arena, &kvs[i]))
            return false;
    response->kvs = kvs;
    response->kv_count = count;
    return true;
}

static bool
read_response(const json_t *object, enum etcd_op_kind kind, struct bump *arena,
              struct etcd_response *response)
{
    response->kind = kind;
    switch (kind) {
    case ETCD_RANGE:
        return read_kvs(etcd_get(object, ETCD_FIELD_KVS), arena, response) &&
               etcd_get_int(object, ETCD_FIELD_COUNT, &response->count) &&
               etcd_get_bool(object, ETCD_FIELD_MORE, &response->more);
    case ETCD_DELETE:
        return read_kvs(etcd_get(object, ETCD_FIELD_PREV_KVS), arena, response) &&
               etcd_get_int(object, ETCD_FIELD_DELETED, &response->count);
    case ETCD_PUT: break;
    }
    const json_t *previous = etcd_get(object, ETCD_FIELD_PREV_KV);
    if (previous == NULL)
        return true;
    struct etcd_kv *kv = bump_take_zeroed(arena, sizeof(*kv));
    response->kvs = kv;
    response->kv_count = 1;
    return read_kv(previous, arena, kv);
}

static bool
read_one(const json_t *root, enum etcd_op_kind kind, struct etcd_reading *reading)
{
    struct etcd_response *response = bump_take_zeroed(&reading->arena, sizeof(*response));
    reading->answer.responses = response;
    reading->answer.response_count = 1;
    return read_response(root, kind, &reading->arena, response);
}

static bool
read_any(const json_t *object, struct bump *arena, struct etcd_response *response)
{
    static const enum etcd_field kinds[] = {
        [ETCD_RANGE] = ETCD_FIELD_RESPONSE_RANGE,
        [ETCD_PUT] = ETCD_FIELD_RESPONSE_PUT,
        [ETCD_DELETE] = ETCD_FIELD_RESPONSE_DELETE,
    };
    for (size_t kind = 0; kind < ARRAY_COUNT(kinds); kind++) {
        const json_t *inner = etcd_get(object, kinds[kind]);
        if (inner != NULL)
            return json_is_object(inner) &&
                   read_response(inner, (enum etcd_op_kind)kind, arena, response);
    }
    return false;
}

static bool
read_txn(const json_t *root, struct etcd_reading *reading)
{
    const json_t *array = etcd_get(root, ETCD_FIELD_RESPONSES);
    size_t count = json_array_size(array);
    if (!etcd_get_bool(root, ETCD_FIELD_SUCCEEDED, &reading->answer.succeeded) ||
        (array != NULL && !json_is_array(array)))
        return false;
    struct etcd_response *responses = bump_take_zeroed(&reading->arena, count * sizeof(*responses));
    for (size_t i = 0; i < count; i++)
        if (!read_any(json_array_get(array, i), &reading->arena, &responses[i]))
            return false;
    reading->answer.responses = responses;
    reading->answer.response_count = count;
    return true;
}

static bool
read_lease(const json_t *root, struct etcd_reading *reading)
{
    return etcd_get_int(root, ETCD_FIELD_ID, &reading->answer.lease_id) &&
           etcd_get_int(root, ETCD_FIELD_TTL, &reading->answer.ttl_s) &&
           reading->answer.ttl_s >= 0 && reading->answer.ttl_s <= INT32_MAX;
}

static bool
read_kind(enum etcd_answer_kind kind, const json_t *root, struct etcd_reading *reading)
{
    if (!read_header(root, &reading->answer))
        return false;
    switch (kind) {
    case ETCD_KIND_RANGE: return read_one(root, ETCD_RANGE, reading);
    case ETCD_KIND_PUT: return read_one(root, ETCD_PUT, reading);
    case ETCD_KIND_DELETE: return read_one(root, ETCD_DELETE, reading);
    case ETCD_KIND_TXN: return read_txn(root, reading);
    case ETCD_KIND_LEASE:
        return read_lease(root, reading) && reading->answer.lease_id != 0 &&
               reading->answer.ttl_s > 0;
    case ETCD_KIND_RENEW: return read_lease(root, reading);
    case ETCD_KIND_TOKEN:
        reading->token = text_copy(&reading->arena, etcd_get_text(root, ETCD_FIELD_TOKEN));
        return reading->token[0] != '\0' && strpbrk(reading->token, "\r\n") == NULL;
    case ETCD_KIND_HEADER: return true;
    }
    UNREACHABLE();
}

enum status
etcd_answer_read(enum etcd_answer_kind kind, const char *text, size_t bytes,
                 struct etcd_reading *reading, struct error *error)
{
    *reading = (struct etcd_reading){.answer.error = ERROR_NONE};
    json_t *root = parse(text, bytes, error);
    if (root == NULL)
        return error->status;
    const json_t *body = kind == ETCD_KIND_RENEW ? etcd_get(root, ETCD_FIELD_RESULT) : root;
    bool read = json_is_object(body) && read_kind(kind, body, reading);
    json_decref(root);
    return read ? STATUS_OK : malformed(error, "a field is missing or has the wrong type");
}

void
etcd_reading_fini(struct etcd_reading *reading)
{
    bump_fini(&reading->arena);
}

/* ---- failures ---- */

bool
etcd_status_is_refusal(enum status status)
{
    switch (status) {
    case STATUS_INVALID_ARGUMENT:
    case STATUS_NOT_FOUND:
    case STATUS_ALREADY_EXISTS:
    case STATUS_PERMISSION_DENIED:
    case STATUS_RESOURCE_EXHAUSTED:
    case STATUS_FAILED_PRECONDITION:
    case STATUS_OUT_OF_RANGE:
    case STATUS_UNIMPLEMENTED:
    case STATUS_UNAUTHENTICATED: return true;
    case STATUS_OK:
    case STATUS_CANCELLED:
    case STATUS_UNKNOWN:
    case STATUS_DEADLINE_EXCEEDED:
    case STATUS_ABORTED:
    case STATUS_INTERNAL:
    case STATUS_UNAVAILABLE:
    case STATUS_DATA_LOSS:
    case STATUS_COUNT: return false;
    }
    return false;
}

/* Maps an answer without a gRPC code, from the HTTP server in front of the gateway or from a proxy.
 */
static enum status
status_of_http(long http_status)
{
    switch (http_status) {
    case 400:
    case 404:
    case 405:
    case 411:
    case 413:
    case 414:
    case 421:
    case 431: return STATUS_INVALID_ARGUMENT;
    case 401: return STATUS_UNAUTHENTICATED;
    case 403: return STATUS_PERMISSION_DENIED;
    case 429: return STATUS_RESOURCE_EXHAUSTED;
    case 504: return STATUS_DEADLINE_EXCEEDED;
    default: return STATUS_UNAVAILABLE;
    }
}

/* Remedies for two refusals that name none. */
static const char *
hint_for(long http_status, const char *message)
{
    if (strstr(message, "CommonName of client sending a request against gateway") != NULL)
        return " (use one without a common name, with subject alternative names alone)";
    if (http_status == 421)
        return " (the server accepts no requests for this host: see its --host-whitelist)";
    return "";
}

/* Finds code and message of an error body in all forms that gateway versions use. */
static void
read_failure(long http_status, const char *text, size_t bytes, enum status *status,
             char message[ERROR_TEXT_MAX])
{
    struct error ignored = ERROR_NONE;
    json_t *root = parse(text, bytes, &ignored);
    const json_t *failure = etcd_get(root, ETCD_FIELD_ERROR);
    const json_t *body = json_is_object(failure) ? failure : root;
    int64_t code = 0;
    bool is_code =
        (etcd_get(body, ETCD_FIELD_CODE) != NULL && etcd_get_int(body, ETCD_FIELD_CODE, &code)) ||
        (etcd_get(body, ETCD_FIELD_GRPC_CODE) != NULL &&
         etcd_get_int(body, ETCD_FIELD_GRPC_CODE, &code));
    *status = is_code && code > 0 && code < STATUS_COUNT ? (enum status)code
                                                         : status_of_http(http_status);
    const char *said = etcd_get_text(body, ETCD_FIELD_MESSAGE);
    if (said[0] == '\0')
        said = json_string_value(failure) != NULL ? json_string_value(failure) : "";
    text += strspn(text, " \r\n");
    if (root != NULL && said[0] != '\0')
        snprintf(message, ERROR_TEXT_MAX, "%s", said);
    else
        snprintf(message, ERROR_TEXT_MAX, "HTTP %ld %.*s", http_status, (int)strcspn(text, "\r\n"),
                 text);
    json_decref(root);
}

void
etcd_answer_judge(const char *endpoint, long http_status, const char *text, size_t bytes,
                  struct etcd_verdict *verdict)
{
    enum status status;
    char message[ERROR_TEXT_MAX];
    read_failure(http_status, text, bytes, &status, message);
    *verdict = (struct etcd_verdict){.error = ERROR_NONE};
    /* asked before anything is proposed: the server refuses without having done anything */
    bool not_here = strstr(message, "etcdserver: no leader") != NULL ||
                    strstr(message, "etcdserver: rpc not supported for learner") != NULL;
    /* also said after the write was carried out, by the one that crossed the quota */
    bool full = strstr(message, "database space exceeded") != NULL;
    bool refused = etcd_status_is_refusal(status);
    verdict->fate = not_here || (refused && !full) ? ETCD_NOT_DONE : ETCD_UNKNOWN;
    verdict->is_full = full;
    verdict->endpoint_bad = not_here || !refused;
    verdict->token_bad = status == STATUS_UNAUTHENTICATED ||
                         strstr(message, "user name is empty") != NULL ||
                         strstr(message, "revision of auth store is old") != NULL;
    error_set(&verdict->error, status, "%s: %s%s", endpoint, message,
              hint_for(http_status, message));
}

/* ---- watches ---- */

static bool
read_event(const json_t *object, struct bump *arena, struct etcd_event *event)
{
    const json_t *type = etcd_get(object, ETCD_FIELD_TYPE);
    const char *name = json_string_value(type);
    bool is_put = type == NULL || (name != NULL && strcmp(name, "PUT") == 0);
    bool is_delete = name != NULL && strcmp(name, "DELETE") == 0;
    event->kind = is_delete ? ETCD_EVENT_DELETE : ETCD_EVENT_PUT;
    return (is_put || is_delete) && read_kv(etcd_get(object, ETCD_FIELD_KV), arena, &event->kv) &&
           event->kv.mod_revision > 0 && event->kv.mod_revision <= REVISION_MAX;
}

static bool
read_events(const json_t *array, struct etcd_watch_line *line)
{
    if (array == NULL)
        return true;
    size_t count = json_array_size(array);
    line->events = bump_take_zeroed(&line->arena, count * sizeof(*line->events));
    line->event_count = count;
    for (size_t i = 0; i < count; i++)
        if (!read_event(json_array_get(array, i), &line->arena, &line->events[i]))
            return false;
    return json_is_array(array);
}

static bool
read_result(const json_t *result, struct etcd_watch_line *line)
{
    struct etcd_answer header = {.error = ERROR_NONE};
    bool read = json_is_object(result) && read_header(result, &header) &&
                etcd_get_int(result, ETCD_FIELD_WATCH_ID, &line->watch_id) &&
                etcd_get_bool(result, ETCD_FIELD_CREATED, &line->created) &&
                etcd_get_bool(result, ETCD_FIELD_CANCELED, &line->canceled) &&
                etcd_get_bool(result, ETCD_FIELD_FRAGMENT, &line->fragment) &&
                etcd_get_int(result, ETCD_FIELD_COMPACT_REVISION, &line->compact_revision) &&
                read_events(etcd_get(result, ETCD_FIELD_EVENTS), line);
    line->revision = header.revision;
    line->cluster_id = header.cluster_id;
    line->cancel_reason = text_copy(&line->arena, etcd_get_text(result, ETCD_FIELD_CANCEL_REASON));
    return read;
}

enum status
etcd_watch_line_read(const char *endpoint, const char *text, size_t bytes,
                     struct etcd_watch_line *line, struct error *error)
{
    *line = (struct etcd_watch_line){.cancel_reason = "", .failure.error = ERROR_NONE};
    json_t *root = parse(text, bytes, error);
    if (root == NULL)
        return error->status;
    enum status status = STATUS_OK;
    if (etcd_get(root, ETCD_FIELD_ERROR) != NULL) {
        line->failed = true;
        etcd_answer_judge(endpoint, 200, text, bytes, &line->failure);
    } else if (!read_result(etcd_get(root, ETCD_FIELD_RESULT), line)) {
        status = malformed(error, "a field of a watch is missing or has the wrong type");
    }
    json_decref(root);
    return status;
}

void
etcd_watch_line_fini(struct etcd_watch_line *line)
{
    bump_fini(&line->arena);
}
