/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/storage/tasks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "serving/storage/listing.h"

enum { RETRIES_MAX = 5, RETRY_FIRST_MS = 100, RETRY_MAX_MS = 10000, RETRY_SAID_S_MAX = 60 };
enum { PAGE_BYTES_MAX = 16 << 20 };

void
task_add_line(struct storage_task *task, const char *format, ...)
{
    char *line = NULL;
    va_list args;
    va_start(args, format);
    int bytes = vasprintf(&line, format, args);
    va_end(args);
    CHECK(bytes >= 0 && task->line_count < TRANSFER_HEADERS_MAX);
    task->lines[task->line_count++] = line;
}

static void
forget_attempt(struct storage_task *task)
{
    for (unsigned i = 0; i < task->line_count; i++)
        free(task->lines[i]);
    task->line_count = 0;
    free(task->url);
    task->url = NULL;
}

static void
task_fini(struct storage_task *task)
{
    transfer_free(task->job->options->transfers, task->transfer);
    task->transfer = NULL;
    forget_attempt(task);
    if (task->file != NULL)
        sink_close(&task->sink, NULL);
    bytes_fini(&task->page);
}

static void
begin_attempt(struct storage_task *task, const struct task_type *type)
{
    const struct storage_place *place = &task->job->place;
    struct transfer_request request = {.header_count = 0};
    struct transfer_sink sink = type->sink;
    sink.context = task;
    type->prepare(task);
    request.url = task->url;
    request.method = task->method;
    request.body = task->body;
    request.is_direct = task->is_direct;
    for (; request.header_count < task->line_count; request.header_count++)
        request.headers[request.header_count] = task->lines[request.header_count];
    if (!task->is_over_origin) {
        request.authority = place->authority;
        request.client_certificate = place->client_certificate;
        request.client_key = place->client_key;
    }
    task->transfer = transfer_begin(task->job->options->transfers, &request, &sink);
}

/* ---- pages ---- */

enum task_verdict
task_open_page(struct storage_task *task, struct error *error)
{
    (void)task, (void)error;
    return TASK_AT_ONCE;
}

enum status
task_begin_page(void *context, const struct transfer_head *head, struct error *error)
{
    struct storage_task *task = context;
    (void)head, (void)error;
    task->page.used = 0;
    return STATUS_OK;
}

enum status
task_take_page(void *context, const void *data, size_t bytes, struct error *error)
{
    struct storage_task *task = context;
    if (task->page.used + bytes > PAGE_BYTES_MAX)
        return error_set(error, STATUS_DATA_LOSS, "the answer has more than %d MiB",
                         PAGE_BYTES_MAX >> 20);
    bytes_put(&task->page, data, bytes);
    CHECK(!task->page.failed);
    return STATUS_OK;
}

/* ---- the end of an attempt ---- */

static enum status
refuse(const struct transfer_end *end, struct error *error)
{
    char said[280];
    listing_read_error(end->text, end->text_bytes, said, sizeof(said));
    enum status status =
        end->head.status == 401 || end->head.status == 403   ? STATUS_PERMISSION_DENIED
        : end->head.status == 404 || end->head.status == 410 ? STATUS_NOT_FOUND
                                                             : STATUS_FAILED_PRECONDITION;
    return error_set(error, status, "the server answers %ld%s%s", end->head.status,
                     said[0] != '\0' ? ", " : "", said);
}

enum task_verdict
task_judge_status(struct storage_task *task, const struct transfer_end *end, struct error *error)
{
    long status = end->head.status;
    (void)task;
    (void)refuse(end, error);
    if (status == 408 || status == 429 || (status >= 500 && status != 501 && status != 505)) {
        error->status = STATUS_UNAVAILABLE;
        return TASK_AGAIN;
    }
    return TASK_FAILED;
}

static enum task_verdict
judge(struct storage_task *task, const struct task_type *type, const struct transfer_end *end,
      struct error *error)
{
    if (end->error.status == STATUS_OK)
        return type->judge(task, end, error);
    *error = end->error;
    return !end->by_sink && end->may_recover     ? TASK_AGAIN
           : error->status == STATUS_UNAVAILABLE ? TASK_AGAIN
                                                 : TASK_FAILED;
}

static int64_t
jitter_ms(int64_t ms)
{
    static _Thread_local unsigned seed;
    if (seed == 0)
        seed = (unsigned)clock_now_ns();
    return ms / 2 + rand_r(&seed) % (ms / 2 + 1);
}

/* False: it has failed too often. */
static bool
wait_for_next(struct storage_task *task, const struct transfer_end *end, struct error *error)
{
    int64_t said_s = end->head.retry_after_s;
    task->job->retries++;
    if (task->file != NULL && task->sink.at > task->most_bytes) {
        task->most_bytes = task->sink.at;
        task->failures = 0;
        task->retry_at_ns = 0;
        return true;
    }
    if (++task->failures > RETRIES_MAX) {
        (void)error_prefix(error, "%d attempts failed", RETRIES_MAX + 1);
        return false;
    }
    int64_t ms = (int64_t)RETRY_FIRST_MS << (task->failures - 1);
    ms = jitter_ms(ms < RETRY_MAX_MS ? ms : RETRY_MAX_MS);
    if (said_s > 0)
        ms = 1000 * (said_s < RETRY_SAID_S_MAX ? said_s : RETRY_SAID_S_MAX);
    task->retry_at_ns = clock_now_ns() + ms * NS_PER_MS;
    return true;
}

/* True: the task is over, well or not. */
static bool
end_attempt(struct storage_task *task, const struct task_type *type, struct error *error)
{
    const struct transfer_end *end = transfer_look(task->transfer);
    enum task_verdict verdict = judge(task, type, end, error);
    bool over = verdict == TASK_DONE || verdict == TASK_FAILED;
    task->job->received_bytes += task->file != NULL ? end->body_bytes : 0;
    if (verdict == TASK_AGAIN)
        over = !wait_for_next(task, end, error);
    task->retry_at_ns = verdict == TASK_AT_ONCE ? 0 : task->retry_at_ns;
    transfer_free(task->job->options->transfers, task->transfer);
    task->transfer = NULL;
    forget_attempt(task);
    if (!over || verdict == TASK_DONE)
        error_clear(error);
    return over;
}

/* ---- all of them ---- */

struct run {
    struct storage_task *open[TASKS_AT_ONCE];
    uint32_t open_count;
};

static void
run_remove(struct run *run, const struct storage_task *task)
{
    for (uint32_t i = 0; i < run->open_count; i++)
        if (run->open[i] == task) {
            run->open[i] = run->open[--run->open_count];
            return;
        }
}

/* Begins attempts that are due; the time when the next one is. */
static int64_t
begin_due(struct run *run, const struct task_type *type, int64_t until_ns)
{
    int64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < run->open_count; i++) {
        struct storage_task *task = run->open[i];
        if (task->transfer != NULL)
            continue;
        if (task->retry_at_ns <= now_ns)
            begin_attempt(task, type);
        else if (task->retry_at_ns < until_ns)
            until_ns = task->retry_at_ns;
    }
    return until_ns;
}

enum status
tasks_run(struct storage_job *job, const struct task_type *type, struct storage_task *tasks,
          uint32_t count, struct error *error)
{
    struct run run = {.open_count = 0};
    uint32_t next = 0;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && (next < count || run.open_count > 0)) {
        while (status == STATUS_OK && next < count && run.open_count < TASKS_AT_ONCE) {
            struct storage_task *task = &tasks[next++];
            enum task_verdict verdict = type->open(task, error);
            if (verdict == TASK_FAILED)
                status = error->status;
            if (verdict == TASK_AT_ONCE)
                run.open[run.open_count++] = task;
            else
                task_fini(task);
            if (status == STATUS_OK)
                status = job_check(job, error);
        }
        if (status != STATUS_OK || run.open_count == 0)
            continue;
        if (type->renew != NULL)
            status = type->renew(job, error);
        if (status != STATUS_OK)
            continue;
        int64_t until_ns = begin_due(&run, type, job->request->deadline_ns);
        struct transfer *ended = transfers_wait(job->options->transfers, until_ns);
        struct storage_task *task = ended != NULL ? transfer_context(ended) : NULL;
        if (task != NULL && end_attempt(task, type, error)) {
            status = error->status;
            run_remove(&run, task);
            task_fini(task);
        }
        if (status == STATUS_OK)
            status = job_check(job, error);
    }
    for (uint32_t i = 0; i < run.open_count; i++)
        task_fini(run.open[i]);
    return status;
}
