/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes, loads and unloads of models at an external runtime.
 *
 * At most as many loadModel are under way as it says (`loaders`). The runner may have `fetches_max`
 * more loads under way, so that fetching files takes none of its places; those whose files are here
 * wait in order, each until its own deadline.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hide_paths.h"
#include "base/log.h"
#include "mesh/edge/external_state.h"

enum { UNLOAD_TRIES_MAX = 90 };

#define PREDICT_NS (NS_PER_S / 2)
#define SIZE_NS (30 * NS_PER_S)
#define UNLOAD_NS (600 * NS_PER_S)
#define UNLOAD_SOON_NS NS_PER_S
#define UNLOAD_LATER_NS (10 * NS_PER_S)

/* A request to the runtime about one model. */
struct external_ask {
    struct external_ask *next; /* list of those to repeat, or of loads that wait */
    struct external *external;
    struct runner_load *load;
    int64_t begun_ns; /* of the last request */
    int64_t again_ns;
    uint32_t tries;
    struct bytes message;             /* names the model; kept for repetition */
    const struct runner_model *model; /* while its files are fetched */
    int64_t deadline_ns;              /* of a load */
    uint64_t starts;                  /* of the runtime that a load is for; 0: of any */
    bool releases;                    /* at its end the runtime has nothing of the model */
    char id[];
};

/* ---- asks ---- */

static struct external_ask *
ask_create(struct external *external, struct runner_load *load, const char *id)
{
    size_t bytes = strlen(id) + 1;
    struct external_ask *ask = calloc(1, sizeof(*ask) + bytes);
    CHECK(ask != NULL);
    ask->external = external;
    ask->load = load;
    memcpy(ask->id, id, bytes);
    return ask;
}

static void
ask_free(struct external_ask *ask)
{
    bytes_fini(&ask->message);
    free(ask);
}

static void
ask_end(struct external_ask *ask, const struct runner_load_end *end)
{
    const struct external_files *files = &ask->external->options.files;
    if (ask->releases && files->fetch != NULL)
        files->release(files->context, ask->id);
    runner_load_ended(ask->external->runner, ask->load, end);
    ask_free(ask);
}

static void
ask_measured(struct external_ask *ask, uint64_t size_bytes)
{
    runner_load_measured(ask->external->runner, ask->load, size_bytes);
    ask_free(ask);
}

/* False: the runtime is gone, even if another has come; the ask still belongs to the caller. */
static bool
ask_send(struct external_ask *ask, const char *method, int64_t timeout_ns,
         const struct rpc_client_events *events)
{
    struct external *external = ask->external;
    struct rpc_piece piece = {.data = ask->message.data, .bytes = ask->message.used};
    CHECK(!ask->message.failed);
    ask->begun_ns = clock_now_ns();
    struct rpc_client_request request = {
        .method = method,
        .kind = RPC_UNARY,
        .deadline_ns = ask->begun_ns + timeout_ns,
        .pieces = &piece,
        .piece_count = ask->message.used > 0,
        .events = events,
        .context = ask,
    };
    pthread_mutex_lock(&external->lock);
    bool is_there = external->is_ready && !external->is_closing &&
                    (ask->starts == 0 || ask->starts == external->starts);
    CHECK(!is_there || external->management != NULL);
    if (is_there)
        external_request(external, external->management, &request);
    pthread_mutex_unlock(&external->lock);
    return is_there;
}

/* "CODE: the runtime's text" */
const char *
external_reason(const struct rpc_client_end *end, char reason[EXTERNAL_REASON_BYTES])
{
    int said = end->text.bytes < EXTERNAL_REASON_BYTES / 2 ? (int)end->text.bytes
                                                           : EXTERNAL_REASON_BYTES / 2;
    const char *text = said == 0 ? "" : end->text.data;
    if (end->status == STATUS_UNKNOWN)
        snprintf(reason, EXTERNAL_REASON_BYTES, "%.*s", said, text);
    else
        snprintf(reason, EXTERNAL_REASON_BYTES, "%s: %.*s", status_name(end->status), said, text);
    return reason;
}

/* A successful load shows that a model server works. Adapters may answer sizes themselves, and
 * unloads of models that their server has lost, so of these only UNAVAILABLE counts. */
enum external_asked { ASKED_TO_LOAD, ASKED_ANYTHING_ELSE };

static void
ask_judge(const struct external_ask *ask, enum external_asked asked,
          const struct rpc_client_end *end)
{
    struct external *external = ask->external;
    char reason[EXTERNAL_REASON_BYTES];
    pthread_mutex_lock(&external->lock);
    if (end->status == STATUS_UNAVAILABLE)
        external_on_unavailable(external, external_circuit_model(ask->id), ask->begun_ns,
                                external_reason(end, reason));
    else if (end->status == STATUS_OK && asked == ASKED_TO_LOAD)
        external_circuit_loaded(&external->circuit);
    pthread_mutex_unlock(&external->lock);
}

/* ---- loads ---- */

static void
on_size_end(void *context, const struct rpc_client_end *end)
{
    struct external_ask *ask = context;
    uint64_t size_bytes = 0;
    uint32_t unused;
    ask_judge(ask, ASKED_ANYTHING_ELSE, end);
    if (end->status != STATUS_OK || !external_read_size(end->message, &size_bytes, &unused))
        log_warn_limited("external_size_failed model=\"%s\" status=%s", ask->id,
                         status_name(end->status));
    ask_measured(ask, size_bytes);
}

static const struct rpc_client_events size_events = {.on_end = on_size_end};

static const char NOT_READY[] = "the runtime of this node is not ready";
static const char BUSY[] =
    "DEADLINE_EXCEEDED: the runtime was busy with other loads until its time was over";

static void loads_begin(struct external *external);

static void
load_end_badly(struct external_ask *ask, enum mesh_load_end end, const char *reason)
{
    ask_end(ask, &(struct runner_load_end){.end = end, .reason = reason});
}

/* Calls of one copy at once; 0: no limit. The runtime knows better if it says less. */
static uint32_t
calls_max(struct external *external, uint32_t said)
{
    pthread_mutex_lock(&external->lock);
    uint32_t max = external->model_calls_max;
    bool limits = external->status.limits_concurrency;
    pthread_mutex_unlock(&external->lock);
    said = limits && said == 0 ? 1 : said;
    return limits && (max == 0 || said < max) ? said : max;
}

static void
on_loaded(struct external_ask *ask, const struct wire_message *message)
{
    struct external *external = ask->external;
    struct runner_load_end loaded = {.end = MESH_LOAD_OK};
    if (!external_read_size(message, &loaded.size_bytes, &loaded.max_concurrency)) {
        load_end_badly(ask, MESH_LOAD_BROKE, "the runtime's answer to loadModel is malformed");
        return;
    }
    ask->releases = false;
    loaded.max_concurrency = calls_max(external, loaded.max_concurrency);
    if (loaded.size_bytes > 0) {
        ask_end(ask, &loaded);
        return;
    }
    loaded.is_measured = true; /* the model serves meanwhile */
    runner_load_ended(external->runner, ask->load, &loaded);
    ask->message.used = 0;
    external_write_id(ask->id, &ask->message);
    if (!ask_send(ask, EXTERNAL_SERVICE "modelSize", SIZE_NS, &size_events))
        ask_measured(ask, 0);
}

/* Callers get the text without paths; the log has all of it. */
static void
on_refused(struct external_ask *ask, const struct rpc_client_end *end)
{
    char reason[EXTERNAL_REASON_BYTES];
    char received[EXTERNAL_REASON_BYTES];
    bool attempted =
        end->status != STATUS_FAILED_PRECONDITION && end->status != STATUS_INVALID_ARGUMENT;
    log_warn_limited("external_load_failed model=\"%s\" error=\"%s\"", ask->id,
                     external_reason(end, reason));
    hide_paths(reason, NULL, 0, received, sizeof(received));
    load_end_badly(ask, attempted ? MESH_LOAD_BROKE : MESH_LOAD_NOT_ATTEMPTED, received);
}

static void
load_leave(struct external *external)
{
    pthread_mutex_lock(&external->lock);
    CHECK(external->loading > 0);
    external->loading--;
    pthread_mutex_unlock(&external->lock);
}

static void
on_load_end(void *context, const struct rpc_client_end *end)
{
    struct external_ask *ask = context;
    struct external *external = ask->external;
    load_leave(external);
    ask_judge(ask, ASKED_TO_LOAD, end);
    if (end->status == STATUS_OK)
        on_loaded(ask, end->message);
    else
        on_refused(ask, end);
    loads_begin(external);
}

static const struct rpc_client_events load_events = {.on_end = on_load_end};

/* The first that waits, if the runtime takes another one; all if there is none, to be refused. */
static struct external_ask *
load_enter(struct external *external)
{
    pthread_mutex_lock(&external->lock);
    struct external_ask *ask = external->waiting;
    bool is_there = external->is_ready && !external->is_closing;
    if (ask != NULL && is_there && external->loading >= external->status.loaders)
        ask = NULL;
    if (ask != NULL) {
        external->waiting = ask->next;
        external->waiting_count--;
        external->loading++;
    }
    pthread_mutex_unlock(&external->lock);
    return ask;
}

static void
loads_begin(struct external *external)
{
    struct external_ask *ask;
    while ((ask = load_enter(external)) != NULL) {
        int64_t left_ns = ask->deadline_ns - clock_now_ns();
        if (left_ns > 0 && ask_send(ask, EXTERNAL_SERVICE "loadModel", left_ns, &load_events))
            continue;
        load_leave(external);
        load_end_badly(ask, MESH_LOAD_NOT_ATTEMPTED, left_ns > 0 ? NOT_READY : BUSY);
    }
}

/* Home knows the deadline of one that waits. */
static void
load_add(struct external_ask *ask, const struct runner_model *model)
{
    struct external *external = ask->external;
    struct external_ask **last = &external->waiting;
    external_write_model(model, &ask->message);
    pthread_mutex_lock(&external->lock);
    while (*last != NULL)
        last = &(*last)->next;
    *last = ask;
    external->waiting_count++;
    pthread_mutex_unlock(&external->lock);
    loads_begin(external);
    pthread_mutex_lock(&external->lock);
    bool is_one_left = external->waiting != NULL;
    pthread_mutex_unlock(&external->lock);
    if (is_one_left)
        external_wake(external);
}

/* Ends those that wait and whose deadline is no later. */
static void
loads_end(struct external *external, int64_t deadline_ns, const char *reason)
{
    struct external_ask *taken = NULL;
    pthread_mutex_lock(&external->lock);
    for (struct external_ask **at = &external->waiting; *at != NULL;) {
        struct external_ask *ask = *at;
        if (ask->deadline_ns > deadline_ns) {
            at = &ask->next;
            continue;
        }
        *at = ask->next;
        external->waiting_count--;
        ask->next = taken;
        taken = ask;
    }
    pthread_mutex_unlock(&external->lock);
    while (taken != NULL) {
        struct external_ask *ask = taken;
        taken = ask->next;
        load_end_badly(ask, MESH_LOAD_NOT_ATTEMPTED, reason);
    }
}

void
external_loads_refuse(struct external *external)
{
    loads_end(external, TIME_NEVER_NS, NOT_READY);
}

/* Returns when the next one's time is over. */
static int64_t
loads_due(struct external *external)
{
    int64_t next_ns = TIME_NEVER_NS;
    loads_end(external, clock_now_ns(), BUSY);
    pthread_mutex_lock(&external->lock);
    for (const struct external_ask *ask = external->waiting; ask != NULL; ask = ask->next)
        next_ns = ask->deadline_ns < next_ns ? ask->deadline_ns : next_ns;
    pthread_mutex_unlock(&external->lock);
    return next_ns;
}

static void
load(void *context, struct runner_load *load, const struct runner_model *model)
{
    struct external *external = context;
    const struct external_files *files = &external->options.files;
    struct external_ask *ask = ask_create(external, load, model->id);
    pthread_mutex_lock(&external->lock);
    int64_t timeout_ns = (int64_t)external->status.load_timeout_ms * NS_PER_MS;
    bool fetches = external->fetches && files->fetch != NULL;
    ask->starts = external->starts;
    pthread_mutex_unlock(&external->lock);
    ask->deadline_ns = clock_now_ns() + timeout_ns;
    ask->model = model;
    ask->releases = true;
    if (!fetches || !files->fetch(files->context, model, ask->deadline_ns, ask))
        load_add(ask, model);
}

/* A time-out is recognized by its text, which is all that other nodes see. */
void
external_fetched(struct external_ask *ask, const struct external_place *place,
                 const struct error *error)
{
    if (error != NULL) {
        struct error reason = *error;
        if (reason.status == STATUS_DEADLINE_EXCEEDED)
            (void)error_prefix(&reason, "%s", status_name(reason.status));
        log_warn_limited("external_load_failed model=\"%s\" error=\"%s\"", ask->id, reason.text);
        load_end_badly(ask, MESH_LOAD_NOT_ATTEMPTED, reason.text);
        return;
    }
    struct runner_model local = *ask->model;
    local.path = place->path;
    local.key = place->key;
    load_add(ask, &local);
}

/* ---- predictions ---- */

static void
on_predict_end(void *context, const struct rpc_client_end *end)
{
    struct external_ask *ask = context;
    struct external *external = ask->external;
    struct runner_load_end size = {.end = MESH_LOAD_OK};
    uint32_t unused;
    ask_judge(ask, ASKED_ANYTHING_ELSE, end);
    if (end->status == STATUS_UNIMPLEMENTED) {
        pthread_mutex_lock(&external->lock);
        external->predicts = false;
        pthread_mutex_unlock(&external->lock);
    } else if (end->status != STATUS_OK ||
               !external_read_size(end->message, &size.size_bytes, &unused)) {
        char reason[EXTERNAL_REASON_BYTES];
        log_warn_limited("external_predict_failed model=\"%s\" error=\"%s\"", ask->id,
                         external_reason(end, reason));
    }
    ask_end(ask, &size);
}

static const struct rpc_client_events predict_events = {.on_end = on_predict_end};

static void
size(void *context, struct runner_load *load, const struct runner_model *model)
{
    struct external *external = context;
    struct external_ask *ask = ask_create(external, load, model->id);
    external_write_model(model, &ask->message);
    pthread_mutex_lock(&external->lock);
    bool predicts = external->predicts;
    pthread_mutex_unlock(&external->lock);
    if (!predicts ||
        !ask_send(ask, EXTERNAL_SERVICE "predictModelSize", PREDICT_NS, &predict_events))
        ask_end(ask, &(struct runner_load_end){.end = MESH_LOAD_OK});
}

/* ---- unloads ---- */

static void
ask_again(struct external_ask *ask)
{
    struct external *external = ask->external;
    CHECK(ask->tries > 0 && ask->tries < UNLOAD_TRIES_MAX);
    ask->again_ns = clock_now_ns() + (ask->tries == 1 ? UNLOAD_SOON_NS : UNLOAD_LATER_NS);
    pthread_mutex_lock(&external->lock);
    ask->next = external->again;
    external->again = ask;
    pthread_mutex_unlock(&external->lock);
    external_step(external);
}

static void
on_unload_end(void *context, const struct rpc_client_end *end)
{
    struct external_ask *ask = context;
    char reason[EXTERNAL_REASON_BYTES];
    ask_judge(ask, ASKED_ANYTHING_ELSE, end);
    if (end->status == STATUS_OK || end->status == STATUS_NOT_FOUND)
        ask_end(ask, &(struct runner_load_end){.end = MESH_LOAD_OK});
    else if (end->status == STATUS_UNAVAILABLE && ++ask->tries < UNLOAD_TRIES_MAX)
        ask_again(ask);
    else
        load_end_badly(ask, MESH_LOAD_BROKE, external_reason(end, reason));
}

static const struct rpc_client_events unload_events = {.on_end = on_unload_end};

/* A runtime that is gone holds no memory of the model. */
static void
unload_send(struct external_ask *ask)
{
    if (!ask_send(ask, EXTERNAL_SERVICE "unloadModel", UNLOAD_NS, &unload_events))
        ask_end(ask, &(struct runner_load_end){.end = MESH_LOAD_OK});
}

static void
unload(void *context, struct runner_load *load, const struct runner_model *model)
{
    struct external *external = context;
    const struct external_files *files = &external->options.files;
    if (files->fetch != NULL)
        files->cancel(files->context, model->id);
    struct external_ask *ask = ask_create(external, load, model->id);
    ask->releases = true;
    external_write_id(model->id, &ask->message);
    unload_send(ask);
}

/* Repeats those that are due; returns when the next one is. */
static int64_t
unload_due(struct external *external)
{
    int64_t now_ns = clock_now_ns();
    int64_t next_ns = TIME_NEVER_NS;
    struct external_ask *due = NULL;
    pthread_mutex_lock(&external->lock);
    bool all = !external->is_ready || external->is_closing;
    for (struct external_ask **at = &external->again; *at != NULL;) {
        struct external_ask *ask = *at;
        if (all || ask->again_ns <= now_ns) {
            *at = ask->next;
            ask->next = due;
            due = ask;
        } else {
            next_ns = ask->again_ns < next_ns ? ask->again_ns : next_ns;
            at = &ask->next;
        }
    }
    pthread_mutex_unlock(&external->lock);
    while (due != NULL) {
        struct external_ask *ask = due;
        due = ask->next;
        unload_send(ask);
    }
    return next_ns;
}

int64_t
external_asks_due(struct external *external)
{
    int64_t load_ns = loads_due(external);
    int64_t unload_ns = unload_due(external);
    return load_ns < unload_ns ? load_ns : unload_ns;
}

struct runner_runtime
external_for_runner(struct external *external)
{
    return (struct runner_runtime){
        .context = external, .size = size, .load = load, .unload = unload};
}
