/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/timer.h"

#include <event2/event.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"

struct loop_timer {
    struct event *event;
    void (*on_time)(void *context);
    void *context;
};

static void
on_event(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct loop_timer *timer = context;
    timer->on_time(timer->context);
}

struct loop_timer *
loop_timer_create(struct event_base *base, void (*on_time)(void *context), void *context)
{
    struct loop_timer *timer = calloc(1, sizeof(*timer));
    CHECK(timer != NULL);
    timer->on_time = on_time;
    timer->context = context;
    timer->event = evtimer_new(base, on_event, timer);
    CHECK(timer->event != NULL);
    return timer;
}

void
loop_timer_set(struct loop_timer *timer, int64_t timeout_ns)
{
    int64_t ns = timeout_ns < 0 ? 0 : timeout_ns;
    struct timeval timeout = {.tv_sec = ns / NS_PER_S, .tv_usec = ns % NS_PER_S / NS_PER_US};
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
