/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look compares what the mesh wants with what runs here, once a second and at each change:
 *
 *   none runs     the best runtime that this node can run and that lacks a replica is claimed, by a
 *                 label of this node's record, and started
 *   one runs      it is ended if it is gone, disabled, or has enough replicas on nodes that started
 *                 earlier; and replaced if its manifest says so and this node can run the new form
 *   one ends      nothing, until its last process is gone
 *   one rests     it is started again if a model needs it, and makes way for a runtime that one
 *                 needs; a changed manifest becomes its own
 *   one wakes     if it does not become READY in time, it makes way for a runtime that a model
 *                 needs, and for other nodes; if its manifest changes, it rests and wakes anew
 */
#include "coordinator/mesh/mesh_hosting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "coordinator/mesh/mesh_claims.h"
#include "coordinator/mesh/mesh_repository.h"
#include "coordinator/runtimes/supervisor.h"
#include "ipc/counters.h"
#include "serving/adapter/adapter.h"

#define LOAD_TIMEOUT_MS_MAX 3600000

#define LOOK_NS ((int64_t)NS_PER_S)

extern char **environ;

/* WAKES: it is started again, and has not been READY since. */
enum hosting_rest { REST_NONE, REST_RESTS, REST_WAKES };

struct mesh_hosting {
    struct mesh_hosting_options options;
    struct runtime_host host;
    char *host_address;
    struct error no_repository;
    char **passed; /* variables of each container */
    struct loop_timer *timer;
    bool stopped;

    struct supervisor *supervisor; /* NULL: there are no processes */
    struct runtime_plan plan;      /* of the one that runs or rests; its name NULL: there is none */
    enum manifest_kind kind;
    enum hosting_rest rest;
    int64_t needed_ns; /* when a model needed it last, or it was started */
    bool is_ending;
    int64_t stop_at_ns; /* while it ends: its calls have until then; TIME_NEVER_NS: it was asked to
                           end */
    bool is_labelled;   /* it has been READY: the node has its labels */
    bool is_aimed;      /* the node's external runtime is there */
    uint64_t aimed_at;  /* its starts then */

    char *late_label;      /* of the claim of one that did not become READY; NULL: none */
    int64_t late_until_ns; /* it is not chosen before */
};

/* One runtime of the mesh, during a look. */
struct hosting_candidate {
    enum manifest_kind kind;
    bool disabled;
    struct runtime_plan plan;
    struct mesh_claims claims;
    bool is_missed; /* runtimes rest, a model needs it, and no other node has it */
};

struct hosting_candidates {
    struct mesh_hosting *hosting;
    struct hosting_candidate *items;
    size_t count;
};

/* ---- the host ---- */

static enum runtime_value
find_value(void *context, enum manifest_kind kind, const char *name, const char *key,
           struct bytes *value)
{
    static const enum runtime_value values[] = {
        [SERVING_VALUE_FOUND] = RUNTIME_VALUE_FOUND,
        [SERVING_VALUE_NO_OBJECT] = RUNTIME_VALUE_NO_OBJECT,
        [SERVING_VALUE_NO_KEY] = RUNTIME_VALUE_NO_KEY,
    };
    const struct mesh_hosting *hosting = context;
    return values[serving_value(hosting->options.leader, kind, name, key, value)];
}

/* Passes on the same variables as to workers: any other variable of ours may be a secret. */
static char **
passed_variables(void)
{
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    char **passed = calloc(count + 1, sizeof(char *));
    CHECK(passed != NULL);
    count = 0;
    for (char **one = environ; *one != NULL; one++)
        if (spawn_passes_on(*one))
            passed[count++] = *one;
    return passed;
}

static void
describe_host(struct mesh_hosting *hosting)
{
    const struct config_mesh *config = &hosting->options.config->mesh;
    const char *address = hosting->options.address;
    const char *colon = strrchr(address, ':');
    hosting->passed = passed_variables();
    hosting->host_address =
        colon != NULL ? strndup(address, (size_t)(colon - address)) : strdup("127.0.0.1");
    CHECK(hosting->host_address != NULL);
    hosting->host = (struct runtime_host){
        .instance = config->instance,
        .address = hosting->host_address,
        .images = config->images,
        .passed = hosting->passed,
        .labels = config->node_labels,
        .taints = config->node_taints,
        .memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
        .cpu_milli = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN) * 1000,
        .commands = strcmp(config->run_commands, "on") == 0 ? RUNTIME_COMMANDS_ANY
                                                            : RUNTIME_COMMANDS_OF_IMAGES,
        .value = find_value,
        .context = hosting,
    };
}

static bool
has_runtime(const struct mesh_hosting *hosting)
{
    return hosting->plan.name != NULL;
}

/* ---- the labels of this node's record ---- */

static void
set_labels(struct mesh_hosting *hosting)
{
    const char *own = hosting->options.config->mesh.labels;
    const char *claim =
        has_runtime(hosting) ? mesh_claims_label(hosting->kind, hosting->plan.name) : NULL;
    char *rests = mesh_claims_labels(own, NULL, SERVING_LABEL_RESTS);
    char *labels = mesh_claims_labels(hosting->rest != REST_NONE ? rests : own, claim,
                                      hosting->is_labelled ? hosting->plan.labels : "");
    runner_labels(hosting->options.runner, labels);
    free(labels);
    free(rests);
}

/* ---- the node's external runtime ---- */

static struct adapter_server
server_of(const struct runtime_plan *plan)
{
    const struct manifest_adapter *server = &plan->server;
    return (struct adapter_server){
        .type = adapter_type_of(plan->adapter),
        .size_percent = (uint32_t)server->size_percent,
        .loaders = (uint32_t)server->loaders,
        .load_timeout_ms = server->load_timeout_ms < LOAD_TIMEOUT_MS_MAX
                               ? (uint32_t)server->load_timeout_ms
                               : LOAD_TIMEOUT_MS_MAX,
        .capacity_bytes = plan->capacity_bytes,
        .default_bytes = server->default_bytes,
    };
}

static void
aim(struct mesh_hosting *hosting, const struct supervisor_view *view)
{
    const struct runtime_plan *plan = &hosting->plan;
    struct adapter_server server = {.type = ADAPTER_TRITON};
    if (plan->adapter != NULL)
        server = server_of(plan);
    external_aim(hosting->options.external,
                 &(struct external_aim){.target = plan->management,
                                        .serving = plan->calls,
                                        .fetches = plan->fetches,
                                        .model_calls_max = (uint32_t)plan->model_calls_max,
                                        .server = plan->adapter != NULL ? &server : NULL,
                                        .server_bytes = sizeof(server)});
    hosting->is_aimed = true;
    hosting->aimed_at = view->starts;
}

static void
aim_away(struct mesh_hosting *hosting)
{
    if (hosting->is_aimed)
        external_aim(hosting->options.external, &(struct external_aim){.target = NULL});
    hosting->is_aimed = false;
}

/* A lone container's end is seen by its connection, so that a load that ended it counts as failed.
 * Of several containers, one may end unseen behind another that manages it. */
static void
follow(struct mesh_hosting *hosting, const struct supervisor_view *view)
{
    bool all = view->running == view->containers;
    if (all && (!hosting->is_aimed || hosting->aimed_at != view->starts))
        aim(hosting, view);
    else if (!all && view->containers > 1)
        aim_away(hosting);
}

/* ---- this node's report ---- */

struct hosting_state {
    const char *state;
    const char *message;
    uint64_t restarts;
};

static void
notify(struct mesh_hosting *hosting, enum manifest_kind kind, const char *runtime,
       const struct hosting_state *reported)
{
    struct bytes text = {0};
    if (reported->state != NULL) {
        struct json json = json_begin(&text, JSON_STYLE_ANY);
        json_open(&json, '{');
        json_field_string(&json, "node", hosting->options.config->mesh.instance);
        json_field_string(&json, "state", reported->state);
        json_field_uint(&json, "restarts", reported->restarts);
        json_field_string(&json, "message", reported->message);
        json_close(&json, '}');
    }
    bytes_put_char(&text, '\0');
    CHECK(!text.failed);
    serving_report(hosting->options.leader, hosting->options.config->mesh.instance, kind, runtime,
                   text.data);
    bytes_fini(&text);
}

/* Returns the state of the runtime that is here. */
static struct hosting_state
state_of(const struct mesh_hosting *hosting, const struct supervisor_view *view,
         struct external_view *external)
{
    struct hosting_state reported = {"Starting", view->error, view->restarts};
    external_look(hosting->options.external, external);
    if (hosting->is_ending)
        reported.state = "Stopping";
    else if (hosting->rest == REST_RESTS)
        reported = (struct hosting_state){
            "Idle", "no model needs it: a model of its types starts it", view->restarts};
    else if (view->running < view->containers)
        reported.state = "BackOff";
    else if (hosting->is_aimed && external->is_ready)
        reported.state = "Ready";
    else if (view->restarts == 0 || external->why[0] != '\0')
        reported.message = external->why;
    return reported;
}

static bool
is_here(const struct mesh_hosting *hosting, const struct hosting_candidate *candidate)
{
    return has_runtime(hosting) && hosting->kind == candidate->kind &&
           strcmp(hosting->plan.name, candidate->plan.name) == 0;
}

static void
look_at_containers(const struct mesh_hosting *hosting, struct supervisor_view *view)
{
    *view = (struct supervisor_view){.error = ""};
    if (hosting->supervisor != NULL)
        supervisor_look(hosting->supervisor, view);
}

static bool
is_late(const struct mesh_hosting *hosting, const struct hosting_candidate *one)
{
    return hosting->late_label != NULL && clock_now_ns() < hosting->late_until_ns &&
           strcmp(hosting->late_label, mesh_claims_label(one->kind, one->plan.name)) == 0;
}

/* A runtime that wakes in vain elsewhere may come here. */
static bool
is_free_for(const struct mesh_hosting *hosting, const struct hosting_candidate *candidate)
{
    return serving_grace_ns(hosting->options.leader) != TIME_NEVER_NS &&
           (!has_runtime(hosting) || hosting->rest != REST_NONE) && !is_late(hosting, candidate);
}

static void
notify_candidate(struct mesh_hosting *hosting, const struct hosting_candidate *candidate)
{
    struct hosting_state reported = {NULL, "", 0};
    struct supervisor_view view;
    struct external_view external;
    char text[MANIFEST_NAME_BYTES_MAX + 64];
    if (is_here(hosting, candidate)) {
        look_at_containers(hosting, &view);
        reported = state_of(hosting, &view, &external);
        if (strcmp(reported.state, "Ready") == 0) /* of the manifest as it is now */
            reported.message = candidate->plan.problem != NULL   ? candidate->plan.problem
                               : candidate->plan.ignored != NULL ? candidate->plan.ignored
                                                                 : reported.message;
    } else if (candidate->disabled) {
        reported.state = NULL;
    } else if (candidate->plan.problem != NULL) {
        reported = (struct hosting_state){"Unable", candidate->plan.problem, 0};
    } else if (has_runtime(hosting) && mesh_claims_lack(&candidate->claims)) {
        snprintf(text, sizeof(text), "a node runs one runtime, and this one runs \"%s\"",
                 hosting->plan.name);
        reported = (struct hosting_state){"Busy", text, 0};
    } else if (is_free_for(hosting, candidate)) {
        reported = (struct hosting_state){"Able", "this node can run it if another one cannot", 0};
    }
    notify(hosting, candidate->kind, candidate->plan.name, &reported);
}

/* ---- starts and ends ---- */

static void
on_change(void *context)
{
    mesh_hosting_touch(context);
}

static void
start(struct mesh_hosting *hosting)
{
    const struct config *config = hosting->options.config;
    hosting->needed_ns = clock_now_ns();
    log_info("runtime_started runtime=%s containers=%u management=\"%s\"", hosting->plan.name,
             hosting->plan.container_count, hosting->plan.management);
    hosting->supervisor = supervisor_create(&(struct supervisor_options){
        .loop = hosting->options.loop,
        .worker_program = hosting->options.worker_program,
        .plan = &hosting->plan,
        .stop_ns = config->mesh.stop_timeout_ns,
        .restart_ns_max = config->mesh.restart_ns_max,
        .log = {.bytes_per_s = config->worker_log_bytes_per_s,
                .counters = hosting->options.counters,
                .dropped = NODE_MESH_RUNTIME_LINES_DROPPED},
        .restarts = NODE_MESH_RUNTIME_RESTARTS,
        .on_change = on_change,
        .context = hosting,
    });
}

/* Takes the candidate's plan. */
static void
claim(struct mesh_hosting *hosting, struct hosting_candidate *candidate)
{
    hosting->plan = candidate->plan;
    hosting->kind = candidate->kind;
    hosting->is_ending = hosting->is_labelled = false;
    candidate->plan = (struct runtime_plan){0};
    start(hosting);
    set_labels(hosting);
}

/* Stops what ends, when its calls have been answered or their time is over. */
static void
stop_soon(struct mesh_hosting *hosting)
{
    struct external_view external;
    external_look(hosting->options.external, &external);
    if (hosting->stop_at_ns == TIME_NEVER_NS ||
        (external.is_leaving && clock_now_ns() < hosting->stop_at_ns))
        return;
    hosting->stop_at_ns = TIME_NEVER_NS;
    supervisor_stop(hosting->supervisor);
}

/* And the labels. */
static void
set_rest(struct mesh_hosting *hosting, enum hosting_rest rest)
{
    hosting->rest = rest;
    runner_runtime_rests(hosting->options.runner, external_pool(hosting->options.external),
                         rest == REST_NONE ? RUNNER_RUNS : RUNNER_RESTS);
    set_labels(hosting);
}

static void
end(struct mesh_hosting *hosting, const char *why)
{
    if (!has_runtime(hosting) || hosting->is_ending)
        return;
    log_info("runtime_ended runtime=%s why=\"%s\"", hosting->plan.name, why);
    hosting->is_ending = true;
    hosting->is_labelled = false;
    hosting->stop_at_ns = clock_now_ns();
    if (!hosting->stopped) {
        hosting->stop_at_ns += hosting->options.config->mesh.stop_timeout_ns;
        aim_away(hosting);
        set_rest(hosting, REST_NONE);
    }
    stop_soon(hosting);
}

static void
forget(struct mesh_hosting *hosting)
{
    supervisor_destroy(hosting->supervisor);
    hosting->supervisor = NULL;
    runtime_plan_fini(&hosting->plan);
}

/* ---- a look ---- */

/* Tries until the repository can be opened. */
static void
open_repository(struct mesh_hosting *hosting)
{
    struct mesh_repository *repository = hosting->options.repository;
    hosting->host.repository = NULL;
    hosting->host.no_repository = hosting->no_repository.text;
    if (mesh_repository_open(repository, &hosting->no_repository) == STATUS_OK)
        hosting->host.repository = repository->path;
}

static void
gather(void *context, const struct manifest *manifest)
{
    struct hosting_candidates *all = context;
    if (!manifest->runtime.multi_model)
        return;
    all->items = realloc(all->items, (all->count + 1) * sizeof(*all->items));
    CHECK(all->items != NULL);
    struct hosting_candidate *one = &all->items[all->count++];
    *one =
        (struct hosting_candidate){.kind = manifest->kind, .disabled = manifest->runtime.disabled};
    if (runtime_is_adapted(manifest))
        open_repository(all->hosting);
    runtime_plan_make(manifest, &all->hosting->host, &one->plan);
}

static bool
is_needed(const struct mesh_hosting *hosting, const struct runtime_plan *plan)
{
    char *labels = mesh_claims_labels(hosting->options.config->mesh.labels, NULL, plan->labels);
    bool is_needed =
        runner_is_needed(hosting->options.runner, external_pool(hosting->options.external), labels);
    free(labels);
    return is_needed;
}

static void
count_claims(struct hosting_candidates *all)
{
    struct mesh_hosting *hosting = all->hosting;
    uint64_t usual = mesh_claims_usual(hosting->options.leader);
    for (size_t i = 0; i < all->count; i++) {
        struct hosting_candidate *one = &all->items[i];
        one->claims.wanted = one->plan.replicas != UINT64_MAX ? one->plan.replicas : usual;
        mesh_claims_count(hosting->options.runner, hosting->options.leader,
                          hosting->options.config->mesh.instance, one->kind, one->plan.name,
                          &one->claims);
        one->is_missed = one->claims.others == 0 &&
                         serving_grace_ns(hosting->options.leader) != TIME_NEVER_NS &&
                         is_needed(hosting, &one->plan);
    }
}

/* Prefers those that are missed, lest what has made way for one is chosen again; then those of few
 * replicas, so that one runtime does not take all nodes; then by preference. */
static bool
is_better(const struct hosting_candidate *one, const struct hosting_candidate *other)
{
    if (other == NULL || one->is_missed != other->is_missed)
        return other == NULL || one->is_missed;
    if (one->claims.others != other->claims.others)
        return one->claims.others < other->claims.others;
    if (one->plan.preference != other->plan.preference)
        return one->plan.preference > other->plan.preference;
    return strcmp(one->plan.name, other->plan.name) < 0;
}

static void
choose(struct mesh_hosting *hosting, struct hosting_candidates *all)
{
    struct hosting_candidate *best = NULL;
    for (size_t i = 0; i < all->count; i++) {
        struct hosting_candidate *one = &all->items[i];
        if (!one->disabled && one->plan.problem == NULL && mesh_claims_lack(&one->claims) &&
            !is_late(hosting, one) && is_better(one, best))
            best = one;
    }
    if (best != NULL)
        claim(hosting, best);
}

/* The one that is here, as its manifest is now; NULL: it is gone. */
static struct hosting_candidate *
find_own(const struct mesh_hosting *hosting, const struct hosting_candidates *all)
{
    for (size_t i = 0; i < all->count; i++)
        if (is_here(hosting, &all->items[i]))
            return &all->items[i];
    return NULL;
}

static bool
has_changed(const struct mesh_hosting *hosting, const struct hosting_candidate *own)
{
    return own != NULL && own->plan.problem == NULL &&
           !runtime_plan_same(&hosting->plan, &own->plan);
}

/* Why the one that runs has to end; NULL: it goes on. */
static const char *
why_end(const struct mesh_hosting *hosting, const struct hosting_candidates *all)
{
    const struct hosting_candidate *own = find_own(hosting, all);
    if (own == NULL)
        return "it is gone";
    if (own->disabled)
        return "it is disabled";
    if (own->claims.before >= own->claims.wanted)
        return "it has enough replicas";
    return hosting->rest == REST_NONE && has_changed(hosting, own) ? "its manifest has changed"
                                                                   : NULL;
}

/* ---- rest ---- */

/* Its processes end; the claim and the labels stay. */
static void
lie_down(struct mesh_hosting *hosting)
{
    set_rest(hosting, REST_RESTS);
    aim_away(hosting);
    hosting->stop_at_ns = clock_now_ns() + hosting->options.config->mesh.stop_timeout_ns;
    stop_soon(hosting);
}

/* Calls that come from now on wait for it. */
static void
rest_if_idle(struct mesh_hosting *hosting)
{
    struct serving_leader *leader = hosting->options.leader;
    int64_t grace_ns = serving_grace_ns(leader);
    int64_t now_ns = clock_now_ns();
    bool is_kept =
        grace_ns == TIME_NEVER_NS || !serving_is_open(leader) || is_needed(hosting, &hosting->plan);
    if (is_kept)
        hosting->needed_ns = now_ns;
    if (is_kept || now_ns - hosting->needed_ns < grace_ns)
        return;
    log_info("runtime_rested runtime=%s idle_s=%lld", hosting->plan.name,
             (now_ns - hosting->needed_ns) / NS_PER_S);
    counter_add(hosting->options.counters, NODE_MESH_RUNTIME_RESTS, 1);
    lie_down(hosting);
}

/* More replicas of one that runs elsewhere would leave this one without a node. */
static bool
is_another_missed(const struct mesh_hosting *hosting, const struct hosting_candidates *all)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct hosting_candidate *one = &all->items[i];
        if (!is_here(hosting, one) && !one->disabled && one->plan.problem == NULL &&
            mesh_claims_lack(&one->claims) && one->is_missed)
            return true;
    }
    return false;
}

/* Only in name: it has no processes, and its labels are never missing meanwhile. */
static bool
renew(struct mesh_hosting *hosting, const struct hosting_candidates *all)
{
    struct hosting_candidate *own = find_own(hosting, all);
    if (!has_changed(hosting, own))
        return false;
    log_info("runtime_changed runtime=%s", hosting->plan.name);
    runtime_plan_fini(&hosting->plan);
    hosting->plan = own->plan;
    own->plan = (struct runtime_plan){0};
    set_labels(hosting);
    mesh_hosting_touch(hosting);
    return true;
}

/* Its ports are free when its last process is gone. */
static void
look_at_resting(struct mesh_hosting *hosting, const struct hosting_candidates *all)
{
    struct supervisor_view view;
    stop_soon(hosting);
    look_at_containers(hosting, &view);
    if (view.stopped < view.containers)
        return;
    supervisor_destroy(hosting->supervisor);
    hosting->supervisor = NULL;
    if (renew(hosting, all))
        return; /* `all` lacks it now */
    bool is_off = serving_is_open(hosting->options.leader) &&
                  serving_grace_ns(hosting->options.leader) == TIME_NEVER_NS;
    if (is_off || is_needed(hosting, &hosting->plan)) {
        counter_add(hosting->options.counters, NODE_MESH_RUNTIME_WAKES, 1);
        start(hosting);
        set_rest(hosting, REST_WAKES);
    } else if (is_another_missed(hosting, all)) {
        end(hosting, "it rests, and another one is needed");
    }
}

/* Why one that wakes does not go on; NULL: it does. */
static const char *
why_give_up(const struct mesh_hosting *hosting, const struct hosting_candidates *all)
{
    int64_t most_ns = hosting->options.config->mesh.wake_timeout_ns;
    const struct hosting_candidate *own = find_own(hosting, all);
    if (hosting->rest != REST_WAKES || most_ns == 0 || own == NULL ||
        clock_now_ns() - hosting->needed_ns < most_ns)
        return NULL;
    if (is_another_missed(hosting, all))
        return "it was not READY in time, and another one is needed";
    return own->claims.free > 0 ? "it was not READY in time, and another node may run it" : NULL;
}

/* It is not chosen again at once: another node, or another runtime, comes first. */
static void
give_up(struct mesh_hosting *hosting, const char *why)
{
    free(hosting->late_label);
    hosting->late_label = strdup(mesh_claims_label(hosting->kind, hosting->plan.name));
    CHECK(hosting->late_label != NULL);
    hosting->late_until_ns = TIME_NEVER_NS;
    end(hosting, why);
}

/* One that wakes while its manifest changes, or for too long. */
static void
look_at_waking(struct mesh_hosting *hosting, const struct hosting_candidates *all)
{
    const char *why = why_give_up(hosting, all);
    if (why != NULL)
        give_up(hosting, why);
    else if (hosting->rest == REST_WAKES && has_changed(hosting, find_own(hosting, all)))
        lie_down(hosting); /* look_at_resting starts it again */
}

static void
on_models(void *context)
{
    struct mesh_hosting *hosting = context;
    if (hosting->rest == REST_RESTS)
        mesh_hosting_touch(hosting);
}

/* ---- the one that is here ---- */

static void
look_at_ending(struct mesh_hosting *hosting)
{
    struct supervisor_view view;
    stop_soon(hosting);
    look_at_containers(hosting, &view);
    if (view.stopped < view.containers)
        return;
    forget(hosting);
    if (hosting->late_until_ns == TIME_NEVER_NS) /* the others' time begins without its claim */
        hosting->late_until_ns = clock_now_ns() + hosting->options.config->mesh.wake_timeout_ns;
    set_labels(hosting);
}

static void
look_at_running(struct mesh_hosting *hosting)
{
    struct supervisor_view view;
    struct external_view external;
    look_at_containers(hosting, &view);
    follow(hosting, &view);
    if (strcmp(state_of(hosting, &view, &external).state, "Ready") != 0)
        return;
    if (!hosting->is_labelled || hosting->rest == REST_WAKES) {
        hosting->is_labelled = true;
        set_rest(hosting, REST_NONE);
    }
    rest_if_idle(hosting);
}

static void
look_at_own(struct mesh_hosting *hosting, const struct hosting_candidates *all)
{
    bool is_open = serving_is_open(hosting->options.leader);
    const char *why = is_open ? why_end(hosting, all) : NULL;
    if (why != NULL)
        end(hosting, why);
    else if (is_open)
        look_at_waking(hosting, all);
    if (hosting->is_ending)
        look_at_ending(hosting);
    else if (hosting->rest == REST_RESTS)
        look_at_resting(hosting, all);
    else
        look_at_running(hosting);
}

static void
look(void *context)
{
    struct mesh_hosting *hosting = context;
    struct hosting_candidates all = {.hosting = hosting};
    loop_timer_set(hosting->timer, LOOK_NS);
    serving_visit_runtimes(hosting->options.leader, gather, &all);
    count_claims(&all);
    if (has_runtime(hosting))
        look_at_own(hosting, &all);
    if (!has_runtime(hosting) && serving_is_open(hosting->options.leader))
        choose(hosting, &all);
    for (size_t i = 0; i < all.count; i++) {
        if (all.items[i].plan.name != NULL)
            notify_candidate(hosting, &all.items[i]);
        runtime_plan_fini(&all.items[i].plan);
    }
    free(all.items);
}

/* ---- life ---- */

struct mesh_hosting *
mesh_hosting_create(const struct mesh_hosting_options *options)
{
    struct mesh_hosting *hosting = calloc(1, sizeof(*hosting));
    CHECK(hosting != NULL);
    hosting->options = *options;
    describe_host(hosting);
    hosting->timer = loop_timer_create(loop_base(options->loop), look, hosting);
    loop_timer_set(hosting->timer, 0);
    serving_on_runtimes(options->leader, on_change, hosting);
    serving_on_models(options->leader, on_models);
    return hosting;
}

void
mesh_hosting_touch(struct mesh_hosting *hosting)
{
    if (hosting != NULL && !hosting->stopped)
        loop_timer_set(hosting->timer, 0);
}

void
mesh_hosting_stop(struct mesh_hosting *hosting)
{
    if (hosting == NULL)
        return;
    hosting->stopped = true;
    loop_timer_clear(hosting->timer);
    end(hosting, "the node stops");
    supervisor_stop(hosting->supervisor);
}

bool
mesh_hosting_is_running(const struct mesh_hosting *hosting)
{
    struct supervisor_view view = {0};
    if (hosting != NULL && hosting->supervisor != NULL)
        supervisor_look(hosting->supervisor, &view);
    return view.stopped < view.containers;
}

void
mesh_hosting_kill(struct mesh_hosting *hosting)
{
    if (hosting != NULL)
        supervisor_kill(hosting->supervisor);
}

void
mesh_hosting_destroy(struct mesh_hosting *hosting)
{
    if (hosting == NULL)
        return;
    forget(hosting);
    loop_timer_destroy(hosting->timer);
    free(hosting->late_label);
    free(hosting->host_address);
    free(hosting->passed);
    free(hosting);
}
