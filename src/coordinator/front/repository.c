/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/repository.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/models/directories.h"
#include "coordinator/models/models.h"
#include "coordinator/models/sidecar.h"
#include "coordinator/models/target.h"
#include "coordinator/pipeline/pipeline.h"

#define VERSION "1" /* of a pipeline */
#define FILE_PARAMETER "file:"

enum { RETRY_MS = 1000 };

struct repository_row {
    const char *name;
    const char *version;
    const struct pipeline *pipeline; /* that is called by this name; NULL: a model */
    const struct model_row *model;
};

/* The part of a list that is written. Models may come and go before the next one. */
struct list_walk {
    struct repository *repository;
    const struct triton_request *request;
    void (*put)(struct bytes *out, const struct repository_row *row);
    struct bytes out;
    char from[SHOAL_NAME_BYTES_MAX + 2]; /* the first id that is not in it */
    uint32_t next;                       /* of the pipelines without models */
    uint32_t count;                      /* rows that were put */
    bool has_name;                       /* there is a row of the requested name */
};

/* A call that waits; lives until it is answered and nothing else points to it. */
struct repository_order {
    struct repository *repository; /* NULL: it was refused, as the node stops */
    const struct inbound_type *type;
    void *call;
    struct triton_request request;
    struct list_walk walk;
    struct sidecar *settings; /* of a load, instead of those of the model's files; NULL: none */
    bool is_moved;            /* other versions were chosen by a load */
    struct repository_order *next, *before;
    struct repository_order *queued; /* behind it; NULL: it is the last */
};

struct repository {
    struct repository_options options;
    const struct pipeline **named; /* the pipelines without models, by name */
    uint32_t named_count;
    pthread_mutex_t lock; /* of what follows */
    struct repository_order *orders;
    struct repository_order *first; /* not begun yet, in their order */
    struct repository_order **last;
    uint32_t waiting;
    bool is_stopping;
};

/* ---- answers ---- */

static void
take_out(struct repository_order *order)
{
    struct repository *repository = order->repository;
    pthread_mutex_lock(&repository->lock);
    if (order->before != NULL)
        order->before->next = order->next;
    else
        repository->orders = order->next;
    if (order->next != NULL)
        order->next->before = order->before;
    CHECK(repository->waiting > 0);
    repository->waiting--;
    pthread_mutex_unlock(&repository->lock);
}

/* Lends the message, which may be megabytes, to the call. */
static void
order_answer(struct repository_order *order, struct bytes *message)
{
    struct rpc_piece piece = {.data = ""};
    const struct rpc_answer answer = {.status = STATUS_OK, .pieces = &piece, .piece_count = 1};
    if (message->used > 0) {
        piece.data = piece.release_context = bytes_take(message, &piece.bytes);
        piece.release = free;
    }
    order->type->answer(order->call, &answer);
}

/* Ends the order: with the error, or if that is NULL with a message, whose memory it takes. */
static void
order_end(struct repository_order *order, const struct error *error, struct bytes *message)
{
    if (order->repository != NULL) {
        take_out(order);
        if (error != NULL)
            order->type->refuse(order->call, error->status, error->text, 0);
        else if (message->failed)
            order->type->refuse(order->call, STATUS_RESOURCE_EXHAUSTED,
                                "no memory to encode the response", 0);
        else
            order_answer(order, message);
    }
    bytes_fini(message);
    bytes_fini(&order->walk.out);
    free(order->settings);
    free(order);
}

/* ---- all there is, by name ---- */

static bool
is_ready(const struct repository_row *row)
{
    struct oip_model_info info;
    bool ready;
    if (row->model != NULL)
        return row->model->state == MODEL_IS_LOADED;
    struct lane *lane =
        pipeline_describe((struct pipeline *)(uintptr_t)row->pipeline, &info, &ready);
    if (lane != NULL)
        lane_unref(lane);
    return ready;
}

static bool
is_full(const struct list_walk *walk)
{
    return walk->request->limit > 0 && walk->count == walk->request->limit;
}

static void
put_meant(struct list_walk *walk, const struct repository_row *row)
{
    const struct triton_request *request = walk->request;
    bool is_named = request->name[0] == '\0' || strcmp(request->name, row->name) == 0;
    bool is_meant = request->version[0] == '\0' || strcmp(request->version, row->version) == 0;
    walk->has_name = walk->has_name || is_named;
    if (is_full(walk) || !is_named || !is_meant || strcmp(row->name, request->after) <= 0 ||
        (request->ready && !is_ready(row)))
        return;
    walk->put(&walk->out, row);
    walk->count++;
}

/* All pipelines without models whose names come before this one; NULL: the rest. */
static void
visit_pipelines(struct list_walk *walk, const char *before)
{
    struct repository *repository = walk->repository;
    for (; walk->next < repository->named_count; walk->next++) {
        const struct pipeline *pipeline = repository->named[walk->next];
        if (before != NULL && strcmp(pipeline->name, before) >= 0)
            return;
        put_meant(walk, &(struct repository_row){
                            .name = pipeline->name, .version = VERSION, .pipeline = pipeline});
    }
}

/* The least text that is greater: ids have no control characters. */
static void
go_behind(struct list_walk *walk, const char *id)
{
    snprintf(walk->from, sizeof(walk->from), "%s\001", id);
}

static bool
visit_model(void *context, const struct model_row *model)
{
    struct list_walk *walk = context;
    const char *name = walk->request->name;
    if (is_full(walk) || strncmp(model->id, name, strlen(name)) != 0)
        return false; /* the ids of a model's releases begin with its name */
    go_behind(walk, model->id);
    if (walk->request->limit > 0 && strcmp(model->id, model->name) != 0)
        return true; /* a page names models, not their releases */
    visit_pipelines(walk, model->id);
    put_meant(walk, &(struct repository_row){
                        .name = model->name, .version = model->version, .model = model});
    return true;
}

static enum status
not_known(const char *name, struct error *error)
{
    return error_set(error, STATUS_NOT_FOUND,
                     "Request for unknown model: \"%.200s\" is not known to this node", name);
}

/* ---- index ---- */

static void
put_index(struct bytes *out, const struct repository_row *row)
{
    static const char *const states[] = {
        [MODEL_IS_KNOWN] = "UNAVAILABLE",  [MODEL_IS_LOADING] = "LOADING",
        [MODEL_IS_LOADED] = "READY",       [MODEL_IS_UNLOADING] = "UNLOADING",
        [MODEL_IS_FAILED] = "UNAVAILABLE",
    };
    bool ready = is_ready(row);
    struct triton_index_row index = {row->name, row->version, ready ? "READY" : "UNAVAILABLE", ""};
    if (row->model != NULL) {
        index.state = states[row->model->state];
        index.reason = row->model->state == MODEL_IS_KNOWN ? "not loaded: a request loads it"
                                                           : row->model->error;
    } else if (!ready) {
        index.reason = "its workers are not ready";
    }
    triton_put_index(out, &index);
}

/* ---- statistics ---- */

static void
of_pipeline(const struct pipeline *pipeline, struct triton_statistics *statistics)
{
    uint64_t all_ns = histogram_sum(pipeline->counters, PIPELINE_LATENCY);
    statistics->success.count = counter_get(pipeline->counters, PIPELINE_REPLIES_OK);
    statistics->fail.count = counter_get(pipeline->counters, PIPELINE_REPLIES_FAILED);
    statistics->fail.ns = counter_get(pipeline->counters, PIPELINE_FAILURE_TIME);
    /* the counters are not read at one moment */
    statistics->success.ns = all_ns > statistics->fail.ns ? all_ns - statistics->fail.ns : 0;
}

static void
of_model(const struct model_row *model, struct triton_statistics *statistics)
{
    struct timespec now;
    statistics->success.count = model->answers.good;
    statistics->success.ns = model->answers.good_ns;
    statistics->fail.count = model->answers.failed;
    statistics->fail.ns = model->answers.failed_ns;
    statistics->memory_bytes = model->state == MODEL_IS_LOADED ? model->bytes : 0;
    if (model->used_ns == 0 || model->answers.good == 0)
        return;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    int64_t ago_ms = (clock_now_ns() - model->used_ns) / NS_PER_MS;
    statistics->last_inference_ms =
        (uint64_t)((int64_t)now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS - ago_ms);
}

static void
put_statistics(struct bytes *out, const struct repository_row *row)
{
    struct triton_statistics statistics = {.name = row->name, .version = row->version};
    if (row->pipeline != NULL)
        of_pipeline(row->pipeline, &statistics);
    else
        of_model(row->model, &statistics);
    triton_put_statistics(out, &statistics);
}

/* ---- what only looks ---- */

static void
list_begin(struct repository_order *order)
{
    const struct triton_request *request = &order->request;
    struct list_walk *walk = &order->walk;
    *walk = (struct list_walk){.repository = order->repository,
                               .request = request,
                               .put = request->method == TRITON_STATISTICS ? put_statistics
                                                                           : put_index};
    if (request->name[0] != '\0')
        snprintf(walk->from, sizeof(walk->from), "%s", request->name);
    else if (request->after[0] != '\0')
        go_behind(walk, request->after);
}

/* False: there is more of the list. */
static bool
list_go_on(struct list_walk *walk)
{
    const struct model_range range = {.from = walk->from, .most = MODELS_A_TURN};
    if (models_visit(walk->repository->options.registry, &range, visit_model, walk))
        return false;
    visit_pipelines(walk, NULL);
    return true;
}

static void
list_end(struct repository_order *order)
{
    const struct triton_request *request = &order->request;
    const struct list_walk *walk = &order->walk;
    struct error error = ERROR_NONE;
    bool is_missing = walk->count == 0 && request->name[0] != '\0';
    if (is_missing && walk->has_name)
        (void)error_set(&error, STATUS_NOT_FOUND, "model \"%.200s\" has no version \"%s\"",
                        request->name, request->version);
    else if (is_missing)
        (void)not_known(request->name, &error);
    order_end(order, error.status == STATUS_OK ? NULL : &error, &order->walk.out);
}

struct repository_search {
    char *path; /* NULL: it was not found */
    char *key;
    const char *pipeline;
    bool in_root;
};

static bool
search_row(void *context, const struct model_row *row)
{
    struct repository_search *search = context;
    search->path = strdup(row->path);
    search->key = strdup(row->key);
    search->pipeline = row->pipeline;
    search->in_root = row->in_root;
    CHECK(search->path != NULL && search->key != NULL);
    return true;
}

static void
search_fini(struct repository_search *search)
{
    free(search->path);
    free(search->key);
}

/* The pipeline that answers for a name that is known. */
static const struct pipeline *
pipeline_of(struct repository *repository, const char *name)
{
    const struct repository_options *options = &repository->options;
    struct repository_search search = {.pipeline = name};
    models_visit_one(options->registry, name, search_row, &search);
    search_fini(&search);
    return pipeline_find(options->pipelines, options->pipeline_count, search.pipeline,
                         strlen(search.pipeline));
}

static enum status
configure(struct repository *repository, const struct triton_request *request, struct bytes *out,
          struct error *error)
{
    const struct repository_options *options = &repository->options;
    const struct target_scope scope = {options->pipelines, options->pipeline_count,
                                       options->registry, options->rule == REPOSITORY_OF_MESH};
    struct triton_batching batching = {0};
    struct oip_model_info info;
    struct target_description reported;
    bool ready;
    const struct oip_named named = {request->name, request->version};
    enum status status = target_describe(&scope, &named, &info, &ready, &reported, error);
    if (status != STATUS_OK)
        return status;
    status = oip_check_version(request->version, &info, error);
    if (status != STATUS_OK) {
        target_forget(&reported);
        return status;
    }
    const struct pipeline *pipeline = pipeline_of(repository, request->name);
    if (pipeline != NULL && pipeline->generation != NULL) {
        const struct config_stage *stage = &pipeline->generation->config->stages[0];
        batching = (struct triton_batching){stage->batch_size, stage->batch_wait_ns};
    }
    triton_put_config(out, &info, &batching);
    target_forget(&reported);
    return STATUS_OK;
}

/* ---- loading and unloading ---- */

static void
end_failed(struct repository_order *order, struct error *error)
{
    (void)error_prefix(error, "failed to %s '%s'",
                       order->request.method == TRITON_LOAD ? "load" : "unload",
                       order->request.name);
    order_end(order, error, &(struct bytes){0});
}

static enum status
read_config(struct repository_order *order, struct error *error)
{
    const struct triton_request *request = &order->request;
    if (!request->has_config)
        return STATUS_OK;
    order->settings = calloc(1, sizeof(*order->settings));
    CHECK(order->settings != NULL);
    return sidecar_read_order(order->settings, request->name, request->config,
                              strlen(request->config), error);
}

/* NULL: that of the model's files. */
static const struct release_policy *
policy_of(const struct repository_order *order)
{
    return order->settings != NULL ? &order->settings->policy : NULL;
}

static struct model_directories *
directories_of(const struct repository_order *order)
{
    return order->repository != NULL ? *order->repository->options.directories : NULL;
}

/* The order fails, or unloads: a request loads the version that the model's files ask for. */
static void
undo_policy(struct repository_order *order)
{
    struct model_directories *directories = directories_of(order);
    struct error error = ERROR_NONE;
    if (order->is_moved && directories != NULL &&
        model_directories_set_policy(directories, order->request.name, NULL, &error) != STATUS_OK)
        log_warn("model_not_listed model=\"%s\" error=\"%s\"", order->request.name, error.text);
}

static void
on_unloaded(void *context, const struct error *error, const struct model_facts *facts)
{
    struct repository_order *order = context;
    const struct model_directories *directories = directories_of(order);
    struct error why = ERROR_NONE;
    (void)facts;
    if (error != NULL) {
        why = *error;
        end_failed(order, &why);
        return;
    }
    if (directories != NULL &&
        model_directories_judge_policy(directories, order->request.name, NULL, &order->is_moved,
                                       &why) == STATUS_OK)
        undo_policy(order);
    order_end(order, NULL, &(struct bytes){0});
}

static void
on_loaded(void *context, const struct error *error, const struct model_facts *facts)
{
    struct repository_order *order = context;
    struct error why = error != NULL ? *error : ERROR_NONE;
    (void)facts;
    enum status status = why.status;
    if (status == STATUS_OK && order->repository != NULL)
        status = models_configure(order->repository->options.registry, order->request.name,
                                  order->settings, &why);
    if (status == STATUS_OK) {
        order_end(order, NULL, &(struct bytes){0});
        return;
    }
    undo_policy(order);
    end_failed(order, &why);
}

/* A model that is known is loaded where it is listed; another one has its name as its path. */
static struct catalog *
catalog_for(struct repository *repository, const struct repository_search *search)
{
    const struct repository_options *options = &repository->options;
    if (search->path == NULL)
        return models_catalog_for(options->pipelines, options->pipeline_count, "");
    struct pipeline *pipeline = pipeline_find(options->pipelines, options->pipeline_count,
                                              search->pipeline, strlen(search->pipeline));
    return pipeline->catalog;
}

static void
load_now(struct repository *repository, struct repository_order *order)
{
    struct repository_search search = {0};
    struct error error = ERROR_NONE;
    models_visit_one(repository->options.registry, order->request.name, search_row, &search);
    struct catalog *catalog = catalog_for(repository, &search);
    if (catalog != NULL) {
        const struct model_spec spec = {.id = order->request.name,
                                        .path =
                                            search.path != NULL ? search.path : order->request.name,
                                        .key = search.path != NULL ? search.key : "",
                                        .in_root = search.path == NULL || search.in_root};
        models_load(catalog, &spec, on_loaded, order);
    } else {
        (void)not_known(order->request.name, &error);
        end_failed(order, &error);
    }
    search_fini(&search);
}

/* Called when nothing of the model is loaded. */
static void
load_other_versions(void *context, const struct error *failure, const struct model_facts *facts)
{
    struct repository_order *order = context;
    struct model_directories *directories = directories_of(order);
    struct error error = ERROR_NONE;
    (void)failure, (void)facts;
    enum status status = directories == NULL
                             ? error_set(&error, STATUS_UNAVAILABLE, "this node is about to stop")
                             : model_directories_set_policy(directories, order->request.name,
                                                            policy_of(order), &error);
    if (status != STATUS_OK) {
        end_failed(order, &error);
        return;
    }
    order->is_moved = true;
    load_now(order->repository, order);
}

/* Another choice of versions is loaded once the version that serves is unloaded, so the answer
 * describes the new one. Requests that come in between wait. */
static void
load(struct repository *repository, struct repository_order *order)
{
    const char *name = order->request.name;
    const struct model_directories *directories = directories_of(order);
    struct error error = ERROR_NONE;
    bool is_other = false;
    enum status status = read_config(order, &error);
    if (status == STATUS_OK && directories != NULL)
        status =
            model_directories_judge_policy(directories, name, policy_of(order), &is_other, &error);
    if (status != STATUS_OK)
        end_failed(order, &error);
    else if (is_other)
        models_unload(repository->options.registry, name, load_other_versions, order);
    else
        load_now(repository, order);
}

static void
unload(struct repository *repository, struct repository_order *order)
{
    struct repository_search search = {0};
    struct error error = ERROR_NONE;
    models_visit_one(repository->options.registry, order->request.name, search_row, &search);
    if (search.path != NULL) {
        models_unload(repository->options.registry, order->request.name, on_unloaded, order);
    } else {
        (void)not_known(order->request.name, &error);
        end_failed(order, &error);
    }
    search_fini(&search);
}

/* Returns whether the order may be carried out. */
static enum status
judge(const struct repository *repository, const struct triton_request *request,
      struct error *error)
{
    const struct repository_options *options = &repository->options;
    if (strncmp(request->parameter, FILE_PARAMETER, strlen(FILE_PARAMETER)) == 0)
        return error_set(error,
                         STATUS_INTERNAL, /* Triton's status and words for its own refusals */
                         "failed to poll from model repository: \"%s\" is not supported: a model's "
                         "files are those in the node's folder",
                         request->parameter);
    if (request->parameter[0] != '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "parameter \"%s\" is not supported: only \"config\" is",
                         request->parameter);
    const struct pipeline *named = pipeline_find(options->pipelines, options->pipeline_count,
                                                 request->name, strlen(request->name));
    if (named != NULL)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "it is the name of a pipeline: only models of pipelines with `models` are "
                         "loaded and unloaded");
    return STATUS_OK;
}

/* ---- orders ---- */

static bool
is_list(const struct repository_order *order)
{
    return order->request.method == TRITON_INDEX || order->request.method == TRITON_STATISTICS;
}

static void
carry_out(struct repository_order *order)
{
    struct repository *repository = order->repository;
    struct error error = ERROR_NONE;
    struct bytes out = {0};
    if (is_list(order)) {
        list_end(order);
    } else if (order->request.method == TRITON_CONFIG) {
        enum status status = configure(repository, &order->request, &out, &error);
        order_end(order, status == STATUS_OK ? NULL : &error, &out);
    } else if (judge(repository, &order->request, &error) != STATUS_OK) {
        end_failed(order, &error);
    } else if (order->request.method == TRITON_LOAD) {
        load(repository, order);
    } else {
        unload(repository, order);
    }
}

/* Loop thread. One order a turn, or a part of a list: others use the loop, too. */
static void
carry_out_next(void *context)
{
    struct repository *repository = context;
    pthread_mutex_lock(&repository->lock);
    struct repository_order *order = repository->first;
    pthread_mutex_unlock(&repository->lock);
    if (order == NULL)
        return;
    bool is_due = !is_list(order) || list_go_on(&order->walk);
    pthread_mutex_lock(&repository->lock);
    if (is_due)
        repository->first = order->queued;
    if (repository->first == NULL)
        repository->last = &repository->first;
    else
        loop_post(repository->options.loop, carry_out_next, repository);
    pthread_mutex_unlock(&repository->lock);
    if (is_due)
        carry_out(order);
}

static enum status
permit(const struct repository *repository, const struct triton_request *request,
       struct error *error)
{
    bool changes = request->method == TRITON_LOAD || request->method == TRITON_UNLOAD;
    if (!changes || repository->options.rule == REPOSITORY_OPEN)
        return STATUS_OK;
    if (repository->options.rule == REPOSITORY_OF_MESH)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "the node is one of a mesh, which says what is loaded: register the model "
                         "with mmesh.ModelMesh");
    return error_set(error, STATUS_PERMISSION_DENIED,
                     "callers may not load and unload models: `http_control: on` in the node's "
                     "configuration permits it");
}

/* Enters the order; false: too many wait, or the node stops. */
static bool
enter(struct repository *repository, struct repository_order *order, struct error *error)
{
    pthread_mutex_lock(&repository->lock);
    bool stops = repository->is_stopping;
    bool is_entered = !stops && repository->waiting < repository->options.waiting_max;
    if (is_entered) {
        repository->waiting++;
        order->next = repository->orders;
        if (order->next != NULL)
            order->next->before = order;
        repository->orders = order;
        if (repository->first == NULL)
            loop_post(repository->options.loop, carry_out_next, repository);
        *repository->last = order;
        repository->last = &order->queued;
    }
    pthread_mutex_unlock(&repository->lock);
    if (stops)
        error_set(error, STATUS_UNAVAILABLE, "this node is about to stop");
    else if (!is_entered)
        error_set(error, STATUS_RESOURCE_EXHAUSTED,
                  "%u calls wait for lists, loads and unloads of models already "
                  "(repository_waiting)",
                  repository->options.waiting_max);
    if (!stops && !is_entered)
        counter_add_shared(counters_values(repository->options.counters, 0),
                           NODE_REPOSITORY_REFUSED, 1);
    return is_entered;
}

/* The id in metadata, which comes before the name in a question about a model. */
static enum status
find_id(const struct inbound *inbound, const struct triton_request *request, struct target_id *id,
        struct error *error)
{
    id->bytes = 0;
    if (request->method != TRITON_CONFIG && request->method != TRITON_STATISTICS)
        return STATUS_OK;
    return inbound_id(inbound, id, error);
}

void
repository_take(struct repository *repository, const struct inbound *inbound,
                const struct triton_request *request)
{
    struct error error = ERROR_NONE;
    struct target_id id;
    enum status status = permit(repository, request, &error);
    if (status == STATUS_OK)
        status = find_id(inbound, request, &id, &error);
    if (status == STATUS_OK) {
        struct repository_order *order = calloc(1, sizeof(*order));
        CHECK(order != NULL);
        *order = (struct repository_order){.repository = repository,
                                           .type = inbound->type,
                                           .call = inbound->call,
                                           .request = *request};
        if (id.bytes > 0)
            memcpy(order->request.name, id.text, id.bytes + 1);
        list_begin(order);
        if (!enter(repository, order, &error)) {
            free(order);
            status = error.status;
        }
    }
    if (status != STATUS_OK)
        inbound->type->refuse(inbound->call, status, error.text,
                              status == STATUS_RESOURCE_EXHAUSTED ? RETRY_MS : 0);
}

/* ---- life ---- */

static int
compare_names(const void *a, const void *b)
{
    const struct pipeline *const *first = a;
    const struct pipeline *const *second = b;
    return strcmp((*first)->name, (*second)->name);
}

struct repository *
repository_create(const struct repository_options *options)
{
    struct repository *repository = calloc(1, sizeof(*repository));
    CHECK(repository != NULL);
    repository->options = *options;
    repository->named = calloc((size_t)options->pipeline_count + 1, sizeof(struct pipeline *));
    CHECK(repository->named != NULL);
    for (uint32_t i = 0; i < options->pipeline_count; i++)
        if (options->pipelines[i]->catalog == NULL)
            repository->named[repository->named_count++] = options->pipelines[i];
    qsort(repository->named, repository->named_count, sizeof(struct pipeline *), compare_names);
    repository->last = &repository->first;
    CHECK(pthread_mutex_init(&repository->lock, NULL) == 0);
    return repository;
}

void
repository_stop(struct repository *repository)
{
    if (repository == NULL)
        return;
    pthread_mutex_lock(&repository->lock);
    repository->is_stopping = true;
    struct repository_order *order = repository->orders;
    struct repository_order *queued = repository->first;
    repository->orders = NULL;
    repository->first = NULL;
    repository->last = &repository->first;
    uint32_t waiting = repository->waiting;
    repository->waiting = 0;
    pthread_mutex_unlock(&repository->lock);
    for (; order != NULL; waiting--) {
        struct repository_order *next = order->next;
        order->repository = NULL;
        order->type->refuse(order->call, STATUS_UNAVAILABLE, "this node is about to stop", 0);
        order = next;
    }
    CHECK(waiting == 0);
    while (queued != NULL) { /* the others are a load's or an unload's, which ends them */
        struct repository_order *next = queued->queued;
        bytes_fini(&queued->walk.out);
        free(queued);
        queued = next;
    }
}

void
repository_destroy(struct repository *repository)
{
    if (repository == NULL)
        return;
    CHECK(repository->orders == NULL);
    pthread_mutex_destroy(&repository->lock);
    free(repository->named);
    free(repository);
}
