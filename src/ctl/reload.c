/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoalctl reload: asks the local node, over the socket beside its counters, for a new generation
 * of a pipeline, and waits until it serves or has failed.
 */
#include "base/clock.h"
#include "ctl/ask.h"

enum { TIMEOUT_MS = 60000 };

struct reload_settings {
    struct control_request request;
    const char *counters;
    int64_t timeout_ms;
    bool all;
    enum ctl_output output;
};

#define AT(field) offsetof(struct reload_settings, field)

static const struct ctl_option options[] = {
    {"all", NULL, "every pipeline, as SIGHUP does", .form = CTL_FLAG, .at = AT(all)},
    {"counters", "PATH", ASK_COUNTERS_HELP, .form = CTL_WORD, .at = AT(counters)},
    {"timeout-ms", "N", "how long to wait; default 60000. The reload continues afterwards",
     .form = CTL_WHOLE, .at = AT(timeout_ms), .most = ASK_TIMEOUT_MS_MAX},
    {"json", NULL, "one line of JSON", .form = CTL_AS_JSON, .at = AT(output)},
};

static enum status
on_argument(void *context, const char *value, struct error *error)
{
    struct reload_settings *settings = context;
    if (settings->request.pipeline != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "one pipeline at a time, or --all");
    return ctl_take_text(&settings->request.pipeline, CONTROL_NAME_BYTES, "a pipeline's name",
                         value, error);
}

static enum ctl_exit
ask_for_reload(const struct reload_settings *settings, json_t **answer, struct error *error)
{
    struct ctl_ask ask;
    if (ask_send(&ask, settings->counters, &settings->request, error) != STATUS_OK)
        return CTL_UNREACHABLE;
    enum ctl_exit code = ask_receive(&ask, settings->timeout_ms * NS_PER_MS, answer, error);
    ask_close(&ask);
    if (code == CTL_LATE)
        error_set(error, STATUS_DEADLINE_EXCEEDED,
                  "no answer within %lld ms; the reload may still be under way: see "
                  "`shoalctl status`",
                  (long long)settings->timeout_ms);
    return code;
}

static int
reload_run(int argc, char **argv)
{
    struct reload_settings settings = {.request.verb = CONTROL_RELOAD,
                                       .counters = ctl_counters_default(),
                                       .timeout_ms = TIMEOUT_MS};
    int code = ctl_options_read(&reload_command, argc, argv, on_argument, &settings);
    if (code >= 0)
        return code;
    struct error error = ERROR_NONE;
    if ((settings.request.pipeline != NULL) == settings.all) {
        error_set(&error, STATUS_INVALID_ARGUMENT,
                  "give a pipeline or --all; see shoalctl reload --help");
        return ctl_fail(CTL_USAGE, settings.output, &error);
    }
    json_t *answer = NULL;
    enum ctl_exit asked = ask_for_reload(&settings, &answer, &error);
    return ask_end(asked, settings.output, answer, &error);
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
    CTL_OPTIONS(options),
    .run = reload_run,
};
