/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/node_state.h"

#include <signal.h>
#include <unistd.h>

#include "base/listen_fds.h"
#include "base/log.h"
#include "coordinator/loop/predecessor.h"
#include "coordinator/models/models.h"

/* ---- accepting ---- */

enum rpc_accept
node_accept_when(const struct coordinator_node *node)
{
    bool is_kept = listen_fds_are_given() && node->mesh == NULL; /* in a mesh others serve */
    return is_kept || predecessor_pid() != 0 ? RPC_ACCEPT_LATER : RPC_ACCEPT_AT_ONCE;
}

bool
node_has_successor(const struct coordinator_node *node)
{
    return upgrade_has_yielded(node->upgrade) || (listen_fds_are_given() && node->mesh == NULL);
}

void
node_accept(struct coordinator_node *node)
{
    if (node->has_accepted)
        return;
    node->has_accepted = true;
    front_accept(node->front);
    web_accept(node->web);
    if (predecessor_pid() == 0)
        return;
    dashboard_accept(node->dashboard);
    mesh_node_accept(node->mesh);
    runtime_accept(node->runtime);
}

/* ---- the new process ---- */

static void
on_predecessor_end(void *context, enum predecessor_end how)
{
    struct coordinator_node *node = context;
    struct error error = ERROR_NONE;
    enum counters_owner owner =
        how == PREDECESSOR_DIED ? COUNTERS_OWNER_DEAD : COUNTERS_OWNER_LEAVES;
    if (how == PREDECESSOR_DIED)
        log_warn("predecessor_died pid=%d", (int)predecessor_pid());
    if (node->phase == PHASE_STOPPING)
        return;
    if (counters_take_name(&node->assembly.counters, owner, &error) != STATUS_OK) {
        if (how == PREDECESSOR_DIED) {
            node_refuse_to_start(node, &error);
            return;
        }
        log_error("counters_unnamed error=\"%s\"", error.text);
    }
    listen_fds_own_paths();
    service_manager_init(&node->manager, node->loop);
    control_accept(node->control);
    local_accept(node->local);
    if (how == PREDECESSOR_YIELDS)
        node_accept(node);
    node_update_ready(node);
}

void
node_watch_predecessor(struct coordinator_node *node)
{
    const struct predecessor_handler handler = {on_predecessor_end, node};
    if (predecessor_owns())
        predecessor_watch(node->loop, &handler);
    else
        service_manager_init(&node->manager, node->loop);
}

/* ---- the old process ---- */

static bool
count_ordered(void *context, const struct model_row *row)
{
    uint32_t *count = context;
    *count += row->ordered;
    return true;
}

/* Models that the successor would not have. A mesh moves its own. */
static uint32_t
ordered_models(const struct coordinator_node *node)
{
    const struct model_range all = {.from = "", .most = UINT32_MAX};
    uint32_t count = 0;
    if (node->mesh == NULL)
        (void)models_visit(node->assembly.registry, &all, count_ordered, &count);
    return count;
}

static void
on_ready(void *context, pid_t successor)
{
    struct coordinator_node *node = context;
    if (ordered_models(node) > 0) { /* over HTTP, meanwhile */
        upgrade_cancel(node->upgrade, ": a model was ordered meanwhile");
        return;
    }
    control_part(node->control);
    local_part(node->local);
    listen_fds_leave_paths();
    service_manager_leave(&node->manager, successor);
    drains_add(&node->drains, upgrade_yield(node->upgrade));
    node->successor = successor;
    if (node->reloads.held)
        upgrade_signal(node->upgrade, SIGHUP);
    node->reloads.held = false;
    node_drain(node, "upgrade");
}

static void
on_failed(void *context)
{
    struct coordinator_node *node = context;
    counters_remove_beside(&node->assembly.counters);
    if (node->phase == PHASE_SERVING)
        reload_held(&node->reloads);
}

struct upgrade *
node_create_upgrade(struct coordinator_node *node)
{
    return upgrade_create(&(struct upgrade_options){.loop = node->loop,
                                                    .node = node->options,
                                                    .on_ready = on_ready,
                                                    .on_failed = on_failed,
                                                    .context = node});
}

/* Two processes may not share what only one of them can have. */
static const char *
what_cannot_move(const struct coordinator_node *node)
{
    const struct config_mesh *mesh = &node->source->config.mesh;
    if (getpid() == 1)
        return "it is process 1 of its container, which ends with it: replace the container";
    if (!mesh->on)
        return NULL;
    if (mesh->store_kind == CONFIG_STORE_MEMORY || mesh->store_kind == CONFIG_STORE_FILE)
        return "the registry of its mesh belongs to this process: only `store: etcd:…` can be "
               "shared";
    if (mesh->images != NULL)
        return "its runtime would run twice, at the same ports: drain and restart it";
    if (mesh->runtime != NULL)
        return "its external runtime would get loads and unloads of the same models from two "
               "processes: drain and restart it";
    return NULL;
}

static enum status
may_upgrade(const struct coordinator_node *node, struct error *error)
{
    const char *stays = what_cannot_move(node);
    uint32_t ordered = ordered_models(node);
    if (node->phase != PHASE_SERVING)
        error_set(error, STATUS_FAILED_PRECONDITION, "the node is %s",
                  node->phase == PHASE_STARTING ? "starting" : "stopping");
    else if (upgrade_is_under_way(node->upgrade))
        error_set(error, STATUS_FAILED_PRECONDITION, "an upgrade is under way already");
    else if (predecessor_is_alive())
        error_set(error, STATUS_FAILED_PRECONDITION,
                  "the process before this one, pid %d, still drains: wait for its end",
                  (int)predecessor_pid());
    else if (node->reloads.count > 0)
        error_set(error, STATUS_FAILED_PRECONDITION, "a reload is under way: wait for its end");
    else if (stays != NULL)
        error_set(error, STATUS_FAILED_PRECONDITION, "this node cannot be upgraded: %s", stays);
    else if (ordered > 0)
        error_set(error, STATUS_FAILED_PRECONDITION,
                  "the new process would not have the %u models that were loaded by order: put "
                  "them below a pipeline's `models: root`, or unload them",
                  ordered);
    return error->status;
}

void
node_take_upgrade(struct coordinator_node *node, const struct control_request *request,
                  struct control_call *call)
{
    struct error error = ERROR_NONE;
    int64_t timeout_ns = node->source->config.upgrade_timeout_ns;
    if (may_upgrade(node, &error) != STATUS_OK ||
        upgrade_begin(node->upgrade, request, timeout_ns, call, &error) != STATUS_OK)
        control_answer(call, &error, NULL);
}
