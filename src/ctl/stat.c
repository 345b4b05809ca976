/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoalctl stat: prints a node's counters from its file, without contacting the node.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/ctl.h"
#include "ctl/report.h"
#include "ctl/watch.h"

/* ---- intervals ---- */

static enum status
pipeline_find(const struct snapshot *snapshot, const char *name, struct error *error)
{
    if (name == NULL)
        return STATUS_OK;
    for (const struct snapshot_scope *scope = NULL;
         (scope = snapshot_next(snapshot, SCOPE_PIPELINE, 0, scope)) != NULL;)
        if (strcmp(scope->name, name) == 0)
            return STATUS_OK;
    return error_set(error, STATUS_NOT_FOUND, "the node has no pipeline \"%.64s\"", name);
}

enum status
watch_step(struct watch *watch, struct snapshot *shown, struct error *error)
{
    struct snapshot now;
    enum status status = snapshot_read(&now, watch->path, error);
    if (status != STATUS_OK)
        return status == STATUS_NOT_FOUND ? (error->status = STATUS_UNAVAILABLE) : status;
    status = pipeline_find(&now, watch->pipeline, error);
    if (status != STATUS_OK) {
        snapshot_free(&now);
        return status;
    }
    if (watch->last.scopes != NULL && snapshot_same_node(&now, &watch->last))
        snapshot_subtract(shown, &now, &watch->last);
    else
        snapshot_copy(shown, &now);
    snapshot_free(&watch->last);
    watch->last = now;
    return STATUS_OK;
}

void
watch_free(struct watch *watch)
{
    snapshot_free(&watch->last);
}

int64_t
watch_next_ns(const struct watch *watch, int64_t last_ns)
{
    int64_t now_ns = clock_now_ns();
    int64_t next_ns = last_ns + watch->interval_ns;
    return next_ns > now_ns ? next_ns : now_ns + watch->interval_ns;
}

static int
watch_fail(const struct watch *watch, const struct error *error)
{
    enum ctl_exit code = error->status == STATUS_NOT_FOUND ? CTL_NEGATIVE : CTL_UNREACHABLE;
    return ctl_fail(code, watch->output, error);
}

static void
shown_print(const struct watch *watch, const struct snapshot *shown)
{
    if (watch->output == CTL_JSON)
        report_json(shown, watch->pipeline, stdout);
    else
        report_print(shown, watch->pipeline, REPORT_WIDE, stdout);
    fflush(stdout);
}

/* False: a signal ends the command. */
static bool
wait_until(int64_t deadline_ns, const sigset_t *signals)
{
    for (;;) {
        int64_t left_ns = deadline_ns - clock_now_ns();
        if (left_ns <= 0)
            return true;
        struct timespec left = {left_ns / NS_PER_S, left_ns % NS_PER_S};
        if (sigtimedwait(signals, NULL, &left) > 0)
            return false;
    }
}

int
watch_print(struct watch *watch)
{
    struct error error = ERROR_NONE;
    struct snapshot shown;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    CHECK(sigprocmask(SIG_BLOCK, &signals, NULL) == 0);
    int code = CTL_OK;
    if (watch_step(watch, &shown, &error) != STATUS_OK)
        return watch_fail(watch, &error);
    snapshot_free(&shown);
    int64_t next_ns = clock_now_ns();
    for (int64_t i = 0; watch->count == 0 || i < watch->count; i++) {
        next_ns = watch_next_ns(watch, next_ns);
        if (!wait_until(next_ns, &signals))
            break;
        if (watch_step(watch, &shown, &error) != STATUS_OK) {
            code = watch_fail(watch, &error);
            break;
        }
        if (i > 0 && watch->output == CTL_TEXT)
            putchar('\n');
        shown_print(watch, &shown);
        snapshot_free(&shown);
    }
    watch_free(watch);
    return code;
}

/* ---- the command ---- */

struct stat_settings {
    struct watch watch;
    bool help_counters;
};

#define AT(field) offsetof(struct stat_settings, field)

static const struct ctl_option options[] = {
    {"counters", "PATH",
     "the node's counters file; default /run/shoal/counters for root, else\n"
     "$XDG_RUNTIME_DIR/shoal/counters or /tmp/shoal-<uid>/counters",
     .form = CTL_WORD, .at = AT(watch.path)},
    {"pipeline", "NAME", "only this pipeline", .form = CTL_WORD, .at = AT(watch.pipeline)},
    {"interval", "SECONDS", "print the events of each interval, with rates", .form = CTL_SECONDS,
     .at = AT(watch.interval_ns)},
    {"count", "N", "end after N intervals; default: when interrupted", .form = CTL_WHOLE,
     .at = AT(watch.count), .most = INT32_MAX},
    {"help-counters", NULL, "print the meaning of each counter", .form = CTL_FLAG,
     .at = AT(help_counters)},
    {"json", NULL, "one line of JSON with every counter; one per interval", .form = CTL_AS_JSON,
     .at = AT(watch.output)},
};

static int
stat_run(int argc, char **argv)
{
    struct stat_settings stat = {.watch.path = ctl_counters_default()};
    struct watch *watch = &stat.watch;
    struct error error = ERROR_NONE;
    int code = ctl_options_read(&stat_command, argc, argv, NULL, &stat);
    if (code >= 0)
        return code;
    if (watch->count > 0 && watch->interval_ns == 0) {
        error_set(&error, STATUS_INVALID_ARGUMENT, "stat: --count N needs --interval SECONDS");
        return ctl_fail(CTL_USAGE, watch->output, &error);
    }
    if (stat.help_counters) {
        if (watch->output == CTL_JSON)
            report_manual_json(stdout);
        else
            report_manual(stdout);
        return CTL_OK;
    }
    if (watch->interval_ns > 0)
        return watch_print(watch);
    struct snapshot shown;
    if (watch_step(watch, &shown, &error) != STATUS_OK)
        return watch_fail(watch, &error);
    shown_print(watch, &shown);
    snapshot_free(&shown);
    watch_free(watch);
    return CTL_OK;
}

const struct ctl_command stat_command = {
    .name = "stat",
    .arguments = "[options]",
    .summary = "Print the counters of the local node, a table per pipeline",
    .about =
        "Reads the node's counters file without disturbing the node. The file of a killed node\n"
        "shows its last figures. Without --interval, figures are totals since the node's start.\n"
        "For each stage: workers up and wanted, waiting items (depth), items taken, failed by the\n"
        "modelet, and dropped because late or cancelled; the wait in the stage and the run of a\n"
        "batch; workers restarted; the longest silence of a worker. Below, its batches: their\n"
        "mean size and why they were closed. Pipelines that answer in pieces have a line of open\n"
        "streams, pieces, and answers broken off by reason.\n",
    .exits = "  0  figures of a live or dead node were printed\n"
             "  1  the node has no such pipeline\n",
    .example = "  shoalctl stat --pipeline digits --interval 5\n",
    CTL_OPTIONS(options),
    .run = stat_run,
};
