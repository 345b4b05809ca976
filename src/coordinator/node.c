/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/node.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/config.h"
#include "coordinator/front.h"
#include "coordinator/loop.h"
#include "coordinator/pipeline.h"
#include "rpc/rpc.h"
#include "shm/counters.h"

enum { EXIT_CLEAN = 0, EXIT_FAILED = 1, EXIT_REFUSED = 2, PUBLISH_MS = 250, DRAIN_LOOK_MS = 5 };

enum node_phase { PHASE_STARTING, PHASE_SERVING, PHASE_DRAINING, PHASE_STOPPING };

struct node {
    const struct node_options *options;
    struct config config;
    struct loop *loop;
    struct counters counters;
    bool counters_created;
    struct front *front;
    struct pipeline *pipelines[CONFIG_PIPELINES_MAX];
    uint32_t pipeline_count;
    uint32_t *scopes; /* pipelines', stages' and workers', as they were laid out */
    const uint32_t **worker_scopes;
    struct pipeline_events events;
    uint32_t serving_count;
    uint32_t stopped_count;
    enum node_phase phase;
    int exit_code;
    int interrupts;
    int64_t drain_deadline_ns;
    int signal_fd;
    struct loop_watch *signal_watch;
    struct loop_timer *publish_timer;
    struct loop_timer *drain_timer;
};

/* ---- configuration ---- */

static int
load_config(const struct node_options *options, struct config *config)
{
    struct config_errors errors = {0};
    struct error error = ERROR_NONE;
    struct config_options how = {.pinning = options->pin ? CONFIG_PIN : CONFIG_NO_PIN};
    enum status status = config_load(options->config_path, &how, config, &errors, &error);
    for (uint32_t i = 0; i < errors.count; i++)
        fprintf(stderr, "%s\n", errors.lines[i]);
    if (status != STATUS_OK && errors.count == 0)
        fprintf(stderr, "%s\n", error.text);
    if (errors.count > 0)
        fprintf(stderr, "shoald: %u mistake%s in %s; nothing was started\n", errors.count,
                errors.count == 1 ? "" : "s", options->config_path);
    config_errors_free(&errors);
    return status == STATUS_OK ? EXIT_CLEAN : EXIT_REFUSED;
}

int
node_check(const struct node_options *options)
{
    struct config config = {0};
    int code = load_config(options, &config);
    if (code == EXIT_CLEAN)
        printf("%s: configuration is good: %u pipeline%s\n", options->config_path,
               config.pipeline_count, config.pipeline_count == 1 ? "" : "s");
    config_free(&config);
    return code;
}

/* ---- counters: one scope for the node, each pipeline, each stage, each seat ---- */

static uint32_t
scope_total(const struct config *config)
{
    uint32_t total = 1;
    for (uint32_t p = 0; p < config->pipeline_count; p++) {
        total += 1 + config->pipelines[p].stage_count;
        for (uint32_t s = 0; s < config->pipelines[p].stage_count; s++)
            total += config->pipelines[p].stages[s].worker_count;
    }
    return total;
}

static const char worker_names[STAGE_WORKERS_MAX][3] = {
    "0",  "1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9",  "10", "11", "12", "13", "14", "15",
    "16", "17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31",
    "32", "33", "34", "35", "36", "37", "38", "39", "40", "41", "42", "43", "44", "45", "46", "47",
    "48", "49", "50", "51", "52", "53", "54", "55", "56", "57", "58", "59", "60", "61", "62", "63",
};

/* Node, then per pipeline: itself, its stages, their workers in order. */
static enum status
create_counters(struct node *node, struct error *error)
{
    const struct config *config = &node->config;
    uint32_t total = scope_total(config);
    struct counters_spec *specs = calloc(total, sizeof(*specs));
    CHECK(specs != NULL);
    specs[0] = (struct counters_spec){SCOPE_NODE, 0, "node"};
    uint32_t next = 1;
    for (uint32_t p = 0; p < config->pipeline_count; p++) {
        const struct config_pipeline *pipeline = &config->pipelines[p];
        uint32_t pipeline_scope = next++;
        specs[pipeline_scope] = (struct counters_spec){SCOPE_PIPELINE, 0, pipeline->name};
        uint32_t first_stage = next;
        for (uint32_t s = 0; s < pipeline->stage_count; s++)
            specs[next++] =
                (struct counters_spec){SCOPE_STAGE, pipeline_scope, pipeline->stages[s].name};
        for (uint32_t s = 0; s < pipeline->stage_count; s++)
            for (uint32_t w = 0; w < pipeline->stages[s].worker_count; w++)
                specs[next++] =
                    (struct counters_spec){SCOPE_WORKER, first_stage + s, worker_names[w]};
    }
    CHECK(next == total);
    char path[HANDSHAKE_PATH_BYTES];
    counters_default_path(path, sizeof(path));
    const char *chosen = node->options->counters_path != NULL ? node->options->counters_path
                         : config->counters != NULL           ? config->counters
                                                              : path;
    enum status status = counters_create(&node->counters, chosen, specs, total, error);
    node->counters_created = status == STATUS_OK;
    free(specs);
    return status;
}

/* ---- pipelines ---- */

static void
set_state(struct node *node, enum node_state state)
{
    atomic_store(&node->counters.header->state, (uint32_t)state);
}

static void
update_ready(struct node *node)
{
    bool ready = node->serving_count == node->pipeline_count && node->phase <= PHASE_SERVING;
    front_set_node_ready(node->front, ready);
    if (ready && node->phase == PHASE_STARTING) {
        node->phase = PHASE_SERVING;
        set_state(node, NODE_READY);
        log_info("ready pipelines=%u pid=%d", node->pipeline_count, (int)getpid());
    }
}

static void
on_pipeline_serving(void *context, struct pipeline *pipeline)
{
    struct node *node = context;
    node->serving_count++;
    front_set_serving(node->front, pipeline->options.pipeline->name, true);
    update_ready(node);
}

static void
on_pipeline_not_serving(void *context, struct pipeline *pipeline)
{
    struct node *node = context;
    node->serving_count--;
    front_set_serving(node->front, pipeline->options.pipeline->name, false);
    update_ready(node);
}

static void stop_pipelines(struct node *node);

static void
on_pipeline_start_failed(void *context, struct pipeline *pipeline, const struct error *error)
{
    struct node *node = context;
    (void)pipeline;
    if (node->phase == PHASE_STOPPING)
        return;
    log_error("start_failed error=\"%s\"", error->text);
    fprintf(stderr, "shoald: %s\n", error->text);
    node->exit_code = EXIT_REFUSED;
    stop_pipelines(node);
}

static void
on_pipeline_stopped(void *context, struct pipeline *pipeline)
{
    struct node *node = context;
    (void)pipeline;
    if (++node->stopped_count == node->pipeline_count)
        loop_stop(node->loop);
}

static void
add_scope(struct node *node, uint32_t *next_scope)
{
    node->scopes[*next_scope] = *next_scope;
    (*next_scope)++;
}

/* The options of pipeline p; lays out its scopes as create_counters did. */
static enum status
create_pipeline(struct node *node, uint32_t p, uint32_t *next_scope, struct error *error)
{
    const struct config_pipeline *config = &node->config.pipelines[p];
    uint32_t pipeline_scope = (*next_scope)++;
    uint32_t *stage_scopes = &node->scopes[*next_scope];
    for (uint32_t s = 0; s < config->stage_count; s++)
        add_scope(node, next_scope);
    const uint32_t **worker_scopes = &node->worker_scopes[p * STAGES_MAX];
    for (uint32_t s = 0; s < config->stage_count; s++) {
        worker_scopes[s] = &node->scopes[*next_scope];
        for (uint32_t w = 0; w < config->stages[s].worker_count; w++)
            add_scope(node, next_scope);
    }
    int named = node->config.log_level == NULL ? LOG_INFO
                                               : log_level_from_name(node->config.log_level);
    struct pipeline_options options = {
        .config = &node->config,
        .pipeline = config,
        .worker_program = node->options->worker_program,
        .loop = node->loop,
        .counters = &node->counters,
        .scope = pipeline_scope,
        .stage_scopes = stage_scopes,
        .worker_scopes = worker_scopes,
        .pin = node->options->pin,
        .log_level = (uint32_t)(node->options->log_level >= 0 ? node->options->log_level : named),
        .events = &node->events,
    };
    return pipeline_create(&options, p, &node->pipelines[node->pipeline_count++], error);
}

static enum status
create_pipelines(struct node *node, struct error *error)
{
    node->events = (struct pipeline_events){on_pipeline_serving, on_pipeline_not_serving,
                                            on_pipeline_start_failed, on_pipeline_stopped, node};
    node->scopes = calloc(scope_total(&node->config), sizeof(*node->scopes));
    node->worker_scopes =
        calloc((size_t)node->config.pipeline_count * STAGES_MAX, sizeof(*node->worker_scopes));
    CHECK(node->scopes != NULL && node->worker_scopes != NULL);
    uint32_t next_scope = 1;
    enum status status = STATUS_OK;
    for (uint32_t p = 0; p < node->config.pipeline_count && status == STATUS_OK; p++)
        status = create_pipeline(node, p, &next_scope, error);
    return status;
}

/* ---- stopping ---- */

static void
stop_pipelines(struct node *node)
{
    node->phase = PHASE_STOPPING;
    loop_timer_clear(node->drain_timer);
    for (uint32_t i = 0; i < node->pipeline_count; i++)
        pipeline_stop(node->pipelines[i]);
}

static void
on_drain_look(void *context)
{
    struct node *node = context;
    uint64_t in_flight = 0;
    for (uint32_t i = 0; i < node->pipeline_count; i++)
        in_flight += pipeline_in_flight(node->pipelines[i]);
    bool late = clock_now_ns() >= node->drain_deadline_ns;
    if (in_flight > 0 && !late) {
        loop_timer_set(node->drain_timer, DRAIN_LOOK_MS * (int64_t)NS_PER_MS);
        return;
    }
    log_info("drained left_in_flight=%llu", (unsigned long long)in_flight);
    stop_pipelines(node);
}

static void
drain(struct node *node, const char *why)
{
    if (node->phase >= PHASE_DRAINING)
        return;
    log_info("draining why=%s grace_ms=%lld", why,
             (long long)(node->config.drain_timeout_ns / NS_PER_MS));
    node->phase = PHASE_DRAINING;
    set_state(node, NODE_DRAINING);
    node->drain_deadline_ns = clock_now_ns() + node->config.drain_timeout_ns;
    for (uint32_t i = 0; i < node->pipeline_count; i++) {
        pipeline_drain(node->pipelines[i]);
        front_set_serving(node->front, node->pipelines[i]->options.pipeline->name, false);
    }
    update_ready(node);
    front_stop(node->front);
    on_drain_look(node);
}

/* A second interrupt: no waiting for anything in flight. */
static void
stop_at_once(struct node *node)
{
    log_warn("stopping_at_once");
    node->exit_code = 128 + SIGINT;
    stop_pipelines(node);
    for (uint32_t i = 0; i < node->pipeline_count; i++)
        pipeline_kill(node->pipelines[i]);
}

static void
on_signal(void *context)
{
    struct node *node = context;
    struct signalfd_siginfo info;
    while (read(node->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGINT && ++node->interrupts > 1)
            stop_at_once(node);
        else
            drain(node, info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
    }
}

static void
on_publish(void *context)
{
    struct node *node = context;
    atomic_store(&node->counters.header->heartbeat_ns, clock_now_ns());
    for (uint32_t i = 0; i < node->pipeline_count; i++)
        pipeline_publish(node->pipelines[i]);
    loop_timer_set(node->publish_timer, PUBLISH_MS * (int64_t)NS_PER_MS);
}

/* ---- start ---- */

static void
pin_coordinator(const struct node *node)
{
    if (!node->options->pin || node->config.cpus == NULL)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t i = 0; i < node->config.cpu_count; i++)
        CPU_SET((size_t)node->config.cpus[i], &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        log_warn("not_pinned errno=%d", errno);
}

/* Signals are blocked before any thread exists, gRPC's included, and are read by the loop. */
static enum status
watch_signals(struct node *node, struct error *error)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    CHECK(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
    signal(SIGPIPE, SIG_IGN);
    node->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (node->signal_fd < 0)
        return error_set_errno(error, "signalfd");
    node->signal_watch = loop_watch_add(node->loop, node->signal_fd, on_signal, node);
    return STATUS_OK;
}

static enum status
start(struct node *node, struct error *error)
{
    const struct node_options *options = node->options;
    enum status status = loop_create(&node->loop, error);
    if (status == STATUS_OK)
        status = watch_signals(node, error);
    if (status != STATUS_OK)
        return status;
    node->publish_timer = loop_timer_create(node->loop, on_publish, node);
    node->drain_timer = loop_timer_create(node->loop, on_drain_look, node);
    pin_coordinator(node);
    rpc_init();
    status = create_counters(node, error);
    if (status == STATUS_OK)
        status = create_pipelines(node, error);
    if (status != STATUS_OK)
        return status;
    struct front_options front = {
        .config = &node->config,
        .listen = options->listen,
        .listen_count = options->listen_count,
        .pipelines = node->pipelines,
        .pipeline_count = node->pipeline_count,
        .counters = counters_values(&node->counters, 0),
    };
    status = front_create(&front, &node->front, error);
    for (uint32_t i = 0; i < node->pipeline_count && status == STATUS_OK; i++)
        status = pipeline_start(node->pipelines[i], error);
    return status;
}

/* In reverse; of what is not there nothing is undone. */
static void
finish(struct node *node)
{
    if (node->front != NULL)
        front_destroy(node->front);
    if (node->loop != NULL)
        loop_run_posted(node->loop);
    for (uint32_t i = 0; i < node->pipeline_count; i++)
        pipeline_destroy(node->pipelines[i]);
    free(node->scopes);
    free(node->worker_scopes);
    if (node->counters_created) {
        set_state(node, NODE_STOPPED);
        counters_close(&node->counters);
    }
    loop_timer_destroy(node->publish_timer);
    loop_timer_destroy(node->drain_timer);
    loop_watch_remove(node->signal_watch);
    if (node->signal_fd >= 0)
        close(node->signal_fd);
    if (node->loop != NULL) {
        rpc_shutdown();
        loop_destroy(node->loop);
    }
    config_free(&node->config);
}

int
node_run(const struct node_options *options)
{
    struct node *node = calloc(1, sizeof(*node));
    CHECK(node != NULL);
    node->options = options;
    node->signal_fd = -1;
    int code = load_config(options, &node->config);
    if (code != EXIT_CLEAN) {
        config_free(&node->config);
        free(node);
        return code;
    }
    int level = options->log_level;
    if (level < 0 && node->config.log_level != NULL)
        level = log_level_from_name(node->config.log_level);
    log_init("shoald", level < 0 ? LOG_INFO : (enum log_level)level);
    struct error error = ERROR_NONE;
    if (start(node, &error) == STATUS_OK) {
        front_start(node->front);
        on_publish(node);
        loop_run(node->loop);
    } else {
        node->exit_code = EXIT_REFUSED;
        fprintf(stderr, "shoald: %s\n", error.text);
        if (node->pipeline_count > 0) {
            stop_pipelines(node);
            loop_run(node->loop);
        }
    }
    code = node->exit_code;
    finish(node);
    log_info("stopped exit_code=%d", code);
    free(node);
    return code;
}
