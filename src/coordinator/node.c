/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/node_state.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/listen_fds.h"
#include "base/log.h"
#include "coordinator/assembly.h"
#include "coordinator/check.h"
#include "coordinator/config/certificates.h"
#include "coordinator/config/config.h"
#include "coordinator/dashboard/dashboard.h"
#include "coordinator/front/front.h"
#include "coordinator/front/repository.h"
#include "coordinator/front/web.h"
#include "coordinator/greeting.h"
#include "coordinator/loop/control.h"
#include "coordinator/loop/drains.h"
#include "coordinator/loop/predecessor.h"
#include "coordinator/loop/service_manager.h"
#include "coordinator/loop/signals.h"
#include "coordinator/mesh/mesh_node.h"
#include "coordinator/models/directories.h"
#include "coordinator/models/model_orders.h"
#include "coordinator/models/runtime.h"
#include "coordinator/operator.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/pipeline/share.h"
#include "coordinator/reload.h"
#include "coordinator/successor.h"
#include "coordinator/telemetry/tracer.h"
#include "coordinator/workers/local.h"
#include "coordinator/workers/spawn.h"
#include "ipc/counters.h"
#include "loop/loop.h"
#include "rpc/rpc.h"

enum {
    EXIT_REFUSED = 2,
    EXIT_STUCK = 3, /* it has drained, and then did not end */
    PUBLISH_MS = 250,
    FINISH_MS_MIN = 10000, /* drain_timeout_ms is for the end after the drain, too, but for this */
    LOG_END_MS = 1000      /* lines not written by then are lost */
};

/* ---- pipelines ---- */

static void
notify_manager(void *context)
{
    struct coordinator_node *node = context;
    uint32_t count = node->assembly.pipeline_count;
    if (node->phase > PHASE_SERVING)
        return;
    if (node->phase == PHASE_STARTING && node->serving_count == count)
        service_manager_notify(&node->manager, SERVICE_STARTING, "waiting for the mesh");
    else
        service_manager_notify(&node->manager,
                               node->phase == PHASE_STARTING ? SERVICE_STARTING
                               : node->reloads.count > 0     ? SERVICE_RELOADING
                                                             : SERVICE_READY,
                               "%u of %u pipelines serve", node->serving_count, count);
}

static void
begin_to_serve(struct coordinator_node *node)
{
    node->phase = PHASE_SERVING;
    if (node_accept_when(node) == RPC_ACCEPT_LATER)
        node_accept(node);
    assembly_publish(&node->assembly); /* a reader of "ready" is to see the workers that are */
    assembly_set_state(&node->assembly, NODE_READY);
    log_info("ready pipelines=%u pid=%d", node->assembly.pipeline_count, (int)getpid());
    reload_held(&node->reloads);
    if (node->options->greets)
        greeting_start(&node->greeting, &node->source->config, node->assembly.registry,
                       node->assembly.pipelines, node->assembly.pipeline_count);
}

bool
node_is_serving(const struct coordinator_node *node)
{
    return node->phase <= PHASE_SERVING || node->hands_over;
}

void
node_update_ready(struct coordinator_node *node)
{
    bool serving = node->serving_count == node->assembly.pipeline_count && node_is_serving(node);
    bool ready = serving && node->accepts && mesh_node_is_ready(node->mesh);
    if (serving && !ready && node->phase == PHASE_STARTING)
        loop_timer_set(node->mesh_timer, NODE_LOOK_MS * (int64_t)NS_PER_MS);
    front_set_node_ready(node->front, ready);
    mesh_node_set_serving(node->mesh, ready);
    if (mesh_node_is_managed_at_front(node->mesh))
        front_set_serving(node->front, MESH_SERVICE, ready);
    web_set_ready(node->web, ready);
    dashboard_set_ready(node->dashboard, ready);
    if (ready && node->phase == PHASE_STARTING && predecessor_owns())
        predecessor_notify_ready(); /* and waits for its end */
    else if (ready && node->phase == PHASE_STARTING)
        begin_to_serve(node);
    notify_manager(node);
}

static void
on_mesh_look(void *context)
{
    struct coordinator_node *node = context;
    if (node->phase == PHASE_STOPPING)
        node_end_if_done(node);
    else
        node_update_ready(node);
}

void
node_update_runtime(struct coordinator_node *node)
{
    bool ready = runtime_update(node->runtime);
    mesh_node_update(node->mesh);
    if (runtime_is_at_front(node->runtime))
        front_set_serving(node->front, RUNTIME_SERVICE, ready);
}

static void
on_pipeline_serving(void *context, struct pipeline *pipeline)
{
    struct coordinator_node *node = context;
    node->serving_count++;
    if (node_is_serving(node))
        front_set_serving(node->front, pipeline->name, true);
    node_update_runtime(node);
    node_update_ready(node);
}

static void
on_pipeline_not_serving(void *context, struct pipeline *pipeline)
{
    struct coordinator_node *node = context;
    node->serving_count--;
    front_set_serving(node->front, pipeline->name, false);
    node_update_runtime(node);
    node_update_ready(node);
}

static void
say_start_failed(struct coordinator_node *node, const struct error *error)
{
    log_error("start_failed error=\"%s\"", error->text);
    log_plain("shoald: %s", error->text);
    service_manager_notify(&node->manager, SERVICE_STOPPING, "cannot start: %s", error->text);
    node->exit_code = EXIT_REFUSED;
}

void
node_refuse_to_start(void *context, const struct error *error)
{
    struct coordinator_node *node = context;
    if (node->phase == PHASE_STOPPING)
        return;
    say_start_failed(node, error);
    node_stop(node);
}

static void
on_pipeline_start_failed(void *context, struct pipeline *pipeline, const struct error *error)
{
    (void)pipeline;
    node_refuse_to_start(context, error);
}

static void
on_pipeline_stopped(void *context, struct pipeline *pipeline)
{
    struct coordinator_node *node = context;
    (void)pipeline;
    node->stopped_count++;
    node_end_if_done(node);
}

static void
on_hangup(void *context)
{
    struct coordinator_node *node = context;
    mesh_node_reload(node->mesh);
    if (node->phase == PHASE_STARTING)
        reload_hold(&node->reloads, "the node serves");
    else if (upgrade_is_under_way(node->upgrade))
        reload_hold(&node->reloads, "the upgrade has failed, or is done: then by the new process");
    else if (node->phase == PHASE_SERVING)
        reload_all(&node->reloads);
    else
        log_warn("reload_ignored why=\"the node is stopping\"");
}

static void
on_terminate(void *context, int number, uint32_t times)
{
    struct coordinator_node *node = context;
    if (times > 1)
        node_stop_at_once(node, number);
    else
        node_drain(node, number == SIGINT ? "SIGINT" : "SIGTERM");
}

static struct operator_scope
operator_scope(struct coordinator_node *node)
{
    return (struct operator_scope){node->mesh, node->model_orders, node->directories,
                                   &node->reloads};
}

static enum status
write_list(void *context, const struct control_request *request, struct bytes *list,
           struct error *error)
{
    const struct operator_scope scope = operator_scope(context);
    return operator_list(&scope, request, list, error);
}

static void
take_drain(struct coordinator_node *node, const struct control_request *request,
           struct control_call *call)
{
    if (node->phase == PHASE_STOPPING)
        drains_refuse(call);
    else if (drains_take(&node->drains, request, call))
        node_drain(node, "asked");
}

static void
on_control(void *context, const struct control_request *request, struct control_call *call)
{
    struct coordinator_node *node = context;
    const struct operator_scope scope = operator_scope(node);
    if (request->verb == CONTROL_DRAIN)
        take_drain(node, request, call);
    else if (request->verb == CONTROL_UPGRADE)
        node_take_upgrade(node, request, call);
    else if (operator_only_looks(request) ||
             (node->phase == PHASE_SERVING && !upgrade_is_under_way(node->upgrade)))
        operator_take(&scope, request, call);
    else if (upgrade_is_under_way(node->upgrade))
        operator_refuse(&scope, request, "being upgraded", call);
    else
        operator_refuse(&scope, request, node->phase < PHASE_SERVING ? "starting" : "stopping",
                        call);
}

static void
on_publish(void *context)
{
    struct coordinator_node *node = context;
    assembly_publish(&node->assembly);
    counter_set(counters_values(&node->assembly.counters, 0), NODE_LOG_DROPPED, log_dropped());
    counter_set(counters_values(&node->assembly.counters, 0), NODE_LOG_LEFT_OUT, log_left_out());
    counter_set(counters_values(&node->assembly.counters, 0), NODE_ORPHANS_KILLED,
                spawn_orphans_killed());
    spawn_kill_orphans();
    mesh_node_publish(node->mesh);
    bool accepted = node->accepts;
    node->accepts = front_publish(node->front);
    /* A runtime was lost or is back, or the first loads say something; or there are no descriptors
     * left for callers, or some again. */
    if (node->phase == PHASE_SERVING && (node->mesh != NULL || accepted != node->accepts))
        node_update_ready(node);
    web_beat(node->web);
    loop_timer_set(node->publish_timer, PUBLISH_MS * (int64_t)NS_PER_MS);
}

/* ---- start ---- */

/* Call before any other thread exists, gRPC's included. */
static enum status
take_signals(struct coordinator_node *node, struct error *error)
{
    const struct signals_handler handler = {on_hangup, on_terminate, node};
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file of traces that may not grow is an error of its write */
    return signals_start(node->loop, &handler, error);
}

static struct front_node
front_node(struct coordinator_node *node)
{
    return (struct front_node){
        .config = &node->source->config,
        .pipelines = node->assembly.pipelines,
        .pipeline_count = node->assembly.pipeline_count,
        .registry = node->assembly.registry,
        .repository = node->repository,
        .shared_memory = node->assembly.shared_memory,
        .mesh = node->mesh,
        .counters = counters_values(&node->assembly.counters, 0),
        .share_key = node->share_key,
        .tracer = node->tracer,
    };
}

/* Binds the configured addresses; what comes in waits until web_start. */
static enum status
web_open(struct coordinator_node *node, struct error *error)
{
    struct web_options options = {
        .node = front_node(node),
        .counters = &node->assembly.counters,
        .meters = mesh_node_meters(node->mesh),
        .tls = node->certificates.callers,
    };
    enum status status = web_create(&options, &node->web, error);
    if (status != STATUS_OK)
        return status;
    const struct dashboard_options dashboard = {
        .counters = options.counters,
        .meters = options.meters,
        .node = options.node,
        .tls = options.tls,
        .lists = {.loop = node->loop, .list = write_list, .context = node},
    };
    return dashboard_create(&dashboard, &node->dashboard, error);
}

static enum status
start_tracer(struct coordinator_node *node, struct error *error)
{
    struct tracer_options options = {
        .target = node->source->config.traces,
        .access_log = node->source->config.access_log,
        .sample = node->source->config.trace_sample,
        .version = SHOAL_VERSION,
        .counters = counters_values(&node->assembly.counters, 0),
    };
    bool is_wanted = options.target != NULL || options.access_log > 0;
    return is_wanted ? tracer_create(&options, &node->tracer, error) : STATUS_OK;
}

static void
on_mesh_disabled(void *context)
{
    struct coordinator_node *node = context;
    struct error error = ERROR_NONE;
    if (node->phase != PHASE_STARTING) {
        log_warn("mesh_disabled");
        return;
    }
    error_set(&error, STATUS_FAILED_PRECONDITION,
              "config/disable in the mesh's registry forbids that nodes start: delete it");
    node_refuse_to_start(node, &error);
}

/* The service manager's sockets are for callers of models alone, a predecessor's for all. */
static enum rpc_accept
others_accept(void)
{
    return predecessor_pid() != 0 ? RPC_ACCEPT_LATER : RPC_ACCEPT_AT_ONCE;
}

static enum status
create_mesh(struct coordinator_node *node, struct error *error)
{
    node->share_key = share_key_draw();
    struct mesh_node_options options = {
        .config = &node->source->config,
        .loop = node->loop,
        .pipelines = node->assembly.pipelines,
        .pipeline_count = node->assembly.pipeline_count,
        .registry = node->assembly.registry,
        .storage = node->assembly.storage,
        .counters = counters_values(&node->assembly.counters, 0),
        .tracer = node->tracer,
        .share_key = node->share_key,
        .log_level = node->log_level,
        .worker_program = node->options->worker_program,
        .on_disabled = on_mesh_disabled,
        .on_refused = node_refuse_to_start,
        .context = node,
        .tls = node->certificates.peers,
        .callers_tls = node->certificates.callers,
        .counters_path = node->assembly.counters.path,
        .accept = others_accept(),
    };
    options.listen_count = check_listens_on(node->options, options.config, &options.listen);
    return mesh_node_create(&options, &node->mesh, error);
}

/* Everything else that serves gRPC, or calls over it, uses the front's queues. */
static enum status
open_others(struct coordinator_node *node, struct error *error)
{
    struct rpc_queue *queues[FRONT_THREADS_MAX];
    uint32_t count = front_queues(node->front, queues);
    enum status status = runtime_open(node->runtime, queues[0], error);
    return status == STATUS_OK ? mesh_node_open(node->mesh, queues, count, error) : status;
}

static struct repository *
repository_open(struct coordinator_node *node)
{
    bool is_on = config_has_control(&node->source->config);
    return repository_create(&(struct repository_options){
        .loop = node->loop,
        .pipelines = node->assembly.pipelines,
        .pipeline_count = node->assembly.pipeline_count,
        .registry = node->assembly.registry,
        .directories = &node->directories,
        .rule = node->mesh != NULL ? REPOSITORY_OF_MESH
                : is_on            ? REPOSITORY_OPEN
                                   : REPOSITORY_CONTROL_OFF,
        .waiting_max = node->source->config.repository_waiting_max,
        .counters = &node->assembly.counters,
    });
}

/* All that speaks gRPC. */
static enum status
front_open(struct coordinator_node *node, struct error *error)
{
    const struct node_options *options = node->options;
    struct runtime_options runtime = {
        .config = &node->source->config,
        .loop = node->loop,
        .pipelines = node->assembly.pipelines,
        .pipeline_count = node->assembly.pipeline_count,
        .registry = node->assembly.registry,
        .accept = others_accept(),
    };
    runtime.listen_count = check_listens_on(options, runtime.config, &runtime.listen);
    enum status status = runtime_create(&runtime, &node->runtime, error);
    if (status != STATUS_OK)
        return status;
    status = create_mesh(node, error);
    if (status != STATUS_OK)
        return status;
    node->repository = repository_open(node);
    struct front_options front = {
        .node = front_node(node),
        .accept = node_accept_when(node),
        .listen = options->listen,
        .listen_count = options->listen_count,
        .runtime = node->runtime,
        .tls = node->certificates.callers,
    };
    status = front_create(&front, &node->front, error);
    return status == STATUS_OK ? open_others(node, error) : status;
}

static enum status
start(struct coordinator_node *node, struct error *error)
{
    const struct node_options *options = node->options;
    enum status status = certificates_open(&node->source->config, &node->certificates, error);
    if (status == STATUS_OK)
        status = loop_create(&node->loop, error);
    if (status == STATUS_OK)
        status = take_signals(node, error);
    if (status == STATUS_OK)
        status = log_start(error);
    if (status != STATUS_OK)
        return status;
    node_watch_predecessor(node);
    node->publish_timer = loop_timer_create(loop_base(node->loop), on_publish, node);
    node->drain_timer = loop_timer_create(loop_base(node->loop), node_on_drain_look, node);
    node->mesh_timer = loop_timer_create(loop_base(node->loop), on_mesh_look, node);
    if (options->pin)
        coordinator_pin(&node->source->config);
    spawn_reserve();
    rpc_init();
    struct assembly_options assembly = {
        .source = node->source,
        .counters_path = options->counters_path,
        .predecessor = predecessor_pid(),
        .worker_program = options->worker_program,
        .loop = node->loop,
        .pin = options->pin,
        .log_level = options->log_level,
        .events = {on_pipeline_serving, on_pipeline_not_serving, on_pipeline_start_failed,
                   on_pipeline_stopped, node},
    };
    status = assembly_init(&node->assembly, &assembly, error);
    if (status != STATUS_OK)
        return status;
    status = start_tracer(node, error);
    if (status != STATUS_OK)
        return status;
    node->model_orders = model_orders_create(node->assembly.registry, node->assembly.pipelines,
                                             node->assembly.pipeline_count);
    struct control_handler handler = {on_control, node};
    status =
        control_create(node->loop, node->assembly.counters.path, &handler, &node->control, error);
    if (status == STATUS_OK)
        status = local_create(node->loop, node->assembly.counters.path, node->assembly.pipelines,
                              node->assembly.pipeline_count, &node->local, error);
    if (status != STATUS_OK)
        return status;
    if (!predecessor_owns()) {
        control_accept(node->control);
        local_accept(node->local);
    }
    node->upgrade = node_create_upgrade(node);
    status = front_open(node, error);
    if (status == STATUS_OK)
        status = web_open(node, error);
    if (status == STATUS_OK && listen_fds_unused() > 0)
        log_warn("sockets_unused count=%u why=\"no such address\"", listen_fds_unused());
    /* before anything serves: a node that is ready has the models that lie there */
    if (status == STATUS_OK)
        status =
            model_directories_create(node->loop, node->assembly.registry, node->assembly.pipelines,
                                     node->assembly.pipeline_count, &node->directories, error);
    return status == STATUS_OK ? assembly_start(&node->assembly, error) : status;
}

/* Ends the parts in reverse; parts that were not set up are skipped. */
static void
finish(struct coordinator_node *node)
{
    int64_t drain_ns = node->source->config.drain_timeout_ns;
    int64_t least_ns = FINISH_MS_MIN * (int64_t)NS_PER_MS;
    signals_end_loop();
    signals_bound(drain_ns > least_ns ? drain_ns : least_ns,
                  node->exit_code == NODE_EXIT_CLEAN ? EXIT_STUCK : node->exit_code,
                  "drained, and then a library did not end");
    runtime_end(node->runtime);
    mesh_node_stop(node->mesh);
    mesh_node_cut(node->mesh);
    repository_stop(node->repository);
    if (node->loop != NULL)
        loop_run_posted(node->loop); /* REST waits for answers that are among them */
    web_stop(node->web);
    dashboard_stop(node->dashboard);
    if (node->front != NULL)
        front_destroy(node->front);
    if (node->loop != NULL)
        loop_run_posted(node->loop);
    model_directories_destroy(node->directories);
    node->directories = NULL;
    model_orders_destroy(node->model_orders);
    control_destroy(node->control);
    local_destroy(node->local);
    assembly_end_gathering(&node->assembly); /* the last to answer, and to end a trace */
    mesh_node_end_peers(node->mesh);
    web_destroy(node->web);
    dashboard_destroy(node->dashboard);
    tracer_destroy(node->tracer);
    assembly_fini(&node->assembly);
    repository_destroy(node->repository);
    spawn_reserve_end();
    spawn_end_orphans(); /* among which a successor does not count */
    upgrade_destroy(node->upgrade);
    predecessor_close();
    mesh_node_destroy(node->mesh);
    runtime_destroy(node->runtime);
    service_manager_fini(&node->manager);
    loop_timer_destroy(node->publish_timer);
    loop_timer_destroy(node->drain_timer);
    loop_timer_destroy(node->mesh_timer);
    if (node->loop != NULL) {
        rpc_shutdown();
        loop_destroy(node->loop);
    }
    certificates_close(&node->certificates);
    config_source_unref(node->source);
}

int
node_run(const struct node_options *options)
{
    struct config config = {0};
    log_init("shoald", LOG_INFO);
    if (check_start(options, &config) != STATUS_OK)
        return EXIT_REFUSED;
    if (predecessor_pid() != 0)
        successor_configure(&config.mesh, getpid());
    struct coordinator_node *node = calloc(1, sizeof(*node));
    CHECK(node != NULL);
    node->options = options;
    node->accepts = true;
    node->source = config_source_create(&config);
    node->reloads = (struct reloads){.assembly = &node->assembly,
                                     .options = options,
                                     .on_count = notify_manager,
                                     .context = node};
    int level = options->log_level;
    if (level < 0 && node->source->config.log_level != NULL)
        level = log_level_from_name(node->source->config.log_level);
    node->log_level = level < 0 ? LOG_INFO : (enum log_level)level;
    log_init("shoald", node->log_level);
    log_set_event_lines(node->source->config.event_log_lines);
    struct error error = ERROR_NONE;
    if (start(node, &error) == STATUS_OK) {
        mesh_node_start(node->mesh); /* what the front's threads do for it is ready */
        front_start(node->front);
        web_start(node->web, node_accept_when(node), predecessor_pid() != 0 ? WEB_ALL : WEB_REST);
        dashboard_start(node->dashboard, others_accept());
        on_publish(node);
        node_update_ready(node); /* there may be no pipelines to wait for */
        loop_run(node->loop);
    } else {
        say_start_failed(node, &error);
        if (node->assembly.pipeline_count > 0) {
            node_stop(node);
            loop_run(node->loop);
        }
    }
    int code = node->exit_code;
    finish(node);
    log_info("stopped exit_code=%d", code);
    log_stop(LOG_END_MS * (int64_t)NS_PER_MS);
    free(node);
    return code;
}
