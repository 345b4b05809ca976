/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/external.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "mesh/edge/external_state.h"

#define POLL_NS (2 * NS_PER_S)
#define START_NS (180 * NS_PER_S)
#define STATUS_NS (60 * NS_PER_S) /* for one answer; loaded models are unloaded first */

uint32_t
external_pool(const struct external *external)
{
    return external->options.pool;
}

/* ---- its life: the home queue's thread ---- */

const char *
external_target(const struct external *external)
{
    return external->options.target_count > 0 ? external->targets[external->target] : "";
}

static void
fail(struct external *external, const struct error *error)
{
    external->has_failed = true;
    external_notify(external, error->text);
    log_error("external_failed target=\"%s\" error=\"%s\"", external_target(external), error->text);
    if (external->options.on_failed != NULL)
        external->options.on_failed(external->options.context, error);
}

/* No pings: other servers treat them as an attack, and the machine is the same. */
struct rpc_client_options
external_client_options(const struct external *external, struct rpc_queue *queue,
                        const char *target)
{
    return (struct rpc_client_options){
        .queue = queue,
        .target = target,
        .message_bytes_max = external->options.message_bytes_max,
        .stream_window_bytes = external->options.stream_window_bytes,
    };
}

static void
on_state(void *context)
{
    external_step(context);
}

enum status
external_home_client(struct external *external, const char *target, struct rpc_client **client,
                     struct error *error)
{
    struct rpc_client_options options = external_client_options(external, external->home, target);
    options.on_state = on_state;
    options.context = external;
    return rpc_client_create(&options, client, error);
}

/* Returns how many loads run at once. Loads that are fetched take none of the runtime's places
 * (external_loads.c). */
static uint32_t
loads_at_once(struct external *external, const struct external_status *received)
{
    const struct external_files *files = &external->options.files;
    pthread_mutex_lock(&external->lock);
    uint32_t more = external->fetches && files->fetch != NULL ? files->fetches_max : 0;
    pthread_mutex_unlock(&external->lock);
    return more < UINT32_MAX - received->loaders ? received->loaders + more : UINT32_MAX;
}

static void
become_ready(struct external *external, struct external_status *received)
{
    struct mesh_capacity capacity = {
        .capacity_bytes = received->capacity_bytes,
        .default_bytes = received->default_bytes,
        .loaders = loads_at_once(external, received),
        .load_timeout_ms = received->load_timeout_ms,
        .pool = external->options.pool,
    };
    struct error error = ERROR_NONE;
    bool is_trial = false;
    pthread_mutex_lock(&external->lock);
    enum status status = external->is_closing
                             ? error_set(&error, STATUS_CANCELLED, "the node is stopping")
                             : external_serving_create(external, &error);
    if (status == STATUS_OK) {
        external_status_fini(&external->status);
        external->status = *received;
        *received = (struct external_status){.state = EXTERNAL_STARTING};
        external->management = external->candidate;
        external->is_ready = external->predicts = true;
        is_trial = external_begin_trial(external);
        external->starts++;
    }
    bool is_closing = external->is_closing;
    pthread_mutex_unlock(&external->lock);
    external->poll_at_ns = TIME_NEVER_NS;
    external->was_reported = false;
    external->was_ready = external->was_ready || status == STATUS_OK;
    if (is_closing)
        return;
    if (status != STATUS_OK) {
        fail(external, &error);
        return;
    }
    if (!is_trial)
        log_info_limited("external_ready target=\"%s\" version=\"%s\" capacity_bytes=%llu",
                         external_target(external), external->status.version,
                         (unsigned long long)capacity.capacity_bytes);
    runner_runtime_ready(external->runner, &capacity);
    pthread_mutex_lock(&external->lock);
    external->is_known = true;
    pthread_mutex_unlock(&external->lock);
    external_notify(external, NULL);
}

/* Asks the next candidate again, unless the time is over. */
static void
not_ready(struct external *external)
{
    int64_t now_ns = clock_now_ns();
    external->poll_at_ns = now_ns + external->options.poll_ns;
    if (!external->was_reported)
        log_warn_limited(
            "external_not_ready target=\"%s\" error=\"%s\" action=\"it is asked again\"",
            external_target(external), external->last.text);
    external->was_reported = true;
    external_notify(external, external->last.text);
    if (external->was_ready)
        return;
    if (now_ns >= external->give_up_ns) {
        struct error *error = &external->last;
        (void)error_prefix(error, "the runtime is not ready after %lld seconds",
                           (long long)(external->options.start_ns / NS_PER_S));
        external->poll_at_ns = TIME_NEVER_NS;
        fail(external, error);
        return;
    }
    if (external->options.target_count > 1) {
        external->target = (external->target + 1) % external->options.target_count;
        pthread_mutex_lock(&external->lock);
        rpc_client_destroy(external->candidate);
        external->candidate = NULL;
        pthread_mutex_unlock(&external->lock);
    }
}

/* The runtime's status is wrong in a way that repetition cannot change. */
static void
hopeless(struct external *external)
{
    if (external->was_ready || external->is_run) {
        log_warn_limited("external_wrong target=\"%s\" error=\"%s\"", external_target(external),
                         external->last.text);
        not_ready(external);
        return;
    }
    external->poll_at_ns = TIME_NEVER_NS;
    fail(external, &external->last);
}

static void
on_status(struct external *external, const struct wire_message *message)
{
    struct external_status received;
    struct error *error = &external->last;
    error_clear(error);
    enum status status = external_status_read(message, &received, error);
    if (status == STATUS_OK && received.state == EXTERNAL_READY)
        status = external_status_check(&received, error);
    if (status == STATUS_OK && received.state == EXTERNAL_FAILING)
        status = error_set(error, STATUS_FAILED_PRECONDITION, "it says FAILING");
    if (status != STATUS_OK) {
        (void)error_prefix(error, "runtimeStatus");
        hopeless(external);
    } else if (received.state == EXTERNAL_READY) {
        become_ready(external, &received);
    } else {
        (void)error_set(error, STATUS_UNAVAILABLE, "runtimeStatus: it says STARTING");
        not_ready(external);
    }
    external_status_fini(&received);
}

static void
no_status(struct external *external, const struct rpc_client_end *end)
{
    char reason[EXTERNAL_REASON_BYTES];
    (void)error_set(&external->last, end->status, "runtimeStatus: %s",
                    external_reason(end, reason));
    if (end->status == STATUS_UNIMPLEMENTED)
        hopeless(external);
    else
        not_ready(external);
}

static void
on_status_end(void *context, const struct rpc_client_end *end)
{
    struct external *external = context;
    bool is_stale = external->is_stale;
    external->is_polling = external->is_stale = false;
    if (is_stale)
        external->poll_at_ns = clock_now_ns();
    else if (end->status == STATUS_OK)
        on_status(external, end->message);
    else
        no_status(external, end);
    external_step(external);
}

static const struct rpc_client_events status_events = {.on_end = on_status_end};

/* Requests the status. */
static void
poll(struct external *external)
{
    struct rpc_client_request request = {
        .method = EXTERNAL_SERVICE "runtimeStatus",
        .kind = RPC_UNARY,
        .deadline_ns = clock_now_ns() + STATUS_NS,
        .events = &status_events,
        .context = external,
    };
    enum status status = STATUS_OK;
    pthread_mutex_lock(&external->lock);
    if (external->candidate == NULL && !external->is_closing)
        status = external_home_client(external, external_target(external), &external->candidate,
                                      &external->last);
    if (external->candidate != NULL && !external->is_closing) {
        external->is_polling = true;
        external_request(external, external->candidate, &request);
    }
    pthread_mutex_unlock(&external->lock);
    external->poll_at_ns = TIME_NEVER_NS;
    if (status != STATUS_OK)
        hopeless(external);
}

/* Returns whether the connection to a READY runtime is lost. The client may report it later than
 * the answer READY arrived. */
static void
watch(struct external *external)
{
    pthread_mutex_lock(&external->lock);
    bool is_watched = external->is_ready && !external->is_closing;
    enum rpc_client_state state =
        is_watched ? rpc_client_state(external->management) : RPC_CLIENT_READY;
    bool is_lost = state == RPC_CLIENT_IDLE || state == RPC_CLIENT_FAILING ||
                   (state == RPC_CLIENT_CONNECTING && external->was_seen);
    external->was_seen = is_watched && !is_lost && state == RPC_CLIENT_READY;
    if (is_lost) {
        external->is_ready = external->is_known = false;
        external->management = NULL;
        external_circuit_reset(&external->circuit);
        external->away[0] = '\0';
    }
    pthread_mutex_unlock(&external->lock);
    if (!is_lost)
        return;
    log_warn_limited("external_lost target=\"%s\"", external_target(external));
    external->poll_at_ns = clock_now_ns();
    external_notify(external, "its connection has ended");
    if (external->options.files.fetch != NULL)
        external->options.files.release(external->options.files.context, NULL);
    runner_runtime_lost(external->runner, external->options.pool);
    external_loads_refuse(external);
}

static bool
is_closing(struct external *external)
{
    pthread_mutex_lock(&external->lock);
    bool closing = external->is_closing;
    pthread_mutex_unlock(&external->lock);
    return closing;
}

/* Call at each change: an answer, the connection, a wake, a time reached. */
void
external_step(struct external *external)
{
    external_turn(external);
    watch(external);
    external_ask_suspect(external);
    external_cut_off(external);
    external_answer_refused(external);
    bool is_open = !is_closing(external) && external->options.target_count > 0;
    if (is_open && !external->is_polling && external->poll_at_ns <= clock_now_ns() &&
        !external_probe(external))
        poll(external);
    int64_t due_ns = external_asks_due(external);
    int64_t next_ns = external->poll_at_ns < due_ns ? external->poll_at_ns : due_ns;
    if (is_open && next_ns < TIME_NEVER_NS)
        rpc_queue_at(external->home, &external->timer, next_ns);
    else
        rpc_timer_drop(external->home, &external->timer);
}

static void
on_time(struct rpc_timer *timer)
{
    external_step((struct external *)(void *)((char *)timer - offsetof(struct external, timer)));
}

static void
on_wake(struct rpc_post *post)
{
    external_step((struct external *)(void *)((char *)post - offsetof(struct external, wake)));
}

void
external_wake(struct external *external)
{
    rpc_queue_post(external->home, &external->wake);
}

/* ---- its user's side ---- */

struct external *
external_create(const struct external_options *options)
{
    struct external *external = calloc(1, sizeof(*external));
    CHECK(external != NULL);
    external->options = *options;
    external->fetches = true;
    external->translates = options->translator.start != NULL;
    external->targets = calloc(options->target_count + 1, sizeof(char *));
    CHECK(external->targets != NULL);
    for (uint32_t i = 0; i < options->target_count; i++) {
        external->targets[i] = strdup(options->targets[i]);
        CHECK(external->targets[i] != NULL);
    }
    if (options->serving != NULL) {
        external->serving_target = strdup(options->serving);
        CHECK(external->serving_target != NULL);
    }
    if (options->poll_ns == 0)
        external->options.poll_ns = POLL_NS;
    if (options->start_ns == 0)
        external->options.start_ns = START_NS;
    external->home = options->queues[0];
    external->wake.run = on_wake;
    external->timer.run = on_time;
    pthread_mutex_init(&external->lock, NULL);
    return external;
}

void
external_start(struct external *external, struct mesh_runner *runner)
{
    external->runner = runner;
    external->give_up_ns = clock_now_ns() + external->options.start_ns;
    external_wake(external);
}

void
external_close(struct external *external)
{
    if (external->options.files.fetch != NULL)
        external->options.files.stop(external->options.files.context);
    if (external->options.translator.start != NULL)
        external->options.translator.stop(external->options.translator.context);
    pthread_mutex_lock(&external->lock);
    external->is_closing = true;
    rpc_client_destroy(external->candidate);
    rpc_client_destroy(external->prober);
    external->candidate = external->management = external->prober = NULL;
    external_serving_close(external);
    pthread_mutex_unlock(&external->lock);
    external_loads_refuse(external);
    external_wake(external);
}

void
external_destroy(struct external *external)
{
    if (external == NULL)
        return;
    for (uint32_t i = 0; i < external->options.target_count; i++)
        free(external->targets[i]);
    if (external->options.translator.start != NULL)
        external->options.translator.destroy(external->options.translator.context);
    if (external->options.files.fetch != NULL)
        external->options.files.destroy(external->options.files.context);
    external_aim_free(&external->aim);
    free(external->targets);
    free(external->serving_target);
    free(external->serving);
    external_status_fini(&external->status);
    pthread_mutex_destroy(&external->lock);
    free(external);
}

void
external_look(struct external *external, struct external_view *view)
{
    pthread_mutex_lock(&external->lock);
    view->is_ready = external->is_ready && external->is_known;
    view->is_leaving = external->is_aimed || external->former != NULL;
    view->starts = external->starts;
    view->aways = external->circuit.openings;
    view->loads_waiting = external->waiting_count;
    memcpy(view->said, external->away, sizeof(view->said));
    memcpy(view->version, external->status.version, sizeof(view->version));
    memcpy(view->why, external->why, sizeof(view->why));
    pthread_mutex_unlock(&external->lock);
}
