/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ask.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"

static enum status
connect_to(struct ctl_ask *ask, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, ask->path, sizeof(address.sun_path));
    ask->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (ask->fd < 0)
        return error_set_errno(error, "socket");
    if (connect(ask->fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return STATUS_OK;
    if (errno == EACCES || errno == EPERM)
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "%s: permission denied: only root and the node's user may connect",
                         ask->path);
    return error_set(error, STATUS_UNAVAILABLE,
                     "no node listens at %s (%s): is it running, and is this its --counters?",
                     ask->path, strerror(errno));
}

static enum status
hung_up(const struct ctl_ask *ask, struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE,
                     "%s: no readable answer: the node died, or is another build: use the "
                     "shoalctl that came with it",
                     ask->path);
}

static void
write_request(struct bytes *packet, const struct control_request *request)
{
    const struct {
        const char *name, *text;
    } texts[] = {
        {"pipeline", request->pipeline}, {"id", request->id},         {"path", request->path},
        {"key", request->key},           {"prefix", request->prefix}, {"node", request->node},
        {"config", request->config},
    };
    struct json json = json_begin(packet, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_field_int(&json, "version", CONTROL_VERSION);
    json_field_string(&json, "verb", control_verb_name(request->verb));
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        if (texts[i].text != NULL)
            json_field_string(&json, texts[i].name, texts[i].text);
    json_field_int(&json, "from", request->from);
    json_field_int(&json, "limit", request->limit);
    json_field_bool(&json, "no_wait", request->no_wait);
    json_close(&json, '}');
    CHECK(!packet->failed);
}

enum status
ask_send(struct ctl_ask *ask, const char *counters_path, const struct control_request *request,
         struct error *error)
{
    *ask = (struct ctl_ask){.fd = -1};
    enum status status = control_path(counters_path, ask->path, sizeof(ask->path), error);
    if (status == STATUS_OK)
        status = connect_to(ask, error);
    struct bytes packet = {0};
    write_request(&packet, request);
    if (status == STATUS_OK &&
        send(ask->fd, packet.data, packet.used, MSG_NOSIGNAL) != (ssize_t)packet.used)
        status = hung_up(ask, error);
    bytes_fini(&packet);
    if (status != STATUS_OK)
        ask_close(ask);
    return status;
}

void
ask_close(struct ctl_ask *ask)
{
    if (ask->fd >= 0)
        close(ask->fd);
    ask->fd = -1;
}

/* True: data is there, or the other side has closed. */
static bool
wait_readable(int fd, int64_t timeout_ns)
{
    int64_t deadline_ns = clock_now_ns() + timeout_ns;
    for (;;) {
        int64_t left_ns = deadline_ns - clock_now_ns();
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        int ready = poll(&poll_fd, 1, left_ns <= 0 ? 0 : (int)(left_ns / NS_PER_MS) + 1);
        if (ready > 0)
            return true;
        if (left_ns <= 0)
            return false;
    }
}

/* The descriptor in the message; -1: none. */
static int
descriptor_of(struct msghdr *message)
{
    int fd = -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(fd)))
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    return fd;
}

/* NULL: not JSON. Closes the descriptor. */
static json_t *
read_file(int fd)
{
    FILE *file = fdopen(fd, "re");
    CHECK(file != NULL);
    rewind(file);
    json_t *answer = json_loadf(file, JSON_REJECT_DUPLICATES, NULL);
    fclose(file);
    return answer;
}

/* NULL: the other side has closed, or sent no JSON. */
static json_t *
receive(int socket)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    char packet[CONTROL_PACKET_BYTES];
    struct iovec part = {.iov_base = packet, .iov_len = sizeof(packet)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof(control.room)};
    ssize_t bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (bytes <= 0)
        return NULL;
    int fd = descriptor_of(&message);
    return fd >= 0 ? read_file(fd)
                   : json_loadb(packet, (size_t)bytes, JSON_REJECT_DUPLICATES, NULL);
}

enum ctl_exit
ask_receive(struct ctl_ask *ask, int64_t timeout_ns, json_t **answer, struct error *error)
{
    if (!wait_readable(ask->fd, timeout_ns)) {
        error_set(error, STATUS_DEADLINE_EXCEEDED, "no answer yet");
        return CTL_LATE;
    }
    json_t *root = receive(ask->fd);
    enum ctl_exit code = CTL_OK;
    if (json_is_string(json_object_get(root, "error"))) { /* in any version */
        enum status status = status_from_number(ask_number(root, "code"));
        error_set(error, status == STATUS_OK ? STATUS_UNKNOWN : status, "%s",
                  ask_text(root, "error"));
        code = CTL_NEGATIVE;
    } else if (ask_number(root, "version") != CONTROL_VERSION) {
        (void)hung_up(ask, error);
        code = CTL_UNREACHABLE;
    }
    if (code == CTL_OK)
        *answer = root;
    else
        json_decref(root);
    return code;
}

const char *
ask_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text == NULL ? "" : text;
}

int64_t
ask_number(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

int
ask_end(enum ctl_exit code, enum ctl_output output, json_t *answer, const struct error *error)
{
    const char *text = ask_text(answer, "text");
    struct bytes line = {0};
    struct json json = json_begin(&line, JSON_STYLE_SPACED);
    if (code != CTL_OK) {
        ctl_fail(code, output, error);
    } else if (output == CTL_TEXT) {
        puts(text);
    } else {
        json_open(&json, '{');
        json_field_string(&json, "status", status_name(STATUS_OK));
        json_field_string(&json, "text", text);
        json_close(&json, '}');
        ctl_print_line(&line, stdout);
    }
    json_decref(answer);
    return code;
}
