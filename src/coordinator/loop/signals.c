/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/loop/signals.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

enum { LAST_LINE_MS = 500, EXIT_SIGNALLED = 128 };

/* Never freed: the thread lasts until the process ends. */
static struct {
    int signal_fd;
    int changed_fd; /* the bound was changed */
    struct signals_handler handler;
    pthread_mutex_t lock;
    /* under the lock: */
    struct loop *loop; /* NULL: it has ended */
    int64_t bound_ns;
    int bound_code;
    const char *bound_what;
    /* the thread's own: */
    uint32_t terminations;
} signals = {.signal_fd = -1,
             .changed_fd = -1,
             .lock = PTHREAD_MUTEX_INITIALIZER,
             .bound_ns = TIME_NEVER_NS};

struct signalled {
    int number;
    uint32_t times;
};

static _Noreturn void
end_process(int exit_code, const char *what)
{
    log_error("exit_forced code=%d why=\"%s\"", exit_code, what);
    log_stop(LAST_LINE_MS * (int64_t)NS_PER_MS);
    _exit(exit_code);
}

static void
hand_over(void *context)
{
    struct signalled signalled = *(struct signalled *)context;
    free(context);
    if (signalled.number == SIGHUP)
        signals.handler.hangup(signals.handler.context);
    else
        signals.handler.terminate(signals.handler.context, signalled.number, signalled.times);
}

/* False: the loop has ended. */
static bool
post(int number)
{
    struct signalled *signalled = malloc(sizeof(*signalled));
    CHECK(signalled != NULL);
    *signalled = (struct signalled){number, signals.terminations};
    CHECK(pthread_mutex_lock(&signals.lock) == 0);
    bool posted = signals.loop != NULL;
    if (posted)
        loop_post(signals.loop, hand_over, signalled);
    CHECK(pthread_mutex_unlock(&signals.lock) == 0);
    if (!posted)
        free(signalled);
    return posted;
}

static void
take(int number)
{
    if (number == SIGHUP) {
        (void)post(number);
        return;
    }
    int exit_code = EXIT_SIGNALLED + number;
    signals.terminations++;
    if (signals.terminations > 2)
        end_process(exit_code, "received a third signal to end");
    (void)post(number);
    if (signals.terminations > 1)
        signals_bound(SIGNALS_SECOND_MS * (int64_t)NS_PER_MS, exit_code,
                      "received a second signal to end and did not end within 3 s");
}

/* The time to wait for signals; ends the process if the bound has passed. */
static int
left_ms(void)
{
    CHECK(pthread_mutex_lock(&signals.lock) == 0);
    int64_t bound_ns = signals.bound_ns;
    int code = signals.bound_code;
    const char *what = signals.bound_what;
    CHECK(pthread_mutex_unlock(&signals.lock) == 0);
    if (bound_ns == TIME_NEVER_NS)
        return -1;
    int64_t left_ns = bound_ns - clock_now_ns();
    if (left_ns <= 0)
        end_process(code, what);
    return (int)(left_ns / NS_PER_MS) + 1;
}

static void *
signals_main(void *context)
{
    (void)context;
    prctl(PR_SET_NAME, "shoald:signals");
    for (;;) {
        struct pollfd fds[] = {{.fd = signals.signal_fd, .events = POLLIN},
                               {.fd = signals.changed_fd, .events = POLLIN}};
        int ready = poll(fds, ARRAY_COUNT(fds), left_ms());
        CHECK(ready >= 0 || errno == EINTR);
        uint64_t changes;
        struct signalfd_siginfo info;
        ssize_t ignored = read(signals.changed_fd, &changes, sizeof(changes));
        (void)ignored;
        while (read(signals.signal_fd, &info, sizeof(info)) == sizeof(info))
            take((int)info.ssi_signo);
    }
    return NULL;
}

static enum status
start_thread(struct error *error)
{
    sigset_t all;
    sigset_t before;
    pthread_t thread;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    int failure = pthread_create(&thread, NULL, signals_main, NULL);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (failure == 0) {
        CHECK(pthread_detach(thread) == 0);
        return STATUS_OK;
    }
    errno = failure;
    return error_set_errno(error, "starting the thread that takes signals");
}

enum status
signals_start(struct loop *loop, const struct signals_handler *handler, struct error *error)
{
    sigset_t taken;
    sigemptyset(&taken);
    sigaddset(&taken, SIGTERM);
    sigaddset(&taken, SIGINT);
    sigaddset(&taken, SIGHUP);
    CHECK(pthread_sigmask(SIG_BLOCK, &taken, NULL) == 0);
    signals.loop = loop;
    signals.handler = *handler;
    signals.signal_fd = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    signals.changed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (signals.signal_fd < 0 || signals.changed_fd < 0)
        return error_set_errno(error, "descriptors for signals");
    return start_thread(error);
}

void
signals_end_loop(void)
{
    CHECK(pthread_mutex_lock(&signals.lock) == 0);
    signals.loop = NULL;
    CHECK(pthread_mutex_unlock(&signals.lock) == 0);
}

void
signals_bound(int64_t timeout_ns, int exit_code, const char *what)
{
    int64_t bound_ns = clock_now_ns() + timeout_ns;
    CHECK(pthread_mutex_lock(&signals.lock) == 0);
    if (bound_ns < signals.bound_ns) {
        signals.bound_ns = bound_ns;
        signals.bound_code = exit_code;
        signals.bound_what = what;
    }
    CHECK(pthread_mutex_unlock(&signals.lock) == 0);
    uint64_t one = 1;
    ssize_t ignored = write(signals.changed_fd, &one, sizeof(one));
    (void)ignored;
}
