/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment variables of KServe ModelMesh's container, so that its deployment can start
 * `shoald` instead. MM_SERVICE_NAME, without which that container does not start either, turns the
 * mesh on; without it and without `mesh` in the file no variable is looked at. The file takes
 * precedence. Variables outside the table are ignored.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/usage.h"
#include "coordinator/config/config_tree.h"

enum environment_form {
    FORM_TEXT,     /* as the key's value */
    FORM_PORT,     /* "8033": the list of addresses ["port:8033"] */
    FORM_HTTP,     /* the same alone; "NONE": nothing */
    FORM_LIST,     /* comma-separated */
    FORM_POD,      /* the end of a pod's name, which is the instance's id */
    FORM_CALLED,   /* "8085": a port of this host to call, "localhost:8085" */
    FORM_SOCKET,   /* "/path": "unix:/path" */
    FORM_FALSE,    /* refused unless "false" */
    FORM_BOUND,    /* a negative number: no bound, the largest that the key takes */
    FORM_SWITCH,   /* "false": the key is 0; "true": as if it were not there */
    FORM_BYTES,    /* of `message_mib` */
    FORM_SHUTDOWN, /* milliseconds from SIGTERM to the end of the process */
    FORM_METRICS,  /* "prometheus:port=2112;scheme=http", or "disabled" */
    FORM_AUTH,     /* "REQUIRE", "OPTIONAL", "NONE", in any case: of `tls: client_auth` */
    FORM_FILE,     /* a path; several are refused */
    FORM_SECRET,   /* `key_password` itself: in no message, and erased from the environment */
    FORM_ALONE,    /* as the key's value; refused beside another of the same key */
    FORM_UNWANTED, /* must not be there, unless the file has the key */
    FORM_PASSED,   /* no effect here: logged unless "false" or "0" */
};

struct variable {
    const char *name;
    enum environment_form form;
    enum config_key_index key;
    const char *help; /* for FORM_PASSED: the replacement */
};

#define NODES_TOO                                                                                  \
    "refused: it means TLS between nodes, too. `MM_TLS_…` are for callers, `mesh: tls` is for "  \
    "nodes"

/* The first variable that is set counts, if several set one key. */
static const struct variable variables[] = {
    {"MM_SERVICE_NAME", FORM_TEXT, KEY_MESH_SERVICE,
     "turns the mesh on; `mesh: service`. Unless the file has `mesh: management`, "
     "`mmesh.ModelMesh` is served on `listen`, too. Without pipelines with `models`, and if "
     "nothing "
     "says where a runtime is, it is looked for at `unix:/tmp/mmesh/grpc.sock` and "
     "`localhost:8085`"},
    {"TAS_SERVICE_NAME", FORM_TEXT, KEY_MESH_SERVICE, "the same, older name"},
    {"KV_STORE", FORM_TEXT, KEY_MESH_STORE, "`mesh: store`"},
    {"ZOOKEEPER", FORM_UNWANTED, KEY_MESH_STORE, "refused: only etcd is a store for many nodes"},
    {"MM_KVSTORE_PREFIX", FORM_TEXT, KEY_MESH_PREFIX, "`mesh: prefix`"},
    {"WKUBE_POD_NAME", FORM_POD, KEY_MESH_INSTANCE, "`mesh: instance`, its last 12 characters"},
    {"WKUBE_POD_IPADDR", FORM_TEXT, KEY_MESH_ADDRESS, "`mesh: address`; only with etcd"},
    {"INTERNAL_GRPC_SOCKET_PATH", FORM_SOCKET, KEY_MESH_RUNTIME,
     "`mesh: runtime`, a unix socket. This and the next three: not where a pipeline has `models` "
     "without `types`, which loads all"},
    {"INTERNAL_GRPC_PORT", FORM_CALLED, KEY_MESH_RUNTIME, "`mesh: runtime`, a port of localhost"},
    {"INTERNAL_SERVING_GRPC_SOCKET_PATH", FORM_SOCKET, KEY_MESH_CALLS,
     "`mesh: runtime_calls`, a unix socket"},
    {"INTERNAL_SERVING_GRPC_PORT", FORM_CALLED, KEY_MESH_CALLS,
     "`mesh: runtime_calls`, a port of localhost"},
    {"MM_LABELS", FORM_LIST, KEY_MESH_LABELS, "`mesh: labels`, comma-separated"},
    {"MM_LOCATION", FORM_TEXT, KEY_MESH_LOCATION, "`mesh: location`"},
    {"MM_ZONE", FORM_TEXT, KEY_MESH_ZONE, "`mesh: zone`"},
    {"MM_TYPE_CONSTRAINTS", FORM_TEXT, KEY_MESH_TYPES, "`mesh: type_constraints`, as JSON"},
    {"MM_TYPE_CONSTRAINTS_PATH", FORM_TEXT, KEY_MESH_TYPES, "`mesh: type_constraints`, a file"},
    {"MM_DATAPLANE_CONFIG", FORM_TEXT, KEY_MESH_DATAPLANE, "`mesh: dataplane`, as JSON"},
    {"MM_DATAPLANE_CONFIG_PATH", FORM_TEXT, KEY_MESH_DATAPLANE, "`mesh: dataplane`, a file"},
    {"MM_SCALEUP_RPM_THRESHOLD", FORM_TEXT, KEY_MESH_RPM, "`mesh: scaleup_rpm`"},
    {"MM_CONC_SCALEUP_BANDWIDTH_PCT", FORM_TEXT, KEY_MESH_PERCENT, "`mesh: scaleup_percent`"},
    {"MM_MAX_INFLIGHT_PER_MODEL_COPY", FORM_BOUND, KEY_MESH_WAITING,
     "`mesh: waiting_max`; negative: the maximum"},
    {"MM_LOAD_FAILURE_EXPIRY_TIME_MS", FORM_TEXT, KEY_MESH_FAILURE_EXPIRY,
     "`mesh: failure_expiry_ms`"},
    {"MM_FAILFAST_UPGRADE_ENABLED", FORM_SWITCH, KEY_MESH_CLEARANCE,
     "`false`: `mesh: clearance_ms` is 0"},
    {"BOOTSTRAP_CLEARANCE_PERIOD_MS", FORM_TEXT, KEY_MESH_CLEARANCE, "`mesh: clearance_ms`"},
    {"MM_DEFAULT_VMODEL_OWNER", FORM_TEXT, KEY_MESH_OWNER, "`mesh: vmodel_owner`"},
    {"MM_SVC_GRPC_PORT", FORM_PORT, KEY_LISTEN, "`listen`, a port on all interfaces"},
    {"TAS_SVC_GRPC_PORT", FORM_PORT, KEY_LISTEN, "the same, older name"},
    {"MM_SVC_GRPC_MAX_MSG_SIZE", FORM_BYTES, KEY_MESSAGE_MIB, "`message_mib`, in bytes"},
    {"SHUTDOWN_TIMEOUT_MS", FORM_SHUTDOWN, KEY_DRAIN_TIMEOUT_MS,
     "`drain_timeout_ms`, less 5 s for the end after it; at least 2 s"},
    {"MM_PROBE_PORT", FORM_HTTP, KEY_PROBES,
     "`probes`, a port on all interfaces; default 8089, `NONE` for none"},
    {"MM_PRESTOP_WAIT_PORT", FORM_HTTP, KEY_PRESTOP, "`prestop`, likewise; default 8090"},
    {"MM_METRICS", FORM_METRICS, KEY_METRICS,
     "`metrics`: `prometheus`, with `:port=2112;fq_names=true` behind it, or `disabled`"},
    {"KV_READ_ONLY", FORM_FALSE, KEY_COUNT, "refused, but for `false`"},
    {"MM_TLS_KEY_CERT_PATH", FORM_TEXT, KEY_TLS_CERTIFICATE, "`tls: certificate`"},
    {"MM_TLS_PRIVATE_KEY_PATH", FORM_TEXT, KEY_TLS_KEY, "`tls: key`"},
    {"MM_TLS_PRIVATE_KEY_PASSPHRASE", FORM_SECRET, KEY_TLS_PASSWORD,
     "the password of `tls: key` itself; in the file: `tls: key_password_file`"},
    {"MM_TLS_TRUST_CERT_PATH", FORM_FILE, KEY_TLS_CLIENT_CA,
     "`tls: client_ca`; one file with all authorities"},
    {"MM_TLS_CLIENT_AUTH", FORM_AUTH, KEY_TLS_CLIENT_AUTH,
     "`tls: client_auth`; `REQUIRE`, `OPTIONAL` or `NONE`, which is the default"},
    {"MM_SVC_GRPC_PRIVATE_KEY_PATH", FORM_UNWANTED, KEY_TLS, NODES_TOO},
    {"TAS_SVC_GRPC_PRIVATE_KEY_PATH", FORM_UNWANTED, KEY_TLS, NODES_TOO},
    {"MM_ENABLE_SSL", FORM_FALSE, KEY_MESH_TLS,
     "refused, but for `false`, unless the file has `mesh: tls`, which is TLS between nodes"},
    {"MM_AUTO_REGISTER_MODELS", FORM_ALONE, KEY_MESH_REGISTER,
     "`mesh: register`, as JSON. Only one of this and the next three may be set"},
    {"MM_AUTO_REGISTER_MODEL", FORM_ALONE, KEY_MESH_REGISTER, "the same"},
    {"MM_AUTO_REGISTER_MODELS_PATH", FORM_ALONE, KEY_MESH_REGISTER, "`mesh: register`, a file"},
    {"MM_AUTO_REGISTER_MODEL_PATH", FORM_ALONE, KEY_MESH_REGISTER, "the same"},
    {"MM_PAYLOAD_PROCESSORS", FORM_PASSED, KEY_COUNT, "`traces`, without payloads"},
    {"MM_PAYLOAD_PROCESSORS_THREADS", FORM_PASSED, KEY_COUNT, "`traces`, without payloads"},
    {"MM_PAYLOAD_PROCESSORS_CAPACITY", FORM_PASSED, KEY_COUNT, "`traces`, without payloads"},
    {"MM_LOG_EACH_INVOKE", FORM_PASSED, KEY_COUNT, "`traces`"},
    {"MM_LOG_REQUEST_HEADERS", FORM_PASSED, KEY_COUNT, "`traces`, without headers"},
    {"MM_SEND_DEST_ID", FORM_PASSED, KEY_COUNT, "`shoalctl mesh copies ID`"},
    {"MM_INFO_METRICS", FORM_PASSED, KEY_COUNT, "labels that the scraper sets"},
    {"MM_MULTI_PARALLELISM", FORM_PASSED, KEY_COUNT, "all models of a call at once"},
    {"MM_SVC_GRPC_MAX_HEADERS_SIZE", FORM_PASSED, KEY_COUNT, "64 KiB"},
    {"MM_SVC_GRPC_MAX_CONNECTION_AGE_SECS", FORM_PASSED, KEY_COUNT,
     "connections stay; a draining node ends its own"},
    {"MM_SVC_GRPC_MAX_CONNECTION_AGE_GRACE_SECS", FORM_PASSED, KEY_COUNT,
     "connections stay; a draining node ends its own"},
    {"MM_LOG_PROMETHEUS_REQS", FORM_PASSED, KEY_COUNT, "the scraper's own log"},
};

enum { LIST_MAX = 256, ENVIRONMENT_BYTES_MAX = 65536 };

/* ---- values ---- */

static struct tree_node
scalar(char *text)
{
    return (struct tree_node){.kind = NODE_SCALAR, .text = text};
}

static void
read_one(struct config_reader *reader, const struct variable *variable, char *text)
{
    struct tree_node node = scalar(text);
    config_read_value(reader, &config_keys[variable->key], &node);
}

static void
read_port(struct config_reader *reader, const struct variable *variable, const char *value)
{
    char *address = must_format("port:%s", value);
    struct tree_node item = scalar(address);
    struct tree_node list = {.kind = NODE_LIST, .first = &item, .count = 1};
    config_read_value(reader, &config_keys[variable->key], &list);
    free(address);
}

static void
read_target(struct config_reader *reader, const struct variable *variable, const char *before,
            const char *value)
{
    char *target = must_format("%s:%s", before, value);
    read_one(reader, variable, target);
    free(target);
}

static void
read_http(struct config_reader *reader, const struct variable *variable, const char *value)
{
    if (strcmp(value, "NONE") == 0)
        return;
    char *address = must_format("port:%s", value);
    read_one(reader, variable, address);
    free(address);
}

static void
read_list(struct config_reader *reader, const struct variable *variable, char *text)
{
    static struct tree_node items[LIST_MAX]; /* read once, by one thread, as long as this runs */
    struct tree_node list = {.kind = NODE_LIST};
    char *rest = NULL;
    for (char *item = strtok_r(text, ",", &rest); item != NULL && list.count < LIST_MAX;
         item = strtok_r(NULL, ",", &rest)) {
        items[list.count] = scalar(item);
        if (list.count > 0)
            items[list.count - 1].next = &items[list.count];
        list.count++;
    }
    list.first = list.count > 0 ? items : NULL;
    config_read_value(reader, &config_keys[variable->key], &list);
}

static void
read_pod(struct config_reader *reader, const struct variable *variable, char *text)
{
    size_t bytes = strlen(text);
    read_one(reader, variable,
             bytes > CONFIG_INSTANCE_BYTES ? text + bytes - CONFIG_INSTANCE_BYTES : text);
}

static void
read_bytes(struct config_reader *reader, const char *value)
{
    char *end;
    unsigned long long bytes = strtoull(value, &end, 10);
    if (value[0] < '1' || value[0] > '9' || *end != '\0' || bytes > INT32_MAX)
        report_add(reader->report, 0, "must be a number of bytes, 1 to %d, not \"%.60s\"",
                   INT32_MAX, value);
    else
        reader->config->message_bytes_max = bytes;
}

/* That container drains for as long: deployments set this to the pod's whole grace period. */
static void
read_shutdown(struct config_reader *reader, const struct variable *variable, char *value)
{
    enum { END_MS = 5000, DRAIN_MS_MIN = 2000 };
    char *end;
    long all_ms = strtol(value, &end, 10);
    long drain_ms = all_ms > END_MS + DRAIN_MS_MIN ? all_ms - END_MS : DRAIN_MS_MIN;
    char *text = must_format("%ld", drain_ms);
    read_one(reader, variable, all_ms > 0 && *end == '\0' ? text : value);
    free(text);
}

static void
read_false(struct config_reader *reader, const struct variable *variable, const char *value)
{
    if (strcmp(value, "false") != 0)
        report_add(reader->report, 0, "%s", variable->help);
}

static void
read_flag(struct config_reader *reader, const char *name, const char *value, bool *flag)
{
    *flag = strcmp(value, "true") == 0;
    if (!*flag && strcmp(value, "false") != 0)
        report_add(reader->report, 0, "%s: must be `true` or `false`, not \"%.60s\"", name, value);
}

static void
read_bound(struct config_reader *reader, const struct variable *variable, char *value)
{
    char *end;
    long number = strtol(value, &end, 10);
    char *most = must_format("%.0f", config_keys[variable->key].max);
    read_one(reader, variable, number < 0 && *end == '\0' ? most : value);
    free(most);
}

static void
read_switch(struct config_reader *reader, const struct variable *variable, const char *value)
{
    static char off[] = "0";
    bool on = true;
    read_flag(reader, variable->name, value, &on);
    if (!on)
        read_one(reader, variable, off);
}

/* Reads one option after "prometheus:". Options without an equivalent are logged
 * (mesh_metrics_differ) rather than refused, as calls are worth more than their figures. */
static void
read_metrics_word(struct config_reader *reader, char *word, const char **port)
{
    struct config_mesh *mesh = &reader->config->mesh;
    char *sign = strchr(word, '=');
    const char *value = sign != NULL ? sign + 1 : "";
    if (sign != NULL)
        *sign = '\0';
    if (strcmp(word, "port") == 0)
        *port = value;
    else if (strcmp(word, "scheme") == 0 && strcmp(value, "http") == 0)
        mesh->metrics_tls = false;
    else if (strcmp(word, "scheme") == 0 && strcmp(value, "https") == 0)
        mesh->metrics_tls = true;
    else if (strcmp(word, "fq_names") == 0)
        read_flag(reader, word, value, &mesh->metrics_fq_names);
    else if (strcmp(word, "per_model_metrics") == 0)
        read_flag(reader, word, value, &mesh->metrics_per_model);
    else if (strcmp(word, "mem_detail") != 0) /* of a JVM */
        report_add(reader->report, 0,
                   "\"%.60s\": must be port, scheme (http or https), fq_names, "
                   "per_model_metrics or mem_detail",
                   word);
}

static void
read_metrics(struct config_reader *reader, const struct variable *variable, char *text)
{
    static const char prometheus[] = "prometheus";
    size_t bytes = strcspn(text, ":");
    const char *port = "2112";
    char *rest = NULL;
    if (strcmp(text, "disabled") == 0)
        return;
    if (bytes != strlen(prometheus) || memcmp(text, prometheus, bytes) != 0) {
        report_add(reader->report, 0,
                   "must be `prometheus`, optionally followed by `:port=…`, or `disabled`, not "
                   "\"%.60s\"",
                   text);
        return;
    }
    reader->config->mesh.metrics_tls = true; /* that container's default */
    char *words = text[bytes] == ':' ? text + bytes + 1 : text + bytes;
    for (char *word = strtok_r(words, ";", &rest); word != NULL; word = strtok_r(NULL, ";", &rest))
        read_metrics_word(reader, word, &port);
    read_target(reader, variable, "port", port);
}

static void
read_auth(struct config_reader *reader, const struct variable *variable, char *value)
{
    static char required[] = "required";
    for (char *c = value; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    read_one(reader, variable, strcmp(value, "require") == 0 ? required : value);
}

static void
read_path(struct config_reader *reader, const struct variable *variable, char *value)
{
    if (strchr(value, ',') != NULL)
        report_add(reader->report, 0, "several files: give one file with all certificates");
    else
        read_one(reader, variable, value);
}

static void
read_secret(struct config_reader *reader, const char *value)
{
    reader->config->tls.key_password = must_copy(value);
}

static void
read_variable(struct config_reader *reader, const struct variable *variable, char *value)
{
    switch (variable->form) {
    case FORM_TEXT:
    case FORM_ALONE: read_one(reader, variable, value); break;
    case FORM_PORT: read_port(reader, variable, value); break;
    case FORM_HTTP: read_http(reader, variable, value); break;
    case FORM_LIST: read_list(reader, variable, value); break;
    case FORM_POD: read_pod(reader, variable, value); break;
    case FORM_BYTES: read_bytes(reader, value); break;
    case FORM_SHUTDOWN: read_shutdown(reader, variable, value); break;
    case FORM_AUTH: read_auth(reader, variable, value); break;
    case FORM_FILE: read_path(reader, variable, value); break;
    case FORM_SECRET: read_secret(reader, value); break;
    case FORM_CALLED: read_target(reader, variable, "localhost", value); break;
    case FORM_SOCKET: read_target(reader, variable, "unix", value); break;
    case FORM_FALSE: read_false(reader, variable, value); break;
    case FORM_BOUND: read_bound(reader, variable, value); break;
    case FORM_SWITCH: read_switch(reader, variable, value); break;
    case FORM_METRICS: read_metrics(reader, variable, value); break;
    case FORM_UNWANTED: report_add(reader->report, 0, "%s", variable->help); break;
    case FORM_PASSED: break;
    }
}

/* ---- the environment ---- */

/* Errors about the value name the variable, since nobody has written the key. */
static void
take(struct config_reader *reader, const struct variable *variable, const char *value)
{
    struct tree_report *report = reader->report;
    struct tree_report own = {.file = report->file};
    size_t bytes = strlen(value);
    char *copy = must_copy(value);
    reader->report = &own;
    if (bytes > ENVIRONMENT_BYTES_MAX)
        report_add(&own, 0, "more than %d bytes", ENVIRONMENT_BYTES_MAX);
    else
        read_variable(reader, variable, copy);
    reader->report = report;
    for (uint32_t i = 0; i < own.count; i++) {
        report_add(report, 0, "environment variable %s: %s", variable->name, own.entries[i].text);
        free(own.entries[i].text);
    }
    explicit_bzero(copy, bytes); /* it may be a secret */
    free(copy);
}

/* Workers inherit this environment, and /proc shows it. A second reading of the configuration, to
 * reload pipelines, finds no secret and needs none. */
static void
forget_secrets(void)
{
    for (size_t i = 0; i < ARRAY_COUNT(variables); i++) {
        char *value = variables[i].form == FORM_SECRET ? getenv(variables[i].name) : NULL;
        if (value != NULL)
            explicit_bzero(value, strlen(value));
    }
}

static bool
is_given(const struct config_reader *reader, const struct config_given *given,
         enum config_key_index key)
{
    if (key == KEY_COUNT)
        return false;
    if (config_keys[key].where == WHERE_TLS)
        return given->nodes[KEY_TLS] != NULL; /* one or the other has all of it */
    return config_keys[key].where == WHERE_MESH ? reader->mesh_given.nodes[key] != NULL
                                                : given->nodes[key] != NULL;
}

/* The default of that container. */
static const char *
fallback_of(const struct variable *variable)
{
    return variable->key == KEY_PROBES ? "8089" : variable->key == KEY_PRESTOP ? "8090" : NULL;
}

/* One of the variables that turn the mesh on; NULL: none is set. */
static const char *
service_name(void)
{
    const char *name = NULL;
    for (size_t i = 0; variables[i].key == KEY_MESH_SERVICE && name == NULL; i++)
        name = getenv(variables[i].name);
    return name;
}

/* Its deployment always names a runtime, while the file's pipelines may be all that there is. */
static bool
pipelines_load_all(const struct config *config)
{
    for (uint32_t i = 0; i < config->pipeline_count; i++)
        if (config->pipelines[i].models.root != NULL && config->pipelines[i].models.type_count == 0)
            return true;
    return false;
}

static bool
is_of_runtime(const struct variable *variable)
{
    return variable->key == KEY_MESH_RUNTIME || variable->key == KEY_MESH_CALLS;
}

/* The two places where that container looks for its runtime by default, in turn. */
static void
find_runtime(struct config_reader *reader)
{
    const char *service = service_name();
    struct config *config = reader->config;
    if (service == NULL || service[0] == '\0' || config->mesh.runtime != NULL)
        return;
    for (uint32_t i = 0; i < config->pipeline_count; i++)
        if (config->pipelines[i].models.root != NULL)
            return;
    config->mesh.runtime = must_copy("unix:/tmp/mmesh/grpc.sock");
    config->mesh.runtime_else = must_copy("localhost:8085");
}

/* KServe ModelMesh takes a text and a file together, and ignores one of two texts. */
static void
refuse_second(struct config_reader *reader, const struct variable *variable)
{
    report_add(reader->report, 0,
               "environment variable %s: another one sets `%s` already: set only one, to the "
               "values of both",
               variable->name, config_keys[variable->key].name);
}

void
config_read_environment(struct config_reader *reader, struct config_given *given)
{
    static const struct tree_node nothing = {.kind = NODE_MAP};
    bool taken[KEY_COUNT + 1] = {false};
    if (given->refused[KEY_MESH])
        return;
    bool alone = !reader->config->mesh.on;
    if (alone) {
        if (service_name() == NULL)
            return;
        config_read_mesh(reader, &nothing);
    }
    bool no_runtime =
        reader->mesh_given.nodes[KEY_MESH_RUNTIME] == NULL && pipelines_load_all(reader->config);
    for (size_t i = 0; i < ARRAY_COUNT(variables); i++) {
        const struct variable *variable = &variables[i];
        const char *value = getenv(variable->name);
        if (no_runtime && is_of_runtime(variable))
            continue;
        if (value == NULL && service_name() != NULL)
            value = fallback_of(variable);
        if (value == NULL || value[0] == '\0' || is_given(reader, given, variable->key))
            continue;
        if (variable->key < KEY_COUNT && taken[variable->key]) {
            if (variable->form == FORM_ALONE)
                refuse_second(reader, variable);
            continue;
        }
        taken[variable->key] = variable->form != FORM_SWITCH || strcmp(value, "true") != 0;
        take(reader, variable, value);
    }
    forget_secrets();
    /* That container serves management there. */
    const char *service = service_name();
    reader->config->mesh.management.on_listen =
        service != NULL && service[0] != '\0' &&
        reader->mesh_given.nodes[KEY_MESH_MANAGEMENT] == NULL;
    if (!taken[KEY_MESH_RUNTIME] && reader->mesh_given.nodes[KEY_MESH_RUNTIME] == NULL &&
        !given->refused[KEY_PIPELINES])
        find_runtime(reader);
}

/* Returns whether it has no effect here. */
static bool
is_passed_over(const struct config *config, const struct variable *variable, const char *value)
{
    if (is_of_runtime(variable))
        return config->mesh.runtime == NULL;
    return variable->form == FORM_PASSED && strcmp(value, "false") != 0 && strcmp(value, "0") != 0;
}

bool
config_passed_over(const struct config *config, size_t *position, const char **name,
                   const char **instead)
{
    while (*position < ARRAY_COUNT(variables)) {
        const struct variable *variable = &variables[(*position)++];
        const char *value = getenv(variable->name);
        if (value == NULL || value[0] == '\0' || !is_passed_over(config, variable, value))
            continue;
        *name = variable->name;
        *instead = is_of_runtime(variable) ? "pipelines without `types`, which load all models"
                                           : variable->help;
        return true;
    }
    return false;
}

/* ---- the manual ---- */

static char *
meaning_of(const struct variable *variable)
{
    bool passed = variable->form == FORM_PASSED;
    return must_format("%s%s", passed ? "ignored and logged; instead: " : "", variable->help);
}

/* Returns whether it stands in the item of the variable above. */
static bool
is_as_above(size_t i)
{
    return i > 0 && variables[i].form == variables[i - 1].form &&
           strcmp(variables[i].help, variables[i - 1].help) == 0;
}

static void
print_item(FILE *out, size_t i, const char *meaning)
{
    if (is_as_above(i))
        return;
    char *names = must_format("`%s`", variables[i].name);
    while (++i < ARRAY_COUNT(variables) && is_as_above(i)) {
        char *more = must_format("%s, `%s`", names, variables[i].name);
        free(names);
        names = more;
    }
    char *item = must_format("%s: %s", names, meaning);
    config_print_item(out, item);
    free(item);
    free(names);
}

void
config_print_environment(FILE *out, enum config_manual_form form)
{
    static const char *const titles[] = {
        [CONFIG_MANUAL_TEXT] = "\nEnvironment variables for keys that the file leaves out:\n",
        [CONFIG_MANUAL_MARKDOWN] =
            "\n**Environment variables for keys that the file leaves out**\n\n",
        [CONFIG_MANUAL_MAN] = ".SH ENVIRONMENT\nFor keys that the file leaves out:\n",
    };
    fputs(titles[form], out);
    for (size_t i = 0; i < ARRAY_COUNT(variables); i++) {
        char *meaning = meaning_of(&variables[i]);
        switch (form) {
        case CONFIG_MANUAL_TEXT:
            fprintf(out, "    %s\n", variables[i].name);
            config_print_wrapped(out, meaning);
            break;
        case CONFIG_MANUAL_MARKDOWN: print_item(out, i, meaning); break;
        case CONFIG_MANUAL_MAN:
            fprintf(out, ".TP\n\\fB%s\\fR\n", variables[i].name);
            usage_roff(out, meaning);
            fputc('\n', out);
            break;
        }
        free(meaning);
    }
}
