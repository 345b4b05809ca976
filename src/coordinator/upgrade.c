/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/listen_fds.h"
#include "base/log.h"
#include "coordinator/loop/predecessor.h"
#include "coordinator/workers/spawn.h"

enum {
    LINES_KEPT = 10, /* of its last words, for the operator */
    LINE_BYTES = 512,
    READ_BYTES = 4096,
    LAST_READS = 32, /* of a dead process: 128 KiB, more than a pipe holds */
    VARIABLE_BYTES = 64 + 16 * LISTEN_FDS_MAX,
    FDS_MAX = LISTEN_FDS_MAX + 3,
};

enum upgrade_state { UPGRADE_NONE, UPGRADE_CHECKS, UPGRADE_STARTS, UPGRADE_YIELDED };

struct upgrade {
    struct upgrade_options options;
    enum upgrade_state state;
    struct control_call *call; /* NULL: answered, or handed over */
    char program[CONTROL_PATH_BYTES];
    char config[CONTROL_PATH_BYTES]; /* "": the present one */
    struct spawned process;          /* `control` is our end of the link */
    struct loop_watch *exits, *speaks, *links;
    struct loop_timer *timer;
    int64_t begun_ns;
    int64_t timeout_ns;
    const char *verdict; /* why it was killed; NULL: it was not */
    char lines[LINES_KEPT][LINE_BYTES];
    uint32_t line_count; /* since its start; the last ones are kept */
    char line[LOG_LINE_BYTES_MAX];
    size_t used; /* of an incomplete line */
};

extern char **environ;

/* ---- its output ---- */

static void
end_line(struct upgrade *upgrade)
{
    if (upgrade->used == 0)
        return;
    snprintf(upgrade->lines[upgrade->line_count++ % LINES_KEPT], LINE_BYTES, "%.*s",
             (int)upgrade->used, upgrade->line);
    if (log_line_is_valid(log_format(), "shoal", upgrade->line, upgrade->used))
        (void)log_pass_on(upgrade->line, upgrade->used);
    else
        (void)log_beside(LOG_INFO, "successor_said pid=%d text=\"%.*s\"", (int)upgrade->process.pid,
                         (int)upgrade->used, upgrade->line);
    upgrade->used = 0;
}

/* False: there is nothing to read, or never will be. */
static bool
read_some(struct upgrade *upgrade, bool *ended)
{
    char text[READ_BYTES];
    ssize_t bytes = read(upgrade->process.words, text, sizeof(text));
    *ended = bytes == 0;
    for (ssize_t i = 0; i < bytes; i++) {
        if (text[i] != '\n')
            upgrade->line[upgrade->used++] = text[i];
        if (text[i] == '\n' || upgrade->used == sizeof(upgrade->line) - 1)
            end_line(upgrade);
    }
    return bytes > 0;
}

static void
on_speaks(void *context)
{
    struct upgrade *upgrade = context;
    bool ended;
    (void)read_some(upgrade, &ended);
    if (!ended)
        return;
    end_line(upgrade);
    loop_watch_remove(upgrade->speaks);
    upgrade->speaks = NULL;
}

/* ---- its end ---- */

static void
forget_process(struct upgrade *upgrade)
{
    loop_watch_remove(upgrade->exits);
    loop_watch_remove(upgrade->speaks);
    loop_watch_remove(upgrade->links);
    upgrade->exits = upgrade->speaks = upgrade->links = NULL;
    spawned_close(&upgrade->process);
}

static void
describe_end(int status, char text[64])
{
    if (WIFSIGNALED(status))
        snprintf(text, 64, "was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(text, 64, "ended with exit code %d", WEXITSTATUS(status));
}

/* Cleans up before the answer, so that the operator finds nothing left. The last lines go first. */
static void
fail(struct upgrade *upgrade, const struct error *error)
{
    log_error("upgrade_failed error=\"%s\"", error->text);
    loop_timer_clear(upgrade->timer);
    upgrade->state = UPGRADE_NONE;
    upgrade->options.on_failed(upgrade->options.context);
    uint32_t first = upgrade->line_count > LINES_KEPT ? upgrade->line_count - LINES_KEPT : 0;
    for (uint32_t i = first; i < upgrade->line_count && upgrade->call != NULL; i++)
        control_notify(upgrade->call, upgrade->lines[i % LINES_KEPT]);
    if (upgrade->call != NULL)
        control_answer(upgrade->call, error, NULL);
    upgrade->call = NULL;
}

static void
fail_ended(struct upgrade *upgrade, pid_t pid, int status)
{
    struct error error = ERROR_NONE;
    char how[64];
    describe_end(status, how);
    error_set(&error, STATUS_FAILED_PRECONDITION, "the %s (pid %d) %s%s%s; pid %d serves on: %s%s",
              upgrade->state == UPGRADE_CHECKS ? "check" : "new process", (int)pid, how,
              upgrade->state == UPGRADE_CHECKS ? "" : " before it was ready",
              upgrade->verdict == NULL ? "" : upgrade->verdict, (int)getpid(), upgrade->program,
              upgrade->state == UPGRADE_CHECKS ? " --check" : "");
    fail(upgrade, &error);
}

static enum status start(struct upgrade *upgrade, struct error *error);

static void
on_exits(void *context)
{
    struct upgrade *upgrade = context;
    pid_t pid = upgrade->process.pid;
    int status;
    bool ended;
    if (waitpid(pid, &status, WNOHANG) != pid)
        return;
    for (int i = 0; i < LAST_READS && read_some(upgrade, &ended); i++)
        ;
    end_line(upgrade);
    forget_process(upgrade);
    bool is_good = WIFEXITED(status) && WEXITSTATUS(status) == 0 && upgrade->verdict == NULL;
    struct error error = ERROR_NONE;
    if (upgrade->state == UPGRADE_YIELDED)
        log_error("successor_died pid=%d status=%d", (int)pid, status);
    else if (upgrade->state != UPGRADE_CHECKS || !is_good)
        fail_ended(upgrade, pid, status);
    else if (start(upgrade, &error) != STATUS_OK)
        fail(upgrade, &error);
}

static void
kill_process(struct upgrade *upgrade, const char *why)
{
    if (upgrade->verdict == NULL)
        upgrade->verdict = why;
    spawned_signal(&upgrade->process, SIGKILL); /* its workers die with it */
}

static void
on_timeout(void *context)
{
    kill_process(context, ": `upgrade_timeout_ms` was over");
}

/* A successor may have said that it is ready and died before this process read it. */
static bool
has_died(const struct spawned *process)
{
    struct pollfd end = {.fd = process->pidfd, .events = POLLIN};
    return poll(&end, 1, 0) == 1;
}

static void
on_link(void *context)
{
    struct upgrade *upgrade = context;
    char said;
    ssize_t bytes = recv(upgrade->process.control, &said, sizeof(said), MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (bytes <= 0) { /* its end is to be seen by the pidfd */
        loop_watch_remove(upgrade->links);
        upgrade->links = NULL;
        return;
    }
    if (said != PREDECESSOR_READY || upgrade->state != UPGRADE_STARTS || upgrade->verdict != NULL ||
        has_died(&upgrade->process))
        return;
    char text[128];
    double seconds = (double)(clock_now_ns() - upgrade->begun_ns) / NS_PER_S;
    snprintf(text, sizeof(text), "ready after %.1f s: pid %d serves, pid %d drains", seconds,
             (int)upgrade->process.pid, (int)getpid());
    log_info("upgrade_ready pid=%d after_ms=%lld", (int)upgrade->process.pid,
             (long long)(seconds * 1000));
    control_notify(upgrade->call, text);
    loop_timer_clear(upgrade->timer);
    upgrade->options.on_ready(upgrade->options.context, upgrade->process.pid);
}

/* ---- its start ---- */

/* The descriptors and the variable that it gets beside the arguments. */
struct legacy {
    int pidfd;     /* of this process; -1: none */
    int link;      /* its end; -1: none */
    int stderr_fd; /* a copy of ours; -1: none */
    int words;     /* the end that it writes to */
    int fds[FDS_MAX];
    unsigned fd_count;
    char variable[VARIABLE_BYTES];
};

static void
legacy_close(const struct legacy *legacy)
{
    const int fds[] = {legacy->pidfd, legacy->link, legacy->stderr_fd, legacy->words};
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static enum status
add_sockets(struct legacy *legacy, struct error *error)
{
    struct listen_fd sockets[LISTEN_FDS_MAX];
    unsigned count;
    if (!listen_fds_find(sockets, &count))
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "the sockets that this node listens on cannot be found, or are more than "
                         "%d",
                         LISTEN_FDS_MAX);
    size_t used =
        (size_t)snprintf(legacy->variable, VARIABLE_BYTES, PREDECESSOR_VARIABLE "=%d %d %d %d",
                         (int)getpid(), legacy->pidfd, legacy->link, legacy->stderr_fd);
    for (unsigned i = 0; i < count; i++) {
        legacy->fds[legacy->fd_count++] = sockets[i].fd;
        used += (size_t)snprintf(legacy->variable + used, VARIABLE_BYTES - used, " %s%d",
                                 sockets[i].owner == LISTEN_MANAGERS ? "m" : "", sockets[i].fd);
        CHECK(used < VARIABLE_BYTES);
    }
    return STATUS_OK;
}

/* The pipe's end that it writes to blocks, ours does not. */
static enum status
make_words(struct legacy *legacy, struct spawned *process, struct error *error)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return error_set_errno(error, "a pipe for the new process's log");
    process->words = ends[0];
    legacy->words = ends[1];
    return fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 ? STATUS_OK
                                                    : error_set_errno(error, "a pipe's end");
}

static enum status
make_legacy(struct legacy *legacy, struct spawned *process, struct error *error)
{
    int pair[2];
    legacy->pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0); /* FD_CLOEXEC */
    legacy->stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (legacy->pidfd < 0 || legacy->stderr_fd < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        return error_set_errno(error, "descriptors for the new process");
    process->control = pair[0];
    legacy->link = pair[1];
    legacy->fds[legacy->fd_count++] = legacy->pidfd;
    legacy->fds[legacy->fd_count++] = legacy->link;
    legacy->fds[legacy->fd_count++] = legacy->stderr_fd;
    return add_sockets(legacy, error);
}

/* Our environment, less the variables for this process alone. A variable that names this process
 * as the one that gives signs of life would silence the successor. */
static char **
make_environment(const char *variable)
{
    char own_watchdog[32];
    size_t count = 0;
    snprintf(own_watchdog, sizeof(own_watchdog), "WATCHDOG_PID=%d", (int)getpid());
    while (environ[count] != NULL)
        count++;
    char **environment = calloc(count + 2, sizeof(*environment));
    CHECK(environment != NULL);
    count = 0;
    for (char **one = environ; *one != NULL; one++)
        if (strcmp(*one, own_watchdog) != 0)
            environment[count++] = *one;
    if (variable[0] != '\0')
        environment[count] = (char *)(uintptr_t)variable;
    return environment;
}

/* This process's arguments with another program and perhaps another configuration. A start does not
 * fail for a model, so neither does the check, which has little time. */
static char **
make_arguments(const struct upgrade *upgrade)
{
    static char check[] = "--check";
    static char no_models[] = "--no-models";
    const struct node_options *node = upgrade->options.node;
    size_t count = 0;
    while (node->arguments[count] != NULL)
        count++;
    char **arguments = calloc(count + 3, sizeof(*arguments));
    CHECK(arguments != NULL);
    count = 0;
    arguments[count++] = (char *)(uintptr_t)upgrade->program;
    if (upgrade->state == UPGRADE_CHECKS) {
        arguments[count++] = check;
        arguments[count++] = no_models;
    }
    for (size_t i = 1; node->arguments[i] != NULL; i++)
        arguments[count++] = node->arguments[i] == node->config_path && upgrade->config[0] != '\0'
                                 ? (char *)(uintptr_t)upgrade->config
                                 : node->arguments[i];
    return arguments;
}

static enum status
spawn(struct upgrade *upgrade, const struct legacy *legacy, struct error *error)
{
    char **arguments = make_arguments(upgrade);
    char **environment = make_environment(legacy->variable);
    const struct spawn_program_order order = {
        .program = upgrade->program,
        .arguments = arguments,
        .environment = environment,
        .fds = legacy->fds,
        .fd_count = legacy->fd_count,
        .words = legacy->words,
        .words_of_stdout = upgrade->state == UPGRADE_CHECKS,
    };
    struct spawned started;
    enum status status = spawn_program(&order, &started, error);
    free(environment);
    free(arguments);
    if (status != STATUS_OK)
        return status;
    upgrade->process.pid = started.pid;
    upgrade->process.pidfd = started.pidfd;
    return STATUS_OK;
}

static void
watch(struct upgrade *upgrade)
{
    struct loop *loop = upgrade->options.loop;
    upgrade->exits = loop_watch_add(loop, upgrade->process.pidfd, on_exits, upgrade);
    upgrade->speaks = loop_watch_add(loop, upgrade->process.words, on_speaks, upgrade);
    if (upgrade->process.control >= 0)
        upgrade->links = loop_watch_add(loop, upgrade->process.control, on_link, upgrade);
}

/* Starts the process of the upgrade's state. */
static enum status
run(struct upgrade *upgrade, struct error *error)
{
    struct legacy *legacy = calloc(1, sizeof(*legacy));
    CHECK(legacy != NULL);
    legacy->pidfd = legacy->link = legacy->stderr_fd = legacy->words = -1;
    upgrade->process = SPAWNED_NONE;
    upgrade->line_count = 0;
    upgrade->used = 0;
    enum status status = make_words(legacy, &upgrade->process, error);
    if (status == STATUS_OK && upgrade->state == UPGRADE_STARTS)
        status = make_legacy(legacy, &upgrade->process, error);
    if (status == STATUS_OK)
        status = spawn(upgrade, legacy, error);
    legacy_close(legacy);
    free(legacy);
    if (status == STATUS_OK)
        watch(upgrade);
    else
        spawned_close(&upgrade->process);
    return status;
}

static enum status
start(struct upgrade *upgrade, struct error *error)
{
    char text[CONTROL_PATH_BYTES + 64];
    upgrade->state = UPGRADE_STARTS;
    if (run(upgrade, error) != STATUS_OK)
        return error->status;
    snprintf(text, sizeof(text), "started pid %d: %s", (int)upgrade->process.pid, upgrade->program);
    log_info("upgrade_started pid=%d program=\"%s\"", (int)upgrade->process.pid, upgrade->program);
    control_notify(upgrade->call, text);
    return STATUS_OK;
}

/* `shoald serve` has no --check: its configuration is made. */
static enum status
check(struct upgrade *upgrade, struct error *error)
{
    upgrade->state = UPGRADE_CHECKS;
    return run(upgrade, error);
}

enum status
upgrade_begin(struct upgrade *upgrade, const struct control_request *request, int64_t timeout_ns,
              struct control_call *call, struct error *error)
{
    const struct node_options *node = upgrade->options.node;
    CHECK(upgrade->state == UPGRADE_NONE);
    if (node->greets && request->config[0] != '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "`shoald serve` has no file of its configuration that another could "
                         "replace");
    snprintf(upgrade->program, sizeof(upgrade->program), "%s",
             request->path[0] != '\0' ? request->path : node->program);
    snprintf(upgrade->config, sizeof(upgrade->config), "%s", request->config);
    upgrade->begun_ns = clock_now_ns();
    upgrade->verdict = NULL;
    upgrade->call = call;
    enum status status = node->greets ? start(upgrade, error) : check(upgrade, error);
    if (status == STATUS_OK) {
        loop_timer_set(upgrade->timer, timeout_ns);
        return STATUS_OK;
    }
    upgrade->state = UPGRADE_NONE;
    upgrade->call = NULL;
    return status;
}

/* ---- the node's questions and orders ---- */

bool
upgrade_is_under_way(const struct upgrade *upgrade)
{
    return upgrade != NULL &&
           (upgrade->state == UPGRADE_CHECKS || upgrade->state == UPGRADE_STARTS);
}

bool
upgrade_has_yielded(const struct upgrade *upgrade)
{
    return upgrade != NULL && upgrade->state == UPGRADE_YIELDED;
}

struct control_call *
upgrade_yield(struct upgrade *upgrade)
{
    static const char yield = PREDECESSOR_YIELD;
    struct control_call *call = upgrade->call;
    upgrade->state = UPGRADE_YIELDED;
    upgrade->call = NULL;
    /* fits; if the successor has just died, its pidfd says so */
    (void)!send(upgrade->process.control, &yield, sizeof(yield), MSG_NOSIGNAL | MSG_DONTWAIT);
    return call;
}

void
upgrade_signal(struct upgrade *upgrade, int number)
{
    spawned_signal(&upgrade->process, number);
}

void
upgrade_cancel(struct upgrade *upgrade, const char *why)
{
    if (upgrade_is_under_way(upgrade))
        kill_process(upgrade, why);
}

/* ---- life ---- */

struct upgrade *
upgrade_create(const struct upgrade_options *options)
{
    struct upgrade *upgrade = calloc(1, sizeof(*upgrade));
    CHECK(upgrade != NULL);
    upgrade->options = *options;
    upgrade->process = SPAWNED_NONE;
    upgrade->timer = loop_timer_create(loop_base(options->loop), on_timeout, upgrade);
    return upgrade;
}

void
upgrade_destroy(struct upgrade *upgrade)
{
    if (upgrade == NULL)
        return;
    if (upgrade_is_under_way(upgrade) && upgrade->process.pid > 0) {
        spawned_signal(&upgrade->process, SIGKILL);
        (void)waitpid(upgrade->process.pid, NULL, 0);
    }
    forget_process(upgrade);
    loop_timer_destroy(upgrade->timer);
    free(upgrade);
}
