/* SPDX-License-Identifier: Apache-2.0 */
/* shoalctl mesh nodes, models, copies, vmodels: lists, once or repeatedly. */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/mesh.h"
#include "ctl/row_table.h"
#include "ctl/screen.h"

enum { TIMEOUT_MS = 60000, LIMIT = 1000, LIMIT_MAX = 10000000 };

struct mesh_listing {
    const struct list *list;
    struct rows_fetch fetch;
    int64_t timeout_ms;
    int64_t interval_ns;
    int64_t limit;
    int64_t count; /* of turns; 0: until interrupted */
    enum ctl_output output;
    bool watch;
};

struct list {
    struct ctl_command command;
    enum control_verb verb;
    bool wants_id;
};

/* ---- options ---- */

#define AT(field) offsetof(struct mesh_listing, field)
#define PREFIX_OPTION                                                                              \
    {                                                                                              \
        "prefix", "TEXT", "only names with this prefix",                                           \
            .form = CTL_NAME, .at = AT(fetch.request.prefix), .most = CONTROL_KEY_BYTES,           \
            .what = "a prefix"                                                                     \
    }
#define LIMIT_OPTION                                                                               \
    {                                                                                              \
        "limit", "N", "at most N rows; default 1000", .form = CTL_WHOLE, .at = AT(limit),          \
                                                      .most = LIMIT_MAX                            \
    }
#define COMMON_OPTIONS                                                                             \
    {"watch", NULL, "repeat each second, separated by an empty line; full screen on a terminal",   \
     .form = CTL_FLAG, .at = AT(watch)},                                                           \
        {"interval", "SECONDS", "the same with this interval", .form = CTL_SECONDS,                \
         .at = AT(interval_ns)},                                                                   \
        {"count",                                                                                  \
         "N",                                                                                      \
         "with --watch: end after N turns; default: at Ctrl-C",                                    \
         .form = CTL_WHOLE,                                                                        \
         .at = AT(count),                                                                          \
         .most = INT32_MAX},                                                                       \
        {"counters", "PATH", ASK_COUNTERS_HELP, .form = CTL_WORD, .at = AT(fetch.counters)},       \
        {"timeout-ms",                                                                             \
         "N",                                                                                      \
         "how long to wait for each answer; default 60000",                                        \
         .form = CTL_WHOLE,                                                                        \
         .at = AT(timeout_ms),                                                                     \
         .most = ASK_TIMEOUT_MS_MAX},                                                              \
    {                                                                                              \
        "json", NULL, "a line of JSON per row", .form = CTL_AS_JSON, .at = AT(output)              \
    }

static const struct ctl_option plain_options[] = {PREFIX_OPTION, COMMON_OPTIONS};
static const struct ctl_option models_options[] = {
    PREFIX_OPTION,
    {"node", "NAME", "only models that this node has or is loading", .form = CTL_NAME,
     .at = AT(fetch.request.node), .most = CONTROL_PATH_BYTES, .what = "a node's name"},
    LIMIT_OPTION,
    COMMON_OPTIONS,
};
static const struct ctl_option vmodels_options[] = {PREFIX_OPTION, LIMIT_OPTION, COMMON_OPTIONS};
static const struct ctl_option copies_options[] = {COMMON_OPTIONS};

static const struct list lists[] = {
    {{.name = "mesh nodes",
      .arguments = "[options]",
      .summary = "List the nodes of the mesh, their memory and load, and the leader",
      .about =
          "The local node's view. RATE is calls a minute. OLDEST is the time since the last call "
          "of\n"
          "the least recently used model: if it is short, nodes have too little memory. FREE and\n"
          "RATE of other nodes are seconds to a minute old. `unreachable`: the local node cannot\n"
          "reach that one, others may; `etcd-silent`: etcd does not answer the local node.\n",
      .example = "  shoalctl mesh nodes --watch\n",
      CTL_OPTIONS(plain_options)},
     CONTROL_MESH_NODES,
     false},
    {{.name = "mesh models",
      .arguments = "[options]",
      .summary = "List the registered models, their copies and failures",
      .about =
          "COPIES counts loaded copies on live nodes, with their bounds if there are any: (2-3).\n"
          "FAILED counts the nodes whose recent loads failed.\n"
          "HERE is the state on the local node. UNUSED is the time since the last call, by the\n"
          "model's record: a new model starts with 6 hours, or 1 hour if its registration asked\n"
          "for its load.\n",
      .example = "  shoalctl mesh models --prefix fraud- --limit 50\n"
                 "  shoalctl mesh models --json --limit 100000 | jq -r 'select(.failed > 0).id'\n",
      CTL_OPTIONS(models_options)},
     CONTROL_MESH_MODELS,
     false},
    {{.name = "mesh copies",
      .arguments = "[options] ID",
      .summary = "List the nodes that have loaded a model, are loading it, or failed",
      .about =
          "If the model has no copy and a call would find no node for it, the reason is shown.\n"
          "With --json the first line is the model, as in `mesh models`, with that reason as\n"
          "`refusal`.\n",
      .exits = "  0  the model is registered\n"
               "  1  it is not, or the node is in no mesh\n",
      .example = "  shoalctl mesh copies fraud-7\n",
      CTL_OPTIONS(copies_options)},
     CONTROL_MESH_COPIES,
     true},
    {{.name = "mesh vmodels",
      .arguments = "[options]",
      .summary = "List the vmodels, their models and transitions",
      .about =
          "During a transition TARGET is loading: COPIES counts loaded copies of the model that\n"
          "answers, OF TARGET those of the target.\n",
      .example = "  shoalctl mesh vmodels --watch\n",
      CTL_OPTIONS(vmodels_options)},
     CONTROL_MESH_VMODELS,
     false},
};

static enum status
on_argument(void *context, const char *value, struct error *error)
{
    struct mesh_listing *listing = context;
    struct control_request *request = &listing->fetch.request;
    if (!listing->list->wants_id || request->id != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.64s\" is an unexpected argument",
                         value);
    return ctl_take_text(&request->id, CONTROL_KEY_BYTES, "a model's id", value, error);
}

/* ---- one turn, or several ---- */

static void
print(const struct mesh_listing *listing, struct rows *rows, FILE *out)
{
    if (listing->list->verb != CONTROL_MESH_COPIES)
        rows_sort_by_id(rows);
    if (listing->output == CTL_TEXT) {
        row_table_print(listing->list->verb, rows, out);
        return;
    }
    if (rows->model != NULL)
        row_table_json(rows->model, out);
    for (size_t i = 0; i < rows->count; i++)
        row_table_json(rows->at[i], out);
}

static void
print_screen(const struct mesh_listing *listing, struct rows *rows)
{
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    struct winsize real;
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    CHECK(memory != NULL);
    print(listing, rows, memory);
    CHECK(fclose(memory) == 0);
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &real) == 0 && real.ws_row > 0 && real.ws_col > 0)
        size = real;
    struct screen screen = {.rows = size.ws_row, .columns = size.ws_col};
    screen_write(&screen, text, stdout);
    free(text);
}

static int
turn(struct mesh_listing *listing, bool screen)
{
    struct rows rows;
    struct error error = ERROR_NONE;
    listing->fetch.deadline_ns = clock_now_ns() + listing->timeout_ms * NS_PER_MS;
    enum ctl_exit code = rows_fetch(&listing->fetch, &rows, &error);
    if (code != CTL_OK)
        ctl_fail(code, listing->output, &error);
    else if (screen)
        print_screen(listing, &rows);
    else
        print(listing, &rows, stdout);
    fflush(stdout);
    rows_free(&rows);
    return code;
}

static int
turns(struct mesh_listing *listing)
{
    bool screen = listing->watch && listing->output == CTL_TEXT && isatty(STDOUT_FILENO);
    int64_t next_ns = clock_now_ns();
    int64_t count = listing->watch ? listing->count : 1;
    for (int64_t i = 1;; i++) {
        int code = turn(listing, screen);
        if (code != CTL_OK || i == count)
            return code;
        if (!screen)
            putchar('\n');
        next_ns += listing->interval_ns;
        struct timespec until = {next_ns / NS_PER_S, next_ns % NS_PER_S};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
}

int
mesh_list_run(int argc, char **argv)
{
    const struct list *list = lists;
    while (strcmp(list->command.name + strlen("mesh "), argv[0]) != 0)
        list++;
    struct mesh_listing listing = {
        .list = list,
        .timeout_ms = TIMEOUT_MS,
        .limit = LIMIT,
        .fetch = {.counters = ctl_counters_default(), .request.verb = list->verb}};
    struct error error = ERROR_NONE;
    int code = ctl_options_read(&list->command, argc, argv, on_argument, &listing);
    if (code >= 0)
        return code;
    listing.watch = listing.watch || listing.interval_ns > 0;
    if (listing.interval_ns == 0)
        listing.interval_ns = NS_PER_S;
    bool few = list->verb == CONTROL_MESH_NODES || list->verb == CONTROL_MESH_COPIES;
    listing.fetch.limit = few ? LIMIT_MAX : (size_t)listing.limit;
    if (list->wants_id && listing.fetch.request.id == NULL) {
        error_set(&error, STATUS_INVALID_ARGUMENT, "expected ID; see shoalctl %s --help",
                  list->command.name);
        return ctl_fail(CTL_USAGE, listing.output, &error);
    }
    return turns(&listing);
}
