/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/loop/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/listen_fds.h"
#include "base/log.h"
#include "coordinator/loop/control_request.h"

enum { CALLS_MAX = 64 };

/* Between two attempts to accept a caller when there is no descriptor for it. */
#define ACCEPT_AGAIN_NS NS_PER_S

struct control_call {
    struct control *control;
    int fd; /* -1: not in use */
    struct loop_watch *watch;
    bool asked;      /* its request was handed on, and it waits for the answer */
    bool kept;       /* it has the answer and has not hung up */
    uint64_t number; /* in order of arrival */
};

struct control {
    struct control_handler handler;
    struct loop *loop;
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    int fd;
    struct loop_watch *watch; /* NULL while there is no descriptor for a caller */
    struct loop_timer *accept_again;
    uint64_t caller_count;
    struct control_call calls[CALLS_MAX];
};

/* ---- one call ---- */

static void
call_close(struct control_call *call)
{
    loop_watch_remove(call->watch);
    close(call->fd);
    *call = (struct control_call){.control = call->control, .fd = -1};
}

/* `fd` -1: none. One message on an empty socket does not block, and a caller that is gone need not
 * know. */
static void
send_packet(const struct control_call *call, const char *packet, size_t bytes, int fd)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control = {.room = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof(control.room);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    (void)sendmsg(call->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static enum status
write_all(int fd, const char *data, size_t bytes, struct error *error)
{
    while (bytes > 0) {
        ssize_t written = write(fd, data, bytes);
        if (written < 0)
            return error_set_errno(error, "a file for the answer");
        data += written;
        bytes -= (size_t)written;
    }
    return STATUS_OK;
}

static enum status
make_file(const struct bytes *answer, int *fd, struct error *error)
{
    enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL };
    *fd = memfd_create("shoal-answer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0)
        return error_set_errno(error, "a file for the answer");
    enum status status = write_all(*fd, answer->data, answer->used, error);
    if (status == STATUS_OK && fcntl(*fd, F_ADD_SEALS, SEALS) != 0)
        status = error_set_errno(error, "a file for the answer");
    return status;
}

static struct json
answer_begin(struct bytes *answer)
{
    struct json json = json_begin(answer, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_field_int(&json, "version", CONTROL_VERSION);
    return json;
}

void
control_write_error(struct bytes *answer, const struct error *error)
{
    struct json json = answer_begin(answer);
    json_field_string(&json, "error", error->text);
    json_field_string(&json, "status", status_name(error->status));
    json_field_int(&json, "code", error->status);
    json_close(&json, '}');
}

void
control_write_list(struct bytes *answer, const struct bytes *list)
{
    CHECK(!list->failed);
    struct json json = answer_begin(answer);
    json_field_string(&json, "status", status_name(STATUS_OK));
    json_name(&json, "list");
    json_put_raw(&json, list->data, list->used);
    json_close(&json, '}');
}

/* Sends the answer and frees it. */
static void
call_answer(struct control_call *call, struct bytes *answer)
{
    struct error error = ERROR_NONE;
    int fd = -1;
    CHECK(!answer->failed);
    if (answer->used > CONTROL_PACKET_BYTES && make_file(answer, &fd, &error) != STATUS_OK) {
        answer->used = 0;
        control_write_error(answer, &error);
        send_packet(call, answer->data, answer->used, -1);
    } else if (fd >= 0) {
        send_packet(call, "{}", strlen("{}"), fd);
    } else {
        send_packet(call, answer->data, answer->used, -1);
    }
    if (fd >= 0)
        close(fd);
    bytes_fini(answer);
    if (!call->kept)
        call_close(call);
}

void
control_answer(struct control_call *call, const struct error *error, const char *text)
{
    struct bytes answer = {0};
    if (error != NULL) {
        control_write_error(&answer, error);
    } else {
        struct json json = answer_begin(&answer);
        json_field_string(&json, "status", status_name(STATUS_OK));
        json_field_string(&json, "text", text);
        json_close(&json, '}');
    }
    call_answer(call, &answer);
}

void
control_notify(struct control_call *call, const char *progress)
{
    struct bytes packet = {0};
    struct json json = answer_begin(&packet);
    json_field_string(&json, "progress", progress);
    json_close(&json, '}');
    CHECK(!packet.failed);
    send_packet(call, packet.data, packet.used, -1);
    bytes_fini(&packet);
}

void
control_answer_list(struct control_call *call, const struct bytes *list)
{
    struct bytes answer = {0};
    control_write_list(&answer, list);
    call_answer(call, &answer);
}

void
control_answer_keep(struct control_call *call, const char *text)
{
    call->kept = call->watch != NULL; /* or it has hung up already */
    control_answer(call, NULL, text);
}

uint32_t
control_kept(const struct control *control)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < CALLS_MAX; i++)
        count += control->calls[i].kept;
    return count;
}

static void
on_call_readable(void *context)
{
    struct control_call *call = context;
    char packet[CONTROL_REQUEST_BYTES];
    ssize_t bytes = recv(call->fd, packet, sizeof(packet), MSG_DONTWAIT | MSG_TRUNC);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (call->kept) {
        call_close(call);
        return;
    }
    if (call->asked) { /* gone, or impatient: the answer will reach nobody, which is allowed */
        loop_watch_remove(call->watch);
        call->watch = NULL;
        return;
    }
    if (bytes <= 0) {
        call_close(call);
        return;
    }
    struct error error = ERROR_NONE;
    struct control_request request;
    if (control_request_read(packet, (size_t)bytes, &request, &error) != STATUS_OK) {
        control_answer(call, &error, NULL);
        return;
    }
    call->asked = true;
    call->control->handler.on_request(call->control->handler.context, &request, call);
}

/* ---- the socket ---- */

static bool
peer_may(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           (peer.uid == 0 || peer.uid == geteuid());
}

/* Finds a place for one more call: a free one, or that of the caller that has been silent longest.
 * NULL: all have asked. */
static struct control_call *
make_room(struct control *control)
{
    struct control_call *silent = NULL;
    for (uint32_t i = 0; i < CALLS_MAX; i++) {
        struct control_call *call = &control->calls[i];
        if (call->fd < 0)
            return call;
        if (!call->asked && (silent == NULL || call->number < silent->number))
            silent = call;
    }
    if (silent != NULL)
        call_close(silent);
    return silent;
}

static void
take_caller(struct control *control, int fd)
{
    if (!peer_may(fd)) {
        log_warn_limited("control_refused why=\"neither root nor the node's own user\"");
        close(fd);
        return;
    }
    struct control_call *call = make_room(control);
    if (call == NULL) {
        log_warn_limited("control_refused why=\"%d calls are waiting for their answers\"",
                         CALLS_MAX);
        close(fd);
        return;
    }
    call->fd = fd;
    call->number = control->caller_count++;
    call->watch = loop_watch_add(control->loop, fd, on_call_readable, call);
}

static void
on_caller(void *context)
{
    struct control *control = context;
    int fd = accept4(control->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        take_caller(control, fd);
        return;
    }
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
        return; /* the caller has gone again */
    /* The caller keeps waiting and the socket stays readable: looking again at once would be a busy
     * loop. */
    log_warn("control_paused why=\"%s\"", strerror(errno));
    loop_watch_remove(control->watch);
    control->watch = NULL;
    loop_timer_set(control->accept_again, ACCEPT_AGAIN_NS);
}

static void
on_accept_again(void *context)
{
    struct control *control = context;
    control->watch = loop_watch_add(control->loop, control->fd, on_caller, control);
}

static enum status
listen_at(struct control *control, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, control->path, sizeof(address.sun_path));
    enum listen_owner owner;
    control->fd = listen_fds_take((const struct sockaddr *)&address, &owner);
    if (control->fd >= 0)
        return STATUS_OK;
    control->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (control->fd < 0)
        return error_set_errno(error, "control socket");
    unlink(control->path);
    /* created without permissions, so that no others can connect before they are set */
    mode_t before = umask(0177);
    int bound = bind(control->fd, (struct sockaddr *)&address, sizeof(address));
    umask(before);
    if (bound != 0 || listen(control->fd, CALLS_MAX) != 0)
        return error_set_errno(error, "control socket %s", control->path);
    log_info("socket_listening path=\"%s\" service=control", control->path);
    return STATUS_OK;
}

enum status
control_create(struct loop *loop, const char *counters_path, const struct control_handler *handler,
               struct control **created, struct error *error)
{
    struct control *control = calloc(1, sizeof(*control));
    CHECK(control != NULL);
    control->handler = *handler;
    control->loop = loop;
    control->fd = -1;
    for (uint32_t i = 0; i < CALLS_MAX; i++)
        control->calls[i] = (struct control_call){.control = control, .fd = -1};
    enum status status = control_path(counters_path, control->path, sizeof(control->path), error);
    if (status == STATUS_OK)
        status = listen_at(control, error);
    if (status != STATUS_OK) {
        if (control->fd >= 0)
            close(control->fd);
        free(control);
        return status;
    }
    control->accept_again = loop_timer_create(loop_base(loop), on_accept_again, control);
    *created = control;
    return STATUS_OK;
}

void
control_accept(struct control *control)
{
    /* a socket reports to its callers the process that called `listen` last */
    CHECK(listen(control->fd, CALLS_MAX) == 0);
    control->watch = loop_watch_add(control->loop, control->fd, on_caller, control);
}

void
control_part(struct control *control)
{
    loop_timer_clear(control->accept_again);
    loop_watch_remove(control->watch);
    control->watch = NULL;
}

void
control_destroy(struct control *control)
{
    if (control == NULL)
        return;
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_UNAVAILABLE, "the node has stopped");
    for (uint32_t i = 0; i < CALLS_MAX; i++)
        if (control->calls[i].kept)
            call_close(&control->calls[i]);
        else if (control->calls[i].fd >= 0)
            control_answer(&control->calls[i], &error, NULL);
    listen_fds_unlink(control->path);
    loop_watch_remove(control->watch);
    loop_timer_destroy(control->accept_again);
    close(control->fd);
    free(control);
}
