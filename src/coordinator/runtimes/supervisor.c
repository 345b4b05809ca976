/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/runtimes/supervisor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"

struct supervisor {
    struct supervisor_options options;
    uint32_t count; /* of those begun */
    struct container containers[];
};

/* A manifest names the path: a socket that a process listens to is another program's. */
static bool
is_dead(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return false;
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return false;
    int code = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : errno;
    close(fd);
    return code == ECONNREFUSED;
}

/* A socket of an earlier start would refuse the next one. */
static void
prepare_socket(const char *target)
{
    struct stat file;
    if (target == NULL || strncmp(target, "unix:", 5) != 0)
        return;
    const char *path = target + 5;
    char *folder = strndup(path, (size_t)(strrchr(path, '/') - path));
    CHECK(folder != NULL);
    if (folder[0] != '\0' && mkdir(folder, 0700) != 0 && errno != EEXIST)
        log_warn("container_socket_folder folder=\"%s\" error=\"%s\" action=\"make it\"", folder,
                 strerror(errno));
    free(folder);
    if (lstat(path, &file) == 0 && S_ISSOCK(file.st_mode) && is_dead(path))
        (void)unlink(path);
}

static void
on_change(void *context)
{
    struct supervisor *supervisor = context;
    supervisor->options.on_change(supervisor->options.context);
}

struct supervisor *
supervisor_create(const struct supervisor_options *options)
{
    const struct runtime_plan *plan = options->plan;
    struct supervisor *supervisor =
        calloc(1, sizeof(*supervisor) + plan->container_count * sizeof(struct container));
    CHECK(supervisor != NULL && plan->problem == NULL);
    supervisor->options = *options;
    spawn_adopt_orphans();
    prepare_socket(plan->management);
    prepare_socket(plan->calls);
    for (uint32_t i = 0; i < plan->container_count; i++)
        container_init(&supervisor->containers[supervisor->count++],
                       &(struct container_options){.loop = options->loop,
                                                   .worker_program = options->worker_program,
                                                   .runtime = plan->name,
                                                   .plan = &plan->containers[i],
                                                   .stop_ns = options->stop_ns,
                                                   .restart_ns_max = options->restart_ns_max,
                                                   .log = options->log,
                                                   .restarts = options->restarts,
                                                   .on_change = on_change,
                                                   .context = supervisor});
    return supervisor;
}

void
supervisor_look(const struct supervisor *supervisor, struct supervisor_view *view)
{
    int64_t latest_ns = 0;
    *view = (struct supervisor_view){.containers = supervisor->options.plan->container_count,
                                     .error = ""};
    for (uint32_t i = 0; i < supervisor->count; i++) {
        const struct container *one = &supervisor->containers[i];
        view->running += one->state == CONTAINER_RUNS;
        view->stopped += one->state == CONTAINER_STOPPED;
        view->starts += one->starts;
        view->restarts += one->starts > 0 ? one->starts - 1 : 0;
        if (one->error[0] != '\0' && one->started_ns >= latest_ns) {
            view->error = one->error;
            latest_ns = one->started_ns;
        }
    }
}

void
supervisor_stop(struct supervisor *supervisor)
{
    for (uint32_t i = 0; supervisor != NULL && i < supervisor->count; i++)
        container_stop(&supervisor->containers[i]);
}

void
supervisor_kill(struct supervisor *supervisor)
{
    for (uint32_t i = 0; supervisor != NULL && i < supervisor->count; i++)
        container_kill(&supervisor->containers[i]);
}

void
supervisor_destroy(struct supervisor *supervisor)
{
    if (supervisor == NULL)
        return;
    for (uint32_t i = 0; i < supervisor->count; i++)
        container_fini(&supervisor->containers[i]);
    free(supervisor);
}
