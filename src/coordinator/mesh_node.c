/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/log.h"
#include "coordinator/mesh_address.h"
#include "coordinator/mesh_store.h"
#include "mesh/edge/peer_server.h"
#include "mesh/record/record.h"

enum {
    PENDING_MAX = 1 << 17, /* calls and orders; the driver has a limit of its own for either */
    QUEUES_MAX = 17,       /* of the front, and of the server for other nodes */
    TYPES_BYTES_MAX = 1 << 20,
};

#define EXTERNAL_START_NS (INT64_MAX / 4)

struct mesh_node {
    struct mesh_node_options options;
    const struct config_mesh *config;
    uint64_t seed;
    struct pending *pending;
    struct native *native;
    struct mesh_calls *calls;
    struct mesh_manage *manage;
    struct mesh_store store;
    struct driver *driver;
    struct external *external;            /* NULL: models are loaded into pipelines */
    struct rpc_queue *queues[QUEUES_MAX]; /* those of the front, then the server's */
    struct peer_server *server;           /* this and the next: NULL: the mesh has no other nodes */
    struct peers *peers;
    uint32_t queue_count; /* of the front */
    bool started;
    bool drained;
    bool stopped;
};

/* ---- calls ---- */

void
mesh_node_infer(struct mesh_node *node, const struct mesh_call_start *start)
{
    mesh_call_begin(node->calls, start);
}

void
mesh_node_more(struct mesh_node *node, const struct rpc_call *call,
               const struct rpc_message *message)
{
    mesh_call_more(node->calls, call, message);
}

void
mesh_node_sent(struct mesh_node *node, uint64_t tag)
{
    mesh_call_sent(node->calls, tag);
}

void
mesh_node_manage(struct mesh_node *node, struct rpc_call *call, const struct rpc_message *message)
{
    mesh_manage_on_message(node->manage, call, message);
}

void
mesh_node_cancel(struct mesh_node *node, uint64_t tag)
{
    pending_cancel(node->pending, tag);
}

/* ---- calls of other nodes ---- */

static enum driver_begun
on_peer_serve(void *context, struct driver_call *call, const struct driver_attempt *attempt,
              struct driver_end *end)
{
    struct mesh_node *node = context;
    if (node->external != NULL)
        return external_serve(node->external, call, attempt, end);
    struct native_refusal refusal;
    struct native_origin origin = {0};
    return native_serve(node->native, call->request, attempt, &origin, end, &refusal);
}

static void
on_peer_cancel(void *context, struct driver_call *call)
{
    struct mesh_node *node = context;
    if (node->external != NULL)
        external_cancel(node->external, call->request);
    else
        native_cancel(node->native, call->request);
}

/* ---- type constraints ---- */

static enum status
read_file(const char *path, char **text, size_t *bytes, struct error *error)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return error_set_errno(error, "%s", path);
    *text = malloc(TYPES_BYTES_MAX + 1);
    CHECK(*text != NULL);
    *bytes = fread(*text, 1, TYPES_BYTES_MAX + 1, file);
    fclose(file);
    if (*bytes <= TYPES_BYTES_MAX)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s has more than %d bytes", path,
                     TYPES_BYTES_MAX);
}

static enum status
set_types(struct mesh_node *node, struct error *error)
{
    const char *given = node->config->type_constraints;
    if (given == NULL)
        return STATUS_OK;
    char *text = NULL;
    size_t bytes = strlen(given);
    struct record_types *types = NULL;
    enum status status = STATUS_OK;
    if (given[0] != '{')
        status = read_file(given, &text, &bytes, error);
    if (status == STATUS_OK)
        status = record_types_read(text != NULL ? text : given, bytes, &types, error);
    if (status == STATUS_OK)
        driver_types(node->driver, types->rules, types->rule_count);
    free(types);
    free(text);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "mesh: type_constraints");
}

void
mesh_node_reload(struct mesh_node *node)
{
    struct error error = ERROR_NONE;
    if (node == NULL || node->stopped)
        return;
    if (set_types(node, &error) != STATUS_OK)
        log_error("mesh_types_failed error=\"%s\" action=\"the former ones hold\"", error.text);
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
    return node != NULL && (is_shared(node) || node->config->runtime != NULL);
}

/* ---- beginning ---- */

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
    if (getrandom(&node->seed, sizeof(node->seed), 0) != sizeof(node->seed))
        return error_set_errno(error, "getrandom");
    node->pending = pending_create(PENDING_MAX);
    node->native = native_create(&(struct native_options){
        .loop = options->loop,
        .pipelines = options->pipelines,
        .pipeline_count = options->pipeline_count,
        .registry = options->registry,
        .caller_metadata = config->caller_metadata,
        .share_key = options->share_key,
    });
    node->calls = mesh_calls_create(&(struct mesh_calls_options){
        .pending = node->pending,
        .native = node->native,
        .counters = options->counters,
    });
    node->manage = mesh_manage_create(node->pending, config->mesh.vmodel_owner);
    return STATUS_OK;
}

static enum status
open_peers(struct mesh_node *node, int64_t start_ms, struct error *error)
{
    const struct config *config = node->options.config;
    struct peer_server_options server = {
        .listen = (const char *const *)config->mesh.peers.items,
        .listen_count = config->mesh.peers.count,
        .instance = config->mesh.instance,
        .start_ms = start_ms,
        .message_bytes_max = config->message_bytes_max,
        .serve = on_peer_serve,
        .cancel = on_peer_cancel,
        .context = node,
    };
    if (peer_server_create(&server, &node->server, error) != STATUS_OK)
        return error_prefix(error, "mesh: peers");
    node->queues[node->queue_count] = peer_server_queue(node->server);
    node->peers = peers_create(&(struct peers_options){
        .queues = node->queues,
        .queue_count = node->queue_count + 1,
        .instance = config->mesh.instance,
        .start_ms = start_ms,
        .message_bytes_max = config->message_bytes_max,
    });
    return STATUS_OK;
}

/* It is waited for as long as it takes: pods start in any order. */
static enum status
open_external(struct mesh_node *node, struct error *error)
{
    const struct config_mesh *config = node->config;
    const char *target = config->runtime;
    struct external_options options = {
        .targets = &target,
        .target_count = 1,
        .serving = config->runtime_calls,
        .queues = node->queues,
        .queue_count = node->queue_count + (node->server != NULL ? 1 : 0),
        .message_bytes_max = node->options.config->message_bytes_max,
        .start_ns = EXTERNAL_START_NS,
    };
    if (target == NULL)
        return STATUS_OK;
    enum status status = external_create(&options, &node->external, error);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "mesh: runtime");
}

static void
on_drained(void *context)
{
    struct mesh_node *node = context;
    node->drained = true;
    log_info("mesh_drained");
}

static void
create_driver(struct mesh_node *node, const char *address, int64_t start_ms)
{
    const struct config_mesh *config = node->config;
    struct driver_options options = {
        .base = loop_base(node->options.loop),
        .instance = config->instance,
        .address = address,
        .location = config->location,
        .zone = config->zone,
        .labels = config->labels,
        .version = mesh_version(SHOAL_VERSION),
        .seed = node->seed,
        .start_ms = start_ms,
        .rate_for_more = config->scaleup_rpm,
        .failure_fresh_ms = config->failure_expiry_ns / NS_PER_MS,
        .runtime = node->external != NULL ? external_for_driver(node->external)
                                          : native_for_driver(node->native),
        .on_drained = on_drained,
        .context = node,
    };
    if (node->peers != NULL)
        options.peers = peers_for_driver(node->peers);
    node->driver = driver_create(&options);
    native_bind(node->native, node->driver);
    mesh_calls_bind(node->calls, node->driver, node->external);
    mesh_manage_bind(node->manage, node->driver);
}

enum status
mesh_node_open(struct mesh_node *node, struct rpc_queue *const *queues, uint32_t queue_count,
               struct error *error)
{
    if (node == NULL)
        return STATUS_OK;
    int64_t start_ms = mesh_wall_ms();
    char address[MESH_ADDRESS_BYTES] = "";
    enum status status = STATUS_OK;
    CHECK(queue_count < QUEUES_MAX);
    memcpy(node->queues, queues, queue_count * sizeof(queues[0]));
    node->queue_count = queue_count;
    if (is_shared(node))
        status = open_peers(node, start_ms, error);
    if (status == STATUS_OK)
        status = open_external(node, error);
    if (status == STATUS_OK && is_shared(node))
        status = mesh_address_find(node->config, peer_server_port(node->server, 0), address, error);
    if (status != STATUS_OK)
        return status;
    create_driver(node, address, start_ms);
    status = set_types(node, error);
    struct store_events events = driver_events(node->driver);
    if (status == STATUS_OK)
        status = mesh_store_open(node->config, node->options.loop, &events, node->seed,
                                 &node->store, error);
    if (status != STATUS_OK)
        return status;
    driver_start(node->driver, node->store.store);
    const struct config_mesh *config = node->config;
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
    if (node->server != NULL)
        peer_server_start(node->server, node->driver, node->queue_count);
    if (node->external != NULL)
        external_start(node->external, node->driver);
}

/* ---- what the node tells ---- */

void
mesh_node_update(struct mesh_node *node)
{
    if (node != NULL && node->driver != NULL && !node->stopped && node->external == NULL)
        native_update(node->native);
}

bool
mesh_node_is_ready(struct mesh_node *node)
{
    return node == NULL || (node->driver != NULL && driver_is_ready(node->driver));
}

bool
mesh_node_drain(struct mesh_node *node)
{
    if (node == NULL || node->stopped)
        return false;
    if (is_shared(node))
        driver_drain(node->driver);
    return true;
}

bool
mesh_node_is_drained(const struct mesh_node *node)
{
    bool is_idle = pending_count(node->pending) == 0;
    if (!is_shared(node))
        return is_idle;
    return node->drained && (node->external == NULL || is_idle); /* pipelines wait for their own */
}

/* ---- the end ---- */

void
mesh_node_stop(struct mesh_node *node)
{
    if (node == NULL || node->stopped)
        return;
    node->stopped = true;
    if (node->driver != NULL)
        driver_close(node->driver);
    if (node->store.store != NULL)
        store_leave(node->store.store); /* others need not wait for the lease to end */
    if (node->server != NULL)
        peer_server_stop(node->server);
    if (node->peers != NULL)
        peers_close(node->peers);
    if (node->external != NULL)
        external_close(node->external);
}

void
mesh_node_end_peers(struct mesh_node *node)
{
    if (node == NULL)
        return;
    peer_server_destroy(node->server);
    peers_destroy(node->peers);
    external_destroy(node->external);
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
    driver_destroy(node->driver);
    mesh_manage_destroy(node->manage);
    mesh_calls_destroy(node->calls);
    native_destroy(node->native);
    pending_destroy(node->pending);
    free(node);
}
