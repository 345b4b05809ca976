/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A crash leaves last words and dies of its own signal in every state that it may find: with the
 * stack used up, with malloc's lock held, in several threads at once, with a reader that does not
 * read, and with nonsense in all that the handler looks at, so that the handler crashes, too. Each
 * crash is a child's, which writes into a pipe.
 *
 * ctest: presets=dev,release because malloc is the sanitizer's own in dev
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "worker/crash.h"
#include "worker/host.h"

enum { WAIT_MS = 60000, PIPE_BYTES = 1 << 16 };

#define APART __attribute__((noinline))

/* Sanitizers keep the signals of memory faults to themselves unless told otherwise. */
const char *__asan_default_options(void); /* NOLINT: its name */
const char *
__asan_default_options(void) /* NOLINT: its name */
{
    return "handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0:detect_leaks=0";
}

const char *__tsan_default_options(void); /* NOLINT: its name */
const char *
__tsan_default_options(void) /* NOLINT: its name */
{
    return "handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0";
}

/* ---- malloc with a lock that is never given back ---- */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

#ifndef SANITIZED
static bool malloc_is_locked;

void *__libc_malloc(size_t bytes); /* NOLINT: its name */

void *
malloc(size_t bytes)
{
    while (malloc_is_locked)
        (void)pause();
    return __libc_malloc(bytes);
}
#endif

/* ---- ways to crash ---- */

static uintptr_t
hidden(uintptr_t value)
{
    __asm__ volatile("" : "+r"(value) : : "memory");
    return value;
}

__attribute__((noinline, no_sanitize("undefined"), no_sanitize("address"))) static void
crash_null(void)
{
    *(int *)hidden(8) = 1; /* NOLINT */
}

__attribute__((noinline, no_sanitize("undefined"))) static void
crash_call(void)
{
    int (*nowhere)(void) = (int (*)(void))hidden(0); /* NOLINT */
    hidden((uintptr_t)nowhere() + 1);
}

__attribute__((noinline, no_sanitize("address"))) static uintptr_t
crash_overflow(uintptr_t depth)
{
    char room[4096];
    hidden((uintptr_t)room);
    return hidden(depth) == UINTPTR_MAX ? 0 : crash_overflow(depth + 1) + (uintptr_t)room[0];
}

static void
overflow(void)
{
    hidden(crash_overflow(hidden(0)));
}

APART static void
crash_abort(void)
{
    abort();
}

#ifndef SANITIZED
static void
crash_with_malloc_locked(void)
{
    malloc_is_locked = true;
    crash_null();
}
#endif

static void
crash_among_nonsense(void)
{
    crash_begin_run((const char *)hidden(16), (struct shoal_item *const *)hidden(24),
                    3); /* NOLINT */
    crash_null();
}

static pthread_barrier_t barrier;

static void *
crash_in_thread(void *context)
{
    (void)pthread_barrier_wait(&barrier);
    crash_null();
    return context;
}

static void
crash_in_threads(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, crash_in_thread, NULL) == 0);
    for (size_t i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
}

static void
crash_with_alarm_blocked(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    crash_null();
}

static void
send_signal(void)
{
    (void)kill(getpid(), SIGSEGV);
    (void)pause();
}

/* ---- the child ---- */

static struct {
    int signal; /* of which it died */
    size_t used;
    char words[PIPE_BYTES];
} last;

static void
be_child(void (*crash)(void), const int pipes[2], bool full)
{
    static struct handshake_start start = {.pipeline = "p", .stage = "s", .worker_index = 7};
    static struct host_item items[2] = {{.ticket = {.index = 11}}, {.ticket = {.index = 12}}};
    static struct shoal_item *shown[] = {&items[0].shown, &items[1].shown};
    const struct rlimit none = {0, 0};
    char filling[PIPE_BYTES] = {'\n'};
    (void)setrlimit(RLIMIT_CORE, &none);
    for (int number = 1; number < SIGRTMIN; number++) /* cmocka handles some */
        (void)signal(number, SIG_DFL);
    (void)dup2(pipes[1], STDERR_FILENO);
    if (full)
        CHECK(write(STDERR_FILENO, filling, sizeof(filling)) == sizeof(filling));
    crash_catch(&start);
    crash_begin_run("iris", shown, 2);
    crash();
    _exit(0);
}

/* Until the child has died. Reads only if it should be read. */
static void
crash_in_child(void (*crash)(void), bool full)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    last.used = 0;
    pid_t pid = fork();
    if (pid == 0)
        be_child(crash, pipes, full);
    close(pipes[1]);
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    ssize_t got = 1;
    while (!full && got > 0 && last.used < sizeof(last.words) - 1) {
        got = read(pipes[0], last.words + last.used, sizeof(last.words) - 1 - last.used);
        last.used += got > 0 ? (size_t)got : 0;
    }
    last.words[last.used] = '\0';
    assert_int_equal(poll(&end, 1, WAIT_MS), 1);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    last.signal = WTERMSIG(status);
    close(end.fd);
    close(pipes[0]);
}

static void
assert_said(const char *text)
{
    if (strstr(last.words, text) == NULL)
        fail_msg("not said: %s\n%s", text, last.words);
}

static void
assert_crash(void (*crash)(void), int number, const char *cause)
{
    crash_in_child(crash, false);
    assert_int_equal(last.signal, number);
    assert_said(" error shoal:s.7 worker_crashed pipeline=\"p\" stage=\"s\" worker=7 pid=");
    assert_said(cause);
}

/* ---- tests ---- */

TEST_CASE(test_last_words)
{
    assert_crash(crash_null, SIGSEGV, "signal=\"SIGSEGV\" address=0x8 why=\"nothing is mapped");
    assert_said("during=\"run\" model=\"iris\"\n");
    assert_said("worker_crashed_batch");
    assert_said(" items=2 slots=\"11 12\"\n");
    assert_said(" frame=0 at=\"");
    assert_said("in=\"crash_null+0x");
    assert_said("in=\"be_child+0x");
    assert_said("in=\"main+0x");
    for (const char *line = last.words; *line != '\0'; line = strchr(line, '\n') + 1)
        assert_true(line[4] == '-' && line[10] == 'T' && line[23] == 'Z' && line[24] == ' ');
}

TEST_CASE(test_abort)
{
    assert_crash(crash_abort, SIGABRT, "signal=\"SIGABRT\" sent_by=");
    assert_said("in=\"crash_abort+0x");
}

TEST_CASE(test_a_signal_from_outside)
{
    assert_crash(send_signal, SIGSEGV, "signal=\"SIGSEGV\" sent_by=");
}

TEST_CASE(test_no_stack_left)
{
    assert_crash(overflow, SIGSEGV, "why=\"stack overflow\"");
    assert_said("in=\"crash_overflow+0x");
    assert_said(" repeated=");
    assert_said("in=\"main+0x");
}

TEST_CASE(test_malloc_is_locked)
{
#ifdef SANITIZED
    skip(); /* its malloc is the sanitizer's */
#else
    assert_crash(crash_with_malloc_locked, SIGSEGV, "signal=\"SIGSEGV\"");
    assert_said("in=\"crash_null+0x");
    assert_said("in=\"main+0x");
#endif
}

/* The unwinder itself faults where no code is. */
TEST_CASE(test_call_of_nothing)
{
    assert_crash(crash_call, SIGSEGV, "address=0x0");
    assert_said("frame=0 at=\"0x0\"");
    assert_said("in=\"crash_call+0x");
}

TEST_CASE(test_the_handler_crashes)
{
    crash_in_child(crash_among_nonsense, false);
    assert_int_equal(last.signal, SIGSEGV);
    assert_null(strstr(last.words, "worker_crashed"));
    assert_said("in=\"crash_null+0x");
    assert_said("in=\"main+0x");
}

TEST_CASE(test_threads_crash_at_once)
{
    assert_crash(crash_in_threads, SIGSEGV, "during=\"run\"");
    assert_said("in=\"crash_in_thread+0x");
    const char *first = strstr(last.words, " worker_crashed ");
    assert_non_null(first);
    assert_null(strstr(first + 1, " worker_crashed "));
}

TEST_CASE(test_nobody_reads)
{
    crash_in_child(crash_with_alarm_blocked, true);
    assert_int_equal(last.signal, SIGSEGV);
}

TEST_MAIN()
