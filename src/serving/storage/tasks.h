/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that are repeated until they succeed (attempts). A task asks for one page or one file.
 *
 *  A1. An attempt after which more of a file is there than ever does not count as a failure: the
 *      next one goes on from there at once. So a connection that is cut every 64 KiB does not end a
 * fetch. A2. Else the wait doubles from RETRY_FIRST_MS, with jitter, or is what the server says;
 * after RETRIES_MAX failures in a row the task has failed, UNAVAILABLE. A3. 408, 429, 5xx and
 * broken connections may recover; all else is final.
 */
#pragma once

#include "base/bytes.h"
#include "serving/storage/job.h"

enum task_verdict {
    TASK_AGAIN,   /* the attempt has failed in a way that may not last; the error says why */
    TASK_AT_ONCE, /* ask again now: the request has changed */
    TASK_DONE,
    TASK_FAILED
};

struct storage_task {
    struct storage_job *job;
    struct stored_file *file; /* NULL: a page */
    struct storage_sink sink;
    struct bytes page;         /* or the URL of a redirection */
    void *asked;               /* what the page is about */
    uint64_t most_bytes;       /* of the file, after any attempt */
    int64_t range_of;          /* HTTP: its length, if the answer is a range; else -1 */
    char *url;                 /* owned */
    const char *method, *body; /* as in struct transfer_request */
    bool is_direct;
    char *lines[TRANSFER_HEADERS_MAX]; /* headers of the attempt, owned */
    unsigned line_count;
    struct transfer *transfer; /* NULL: none is under way */
    uint32_t failures, redirects;
    int64_t retry_at_ns;
    bool is_over_origin; /* redirected to another origin: nothing secret is sent */
    bool was_corrupt;    /* its digest was wrong once */
};

struct task_type {
    /* Opens the sink; TASK_DONE: there is nothing to ask. */
    enum task_verdict (*open)(struct storage_task *task, struct error *error);
    /* Sets url and lines for the next attempt. */
    void (*prepare)(struct storage_task *task);
    struct transfer_sink sink; /* `context` is the task */
    /* Judges an answer of any status. */
    enum task_verdict (*judge)(struct storage_task *task, const struct transfer_end *end,
                               struct error *error);
    /* Gives the job credentials for the next attempts, which may take hours; NULL: it has them. */
    enum status (*renew)(struct storage_job *job, struct error *error);
};

enum { TASKS_AT_ONCE = 4 };

/* Runs all, TASKS_AT_ONCE at a time. Stored files stay after a failure. */
enum status tasks_run(struct storage_job *job, const struct task_type *type,
                      struct storage_task *tasks, uint32_t count, struct error *error) WARN_UNUSED;

/* The functions of a type whose answer is collected in `page`, of at most 16 MiB. */
enum task_verdict task_open_page(struct storage_task *task, struct error *error);
enum status task_begin_page(void *context, const struct transfer_head *head, struct error *error);
enum status task_take_page(void *context, const void *data, size_t bytes, struct error *error);

void task_add_line(struct storage_task *task, const char *format, ...) PRINTF_LIKE(2, 3);
/* A2, A3 for an answer that is neither 2xx nor known to the task. */
enum task_verdict task_judge_status(struct storage_task *task, const struct transfer_end *end,
                                    struct error *error);
