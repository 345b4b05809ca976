/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoalctl reload: asks the node on this machine, over the socket beside its counters, for a new
 * generation of a pipeline, and waits until it serves or has failed to.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/ctl.h"
#include "ctl/json.h"
#include "shm/control.h"
#include "shm/counters.h"

enum { TIMEOUT_MS = 60000, TIMEOUT_MS_MAX = 24 * 3600 * 1000, MS_PER_S = 1000, US_PER_MS = 1000 };

enum reload_option { OPTION_ALL, OPTION_COUNTERS, OPTION_TIMEOUT, OPTION_JSON };

static const struct ctl_option options[] = {
    [OPTION_ALL] = {"all", NULL, "every pipeline, as SIGHUP does"},
    [OPTION_COUNTERS] = {"counters", "PATH",
                         "the node's counters file, beside which its socket is; default\n"
                         "/run/shoal/counters for root, else $XDG_RUNTIME_DIR/shoal/counters\n"
                         "or /tmp/shoal-<uid>/counters"},
    [OPTION_TIMEOUT] = {"timeout-ms", "N",
                        "how long to wait; default 60000. The reload goes on without us"},
    [OPTION_JSON] = {"json", NULL, "one line of JSON"},
};

struct settings {
    const char *pipeline; /* NULL: none was named */
    const char *counters;
    char counters_default[256];
    int64_t timeout_ms;
    bool all;
    bool json;
};

static enum status
on_option(void *context, size_t index, const char *value, struct error *error)
{
    struct settings *settings = context;
    switch ((enum reload_option)index) {
    case OPTION_ALL: settings->all = true; break;
    case OPTION_COUNTERS: settings->counters = value; break;
    case OPTION_TIMEOUT:
        return ctl_read_whole(value, 1, TIMEOUT_MS_MAX, &settings->timeout_ms, error);
    case OPTION_JSON: settings->json = true; break;
    }
    return STATUS_OK;
}

static enum status
on_argument(void *context, const char *value, struct error *error)
{
    struct settings *settings = context;
    if (settings->pipeline != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "one pipeline at a time, or --all");
    if (value[0] == '\0' || strlen(value) >= CONTROL_NAME_BYTES)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a pipeline's name has 1 to %d bytes, not %zu", CONTROL_NAME_BYTES - 1,
                         strlen(value));
    settings->pipeline = value;
    return STATUS_OK;
}

/* ---- asking ---- */

static enum status
connect_to(const char *path, int64_t timeout_ms, int *connected, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(error, "socket");
    struct timeval timeout = {.tv_sec = timeout_ms / MS_PER_S,
                              .tv_usec = timeout_ms % MS_PER_S * US_PER_MS};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) == 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        error_set(error, STATUS_UNAVAILABLE,
                  "no node listens at %s (%s): is it running, and is this its --counters?", path,
                  strerror(errno));
        close(fd);
        return error->status;
    }
    *connected = fd;
    return STATUS_OK;
}

/* DEADLINE_EXCEEDED: no answer in time. UNAVAILABLE: there was nobody, or it went away. */
static enum status
ask(const struct settings *settings, struct control_answer *answer, struct error *error)
{
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    int fd = -1;
    enum status status = control_path(settings->counters, path, sizeof(path), error);
    if (status == STATUS_OK)
        status = connect_to(path, settings->timeout_ms, &fd, error);
    if (status != STATUS_OK)
        return status;
    struct control_request request = {.version = CONTROL_VERSION, .verb = CONTROL_RELOAD};
    if (settings->pipeline != NULL)
        snprintf(request.name, sizeof(request.name), "%s", settings->pipeline);
    ssize_t bytes = send(fd, &request, sizeof(request), MSG_NOSIGNAL);
    if (bytes == sizeof(request))
        bytes = recv(fd, answer, sizeof(*answer), 0);
    int failure = errno;
    close(fd);
    if (bytes == sizeof(*answer) && answer->version == CONTROL_VERSION) {
        answer->text[sizeof(answer->text) - 1] = '\0';
        return STATUS_OK;
    }
    if (bytes < 0 && (failure == EAGAIN || failure == EWOULDBLOCK))
        return error_set(error, STATUS_DEADLINE_EXCEEDED,
                         "no answer within %lld ms; the reload may still be under way: see "
                         "`shoalctl status`",
                         (long long)settings->timeout_ms);
    return error_set(error, STATUS_UNAVAILABLE,
                     "%s: the node hung up without an answer: it died, or is of another build",
                     path);
}

/* ---- telling ---- */

static int
tell(const struct settings *settings, const struct control_answer *answer)
{
    if (answer->status != STATUS_OK) {
        struct error error = ERROR_NONE;
        error_set(&error, status_from_number(answer->status), "%s", answer->text);
        return ctl_fail(CTL_NEGATIVE, settings->json, &error);
    }
    if (!settings->json) {
        puts(answer->text);
        return CTL_OK;
    }
    struct json json;
    json_init(&json, stdout);
    json_object_begin(&json);
    json_field_string(&json, "status", status_name(STATUS_OK));
    json_field_string(&json, "text", answer->text);
    json_object_end(&json);
    putchar('\n');
    return CTL_OK;
}

static int
reload_run(int argc, char **argv)
{
    struct settings settings = {.timeout_ms = TIMEOUT_MS};
    counters_default_path(settings.counters_default, sizeof(settings.counters_default));
    settings.counters = settings.counters_default;
    struct ctl_reader reader = {on_option, on_argument, &settings};
    int code = ctl_options_read(&reload_command, &reader, argc, argv);
    if (code >= 0)
        return code;
    struct error error = ERROR_NONE;
    if ((settings.pipeline != NULL) == settings.all) {
        error_set(&error, STATUS_INVALID_ARGUMENT,
                  "name a pipeline, or say --all; see shoalctl reload --help");
        return ctl_fail(CTL_USAGE, settings.json, &error);
    }
    struct control_answer answer = {0};
    if (ask(&settings, &answer, &error) == STATUS_OK)
        return tell(&settings, &answer);
    enum ctl_exit why = error.status == STATUS_DEADLINE_EXCEEDED ? CTL_LATE : CTL_UNREACHABLE;
    return ctl_fail(why, settings.json, &error);
}

const struct ctl_command reload_command = {
    .name = "reload",
    .arguments = "[options] PIPELINE",
    .summary = "Give a pipeline new code, parameters or limits without losing a request",
    .about =
        "The node reads its configuration again and starts a new generation of the pipeline's\n"
        "workers beside the old one. When all of them are ready new requests go there and the old\n"
        "ones finish what they have. If the new generation does not come up, the old one goes on\n"
        "serving and this command says why. Replace a plug-in's file by renaming a new one over "
        "it\n"
        "(`install` or `mv`, not `cp`): the old one is still mapped.\n",
    .exits = "  0  the new generation serves\n"
             "  1  it does not come up, or there is no such pipeline: the old one serves\n",
    .example = "  shoalctl reload digits\n",
    .options = options,
    .option_count = ARRAY_COUNT(options),
    .run = reload_run,
};
