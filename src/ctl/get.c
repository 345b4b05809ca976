/* SPDX-License-Identifier: Apache-2.0 */
/* shoalctl get, describe and wait. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/figure.h"
#include "ctl/manifests.h"

enum { LOOK_MS = 100 };

/* ---- an object ---- */

struct shown_object {
    const manifests_object *object;
    json_t *manifest;
    json_t *record; /* of the status; NULL: none yet */
    json_t *status;
};

static void
open_object(struct shown_object *shown, const manifests_object *object)
{
    *shown = (struct shown_object){.object = object,
                                   .manifest = json_loads(object->manifest, 0, NULL),
                                   .record = json_loads(object->status, 0, NULL)};
    shown->status = json_object_get(shown->record, "status");
}

static void
close_object(struct shown_object *shown)
{
    json_decref(shown->manifest);
    json_decref(shown->record);
}

/* The text at a path of names; "": there is none. */
static const char *
text_at(const json_t *from, const char *const *path)
{
    for (; *path != NULL; path++)
        from = json_object_get(from, *path);
    const char *text = json_string_value(from);
    return text != NULL ? text : "";
}

#define AT(from, ...) text_at(from, (const char *const[]){__VA_ARGS__, NULL})

/* The status is about the object as it is now, and says so. */
static bool
is_ready(const struct shown_object *shown)
{
    return json_is_true(json_object_get(shown->record, "ready")) &&
           ask_number(shown->record, "version") == (int64_t)shown->object->version;
}

static void
put_age(struct figure_table *table, int64_t created_ms)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t s = now.tv_sec - created_ms / 1000;
    if (s < 0)
        s = 0;
    if (s < 120)
        table_add(table, "%" PRId64 "s", s);
    else if (s < INT64_C(2) * 3600)
        table_add(table, "%" PRId64 "m", s / 60);
    else if (s < INT64_C(48) * 3600)
        table_add(table, "%" PRId64 "h", s / 3600);
    else
        table_add(table, "%" PRId64 "d", s / 86400);
}

/* ---- tables ---- */

static const char *const headings[MANIFEST_KINDS][10] = {
    [MANIFEST_INFERENCE_SERVICE] = {"NAME", "URL", "READY", "PREV", "LATEST",
                                    "PREVROLLEDOUTREVISION", "LATESTREADYREVISION", "AGE", NULL},
    [MANIFEST_PREDICTOR] = {"NAME", "TYPE", "AVAILABLE", "ACTIVEMODEL", "TARGETMODEL", "TRANSITION",
                            "AGE", NULL},
    [MANIFEST_SERVING_RUNTIME] = {"NAME", "DISABLED", "MODELTYPE", "CONTAINERS", "READY",
                                  "RESTARTS", "AGE", NULL},
    [MANIFEST_CLUSTER_SERVING_RUNTIME] = {"NAME", "DISABLED", "MODELTYPE", "CONTAINERS", "READY",
                                          "RESTARTS", "AGE", NULL},
    [MANIFEST_SECRET] = {"NAME", "TYPE", "DATA", "AGE", NULL},
    [MANIFEST_CONFIG_MAP] = {"NAME", "DATA", "AGE", NULL},
    [MANIFEST_POOL] = {"NAME", "ACCEPTED", "RESOLVEDREFS", "AGE", NULL},
};

static const char *const *
headings_of(enum manifest_kind kind)
{
    return headings[manifest_is_of_gateway(kind) ? MANIFEST_POOL : kind];
}

static void
put_service(struct figure_table *table, const struct shown_object *shown)
{
    table_add(table, "%s", AT(shown->status, "url"));
    table_add(table, "%s", shown->record == NULL ? "" : is_ready(shown) ? "True" : "False");
    for (int i = 0; i < 4; i++)
        table_add(table, "%s", "");
}

static void
put_predictor(struct figure_table *table, const struct shown_object *shown)
{
    table_add(table, "%s", AT(shown->manifest, "spec", "modelType", "name"));
    table_add(table, "%s",
              json_is_true(json_object_get(shown->status, "available")) ? "true" : "false");
    table_add(table, "%s", AT(shown->status, "activeModelState"));
    table_add(table, "%s", AT(shown->status, "targetModelState"));
    table_add(table, "%s", AT(shown->status, "transitionStatus"));
}

/* Writes how many of the nodes that run it are ready: "1/2". */
static void
put_nodes(struct figure_table *table, const struct shown_object *shown)
{
    static const char *const idle[] = {"Unable", "Able", "Busy", "Idle", ""};
    size_t i;
    size_t ready = 0;
    size_t running = 0;
    json_int_t restarts = 0;
    json_t *node;
    json_array_foreach(json_object_get(shown->status, "nodes"), i, node)
    {
        const char *state = AT(node, "state");
        bool runs = true;
        for (size_t k = 0; k < ARRAY_COUNT(idle); k++)
            runs = runs && strcmp(state, idle[k]) != 0;
        running += runs;
        ready += strcmp(state, "Ready") == 0;
        restarts += json_integer_value(json_object_get(node, "restarts"));
    }
    table_add(table, "%zu/%zu", ready, running);
    table_add(table, "%" JSON_INTEGER_FORMAT, restarts);
}

static void
put_runtime(struct figure_table *table, const struct shown_object *shown)
{
    json_t *spec = json_object_get(shown->manifest, "spec");
    json_t *format = json_array_get(json_object_get(spec, "supportedModelFormats"), 0);
    json_t *container = json_array_get(json_object_get(spec, "containers"), 0);
    table_add(table, "%s", json_is_true(json_object_get(spec, "disabled")) ? "true" : "");
    table_add(table, "%s", AT(format, "name"));
    table_add(table, "%s", AT(container, "name"));
    put_nodes(table, shown);
}

static void
put_data(struct figure_table *table, const struct shown_object *shown)
{
    static const char *const fields[] = {"data", "stringData", "binaryData"};
    size_t count = 0;
    for (size_t i = 0; i < ARRAY_COUNT(fields); i++)
        count += json_object_size(json_object_get(shown->manifest, fields[i]));
    table_add(table, "%zu", count);
}

/* Writes for how many of the gateways the condition of the object as it is now holds: "2/2". */
static void
put_condition(struct figure_table *table, const struct shown_object *shown, const char *type)
{
    size_t i;
    size_t k;
    size_t holds = 0;
    json_t *gateway;
    json_t *condition;
    json_t *gateways = json_object_get(shown->status, "gateways");
    json_array_foreach(gateways, i, gateway)
    {
        bool is_current = ask_number(gateway, "version") == (int64_t)shown->object->version;
        json_array_foreach(json_object_get(gateway, "conditions"), k, condition)
        {
            holds += is_current && strcmp(AT(condition, "type"), type) == 0 &&
                     strcmp(AT(condition, "status"), "True") == 0;
        }
    }
    table_add(table, "%zu/%zu", holds, json_array_size(gateways));
}

static void
put_row(struct figure_table *table, enum manifest_kind kind, const struct shown_object *shown)
{
    table_add(table, "%s", shown->object->name);
    switch (kind) {
    case MANIFEST_INFERENCE_SERVICE: put_service(table, shown); break;
    case MANIFEST_PREDICTOR: put_predictor(table, shown); break;
    case MANIFEST_SERVING_RUNTIME:
    case MANIFEST_CLUSTER_SERVING_RUNTIME: put_runtime(table, shown); break;
    case MANIFEST_SECRET:
        table_add(table, "%s", AT(shown->manifest, "type"));
        put_data(table, shown);
        break;
    case MANIFEST_CONFIG_MAP: put_data(table, shown); break;
    case MANIFEST_POOL:
    case MANIFEST_OBJECTIVE:
    case MANIFEST_REWRITE:
    case MANIFEST_MODEL:
    case MANIFEST_LLM_ROUTE:
    case MANIFEST_HTTP_ROUTE:
        put_condition(table, shown, "Accepted");
        put_condition(table, shown, "ResolvedRefs");
        break;
    case MANIFEST_KINDS: UNREACHABLE();
    }
    put_age(table, shown->object->created_ms);
}

static void
print_json(const struct shown_object *shown)
{
    json_t *whole = json_deep_copy(shown->manifest);
    json_t *metadata = json_object_get(whole, "metadata");
    char version[32];
    snprintf(version, sizeof(version), "%" PRIu64, shown->object->version);
    json_object_set_new(metadata, "resourceVersion", json_string(version));
    if (shown->status != NULL)
        json_object_set(whole, "status", shown->status);
    char *text = json_dumps(whole, JSON_COMPACT);
    puts(text);
    free(text);
    json_decref(whole);
}

/* ---- get ---- */

static enum ctl_exit
not_found(const struct manifests_settings *settings, enum manifest_kind kind, struct error *error)
{
    if (settings->word_count < 2) {
        fprintf(stderr, "shoalctl: there are none\n");
        return CTL_OK;
    }
    error_set(error, STATUS_NOT_FOUND, "%s \"%.200s\" not found", manifest_kind_resource(kind),
              settings->words[1]);
    return CTL_NEGATIVE;
}

static enum ctl_exit
get(struct manifests_settings *settings, struct client *client, struct error *error)
{
    struct manifests_list list;
    struct figure_table table;
    enum manifest_kind kind;
    const char *name = settings->word_count > 1 ? settings->words[1] : NULL;
    CHECK(manifests_kind(settings, &kind, error) == STATUS_OK);
    if (manifests_list_read(settings, client, &list, error) != STATUS_OK) {
        manifests_list_free(&list);
        return CTL_NEGATIVE;
    }
    size_t position = 0;
    size_t count = 0;
    const manifests_object *object;
    table_init(&table, TABLE_COLUMNS_MAX, headings_of(kind));
    while ((object = manifests_next(&list, &position, manifest_kind_name(kind), name)) != NULL) {
        struct shown_object shown;
        open_object(&shown, object);
        if (settings->as_json)
            print_json(&shown);
        else
            put_row(&table, kind, &shown);
        close_object(&shown);
        count++;
    }
    if (count > 0 && !settings->as_json)
        table_print(&table, stdout);
    table_free(&table);
    manifests_list_free(&list);
    return count > 0 ? CTL_OK : not_found(settings, kind, error);
}

/* ---- describe ---- */

/* Finds also those from U+0080 on, which terminals obey as well. */
static bool
has_controls(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++)
        if (*at < ' ' || *at == 0x7f || (*at == 0xc2 && at[1] < 0xa0))
            return true;
    return false;
}

/* "Api Version:  v1", indented, as kubectl describes; a text with control characters as JSON. */
static void
describe_value(const char *name, const json_t *value, int depth)
{
    const char *below;
    json_t *member;
    int indent = 2 * depth;
    if (json_is_object(value)) {
        printf("%*s%s:\n", indent, "", name);
        json_object_foreach((json_t *)(uintptr_t)value, below, member)
            describe_value(below, member, depth + 1);
    } else if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++)
            describe_value(name, json_array_get(value, i), depth);
    } else {
        const char *plain = json_string_value(value);
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
        printf("%*s%s:  %s\n", indent, "", name,
               plain != NULL && !has_controls(plain) ? plain : text);
        free(text);
    }
}

static void
describe_events(const json_t *events)
{
    static const char *const columns[] = {"TYPE", "REASON", "TIME", "MESSAGE", NULL};
    struct figure_table table;
    size_t i;
    json_t *event;
    if (json_array_size(events) == 0) {
        puts("Events:  none");
        return;
    }
    puts("Events:");
    table_init(&table, TABLE_COLUMNS_MAX, columns);
    json_array_foreach((json_t *)(uintptr_t)events, i, event)
    {
        table_add(&table, "%s", AT(event, "type"));
        table_add(&table, "%s", AT(event, "reason"));
        table_add(&table, "%s", AT(event, "time"));
        table_add(&table, "%.130s", AT(event, "message"));
    }
    table_print(&table, stdout);
    table_free(&table);
}

static void
describe_object(const struct shown_object *shown)
{
    const char *name;
    json_t *value;
    char time[FIGURE_ROOM];
    figure_time(time, shown->object->created_ms * NS_PER_MS);
    printf("Name:  %s\nCreated:  %s\nVersion:  %" PRIu64 "\n", shown->object->name, time,
           shown->object->version);
    if (shown->object->deleted)
        puts("Deleted:  it goes when its vmodel has gone");
    json_object_foreach(shown->manifest, name, value) describe_value(name, value, 0);
    if (shown->status != NULL)
        describe_value("status", shown->status, 0);
    if (shown->record != NULL)
        describe_events(json_object_get(shown->record, "events"));
}

static enum ctl_exit
describe(struct manifests_settings *settings, struct client *client, struct error *error)
{
    struct manifests_list list;
    enum manifest_kind kind;
    enum ctl_exit code = CTL_NEGATIVE;
    size_t position = 0;
    CHECK(manifests_kind(settings, &kind, error) == STATUS_OK);
    if (manifests_list_read(settings, client, &list, error) == STATUS_OK) {
        const manifests_object *object =
            manifests_next(&list, &position, manifest_kind_name(kind), settings->words[1]);
        code = object != NULL ? CTL_OK : not_found(settings, kind, error);
        if (object != NULL) {
            struct shown_object shown;
            open_object(&shown, object);
            if (settings->as_json)
                print_json(&shown);
            else
                describe_object(&shown);
            close_object(&shown);
        }
    }
    manifests_list_free(&list);
    return code;
}

/* ---- wait ---- */

/* Returns whether it is as waited for. */
static bool
has_come(const struct manifests_settings *settings, const manifests_object *object)
{
    bool wants_gone = strcmp(settings->wait_for, "delete") == 0;
    if (object == NULL || wants_gone)
        return object == NULL && wants_gone;
    struct shown_object shown;
    open_object(&shown, object);
    bool ready = is_ready(&shown);
    close_object(&shown);
    return ready;
}

static enum ctl_exit
wait_for(struct manifests_settings *settings, struct client *client, struct error *error)
{
    struct manifests_list list;
    enum manifest_kind kind;
    CHECK(manifests_kind(settings, &kind, error) == STATUS_OK);
    for (;;) {
        size_t position = 0;
        bool come = manifests_list_read(settings, client, &list, error) == STATUS_OK &&
                    has_come(settings, manifests_next(&list, &position, manifest_kind_name(kind),
                                                      settings->words[1]));
        manifests_list_free(&list);
        if (error->status != STATUS_OK)
            return CTL_NEGATIVE;
        if (come)
            break;
        if (clock_now_ns() >= settings->deadline_ns) {
            error_set(error, STATUS_DEADLINE_EXCEEDED, "%s/%s: timed out waiting for %s",
                      manifest_kind_resource(kind), settings->words[1], settings->wait_for);
            return CTL_LATE;
        }
        const struct timespec pause = {.tv_nsec = (long)LOOK_MS * NS_PER_MS};
        nanosleep(&pause, NULL);
    }
    manifests_notify(settings, kind, settings->words[1], "condition met");
    return CTL_OK;
}

/* ---- the commands ---- */

enum name_need { NAME_OPTIONAL, NAME_NEEDED };

static int
run(const struct ctl_command *command, enum name_need names, int argc, char **argv,
    enum ctl_exit (*act)(struct manifests_settings *settings, struct client *client,
                         struct error *error))
{
    struct manifests_settings settings = {.command = command};
    struct error error = ERROR_NONE;
    enum manifest_kind kind;
    int code = manifests_settings_read(&settings, argc, argv);
    if (code >= 0)
        return code;
    if (manifests_kind(&settings, &kind, &error) == STATUS_OK && names == NAME_NEEDED &&
        settings.word_count < 2)
        error_set(&error, STATUS_INVALID_ARGUMENT, "expected a name as well");
    if (error.status == STATUS_OK && command == &wait_command &&
        (settings.wait_for == NULL || (strcmp(settings.wait_for, "delete") != 0 &&
                                       strcmp(settings.wait_for, "condition=Ready") != 0)))
        error_set(&error, STATUS_INVALID_ARGUMENT,
                  "expected --for=condition=Ready or --for=delete");
    return error.status == STATUS_OK ? manifests_call(&settings, act)
                                     : ctl_fail(CTL_USAGE, settings.call.output, &error);
}

static int
get_run(int argc, char **argv)
{
    return run(&get_command, NAME_OPTIONAL, argc, argv, get);
}

static int
describe_run(int argc, char **argv)
{
    return run(&describe_command, NAME_NEEDED, argc, argv, describe);
}

static int
wait_run(int argc, char **argv)
{
    return run(&wait_command, NAME_NEEDED, argc, argv, wait_for);
}

static const struct ctl_option get_options[] = {MANIFESTS_OUTPUT, MANIFESTS_CALL};
static const struct ctl_option describe_options[] = {MANIFESTS_CALL};
static const struct ctl_option wait_options[] = {
    {"for", "WHAT", "condition=Ready, or delete", .form = CTL_WORD,
     .at = offsetof(struct manifests_settings, wait_for)},
    MANIFESTS_CALL,
};

const struct ctl_command get_command = {
    .name = "get",
    .arguments = "[options] KIND [NAME]",
    .summary = "List objects of ModelMesh Serving",
    .about = "KIND is isvc, predictor, servingruntime, clusterservingruntime, secret, configmap,\n"
             "or of a gateway: inferencepool, inferenceobjective, inferencemodelrewrite,\n"
             "inferencemodel, llmroute, httproute. A secret's values are never shown.\n",
    .example = "  shoalctl get isvc\n",
    CTL_OPTIONS(get_options),
    .letters = "o",
    .run = get_run,
};

const struct ctl_command describe_command = {
    .name = "describe",
    .arguments = "[options] KIND NAME",
    .summary = "Show an object of ModelMesh Serving with its status and events",
    .example = "  shoalctl describe isvc fraud\n",
    CTL_OPTIONS(describe_options),
    .run = describe_run,
};

const struct ctl_command wait_command = {
    .name = "wait",
    .arguments = "[options] --for=WHAT KIND/NAME",
    .summary = "Wait until a service is ready, or an object is gone",
    .exits = "  0  it is\n"
             "  1  the node answered with an error\n",
    .example = "  shoalctl wait --for=condition=Ready isvc/fraud\n",
    CTL_OPTIONS(wait_options),
    .run = wait_run,
};
