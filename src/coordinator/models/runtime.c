/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call becomes an `ask`, which begins on the loop thread, waits in a list until models.h reports
 * the outcome, and is answered. An ask may outlive its answer: a prediction that takes too long,
 * and asks unanswered at the node's end, are answered before models.h is done with them.
 */
#include "coordinator/models/runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/models/model_health.h"
#include "coordinator/models/runtime_answer.h"
#include "coordinator/models/runtime_place.h"
#include "coordinator/models/runtime_request.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/protocol/services.h"

enum {
    ASKS_MAX = 1024, /* a mesh has a few at a time; each takes 6 KB */
    ARMED_CALLS = 8,
    CONCURRENT_STREAMS_MAX = 4096,
    PREDICT_LOOK_MS = 50
};

/* A mesh waits half a second for a prediction, then takes the default size. */
#define PREDICT_NS (NS_PER_S / 5)
/* The time that answers under way have at the end, as at the front. */
#define LAST_ANSWERS_NS (NS_PER_S / 2)

struct runtime_ask {
    struct runtime_ask *next;
    struct runtime_ask **link; /* the link that points to it; NULL: not in the list */
    struct runtime *runtime;
    const struct runtime_method *method;
    struct rpc_call *call; /* NULL: it is answered */
    struct catalog *catalog;
    int64_t begun_ns;
    struct runtime_request request;
};

struct runtime {
    struct services services; /* first: SERVICES_METHODS wants it so */
    struct runtime_options options;
    struct runtime_place place;
    struct rpc_server *server; /* NULL: all of its addresses are the front's */
    struct runtime_ask *asks;  /* begun */
    struct loop_timer *predict_timer;
    bool predict_timed;
    bool purging;
    bool draining;
    pthread_mutex_t lock; /* guards the members below */
    uint32_t ask_count;
    bool ended;
};

/* ---- answers ---- */

static void
ask_free(struct runtime_ask *ask)
{
    struct runtime *runtime = ask->runtime;
    if (ask->link != NULL) {
        *ask->link = ask->next;
        if (ask->next != NULL)
            ask->next->link = ask->link;
    }
    pthread_mutex_lock(&runtime->lock);
    runtime->ask_count--;
    pthread_mutex_unlock(&runtime->lock);
    free(ask);
}

static void
ask_reply(struct runtime_ask *ask, const void *message, size_t bytes)
{
    if (ask->call == NULL)
        return;
    struct rpc_piece piece = {.data = message, .bytes = bytes};
    rpc_call_reply(ask->call, &piece, bytes > 0);
    ask->call = NULL;
}

static void
ask_fail(struct runtime_ask *ask, enum status status, const char *text)
{
    if (ask->call == NULL)
        return;
    rpc_call_finish(ask->call, status, text);
    ask->call = NULL;
}

static void
ask_reply_facts(struct runtime_ask *ask, const struct model_facts *facts)
{
    unsigned char message[RUNTIME_ANSWER_BYTES];
    ask_reply(ask, message, runtime_answer_facts(facts, message));
}

/* ---- loads ---- */

/* Ends every ask but runtimeStatus when models.h reports its outcome. */
static void
on_done(void *context, const struct error *error, const struct model_facts *facts)
{
    struct runtime_ask *ask = context;
    if (error != NULL)
        ask_fail(ask, error->status, error->text);
    else if (facts != NULL)
        ask_reply_facts(ask, facts);
    else
        ask_reply(ask, NULL, 0);
    ask_free(ask);
}

/* Size 0 would mean that the mesh must ask by modelSize. */
static void
on_loaded(void *context, const struct error *error, const struct model_facts *facts)
{
    struct model_facts reported = {0};
    if (facts != NULL)
        reported = *facts;
    reported.bytes += reported.bytes == 0;
    on_done(context, error, &reported);
}

static struct model_spec
spec_of(const struct runtime_ask *ask)
{
    return (struct model_spec){
        .id = ask->request.id, .path = ask->request.path, .key = ask->request.key};
}

static enum status
find_catalog(struct runtime_ask *ask, struct error *error)
{
    const struct runtime_options *options = &ask->runtime->options;
    const char *type = ask->request.type;
    ask->catalog = models_catalog_for(options->pipelines, options->pipeline_count, type);
    if (ask->catalog != NULL)
        return STATUS_OK;
    if (type[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "modelKey has no \"model_type\", and several pipelines have models: it is "
                         "unclear which one must load it");
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "models of type \"%s\" are loaded by no pipeline: none has it in its `types`",
                     type);
}

/* FAILED_PRECONDITION and INVALID_ARGUMENT show a mesh that nothing was begun. */
static enum status
may_load(struct runtime_ask *ask, struct error *error)
{
    if (ask->runtime->draining)
        return error_set(error, STATUS_UNAVAILABLE,
                         "the node is stopping: it loads no more models");
    if (ask->runtime->purging)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "runtimeStatus has all models unloaded: load after it has answered READY");
    return find_catalog(ask, error);
}

static enum status
begin_load(struct runtime_ask *ask, struct error *error)
{
    enum status status = may_load(ask, error);
    struct model_spec spec = spec_of(ask);
    if (status == STATUS_OK)
        models_load(ask->catalog, &spec, on_loaded, ask);
    return status;
}

static enum status
begin_unload(struct runtime_ask *ask, struct error *error)
{
    (void)error;
    models_unload(ask->runtime->options.registry, ask->request.id, on_done, ask);
    return STATUS_OK;
}

static enum status
begin_size(struct runtime_ask *ask, struct error *error)
{
    struct model_facts facts = {0};
    if (!models_size(ask->runtime->options.registry, ask->request.id, &facts.bytes))
        return error_set(error, STATUS_NOT_FOUND, "model \"%s\" is not loaded", ask->request.id);
    on_done(ask, NULL, &facts);
    return STATUS_OK;
}

/* ---- predictions ---- */

static void
time_predictions(struct runtime *runtime)
{
    if (!runtime->predict_timed)
        loop_timer_set(runtime->predict_timer, PREDICT_LOOK_MS * (int64_t)NS_PER_MS);
    runtime->predict_timed = true;
}

static enum status
begin_predict(struct runtime_ask *ask, struct error *error)
{
    enum status status = find_catalog(ask, error);
    if (status != STATUS_OK)
        return status;
    ask->begun_ns = clock_now_ns();
    time_predictions(ask->runtime);
    struct model_spec spec = spec_of(ask);
    models_predict(ask->catalog, &spec, on_done, ask);
    return STATUS_OK;
}

/* A worker that is loading may not get to a prediction for long, and the caller must not wait for
 * that. */
static void
predict_late(struct runtime_ask *ask)
{
    struct catalog_facts catalog;
    models_facts(ask->catalog, &catalog);
    struct model_facts facts = {.bytes = catalog.default_bytes};
    ask_reply_facts(ask, &facts);
}

static void
on_predict_time(void *context)
{
    struct runtime *runtime = context;
    int64_t late_ns = clock_now_ns() - PREDICT_NS;
    bool more = false;
    runtime->predict_timed = false;
    for (struct runtime_ask *ask = runtime->asks; ask != NULL; ask = ask->next) {
        bool waits = ask->begun_ns != 0 && ask->call != NULL;
        if (waits && ask->begun_ns <= late_ns)
            predict_late(ask);
        else
            more = more || waits;
    }
    if (more)
        time_predictions(runtime);
}

/* ---- the node's state ---- */

static bool
all_serving(const struct runtime *runtime)
{
    return runtime_figures(runtime->options.pipelines, runtime->options.pipeline_count).are_serving;
}

static bool
any_failing(const struct runtime *runtime)
{
    for (uint32_t i = 0; i < runtime->options.pipeline_count; i++) {
        struct pipeline *pipeline = runtime->options.pipelines[i];
        if (pipeline->catalog != NULL && pipeline_is_failing(pipeline))
            return true;
    }
    return false;
}

static void
ask_reply_status(struct runtime_ask *ask)
{
    const struct runtime *runtime = ask->runtime;
    enum runtime_state state = RUNTIME_STARTING;
    if (any_failing(runtime))
        state = RUNTIME_FAILING;
    else if (all_serving(runtime) && !runtime->purging)
        state = RUNTIME_READY;
    size_t bytes;
    void *message = runtime_answer_status(runtime->options.pipelines,
                                          runtime->options.pipeline_count, state, &bytes);
    ask_reply(ask, message, bytes);
    free(message);
}

static void
on_purged(void *context, const struct error *error, const struct model_facts *facts)
{
    struct runtime_ask *ask = context;
    (void)facts;
    ask->runtime->purging = false;
    if (error != NULL) {
        log_warn_limited("runtime_purge_failed error=\"%s\"", error->text);
        ask_fail(ask, error->status, error->text);
    } else {
        log_info_limited("runtime_purged");
        ask_reply_status(ask);
    }
    ask_free(ask);
}

/* The call that began the purge waits for its end: a mesh asks every two seconds and would learn of
 * it that much later. Other calls are answered STARTING meanwhile. */
static enum status
begin_status(struct runtime_ask *ask, struct error *error)
{
    struct runtime *runtime = ask->runtime;
    if (runtime->draining)
        return error_set(error, STATUS_UNAVAILABLE, "the node is stopping");
    if (runtime->purging || any_failing(runtime) || !all_serving(runtime)) {
        ask_reply_status(ask);
        ask_free(ask);
        return STATUS_OK;
    }
    runtime->purging = true;
    models_purge(runtime->options.registry, on_purged, ask);
    return STATUS_OK;
}

/* ---- calls ---- */

enum judge { JUDGE_MODEL, JUDGE_NOTHING };

static const struct runtime_method {
    const char *path;
    enum judge judge; /* whether its model fields must be valid */
    enum status (*begin)(struct runtime_ask *ask, struct error *error);
} asked[RUNTIME_METHOD_COUNT] = {
    {"/" RUNTIME_SERVICE "/loadModel", JUDGE_MODEL, begin_load},
    {"/" RUNTIME_SERVICE "/unloadModel", JUDGE_NOTHING, begin_unload},
    {"/" RUNTIME_SERVICE "/predictModelSize", JUDGE_MODEL, begin_predict},
    {"/" RUNTIME_SERVICE "/modelSize", JUDGE_NOTHING, begin_size},
    {"/" RUNTIME_SERVICE "/runtimeStatus", JUDGE_NOTHING, begin_status},
};

/* Loop thread. Refusals of `begin` are answered here. */
static void
ask_begin(void *context)
{
    struct runtime_ask *ask = context;
    struct runtime *runtime = ask->runtime;
    struct error error = ERROR_NONE;
    if (runtime->ended) {
        ask_fail(ask, STATUS_UNAVAILABLE, "the node is stopping");
        ask_free(ask);
        return;
    }
    ask->next = runtime->asks;
    ask->link = &runtime->asks;
    if (ask->next != NULL)
        ask->next->link = &ask->next;
    runtime->asks = ask;
    if (ask->method->begin(ask, &error) != STATUS_OK)
        on_done(ask, &error, NULL);
}

static enum status
ask_admit(struct runtime *runtime, struct runtime_ask *ask, struct error *error)
{
    pthread_mutex_lock(&runtime->lock);
    enum status status = STATUS_OK;
    if (runtime->ended)
        status = error_set(error, STATUS_UNAVAILABLE, "the node is stopping");
    else if (runtime->ask_count == ASKS_MAX)
        status =
            error_set(error, STATUS_RESOURCE_EXHAUSTED,
                      "%d calls of " RUNTIME_SERVICE " wait for their answers already", ASKS_MAX);
    if (status == STATUS_OK) {
        runtime->ask_count++;
        loop_post(runtime->options.loop, ask_begin, ask); /* under the lock: before `ended` */
    }
    pthread_mutex_unlock(&runtime->lock);
    return status;
}

static const struct runtime_method *
method_of(const struct rpc_call *call)
{
    const struct runtime_method *method = asked;
    while (strcmp(method->path, rpc_call_method(call)) != 0)
        method++;
    return method;
}

static void
on_message(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct runtime *runtime = context;
    struct runtime_ask *ask = malloc(sizeof(*ask));
    CHECK(ask != NULL);
    ask->link = NULL;
    ask->runtime = runtime;
    ask->method = method_of(call);
    ask->call = call;
    ask->begun_ns = 0;
    struct error error = ERROR_NONE;
    enum status status = runtime_request_read(message, &ask->request, &error);
    if (status == STATUS_OK && ask->method->judge == JUDGE_MODEL)
        status = runtime_request_check(&ask->request, &error);
    if (status == STATUS_OK)
        status = ask_admit(runtime, ask, &error);
    if (status == STATUS_OK)
        return; /* it may be answered already */
    rpc_call_finish(call, status, error.text);
    free(ask);
}

void
runtime_on_front(struct runtime *runtime, struct rpc_call *call, const struct wire_message *message)
{
    char peer[64];
    size_t bytes = rpc_call_peer(call, peer, sizeof(peer));
    if (runtime->place.front_is_local && !runtime_peer_is_local(peer, bytes))
        rpc_call_finish(
            call, STATUS_PERMISSION_DENIED,
            RUNTIME_SERVICE
            " accepts calls of this machine only: `runtime` names no address that reaches further");
    else
        on_message(runtime, call, message);
}

/* ---- the server ---- */

static const struct rpc_method methods[] = {
    RUNTIME_METHODS(on_message),
    SERVICES_METHODS,
};

enum status
runtime_open(struct runtime *runtime, struct rpc_queue *queue, struct error *error)
{
    if (runtime == NULL || runtime->place.own_count == 0)
        return STATUS_OK;
    const struct config *config = runtime->options.config;
    const char *listen[RUNTIME_LISTEN_MAX];
    for (uint32_t i = 0; i < runtime->place.own_count; i++)
        listen[i] = runtime->place.own[i];
    struct rpc_server_options options = {
        .name = "runtime",
        .accept = runtime->options.accept,
        .listen = listen,
        .listen_count = runtime->place.own_count,
        .socket_mode = config->socket_mode != NULL ? &config->socket_mode_bits : NULL,
        .queue_count = 1,
        .queue = queue,
        .message_bytes_max = config->message_bytes_max,
        .concurrent_streams_max = CONCURRENT_STREAMS_MAX,
        .armed_calls = ARMED_CALLS,
        .armed_calls_other = ARMED_CALLS,
        .keepalive_time_ns = config->keepalive_time_ns,
        .keepalive_timeout_ns = config->keepalive_timeout_ns,
        .methods = methods,
        .method_count = ARRAY_COUNT(methods),
        .context = runtime,
    };
    enum status status = rpc_server_create(&options, &runtime->server, error);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "runtime");
}

enum status
runtime_create(const struct runtime_options *options, struct runtime **created, struct error *error)
{
    if (options->config->runtime.count == 0)
        return STATUS_OK;
    struct runtime *runtime = calloc(1, sizeof(*runtime));
    CHECK(runtime != NULL);
    runtime->options = *options;
    runtime->services.health = health_create(model_health(options->registry));
    runtime->predict_timer = loop_timer_create(loop_base(options->loop), on_predict_time, runtime);
    CHECK(pthread_mutex_init(&runtime->lock, NULL) == 0);
    *created = runtime;
    (void)runtime_update(runtime);
    enum status status = runtime_place_find(&options->config->runtime, options->listen,
                                            options->listen_count, &runtime->place, error);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "runtime");
}

bool
runtime_is_at_front(const struct runtime *runtime)
{
    return runtime != NULL && runtime->place.at_front;
}

bool
runtime_update(struct runtime *runtime)
{
    if (runtime == NULL)
        return false;
    bool serving = !runtime->draining && all_serving(runtime);
    health_set(runtime->services.health, "", serving ? HEALTH_SERVING : HEALTH_NOT_SERVING);
    health_set(runtime->services.health, RUNTIME_SERVICE,
               serving ? HEALTH_SERVING : HEALTH_NOT_SERVING);
    return serving;
}

void
runtime_accept(struct runtime *runtime)
{
    if (runtime != NULL && runtime->server != NULL)
        rpc_server_accept(runtime->server);
}

void
runtime_part(struct runtime *runtime)
{
    if (runtime != NULL && runtime->server != NULL)
        rpc_server_part(runtime->server);
}

void
runtime_drain(struct runtime *runtime)
{
    if (runtime == NULL)
        return;
    runtime->draining = true;
    (void)runtime_update(runtime);
}

static void
end_server(struct runtime *runtime)
{
    rpc_server_refuse(runtime->server, "the node is stopping");
    health_end_watches(runtime->services.health);
    rpc_server_end(runtime->server, LAST_ANSWERS_NS);
}

void
runtime_end(struct runtime *runtime)
{
    if (runtime == NULL)
        return;
    pthread_mutex_lock(&runtime->lock);
    runtime->ended = true;
    pthread_mutex_unlock(&runtime->lock);
    loop_run_posted(runtime->options.loop); /* posted before, and cannot begin any more */
    for (struct runtime_ask *ask = runtime->asks; ask != NULL; ask = ask->next)
        ask_fail(ask, STATUS_UNAVAILABLE, "the node is stopping");
    if (runtime->server != NULL)
        end_server(runtime);
}

void
runtime_destroy(struct runtime *runtime)
{
    if (runtime == NULL)
        return;
    CHECK(runtime->asks == NULL); /* models.h reports the outcome of each */
    if (runtime->server != NULL)
        rpc_server_destroy(runtime->server);
    loop_timer_destroy(runtime->predict_timer);
    health_destroy(runtime->services.health);
    pthread_mutex_destroy(&runtime->lock);
    free(runtime);
}
