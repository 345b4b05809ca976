/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "serving/adapter/inside.h"

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
void
tasks_append(struct adapter_task **list, struct adapter_task *task)
{
    while (*list != NULL)
        list = &(*list)->next;
    task->next = NULL;
    *list = task;
}

void
files_append(struct adapter_task **list, struct adapter_task *task)
{
    while (*list != NULL)
        list = &(*list)->next_file;
    task->next_file = NULL;
    *list = task;
}

struct adapter_task *
files_take(struct adapter_task **list)
{
    struct adapter_task *task = *list;
    if (task != NULL)
        *list = task->next_file;
    return task;
}

void
task_free(struct adapter_task *task)
{
    free(task->model.id);
    free(task->model.type);
    free(task->model.path);
    free(task->model.key);
    model_names_fini(&task->names);
    free(task);
}

void
task_notify_end(const struct adapter_task *task, const struct bytes *answer)
{
    struct wire_span span = {.data = NULL, .bytes = 0};
    if (task->kind == TASK_TURN)
        return; /* nobody waits for it */
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

void
adapter_wake(struct adapter *adapter)
{
    rpc_queue_post(adapter->home, &adapter->wake);
}

void
task_end(struct adapter_task *task, const struct bytes *answer)
{
    struct adapter_task **at = &task->adapter->tasks;
    while (*at != task)
        at = &(*at)->next;
    *at = task->next;
    adapter_wake(task->adapter); /* others may have waited for it */
    task_notify_end(task, answer);
    task_free(task);
}

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
