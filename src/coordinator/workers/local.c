/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/workers/local.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/listen_fds.h"
#include "base/log.h"
#include "coordinator/workers/client_region.h"
#include "coordinator/workers/pool_member.h"
#include "ipc/local.h"

enum {
    SESSIONS_MAX = 256,
    USERS_MAX = 64,
    DEATHS_MAX = 8, /* caused by a user; one is forgiven every second */
};

#define FORGIVEN_NS NS_PER_S
/* Between two attempts to accept a client when there is no descriptor for it. */
#define ACCEPT_AGAIN_NS NS_PER_S
/* The node does not wait for answers of a client that has not confirmed the drain by then. */
#define DRAIN_CONFIRM_NS NS_PER_S

struct local_session {
    struct local_clients *local;
    int fd; /* -1: not in use */
    struct loop_watch *watch;
    uint64_t serial; /* in order of arrival */
    uid_t uid;
    pid_t pid;
    struct pipeline *pipeline; /* NULL: no hello yet */
    struct client_region_wish wish;
    struct made_region region;  /* to be given to it, or none */
    uint64_t region_generation; /* of the lane that it was made for */
    bool making;                /* a region is being made */
    bool waits;                 /* of the order for it */
    struct worker_pools *pools; /* the lane's that serves it; NULL: none at the moment */
    uint32_t number;            /* the number of its client region there */
    bool taken;                 /* the client has taken the region that it was given last */
    bool drains;                /* it has confirmed that the node is about to stop */
};

/* Deaths of workers that held items of a user's clients. Counted by user, because a new connection
 * costs nothing. */
struct user {
    uid_t uid;
    int64_t forgiven_ns;              /* when the last of them is forgiven */
    const struct worker_pools *pools; /* of the worker that died last, in … */
    uint16_t owner; /* … this number: a death that hits several of the user's clients counts once */
};

struct local_clients {
    struct loop *loop;
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    int fd;
    struct loop_watch *watch; /* NULL while there is no descriptor for a client */
    struct loop_timer *accept_again;
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct region_maker *maker;
    uint64_t session_serials;
    int64_t drain_confirm_ns; /* until when a client may confirm the drain; 0: no drain */
    struct local_session sessions[SESSIONS_MAX];
    struct user users[USERS_MAX];
};

/* ---- users charged with deaths ---- */

/* The user's own entry, or the entry that is forgiven first. */
static struct user *
find_user(struct local_clients *local, uid_t uid)
{
    struct user *first = &local->users[0];
    for (uint32_t i = 0; i < USERS_MAX; i++) {
        struct user *user = &local->users[i];
        if (user->uid == uid && user->forgiven_ns != 0)
            return user;
        if (user->forgiven_ns < first->forgiven_ns)
            first = user;
    }
    *first = (struct user){.uid = uid};
    return first;
}

static int64_t
penance_ns(struct local_clients *local, uid_t uid, int64_t now_ns)
{
    int64_t left_ns = find_user(local, uid)->forgiven_ns - now_ns;
    return left_ns > 0 ? left_ns : 0;
}

static void
charge(struct local_clients *local, const struct local_session *session, uint16_t owner,
       int64_t now_ns)
{
    struct user *user = find_user(local, session->uid);
    if (user->forgiven_ns != 0 && user->pools == session->pools && user->owner == owner)
        return;
    if (user->forgiven_ns < now_ns)
        user->forgiven_ns = now_ns;
    user->forgiven_ns += FORGIVEN_NS;
    user->pools = session->pools;
    user->owner = owner;
}

/* ---- one session ---- */

static void
session_close(struct local_session *session)
{
    loop_watch_remove(session->watch);
    close(session->fd);
    made_region_discard(&session->region);
    *session = (struct local_session){.local = session->local, .fd = -1, .region.fd = -1};
}

static void
session_count(const struct local_session *session, enum counter counter)
{
    if (session->pipeline != NULL)
        counter_add(session->pipeline->counters, counter, 1);
}

/* Ends the service of its region and frees the pages, unless the node stops and the client has left
 * for that. */
static void
session_end(struct local_session *session)
{
    if (session->pools != NULL)
        worker_pools_region_dismiss(session->pools, session->number,
                                    session->drains ? CLIENT_PAGES_KEPT : CLIENT_PAGES_FREED);
    session_close(session);
}

static enum status
session_notify(struct local_session *session, const struct local_word *word, int descriptor)
{
    struct error error = ERROR_NONE;
    enum status status = local_send(session->fd, word, sizeof(*word), descriptor, &error);
    if (status == STATUS_OK)
        return status;
    if (status != STATUS_UNAVAILABLE) /* otherwise it has just left by itself */
        log_warn_limited("local_client_dropped pipeline=%s uid=%u why=\"does not read: %s\"",
                         session->pipeline->name, (unsigned)session->uid, error.text);
    session_count(session,
                  status == STATUS_UNAVAILABLE ? PIPELINE_LOCAL_LEFT : PIPELINE_LOCAL_DROPPED_DEAF);
    session_end(session);
    return status;
}

static void
say_refused(int fd, const struct error *error)
{
    struct local_word word = {
        .version = LOCAL_VERSION, .type = LOCAL_REFUSED, .status = error->status};
    snprintf(word.text, sizeof(word.text), "%.255s", error->text);
    struct error ignored = ERROR_NONE;
    (void)!local_send(fd, &word, sizeof(word), -1, &ignored);
}

static void
log_refused(uid_t uid, pid_t pid, const struct error *error)
{
    log_warn_limited("local_client_refused uid=%u pid=%d why=\"%s\"", (unsigned)uid, (int)pid,
                     error->text);
}

/* Sends the client the reason, if possible, and closes. */
static void
session_refuse(struct local_session *session, const struct error *error)
{
    say_refused(session->fd, error);
    session_end(session);
}

/* Like session_refuse(), for a client that was never served. */
static void
session_turn_away(struct local_session *session, const struct error *error)
{
    log_refused(session->uid, session->pid, error);
    session_count(session, PIPELINE_LOCAL_REFUSED);
    session_refuse(session, error);
}

/* ---- what its client region's worker pools says ---- */

static void
on_lost(void *context, const char *why)
{
    struct local_session *session = context;
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_DATA_LOSS, "the node has disconnected this client: %s", why);
    session_count(session, PIPELINE_LOCAL_DROPPED_CORRUPT);
    session->pools = NULL; /* already dismissed */
    session_refuse(session, &error);
}

static void
on_worker_died(void *context, uint16_t owner, enum client_held held)
{
    struct local_session *session = context;
    struct local_clients *local = session->local;
    int64_t now_ns = clock_now_ns();
    if (held == CLIENT_HELD_ITEMS)
        charge(local, session, owner, now_ns);
    if (held == CLIENT_HELD_ITEMS &&
        penance_ns(local, session->uid, now_ns) > DEATHS_MAX * FORGIVEN_NS) {
        log_warn_limited(
            "local_client_dropped pipeline=%s number=%u uid=%u why=\"more than %d workers died "
            "with its requests\"",
            session->pipeline->name, session->number, (unsigned)session->uid, DEATHS_MAX);
        struct error error = ERROR_NONE;
        error_set(&error, STATUS_RESOURCE_EXHAUSTED,
                  "the node has disconnected this client: more than %d workers died with requests "
                  "of its user",
                  DEATHS_MAX);
        session_count(session, PIPELINE_LOCAL_DROPPED_DEATHS);
        session_refuse(session, &error);
        return;
    }
    struct local_word word = {.version = LOCAL_VERSION, .type = LOCAL_DEATH, .owner = owner};
    (void)!session_notify(session, &word, -1);
}

static struct pipeline *
find_pipeline(const struct local_clients *local, const char *name)
{
    for (uint32_t i = 0; i < local->pipeline_count; i++)
        if (strcmp(local->pipelines[i]->name, name) == 0)
            return local->pipelines[i];
    return NULL;
}

/* The worker pools of the serving lane; NULL: there is none, and `error` says why. */
static struct worker_pools *
find_pools(struct pipeline *pipeline, struct error *error)
{
    const struct lane *lane = atomic_load(&pipeline->serving);
    if (atomic_load(&pipeline->draining) || pipeline->stopping)
        error_set(error, STATUS_UNAVAILABLE, "the node is stopping: it takes no requests");
    else if (lane == NULL || pipeline->pools[lane->number]->stopping)
        error_set(error, STATUS_UNAVAILABLE, "pipeline \"%s\" is starting: try again",
                  pipeline->name);
    else
        return pipeline->pools[lane->number];
    return NULL;
}

static void
fill_terms(const struct worker_pools *pools, struct local_word *word)
{
    const struct config_pipeline *config = pools->lane->generation->config;
    *word = (struct local_word){.version = LOCAL_VERSION,
                                .type = LOCAL_WELCOME,
                                .default_timeout_ns = config->default_timeout_ns};
    for (uint32_t i = 0; i < config->stage_count; i++) {
        word->attempts_max[i] = config->stages[i].attempts_max;
        if (pools->pools[i].abilities & SHOAL_CHANGES_INPUTS)
            word->changes_inputs |= UINT32_C(1) << i;
    }
}

static void on_ends(void *context);
static void on_ended(void *context);

static void on_made(const struct region_maker_order *order, struct made_region region,
                    const struct error *error);

/* Orders a region for it; one at a time. */
static enum status
session_order(struct local_session *session, const struct worker_pools *pools, struct error *error)
{
    if (session->making)
        return STATUS_OK;
    struct region_maker_order order = {.made = on_made,
                                       .context = session,
                                       .serial = session->serial,
                                       .generation = pools->lane->region_generation};
    enum status status = worker_pools_region_plan(pools, &session->wish, &order.plan, error);
    if (status != STATUS_OK)
        return status;
    session->making = true;
    region_maker_order(session->local->maker, &order);
    return STATUS_OK;
}

static void
session_welcome(struct local_session *session, const struct worker_pools *pools)
{
    session->taken = false;
    session_count(session, session->wish.moves ? PIPELINE_LOCAL_MOVED : PIPELINE_LOCAL_WELCOMED);
    log_info_limited("local_client pipeline=%s generation=%llu number=%u uid=%u pid=%d",
                     session->pipeline->name, (unsigned long long)pools->lane->generation->number,
                     session->number, (unsigned)session->uid, (int)session->pid);
    session->wish.moves = true; /* from now on */
    struct local_word word;
    fill_terms(pools, &word);
    (void)!session_notify(session, &word, pools->client_regions[session->number].fd);
}

/* Gives it a region of the serving lane, as soon as there is one. On failure it gets none and stays
 * connected. */
static enum status
session_bring_in(struct local_session *session, struct error *error)
{
    struct client_region_events owner = {on_lost, on_ends, on_ended, on_worker_died, session};
    struct worker_pools *pools = find_pools(session->pipeline, error);
    if (pools == NULL)
        return error->status;
    session->waits =
        session->region.fd < 0 || session->region_generation != pools->lane->region_generation;
    if (session->waits)
        return session_order(session, pools, error);
    enum status status = worker_pools_region_admit(pools, &session->wish, &owner, &session->region,
                                                   &session->number, error);
    if (status != STATUS_OK)
        return status;
    session->pools = pools;
    session_welcome(session, pools);
    return STATUS_OK;
}

/* It gets no region. */
static void
session_leave_out(struct local_session *session, const struct error *error)
{
    if (!session->wish.moves) {
        session_turn_away(session, error);
        return;
    }
    log_info_limited("local_client_left pipeline=%s uid=%u pid=%d why=\"%s\"",
                     session->pipeline->name, (unsigned)session->uid, (int)session->pid,
                     error->text);
    session_count(session, PIPELINE_LOCAL_ENDED);
    session_refuse(session, error);
}

static void
session_try(struct local_session *session)
{
    struct error error = ERROR_NONE;
    if (session_bring_in(session, &error) != STATUS_OK)
        session_leave_out(session, &error);
}

static void
on_made(const struct region_maker_order *order, struct made_region region,
        const struct error *error)
{
    struct local_session *session = order->context;
    if (session->fd < 0 || session->serial != order->serial) { /* it has left meanwhile */
        made_region_discard(&region);
        return;
    }
    session->making = false;
    made_region_discard(&session->region);
    session->region = region;
    session->region_generation = order->generation;
    if (session->waits && region.fd < 0)
        session_leave_out(session, error);
    else if (session->waits)
        session_try(session);
}

/* A failure is not reported here: the next use tries again and reports. */
static void
on_ends(void *context)
{
    struct local_session *session = context;
    struct error error = ERROR_NONE;
    const struct worker_pools *pools =
        session->taken ? find_pools(session->pipeline, &error) : NULL;
    if (pools != NULL)
        (void)!session_order(session, pools, &error);
}

/* A client that has not taken its region yet gets no other one: it has two at most, however often
 * the pipeline is reloaded meanwhile. */
static void
on_ended(void *context)
{
    struct local_session *session = context;
    session->pools = NULL;
    if (session->taken)
        session_try(session);
}

/* ---- what the client says ---- */

/* Counts clients that are served and clients that move from one lane to another. */
static uint32_t
count_sessions(const struct local_clients *local, const struct pipeline *pipeline)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < SESSIONS_MAX; i++)
        count += local->sessions[i].fd >= 0 && local->sessions[i].pipeline == pipeline;
    return count;
}

static enum status
judge_hello(const struct local_session *session, const struct local_hello *hello,
            const struct pipeline *pipeline, struct error *error)
{
    int64_t left_ns = penance_ns(session->local, session->uid, clock_now_ns());
    if (hello->version != LOCAL_VERSION)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "the node speaks version %u, this client %u", LOCAL_VERSION,
                         hello->version);
    if (pipeline == NULL)
        return error_set(error, STATUS_NOT_FOUND, "this node serves no pipeline \"%s\"",
                         hello->pipeline);
    if (left_ns > DEATHS_MAX * FORGIVEN_NS)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "too many workers died with requests of this user's local clients: try "
                         "again in %lld s",
                         (long long)((left_ns - DEATHS_MAX * FORGIVEN_NS) / NS_PER_S + 1));
    uint32_t most = pipeline->generation->config->local_clients;
    if (most == 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "pipeline \"%s\" takes no local clients: set local_clients",
                         pipeline->name);
    if (count_sessions(session->local, pipeline) >= most)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "pipeline \"%s\" has its %u local clients (local_clients)", pipeline->name,
                         most);
    return STATUS_OK;
}

static void
on_hello(struct local_session *session, const struct local_hello *hello)
{
    struct error error = ERROR_NONE;
    struct pipeline *pipeline = find_pipeline(session->local, hello->pipeline);
    enum status status = judge_hello(session, hello, pipeline, &error);
    session->pipeline = pipeline;
    session->wish =
        (struct client_region_wish){.slots = hello->slots, .message_bytes = hello->message_bytes};
    if (pipeline != NULL && status == STATUS_OK)
        session_try(session);
    else
        session_turn_away(session, &error);
}

/* False: not a message that a client may send now. */
static bool
on_note(struct local_session *session, const struct local_note *note)
{
    if (note->version == LOCAL_VERSION && note->type == NOTE_TAKEN && session->wish.moves &&
        !session->taken) {
        session->taken = true;
        if (session->pools == NULL)
            session_try(session);
        return true;
    }
    if (note->version == LOCAL_VERSION && note->type == NOTE_DRAINING && !session->drains &&
        session->local->drain_confirm_ns != 0) {
        session->drains = true;
        return true;
    }
    return false;
}

static void
on_closed(struct local_session *session)
{
    log_info_limited("local_client_left pipeline=%s uid=%u pid=%d why=\"closed its socket\"",
                     session->pipeline != NULL ? session->pipeline->name : "",
                     (unsigned)session->uid, (int)session->pid);
    session_count(session, PIPELINE_LOCAL_LEFT);
    session_end(session);
}

/* Ends a session whose client breaks the protocol. */
static void
on_nonsense(struct local_session *session, const struct error *error)
{
    if (session->pipeline == NULL) {
        struct error refusal = ERROR_NONE;
        error_set(&refusal, STATUS_INVALID_ARGUMENT,
                  "no hello: %s; is the client's libshoal of another version than this node's?",
                  error->text);
        session_turn_away(session, &refusal);
        return;
    }
    log_warn_limited("local_client_dropped pipeline=%s uid=%u pid=%d why=\"sent nonsense: %s\"",
                     session->pipeline->name, (unsigned)session->uid, (int)session->pid,
                     error->text);
    session_count(session, PIPELINE_LOCAL_LEFT);
    session_end(session);
}

/* A client says hello once, and sends only notes after that. */
static void
on_session_readable(void *context)
{
    struct local_session *session = context;
    union {
        struct local_hello hello;
        struct local_note note;
    } said;
    size_t bytes = session->pipeline == NULL ? sizeof(said.hello) : sizeof(said.note);
    struct error error = ERROR_NONE;
    int descriptor;
    enum status status =
        local_receive(session->fd, &said, bytes, LOCAL_DONT_WAIT, &descriptor, &error);
    if (status == STATUS_DEADLINE_EXCEEDED)
        return;
    if (descriptor >= 0)
        close(descriptor);
    if (status == STATUS_OK && session->pipeline != NULL) {
        if (on_note(session, &said.note))
            return;
        status = error_set(&error, STATUS_DATA_LOSS, "note %u out of turn", said.note.type);
    } else if (status == STATUS_OK) {
        if (strnlen(said.hello.pipeline, LOCAL_NAME_BYTES) < LOCAL_NAME_BYTES) {
            on_hello(session, &said.hello);
            return;
        }
        status = error_set(&error, STATUS_DATA_LOSS, "a pipeline's name without an end");
    }
    if (status == STATUS_UNAVAILABLE)
        on_closed(session);
    else
        on_nonsense(session, &error);
}

/* ---- a drain of the node ---- */

void
local_drain(struct local_clients *local)
{
    local->drain_confirm_ns = clock_now_ns() + DRAIN_CONFIRM_NS;
    struct local_word word = {.version = LOCAL_VERSION, .type = LOCAL_DRAIN};
    for (uint32_t i = 0; i < SESSIONS_MAX; i++)
        if (local->sessions[i].fd >= 0 && local->sessions[i].pipeline != NULL)
            (void)!session_notify(&local->sessions[i], &word, -1);
}

uint32_t
local_waits_for(const struct local_clients *local)
{
    bool may_confirm = clock_now_ns() < local->drain_confirm_ns;
    uint32_t count = 0;
    for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
        const struct local_session *session = &local->sessions[i];
        count += session->fd >= 0 && session->pipeline != NULL && (may_confirm || session->drains);
    }
    return count;
}

/* ---- the socket ---- */

static enum status
peer_check(int fd, struct ucred *peer, struct error *error)
{
    socklen_t bytes = sizeof(*peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &bytes) != 0)
        return error_set_errno(error, "cannot read a local client's user");
    if (peer->uid == 0 || peer->uid == geteuid())
        return STATUS_OK;
    return error_set(error, STATUS_PERMISSION_DENIED,
                     "only root and the node's own user may be its local clients");
}

/* Finds a place for one more session: a free one, or that of the client that has been silent
 * longest. */
static struct local_session *
make_room(struct local_clients *local, struct error *error)
{
    struct local_session *silent = NULL;
    for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
        struct local_session *session = &local->sessions[i];
        if (session->fd < 0)
            return session;
        if (session->pipeline == NULL && (silent == NULL || session->serial < silent->serial))
            silent = session;
    }
    error_set(error, STATUS_RESOURCE_EXHAUSTED, "the node has its %d sessions of local clients",
              SESSIONS_MAX);
    if (silent != NULL)
        session_turn_away(silent, error);
    return silent;
}

static void
take_client(struct local_clients *local, int fd)
{
    struct error error = ERROR_NONE;
    struct ucred peer = {.uid = (uid_t)-1};
    struct local_session *session = NULL;
    if (peer_check(fd, &peer, &error) == STATUS_OK)
        session = make_room(local, &error);
    if (session == NULL) {
        log_refused(peer.uid, peer.pid, &error);
        say_refused(fd, &error);
        close(fd);
        return;
    }
    session->fd = fd;
    session->uid = peer.uid;
    session->pid = peer.pid;
    session->serial = local->session_serials++;
    session->watch = loop_watch_add(local->loop, fd, on_session_readable, session);
}

static void
on_client(void *context)
{
    struct local_clients *local = context;
    int fd = accept4(local->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        take_client(local, fd);
        return;
    }
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
        return; /* it has left again */
    log_warn("local_paused why=\"%s\"", strerror(errno));
    loop_watch_remove(local->watch);
    local->watch = NULL;
    loop_timer_set(local->accept_again, ACCEPT_AGAIN_NS);
}

static void
on_accept_again(void *context)
{
    struct local_clients *local = context;
    local->watch = loop_watch_add(local->loop, local->fd, on_client, local);
}

static enum status
listen_at(struct local_clients *local, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, local->path, sizeof(address.sun_path));
    enum listen_owner owner;
    local->fd = listen_fds_take((const struct sockaddr *)&address, &owner);
    if (local->fd >= 0)
        return STATUS_OK;
    local->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (local->fd < 0)
        return error_set_errno(error, "socket for local clients");
    unlink(local->path);
    /* created without permissions, so that no others can connect before they are set */
    mode_t before = umask(0177);
    int bound = bind(local->fd, (struct sockaddr *)&address, sizeof(address));
    umask(before);
    if (bound != 0 || listen(local->fd, SOMAXCONN) != 0)
        return error_set_errno(error, "socket for local clients %s", local->path);
    log_info("socket_listening path=\"%s\" service=local_clients", local->path);
    return STATUS_OK;
}

enum status
local_create(struct loop *loop, const char *counters_path, struct pipeline *const *pipelines,
             uint32_t pipeline_count, struct local_clients **created, struct error *error)
{
    struct local_clients *local = calloc(1, sizeof(*local));
    CHECK(local != NULL);
    local->loop = loop;
    local->fd = -1;
    local->pipelines = pipelines;
    local->pipeline_count = pipeline_count;
    for (uint32_t i = 0; i < SESSIONS_MAX; i++)
        local->sessions[i] = (struct local_session){.local = local, .fd = -1, .region.fd = -1};
    enum status status = local_path(counters_path, local->path, sizeof(local->path), error);
    if (status == STATUS_OK)
        status = listen_at(local, error);
    if (status != STATUS_OK) {
        if (local->fd >= 0)
            close(local->fd);
        free(local);
        return status;
    }
    local->accept_again = loop_timer_create(loop_base(loop), on_accept_again, local);
    local->maker = region_maker_create(loop);
    *created = local;
    return STATUS_OK;
}

void
local_accept(struct local_clients *local)
{
    local->watch = loop_watch_add(local->loop, local->fd, on_client, local);
}

void
local_part(struct local_clients *local)
{
    loop_timer_clear(local->accept_again);
    loop_watch_remove(local->watch);
    local->watch = NULL;
}

void
local_destroy(struct local_clients *local)
{
    if (local == NULL)
        return;
    for (uint32_t i = 0; i < SESSIONS_MAX; i++)
        if (local->sessions[i].fd >= 0)
            session_close(
                &local->sessions[i]); /* the pipelines, and their client regions, are gone */
    region_maker_destroy(local->maker);
    listen_fds_unlink(local->path);
    loop_watch_remove(local->watch);
    loop_timer_destroy(local->accept_again);
    close(local->fd);
    free(local);
}
