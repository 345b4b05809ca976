/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/loop/loop.h"

#include <event2/event.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

struct post {
    void (*work)(void *context);
    void *context;
    struct post *next;
};

struct loop {
    struct event_base *base;
    int post_fd;
    struct loop_watch *post_watch;
    pthread_mutex_t posts_lock; /* rare events only: deaths, resets, the end of a drain */
    struct post *posts_first;
    struct post **posts_last;
};

struct loop_watch {
    struct event *event;
    void (*on_readable)(void *context);
    void *context;
};

struct loop_timer {
    struct event *event;
    void (*on_time)(void *context);
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
    struct loop *loop = context;
    uint64_t count;
    ssize_t got = read(loop->post_fd, &count, sizeof(count));
    (void)got; /* EAGAIN: an earlier turn has read it */
    loop_run_posted(loop);
}

enum status
loop_create(struct loop **created, struct error *error)
{
    struct loop *loop = calloc(1, sizeof(*loop));
    CHECK(loop != NULL);
    pthread_mutex_init(&loop->posts_lock, NULL);
    loop->posts_last = &loop->posts_first;
    loop->post_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->base = event_base_new();
    if (loop->post_fd < 0 || loop->base == NULL) {
        enum status status = error_set_errno(error, "creating the event loop");
        if (loop->base != NULL)
            event_base_free(loop->base);
        if (loop->post_fd >= 0)
            close(loop->post_fd);
        free(loop);
        return status;
    }
    loop->post_watch = loop_watch_add(loop, loop->post_fd, run_posts, loop);
    *created = loop;
    return STATUS_OK;
}

void
loop_destroy(struct loop *loop)
{
    loop_watch_remove(loop->post_watch);
    close(loop->post_fd);
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

void
loop_run(struct loop *loop)
{
    CHECK(event_base_loop(loop->base, EVLOOP_NO_EXIT_ON_EMPTY) >= 0);
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

static void
timer_event(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct loop_timer *timer = context;
    timer->on_time(timer->context);
}

struct loop_timer *
loop_timer_create(struct loop *loop, void (*on_time)(void *context), void *context)
{
    struct loop_timer *timer = calloc(1, sizeof(*timer));
    CHECK(timer != NULL);
    timer->on_time = on_time;
    timer->context = context;
    timer->event = evtimer_new(loop->base, timer_event, timer);
    CHECK(timer->event != NULL);
    return timer;
}

void
loop_timer_set(struct loop_timer *timer, int64_t timeout_ns)
{
    struct timeval timeout = {.tv_sec = timeout_ns / NS_PER_S,
                              .tv_usec = timeout_ns % NS_PER_S / NS_PER_US};
    CHECK(evtimer_add(timer->event, &timeout) == 0);
}

void
loop_timer_clear(struct loop_timer *timer)
{
    evtimer_del(timer->event);
}

void
loop_timer_destroy(struct loop_timer *timer)
{
    if (timer == NULL)
        return;
    event_free(timer->event);
    free(timer);
}

void
loop_post(struct loop *loop, void (*work)(void *context), void *context)
{
    struct post *post = malloc(sizeof(*post));
    CHECK(post != NULL);
    *post = (struct post){.work = work, .context = context};
    pthread_mutex_lock(&loop->posts_lock);
    bool first = loop->posts_first == NULL; /* who posted before has written, and it is not read */
    *loop->posts_last = post;
    loop->posts_last = &post->next;
    pthread_mutex_unlock(&loop->posts_lock);
    uint64_t one = 1;
    CHECK(!first || write(loop->post_fd, &one, sizeof(one)) == sizeof(one));
}

struct event_base *
loop_base(struct loop *loop)
{
    return loop->base;
}
