/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/runtimes/container.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "ipc/counters.h"

#define PAUSE_NS ((int64_t)100 * NS_PER_MS)
#define STEADY_NS ((int64_t)60 * NS_PER_S) /* a run that long forgets earlier ends */

static void start(struct container *container);

static void
enter(struct container *container, enum container_state state)
{
    static const uint32_t from[] = {
        [CONTAINER_PAUSES] = 1u << CONTAINER_PAUSES | 1u << CONTAINER_RUNS,
        [CONTAINER_RUNS] = 1u << CONTAINER_PAUSES,
        [CONTAINER_STOPS] = 1u << CONTAINER_RUNS,
        [CONTAINER_STOPPED] = 1u << CONTAINER_PAUSES | 1u << CONTAINER_STOPS,
    };
    bool has_process = state == CONTAINER_RUNS || state == CONTAINER_STOPS;
    CHECK((from[state] & 1u << container->state) != 0);
    CHECK(has_process == (container->process.pid > 0));
    container->state = state;
}

static void
set_state(struct container *container, enum container_state state)
{
    enter(container, state);
    container->options.on_change(container->options.context);
}

/* ---- its output ---- */

static void
on_line(void *context, const char *text, size_t bytes)
{
    struct container *container = context;
    snprintf(container->said, sizeof(container->said), "%.*s", (int)bytes, text);
}

static void
start_log(struct container *container)
{
    struct worker_log_options log = container->options.log;
    log.loop = container->options.loop;
    log.fd = container->process.words;
    log.source = WORKER_LOG_OF_CONTAINER;
    log.pipeline = container->options.runtime;
    log.stage = container->options.plan->name;
    log.pid = container->process.pid;
    log.on_line = on_line;
    log.context = container;
    container->log = worker_log_create(&log);
}

/* ---- its end ---- */

static void
forget_process(struct container *container)
{
    loop_watch_remove(container->exits);
    container->exits = NULL;
    worker_log_destroy(container->log);
    container->log = NULL;
    spawned_close(&container->process);
    spawn_kill_orphans();
}

static void
pause_or_stop(struct container *container)
{
    if (container->state == CONTAINER_STOPS) {
        loop_timer_clear(container->timer);
        set_state(container, CONTAINER_STOPPED);
        return;
    }
    int64_t pause_ns = container->pause_ns;
    container->pause_ns = 2 * pause_ns < container->options.restart_ns_max
                              ? 2 * pause_ns
                              : container->options.restart_ns_max;
    log_warn_limited("container_ended runtime=%s container=%s error=\"%s\" restart_in_ms=%lld",
                     container->options.runtime, container->options.plan->name, container->error,
                     (long long)(pause_ns / NS_PER_MS));
    loop_timer_set(container->timer, pause_ns);
    set_state(container, CONTAINER_PAUSES);
}

static void
describe_end(struct container *container, int status, double seconds)
{
    char how[96];
    if (WIFSIGNALED(status))
        snprintf(how, sizeof(how), "was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(how, sizeof(how), "ended with exit code %d", WEXITSTATUS(status));
    snprintf(container->error, sizeof(container->error), "container \"%.100s\" %s after %.1f s%s%s",
             container->options.plan->name, how, seconds, container->said[0] != '\0' ? ": " : "",
             container->said);
}

static void
on_exit_seen(void *context)
{
    struct container *container = context;
    int status;
    if (waitpid(container->process.pid, &status, WNOHANG) != container->process.pid)
        return;
    int64_t ran_ns = clock_now_ns() - container->started_ns;
    forget_process(container); /* its last line comes */
    if (ran_ns >= STEADY_NS)
        container->pause_ns = PAUSE_NS;
    if (container->state != CONTAINER_STOPS)
        describe_end(container, status, (double)ran_ns / NS_PER_S);
    pause_or_stop(container);
}

/* ---- its start ---- */

/* Our end does not block. Its own does: a program may fail that cannot write. */
static enum status
make_words(struct spawned *process, int *words, struct error *error)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set_errno(error, "a pipe for its output");
    process->words = ends[0];
    *words = ends[1];
    return fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 ? STATUS_OK
                                                    : error_set_errno(error, "a pipe's end");
}

/* The arguments of keep.h, then the program's. */
static char **
make_arguments(const struct container *container, char figures[3][24])
{
    const struct runtime_container *plan = container->options.plan;
    size_t count = 0;
    while (plan->arguments[count] != NULL)
        count++;
    char **arguments = calloc(count + 8, sizeof(char *));
    CHECK(arguments != NULL);
    snprintf(figures[0], 24, "%d", (int)getpid());
    snprintf(figures[1], 24, "%" PRIu64, plan->memory_bytes);
    snprintf(figures[2], 24, "%" PRIu64, plan->cpu_milli);
    const char *const first[] = {container->options.worker_program,
                                 "--keep",
                                 figures[0],
                                 figures[1],
                                 figures[2],
                                 plan->folder,
                                 plan->program};
    for (size_t i = 0; i < ARRAY_COUNT(first); i++)
        arguments[i] = (char *)(uintptr_t)first[i];
    memcpy(arguments + ARRAY_COUNT(first), plan->arguments, count * sizeof(char *));
    return arguments;
}

static enum status
spawn(struct container *container, struct error *error)
{
    char figures[3][24];
    int words = -1;
    struct spawned started;
    container->process = SPAWNED_NONE;
    enum status status = make_words(&container->process, &words, error);
    char **arguments = make_arguments(container, figures);
    if (status == STATUS_OK)
        status = spawn_program(
            &(struct spawn_program_order){.program = container->options.worker_program,
                                          .arguments = arguments,
                                          .environment = container->options.plan->environment,
                                          .words = words,
                                          .words_of_stdout = true},
            &started, error);
    free(arguments);
    if (words >= 0)
        close(words);
    if (status == STATUS_OK) {
        container->process.pid = started.pid;
        container->process.pidfd = started.pidfd;
    } else {
        spawned_close(&container->process);
    }
    return status;
}

static void
start(struct container *container)
{
    struct error error = ERROR_NONE;
    container->said[0] = '\0';
    container->started_ns = clock_now_ns();
    if (container->starts++ > 0)
        counter_add(container->options.log.counters, container->options.restarts, 1);
    if (spawn(container, &error) != STATUS_OK) {
        snprintf(container->error, sizeof(container->error), "container \"%.100s\": %.380s",
                 container->options.plan->name, error.text);
        pause_or_stop(container);
        return;
    }
    container->exits =
        loop_watch_add(container->options.loop, container->process.pidfd, on_exit_seen, container);
    start_log(container);
    log_info_limited("container_started runtime=%s container=%s pid=%d program=\"%s\"",
                     container->options.runtime, container->options.plan->name,
                     (int)container->process.pid, container->options.plan->program);
    set_state(container, CONTAINER_RUNS);
}

static void
on_time(void *context)
{
    struct container *container = context;
    if (container->state == CONTAINER_PAUSES) {
        start(container);
        return;
    }
    log_warn_limited("container_killed runtime=%s container=%s why=\"it did not end within "
                     "stop_timeout_ms\"",
                     container->options.runtime, container->options.plan->name);
    container_kill(container);
}

/* ---- life ---- */

void
container_init(struct container *container, const struct container_options *options)
{
    *container =
        (struct container){.options = *options, .process = SPAWNED_NONE, .pause_ns = PAUSE_NS};
    container->timer = loop_timer_create(loop_base(options->loop), on_time, container);
    start(container);
}

void
container_stop(struct container *container)
{
    if (container->state == CONTAINER_RUNS) {
        enter(container, CONTAINER_STOPS);
        spawned_signal(&container->process, SIGTERM);
        loop_timer_set(container->timer, container->options.stop_ns);
    } else if (container->state == CONTAINER_PAUSES) {
        loop_timer_clear(container->timer);
        set_state(container, CONTAINER_STOPPED);
    }
}

void
container_kill(struct container *container)
{
    spawned_signal(&container->process, SIGHUP);
}

void
container_fini(struct container *container)
{
    container_kill(container);
    if (container->process.pid > 0)
        (void)waitpid(container->process.pid, NULL, 0);
    forget_process(container);
    loop_timer_destroy(container->timer);
}
