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

/* ---- names ---- */

void
model_names_add(struct model_names *names, const char *name)
{
    char **more = realloc(names->at, (names->count + 1) * sizeof(*more));
    CHECK(more != NULL);
    names->at = more;
    names->at[names->count++] = memory_copy_text(name);
}

void
model_names_remove(struct model_names *names, const char *name)
{
    uint32_t at = 0;
    while (at < names->count && strcmp(names->at[at], name) != 0)
        at++;
    if (at == names->count)
        return;
    free(names->at[at]); /* perhaps `name` */
    names->at[at] = names->at[--names->count];
}

void
model_names_fini(struct model_names *names)
{
    for (uint32_t i = 0; i < names->count; i++)
        free(names->at[i]);
    free(names->at);
    *names = (struct model_names){.count = 0};
}

/* ---- tasks ---- */

/* Lists are short: a node loads a few models at a time. */
static void
tasks_append(struct adapter_task **list, struct adapter_task *task)
{
    while (*list != NULL)
        list = &(*list)->next;
    task->next = NULL;
    *list = task;
}

static void
files_append(struct adapter_task **list, struct adapter_task *task)
{
    while (*list != NULL)
        list = &(*list)->next_file;
    task->next_file = NULL;
    *list = task;
}

static struct adapter_task *
files_take(struct adapter_task **list)
{
    struct adapter_task *task = *list;
    if (task != NULL)
        *list = task->next_file;
    return task;
}

static void
task_free(struct adapter_task *task)
{
    free(task->model.id);
    free(task->model.type);
    free(task->model.path);
    free(task->model.key);
    model_names_fini(&task->names);
    free(task);
}

static void
tell_end(const struct adapter_task *task, const struct bytes *answer)
{
    struct wire_span span = {.data = NULL, .bytes = 0};
    if (answer != NULL)
        span = (struct wire_span){answer->data, answer->used};
    const struct wire_message message = {&span, 1, span.bytes};
    bool is_good = task->error.status == STATUS_OK;
    const struct rpc_client_end end = {
        .status = task->error.status,
        .text = {task->error.text, strlen(task->error.text)},
        .message = is_good ? &message : NULL,
    };
    task->events->on_end(task->context, &end);
}

static void
wake(struct adapter *adapter)
{
    rpc_queue_post(adapter->options.home, &adapter->wake);
}

void
task_end(struct adapter_task *task, const struct bytes *answer)
{
    struct adapter_task **at = &task->adapter->tasks;
    while (*at != task)
        at = &(*at)->next;
    *at = task->next;
    wake(task->adapter); /* others may have waited for it */
    tell_end(task, answer);
    task_free(task);
}

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

static void
start(void *context, struct external *external, const struct rpc_client_request *request)
{
    struct adapter *adapter = context;
    struct adapter_task *task = calloc(1, sizeof(*task));
    CHECK(task != NULL);
    task->adapter = adapter;
    task->external = external;
    task->events = request->events;
    task->context = request->context;
    task->deadline_ns = request->deadline_ns;
    task->kind = kind_of(request->method);
    read_model(request, &task->model);
    pthread_mutex_lock(&adapter->lock);
    tasks_append(&adapter->fresh, task);
    pthread_mutex_unlock(&adapter->lock);
    wake(adapter);
}

/* ---- home ---- */

/* A status waits for all earlier tasks, everything for a status. Loads and unloads of one model, or
 * of any for a serial server, take turns: the end of a failed load must not delete what the next
 * one has laid out. */
static bool
must_wait(const struct adapter_task *task, const struct adapter_task *earlier)
{
    if (task->kind == TASK_STATUS || earlier->kind == TASK_STATUS)
        return true;
    if (task->kind == TASK_SIZE || earlier->kind == TASK_SIZE)
        return false;
    return server_is_serial(task->adapter) || strcmp(task->model.name, earlier->model.name) == 0;
}

static bool
is_turn(const struct adapter_task *task)
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
    while (task != NULL && !is_turn(task))
        task = task->next;
    if (task != NULL)
        task_begin(task);
    return task != NULL;
}

/* The edge asks for the status when it has lost the runtime: earlier requests concern models of
 * before. */
static void
accept(struct adapter *adapter, struct adapter_task *fresh)
{
    for (struct adapter_task *next = fresh; fresh != NULL; fresh = next) {
        next = fresh->next;
        for (struct adapter_task *earlier = adapter->tasks;
             fresh->kind == TASK_STATUS && earlier != NULL; earlier = earlier->next)
            earlier->is_stale = true;
        tasks_append(&adapter->tasks, fresh);
    }
}

static void
on_wake(struct rpc_post *post)
{
    struct adapter *adapter = (void *)((char *)post - offsetof(struct adapter, wake));
    pthread_mutex_lock(&adapter->lock);
    struct adapter_task *fresh = adapter->fresh;
    struct adapter_task *filed = adapter->filed;
    adapter->fresh = adapter->filed = NULL;
    pthread_mutex_unlock(&adapter->lock);
    accept(adapter, fresh);
    while (filed != NULL)
        task_on_files(files_take(&filed));
    while (begin_one(adapter)) {
    }
}

/* ---- the thread: disks may be slow ---- */

void
adapter_files(struct adapter_task *task, enum task_step step)
{
    struct adapter *adapter = task->adapter;
    task->step = step;
    pthread_mutex_lock(&adapter->lock);
    files_append(&adapter->files, task);
    pthread_cond_signal(&adapter->more);
    pthread_mutex_unlock(&adapter->lock);
}

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
        wake(adapter);
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
            tell_end(task, NULL);
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

struct external_translator
adapter_create(const struct adapter_options *options)
{
    struct adapter *adapter = calloc(1, sizeof(*adapter));
    CHECK(adapter != NULL);
    adapter->options = *options;
    copy_path(adapter->repository, options->repository);
    for (size_t i = 0; i < ARRAY_COUNT(adapter->roots); i++)
        copy_path(adapter->roots[i], options->roots[i]);
    adapter->wake.run = on_wake;
    CHECK(pthread_mutex_init(&adapter->lock, NULL) == 0);
    CHECK(pthread_cond_init(&adapter->more, NULL) == 0);
    CHECK(pthread_create(&adapter->thread, NULL, work, adapter) == 0);
    return (struct external_translator){adapter, start, layout_name, stop, destroy};
}
