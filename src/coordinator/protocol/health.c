/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of services and a list of watchers under one mutex. A watcher is sent a state at most
 * once in a row, under the mutex, so that all see the changes in their order. The mutex also
 * decides which thread ends a watcher's call: the one that takes the watcher off the list. The list
 * is searched by tag, never by pointer, because the memory of an ended call may be another one's
 * already.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <shoal/modelet.h>

#include "base/check.h"
#include "coordinator/protocol/services.h"
#include "grpc/health/v1/health.pb-c.h"
#include "wire/wire.h"

enum { WATCHERS_MAX = 1024, FIELD_SERVICE = 1 };

struct service {
    struct service *next;
    char name[SHOAL_NAME_BYTES_MAX + 1];
    Grpc__Health__V1__HealthCheckResponse__ServingStatus state;
};

struct watcher {
    struct watcher *next;
    uint64_t tag;
    struct rpc_call *call;
    char name[SHOAL_NAME_BYTES_MAX + 1];
};

struct health {
    struct health_others others;
    pthread_mutex_t lock; /* guards everything below */
    struct service *services;
    struct watcher *watchers;
    unsigned watcher_count;
    uint64_t last_tag;
    bool ended;
};

static void *
allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    CHECK(memory != NULL);
    return memory;
}

struct health *
health_create(struct health_others others)
{
    struct health *health = allocate(sizeof(*health));
    health->others = others;
    CHECK(pthread_mutex_init(&health->lock, NULL) == 0);
    return health;
}

void
health_destroy(struct health *health)
{
    if (health == NULL)
        return;
    CHECK(health->watchers == NULL);
    while (health->services != NULL) {
        struct service *next = health->services->next;
        free(health->services);
        health->services = next;
    }
    pthread_mutex_destroy(&health->lock);
    free(health);
}

static struct service *
find_service(const struct health *health, const char *name)
{
    struct service *service = health->services;
    while (service != NULL && strcmp(service->name, name) != 0)
        service = service->next;
    return service;
}

/* ---- messages ---- */

/* The field `service`, terminated. Refuses names that are too long for any service. */
static enum status
decode_service(const struct wire_message *message, char name[SHOAL_NAME_BYTES_MAX + 1],
               struct error *error)
{
    struct wire_cursor cursor = wire_begin(message);
    struct wire_field field;
    enum wire_result result;
    uint64_t bytes = 0;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        if (field.number != FIELD_SERVICE || field.type != WIRE_BYTES)
            continue;
        if ((bytes = field.value) > SHOAL_NAME_BYTES_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT, "service: a name has at most %d bytes",
                             SHOAL_NAME_BYTES_MAX);
        wire_read(&field.data, name, bytes);
    }
    name[bytes] = '\0';
    if (result == WIRE_MALFORMED || !wire_text_ok((const unsigned char *)name, (size_t)bytes))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "request is not a valid HealthCheckRequest");
    return STATUS_OK;
}

/* UNKNOWN is the default and so has no bytes; one field is the maximum. */
enum { RESPONSE_BYTES_MAX = 16 };

static struct rpc_piece
pack_state(Grpc__Health__V1__HealthCheckResponse__ServingStatus state,
           unsigned char bytes[RESPONSE_BYTES_MAX])
{
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = state;
    CHECK(grpc__health__v1__health_check_response__get_packed_size(&response) <=
          RESPONSE_BYTES_MAX);
    return (struct rpc_piece){
        .data = bytes,
        .bytes = grpc__health__v1__health_check_response__pack(&response, bytes),
    };
}

/* ---- watchers; all with the lock held ---- */

static void
end_watcher(struct health *health, struct watcher **link, enum status status, const char *text)
{
    struct watcher *watcher = *link;
    *link = watcher->next;
    health->watcher_count--;
    rpc_call_finish(watcher->call, status, text);
    free(watcher);
}

static enum status
send_state(const struct watcher *watcher,
           Grpc__Health__V1__HealthCheckResponse__ServingStatus state)
{
    unsigned char bytes[RESPONSE_BYTES_MAX];
    struct rpc_piece piece = pack_state(state, bytes);
    return rpc_call_send(watcher->call, &piece, 1);
}

/* A caller that does not read is ended; if it asks again it learns the latest state. */
static void
notify_watchers(struct health *health, const struct service *service)
{
    struct watcher **link = &health->watchers;
    while (*link != NULL) {
        enum status status = STATUS_OK;
        if (strcmp((*link)->name, service->name) == 0)
            status = send_state(*link, service->state);
        if (status == STATUS_OK)
            link = &(*link)->next;
        else
            end_watcher(health, link, status, "too many unread states");
    }
}

static Grpc__Health__V1__HealthCheckResponse__ServingStatus
serving_status(enum health_state state)
{
    return state == HEALTH_SERVING
               ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
               : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
}

void
health_set(struct health *health, const char *name, enum health_state wanted)
{
    size_t bytes = strlen(name);
    CHECK(bytes <= SHOAL_NAME_BYTES_MAX);
    pthread_mutex_lock(&health->lock);
    struct service *service = find_service(health, name);
    if (service == NULL) {
        service = allocate(sizeof(*service));
        memcpy(service->name, name, bytes + 1);
        service->next = health->services;
        health->services = service;
    }
    Grpc__Health__V1__HealthCheckResponse__ServingStatus state = serving_status(wanted);
    bool changed =
        service->state != state; /* a new watcher's is UNKNOWN, which differs from both */
    service->state = state;
    if (changed)
        notify_watchers(health, service);
    pthread_mutex_unlock(&health->lock);
}

void
health_end_watches(struct health *health)
{
    pthread_mutex_lock(&health->lock);
    health->ended = true;
    while (health->watchers != NULL)
        end_watcher(health, &health->watchers, STATUS_UNAVAILABLE, "the server is stopping");
    pthread_mutex_unlock(&health->lock);
}

/* ---- calls ---- */

static bool
find_other(const struct health *health, const char *name,
           Grpc__Health__V1__HealthCheckResponse__ServingStatus *state)
{
    bool serving = false;
    if (health->others.find == NULL || !health->others.find(health->others.context, name, &serving))
        return false;
    *state = serving_status(serving ? HEALTH_SERVING : HEALTH_NOT_SERVING);
    return true;
}

void
health_on_check(struct health *health, struct rpc_call *call, const struct wire_message *message)
{
    char name[SHOAL_NAME_BYTES_MAX + 1];
    struct error error = ERROR_NONE;
    if (decode_service(message, name, &error) != STATUS_OK) {
        rpc_call_finish(call, error.status, error.text);
        return;
    }
    pthread_mutex_lock(&health->lock);
    const struct service *service = find_service(health, name);
    bool known = service != NULL;
    Grpc__Health__V1__HealthCheckResponse__ServingStatus state = known ? service->state : 0;
    pthread_mutex_unlock(&health->lock);
    if (!known && !find_other(health, name, &state)) {
        (void)error_set(&error, STATUS_NOT_FOUND, "service \"%s\": not known here", name);
        rpc_call_finish(call, error.status, error.text);
        return;
    }
    unsigned char bytes[RESPONSE_BYTES_MAX];
    struct rpc_piece piece = pack_state(state, bytes);
    rpc_call_reply(call, &piece, 1);
}

static void
add_watcher(struct health *health, struct rpc_call *call, const char *name)
{
    struct watcher *watcher = allocate(sizeof(*watcher));
    watcher->call = call;
    watcher->tag = ++health->last_tag;
    memcpy(watcher->name, name, strlen(name) + 1);
    watcher->next = health->watchers;
    health->watchers = watcher;
    health->watcher_count++;
    rpc_call_set_tag(call, watcher->tag);
    const struct service *service = find_service(health, name);
    enum status status = send_state(
        watcher, service != NULL
                     ? service->state
                     : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN);
    if (status != STATUS_OK)
        end_watcher(health, &health->watchers, status, NULL);
}

void
health_on_watch(struct health *health, struct rpc_call *call, const struct wire_message *message)
{
    char name[SHOAL_NAME_BYTES_MAX + 1];
    struct error error = ERROR_NONE;
    if (decode_service(message, name, &error) != STATUS_OK) {
        rpc_call_finish(call, error.status, error.text);
        return;
    }
    pthread_mutex_lock(&health->lock);
    if (health->ended) {
        rpc_call_finish(call, STATUS_UNAVAILABLE, "the server is stopping");
    } else if (health->watcher_count == WATCHERS_MAX) {
        (void)error_set(&error, STATUS_RESOURCE_EXHAUSTED, "more than %d watchers", WATCHERS_MAX);
        rpc_call_finish(call, error.status, error.text);
    } else {
        add_watcher(health, call, name);
    }
    pthread_mutex_unlock(&health->lock);
}

void
health_on_cancel(struct health *health, uint64_t tag)
{
    pthread_mutex_lock(&health->lock);
    struct watcher **link = &health->watchers;
    while (*link != NULL && (*link)->tag != tag)
        link = &(*link)->next;
    if (*link != NULL)
        end_watcher(health, link, STATUS_CANCELLED, NULL);
    pthread_mutex_unlock(&health->lock);
}
