/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/loop/service_manager.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

enum { RETRY_MS = 100, USEC_DIGITS_MAX = 15 };

/* ---- sending ---- */

/* True: it is sent, or will never be. */
static bool
send_datagram(const struct service_manager *manager, const char *text)
{
    ssize_t sent = sendto(manager->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
                          (const struct sockaddr *)&manager->address, manager->address_bytes);
    if (sent >= 0)
        return true;
    if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS)
        return false;
    log_warn_limited("service_manager_unheard error=\"%s\"", strerror(errno));
    return true;
}

static void
send_text(struct service_manager *manager)
{
    manager->is_unreported = !send_datagram(manager, manager->text);
    if (manager->is_unreported)
        loop_timer_set(manager->timer, RETRY_MS * (int64_t)NS_PER_MS);
}

static void
on_timer(void *context)
{
    struct service_manager *manager = context;
    if (manager->beat_ns > 0 && !manager->has_left) {
        (void)send_datagram(manager, "WATCHDOG=1");
        loop_timer_set(manager->timer, manager->beat_ns);
    }
    if (manager->is_unreported)
        send_text(manager);
}

/* ---- the environment ---- */

/* A whole number of microseconds, or 0. */
static int64_t
read_usec(const char *text)
{
    if (text == NULL || text[0] == '\0' || strlen(text) > USEC_DIGITS_MAX ||
        strspn(text, "0123456789") != strlen(text))
        return 0;
    return strtoll(text, NULL, 10);
}

/* Half of what $WATCHDOG_USEC grants, if it is meant for this process; 0: no signs of life. */
static int64_t
beat_from_environment(void)
{
    const char *usec = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");
    if (usec == NULL || (pid != NULL && read_usec(pid) != getpid()))
        return 0;
    int64_t beat_ns = read_usec(usec) * (NS_PER_US / 2);
    if (beat_ns <= 0)
        log_warn("service_manager_refused variable=WATCHDOG_USEC value=\"%.32s\"", usec);
    return beat_ns > 0 ? beat_ns : 0;
}

/* A path, or a name behind an @ that no file has. */
static bool
address_from_text(struct service_manager *manager, const char *text)
{
    size_t bytes = strlen(text);
    if ((text[0] != '/' && text[0] != '@') || bytes < 2 ||
        bytes >= sizeof(manager->address.sun_path))
        return false;
    manager->address.sun_family = AF_UNIX;
    memcpy(manager->address.sun_path, text, bytes + 1);
    if (text[0] == '@')
        manager->address.sun_path[0] = '\0';
    manager->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
    return true;
}

void
service_manager_init(struct service_manager *manager, struct loop *loop)
{
    *manager = (struct service_manager){.fd = -1};
    const char *path = getenv("NOTIFY_SOCKET");
    if (path == NULL)
        return;
    if (!address_from_text(manager, path)) {
        log_warn("service_manager_refused variable=NOTIFY_SOCKET value=\"%.128s\"", path);
        return;
    }
    manager->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (manager->fd < 0) {
        log_warn("service_manager_unheard error=\"%s\"", strerror(errno));
        return;
    }
    manager->timer = loop_timer_create(loop_base(loop), on_timer, manager);
    manager->beat_ns = beat_from_environment();
    if (manager->beat_ns > 0)
        loop_timer_set(manager->timer, 0);
}

void
service_manager_fini(struct service_manager *manager)
{
    if (manager->timer == NULL)
        return;
    loop_timer_destroy(manager->timer);
    close(manager->fd);
    *manager = (struct service_manager){.fd = -1};
}

/* ---- states ---- */

static void
state_text(enum service_state state, char *text, size_t room)
{
    switch (state) {
    case SERVICE_STARTING: text[0] = '\0'; break;
    case SERVICE_READY: snprintf(text, room, "READY=1\n"); break;
    case SERVICE_RELOADING: { /* Type=notify-reload wants to know since when */
        struct timespec now;
        CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
        snprintf(text, room, "RELOADING=1\nMONOTONIC_USEC=%" PRId64 "\n",
                 (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
        break;
    }
    case SERVICE_STOPPING: snprintf(text, room, "STOPPING=1\n"); break;
    }
}

void
service_manager_leave(struct service_manager *manager, pid_t successor)
{
    if (manager->timer == NULL || manager->has_left)
        return;
    manager->has_left = true;
    snprintf(manager->text, sizeof(manager->text), "MAINPID=%d", (int)successor);
    send_text(manager);
}

void
service_manager_notify(struct service_manager *manager, enum service_state state,
                       const char *format, ...)
{
    char line[SERVICE_TEXT_BYTES / 2];
    char said[SERVICE_TEXT_BYTES / 4];
    if (manager->timer == NULL || manager->has_left)
        return;
    if (manager->state == SERVICE_STOPPING)
        state = SERVICE_STOPPING;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    for (char *c = line; *c != '\0'; c++)
        if (*c == '\n')
            *c = ' ';
    const char *shown = strstr(manager->text, "STATUS=");
    if (state == manager->state && shown != NULL && strcmp(shown + strlen("STATUS="), line) == 0)
        return;
    manager->state = state;
    state_text(state, said, sizeof(said));
    snprintf(manager->text, sizeof(manager->text), "%sSTATUS=%s", said, line);
    send_text(manager);
}
