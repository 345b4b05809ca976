/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The course of each request. A step sends one request to the server or gives work to the thread;
 * its end takes the next one:
 *
 *     status   probe, index, empty (each model that the server has), clear
 *     size     measure
 *     load     lay, load; if that fails: unload, remove
 *     unload   unload, remove
 *     turn     clear, for the former server
 */
#include "base/log.h"
#include "serving/adapter/inside.h"
#include "wire/wire.h"

#define UNDO_NS (10 * NS_PER_S) /* for the unload after a failed load */

static const enum server_call CALLS[] = {[STEP_PROBE] = SERVER_PROBE,
                                         [STEP_INDEX] = SERVER_INDEX,
                                         [STEP_EMPTY] = SERVER_UNLOAD,
                                         [STEP_LOAD] = SERVER_LOAD,
                                         [STEP_UNLOAD] = SERVER_UNLOAD};

static void ask(struct adapter_task *task, enum task_step step);

/* Keeps the error of the first failure. */
static void
keep_error(struct adapter_task *task, const struct error *error)
{
    if (task->error.status == STATUS_OK)
        task->error = *error;
}

static void
end_status(struct adapter_task *task)
{
    struct bytes answer = {.data = NULL};
    server_write_status(task->adapter, &answer);
    task_end(task, &answer);
    bytes_fini(&answer);
}

static void
end_size(struct adapter_task *task)
{
    struct bytes answer = {.data = NULL};
    if (task->size_bytes > 0)
        wire_append_number(&answer, 1, task->size_bytes);
    task_end(task, &answer);
    bytes_fini(&answer);
}

/* ---- answers of the server ---- */

/* Any error is transient here: the runner asks for the status again soon. */
static void
fail_status(struct adapter_task *task, const struct error *error)
{
    keep_error(task, error);
    if (task->error.status != STATUS_UNIMPLEMENTED)
        task->error.status = STATUS_UNAVAILABLE;
    task_end(task, NULL);
}

static void
empty_next(struct adapter_task *task)
{
    if (task->names.count > 0)
        ask(task, STEP_EMPTY);
    else
        adapter_files(task, STEP_CLEAR);
}

static void
on_index(struct adapter_task *task, const struct rpc_client_end *end)
{
    struct error error = ERROR_NONE;
    if (server_read_index(end->message, &task->names)) {
        empty_next(task);
        return;
    }
    (void)error_set(&error, STATUS_UNAVAILABLE, "RepositoryIndex: a malformed answer");
    fail_status(task, &error);
}

/* A server that nobody can reach has nothing to be unloaded from. */
static void
on_load(struct adapter_task *task, const struct error *error)
{
    if (error->status == STATUS_OK) {
        model_names_remove(&task->adapter->loaded, task->model.name);
        model_names_add(&task->adapter->loaded, task->model.name);
        end_size(task);
        return;
    }
    keep_error(task, error);
    if (error->status == STATUS_UNAVAILABLE || task->is_stale)
        adapter_files(task, STEP_REMOVE);
    else
        ask(task, STEP_UNLOAD);
}

static void
on_answer(void *context, const struct rpc_client_end *end)
{
    struct adapter_task *task = context;
    struct error error = ERROR_NONE;
    enum status status = server_judge(task->adapter, CALLS[task->step], end, &error);
    bool is_gone = status == STATUS_OK || status == STATUS_NOT_FOUND;
    switch (task->step) {
    case STEP_PROBE:
        if (status != STATUS_OK)
            fail_status(task, &error);
        else if (server_has_index(task->adapter))
            ask(task, STEP_INDEX);
        else
            adapter_files(task, STEP_CLEAR);
        break;
    case STEP_INDEX:
        if (status == STATUS_OK)
            on_index(task, end);
        else
            fail_status(task, &error);
        break;
    case STEP_EMPTY:
        if (is_gone) {
            model_names_remove(&task->names, task->names.at[0]);
            empty_next(task);
        } else {
            fail_status(task, &error);
        }
        break;
    case STEP_LOAD: on_load(task, &error); break;
    default:
        if (!is_gone)
            keep_error(task, &error);
        adapter_files(task, STEP_REMOVE);
        break;
    }
}

static const struct rpc_client_events events = {.on_end = on_answer};

static void
ask(struct adapter_task *task, enum task_step step)
{
    struct bytes message = {.data = NULL};
    const char *name = step == STEP_EMPTY ? task->names.at[0] : task->model.name;
    bool is_undo = step == STEP_UNLOAD && task->kind == TASK_LOAD;
    task->step = step;
    const char *method = server_request(task, CALLS[step], name, &message);
    const struct rpc_piece piece = {.data = message.data, .bytes = message.used};
    const struct rpc_client_request request = {
        .method = method,
        .kind = RPC_UNARY,
        .deadline_ns = is_undo ? clock_now_ns() + UNDO_NS : task->deadline_ns,
        .pieces = &piece,
        .piece_count = message.used > 0,
        .events = &events,
        .context = task,
    };
    external_send(task->external, &request);
    bytes_fini(&message);
}

/* ---- turns ---- */

static void
end_turn(struct adapter_task *task)
{
    struct adapter *adapter = task->adapter;
    if (task->error.status != STATUS_OK)
        log_warn_limited("adapter_folder_stays error=\"%s\"", task->error.text);
    adapter->has_server = task->has_server;
    adapter->server = task->server;
    model_names_fini(&adapter->loaded);
    task_end(task, NULL);
}

/* ---- beginning ---- */

void
task_begin(struct adapter_task *task)
{
    if (task->is_stale && task->kind != TASK_TURN) {
        (void)error_set(&task->error, STATUS_UNAVAILABLE, "the server was lost");
        task_end(task, NULL);
        return;
    }
    switch (task->kind) {
    case TASK_STATUS:
        model_names_fini(&task->adapter->loaded);
        ask(task, STEP_PROBE);
        break;
    case TASK_SIZE: adapter_files(task, STEP_MEASURE); break;
    case TASK_LOAD: adapter_files(task, STEP_LAY); break;
    case TASK_UNLOAD:
        model_names_remove(&task->adapter->loaded, task->model.name);
        ask(task, STEP_UNLOAD);
        break;
    case TASK_TURN:
        if (task->adapter->has_server)
            adapter_files(task, STEP_CLEAR);
        else
            end_turn(task);
        break;
    }
}

/* ---- files ---- */

/* Returns at least 1: a load that reports 0 would be asked for its size. */
static uint64_t
size_of(const struct adapter *adapter, uint64_t file_bytes)
{
    double bytes = (double)file_bytes * adapter->server.size_percent / 100;
    return file_bytes == 0 ? adapter->server.default_bytes : (uint64_t)bytes + 1;
}

void
task_do_files(struct adapter_task *task)
{
    struct error error = ERROR_NONE;
    uint64_t bytes = 0;
    switch (task->step) {
    case STEP_CLEAR:
        if (layout_clear(task->adapter, &error) != STATUS_OK)
            keep_error(task, &error);
        break;
    case STEP_MEASURE:
        bytes = layout_measure(task->adapter, &task->model);
        task->size_bytes = bytes > 0 ? size_of(task->adapter, bytes) : 0;
        break;
    case STEP_LAY:
        if (layout_make(task->adapter, &task->model, &bytes, &error) != STATUS_OK)
            keep_error(task, &error);
        task->size_bytes = size_of(task->adapter, bytes);
        break;
    default: layout_remove(task->adapter, &task->model); break;
    }
}

/* Nothing may reach a server that has begun anew meanwhile. */
static void
after_laying(struct adapter_task *task)
{
    struct error stale = ERROR_NONE;
    if (task->error.status != STATUS_OK) {
        task_end(task, NULL);
    } else if (task->is_stale) {
        (void)error_set(&stale, STATUS_UNAVAILABLE, "the server was lost");
        on_load(task, &stale);
    } else {
        ask(task, STEP_LOAD);
    }
}

void
task_on_files(struct adapter_task *task)
{
    switch (task->step) {
    case STEP_CLEAR:
        if (task->kind == TASK_TURN)
            end_turn(task);
        else if (task->error.status == STATUS_OK)
            end_status(task);
        else
            fail_status(task, &task->error);
        break;
    case STEP_MEASURE: end_size(task); break;
    case STEP_LAY: after_laying(task); break;
    default: task_end(task, NULL); break;
    }
}
