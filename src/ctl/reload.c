/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoalctl reload: asks the local node, over the socket beside its counters, for a new generation
 * of a pipeline, and waits until it serves or has failed.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/ask.h"
#include "ctl/ctl.h"
#include "ipc/control.h"
#include "ipc/counters.h"

enum { TIMEOUT_MS = 60000 };

enum reload_option { OPTION_ALL, OPTION_COUNTERS, OPTION_TIMEOUT, OPTION_JSON };

static const struct ctl_option options[] = {
    [OPTION_ALL] = {"all", NULL, "every pipeline, as SIGHUP does"},
    [OPTION_COUNTERS] = {"counters", "PATH", ASK_COUNTERS_HELP},
    [OPTION_TIMEOUT] = {"timeout-ms", "N",
                        "how long to wait; default 60000. The reload continues afterwards"},
    [OPTION_JSON] = {"json", NULL, "one line of JSON"},
};

struct reload_settings {
    const char *pipeline; /* NULL: none was given */
    const char *counters;
    char counters_default[256];
    int64_t timeout_ms;
    bool all;
    bool json;
};

static enum status
on_option(void *context, size_t index, const char *value, struct error *error)
{
    struct reload_settings *settings = context;
    switch ((enum reload_option)index) {
    case OPTION_ALL: settings->all = true; break;
    case OPTION_COUNTERS: settings->counters = value; break;
    case OPTION_TIMEOUT:
        return ctl_read_whole(value, 1, ASK_TIMEOUT_MS_MAX, &settings->timeout_ms, error);
    case OPTION_JSON: settings->json = true; break;
    }
    return STATUS_OK;
}

static enum status
on_argument(void *context, const char *value, struct error *error)
{
    struct reload_settings *settings = context;
    if (settings->pipeline != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "one pipeline at a time, or --all");
    if (value[0] == '\0' || strlen(value) >= CONTROL_NAME_BYTES)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a pipeline's name has 1 to %d bytes, not %zu", CONTROL_NAME_BYTES - 1,
                         strlen(value));
    settings->pipeline = value;
    return STATUS_OK;
}

/* DEADLINE_EXCEEDED: no answer in time. UNAVAILABLE: nobody listens, or the node went away. */
static enum status
ask_for_reload(const struct reload_settings *settings, struct control_answer *answer,
               struct error *error)
{
    struct control_request request = {.version = CONTROL_VERSION, .verb = CONTROL_RELOAD};
    struct ctl_ask ask;
    if (settings->pipeline != NULL)
        snprintf(request.pipeline, sizeof(request.pipeline), "%s", settings->pipeline);
    if (ask_send(&ask, settings->counters, &request, error) != STATUS_OK)
        return error->status;
    enum status status = ask_receive(&ask, settings->timeout_ms * NS_PER_MS, answer, NULL, error);
    ask_close(&ask);
    if (status == STATUS_DEADLINE_EXCEEDED)
        error_set(error, status,
                  "no answer within %lld ms; the reload may still be under way: see "
                  "`shoalctl status`",
                  (long long)settings->timeout_ms);
    return status;
}

static int
reload_run(int argc, char **argv)
{
    struct reload_settings settings = {.timeout_ms = TIMEOUT_MS};
    counters_default_path(settings.counters_default, sizeof(settings.counters_default));
    settings.counters = settings.counters_default;
    struct ctl_reader reader = {on_option, on_argument, &settings};
    int code = ctl_options_read(&reload_command, &reader, argc, argv);
    if (code >= 0)
        return code;
    struct error error = ERROR_NONE;
    if ((settings.pipeline != NULL) == settings.all) {
        error_set(&error, STATUS_INVALID_ARGUMENT,
                  "give a pipeline or --all; see shoalctl reload --help");
        return ctl_fail(CTL_USAGE, settings.json, &error);
    }
    struct control_answer answer = {0};
    if (ask_for_reload(&settings, &answer, &error) != STATUS_OK)
        return ask_failed(settings.json, &error);
    return ask_notify(settings.json, &answer);
}

const struct ctl_command reload_command = {
    .name = "reload",
    .arguments = "[options] PIPELINE",
    .summary = "Give a pipeline new code, parameters or limits without losing a request",
    .about =
        "The node reads its configuration again and starts a new generation of the pipeline's\n"
        "workers beside the old one. When all are ready, new requests go to them, and the old\n"
        "ones finish theirs. If the new generation does not come up, the old one keeps serving\n"
        "and this command prints the reason. Replace a plug-in by renaming a new file over it\n"
        "(`install` or `mv`, not `cp`): the old one is still mapped.\n",
    .exits = "  0  the new generation serves\n"
             "  1  it does not come up, or there is no such pipeline: the old one serves\n",
    .example = "  shoalctl reload digits\n",
    .options = options,
    .option_count = ARRAY_COUNT(options),
    .run = reload_run,
};
