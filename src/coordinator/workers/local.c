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
#include "base/log.h"
#include "coordinator/workers/guest.h"
#include "coordinator/workers/seat.h"
#include "shm/local.h"

enum {
    SESSIONS_MAX = 256,
    USERS_MAX = 64,
    DEATHS_MAX = 8, /* that a user may have brought about; one is forgiven every second */
};

#define FORGIVEN_NS NS_PER_S
/* Between two tries to take a client when there is no descriptor for it. */
#define ACCEPT_AGAIN_NS NS_PER_S
/* A client that has not said by then that it has heard of the drain waits for no answer. */
#define DRAIN_HEARD_NS NS_PER_S

struct session {
    struct local *local;
    int fd; /* -1: not in use */
    struct loop_watch *watch;
    uint64_t serial; /* in the order in which they came */
    uid_t uid;
    pid_t pid;
    struct pipeline *pipeline; /* NULL: has not said hello */
    struct guest_wish wish;
    struct made_region region;  /* for it to be brought into, or none */
    uint64_t region_generation; /* of the lane that this was made for */
    bool making;                /* one is being made */
    bool waits;                 /* for one that is being made */
    struct roster *roster;      /* that serves it; NULL: none at the moment */
    uint32_t number;            /* of its guest there */
    bool taken;                 /* the client has taken the region that it was given last */
    bool drains;                /* it has heard that the node is about to stop */
};

/* Deaths of workers that held something of a user's clients: by user, since connecting again costs
 * nothing. */
struct user {
    uid_t uid;
    int64_t forgiven_ns;         /* when the last of them will be */
    const struct roster *roster; /* of the last death, with … */
    uint16_t party; /* … who died: of how many clients it held something, it is one */
};

struct local {
    struct loop *loop;
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    int fd;
    struct loop_watch *watch; /* NULL while there is no descriptor for a client */
    struct loop_timer *accept_again;
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct maker *maker;
    uint64_t session_serials;
    int64_t drain_heard_ns; /* until when a client may say that it has heard; 0: no drain */
    struct session sessions[SESSIONS_MAX];
    struct user users[USERS_MAX];
};

/* ---- who has brought about deaths ---- */

/* The user's own entry, or that of the one who is forgiven first. */
static struct user *
find_user(struct local *local, uid_t uid)
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
penance_ns(struct local *local, uid_t uid, int64_t now_ns)
{
    int64_t left_ns = find_user(local, uid)->forgiven_ns - now_ns;
    return left_ns > 0 ? left_ns : 0;
}

static void
charge(struct local *local, const struct session *session, uint16_t party, int64_t now_ns)
{
    struct user *user = find_user(local, session->uid);
    if (user->forgiven_ns != 0 && user->roster == session->roster && user->party == party)
        return;
    if (user->forgiven_ns < now_ns)
        user->forgiven_ns = now_ns;
    user->forgiven_ns += FORGIVEN_NS;
    user->roster = session->roster;
    user->party = party;
}

/* ---- one session ---- */

static void
session_close(struct session *session)
{
    loop_watch_remove(session->watch);
    close(session->fd);
    made_region_discard(&session->region);
    *session = (struct session){.local = session->local, .fd = -1, .region.fd = -1};
}

static void
session_count(const struct session *session, enum counter counter)
{
    if (session->pipeline != NULL)
        counter_add(session->pipeline->counters, counter, 1);
}

/* Its region is served no more, and its pages are gone, unless the node stops and the client has
 * left for that. */
static void
session_end(struct session *session)
{
    if (session->roster != NULL)
        roster_guest_dismiss(session->roster, session->number, session->drains);
    session_close(session);
}

static enum status
session_tell(struct session *session, const struct local_word *word, int descriptor)
{
    struct error error = ERROR_NONE;
    enum status status = local_send(session->fd, word, sizeof(*word), descriptor, &error);
    if (status == STATUS_OK)
        return status;
    if (status != STATUS_UNAVAILABLE) /* else it has just gone by itself */
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

/* Tells why, if it can be told, and closes. */
static void
session_refuse(struct session *session, const struct error *error)
{
    say_refused(session->fd, error);
    session_end(session);
}

/* The same of one that was never served. */
static void
session_turn_away(struct session *session, const struct error *error)
{
    log_refused(session->uid, session->pid, error);
    session_count(session, PIPELINE_LOCAL_REFUSED);
    session_refuse(session, error);
}

/* ---- what its guest's roster says ---- */

static void
on_lost(void *context, const char *why)
{
    struct session *session = context;
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_DATA_LOSS, "the node has disconnected this client: %s", why);
    session_count(session, PIPELINE_LOCAL_DROPPED_CORRUPT);
    session->roster = NULL; /* not to be dismissed */
    session_refuse(session, &error);
}

static void
on_party_died(void *context, uint16_t party, bool held)
{
    struct session *session = context;
    struct local *local = session->local;
    int64_t now_ns = clock_now_ns();
    if (held)
        charge(local, session, party, now_ns);
    if (held && penance_ns(local, session->uid, now_ns) > DEATHS_MAX * FORGIVEN_NS) {
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
    struct local_word word = {.version = LOCAL_VERSION, .type = LOCAL_DEATH, .party = party};
    (void)!session_tell(session, &word, -1);
}

static struct pipeline *
find_pipeline(const struct local *local, const char *name)
{
    for (uint32_t i = 0; i < local->pipeline_count; i++)
        if (strcmp(local->pipelines[i]->name, name) == 0)
            return local->pipelines[i];
    return NULL;
}

/* The roster of the lane that serves; NULL: there is none, and `error` says why. */
static struct roster *
find_roster(struct pipeline *pipeline, struct error *error)
{
    const struct lane *lane = atomic_load(&pipeline->serving);
    if (atomic_load(&pipeline->draining) || pipeline->stopping)
        error_set(error, STATUS_UNAVAILABLE, "the node is stopping: it takes no requests");
    else if (lane == NULL || pipeline->rosters[lane->number]->stopping)
        error_set(error, STATUS_UNAVAILABLE, "pipeline \"%s\" is starting: try again",
                  pipeline->name);
    else
        return pipeline->rosters[lane->number];
    return NULL;
}

static void
fill_terms(const struct roster *roster, struct local_word *word)
{
    const struct config_pipeline *config = roster->lane->generation->config;
    *word = (struct local_word){.version = LOCAL_VERSION,
                                .type = LOCAL_WELCOME,
                                .default_timeout_ns = config->default_timeout_ns};
    for (uint32_t i = 0; i < config->stage_count; i++) {
        word->attempts_max[i] = config->stages[i].attempts_max;
        if (roster->staffs[i].abilities & SHOAL_CHANGES_INPUTS)
            word->changes_inputs |= UINT32_C(1) << i;
    }
}

static void on_ends(void *context);
static void on_ended(void *context);

static void on_made(const struct maker_order *order, struct made_region region,
                    const struct error *error);

/* Has a region made for it; one at a time. */
static enum status
session_order(struct session *session, const struct roster *roster, struct error *error)
{
    if (session->making)
        return STATUS_OK;
    struct maker_order order = {.made = on_made,
                                .context = session,
                                .serial = session->serial,
                                .generation = roster->lane->region_generation};
    enum status status = roster_guest_plan(roster, &session->wish, &order.plan, error);
    if (status != STATUS_OK)
        return status;
    session->making = true;
    maker_order(session->local->maker, &order);
    return STATUS_OK;
}

static void
session_welcome(struct session *session, const struct roster *roster)
{
    session->taken = false;
    session_count(session, session->wish.moves ? PIPELINE_LOCAL_MOVED : PIPELINE_LOCAL_WELCOMED);
    log_info_limited("local_client pipeline=%s generation=%llu number=%u uid=%u pid=%d",
                     session->pipeline->name, (unsigned long long)roster->lane->generation->number,
                     session->number, (unsigned)session->uid, (int)session->pid);
    session->wish.moves = true; /* from now on */
    struct local_word word;
    fill_terms(roster, &word);
    (void)!session_tell(session, &word, roster->guests[session->number].fd);
}

/* Gives it a region of the lane that serves, as soon as there is one. Not STATUS_OK: it gets none,
 * and is still connected. */
static enum status
session_bring_in(struct session *session, struct error *error)
{
    struct guest_owner owner = {on_lost, on_ends, on_ended, on_party_died, session};
    struct roster *roster = find_roster(session->pipeline, error);
    if (roster == NULL)
        return error->status;
    session->waits =
        session->region.fd < 0 || session->region_generation != roster->lane->region_generation;
    if (session->waits)
        return session_order(session, roster, error);
    enum status status = roster_guest_admit(roster, &session->wish, &owner, &session->region,
                                            &session->number, error);
    if (status != STATUS_OK)
        return status;
    session->roster = roster;
    session_welcome(session, roster);
    return STATUS_OK;
}

/* It gets none. */
static void
session_leave_out(struct session *session, const struct error *error)
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
session_try(struct session *session)
{
    struct error error = ERROR_NONE;
    if (session_bring_in(session, &error) != STATUS_OK)
        session_leave_out(session, &error);
}

static void
on_made(const struct maker_order *order, struct made_region region, const struct error *error)
{
    struct session *session = order->context;
    if (session->fd < 0 || session->serial != order->serial) { /* it has gone meanwhile */
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

/* A failure is not told here: the next use tries again, and tells. */
static void
on_ends(void *context)
{
    struct session *session = context;
    struct error error = ERROR_NONE;
    const struct roster *roster = session->taken ? find_roster(session->pipeline, &error) : NULL;
    if (roster != NULL)
        (void)!session_order(session, roster, &error);
}

/* A client that has not taken its region yet gets no other: there are two at most for each, however
 * often the pipeline is reloaded while it does not look. */
static void
on_ended(void *context)
{
    struct session *session = context;
    session->roster = NULL;
    if (session->taken)
        session_try(session);
}

/* ---- what the client says ---- */

/* Those that are served, and those that are on their way from one lane to another. */
static uint32_t
count_sessions(const struct local *local, const struct pipeline *pipeline)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < SESSIONS_MAX; i++)
        count += local->sessions[i].fd >= 0 && local->sessions[i].pipeline == pipeline;
    return count;
}

static enum status
judge_hello(const struct session *session, const struct local_hello *hello,
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
on_hello(struct session *session, const struct local_hello *hello)
{
    struct error error = ERROR_NONE;
    struct pipeline *pipeline = find_pipeline(session->local, hello->pipeline);
    enum status status = judge_hello(session, hello, pipeline, &error);
    session->pipeline = pipeline;
    session->wish =
        (struct guest_wish){.slots = hello->slots, .message_bytes = hello->message_bytes};
    if (pipeline != NULL && status == STATUS_OK)
        session_try(session);
    else
        session_turn_away(session, &error);
}

/* False: it is nothing that a client may say now. */
static bool
on_note(struct session *session, const struct local_note *note)
{
    if (note->version == LOCAL_VERSION && note->type == NOTE_TAKEN && session->wish.moves &&
        !session->taken) {
        session->taken = true;
        if (session->roster == NULL)
            session_try(session);
        return true;
    }
    if (note->version == LOCAL_VERSION && note->type == NOTE_DRAINING && !session->drains &&
        session->local->drain_heard_ns != 0) {
        session->drains = true;
        return true;
    }
    return false;
}

static void
on_closed(struct session *session)
{
    log_info_limited("local_client_left pipeline=%s uid=%u pid=%d why=\"closed its socket\"",
                     session->pipeline != NULL ? session->pipeline->name : "",
                     (unsigned)session->uid, (int)session->pid);
    session_count(session, PIPELINE_LOCAL_LEFT);
    session_end(session);
}

/* Ends a session whose client breaks the protocol. */
static void
on_nonsense(struct session *session, const struct error *error)
{
    if (session->pipeline == NULL) {
        struct error refusal = ERROR_NONE;
        error_set(&refusal, STATUS_INVALID_ARGUMENT,
                  "no hello: %s; is the client's libshoal of another version than this node's?",
                  error->text);
        session_turn_away(session, &refusal);
        return;
    }
    log_warn_limited("local_client_dropped pipeline=%s uid=%u pid=%d why=\"says nonsense: %s\"",
                     session->pipeline->name, (unsigned)session->uid, (int)session->pid,
                     error->text);
    session_count(session, PIPELINE_LOCAL_LEFT);
    session_end(session);
}

/* Says hello once, and only notes after that. */
static void
on_session_readable(void *context)
{
    struct session *session = context;
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
        status =
            error_set(&error, STATUS_DATA_LOSS, "note %u, which is not its turn", said.note.type);
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
local_drain(struct local *local)
{
    local->drain_heard_ns = clock_now_ns() + DRAIN_HEARD_NS;
    struct local_word word = {.version = LOCAL_VERSION, .type = LOCAL_DRAIN};
    for (uint32_t i = 0; i < SESSIONS_MAX; i++)
        if (local->sessions[i].fd >= 0 && local->sessions[i].pipeline != NULL)
            (void)!session_tell(&local->sessions[i], &word, -1);
}

uint32_t
local_waits_for(const struct local *local)
{
    bool may_hear = clock_now_ns() < local->drain_heard_ns;
    uint32_t count = 0;
    for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
        const struct session *session = &local->sessions[i];
        count += session->fd >= 0 && session->pipeline != NULL && (may_hear || session->drains);
    }
    return count;
}

/* ---- the socket ---- */

static enum status
peer_check(int fd, struct ucred *peer, struct error *error)
{
    socklen_t bytes = sizeof(*peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &bytes) != 0)
        return error_set_errno(error, "who a local client is");
    if (peer->uid == 0 || peer->uid == geteuid())
        return STATUS_OK;
    return error_set(error, STATUS_PERMISSION_DENIED,
                     "only root and the node's own user may be its local clients");
}

/* A place for one more session: free, or that of who has said nothing for longest. */
static struct session *
make_room(struct local *local, struct error *error)
{
    struct session *silent = NULL;
    for (uint32_t i = 0; i < SESSIONS_MAX; i++) {
        struct session *session = &local->sessions[i];
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
take_client(struct local *local, int fd)
{
    struct error error = ERROR_NONE;
    struct ucred peer = {.uid = (uid_t)-1};
    struct session *session = NULL;
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
    struct local *local = context;
    int fd = accept4(local->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        take_client(local, fd);
        return;
    }
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
        return; /* it has gone again */
    log_warn("local_paused why=\"%s\"", strerror(errno));
    loop_watch_remove(local->watch);
    local->watch = NULL;
    loop_timer_set(local->accept_again, ACCEPT_AGAIN_NS);
}

static void
on_accept_again(void *context)
{
    struct local *local = context;
    local->watch = loop_watch_add(local->loop, local->fd, on_client, local);
}

static enum status
listen_at(struct local *local, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, local->path, sizeof(address.sun_path));
    local->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (local->fd < 0)
        return error_set_errno(error, "socket for local clients");
    unlink(local->path);
    /* made with nobody's rights: there is no moment at which others could connect */
    mode_t before = umask(0177);
    int bound = bind(local->fd, (struct sockaddr *)&address, sizeof(address));
    umask(before);
    if (bound != 0 || listen(local->fd, SOMAXCONN) != 0)
        return error_set_errno(error, "socket for local clients %s", local->path);
    return STATUS_OK;
}

enum status
local_create(struct loop *loop, const char *counters_path, struct pipeline *const *pipelines,
             uint32_t pipeline_count, struct local **created, struct error *error)
{
    struct local *local = calloc(1, sizeof(*local));
    CHECK(local != NULL);
    local->loop = loop;
    local->fd = -1;
    local->pipelines = pipelines;
    local->pipeline_count = pipeline_count;
    for (uint32_t i = 0; i < SESSIONS_MAX; i++)
        local->sessions[i] = (struct session){.local = local, .fd = -1, .region.fd = -1};
    enum status status = local_path(counters_path, local->path, sizeof(local->path), error);
    if (status == STATUS_OK)
        status = listen_at(local, error);
    if (status != STATUS_OK) {
        if (local->fd >= 0)
            close(local->fd);
        free(local);
        return status;
    }
    local->watch = loop_watch_add(loop, local->fd, on_client, local);
    local->accept_again = loop_timer_create(loop, on_accept_again, local);
    local->maker = maker_create(loop);
    *created = local;
    return STATUS_OK;
}

void
local_destroy(struct local *local)
{
    if (local == NULL)
        return;
    for (uint32_t i = 0; i < SESSIONS_MAX; i++)
        if (local->sessions[i].fd >= 0)
            session_close(&local->sessions[i]); /* the pipelines, and their guests, are gone */
    maker_destroy(local->maker);
    unlink(local->path);
    loop_watch_remove(local->watch);
    loop_timer_destroy(local->accept_again);
    close(local->fd);
    free(local);
}
