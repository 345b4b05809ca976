/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/external.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hide_paths.h"
#include "base/log.h"
#include "mesh/edge/external_state.h"

#define SERVICE "/mmesh.ModelRuntime/"

enum { UNLOAD_TRIES_MAX = 90, REASON_BYTES_MAX = 512 };

#define POLL_NS (2 * NS_PER_S)
#define START_NS (180 * NS_PER_S)
#define STATUS_NS (60 * NS_PER_S) /* for one answer; loaded models are unloaded first */
#define PREDICT_NS (NS_PER_S / 2)
#define SIZE_NS (30 * NS_PER_S)
#define UNLOAD_NS (600 * NS_PER_S)
#define UNLOAD_SOON_NS NS_PER_S
#define UNLOAD_LATER_NS (10 * NS_PER_S)

/* A request to the runtime about one model. */
struct external_ask {
    struct external_ask *next; /* list of those to repeat */
    struct external *external;
    struct runner_load *load;
    int64_t begun_ns; /* of the last request */
    int64_t again_ns;
    uint32_t tries;
    struct bytes message;             /* names the model; kept for repetition */
    const struct runner_model *model; /* while its files are fetched */
    int64_t deadline_ns;              /* of a load */
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

/* False: the runtime is gone; the ask still belongs to the caller. */
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
    bool is_there = external->is_ready && !external->is_closing;
    CHECK(!is_there || external->management != NULL);
    if (is_there)
        external_request(external, external->management, &request);
    pthread_mutex_unlock(&external->lock);
    return is_there;
}

/* "CODE: the runtime's text" */
static const char *
reason_of(const struct rpc_client_end *end, char reason[REASON_BYTES_MAX])
{
    int said = end->text.bytes < REASON_BYTES_MAX / 2 ? (int)end->text.bytes : REASON_BYTES_MAX / 2;
    const char *text = said == 0 ? "" : end->text.data;
    if (end->status == STATUS_UNKNOWN)
        snprintf(reason, REASON_BYTES_MAX, "%.*s", said, text);
    else
        snprintf(reason, REASON_BYTES_MAX, "%s: %.*s", status_name(end->status), said, text);
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
    char reason[REASON_BYTES_MAX];
    pthread_mutex_lock(&external->lock);
    if (end->status == STATUS_UNAVAILABLE)
        external_on_unavailable(external, external_circuit_model(ask->id), ask->begun_ns,
                                reason_of(end, reason));
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

static void
load_end_badly(struct external_ask *ask, enum mesh_load_end end, const char *reason)
{
    ask_end(ask, &(struct runner_load_end){.end = end, .reason = reason});
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
    pthread_mutex_lock(&external->lock);
    bool limits = external->status.limits_concurrency;
    pthread_mutex_unlock(&external->lock);
    ask->releases = false;
    loaded.max_concurrency = !limits ? 0 : loaded.max_concurrency == 0 ? 1 : loaded.max_concurrency;
    if (loaded.size_bytes > 0) {
        ask_end(ask, &loaded);
        return;
    }
    loaded.is_measured = true; /* the model serves meanwhile */
    runner_load_ended(external->runner, ask->load, &loaded);
    ask->message.used = 0;
    external_write_id(ask->id, &ask->message);
    if (!ask_send(ask, SERVICE "modelSize", SIZE_NS, &size_events))
        ask_measured(ask, 0);
}

/* Callers get the text without paths; the log has all of it. */
static void
on_load_end(void *context, const struct rpc_client_end *end)
{
    struct external_ask *ask = context;
    char reason[REASON_BYTES_MAX];
    char told[REASON_BYTES_MAX];
    ask_judge(ask, ASKED_TO_LOAD, end);
    if (end->status == STATUS_OK) {
        on_loaded(ask, end->message);
        return;
    }
    bool attempted =
        end->status != STATUS_FAILED_PRECONDITION && end->status != STATUS_INVALID_ARGUMENT;
    log_warn_limited("external_load_failed model=\"%s\" error=\"%s\"", ask->id,
                     reason_of(end, reason));
    hide_paths(reason, NULL, 0, told, sizeof(told));
    load_end_badly(ask, attempted ? MESH_LOAD_BROKE : MESH_LOAD_NOT_ATTEMPTED, told);
}

static const struct rpc_client_events load_events = {.on_end = on_load_end};

static void
load_send(struct external_ask *ask, const struct runner_model *model)
{
    int64_t left_ns = ask->deadline_ns - clock_now_ns();
    external_write_model(model, &ask->message);
    if (!ask_send(ask, SERVICE "loadModel", left_ns > 0 ? left_ns : 1, &load_events))
        load_end_badly(ask, MESH_LOAD_NOT_ATTEMPTED, "the runtime of this node is not ready");
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
    pthread_mutex_unlock(&external->lock);
    ask->deadline_ns = clock_now_ns() + timeout_ns;
    ask->model = model;
    ask->releases = true;
    if (!fetches || !files->fetch(files->context, model, ask->deadline_ns, ask))
        load_send(ask, model);
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
    load_send(ask, &local);
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
        char reason[REASON_BYTES_MAX];
        log_warn_limited("external_predict_failed model=\"%s\" error=\"%s\"", ask->id,
                         reason_of(end, reason));
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
    if (!predicts || !ask_send(ask, SERVICE "predictModelSize", PREDICT_NS, &predict_events))
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
    char reason[REASON_BYTES_MAX];
    ask_judge(ask, ASKED_ANYTHING_ELSE, end);
    if (end->status == STATUS_OK || end->status == STATUS_NOT_FOUND)
        ask_end(ask, &(struct runner_load_end){.end = MESH_LOAD_OK});
    else if (end->status == STATUS_UNAVAILABLE && ++ask->tries < UNLOAD_TRIES_MAX)
        ask_again(ask);
    else
        load_end_badly(ask, MESH_LOAD_BROKE, reason_of(end, reason));
}

static const struct rpc_client_events unload_events = {.on_end = on_unload_end};

/* A runtime that is gone holds no memory of the model. */
static void
unload_send(struct external_ask *ask)
{
    if (!ask_send(ask, SERVICE "unloadModel", UNLOAD_NS, &unload_events))
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

struct runner_runtime
external_for_runner(struct external *external)
{
    return (struct runner_runtime){
        .context = external, .size = size, .load = load, .unload = unload};
}

uint32_t
external_pool(const struct external *external)
{
    return external->options.pool;
}

/* ---- its life: the home queue's thread ---- */

const char *
external_target(const struct external *external)
{
    return external->options.target_count > 0 ? external->targets[external->target] : "";
}

static void
fail(struct external *external, const struct error *error)
{
    external->has_failed = true;
    external_tell(external, error->text);
    log_error("external_failed target=\"%s\" error=\"%s\"", external_target(external), error->text);
    if (external->options.on_failed != NULL)
        external->options.on_failed(external->options.context, error);
}

/* No pings: other servers treat them as an attack, and the machine is the same. */
struct rpc_client_options
external_client_options(const struct external *external, struct rpc_queue *queue,
                        const char *target)
{
    return (struct rpc_client_options){
        .queue = queue,
        .target = target,
        .message_bytes_max = external->options.message_bytes_max,
        .stream_window_bytes = external->options.stream_window_bytes,
    };
}

static void
on_state(void *context)
{
    external_step(context);
}

enum status
external_home_client(struct external *external, const char *target, struct rpc_client **client,
                     struct error *error)
{
    struct rpc_client_options options = external_client_options(external, external->home, target);
    options.on_state = on_state;
    options.context = external;
    return rpc_client_create(&options, client, error);
}

static void
become_ready(struct external *external, struct external_status *told)
{
    struct mesh_capacity capacity = {
        .capacity_bytes = told->capacity_bytes,
        .default_bytes = told->default_bytes,
        .loaders = told->loaders,
        .load_timeout_ms = told->load_timeout_ms,
        .pool = external->options.pool,
    };
    struct error error = ERROR_NONE;
    bool is_trial = false;
    pthread_mutex_lock(&external->lock);
    enum status status = external->is_closing
                             ? error_set(&error, STATUS_CANCELLED, "the node is stopping")
                             : external_serving_create(external, &error);
    if (status == STATUS_OK) {
        external_status_fini(&external->status);
        external->status = *told;
        *told = (struct external_status){.state = EXTERNAL_STARTING};
        external->management = external->candidate;
        external->is_ready = external->predicts = true;
        is_trial = external_begin_trial(external);
        external->starts++;
    }
    bool is_closing = external->is_closing;
    pthread_mutex_unlock(&external->lock);
    external->poll_at_ns = TIME_NEVER_NS;
    external->was_told = false;
    external->was_ready = external->was_ready || status == STATUS_OK;
    if (is_closing)
        return;
    if (status != STATUS_OK) {
        fail(external, &error);
        return;
    }
    if (!is_trial)
        log_info_limited("external_ready target=\"%s\" version=\"%s\" capacity_bytes=%llu",
                         external_target(external), external->status.version,
                         (unsigned long long)capacity.capacity_bytes);
    runner_runtime_ready(external->runner, &capacity);
    pthread_mutex_lock(&external->lock);
    external->is_known = true;
    pthread_mutex_unlock(&external->lock);
    external_tell(external, NULL);
}

/* Asks the next candidate again, unless the time is over. */
static void
not_ready(struct external *external)
{
    int64_t now_ns = clock_now_ns();
    external->poll_at_ns = now_ns + external->options.poll_ns;
    if (!external->was_told)
        log_warn_limited(
            "external_not_ready target=\"%s\" error=\"%s\" action=\"it is asked again\"",
            external_target(external), external->last.text);
    external->was_told = true;
    external_tell(external, external->last.text);
    if (external->was_ready)
        return;
    if (now_ns >= external->give_up_ns) {
        struct error *error = &external->last;
        (void)error_prefix(error, "the runtime is not ready after %lld seconds",
                           (long long)(external->options.start_ns / NS_PER_S));
        external->poll_at_ns = TIME_NEVER_NS;
        fail(external, error);
        return;
    }
    if (external->options.target_count > 1) {
        external->target = (external->target + 1) % external->options.target_count;
        pthread_mutex_lock(&external->lock);
        rpc_client_destroy(external->candidate);
        external->candidate = NULL;
        pthread_mutex_unlock(&external->lock);
    }
}

/* The runtime's status is wrong in a way that repetition cannot change. */
static void
hopeless(struct external *external)
{
    if (external->was_ready || external->is_run) {
        log_warn_limited("external_wrong target=\"%s\" error=\"%s\"", external_target(external),
                         external->last.text);
        not_ready(external);
        return;
    }
    external->poll_at_ns = TIME_NEVER_NS;
    fail(external, &external->last);
}

static void
on_status(struct external *external, const struct wire_message *message)
{
    struct external_status told;
    struct error *error = &external->last;
    error_clear(error);
    enum status status = external_status_read(message, &told, error);
    if (status == STATUS_OK && told.state == EXTERNAL_READY)
        status = external_status_check(&told, error);
    if (status == STATUS_OK && told.state == EXTERNAL_FAILING)
        status = error_set(error, STATUS_FAILED_PRECONDITION, "it says FAILING");
    if (status != STATUS_OK) {
        (void)error_prefix(error, "runtimeStatus");
        hopeless(external);
    } else if (told.state == EXTERNAL_READY) {
        become_ready(external, &told);
    } else {
        (void)error_set(error, STATUS_UNAVAILABLE, "runtimeStatus: it says STARTING");
        not_ready(external);
    }
    external_status_fini(&told);
}

static void
no_status(struct external *external, const struct rpc_client_end *end)
{
    char reason[REASON_BYTES_MAX];
    (void)error_set(&external->last, end->status, "runtimeStatus: %s", reason_of(end, reason));
    if (end->status == STATUS_UNIMPLEMENTED)
        hopeless(external);
    else
        not_ready(external);
}

static void
on_status_end(void *context, const struct rpc_client_end *end)
{
    struct external *external = context;
    bool is_stale = external->is_stale;
    external->is_polling = external->is_stale = false;
    if (is_stale)
        external->poll_at_ns = clock_now_ns();
    else if (end->status == STATUS_OK)
        on_status(external, end->message);
    else
        no_status(external, end);
    external_step(external);
}

static const struct rpc_client_events status_events = {.on_end = on_status_end};

/* Requests the status. */
static void
poll(struct external *external)
{
    struct rpc_client_request request = {
        .method = SERVICE "runtimeStatus",
        .kind = RPC_UNARY,
        .deadline_ns = clock_now_ns() + STATUS_NS,
        .events = &status_events,
        .context = external,
    };
    enum status status = STATUS_OK;
    pthread_mutex_lock(&external->lock);
    if (external->candidate == NULL && !external->is_closing)
        status = external_home_client(external, external_target(external), &external->candidate,
                                      &external->last);
    if (external->candidate != NULL && !external->is_closing) {
        external->is_polling = true;
        external_request(external, external->candidate, &request);
    }
    pthread_mutex_unlock(&external->lock);
    external->poll_at_ns = TIME_NEVER_NS;
    if (status != STATUS_OK)
        hopeless(external);
}

/* Whether the connection to a READY runtime is lost. The client may report it later than the answer
 * READY arrived. */
static void
watch(struct external *external)
{
    pthread_mutex_lock(&external->lock);
    bool is_watched = external->is_ready && !external->is_closing;
    enum rpc_client_state state =
        is_watched ? rpc_client_state(external->management) : RPC_CLIENT_READY;
    bool is_lost = state == RPC_CLIENT_IDLE || state == RPC_CLIENT_FAILING ||
                   (state == RPC_CLIENT_CONNECTING && external->was_seen);
    external->was_seen = is_watched && !is_lost && state == RPC_CLIENT_READY;
    if (is_lost) {
        external->is_ready = external->is_known = false;
        external->management = NULL;
        external_circuit_reset(&external->circuit);
        external->away[0] = '\0';
    }
    pthread_mutex_unlock(&external->lock);
    if (!is_lost)
        return;
    log_warn_limited("external_lost target=\"%s\"", external_target(external));
    external->poll_at_ns = clock_now_ns();
    external_tell(external, "its connection has ended");
    if (external->options.files.fetch != NULL)
        external->options.files.release(external->options.files.context, NULL);
    runner_runtime_lost(external->runner, external->options.pool);
}

static bool
is_closing(struct external *external)
{
    pthread_mutex_lock(&external->lock);
    bool closing = external->is_closing;
    pthread_mutex_unlock(&external->lock);
    return closing;
}

/* At each change: an answer, the connection, a wake, a time reached. */
void
external_step(struct external *external)
{
    external_turn(external);
    watch(external);
    external_ask_suspect(external);
    external_cut_off(external);
    external_answer_refused(external);
    bool is_open = !is_closing(external) && external->options.target_count > 0;
    if (is_open && !external->is_polling && external->poll_at_ns <= clock_now_ns() &&
        !external_probe(external))
        poll(external);
    int64_t unload_ns = unload_due(external);
    int64_t next_ns = external->poll_at_ns < unload_ns ? external->poll_at_ns : unload_ns;
    if (is_open && next_ns < TIME_NEVER_NS)
        rpc_queue_at(external->home, &external->timer, next_ns);
    else
        rpc_timer_drop(external->home, &external->timer);
}

static void
on_time(struct rpc_timer *timer)
{
    external_step((struct external *)(void *)((char *)timer - offsetof(struct external, timer)));
}

static void
on_wake(struct rpc_post *post)
{
    external_step((struct external *)(void *)((char *)post - offsetof(struct external, wake)));
}

void
external_wake(struct external *external)
{
    rpc_queue_post(external->home, &external->wake);
}

/* ---- its user's side ---- */

struct external *
external_create(const struct external_options *options)
{
    struct external *external = calloc(1, sizeof(*external));
    CHECK(external != NULL);
    external->options = *options;
    external->fetches = true;
    external->translates = options->translator.start != NULL;
    external->targets = calloc(options->target_count + 1, sizeof(char *));
    CHECK(external->targets != NULL);
    for (uint32_t i = 0; i < options->target_count; i++) {
        external->targets[i] = strdup(options->targets[i]);
        CHECK(external->targets[i] != NULL);
    }
    if (options->serving != NULL) {
        external->serving_target = strdup(options->serving);
        CHECK(external->serving_target != NULL);
    }
    if (options->poll_ns == 0)
        external->options.poll_ns = POLL_NS;
    if (options->start_ns == 0)
        external->options.start_ns = START_NS;
    external->home = options->queues[0];
    external->wake.run = on_wake;
    external->timer.run = on_time;
    pthread_mutex_init(&external->lock, NULL);
    return external;
}

void
external_start(struct external *external, struct mesh_runner *runner)
{
    external->runner = runner;
    external->give_up_ns = clock_now_ns() + external->options.start_ns;
    external_wake(external);
}

void
external_close(struct external *external)
{
    if (external->options.files.fetch != NULL)
        external->options.files.stop(external->options.files.context);
    if (external->options.translator.start != NULL)
        external->options.translator.stop(external->options.translator.context);
    pthread_mutex_lock(&external->lock);
    external->is_closing = true;
    rpc_client_destroy(external->candidate);
    rpc_client_destroy(external->prober);
    external->candidate = external->management = external->prober = NULL;
    external_serving_close(external);
    pthread_mutex_unlock(&external->lock);
    external_wake(external);
}

void
external_destroy(struct external *external)
{
    if (external == NULL)
        return;
    for (uint32_t i = 0; i < external->options.target_count; i++)
        free(external->targets[i]);
    if (external->options.translator.start != NULL)
        external->options.translator.destroy(external->options.translator.context);
    if (external->options.files.fetch != NULL)
        external->options.files.destroy(external->options.files.context);
    external_aim_free(&external->aim);
    free(external->targets);
    free(external->serving_target);
    free(external->serving);
    external_status_fini(&external->status);
    pthread_mutex_destroy(&external->lock);
    free(external);
}

void
external_look(struct external *external, struct external_view *view)
{
    pthread_mutex_lock(&external->lock);
    view->is_ready = external->is_ready && external->is_known;
    view->is_leaving = external->is_aimed || external->former != NULL;
    view->starts = external->starts;
    view->aways = external->circuit.openings;
    memcpy(view->said, external->away, sizeof(view->said));
    memcpy(view->version, external->status.version, sizeof(view->version));
    memcpy(view->why, external->why, sizeof(view->why));
    pthread_mutex_unlock(&external->lock);
}
