/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/loop.h"

#include <event2/event.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/check.h"
#include "loop/wake.h"

struct post {
    void (*work)(void *context);
    void *context;
    struct post *next;
};

struct loop {
    struct event_base *base;
    struct wake *wake;          /* for posts */
    pthread_mutex_t posts_lock; /* rare events only: deaths, resets, the end of a drain */
    bool runs;                  /* [posts_lock], like all that follows */
    pthread_t thread;           /* valid while it runs */
    struct post *posts_first;
    struct post **posts_last;
};

struct loop_watch {
    struct event *event;
    void (*on_readable)(void *context);
    void *context;
};

void
loop_run_posted(struct loop *loop)
{
    pthread_mutex_lock(&loop->posts_lock);
    struct post *post = loop->posts_first;
    loop->posts_first = NULL;
    loop->posts_last = &loop->posts_first;
    pthread_mutex_unlock(&loop->posts_lock);
    while (post != NULL) {
        struct post *next = post->next;
        post->work(post->context);
        free(post);
        post = next;
    }
}

static void
run_posts(void *context)
{
    loop_run_posted(context);
}

enum status
loop_create(struct loop **created, struct error *error)
{
    struct loop *loop = calloc(1, sizeof(*loop));
    CHECK(loop != NULL);
    pthread_mutex_init(&loop->posts_lock, NULL);
    loop->posts_last = &loop->posts_first;
    loop->base = event_base_new();
    if (loop->base != NULL)
        loop->wake = wake_create(loop->base, run_posts, loop);
    if (loop->wake == NULL) {
        enum status status = error_set_errno(error, "creating the event loop");
        if (loop->base != NULL)
            event_base_free(loop->base);
        pthread_mutex_destroy(&loop->posts_lock);
        free(loop);
        return status;
    }
    *created = loop;
    return STATUS_OK;
}

void
loop_destroy(struct loop *loop)
{
    wake_destroy(loop->wake);
    event_base_free(loop->base);
    libevent_global_shutdown();
    for (struct post *post = loop->posts_first; post != NULL;) {
        struct post *next = post->next;
        free(post);
        post = next;
    }
    pthread_mutex_destroy(&loop->posts_lock);
    free(loop);
}

static void
set_runs(struct loop *loop, bool runs)
{
    pthread_mutex_lock(&loop->posts_lock);
    loop->runs = runs;
    loop->thread = pthread_self();
    pthread_mutex_unlock(&loop->posts_lock);
}

void
loop_run(struct loop *loop)
{
    set_runs(loop, true);
    CHECK(event_base_loop(loop->base, EVLOOP_NO_EXIT_ON_EMPTY) >= 0);
    set_runs(loop, false);
}

void
loop_check_thread(struct loop *loop)
{
    pthread_mutex_lock(&loop->posts_lock);
    bool is_elsewhere = loop->runs && !pthread_equal(loop->thread, pthread_self());
    pthread_mutex_unlock(&loop->posts_lock);
    CHECK(!is_elsewhere);
}

void
loop_stop(struct loop *loop)
{
    event_base_loopbreak(loop->base);
}

static void
watch_event(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct loop_watch *watch = context;
    watch->on_readable(watch->context);
}

struct loop_watch *
loop_watch_add(struct loop *loop, int fd, void (*on_readable)(void *context), void *context)
{
    struct loop_watch *watch = calloc(1, sizeof(*watch));
    CHECK(watch != NULL);
    watch->on_readable = on_readable;
    watch->context = context;
    watch->event = event_new(loop->base, fd, EV_READ | EV_PERSIST, watch_event, watch);
    CHECK(watch->event != NULL && event_add(watch->event, NULL) == 0);
    return watch;
}

void
loop_watch_remove(struct loop_watch *watch)
{
    if (watch == NULL)
        return;
    event_free(watch->event);
    free(watch);
}

void
loop_post(struct loop *loop, void (*work)(void *context), void *context)
{
    struct post *post = malloc(sizeof(*post));
    CHECK(post != NULL);
    *post = (struct post){.work = work, .context = context};
    pthread_mutex_lock(&loop->posts_lock);
    bool first = loop->posts_first == NULL; /* else the thread is awake, or was woken */
    *loop->posts_last = post;
    loop->posts_last = &post->next;
    pthread_mutex_unlock(&loop->posts_lock);
    if (first)
        wake_up(loop->wake);
}

struct event_base *
loop_base(struct loop *loop)
{
    return loop->base;
}
