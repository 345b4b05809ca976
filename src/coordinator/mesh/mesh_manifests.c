/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_manifests.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "serving/storage/storage.h"
#include "shoal/manifests.pb-c.h"
#include "wire/wire.h"

enum {
    WAITING_MAX = 256,
    REQUEST_BYTES_MAX = 512 << 10,
    PAGE_BYTES = 1 << 20,
};

enum method { METHOD_PUT, METHOD_DELETE, METHOD_LIST };

#define SERVICE "/shoal.manifests.Manifests/"

static const char *const paths[MANIFESTS_METHOD_COUNT] = {
    [METHOD_PUT] = SERVICE "put",
    [METHOD_DELETE] = SERVICE "delete",
    [METHOD_LIST] = SERVICE "list",
};

/* A call, from its message until its answer. */
struct manifests_call {
    struct manifests_call *next;
    struct manifests_call *before;
    struct mesh_manifests *manifests;
    struct rpc_call *call; /* NULL: answered */
    enum method method;
    ProtobufCMessage *message;
};

struct mesh_manifests {
    struct loop *loop;
    struct mesh_runner *runner;
    struct serving_leader *leader;
    struct manifests_call running; /* ring of those begun; loop thread */
    pthread_mutex_t lock;
    struct manifests_call *waiting; /* the last one first; with the lock, as the next two */
    uint32_t waiting_count;
    bool stopped;
};

/* ---- the end of a call ---- */

static void
request_free(struct manifests_call *request)
{
    if (request->next != NULL) {
        request->next->before = request->before;
        request->before->next = request->next;
    }
    protobuf_c_message_free_unpacked(request->message, NULL);
    free(request);
}

static void
finish(struct manifests_call *request, const struct error *error)
{
    if (request->call != NULL)
        rpc_call_finish(request->call, error->status, error->text);
    request->call = NULL;
}

static void
reply(struct manifests_call *request, const ProtobufCMessage *message)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = malloc(bytes + 1);
    CHECK(packed != NULL);
    protobuf_c_message_pack(message, packed);
    if (request->call != NULL)
        rpc_call_reply(request->call, &(struct rpc_piece){.data = packed, .bytes = bytes},
                       bytes > 0);
    request->call = NULL;
    free(packed);
}

static char *
loose(const char *text)
{
    return (char *)(uintptr_t)text;
}

static void
on_answer(void *context, const struct serving_answer *answer)
{
    struct manifests_call *request = context;
    Shoal__Manifests__Done done = SHOAL__MANIFESTS__DONE__INIT;
    if (answer->error->status != STATUS_OK) {
        finish(request, answer->error);
    } else {
        done.version = answer->version;
        done.done = loose(answer->done);
        reply(request, &done.base);
    }
    request_free(request);
}

/* ---- lists ---- */

struct manifests_page {
    Shoal__Manifests__ListResponse response;
    size_t bytes;
    size_t capacity;
    char *next;
};

static char *
copy(const char *text)
{
    char *made = strdup(text);
    CHECK(made != NULL);
    return made;
}

static bool
add_object(void *context, const struct serving_seen *seen)
{
    struct manifests_page *page = context;
    size_t bytes = strlen(seen->manifest) + strlen(seen->status) + STORE_ID_BYTES_MAX;
    Shoal__Manifests__ListResponse *response = &page->response;
    if (response->n_objects > 0 && page->bytes + bytes > PAGE_BYTES)
        return false;
    if (response->n_objects == page->capacity) {
        page->capacity = page->capacity * 2 + 16;
        // NOLINTNEXTLINE(bugprone-sizeof-expression): pointers
        size_t bytes_wanted = page->capacity * sizeof(*response->objects);
        response->objects = realloc(response->objects, bytes_wanted);
        CHECK(response->objects != NULL);
    }
    Shoal__Manifests__Object *object = malloc(sizeof(*object));
    CHECK(object != NULL);
    shoal__manifests__object__init(object);
    object->kind = copy(manifest_kind_name(seen->kind));
    object->name = copy(seen->name);
    object->version = seen->version;
    object->created_ms = seen->created_ms;
    object->deleted = seen->deleted;
    object->manifest = copy(seen->manifest);
    object->status = copy(seen->status);
    response->objects[response->n_objects++] = object;
    page->bytes += bytes;
    free(page->next);
    page->next = copy(seen->id);
    return true;
}

/* The page after the last one is empty, so its caller stops there. */
static void
list(struct manifests_call *request)
{
    const Shoal__Manifests__ListRequest *message = (void *)request->message;
    struct manifests_page page = {.response = SHOAL__MANIFESTS__LIST_RESPONSE__INIT};
    struct error error = ERROR_NONE;
    if (serving_list(request->manifests->leader, message->after, add_object, &page, &error) ==
        STATUS_OK) {
        page.response.next = page.next != NULL ? page.next : loose("");
        reply(request, &page.response.base);
    } else {
        finish(request, &error);
    }
    for (size_t i = 0; i < page.response.n_objects; i++)
        shoal__manifests__object__free_unpacked(page.response.objects[i], NULL);
    free(page.response.objects);
    free(page.next);
    request_free(request);
}

/* ---- the loop thread ---- */

static void
begin(struct manifests_call *request)
{
    struct serving_leader *leader = request->manifests->leader;
    const Shoal__Manifests__PutRequest *put = (void *)request->message;
    const Shoal__Manifests__DeleteRequest *gone = (void *)request->message;
    struct error error = ERROR_NONE;
    enum manifest_kind kind;
    switch (request->method) {
    case METHOD_PUT:
        serving_put(leader, put->manifest, strlen(put->manifest), put->version, on_answer, request);
        return;
    case METHOD_DELETE:
        if (manifest_kind_find(gone->kind, &kind) &&
            strlen(gone->name) <= MANIFEST_NAME_BYTES_MAX) {
            serving_delete(leader, kind, gone->name, on_answer, request);
            return;
        }
        error_set(&error, STATUS_INVALID_ARGUMENT, "there is no such kind, or no such name");
        finish(request, &error);
        request_free(request);
        return;
    case METHOD_LIST: list(request); return;
    }
}

static struct manifests_call *
take_waiting(struct mesh_manifests *manifests)
{
    struct manifests_call *ordered = NULL;
    pthread_mutex_lock(&manifests->lock);
    for (struct manifests_call *at = manifests->waiting; at != NULL;) {
        struct manifests_call *next = at->next;
        at->next = ordered;
        ordered = at;
        at = next;
    }
    manifests->waiting = NULL;
    manifests->waiting_count = 0;
    pthread_mutex_unlock(&manifests->lock);
    return ordered;
}

static void
on_posted(void *context)
{
    struct mesh_manifests *manifests = context;
    for (struct manifests_call *at = take_waiting(manifests); at != NULL;) {
        struct manifests_call *next = at->next;
        at->next = manifests->running.next;
        at->before = &manifests->running;
        at->next->before = at;
        manifests->running.next = at;
        begin(at);
        at = next;
    }
}

void
mesh_manifests_stop(struct mesh_manifests *manifests)
{
    struct error error;
    if (manifests == NULL)
        return;
    error_set(&error, STATUS_UNAVAILABLE, "the node is stopping");
    serving_leader_stop(manifests->leader);
    pthread_mutex_lock(&manifests->lock);
    manifests->stopped = true;
    pthread_mutex_unlock(&manifests->lock);
    for (struct manifests_call *at = take_waiting(manifests); at != NULL;) {
        struct manifests_call *next = at->next;
        at->next = NULL;
        finish(at, &error);
        request_free(at);
        at = next;
    }
    /* Those that run are the leader's, which may still answer them. */
    for (struct manifests_call *at = manifests->running.next; at != &manifests->running;
         at = at->next)
        finish(at, &error);
}

/* ---- the front thread ---- */

/* Texts would end at it without a word. */
static bool
has_nul(const struct wire_message *message)
{
    struct wire_cursor cursor = wire_begin(message);
    struct wire_field field;
    while (wire_next(&cursor, &field) == WIRE_FIELD) {
        const unsigned char *data;
        size_t bytes;
        while (field.type == WIRE_BYTES && (bytes = wire_run(&field.data, &data)) > 0) {
            if (memchr(data, '\0', bytes) != NULL)
                return true;
            wire_skip(&field.data, bytes);
        }
    }
    return false;
}

static ProtobufCMessage *
unpack(enum method method, const struct wire_message *message)
{
    static const ProtobufCMessageDescriptor *const types[MANIFESTS_METHOD_COUNT] = {
        [METHOD_PUT] = &shoal__manifests__put_request__descriptor,
        [METHOD_DELETE] = &shoal__manifests__delete_request__descriptor,
        [METHOD_LIST] = &shoal__manifests__list_request__descriptor,
    };
    struct wire_cursor cursor = wire_begin(message);
    size_t bytes = (size_t)cursor.left;
    if (cursor.left > REQUEST_BYTES_MAX || has_nul(message))
        return NULL;
    uint8_t *packed = malloc(bytes + 1);
    CHECK(packed != NULL);
    wire_read(&cursor, packed, bytes);
    ProtobufCMessage *unpacked = protobuf_c_message_unpack(types[method], NULL, bytes, packed);
    free(packed);
    return unpacked;
}

static void
hand_over(struct mesh_manifests *manifests, struct manifests_call *request)
{
    struct error error = ERROR_NONE;
    pthread_mutex_lock(&manifests->lock);
    if (manifests->stopped)
        error_set(&error, STATUS_UNAVAILABLE, "the node is stopping");
    else if (manifests->waiting_count == WAITING_MAX)
        error_set(&error, STATUS_RESOURCE_EXHAUSTED, "%d calls wait already", WAITING_MAX);
    if (error.status == STATUS_OK) {
        request->next = manifests->waiting;
        manifests->waiting = request;
        if (manifests->waiting_count++ == 0)
            loop_post(manifests->loop, on_posted, manifests);
    }
    pthread_mutex_unlock(&manifests->lock);
    if (error.status == STATUS_OK)
        return;
    finish(request, &error);
    request_free(request);
}

void
mesh_manifests_on_message(struct mesh_manifests *manifests, struct rpc_call *call,
                          const struct wire_message *message)
{
    enum method method = METHOD_PUT;
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): it is one of them
    while (strcmp(paths[method], rpc_call_method(call)) != 0)
        method++;
    ProtobufCMessage *unpacked = unpack(method, message);
    if (unpacked == NULL) {
        rpc_call_finish(
            call, STATUS_INVALID_ARGUMENT,
            "request is no valid message of shoal.manifests, has over 512 KiB, or has a "
            "NUL byte in a text");
        return;
    }
    struct manifests_call *request = calloc(1, sizeof(*request));
    CHECK(request != NULL);
    *request = (struct manifests_call){
        .manifests = manifests, .call = call, .method = method, .message = unpacked};
    hand_over(manifests, request);
}

/* ---- credentials ---- */

struct entry_list {
    struct storage_entry *items;
    uint32_t count;
};

static void
add_entry(void *context, const char *name, const char *text)
{
    struct entry_list *list = context;
    list->items = realloc(list->items, (list->count + 1) * sizeof(*list->items));
    CHECK(list->items != NULL);
    list->items[list->count++] = (struct storage_entry){copy(name), copy(text)};
}

static void
on_credentials(void *context, const struct manifest *secret)
{
    struct storage *storage = context;
    struct entry_list list = {.count = 0};
    if (storage == NULL)
        return;
    if (secret != NULL)
        manifest_secret_visit(secret, add_entry, &list);
    storage_set_entries(storage, list.items, list.count);
    log_info("storage_entries count=%u", list.count);
    for (uint32_t i = 0; i < list.count; i++) {
        explicit_bzero(loose(list.items[i].text), strlen(list.items[i].text));
        free(loose(list.items[i].text));
        free(loose(list.items[i].name));
    }
    free(list.items);
}

/* ---- life ---- */

void
mesh_manifests_methods(struct rpc_method methods[MANIFESTS_METHOD_COUNT],
                       void (*on_message)(void *context, struct rpc_call *call,
                                          const struct wire_message *message))
{
    for (size_t i = 0; i < MANIFESTS_METHOD_COUNT; i++)
        methods[i] =
            (struct rpc_method){.path = paths[i], .kind = RPC_UNARY, .on_message = on_message};
}

struct mesh_manifests *
mesh_manifests_create(struct loop *loop, struct mesh_runner *runner, const struct config *config,
                      struct storage *storage)
{
    struct mesh_manifests *manifests = calloc(1, sizeof(*manifests));
    CHECK(manifests != NULL);
    manifests->loop = loop;
    manifests->runner = runner;
    manifests->leader = serving_leader_create(&(struct serving_leader_options){
        .loop = loop,
        .runner = runner,
        .types =
            config->mesh.type_constraints != NULL ? SERVING_TYPES_GIVEN : SERVING_TYPES_DERIVED,
        .folder = config->manifests,
        .node = config->mesh.instance,
        .on_credentials = on_credentials,
        .context = storage,
    });
    manifests->running.next = manifests->running.before = &manifests->running;
    CHECK(pthread_mutex_init(&manifests->lock, NULL) == 0);
    return manifests;
}

struct serving_leader *
mesh_manifests_leader(struct mesh_manifests *manifests)
{
    return manifests->leader;
}

struct store_events
mesh_manifests_events(struct mesh_manifests *manifests)
{
    struct store_events next = runner_events(manifests->runner);
    return serving_leader_events(manifests->leader, &next);
}

void
mesh_manifests_start(struct mesh_manifests *manifests, struct store *store)
{
    serving_leader_start(manifests->leader, store);
}

void
mesh_manifests_destroy(struct mesh_manifests *manifests)
{
    if (manifests == NULL)
        return;
    serving_leader_destroy(manifests->leader);
    while (manifests->running.next != &manifests->running)
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it leaves the list
        request_free(manifests->running.next);
    pthread_mutex_destroy(&manifests->lock);
    free(manifests);
}
