/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of the client: a queue of its own with a thread that steps it, a probe that
 * records what one call calls back, and a server in another process, to be killed.
 */
#pragma once

#include "test_rpc_rig.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

/* ---- a queue and its thread ---- */

struct side {
    struct rpc_queue *queue;
    pthread_t thread;
    atomic_bool leave;
    pthread_mutex_t lock; /* of all probes */
    pthread_cond_t changed;
};

static inline void *
side_run(void *argument)
{
    struct side *side = argument;
    while (!atomic_load(&side->leave))
        rpc_queue_step(side->queue, TIME_NEVER_NS);
    return NULL;
}

static inline struct side *
side_start(void)
{
    struct side *side = calloc(1, sizeof(*side));
    assert_non_null(side);
    pthread_mutex_init(&side->lock, NULL);
    pthread_cond_init(&side->changed, NULL);
    side->queue = rpc_queue_create();
    assert_int_equal(pthread_create(&side->thread, NULL, side_run, side), 0);
    return side;
}

/* After its clients were destroyed. */
static inline void
side_stop(struct side *side)
{
    atomic_store(&side->leave, true);
    rpc_queue_wake(side->queue);
    assert_int_equal(pthread_join(side->thread, NULL), 0);
    rpc_queue_destroy(side->queue);
    pthread_cond_destroy(&side->changed);
    pthread_mutex_destroy(&side->lock);
    free(side);
}

static inline struct rpc_client *
client_open_with(struct rpc_queue *queue, const char *target, size_t message_bytes_max)
{
    struct rpc_client_options options = {
        .queue = queue, .target = target, .message_bytes_max = message_bytes_max};
    struct rpc_client *client;
    struct error error = ERROR_NONE;
    if (rpc_client_create(&options, &client, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return client;
}

static inline struct rpc_client *
client_open(struct side *side, const char *target)
{
    return client_open_with(side->queue, target, 64 << 20);
}

/* ---- a probe ---- */

struct probe {
    struct side *side;
    struct rpc_client_call *call;
    bool greedy; /* reads on by itself */
    bool keeps;  /* the last message, in `kept` */
    unsigned initials;
    unsigned messages;
    unsigned sents;
    unsigned ends;
    size_t waiting; /* of the last on_sent */
    size_t bytes;   /* of all messages */
    enum status status;
    char text[256];
    char initial[1024]; /* "key=value\n" each */
    char trailers[1024];
    struct rpc_kept *kept;
    unsigned disorder; /* callbacks that came when they must not */
};

static inline void
probe_note(char *into, size_t room, const struct rpc_metadata *entries, size_t count)
{
    size_t used = 0;
    into[0] = '\0';
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(into + used, room - used, "%.*s=%.*s\n", (int)entries[i].key.bytes,
                                 (const char *)entries[i].key.data, (int)entries[i].value.bytes,
                                 (const char *)entries[i].value.data);
}

static inline void
probe_on_initial(void *context, const struct rpc_metadata *initial, size_t count)
{
    struct probe *probe = context;
    pthread_mutex_lock(&probe->side->lock);
    probe->disorder += probe->ends + probe->messages + probe->initials;
    probe->initials++;
    probe_note(probe->initial, sizeof(probe->initial), initial, count);
    pthread_cond_broadcast(&probe->side->changed);
    pthread_mutex_unlock(&probe->side->lock);
}

static inline void
probe_take(struct probe *probe, const struct wire_message *message)
{
    probe->bytes += message->bytes;
    if (!probe->keeps)
        return;
    rpc_kept_release(probe->kept);
    probe->kept = rpc_message_keep(message);
}

static inline void
probe_on_message(void *context, const struct wire_message *message)
{
    struct probe *probe = context;
    pthread_mutex_lock(&probe->side->lock);
    probe->disorder += probe->ends;
    probe->messages++;
    probe_take(probe, message);
    bool read = probe->greedy;
    pthread_cond_broadcast(&probe->side->changed);
    pthread_mutex_unlock(&probe->side->lock);
    if (read)
        rpc_client_read(probe->call);
}

static inline void
probe_on_sent(void *context, size_t waiting)
{
    struct probe *probe = context;
    pthread_mutex_lock(&probe->side->lock);
    probe->disorder += probe->ends;
    probe->sents++;
    probe->waiting = waiting;
    pthread_cond_broadcast(&probe->side->changed);
    pthread_mutex_unlock(&probe->side->lock);
}

static inline void
probe_on_end(void *context, const struct rpc_client_end *end)
{
    struct probe *probe = context;
    pthread_mutex_lock(&probe->side->lock);
    probe->ends++;
    probe->status = end->status;
    snprintf(probe->text, sizeof(probe->text), "%.*s", (int)end->text.bytes,
             (const char *)end->text.data);
    if (end->initial_count > 0)
        probe_note(probe->initial, sizeof(probe->initial), end->initial, end->initial_count);
    probe_note(probe->trailers, sizeof(probe->trailers), end->trailers, end->trailer_count);
    if (end->message != NULL) {
        probe->messages++;
        probe_take(probe, end->message);
    }
    pthread_cond_broadcast(&probe->side->changed);
    pthread_mutex_unlock(&probe->side->lock);
}

static const struct rpc_client_events probe_unary = {.on_end = probe_on_end};
static const struct rpc_client_events probe_stream = {probe_on_initial, probe_on_message,
                                                      probe_on_sent, probe_on_end};
static const struct rpc_client_events probe_plain_stream = {NULL, probe_on_message, NULL,
                                                            probe_on_end};

static inline void
probe_wait(struct probe *probe, const unsigned *counter, unsigned wanted)
{
    struct timespec until = rig_patience();
    struct side *side = probe->side;
    pthread_mutex_lock(&side->lock);
    while (*counter < wanted && pthread_cond_timedwait(&side->changed, &side->lock, &until) == 0)
        continue;
    unsigned seen = *counter;
    pthread_mutex_unlock(&side->lock);
    if (seen < wanted)
        fail_msg("waited for %u, saw %u", wanted, seen);
}

/* Waits for the end and releases the call. */
static inline enum status
probe_end(struct probe *probe)
{
    probe_wait(probe, &probe->ends, 1);
    assert_int_equal(probe->ends, 1);
    assert_int_equal(probe->disorder, 0);
    if (probe->call != NULL)
        rpc_client_release(probe->call);
    probe->call = NULL;
    return probe->status;
}

static inline struct rpc_client_request
probe_request(struct probe *probe, const char *method, enum rpc_kind kind)
{
    return (struct rpc_client_request){
        .method = method,
        .kind = kind,
        .deadline_ns = TIME_NEVER_NS,
        .events = kind == RPC_UNARY ? &probe_unary : &probe_stream,
        .context = probe,
    };
}

/* A unary call with these bytes. */
static inline void
probe_start(struct probe *probe, struct rpc_client *client, const char *method, const void *data,
            size_t bytes)
{
    struct rpc_client_request request = probe_request(probe, method, RPC_UNARY);
    struct rpc_piece piece = {.data = data, .bytes = bytes};
    request.pieces = &piece;
    request.piece_count = 1;
    rpc_client_start(client, &request, &probe->call);
}

/* The same, the probe made anew. */
static inline void
probe_call(struct probe *probe, struct side *side, struct rpc_client *client, const char *method,
           const void *data, size_t bytes)
{
    *probe = (struct probe){.side = side};
    probe_start(probe, client, method, data, bytes);
}

/* A stream without a first message; the probe is made anew. */
static inline void
probe_open(struct probe *probe, struct side *side, struct rpc_client *client, const char *method)
{
    *probe = (struct probe){.side = side};
    struct rpc_client_request request = probe_request(probe, method, RPC_BIDI_STREAM);
    rpc_client_start(client, &request, &probe->call);
}

/* ---- a server in another process ---- */

struct elsewhere {
    pid_t pid;
    char directory[64];
    char target[128];
};

/* The main function of that process: serves until it is killed. */
static inline int
elsewhere_main(const char *target)
{
    rpc_init();
    struct rig rig = {0};
    pthread_mutex_init(&rig.lock, NULL);
    pthread_cond_init(&rig.changed, NULL);
    struct rpc_server_options options = rig_options(&target, 1);
    options.context = &rig;
    struct error error = ERROR_NONE;
    if (rpc_server_create(&options, &rig.server, &error) != STATUS_OK)
        return 1;
    while (rpc_server_step(rig.server, 0, TIME_NEVER_NS) >= 0)
        continue;
    return 0;
}

static inline void
elsewhere_spawn(struct elsewhere *elsewhere)
{
    char self[] = "/proc/self/exe";
    char *arguments[] = {self, elsewhere->target, NULL};
    assert_int_equal(posix_spawn(&elsewhere->pid, self, NULL, NULL, arguments, environ), 0);
}

static inline void
elsewhere_start(struct elsewhere *elsewhere)
{
    rig_make_directory(elsewhere->directory);
    snprintf(elsewhere->target, sizeof(elsewhere->target), "unix:%s/s", elsewhere->directory);
    elsewhere_spawn(elsewhere);
}

static inline void
elsewhere_kill(struct elsewhere *elsewhere)
{
    assert_int_equal(kill(elsewhere->pid, SIGKILL), 0);
    assert_int_equal(waitpid(elsewhere->pid, NULL, 0), elsewhere->pid);
}

static inline void
elsewhere_remove(struct elsewhere *elsewhere)
{
    unlink(elsewhere->target + strlen("unix:"));
    assert_int_equal(rmdir(elsewhere->directory), 0);
}

/* Calls until it is answered: the server needs a while to start. */
static inline void
elsewhere_wait(struct elsewhere *elsewhere, struct side *side, struct rpc_client *client)
{
    (void)elsewhere;
    int64_t give_up_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    struct probe probe;
    do {
        if (clock_now_ns() > give_up_ns)
            fail_msg("no server: %s", probe.text);
        probe_call(&probe, side, client, "/t.T/Echo", "x", 1);
    } while (probe_end(&probe) != STATUS_OK);
}

/* ---- a server and its client ---- */

struct client_stage {
    struct rig *rig;
    struct side *side;
    struct rpc_client *client;
};

static inline struct client_stage
client_stage_start(void (*adjust)(struct rpc_server_options *options))
{
    struct client_stage stage = {.rig = rig_start(1, adjust), .side = side_start()};
    stage.client = client_open(stage.side, stage.rig->unix_target);
    return stage;
}

static inline void
client_stage_stop(struct client_stage *stage)
{
    rpc_client_destroy(stage->client);
    side_stop(stage->side);
    rig_end_all(stage->rig);
    rig_stop(stage->rig);
}
