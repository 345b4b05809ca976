/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_node.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "coordinator/config/config_types.h"
#include "coordinator/mesh/mesh_address.h"
#include "coordinator/mesh/mesh_counters.h"
#include "coordinator/mesh/mesh_file.h"
#include "coordinator/mesh/mesh_listed.h"
#include "coordinator/mesh/mesh_many.h"
#include "coordinator/mesh/mesh_register.h"
#include "coordinator/mesh/mesh_report.h"
#include "coordinator/mesh/mesh_runtime.h"
#include "coordinator/mesh/mesh_settings.h"
#include "coordinator/mesh/mesh_store.h"
#include "coordinator/mesh/mesh_manifests.h"
#include "coordinator/mesh/mesh_types.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/telemetry/meters.h"
#include "mesh/edge/peer_server.h"
#include "mesh/etcd/etcd.h"
#include "mesh/record/record.h"

enum {
    PENDING_MAX = 1 << 17, /* calls and orders; the runner has a limit of its own for either */
    QUEUES_MAX = 16,       /* of the front */
};

/* With `fail_fast` the node may take so long to connect to three members, a second each, and to get
 * an answer. It then ends within 5 s of its start, as ModelMesh does. */
enum { REACH_S = 4 };
#define LAST_ANSWERS_NS (2 * NS_PER_S)
#define FILES_LOOK_NS NS_PER_S /* how soon a changed file is read */

struct mesh_node {
    struct mesh_node_options options;
    const struct config_mesh *config;
    uint64_t seed;
    struct pending *pending;
    struct native *native;
    struct mesh_calls *calls;
    struct mesh_manage *manage;
    struct management_place place;
    struct mesh_management *management;
    struct meters *meters; /* NULL: no metrics and no dashboard */
    struct mesh_store store;
    struct mesh_runner *runner;
    bool shared; /* pipelines load models, too */
    struct mesh_pools pools;
    struct mesh_runtime *runtime; /* NULL: only pipelines load models */
    struct external *external;    /* of that; NULL: likewise */
    struct rpc_queue *queues[QUEUES_MAX];
    struct peer_server *server; /* this and the next: NULL without other nodes */
    struct peers *peers;
    uint32_t queue_count;
    char address[MESH_ADDRESS_BYTES]; /* for other nodes; "": there are none */
    struct mesh_file types_file;
    struct mesh_file dataplane_file;
    struct loop_timer *files_timer;
    struct loop_timer *reach_timer;
    struct dataplane *dataplane; /* NULL: every method may be called, without a path */
    struct mesh_listed *listed;  /* this and the next: NULL if no models are listed */
    struct mesh_register *reg;
    struct mesh_manifests *manifests;
    bool started;
    bool registered; /* all listed models are */
    bool drained;
    bool stopped;
    int64_t stopped_ns;
};

/* ---- calls ---- */

void
mesh_node_infer(struct mesh_node *node, const struct mesh_call_start *start,
                const struct mesh_named *named)
{
    if (named->count > 1)
        mesh_many_begin(node->calls, start, named);
    else
        mesh_call_begin(node->calls, start);
}

enum status
mesh_node_permits(const struct mesh_node *node, const char *method, struct dataplane_rule *rule,
                  struct error *error)
{
    return dataplane_find(node->dataplane, method, rule, error);
}

bool
mesh_node_names_by_metadata(const struct mesh_node *node, const struct inbound *inbound)
{
    struct dataplane_rule rule;
    struct mesh_named named;
    struct error error = ERROR_NONE;
    if (mesh_node_permits(node, inbound->method, &rule, &error) != STATUS_OK)
        return true;
    if (rule.depth > 0)
        return false;
    return mesh_id_of_metadata(inbound, &named, &error) != STATUS_OK || named.count <= 1;
}

void
mesh_node_more(struct mesh_node *node, const struct rpc_call *call,
               const struct wire_message *message)
{
    mesh_call_more(node->calls, call, message);
}

void
mesh_node_sent(struct mesh_node *node, uint64_t tag)
{
    mesh_call_sent(node->calls, tag);
}

void
mesh_node_taken(struct mesh_node *node, uint64_t tag, uint64_t bytes)
{
    mesh_call_taken(node->calls, tag, bytes);
}

void
mesh_node_manage(struct mesh_node *node, struct rpc_call *call, const struct wire_message *message)
{
    mesh_manage_on_message(node->manage, MESH_MANAGE_GUARDED, call, message);
}

void
mesh_node_cancel(struct mesh_node *node, uint64_t tag)
{
    pending_cancel(node->pending, tag);
}

/* ---- calls of other nodes ---- */

static enum runner_begun
on_peer_serve(void *context, struct runner_call *call, const struct runner_attempt *attempt,
              struct runner_end *end)
{
    struct mesh_node *node = context;
    if (node->external != NULL && attempt->pool == external_pool(node->external))
        return external_serve(node->external, call, attempt, end);
    struct native_refusal refusal;
    struct native_origin origin = {0};
    return native_serve(node->native, call->request, attempt, &origin, end, &refusal);
}

static void
on_peer_cancel(void *context, struct runner_call *call)
{
    struct mesh_node *node = context;
    if (node->external != NULL)
        external_cancel(node->external, call->request);
    native_cancel(node->native, call->request);
}

/* ---- files that are read again ---- */

static enum status
set_types(struct mesh_node *node, struct error *error)
{
    char *text;
    size_t bytes;
    struct record_types *types = NULL;
    if (node->types_file.given == NULL)
        return STATUS_OK;
    enum status status = mesh_file_read(&node->types_file, &text, &bytes, error);
    if (status == STATUS_OK)
        status = record_types_read(text, bytes, &types, error);
    if (status == STATUS_OK) {
        runner_types(node->runner, types->rules, types->rule_count);
        log_info("mesh_types_read types=%u", types->rule_count);
    }
    free(types);
    free(text);
    return status == STATUS_OK ? STATUS_OK
                               : mesh_file_blame(&node->types_file, "type_constraints", error);
}

static enum status
set_dataplane(struct mesh_node *node, struct error *error)
{
    char *text;
    size_t bytes;
    struct dataplane_size size;
    if (node->dataplane == NULL)
        return STATUS_OK;
    enum status status = mesh_file_read(&node->dataplane_file, &text, &bytes, error);
    if (status == STATUS_OK)
        status = dataplane_set(node->dataplane, text, bytes, &size, error);
    free(text);
    if (status != STATUS_OK)
        return mesh_file_blame(&node->dataplane_file, "dataplane", error);
    log_info("mesh_dataplane_read methods=%u others=%s", size.methods,
             size.others ? "permitted" : "refused");
    return STATUS_OK;
}

static void
reload_types(struct mesh_node *node)
{
    struct error error = ERROR_NONE;
    if (set_types(node, &error) != STATUS_OK)
        log_error("mesh_types_failed error=\"%s\" action=\"the previous ones stay in force\"",
                  error.text);
}

static void
reload_dataplane(struct mesh_node *node)
{
    struct error error = ERROR_NONE;
    if (set_dataplane(node, &error) != STATUS_OK)
        log_error("mesh_dataplane_failed error=\"%s\" action=\"the previous one stays in force\"",
                  error.text);
}

void
mesh_node_reload(struct mesh_node *node)
{
    if (node == NULL || node->stopped)
        return;
    reload_types(node);
    reload_dataplane(node);
}

static void
on_files_look(void *context)
{
    struct mesh_node *node = context;
    if (mesh_file_changed(&node->types_file))
        reload_types(node);
    if (mesh_file_changed(&node->dataplane_file))
        reload_dataplane(node);
    loop_timer_set(node->files_timer, FILES_LOOK_NS);
}

static bool
is_shared(const struct mesh_node *node)
{
    return node->config->store_kind == CONFIG_STORE_ENDPOINTS ||
           node->config->store_kind == CONFIG_STORE_ETCD_FILE;
}

bool
mesh_node_takes_any(const struct mesh_node *node)
{
    return node != NULL && (is_shared(node) || config_has_runtime(node->options.config));
}

/* Fires, with `fail_fast`, when etcd has had its time to answer. */
static void
on_reach_late(void *context)
{
    struct mesh_node *node = context;
    struct runner_view view;
    struct error error = ERROR_NONE;
    runner_look(node->runner, &view);
    if (node->stopped || view.reported_ms != 0)
        return;
    error_set(&error, STATUS_UNAVAILABLE, "mesh: store: etcd was not reached within %d s: %s",
              REACH_S, etcd_trouble(node->store.etcd));
    node->options.on_refused(node->options.context, &error);
}

/* ---- models that are registered at the start ---- */

static enum status
read_listed(struct mesh_node *node, struct error *error)
{
    struct mesh_file file = {.given = node->config->registered};
    char *text;
    size_t bytes;
    if (file.given == NULL)
        return STATUS_OK;
    enum status status = mesh_file_read(&file, &text, &bytes, error);
    if (status == STATUS_OK)
        status = mesh_listed_read(text, bytes, &node->listed, error);
    free(text);
    return status == STATUS_OK ? STATUS_OK : mesh_file_blame(&file, "register", error);
}

static void
on_registered(void *context, const struct error *error)
{
    struct mesh_node *node = context;
    if (error->status == STATUS_OK)
        node->registered = true;
    else
        node->options.on_refused(node->options.context, error);
}

static void
register_listed(struct mesh_node *node)
{
    node->reg = mesh_register_start(&(struct mesh_register_options){
        .loop = node->options.loop,
        .runner = node->runner,
        .listed = node->listed,
        .vmodel_owner = node->config->vmodel_owner,
        .on_end = on_registered,
        .context = node,
    });
}

/* ---- beginning ---- */

/* A reload does not change the method that a pipeline's models are called by (reload.c). */
static void
set_meters(struct mesh_node *node)
{
    node->meters = meters_create(node->config->metrics_fq_names ? METERS_FULL : METERS_SHORT);
    for (uint32_t i = 0; i < node->options.pipeline_count; i++) {
        struct pipeline *pipeline = node->options.pipelines[i];
        const char *path = pipeline_method(pipeline).path;
        pipeline->meters = node->meters;
        pipeline->meters_method = meters_method(node->meters, path != NULL ? path : INBOUND_INFER);
    }
}

enum status
mesh_node_create(const struct mesh_node_options *options, struct mesh_node **created,
                 struct error *error)
{
    const struct config *config = options->config;
    *created = NULL;
    if (!config->mesh.on)
        return STATUS_OK;
    struct mesh_node *node = calloc(1, sizeof(*node));
    CHECK(node != NULL);
    *created = node;
    node->options = *options;
    node->config = &config->mesh;
    node->shared = config_types_are_shared(config);
    mesh_types_pools(config, &node->pools);
    node->files_timer = loop_timer_create(loop_base(options->loop), on_files_look, node);
    node->reach_timer = loop_timer_create(loop_base(options->loop), on_reach_late, node);
    if (getrandom(&node->seed, sizeof(node->seed), 0) != sizeof(node->seed))
        return error_set_errno(error, "getrandom");
    if (config->metrics.count > 0 || config->dashboard.addresses.count > 0)
        set_meters(node);
    node->types_file.given = config->mesh.type_constraints;
    node->dataplane_file.given = config->mesh.dataplane;
    if (config->mesh.dataplane != NULL)
        node->dataplane = dataplane_create();
    node->pending = pending_create(PENDING_MAX);
    node->native = native_create(&(struct native_options){
        .loop = options->loop,
        .pipelines = options->pipelines,
        .pipeline_count = options->pipeline_count,
        .registry = options->registry,
        .callers = callers_of(config, options->share_key),
        .shared = node->shared ? config : NULL,
    });
    node->calls = mesh_calls_create(&(struct mesh_calls_options){
        .loop = options->loop,
        .pending = node->pending,
        .native = node->native,
        .counters = options->counters,
        .meters = node->meters,
        .message_bytes_max = config->message_bytes_max,
    });
    node->manage = mesh_manage_create(&(struct mesh_manage_options){
        .pending = node->pending,
        .vmodel_owner = config->mesh.vmodel_owner,
        .management = &config->mesh.management,
        .counters = options->counters,
    });
    enum status status = management_place_find(config, options->counters_path, options->listen,
                                               options->listen_count, &node->place, error);
    return status == STATUS_OK ? read_listed(node, error) : status;
}

static enum status
open_peers(struct mesh_node *node, int64_t start_ms, struct error *error)
{
    const struct config *config = node->options.config;
    struct peer_server_options server = {
        .listen = (const char *const *)config->mesh.peers.items,
        .listen_count = config->mesh.peers.count,
        .queue = node->queues[0],
        .tls = node->options.tls,
        .instance = config->mesh.instance,
        .start_ms = start_ms,
        .message_bytes_max = config->message_bytes_max,
        .serve = on_peer_serve,
        .cancel = on_peer_cancel,
        .context = node,
    };
    if (peer_server_create(&server, &node->server, error) != STATUS_OK)
        return error_prefix(error, "mesh: peers");
    node->peers = peers_create(&(struct peers_options){
        .queues = node->queues,
        .queue_count = node->queue_count,
        .instance = config->mesh.instance,
        .start_ms = start_ms,
        .tls = node->options.tls,
        .message_bytes_max = config->message_bytes_max,
    });
    return STATUS_OK;
}

static void
on_drained(void *context)
{
    struct mesh_node *node = context;
    node->drained = true;
    log_info("mesh_drained");
}

static void
on_measure(void *context, enum runner_measure measure, uint64_t value)
{
    const struct mesh_node *node = context;
    mesh_counters_measure(node->options.counters, measure, value);
}

static void
on_setting(void *context, enum record_setting_kind kind, const struct record_setting *setting)
{
    const struct mesh_node *node = context;
    const struct mesh_settings settings = {.log_level = node->options.log_level,
                                           .on_disabled = node->options.on_disabled,
                                           .context = node->options.context};
    mesh_setting_apply(&settings, kind, setting);
}

static void
create_runner(struct mesh_node *node, const char *address, int64_t start_ms)
{
    const struct config_mesh *config = node->config;
    struct runner_options options = {
        .base = loop_base(node->options.loop),
        .core = {.instance = config->instance,
                 .seed = node->seed,
                 .rate_for_more = config->scaleup_rpm,
                 .busy_percent = config->scaleup_percent,
                 .waiting_max = config->waiting_max,
                 .failure_fresh_ms = config->failure_expiry_ns / NS_PER_MS,
                 .pool_types = (const char *const *)node->pools.types,
                 .pool_count = node->pools.count,
                 .pool_name = mesh_types_pool_name},
        .address = address,
        .location = config->location,
        .zone = config->zone,
        .labels = config->labels,
        .version = mesh_version(SHOAL_VERSION),
        .start_ms = start_ms,
        .clearance_ns = config->clearance_ns,
        .runtime = node->external != NULL && !node->shared ? external_for_runner(node->external)
                                                           : native_for_runner(node->native),
        .on_drained = on_drained,
        .on_setting = on_setting,
        .on_measure = on_measure,
        .context = node,
    };
    options.last_is_hosted = config->images != NULL;
    if (node->shared)
        options.second = external_for_runner(node->external);
    if (node->peers != NULL)
        options.peers = peers_for_runner(node->peers);
    node->runner = runner_create(&options);
    node->manifests = mesh_manifests_create(node->options.loop, node->runner, node->options.config,
                                            node->options.storage);
    native_bind(node->native, node->runner);
    mesh_calls_bind(node->calls, node->runner, node->external);
    mesh_manage_bind(node->manage, node->runner);
}

static enum status
open_management(struct mesh_node *node, struct error *error)
{
    const struct management_options options = {.config = node->options.config,
                                               .place = &node->place,
                                               .manage = node->manage,
                                               .manifests = node->manifests,
                                               .pending = node->pending,
                                               .tls = node->options.callers_tls,
                                               .queue = node->queues[0],
                                               .accept = node->options.accept};
    return management_create(&options, &node->management, error);
}

enum status
mesh_node_open(struct mesh_node *node, struct rpc_queue *const *queues, uint32_t queue_count,
               struct error *error)
{
    if (node == NULL)
        return STATUS_OK;
    int64_t start_ms = mesh_wall_ms();
    char *address = node->address;
    enum status status = STATUS_OK;
    CHECK(queue_count >= 1 && queue_count <= QUEUES_MAX);
    memcpy(node->queues, queues, queue_count * sizeof(struct rpc_queue *));
    node->queue_count = queue_count;
    if (is_shared(node))
        status = open_peers(node, start_ms, error);
    node->runtime = mesh_runtime_create(
        &(struct mesh_runtime_options){.config = node->options.config,
                                       .loop = node->options.loop,
                                       .meters = node->meters,
                                       .storage = node->options.storage,
                                       .queues = node->queues,
                                       .queue_count = node->queue_count,
                                       .pool = node->pools.count - 1, /* the last one */
                                       .counters = node->options.counters,
                                       .worker_program = node->options.worker_program});
    node->external = mesh_runtime_external(node->runtime);
    if (status == STATUS_OK && is_shared(node))
        status = mesh_address_find(node->config, peer_server_port(node->server, 0), address, error);
    if (status != STATUS_OK)
        return status;
    create_runner(node, address, start_ms);
    status = set_types(node, error);
    if (status == STATUS_OK)
        status = set_dataplane(node, error);
    struct store_events events = mesh_manifests_events(node->manifests);
    if (status == STATUS_OK)
        status = mesh_store_open(node->config, node->options.loop, &events, node->seed,
                                 &node->store, error);
    if (status == STATUS_OK)
        status = open_management(node, error);
    if (status != STATUS_OK)
        return status;
    runner_start(node->runner, node->store.store);
    mesh_manifests_start(node->manifests, node->store.store);
    const struct config_mesh *config = node->config;
    mesh_setting_notify_variables(node->options.config);
    log_info("mesh_open store=%s service=%s instance=%s address=\"%s\" labels=\"%s\" "
             "runtime=\"%s\"",
             store_kind(node->store.store), config->service, config->instance, address,
             config->labels, config->runtime != NULL ? config->runtime : "");
    return STATUS_OK;
}

void
mesh_node_start(struct mesh_node *node)
{
    if (node == NULL)
        return;
    node->started = true;
    if (node->types_file.given != NULL || node->dataplane_file.given != NULL)
        loop_timer_set(node->files_timer, FILES_LOOK_NS);
    if (is_shared(node) && strcmp(node->config->fail_fast, "yes") == 0)
        loop_timer_set(node->reach_timer, REACH_S * (int64_t)NS_PER_S);
    if (node->server != NULL)
        peer_server_start(node->server, node->runner, 0);
    mesh_runtime_start(node->runtime, &(struct mesh_runtime_bound){
                                          .runner = node->runner,
                                          .leader = mesh_manifests_leader(node->manifests),
                                          .address = node->address});
    if (node->listed != NULL)
        register_listed(node);
}

void
mesh_node_accept(struct mesh_node *node)
{
    if (node != NULL && node->management != NULL)
        management_accept(node->management);
}

void
mesh_node_part(struct mesh_node *node)
{
    if (node != NULL && node->management != NULL)
        management_part(node->management);
}

/* ---- reports ---- */

struct meters *
mesh_node_meters(const struct mesh_node *node)
{
    return node == NULL ? NULL : node->meters;
}

void
mesh_node_refused(struct mesh_node *node, const char *method, enum status status,
                  uint64_t request_bytes)
{
    if (node == NULL || node->meters == NULL)
        return;
    const struct meters_call call = {.method = meters_method(node->meters, method),
                                     .status = status,
                                     .request_bytes = request_bytes};
    meters_record(node->meters, METER_REQUEST, &call);
}

void
mesh_node_publish(struct mesh_node *node)
{
    if (node == NULL)
        return;
    if (node->management != NULL)
        counter_set(node->options.counters, NODE_MESH_MANAGEMENT_REFUSED,
                    management_refused(node->management));
    if (node->external != NULL) {
        struct external_view view;
        external_look(node->external, &view);
        counter_set(node->options.counters, NODE_MESH_RUNTIME_AWAYS, view.aways);
        counter_set(node->options.counters, NODE_MESH_RUNTIME_WAITING, view.loads_waiting);
    }
    if (node->manifests != NULL)
        counter_set(node->options.counters, NODE_MESH_MANIFESTS,
                    serving_count(mesh_manifests_leader(node->manifests)));
    if (node->runner != NULL)
        mesh_counters_publish(node->options.counters, node->runner, node->peers, &node->store);
    if (node->peers != NULL)
        peers_probe(node->peers);
}

bool
mesh_node_is_managed_at_front(const struct mesh_node *node)
{
    return node != NULL && node->place.at_front;
}

const char *
mesh_node_misplaced(struct mesh_node *node, const char *method)
{
    if (node == NULL || node->place.at_front || !mesh_manage_is(method))
        return NULL;
    counter_add_shared(node->options.counters, NODE_MESH_MANAGEMENT_MISPLACED, 1);
    return MESH_SERVICE
        " is not served on `listen`, but on the addresses of `mesh: management`, and "
        "on a unix socket beside the file of counters, where `shoalctl mesh` looks";
}

void
mesh_node_set_serving(struct mesh_node *node, bool serving)
{
    if (node != NULL && node->management != NULL)
        management_set_serving(node->management, serving);
}

void
mesh_node_update(struct mesh_node *node)
{
    if (node != NULL && node->runner != NULL && !node->stopped &&
        (node->external == NULL || node->shared))
        native_update(node->native);
}

bool
mesh_node_is_ready(struct mesh_node *node)
{
    return node == NULL || (node->runner != NULL && runner_is_ready(node->runner) &&
                            (node->listed == NULL || node->registered));
}

enum status
mesh_node_report(struct mesh_node *node, const struct control_request *request, struct bytes *list,
                 struct error *error)
{
    if (node == NULL)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "the node is in no mesh: its configuration has no `mesh`");
    if (node->store.store == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "the node is starting");
    const struct mesh_report_source source = {
        .runner = node->runner,
        .store = node->store.store,
        .peers = node->peers,
        .silent_ns = mesh_store_silent_ns(&node->store),
        .is_full = mesh_store_is_full(&node->store),
        .instance = node->config->instance,
        .storage = node->options.storage,
        .external_pool = node->external != NULL ? node->pools.count - 1 : POOL_NONE};
    return mesh_report_write(&source, request, list, error);
}

enum mesh_successor
mesh_node_successor(struct mesh_node *node, pid_t successor)
{
    return mesh_successor_look(node->runner, successor);
}

void
mesh_node_drain(struct mesh_node *node)
{
    mesh_register_stop(node->reg);
    if (is_shared(node))
        runner_drain(node->runner);
}

bool
mesh_node_is_drained(const struct mesh_node *node)
{
    return is_shared(node) ? node->drained : pending_count(node->pending) == 0;
}

void
mesh_node_refuse_calls(struct mesh_node *node)
{
    if (node != NULL && node->runner != NULL && !node->stopped)
        runner_refuse_calls(node->runner);
}

bool
mesh_node_has_calls(struct mesh_node *node)
{
    struct runner_view view = {0};
    if (node != NULL && node->runner != NULL && !node->stopped)
        runner_look(node->runner, &view);
    return view.calls > 0;
}

/* ---- the end ---- */

void
mesh_node_stop(struct mesh_node *node)
{
    if (node == NULL || node->stopped)
        return;
    node->stopped = true;
    node->stopped_ns = clock_now_ns();
    loop_timer_clear(node->files_timer);
    loop_timer_clear(node->reach_timer);
    mesh_register_stop(node->reg);
    mesh_manifests_stop(node->manifests);
    if (node->runner != NULL)
        runner_close(node->runner);
    if (node->store.store != NULL)
        store_leave(node->store.store); /* others need not wait for the lease to end */
    if (node->server != NULL)
        peer_server_stop(node->server);
    if (node->peers != NULL)
        peers_close(node->peers);
    mesh_runtime_stop(node->runtime);
}

void
mesh_node_kill(struct mesh_node *node)
{
    if (node != NULL)
        mesh_runtime_kill(node->runtime);
}

bool
mesh_node_is_leaving(const struct mesh_node *node)
{
    if (node == NULL)
        return false;
    bool is_withdrawing = node->store.store != NULL && store_is_leaving(node->store.store);
    bool is_sending = node->server != NULL && peer_server_is_sending(node->server) &&
                      clock_now_ns() < node->stopped_ns + LAST_ANSWERS_NS;
    return is_withdrawing || is_sending || mesh_runtime_is_stopping(node->runtime);
}

void
mesh_node_cut(struct mesh_node *node)
{
    if (node != NULL && node->management != NULL)
        management_end(node->management);
    if (node != NULL && node->server != NULL)
        peer_server_cut(node->server);
}

void
mesh_node_end_peers(struct mesh_node *node)
{
    if (node == NULL)
        return;
    management_destroy(node->management);
    node->management = NULL;
    peer_server_destroy(node->server);
    peers_destroy(node->peers);
    mesh_runtime_end_calls(node->runtime);
    node->external = NULL;
    node->server = NULL;
    node->peers = NULL;
}

void
mesh_node_destroy(struct mesh_node *node)
{
    if (node == NULL)
        return;
    mesh_store_close(&node->store);
    mesh_runtime_destroy(node->runtime);
    mesh_manifests_destroy(node->manifests);
    runner_destroy(node->runner);
    mesh_manage_destroy(node->manage);
    mesh_calls_destroy(node->calls);
    native_destroy(node->native);
    pending_destroy(node->pending);
    meters_destroy(node->meters);
    loop_timer_destroy(node->files_timer);
    loop_timer_destroy(node->reach_timer);
    dataplane_destroy(node->dataplane);
    mesh_register_destroy(node->reg);
    mesh_listed_destroy(node->listed);
    mesh_types_pools_fini(&node->pools);
    free(node);
}
