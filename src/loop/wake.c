/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/wake.h"

#include <errno.h>
#include <event2/event.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

struct wake {
    struct event *event;
    void (*on_wake)(void *context);
    void *context;
    int fd;
};

static void
on_readable(evutil_socket_t fd, short what, void *context)
{
    (void)what;
    struct wake *wake = context;
    uint64_t calls;
    CHECK(read(fd, &calls, sizeof(calls)) == sizeof(calls) || errno == EAGAIN || errno == EINTR);
    wake->on_wake(wake->context);
}

struct wake *
wake_create(struct event_base *base, void (*on_wake)(void *context), void *context)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return NULL;
    struct wake *wake = calloc(1, sizeof(*wake));
    CHECK(wake != NULL);
    wake->on_wake = on_wake;
    wake->context = context;
    wake->fd = fd;
    wake->event = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, wake);
    CHECK(wake->event != NULL && event_add(wake->event, NULL) == 0);
    return wake;
}

void
wake_up(struct wake *wake)
{
    const uint64_t one = 1;
    /* EAGAIN: 2^64 wake-ups are pending. */
    CHECK(write(wake->fd, &one, sizeof(one)) == sizeof(one) || errno == EAGAIN);
}

void
wake_destroy(struct wake *wake)
{
    if (wake == NULL)
        return;
    event_free(wake->event);
    close(wake->fd);
    free(wake);
}
