/* SPDX-License-Identifier: Apache-2.0 */
/* Detects that a model server is away while its management process lives, and that it is back
 * (rules in external_circuit.h). */

#include "base/hide_paths.h"
#include "base/log.h"
#include "mesh/edge/external_state.h"

#define SERVER_READY "/inference.GRPCInferenceService/ServerReady"
#define SERVER_READY_NS (5 * NS_PER_S)

/* Locked. The circuit has opened; home completes it. */
static void
go_away(struct external *external, const char *said)
{
    external->is_ready = external->is_known = external->is_suspect = false;
    external->is_cut = true;
    hide_paths(said, NULL, 0, external->away, sizeof(external->away));
    external_wake(external);
}

static void
log_away(const struct external *external, const char *said)
{
    log_warn_limited("external_away target=\"%s\" error=\"%s\" action=\"no calls until it answers "
                     "again\"",
                     external_target(external), said);
}

void
external_on_unavailable(struct external *external, uint64_t model, int64_t begun_ns,
                        const char *said)
{
    struct external_circuit *circuit = &external->circuit;
    bool was_closed = circuit->state == CIRCUIT_CLOSED;
    if (!external->is_ready || external->is_closing ||
        !external_circuit_unavailable(circuit, model, begun_ns, clock_now_ns()))
        return;
    go_away(external, said);
    if (was_closed)
        log_away(external, said);
}

void
external_on_timeout(struct external *external, uint64_t model)
{
    bool is_suspect = external_circuit_timed_out(&external->circuit, model, clock_now_ns());
    if (!is_suspect || external->is_suspect || !external->is_ready || external->is_closing)
        return;
    external->is_suspect = true;
    external_wake(external);
}

void
external_on_answer(struct external *external)
{
    if (external_circuit_answered(&external->circuit, clock_now_ns()))
        log_info_limited("external_back target=\"%s\" trials=%u", external_target(external),
                         external->circuit.trials);
}

bool
external_begin_trial(struct external *external)
{
    external->is_proven = false;
    return external_circuit_ready(&external->circuit, clock_now_ns());
}

/* Home. */
static void
wait(struct external *external)
{
    pthread_mutex_lock(&external->lock);
    external->poll_at_ns =
        clock_now_ns() + external_circuit_wait_ns(&external->circuit, external->options.poll_ns);
    pthread_mutex_unlock(&external->lock);
}

/* The runner comes first: loads that end with the connection then mean nothing to it, and none of
 * them ends later in a runtime that it believes to be empty. */
void
external_cut_off(struct external *external)
{
    pthread_mutex_lock(&external->lock);
    bool is_cut = external->is_cut && !external->is_closing;
    external->is_cut = false;
    pthread_mutex_unlock(&external->lock);
    if (!is_cut)
        return;
    runner_runtime_lost(external->runner, external->options.pool);
    external_loads_refuse(external);
    pthread_mutex_lock(&external->lock);
    rpc_client_destroy(external->candidate);
    external->candidate = external->management = NULL;
    pthread_mutex_unlock(&external->lock);
    external->was_seen = external->is_proven = false;
    external->was_reported = true;
    wait(external);
}

/* Ends a suspicion: the circuit is closed unless it has opened meanwhile. */
static void
on_suspect_end(struct external *external, enum external_circuit_sign sign)
{
    static const char said[] = "calls for several models and ServerReady timed out";
    pthread_mutex_lock(&external->lock);
    external->is_asking = external->is_suspect = false;
    if (external_circuit_asked(&external->circuit, sign, clock_now_ns()) && external->is_ready) {
        go_away(external, said);
        log_away(external, said);
    }
    pthread_mutex_unlock(&external->lock);
}

/* Any answer shows a living server, except its own "not ready". */
static void
on_probe_end(void *context, const struct rpc_client_end *end)
{
    struct external *external = context;
    external->is_probing = false;
    bool is_silent = end->status == STATUS_UNAVAILABLE || end->status == STATUS_CANCELLED ||
                     end->status == STATUS_DEADLINE_EXCEEDED;
    if (external->is_asking) {
        on_suspect_end(external, is_silent ? CIRCUIT_SILENCE : CIRCUIT_SIGN_OF_LIFE);
    } else {
        bool is_ready = end->status != STATUS_OK || external_read_server_ready(end->message);
        external->is_proven = !is_silent && is_ready;
        if (external->is_proven)
            external->poll_at_ns = clock_now_ns();
        else
            wait(external);
    }
    external_step(external);
}

static const struct rpc_client_events probe_events = {.on_end = on_probe_end};

/* Locked. The client for model calls; NULL: none. */
static struct rpc_client *
prober_of(struct external *external)
{
    struct error error = ERROR_NONE;
    const char *target = external->serving_target;
    struct rpc_client **client = &external->prober;
    if (target == NULL) {
        target = external_target(external);
        client = &external->candidate;
    }
    if (*client == NULL && external_home_client(external, target, client, &error) != STATUS_OK)
        return NULL;
    return *client;
}

/* Locked. Returns false if the question cannot be asked now. */
static bool
start_probe(struct external *external)
{
    const struct rpc_client_request request = {
        .method = SERVER_READY,
        .kind = RPC_UNARY,
        .deadline_ns = clock_now_ns() + SERVER_READY_NS,
        .events = &probe_events,
        .context = external,
    };
    struct rpc_client *client =
        external->is_closing || external->is_probing ? NULL : prober_of(external);
    if (client == NULL)
        return false;
    external->is_probing = true;
    rpc_client_start(client, &request, NULL);
    return true;
}

bool
external_probe(struct external *external)
{
    pthread_mutex_lock(&external->lock);
    bool is_due = external->circuit.state == CIRCUIT_OPEN && !external->is_proven;
    bool begun = is_due && start_probe(external);
    if (begun)
        external->poll_at_ns = TIME_NEVER_NS;
    pthread_mutex_unlock(&external->lock);
    return begun;
}

void
external_ask_suspect(struct external *external)
{
    pthread_mutex_lock(&external->lock);
    if (external->is_suspect && external->is_ready && !external->is_asking)
        external->is_asking = start_probe(external);
    pthread_mutex_unlock(&external->lock);
}
