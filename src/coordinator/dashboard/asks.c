/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/dashboard/asks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/check.h"
#include "coordinator/dashboard/pages.h"
#include "coordinator/dashboard/query.h"
#include "coordinator/front/rest_route.h"
#include "coordinator/loop/control.h"
#include "loop/loop.h"

struct list_ask {
    struct list_asks *asks;
    struct http_request *request; /* NULL: the client has gone */
    struct control_request control;
    char id[CONTROL_KEY_BYTES];
    char prefix[CONTROL_KEY_BYTES];
    char node[CONTROL_PATH_BYTES];
    enum status status;
    struct bytes list;
    struct error error;
    STAILQ_ENTRY(list_ask) link;
};

struct list_asks {
    struct asks_options options;
    pthread_mutex_t lock; /* of `is_stopped`: nothing is posted to the node's loop after it */
    bool is_stopped;
    struct list_ask *running; /* at the node's loop; NULL: none */
    uint32_t waiting_count;
    STAILQ_HEAD(, list_ask) waiting;
};

struct list_asks *
asks_create(const struct asks_options *options)
{
    struct list_asks *asks = calloc(1, sizeof(*asks));
    CHECK(asks != NULL);
    asks->options = *options;
    STAILQ_INIT(&asks->waiting);
    CHECK(pthread_mutex_init(&asks->lock, NULL) == 0);
    return asks;
}

void
asks_stop(struct list_asks *asks)
{
    if (asks == NULL)
        return;
    pthread_mutex_lock(&asks->lock);
    asks->is_stopped = true;
    pthread_mutex_unlock(&asks->lock);
}

static void
ask_free(struct list_ask *ask)
{
    bytes_fini(&ask->list);
    free(ask);
}

void
asks_destroy(struct list_asks *asks)
{
    if (asks == NULL)
        return;
    if (asks->running != NULL)
        ask_free(asks->running);
    while (!STAILQ_EMPTY(&asks->waiting)) {
        struct list_ask *ask = STAILQ_FIRST(&asks->waiting);
        STAILQ_REMOVE_HEAD(&asks->waiting, link);
        ask_free(ask);
    }
    pthread_mutex_destroy(&asks->lock);
    free(asks);
}

/* ---- the way to the loop thread and back ---- */

static void
answer(struct list_ask *ask)
{
    struct bytes body = {0};
    int code = 200;
    if (ask->status == STATUS_OK) {
        control_write_list(&body, &ask->list);
    } else {
        control_write_error(&body, &ask->error);
        code = rest_code(ask->status);
    }
    pages_answer_json(ask->request, code, &body);
}

static void run_next(struct list_asks *asks);

static void
on_done(void *context)
{
    struct list_ask *ask = context;
    struct list_asks *asks = ask->asks;
    asks->running = NULL;
    if (ask->request != NULL)
        answer(ask);
    ask_free(ask);
    run_next(asks);
}

/* Runs on the node's loop thread. */
static void
run(void *context)
{
    struct list_ask *ask = context;
    const struct asks_options *options = &ask->asks->options;
    ask->status = options->list(options->context, &ask->control, &ask->list, &ask->error);
    http_thread_post(options->thread, on_done, ask);
}

static void
run_next(struct list_asks *asks)
{
    struct list_ask *ask = STAILQ_FIRST(&asks->waiting);
    if (asks->running != NULL || ask == NULL)
        return;
    pthread_mutex_lock(&asks->lock);
    if (!asks->is_stopped) {
        STAILQ_REMOVE_HEAD(&asks->waiting, link);
        asks->waiting_count--;
        asks->running = ask;
        loop_post(asks->options.loop, run, ask);
    }
    pthread_mutex_unlock(&asks->lock);
}

/* ---- requests ---- */

static enum status
read_verb(const char *query, enum control_verb *verb, struct error *error)
{
    static const enum control_verb lists[] = {CONTROL_MODEL_LIST, CONTROL_MESH_NODES,
                                              CONTROL_MESH_MODELS, CONTROL_MESH_COPIES,
                                              CONTROL_MESH_VMODELS};
    char name[CONTROL_NAME_BYTES];
    (void)query_value(query, "verb", name, sizeof(name));
    for (size_t i = 0; i < ARRAY_COUNT(lists); i++)
        if (strcmp(name, control_verb_name(lists[i])) == 0) {
            *verb = lists[i];
            return STATUS_OK;
        }
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "verb \"%s\": there are model list, mesh nodes, mesh models, mesh copies and "
                     "mesh vmodels",
                     name);
}

static enum status
read_text(const char *query, const char *name, char *text, size_t room, struct error *error)
{
    if (query_value(query, name, text, room) != QUERY_WRONG)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s: too long, or wrongly escaped", name);
}

static enum status
read_number(const char *query, const char *name, uint32_t most, uint32_t *number,
            struct error *error)
{
    char text[12];
    char *end;
    if (query_value(query, name, text, sizeof(text)) == QUERY_ABSENT)
        return STATUS_OK;
    unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || value > most)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: a number from 0 to %u", name, most);
    *number = (uint32_t)value;
    return STATUS_OK;
}

static enum status
read_query(struct list_ask *ask, const char *query, struct error *error)
{
    struct control_request *control = &ask->control;
    *control = (struct control_request){.pipeline = "",
                                        .path = "",
                                        .key = "",
                                        .id = ask->id,
                                        .prefix = ask->prefix,
                                        .node = ask->node,
                                        .limit = ASKS_ROWS_MAX};
    enum status status = read_verb(query, &control->verb, error);
    if (status == STATUS_OK)
        status = read_text(query, "id", ask->id, sizeof(ask->id), error);
    if (status == STATUS_OK)
        status = read_text(query, "prefix", ask->prefix, sizeof(ask->prefix), error);
    if (status == STATUS_OK)
        status = read_text(query, "node", ask->node, sizeof(ask->node), error);
    if (status == STATUS_OK)
        status = read_number(query, "from", UINT32_MAX, &control->from, error);
    if (status == STATUS_OK)
        status = read_number(query, "limit", ASKS_ROWS_MAX, &control->limit, error);
    if (control->limit == 0)
        control->limit = ASKS_ROWS_MAX;
    return status;
}

enum status
asks_take(struct list_asks *asks, struct http_request *request, struct error *error)
{
    if (asks->waiting_count == ASKS_WAITING_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "%d lists are waited for already",
                         ASKS_WAITING_MAX);
    struct list_ask *ask = calloc(1, sizeof(*ask));
    CHECK(ask != NULL);
    ask->asks = asks;
    ask->request = request;
    enum status status = read_query(ask, http_request_query(request), error);
    if (status != STATUS_OK) {
        ask_free(ask);
        return status;
    }
    http_request_set_user(request, ask);
    STAILQ_INSERT_TAIL(&asks->waiting, ask, link);
    asks->waiting_count++;
    run_next(asks);
    return STATUS_OK;
}

void
asks_gone(struct list_asks *asks, struct http_request *request)
{
    struct list_ask *ask = http_request_user(request);
    struct bytes nothing = {0};
    pages_answer_json(request, 503, &nothing);
    ask->request = NULL;
    if (ask == asks->running)
        return;
    STAILQ_REMOVE(&asks->waiting, ask, list_ask, link);
    asks->waiting_count--;
    ask_free(ask);
}
