/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/http_thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/check.h"
#include "base/clock.h"
#include "loop/loop.h"

#define GRACE_NS NS_PER_S

struct http_thread {
    const char *name;
    struct loop *loop;
    struct http_server *server;
    pthread_t thread;
    bool is_started;
    atomic_bool has_parted;
};

enum status
http_thread_create(const char *name, struct http_thread **created, struct error *error)
{
    struct http_thread *thread = calloc(1, sizeof(*thread));
    CHECK(thread != NULL);
    thread->name = name;
    enum status status = loop_create(&thread->loop, error);
    if (status != STATUS_OK) {
        free(thread);
        return error_prefix(error, "HTTP");
    }
    thread->server = http_server_create(loop_base(thread->loop));
    *created = thread;
    return STATUS_OK;
}

struct http_server *
http_thread_server(struct http_thread *thread)
{
    return thread->server;
}

static void *
run(void *context)
{
    struct http_thread *thread = context;
    prctl(PR_SET_NAME, thread->name);
    loop_run(thread->loop);
    return NULL;
}

/* No signal is for this thread, SIGPIPE of a client that has gone neither. */
void
http_thread_start(struct http_thread *thread)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    CHECK(pthread_create(&thread->thread, NULL, run, thread) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    thread->is_started = true;
}

static void
on_drained(void *context)
{
    loop_stop(context);
}

/* Answers posted before have been handed to the server by now. */
static void
wind_down(void *context)
{
    struct http_thread *thread = context;
    http_server_drain(thread->server, GRACE_NS, on_drained, thread->loop);
}

void
http_thread_destroy(struct http_thread *thread)
{
    if (thread == NULL)
        return;
    if (thread->is_started) {
        loop_post(thread->loop, wind_down, thread);
        CHECK(pthread_join(thread->thread, NULL) == 0);
    }
    http_server_destroy(thread->server);
    loop_destroy(thread->loop);
    free(thread);
}

void
http_thread_post(struct http_thread *thread, void (*work)(void *context), void *context)
{
    loop_post(thread->loop, work, context);
}

static void
accept_now(void *context)
{
    http_listeners_resume(context);
}

void
http_thread_accept(struct http_thread *thread)
{
    http_thread_post(thread, accept_now, thread->server);
}

static void
part_now(void *context)
{
    struct http_thread *thread = context;
    http_server_part(thread->server);
    atomic_store(&thread->has_parted, true);
}

void
http_thread_part(struct http_thread *thread)
{
    http_thread_post(thread, part_now, thread);
}

bool
http_thread_has_parted(const struct http_thread *thread)
{
    return atomic_load(&thread->has_parted);
}

struct loop *
http_thread_loop(struct http_thread *thread)
{
    return thread->loop;
}

void
http_thread_count(void *counters, enum http_figure figure, int64_t by)
{
    static const enum counter which[HTTP_FIGURE_COUNT] = {
        [HTTP_CONNECTIONS] = NODE_HTTP_CONNECTIONS,
        [HTTP_REQUESTS] = NODE_HTTP_REQUESTS,
        [HTTP_REFUSED] = NODE_HTTP_REFUSED,
        [HTTP_EVICTED] = NODE_HTTP_EVICTED,
        [HTTP_TIMED_OUT] = NODE_HTTP_TIMED_OUT,
        [HTTP_NOT_ACCEPTING] = NODE_HTTP_NOT_ACCEPTING,
        [HTTP_HELD_UP] = NODE_HTTP_REFUSED, /* never: nodes do not speak HTTP/2 */
        [HTTP_CUT] = NODE_HTTP_CUT,
    };
    counter_add_shared(counters, which[figure], (uint64_t)by);
}
