/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoalctl mesh drain: drains the local node as SIGTERM would, and shows where its models go until
 * its process has ended. One connection waits for the end of the drain, others list models
 * meanwhile; the process's end is seen by its pidfd.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "ctl/mesh.h"
#include "ctl/process.h"
#include "ctl/rows.h"

enum { TIMEOUT_MS = 3600000, ROWS_MAX = 100000 };

#define LOOK_NS (200 * (int64_t)NS_PER_MS)

struct drain_run {
    const char *counters;
    int64_t deadline_ns;
    int64_t timeout_ms;
    bool no_wait, quiet;
    enum ctl_output output;
    struct rows here; /* in the previous listing */
    size_t moved, let_go;
    int process; /* pidfd; -1: unknown */
};

/* ---- options ---- */

#define AT(field) offsetof(struct drain_run, field)

static const struct ctl_option options[] = {
    {"counters", "PATH", ASK_COUNTERS_HELP, .form = CTL_WORD, .at = AT(counters)},
    {"no-wait", NULL, "start the drain, do not wait", .form = CTL_FLAG, .at = AT(no_wait)},
    {"quiet", NULL, "do not print progress", .form = CTL_FLAG, .at = AT(quiet)},
    {"timeout-ms", "N", "how long to wait; default 3600000. The drain continues", .form = CTL_WHOLE,
     .at = AT(timeout_ms), .most = ASK_TIMEOUT_MS_MAX},
    {"json", NULL, "a line of JSON for each model, and one at the end", .form = CTL_AS_JSON,
     .at = AT(output)},
};

/* ---- models that leave ---- */

/* Fails if the node has gone by then, or has no mesh. */
static bool
look(const struct drain_run *drain, enum control_verb verb, const char *id, struct rows *rows)
{
    struct error error = ERROR_NONE;
    struct rows_fetch fetch = {.counters = drain->counters,
                               .request = {.verb = verb, .id = id},
                               .limit = ROWS_MAX,
                               .deadline_ns = drain->deadline_ns};
    return rows_fetch(&fetch, rows, &error) == CTL_OK;
}

/* A node that has a copy; "": none, or unknown. */
static const char *
find_copy(const struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        if (strcmp(ask_text(rows->at[i], "state"), "loaded") == 0)
            return ask_text(rows->at[i], "node");
    return "";
}

static void
print_gone(const struct drain_run *drain, const char *id, const char *to)
{
    if (drain->output == CTL_JSON) {
        struct bytes line = {0};
        struct json json = json_begin(&line, JSON_STYLE_SPACED);
        json_open(&json, '{');
        json_field_string(&json, "model", id);
        json_field_string(&json, "moved_to", to);
        json_close(&json, '}');
        ctl_print_line(&line, stdout);
    } else if (to[0] != '\0') {
        printf("%s: moved to %s\n", id, to);
    } else {
        printf("%s: unloaded\n", id);
    }
    fflush(stdout);
}

static void
note_gone(struct drain_run *drain, const json_t *row)
{
    struct rows copies = {0};
    const char *id = ask_text(row, "id");
    const char *to = ask_text(row, "to");
    if (to[0] == '\0' && look(drain, CONTROL_MESH_COPIES, id, &copies))
        to = find_copy(&copies);
    drain->moved += to[0] != '\0';
    drain->let_go += to[0] == '\0';
    if (!drain->quiet)
        print_gone(drain, id, to);
    rows_free(&copies);
}

/* Finds the models that were here in the previous listing and are not now; both lists are
 * sorted. */
static void
look_again(struct drain_run *drain)
{
    struct rows now;
    if (!look(drain, CONTROL_MESH_MOVES, NULL, &now)) {
        rows_free(&now);
        return;
    }
    rows_sort_by_id(&now);
    size_t k = 0;
    for (size_t i = 0; i < drain->here.count; i++) {
        const char *id = ask_text(drain->here.at[i], "id");
        while (k < now.count && strcmp(ask_text(now.at[k], "id"), id) < 0)
            k++;
        if (k == now.count || strcmp(ask_text(now.at[k], "id"), id) != 0)
            note_gone(drain, drain->here.at[i]);
    }
    rows_free(&drain->here);
    drain->here = now;
}

/* Models left at the end are no longer served here, wherever else they are. */
static void
note_rest(struct drain_run *drain)
{
    look_again(drain);
    for (size_t i = 0; i < drain->here.count; i++)
        note_gone(drain, drain->here.at[i]);
}

/* ---- waiting for the end ---- */

static enum ctl_exit
late(struct error *error)
{
    error_set(error, STATUS_DEADLINE_EXCEEDED,
              "not ended in time; the drain continues: see `shoalctl mesh nodes`");
    return CTL_LATE;
}

static enum ctl_exit
wait_drained(struct drain_run *drain, struct ctl_ask *ask, json_t **answer, struct error *error)
{
    for (;;) {
        look_again(drain);
        int64_t left_ns = drain->deadline_ns - clock_now_ns();
        enum ctl_exit code = ask_receive(ask, left_ns < LOOK_NS ? left_ns : LOOK_NS, answer, error);
        if (code != CTL_LATE)
            return code;
        if (left_ns <= LOOK_NS)
            return late(error);
        error_clear(error);
    }
}

static enum ctl_exit
wait_ended(const struct drain_run *drain, struct error *error)
{
    return process_wait(drain->process, drain->deadline_ns) ? CTL_OK : late(error);
}

static void
finish(const struct drain_run *drain, const json_t *answer)
{
    const char *text = ask_text(answer, "text");
    struct bytes line = {0};
    struct json json = json_begin(&line, JSON_STYLE_SPACED);
    if (drain->output == CTL_TEXT) {
        printf("%s: %zu moved, %zu unloaded\n", text, drain->moved, drain->let_go);
        return;
    }
    json_open(&json, '{');
    json_field_string(&json, "status", status_name(STATUS_OK));
    json_field_string(&json, "text", text);
    json_field_uint(&json, "moved", drain->moved);
    json_field_uint(&json, "let_go", drain->let_go);
    json_close(&json, '}');
    ctl_print_line(&line, stdout);
}

/* Sets `answer` with CTL_OK. */
static enum ctl_exit
ask_and_wait(struct drain_run *drain, json_t **answer, struct error *error)
{
    const struct control_request request = {.verb = CONTROL_DRAIN, .no_wait = drain->no_wait};
    struct ctl_ask ask;
    if (!drain->no_wait)
        look_again(drain); /* the models before the drain */
    if (ask_send(&ask, drain->counters, &request, error) != STATUS_OK)
        return CTL_UNREACHABLE;
    drain->process = process_of(&ask);
    enum ctl_exit code = wait_drained(drain, &ask, answer, error);
    if (code == CTL_OK && !drain->no_wait)
        note_rest(drain);
    ask_close(&ask); /* the process may end from here on */
    if (drain->no_wait)
        return code;
    if (code == CTL_NEGATIVE &&
        (error->status == STATUS_DEADLINE_EXCEEDED || error->status == STATUS_FAILED_PRECONDITION))
        (void)process_wait(drain->process, drain->deadline_ns); /* it ends all the same */
    return code == CTL_OK ? wait_ended(drain, error) : code;
}

static int
run(struct drain_run *drain)
{
    json_t *answer = NULL;
    struct error error = ERROR_NONE;
    enum ctl_exit code = ask_and_wait(drain, &answer, &error);
    if (code != CTL_OK || drain->no_wait)
        return ask_end(code, drain->output, answer, &error);
    finish(drain, answer);
    json_decref(answer);
    return CTL_OK;
}

static const struct ctl_command command = {
    .name = "mesh drain",
    .arguments = "[options]",
    .summary = "Move the local node's models to other nodes and stop it",
    .about =
        "The same as SIGTERM: the node is no longer ready, takes no loads, has other nodes load\n"
        "its models, serves calls meanwhile, and stops. A model that was not called lately is\n"
        "unloaded: its next call loads it elsewhere. A node without a mesh finishes its calls.\n",
    .exits = "  0  the node has drained and its process has ended\n"
             "  1  `drain_timeout_ms` expired, or the node was stopping already; it has ended\n",
    .example = "  shoalctl mesh drain\n",
    CTL_OPTIONS(options),
};

int
mesh_drain_run(int argc, char **argv)
{
    struct drain_run drain = {
        .counters = ctl_counters_default(), .timeout_ms = TIMEOUT_MS, .process = -1};
    int code = ctl_options_read(&command, argc, argv, NULL, &drain);
    if (code >= 0)
        return code;
    drain.deadline_ns = clock_now_ns() + drain.timeout_ms * NS_PER_MS;
    code = run(&drain);
    rows_free(&drain.here);
    if (drain.process >= 0)
        close(drain.process);
    return code;
}
