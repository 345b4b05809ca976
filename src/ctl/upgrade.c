/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoalctl upgrade: asks the local node to start its successor and to leave everything to it,
 * reports the progress, and waits until the old process has ended.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "ctl/ask.h"
#include "ctl/process.h"

enum { TIMEOUT_MS = 3600000 };

struct upgrade_settings {
    struct control_request request;
    const char *counters;
    char *program, *config; /* absolute */
    int64_t timeout_ms;
    enum ctl_output output;
};

/* The node may have another working directory. Links stay: they may lead elsewhere next time. */
static enum status
take_path(const char *value, char **path, struct error *error)
{
    char *folder = value[0] == '/' ? NULL : getcwd(NULL, 0);
    free(*path);
    *path = NULL;
    if (access(value, F_OK) == 0 && (value[0] == '/' || folder != NULL))
        CHECK(asprintf(path, "%s%s%s", folder == NULL ? "" : folder, folder == NULL ? "" : "/",
                       value) >= 0);
    int code = errno;
    free(folder);
    if (*path == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%.256s: %s", value, strerror(code));
    const char *taken = *path;
    return ctl_take_text(&taken, CONTROL_PATH_BYTES, "a path", *path, error);
}

static enum status
take_program(void *settings, const char *value, struct error *error)
{
    return take_path(value, &((struct upgrade_settings *)settings)->program, error);
}

static enum status
take_config(void *settings, const char *value, struct error *error)
{
    return take_path(value, &((struct upgrade_settings *)settings)->config, error);
}

#define AT(field) offsetof(struct upgrade_settings, field)

static const struct ctl_option options[] = {
    {"program", "PATH", "the new shoald; default: the file that has the running one's path now",
     .take = take_program},
    {"config", "PATH", "its configuration; default: the same file", .take = take_config},
    {"counters", "PATH", ASK_COUNTERS_HELP, .form = CTL_WORD, .at = AT(counters)},
    {"timeout-ms", "N", "how long to wait; default 3600000. The upgrade continues afterwards",
     .form = CTL_WHOLE, .at = AT(timeout_ms), .most = ASK_TIMEOUT_MS_MAX},
    {"json", NULL, "lines of JSON", .form = CTL_AS_JSON, .at = AT(output)},
};

static void
print_progress(const struct upgrade_settings *settings, const char *text)
{
    if (settings->output == CTL_TEXT) {
        puts(text);
    } else {
        struct bytes line = {0};
        struct json json = json_begin(&line, JSON_STYLE_SPACED);
        json_open(&json, '{');
        json_field_string(&json, "progress", text);
        json_close(&json, '}');
        ctl_print_line(&line, stdout);
    }
    fflush(stdout);
}

static enum ctl_exit
receive_all(const struct upgrade_settings *settings, struct ctl_ask *ask, int64_t deadline_ns,
            json_t **answer, struct error *error)
{
    for (bool has_started = false;; has_started = true) {
        enum ctl_exit code = ask_receive(ask, deadline_ns - clock_now_ns(), answer, error);
        if (code == CTL_UNREACHABLE && has_started)
            error_set(error, STATUS_UNAVAILABLE,
                      "the old process died, and its calls in flight are lost. The new one serves "
                      "when it is ready: see `shoalctl status`");
        if (code != CTL_OK || json_object_get(*answer, "progress") == NULL)
            return code;
        print_progress(settings, ask_text(*answer, "progress"));
        json_decref(*answer);
        *answer = NULL;
    }
}

static enum ctl_exit
upgrade(const struct upgrade_settings *settings, json_t **answer, struct error *error)
{
    int64_t deadline_ns = clock_now_ns() + settings->timeout_ms * NS_PER_MS;
    struct ctl_ask ask;
    if (ask_send(&ask, settings->counters, &settings->request, error) != STATUS_OK)
        return CTL_UNREACHABLE;
    int process = process_of(&ask);
    enum ctl_exit code = receive_all(settings, &ask, deadline_ns, answer, error);
    ask_close(&ask); /* the process may end from here on */
    if (code == CTL_OK)
        code = process_wait(process, deadline_ns) ? CTL_OK : CTL_LATE;
    if (process >= 0)
        close(process);
    if (code == CTL_LATE)
        error_set(error, STATUS_DEADLINE_EXCEEDED,
                  "not done in time; the upgrade continues: see `shoalctl status` and the log");
    return code;
}

static int
upgrade_run(int argc, char **argv)
{
    struct upgrade_settings settings = {.request.verb = CONTROL_UPGRADE,
                                        .counters = ctl_counters_default(),
                                        .timeout_ms = TIMEOUT_MS};
    int code = ctl_options_read(&upgrade_command, argc, argv, NULL, &settings);
    if (code < 0) {
        struct error error = ERROR_NONE;
        json_t *answer = NULL;
        settings.request.path = settings.program;
        settings.request.config = settings.config;
        enum ctl_exit asked = upgrade(&settings, &answer, &error);
        code = ask_end(asked, settings.output, answer, &error);
    }
    free(settings.program);
    free(settings.config);
    return code;
}

const struct ctl_command upgrade_command = {
    .name = "upgrade",
    .arguments = "[options]",
    .summary = "Replace the local node's process by a new one without losing a request",
    .about =
        "The node runs its program's file with --check --no-models, then starts it with the same\n"
        "arguments and the sockets that it listens on. When the new process is ready, it takes\n"
        "over: the old one asks its clients to reconnect, finishes their calls and ends. If the\n"
        "new one fails or is not ready within `upgrade_timeout_ms`, it is killed, the old one\n"
        "serves on, and this command prints the reason and the last lines that the new one\n"
        "logged. If the old one dies, the new one takes over, and this command ends with 3. For\n"
        "a while the machine needs memory for both.\n",
    .exits = "  0  the new process serves, and the old one has ended\n"
             "  1  the old one serves on; or it left calls unfinished at `drain_timeout_ms`\n",
    .example = "  shoalctl upgrade\n"
               "  shoalctl upgrade --program /opt/shoal-2/bin/shoald\n",
    CTL_OPTIONS(options),
    .run = upgrade_run,
};
