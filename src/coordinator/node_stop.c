/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/node_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/loop/predecessor.h"
#include "coordinator/pipeline/pipeline.h"
#include "ipc/counters.h"

enum {
    DRAIN_LOOK_MS = 5,
    HANG_UP_MS = 5000, /* clients that waited for the drain may ask for its results so long */
    PART_LOOK_MS = 10,
    PART_MS_MAX = 2000,     /* for clients to go to the successor that has our sockets */
    PART_MS_SERVED = 10000, /* the same if it serves already: idle gRPC clients read each 5 s */
    SEEN_MS_MAX = 2000,     /* for a mesh to hear of the successor */
};

/* Ends the loop when nothing is left that needs it: no pipeline, no caller that goes on calling, no
 * answer that another node waits for, and no lease of this node's in etcd, whose end the others
 * would await. */
void
node_end_if_done(struct coordinator_node *node)
{
    bool is_quiet = node->front == NULL || front_refuse(node->front);
    if (node->stopped_count < node->assembly.pipeline_count)
        return;
    if (!is_quiet || mesh_node_is_leaving(node->mesh))
        loop_timer_set(node->mesh_timer, NODE_LOOK_MS * (int64_t)NS_PER_MS);
    else
        loop_stop(node->loop);
}

void
node_stop(struct coordinator_node *node)
{
    upgrade_cancel(node->upgrade, ": this node stops");
    drains_stop(&node->drains);
    node->phase = PHASE_STOPPING;
    node->hands_over = false;
    loop_timer_clear(node->drain_timer);
    web_drained(node->web);
    if (node->front != NULL)
        (void)front_refuse(node->front); /* callers are notified while the workers stop */
    mesh_node_stop(node->mesh);
    model_directories_destroy(node->directories);
    node->directories = NULL;
    assembly_stop(&node->assembly);
    node_end_if_done(node);
}

static void
drain_pipelines(struct coordinator_node *node)
{
    mesh_node_refuse_calls(node->mesh);
    for (uint32_t i = 0; i < node->assembly.pipeline_count; i++)
        pipeline_drain(node->assembly.pipelines[i]);
}

/* Callers are to go elsewhere. */
static void
announce_end(struct coordinator_node *node)
{
    for (uint32_t i = 0; i < node->assembly.pipeline_count; i++)
        front_set_serving(node->front, node->assembly.pipelines[i]->name, false);
    local_drain(node->local);
    runtime_drain(node->runtime);
    node_update_runtime(node);
    node_update_ready(node);
}

/* ---- models move ---- */

/* Loads would fail until the mesh knows a node for them, and the successor may be the only one. */
static bool
awaits_successor(struct coordinator_node *node, enum mesh_successor successor)
{
    if (node->seen_deadline_ns == 0)
        return false;
    if (successor == MESH_SUCCESSOR_UNSEEN && clock_now_ns() < node->seen_deadline_ns)
        return true;
    node->seen_deadline_ns = 0;
    mesh_node_drain(node->mesh);
    return false;
}

static void part(struct coordinator_node *node);

/* Returns whether the successor still gets models that it has room for, while callers stay. */
static bool
still_fills_successor(struct coordinator_node *node)
{
    if (node->fill_deadline_ns == 0)
        return false;
    enum mesh_successor successor = mesh_node_successor(node->mesh, node->successor);
    if (awaits_successor(node, successor) ||
        (successor == MESH_SUCCESSOR_HAS_ROOM && !mesh_node_is_drained(node->mesh) &&
         clock_now_ns() < node->fill_deadline_ns))
        return true;
    node->fill_deadline_ns = 0;
    part(node);
    return false;
}

/* Returns whether models are still moving to other nodes, to which calls are passed on then. */
static bool
mesh_still_drains(struct coordinator_node *node)
{
    if (node->mesh_deadline_ns == 0)
        return false;
    bool is_drained = mesh_node_is_drained(node->mesh);
    if (!is_drained && clock_now_ns() < node->mesh_deadline_ns)
        return true;
    node->left_copies = !is_drained;
    node->mesh_deadline_ns = 0;
    drain_pipelines(node);
    return false;
}

/* Calls are served meanwhile. A quarter of the time is left for those in flight then. */
static void
move_models(struct coordinator_node *node)
{
    int64_t now_ns = clock_now_ns();
    int64_t grace_ns = node->source->config.drain_timeout_ns;
    int64_t seen_ns = SEEN_MS_MAX * (int64_t)NS_PER_MS;
    node->mesh_deadline_ns = now_ns + grace_ns / 4 * 3;
    if (node->successor == 0) {
        mesh_node_drain(node->mesh);
        return;
    }
    node->seen_deadline_ns = now_ns + (seen_ns < grace_ns / 4 ? seen_ns : grace_ns / 4);
    node->fill_deadline_ns = now_ns + grace_ns / 2;
}

/* Returns whether more may be asked once the node has drained: clients of the drain may ask where
 * the last models went, and could not ask a node that has ended. */
static bool
is_asked_more(struct coordinator_node *node)
{
    int64_t now_ns = clock_now_ns();
    if (node->hang_up_deadline_ns == 0)
        node->hang_up_deadline_ns = now_ns + HANG_UP_MS * (int64_t)NS_PER_MS;
    return control_kept(node->control) > 0 && now_ns < node->hang_up_deadline_ns;
}

/* A service manager kills what is left of the service when this process has ended. */
static bool
predecessor_drains(void)
{
    return predecessor_is_alive() && !predecessor_owns();
}

/* ---- callers move ---- */

/* Asks them to go to the process that accepts from our sockets. */
static void
part(struct coordinator_node *node)
{
    int64_t now_ns = clock_now_ns();
    int64_t half_ns = (node->drain_deadline_ns - now_ns) / 2;
    int64_t most_ms = node->successor != 0 ? PART_MS_SERVED : PART_MS_MAX;
    int64_t part_ns = most_ms * (int64_t)NS_PER_MS;
    node->part_deadline_ns = now_ns + (part_ns < half_ns ? part_ns : half_ns);
}

/* Returns whether callers still move to the process that will accept from our sockets, and are
 * served. */
static bool
still_parts(struct coordinator_node *node)
{
    if (node->part_deadline_ns == 0)
        return false;
    bool is_alone =
        front_part(node->front) && web_has_parted(node->web) &&
        counter_get(counters_values(&node->assembly.counters, 0), NODE_HTTP_CONNECTIONS) == 0;
    if (!is_alone && clock_now_ns() < node->part_deadline_ns)
        return true;
    node->part_deadline_ns = 0;
    node->hands_over = false;
    announce_end(node);
    if (node->mesh == NULL)
        drain_pipelines(node);
    return false;
}

/* The successor has these already, or is to get them. */
static void
part_services(struct coordinator_node *node)
{
    web_part(node->web, node->successor != 0 ? WEB_ALL : WEB_REST);
    dashboard_part(node->dashboard);
    if (node->successor == 0)
        return;
    mesh_node_part(node->mesh);
    runtime_part(node->runtime);
}

/* ---- the drain ---- */

void
node_on_drain_look(void *context)
{
    struct coordinator_node *node = context;
    if (still_fills_successor(node) || still_parts(node)) {
        loop_timer_set(node->drain_timer, PART_LOOK_MS * (int64_t)NS_PER_MS);
        return;
    }
    if (mesh_still_drains(node)) {
        loop_timer_set(node->drain_timer, DRAIN_LOOK_MS * (int64_t)NS_PER_MS);
        return;
    }
    uint64_t in_flight = assembly_in_flight(&node->assembly);
    uint32_t clients = local_waits_for(node->local);
    bool late = clock_now_ns() >= node->drain_deadline_ns;
    bool is_busy = in_flight > 0 || clients > 0 || mesh_node_has_calls(node->mesh);
    if ((is_busy || predecessor_drains()) && !late) {
        loop_timer_set(node->drain_timer, DRAIN_LOOK_MS * (int64_t)NS_PER_MS);
        return;
    }
    if (node->hang_up_deadline_ns == 0)
        log_info("drained left_in_flight=%llu local_clients=%u", (unsigned long long)in_flight,
                 clients);
    struct drain_rest rest = {.in_flight = in_flight, .copies = node->left_copies};
    drains_notify(&node->drains, &rest);
    if (late || !is_asked_more(node))
        node_stop(node);
    else
        loop_timer_set(node->drain_timer, DRAIN_LOOK_MS * (int64_t)NS_PER_MS);
}

void
node_drain(struct coordinator_node *node, const char *why)
{
    if (node->phase >= PHASE_DRAINING)
        return;
    bool serves = node->phase == PHASE_SERVING;
    log_info("draining why=%s grace_ms=%lld", why,
             (long long)(node->source->config.drain_timeout_ns / NS_PER_MS));
    node->phase = PHASE_DRAINING;
    service_manager_notify(&node->manager, SERVICE_STOPPING, "draining");
    assembly_set_state(&node->assembly, NODE_DRAINING);
    node->drain_deadline_ns = clock_now_ns() + node->source->config.drain_timeout_ns;
    upgrade_cancel(node->upgrade, ": this node was asked to end");
    node->hands_over = serves && node_has_successor(node);
    if (node->hands_over)
        part_services(node);
    else
        announce_end(node);
    if (node->mesh != NULL)
        move_models(node);
    else if (node->hands_over)
        part(node);
    else
        drain_pipelines(node);
    node_on_drain_look(node);
}

/* The node was asked to end a second time: it waits for nothing in flight. */
void
node_stop_at_once(struct coordinator_node *node, int number)
{
    log_warn("stopping_at_once");
    node->exit_code = NODE_EXIT_SIGNALLED + number;
    node_stop(node);
    mesh_node_kill(node->mesh);
    for (uint32_t i = 0; i < node->assembly.pipeline_count; i++)
        pipeline_kill(node->assembly.pipelines[i]);
}
