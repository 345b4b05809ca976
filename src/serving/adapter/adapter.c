/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/adapter/adapter.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "serving/adapter/inside.h"
#include "wire/wire.h"

/* ---- requests of the edge ---- */

static enum task_kind
kind_of(const char *method)
{
    static const char *const methods[] = {
        [TASK_STATUS] = "/mmesh.ModelRuntime/runtimeStatus",
        [TASK_SIZE] = "/mmesh.ModelRuntime/predictModelSize",
        [TASK_LOAD] = "/mmesh.ModelRuntime/loadModel",
        [TASK_UNLOAD] = "/mmesh.ModelRuntime/unloadModel",
    };
    uint32_t kind = 0; /* modelSize is not asked for: loads report sizes */
    while (strcmp(methods[kind], method) != 0) {
        kind++;
        CHECK(kind < ARRAY_COUNT(methods));
    }
    return (enum task_kind)kind;
}

/* The edge wrote the message, so it is well formed. */
static void
read_model(const struct rpc_client_request *request, struct adapter_model *model)
{
    struct wire_span span = {.data = NULL, .bytes = 0};
    if (request->piece_count > 0)
        span = (struct wire_span){request->pieces[0].data, request->pieces[0].bytes};
    const struct wire_message message = {&span, 1, span.bytes};
    struct wire_cursor cursor = wire_begin(&message);
    struct wire_field field;
    char **const texts[] = {&model->id, &model->type, &model->path, &model->key};
    while (wire_next(&cursor, &field) == WIRE_FIELD) {
        CHECK(field.type == WIRE_BYTES && field.number - 1 < ARRAY_COUNT(texts));
        char **text = texts[field.number - 1];
        free(*text);
        *text = malloc(field.value + 1);
        CHECK(*text != NULL);
        wire_read(&field.data, *text, field.value);
        (*text)[field.value] = '\0';
    }
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        if (*texts[i] == NULL)
            *texts[i] = memory_copy_text("");
    const char *name = layout_name(model->id, model->name);
    if (name != model->name)
        memcpy(model->name, name, strlen(name) + 1);
}

static struct adapter_task *
task_create(struct adapter *adapter, enum task_kind kind)
{
    struct adapter_task *task = calloc(1, sizeof(*task));
    CHECK(task != NULL);
    task->adapter = adapter;
    task->kind = kind;
    return task;
}

static void
hand_over(struct adapter_task *task)
{
    struct adapter *adapter = task->adapter;
    pthread_mutex_lock(&adapter->lock);
    tasks_append(&adapter->fresh, task);
    pthread_mutex_unlock(&adapter->lock);
    adapter_wake(adapter);
}

static void
start(void *context, struct external *external, const struct rpc_client_request *request)
{
    struct adapter *adapter = context;
    struct adapter_task *task = task_create(adapter, kind_of(request->method));
    task->external = external;
    task->events = request->events;
    task->context = request->context;
    task->deadline_ns = request->deadline_ns;
    read_model(request, &task->model);
    hand_over(task);
}

/* ---- home ---- */

static bool
is_barrier(const struct adapter_task *task)
{
    return task->kind == TASK_STATUS || task->kind == TASK_TURN;
}

/* A barrier waits for all earlier tasks, everything for a barrier. Loads and unloads of one model,
 * or of any for a serial server, take turns: the end of a failed load must not delete what the next
 * one has laid out. */
static bool
must_wait(const struct adapter_task *task, const struct adapter_task *earlier)
{
    if (is_barrier(task) || is_barrier(earlier))
        return true;
    if (task->kind == TASK_SIZE || earlier->kind == TASK_SIZE)
        return false;
    return server_is_serial(task->adapter) || strcmp(task->model.name, earlier->model.name) == 0;
}

static bool
may_begin(const struct adapter_task *task)
{
    const struct adapter_task *earlier = task->adapter->tasks;
    if (task->step != STEP_WAITS)
        return false;
    while (earlier != task && !must_wait(task, earlier))
        earlier = earlier->next;
    return earlier == task;
}

/* A task that begins may end at once, and its end may let others begin. */
static bool
begin_one(struct adapter *adapter)
{
    struct adapter_task *task = adapter->tasks;
    while (task != NULL && !may_begin(task))
        task = task->next;
    if (task != NULL)
        task_begin(task);
    return task != NULL;
}

/* The edge asks for the status when it has lost the runtime, or turns to another one: earlier
 * requests concern models of before. */
static void
accept_fresh(struct adapter *adapter)
{
    pthread_mutex_lock(&adapter->lock);
    struct adapter_task *fresh = adapter->fresh;
    adapter->fresh = NULL;
    pthread_mutex_unlock(&adapter->lock);
    while (fresh != NULL) {
        struct adapter_task *task = fresh;
        fresh = fresh->next;
        for (struct adapter_task *earlier = adapter->tasks; is_barrier(task) && earlier != NULL;
             earlier = earlier->next)
            earlier->is_stale = true;
        tasks_append(&adapter->tasks, task);
    }
}

static void
on_wake(struct rpc_post *post)
{
    struct adapter *adapter = (void *)((char *)post - offsetof(struct adapter, wake));
    accept_fresh(adapter);
    pthread_mutex_lock(&adapter->lock);
    struct adapter_task *filed = adapter->filed;
    adapter->filed = NULL;
    pthread_mutex_unlock(&adapter->lock);
    while (filed != NULL)
        task_on_files(files_take(&filed));
    while (begin_one(adapter)) {
    }
}

/* Earlier requests are stale at once: none of their next steps may reach the other server. */
static void
turn(void *context, const void *server)
{
    struct adapter_task *task = task_create(context, TASK_TURN);
    task->has_server = server != NULL;
    if (server != NULL)
        memcpy(&task->server, server, sizeof(task->server));
    hand_over(task);
    accept_fresh(context);
}

/* ---- the thread: disks may be slow ---- */

static void *
work(void *context)
{
    struct adapter *adapter = context;
    pthread_setname_np(pthread_self(), "adapter");
    pthread_mutex_lock(&adapter->lock);
    for (;;) {
        while (adapter->files == NULL && !adapter->is_stopping)
            pthread_cond_wait(&adapter->more, &adapter->lock);
        if (adapter->is_stopping)
            break;
        struct adapter_task *task = files_take(&adapter->files);
        pthread_mutex_unlock(&adapter->lock);
        task_do_files(task);
        pthread_mutex_lock(&adapter->lock);
        files_append(&adapter->filed, task);
        adapter_wake(adapter);
    }
    pthread_mutex_unlock(&adapter->lock);
    return NULL;
}

/* ---- life ---- */

static void
stop(void *context)
{
    struct adapter *adapter = context;
    pthread_mutex_lock(&adapter->lock);
    adapter->is_stopping = true;
    pthread_cond_signal(&adapter->more);
    pthread_mutex_unlock(&adapter->lock);
    pthread_join(adapter->thread, NULL);
}

/* The queues have ended: a status would begin to poll again, and its asker frees nothing. */
static void
end_all(struct adapter_task *tasks)
{
    while (tasks != NULL) {
        struct adapter_task *task = tasks;
        tasks = task->next;
        (void)error_set(&task->error, STATUS_CANCELLED, "the node is stopping");
        if (task->kind != TASK_STATUS)
            task_notify_end(task, NULL);
        task_free(task);
    }
}

static void
destroy(void *context)
{
    struct adapter *adapter = context;
    end_all(adapter->tasks);
    end_all(adapter->fresh);
    model_names_fini(&adapter->loaded);
    pthread_cond_destroy(&adapter->more);
    pthread_mutex_destroy(&adapter->lock);
    free(adapter);
}

static void
copy_path(char to[PATH_MAX], const char *path)
{
    if (path != NULL)
        snprintf(to, PATH_MAX, "%s", path);
}

enum adapter_type
adapter_type_of(const char *word)
{
    static const char *const words[ADAPTER_TYPES] = {
        [ADAPTER_TRITON] = "triton",
        [ADAPTER_MLSERVER] = "mlserver",
        [ADAPTER_TFSERVING] = "tfserving",
    };
    uint32_t type = 0;
    while (strcmp(words[type], word) != 0) {
        type++;
        CHECK(type < ADAPTER_TYPES);
    }
    return (enum adapter_type)type;
}

struct external_translator
adapter_create(const struct adapter_options *options)
{
    struct adapter *adapter = calloc(1, sizeof(*adapter));
    CHECK(adapter != NULL);
    adapter->home = options->home;
    adapter->has_server = options->server != NULL;
    if (options->server != NULL)
        adapter->server = *options->server;
    copy_path(adapter->repository, options->repository);
    for (size_t i = 0; i < ARRAY_COUNT(adapter->roots); i++)
        copy_path(adapter->roots[i], options->roots[i]);
    adapter->wake.run = on_wake;
    CHECK(pthread_mutex_init(&adapter->lock, NULL) == 0);
    CHECK(pthread_cond_init(&adapter->more, NULL) == 0);
    CHECK(pthread_create(&adapter->thread, NULL, work, adapter) == 0);
    return (struct external_translator){adapter, start, layout_name, turn, stop, destroy};
}
