/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server's connections: accepted here, on a separate thread, and handed to the library.
 *
 * The library can accept by itself, but stops for good when descriptors first run out, and limits
 * neither connections in total nor per machine. Its listener "external:" accepts connections from
 * outside: a pointer argument of the server says where to write the address of a handler, a C++
 * object whose one method takes a descriptor. Nothing in the C interface calls that method, so it
 * is called here through the object's table (Itanium ABI: two entries for the destructor, then the
 * method). Unlike grpc_server_add_channel_from_fd this keeps TLS and the peer's address. The object
 * lives until the server's shutdown begins.
 *
 * A duplicate of each connection's descriptor is kept. It reports the end, since the library shuts
 * a socket down before it closes it (EPOLLHUP), and it can shut one connection down without the
 * library's help. Both need no lock of the library's.
 *
 * A connection from an address that has just flooded the server is held: accepted, but handed over
 * only when penalty.c permits. Nobody reads it meanwhile, so its end is reported by EPOLLRDHUP too.
 *
 * Threads. The accepting thread owns epoll and the list of free entries. It does not call the
 * handler: the library reads what has arrived at once, for as long as more arrives, and a flood
 * would occupy the one thread that can stop it. Stepping threads call it, by a post; such reads
 * delay them in any case. `lock` protects the connections and is not held meanwhile; `handing` is:
 * after rpc_acceptor_stop the handler is not called any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "rpc/internal.h"

enum {
    ACCEPTED_PER_TURN = 64,
    EVENTS_PER_TURN = 64,
    AGAIN_MS = 100,       /* after a lack of descriptors or memory */
    DESCRIPTORS_EACH = 4, /* one in so many of all descriptors is for a connection, which has two */
    VTABLE_HANDLE = 2,    /* index of the handler's method in its table */
};

/* The subject of an event of epoll. */
enum { ABOUT_WAKE, ABOUT_LISTENER, ABOUT_CONNECTION };

struct connection {
    int fd;                  /* our duplicate; -1: the entry is free */
    int handed;              /* the library's, until it takes it; then -1 */
    int listening;           /* the listening socket */
    struct connection *next; /* in `first` of a hand, or in `held` */
    bool is_held;            /* it is in `held` */
    bool is_cut;
    long number;     /* in channelz; until known, a lower bound */
    uint64_t resets; /* since its start */
    uint64_t bucket; /* of rpc_acceptor_fill */
    int64_t filled_ns;
    uint32_t listener;
    uint32_t next_free;
    struct rpc_peer peer;
    struct rpc_linger linger; /* once its server has parted */
};

/* Connections for one queue to take over. */
struct accept_hand {
    struct rpc_post post; /* first member: `run` gets its address */
    struct rpc_acceptor *acceptor;
    struct connection *first; /* under the acceptor's lock */
};

struct rpc_acceptor {
    struct rpc_server *server;
    struct accept_hand *hands; /* one per queue */
    pthread_mutex_t handing;   /* held while the handler is called; taken before `lock` */
    bool stopped_handing;      /* under `handing` */
    bool has_queues;           /* under `lock`: the server's queues exist and may be woken */
    int64_t watch_ns;          /* when to wake them next */
    void **handler;            /* the library's; its first word is the table */
    struct rpc_listener *listeners;
    uint32_t listener_count;
    uint32_t *used; /* connections per listener */
    uint32_t connections_max;
    uint32_t per_peer_max;
    int epoll;
    int wake;
    pthread_t thread;
    bool has_lack;     /* descriptors or memory ran out: accepting pauses */
    bool is_listening; /* epoll watches the listeners */
    pthread_mutex_t lock;
    bool stopped;                   /* under `lock` */
    bool parted;                    /* under `lock`: a successor accepts from now on */
    bool ended;                     /* under `lock` */
    struct rpc_figures figures;     /* under `lock` */
    struct connection *connections; /* under `lock` */
    uint32_t connection_count;      /* entries */
    uint32_t free;                  /* the first free entry; connection_count: none */
    struct rpc_penalties penalties; /* under `lock` */
    struct connection *held; /* under `lock`: connections delayed by a penalty, oldest first */
    uint64_t handed;         /* under `lock`: connections that a queue took, in total */
    long number_max;         /* under `lock`: the largest number that channelz has listed */
};

/* ---- connections, under the lock ---- */

static void
connections_create(struct rpc_acceptor *acceptor)
{
    struct rlimit files;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    uint64_t most = files.rlim_cur / DESCRIPTORS_EACH;
    uint64_t wanted = (uint64_t)acceptor->connections_max * acceptor->listener_count;
    acceptor->connection_count = (uint32_t)(wanted < most ? wanted : most);
    if (acceptor->connection_count == 0)
        acceptor->connection_count = 1;
    if (acceptor->connections_max > acceptor->connection_count)
        acceptor->connections_max = acceptor->connection_count;
    if (acceptor->per_peer_max == 0)
        acceptor->per_peer_max = (acceptor->connections_max + 1) / 2;
    acceptor->connections = rpc_allocate(acceptor->connection_count, sizeof(struct connection));
    for (uint32_t i = 0; i < acceptor->connection_count; i++)
        acceptor->connections[i] = (struct connection){.fd = -1, .handed = -1, .next_free = i + 1};
}

static bool
has_room(const struct rpc_acceptor *acceptor, uint32_t listener, const struct rpc_peer *peer)
{
    if (acceptor->free == acceptor->connection_count ||
        acceptor->used[listener] >= acceptor->connections_max)
        return false;
    if (peer->family == AF_UNIX)
        return true;
    uint32_t of_peer = 0;
    for (uint32_t i = 0; i < acceptor->connection_count; i++)
        of_peer += acceptor->connections[i].fd >= 0 &&
                   rpc_peer_same_machine(&acceptor->connections[i].peer, peer);
    return of_peer < acceptor->per_peer_max;
}

static bool
list_remove(struct connection **first, const struct connection *connection)
{
    struct connection **at = first;
    while (*at != NULL && *at != connection)
        at = &(*at)->next;
    if (*at == NULL)
        return false;
    *at = connection->next;
    return true;
}

/* The connection ended before a stepping thread took it. */
static void
unhand(struct rpc_acceptor *acceptor, struct connection *connection)
{
    bool found = list_remove(&acceptor->held, connection);
    for (size_t i = 0; i < acceptor->server->queue_count && !found; i++)
        found = list_remove(&acceptor->hands[i].first, connection);
    CHECK(found);
    close(connection->handed);
    connection->handed = -1;
}

/* Ends both directions at once. */
static void
connection_shut(struct connection *connection)
{
    rpc_linger_end(&connection->linger);
    (void)shutdown(connection->fd, SHUT_RDWR);
}

static void
connection_close(struct rpc_acceptor *acceptor, uint32_t index)
{
    pthread_mutex_lock(&acceptor->lock);
    struct connection *connection = &acceptor->connections[index];
    CHECK(connection->fd >= 0);
    if (connection->handed >= 0)
        unhand(acceptor, connection);
    rpc_linger_end(&connection->linger);
    /* The library may still have the socket open, so closing this descriptor would not end the
     * watch. */
    CHECK(epoll_ctl(acceptor->epoll, EPOLL_CTL_DEL, connection->fd, NULL) == 0);
    close(connection->fd);
    connection->fd = -1;
    connection->next_free = acceptor->free;
    acceptor->free = index;
    acceptor->used[connection->listener]--;
    acceptor->figures.connections--;
    pthread_mutex_unlock(&acceptor->lock);
}

/* ---- accepting ---- */

/* False: no memory, or no more watches (fs.epoll.max_user_watches). */
static bool
watch(struct rpc_acceptor *acceptor, int operation, int fd, uint32_t events, uint64_t about,
      uint32_t index)
{
    struct epoll_event event = {.events = events, .data.u64 = about << 32 | index};
    return epoll_ctl(acceptor->epoll, operation, fd, &event) == 0;
}

static void
listen_for(struct rpc_acceptor *acceptor, bool listens)
{
    pthread_mutex_lock(&acceptor->lock);
    for (uint32_t i = 0; i < acceptor->listener_count && !acceptor->stopped; i++)
        for (uint32_t k = 0; k < acceptor->listeners[i].fd_count; k++)
            CHECK(watch(acceptor, EPOLL_CTL_MOD, acceptor->listeners[i].fds[k],
                        listens ? EPOLLIN : 0, ABOUT_LISTENER, i * RPC_LISTENER_FDS_MAX + k));
    pthread_mutex_unlock(&acceptor->lock);
    acceptor->is_listening = listens;
}

/* New connections wait in the kernel meanwhile. */
static void
on_lack(struct rpc_acceptor *acceptor, int code)
{
    if (!acceptor->has_lack)
        log_warn_limited("grpc_not_accepting why=\"%s\"", strerror(code));
    acceptor->has_lack = true;
    pthread_mutex_lock(&acceptor->lock);
    acceptor->figures.lacks++;
    acceptor->figures.is_accepting = false;
    pthread_mutex_unlock(&acceptor->lock);
    listen_for(acceptor, false);
}

static void
on_plenty(struct rpc_acceptor *acceptor)
{
    if (!acceptor->has_lack)
        return;
    log_info_limited("grpc_accepting");
    acceptor->has_lack = false;
    pthread_mutex_lock(&acceptor->lock);
    acceptor->figures.is_accepting = true;
    pthread_mutex_unlock(&acceptor->lock);
}

/* The library takes over `fd`. Under `handing`, so that the handler still exists. */
static void
call_handler(struct rpc_acceptor *acceptor, int listening, int fd)
{
    void (**table)(void *, int, int, grpc_byte_buffer *) =
        (void (**)(void *, int, int, grpc_byte_buffer *))(*acceptor->handler);
    table[VTABLE_HANDLE](acceptor->handler, listening, fd, NULL);
}

static void
give(struct rpc_acceptor *acceptor, int listening, int fd)
{
    pthread_mutex_lock(&acceptor->handing);
    bool stopped = acceptor->stopped_handing;
    if (!stopped)
        call_handler(acceptor, listening, fd);
    pthread_mutex_unlock(&acceptor->handing);
    if (!stopped)
        return;
    (void)shutdown(fd, SHUT_RDWR);
    close(fd);
}

/* Runs on a stepping thread. */
static void
give_all(struct rpc_post *post)
{
    struct accept_hand *hand = (struct accept_hand *)post;
    struct rpc_acceptor *acceptor = hand->acceptor;
    for (;;) {
        pthread_mutex_lock(&acceptor->lock);
        struct connection *connection = hand->first;
        int fd = -1;
        int listening = -1;
        if (connection != NULL) {
            fd = connection->handed;
            listening = connection->listening;
            hand->first = connection->next;
            connection->handed = -1;
            connection->number = acceptor->number_max + 1;
        }
        pthread_mutex_unlock(&acceptor->lock);
        if (connection == NULL)
            return;
        give(acceptor, listening, fd);
    }
}

/* Passes it to a stepping thread. Under the lock. */
static void
hand_over(struct rpc_acceptor *acceptor, struct connection *connection)
{
    size_t queue = acceptor->handed++ % acceptor->server->queue_count;
    struct accept_hand *hand = &acceptor->hands[queue];
    connection->is_held = false;
    connection->next = hand->first;
    hand->first = connection;
    rpc_queue_post(rpc_server_queue(acceptor->server, queue), &hand->post);
}

/* Holds it until its address may have another connection. Under the lock. */
static void
hold(struct rpc_acceptor *acceptor, struct connection *connection)
{
    struct connection **end = &acceptor->held;
    while (*end != NULL)
        end = &(*end)->next;
    *end = connection;
    connection->is_held = true;
    acceptor->figures.held++;
}

/* Hands over the connections that are due. Returns when the next one is due, or TIME_NEVER_NS. */
static int64_t
release_held(struct rpc_acceptor *acceptor, int64_t now_ns)
{
    int64_t next_ns = TIME_NEVER_NS;
    pthread_mutex_lock(&acceptor->lock);
    for (struct connection **at = &acceptor->held; *at != NULL && !acceptor->stopped;) {
        struct connection *connection = *at;
        int64_t until_ns = rpc_penalties_until(&acceptor->penalties, &connection->peer);
        if (until_ns > now_ns) {
            next_ns = until_ns < next_ns ? until_ns : next_ns;
            at = &connection->next;
            continue;
        }
        *at = connection->next;
        rpc_penalties_step(&acceptor->penalties, &connection->peer, now_ns);
        hand_over(acceptor, connection);
    }
    pthread_mutex_unlock(&acceptor->lock);
    return next_ns;
}

/* Under the lock since it was accepted: a connection that is not counted yet would be missed by
 * those who wait until none is left. Returns 0, or the error of the missing resource. */
static int
take(struct rpc_acceptor *acceptor, uint32_t listener, int listening, int fd,
     const struct sockaddr_storage *address)
{
    struct rpc_peer peer = rpc_peer_of(address);
    int code = 0;
    bool taken = !acceptor->stopped && has_room(acceptor, listener, &peer);
    int copy = taken ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    /* EPOLLHUP is always reported; EPOLLRDHUP is for connections that the library does not read. */
    bool is_kept = copy >= 0 && watch(acceptor, EPOLL_CTL_ADD, copy, EPOLLET | EPOLLRDHUP,
                                      ABOUT_CONNECTION, acceptor->free);
    if (is_kept) {
        struct connection *connection = &acceptor->connections[acceptor->free];
        acceptor->free = connection->next_free;
        *connection = (struct connection){
            .fd = copy, .handed = fd, .listening = listening, .listener = listener, .peer = peer};
        acceptor->used[listener]++;
        acceptor->figures.connections++;
        acceptor->figures.accepted++;
        if (rpc_penalties_until(&acceptor->penalties, &peer) > clock_now_ns())
            hold(acceptor, connection);
        else
            hand_over(acceptor, connection);
    } else {
        code = taken ? errno : 0;
        acceptor->figures.refused++;
        if (copy >= 0)
            close(copy);
        close(fd);
    }
    return code;
}

static bool
is_lack(int code)
{
    return code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM || code == ENOSPC;
}

/* Accepts a limited number of connections from one socket; epoll reports the rest again. */
static void
accept_some(struct rpc_acceptor *acceptor, uint32_t number)
{
    const uint32_t listener = number / RPC_LISTENER_FDS_MAX;
    const int *socket = &acceptor->listeners[listener].fds[number % RPC_LISTENER_FDS_MAX];
    for (int i = 0; i < ACCEPTED_PER_TURN; i++) {
        struct sockaddr_storage address = {.ss_family = AF_UNIX};
        socklen_t bytes = sizeof(address);
        /* rpc_acceptor_stop may have closed it and its number may have been reused. */
        pthread_mutex_lock(&acceptor->lock);
        int listening = acceptor->stopped || acceptor->parted ? -1 : *socket;
        int fd =
            accept4(listening, (struct sockaddr *)&address, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        int code = fd < 0 ? errno : take(acceptor, listener, listening, fd, &address);
        pthread_mutex_unlock(&acceptor->lock);
        if (is_lack(code)) {
            on_lack(acceptor, code);
            return;
        }
        if (code == EAGAIN || code == EBADF || code == EINVAL)
            break; /* none left; or closed by rpc_acceptor_stop */
        /* Otherwise a connection was taken, or failed before it was accepted. */
    }
    on_plenty(acceptor);
}

/* ---- the thread ---- */

static bool
is_held(struct rpc_acceptor *acceptor, uint32_t index)
{
    pthread_mutex_lock(&acceptor->lock);
    bool held = acceptor->connections[index].is_held;
    pthread_mutex_unlock(&acceptor->lock);
    return held;
}

/* Returns true if a connection has ended. */
static bool
on_event(struct rpc_acceptor *acceptor, const struct epoll_event *event)
{
    uint32_t index = (uint32_t)event->data.u64;
    uint64_t count;
    switch (event->data.u64 >> 32) {
    case ABOUT_WAKE: (void)!read(acceptor->wake, &count, sizeof(count)); return false;
    case ABOUT_LISTENER: accept_some(acceptor, index); return false;
    default:
        if ((event->events & EPOLLHUP) == 0 && !is_held(acceptor, index))
            return false;
        connection_close(acceptor, index);
        return true;
    }
}

/* Returns when to look again; TIME_NEVER_NS: at the next connection. */
static int64_t
look_for_floods(struct rpc_acceptor *acceptor)
{
    struct rpc_server *server = acceptor->server;
    pthread_mutex_lock(&acceptor->lock);
    struct rpc_call_counts counts = {
        .connections = acceptor->figures.connections,
        .handed = acceptor->handed,
        .released = atomic_load_explicit(&server->released, memory_order_relaxed)};
    pthread_mutex_unlock(&acceptor->lock);
    counts.arrived = atomic_load_explicit(&server->arrived, memory_order_relaxed);
    return rpc_flood_look(server->flood, acceptor, &counts);
}

/* Returns how long to wait for an event at most. While there are connections, the queues check
 * their calls periodically. */
static int
wake_queues(struct rpc_acceptor *acceptor)
{
    int64_t now_ns = clock_now_ns();
    int64_t held_ns = release_held(acceptor, now_ns);
    int64_t look_ns = look_for_floods(acceptor);
    look_ns = look_ns < held_ns ? look_ns : held_ns;
    pthread_mutex_lock(&acceptor->lock);
    bool watches = acceptor->has_queues && acceptor->figures.connections > 0;
    if (watches && now_ns >= acceptor->watch_ns) {
        acceptor->watch_ns = now_ns + RPC_WATCH_MS * (int64_t)NS_PER_MS;
        for (size_t i = 0; i < acceptor->server->queue_count; i++) {
            struct rpc_queue *queue = rpc_server_queue(acceptor->server, i);
            atomic_store_explicit(&queue->is_watch_due, true, memory_order_release);
            rpc_queue_wake(queue);
        }
    }
    pthread_mutex_unlock(&acceptor->lock);
    if (!acceptor->is_listening)
        return AGAIN_MS;
    if (look_ns == TIME_NEVER_NS)
        return watches ? RPC_WATCH_MS : -1;
    int64_t wait_ms = (look_ns - now_ns) / NS_PER_MS + 1;
    return wait_ms < 1 ? 1 : wait_ms < RPC_WATCH_MS ? (int)wait_ms : RPC_WATCH_MS;
}

static bool
has_ended(struct rpc_acceptor *acceptor)
{
    pthread_mutex_lock(&acceptor->lock);
    bool ended = acceptor->ended;
    pthread_mutex_unlock(&acceptor->lock);
    return ended;
}

static void *
acceptor_run(void *context)
{
    struct rpc_acceptor *acceptor = context;
    pthread_setname_np(pthread_self(), "shoald:accept");
    struct epoll_event events[EVENTS_PER_TURN];
    while (!has_ended(acceptor)) {
        int count = epoll_wait(acceptor->epoll, events, EVENTS_PER_TURN, wake_queues(acceptor));
        bool relieved = count == 0;
        for (int i = 0; i < count; i++)
            relieved = on_event(acceptor, &events[i]) || relieved;
        if (!acceptor->is_listening && relieved)
            listen_for(acceptor, true);
    }
    return NULL;
}

/* ---- life ---- */

struct rpc_acceptor *
rpc_acceptor_create(const struct rpc_acceptor_options *options)
{
    struct rpc_acceptor *acceptor = rpc_allocate(1, sizeof(*acceptor));
    acceptor->server = options->server;
    acceptor->has_queues = options->server->send_timeout_ns > 0;
    acceptor->handler = options->handler;
    acceptor->listeners = options->listeners;
    acceptor->listener_count = (uint32_t)options->listener_count;
    acceptor->used = rpc_allocate(options->listener_count, sizeof(*acceptor->used));
    acceptor->connections_max =
        options->connections_max > 0 ? (uint32_t)options->connections_max : RPC_CONNECTIONS_DEFAULT;
    acceptor->per_peer_max = (uint32_t)options->connections_per_peer_max;
    acceptor->figures.is_accepting = true;
    acceptor->is_listening = true;
    CHECK(pthread_mutex_init(&acceptor->lock, NULL) == 0);
    CHECK(pthread_mutex_init(&acceptor->handing, NULL) == 0);
    acceptor->hands = rpc_allocate(options->server->queue_count, sizeof(*acceptor->hands));
    for (size_t i = 0; i < options->server->queue_count; i++)
        acceptor->hands[i] = (struct accept_hand){.post.run = give_all, .acceptor = acceptor};
    connections_create(acceptor);
    acceptor->epoll = epoll_create1(EPOLL_CLOEXEC);
    acceptor->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(acceptor->epoll >= 0 && acceptor->wake >= 0);
    CHECK(watch(acceptor, EPOLL_CTL_ADD, acceptor->wake, EPOLLIN, ABOUT_WAKE, 0));
    CHECK(pthread_create(&acceptor->thread, NULL, acceptor_run, acceptor) == 0);
    return acceptor;
}

void
rpc_acceptor_open(struct rpc_acceptor *acceptor)
{
    pthread_mutex_lock(&acceptor->lock);
    for (uint32_t i = 0; i < acceptor->listener_count; i++)
        for (uint32_t k = 0; k < acceptor->listeners[i].fd_count; k++)
            CHECK(watch(acceptor, EPOLL_CTL_ADD, acceptor->listeners[i].fds[k], EPOLLIN,
                        ABOUT_LISTENER, i * RPC_LISTENER_FDS_MAX + k));
    pthread_mutex_unlock(&acceptor->lock);
}

/* Another process may have the sockets open, too, so closing them would not end the watch. Under
 * the lock. */
static void
close_listeners(struct rpc_acceptor *acceptor)
{
    for (uint32_t i = 0; i < acceptor->listener_count; i++) {
        struct rpc_listener *listener = &acceptor->listeners[i];
        for (uint32_t k = 0; k < listener->fd_count; k++)
            (void)epoll_ctl(acceptor->epoll, EPOLL_CTL_DEL, listener->fds[k], NULL);
        rpc_listener_shut(listener);
    }
}

void
rpc_acceptor_part(struct rpc_acceptor *acceptor)
{
    pthread_mutex_lock(&acceptor->lock);
    for (uint32_t i = 0; i < acceptor->connection_count && !acceptor->parted; i++)
        if (acceptor->connections[i].fd >= 0)
            rpc_linger_begin(&acceptor->connections[i].linger, acceptor->connections[i].fd);
    acceptor->parted = true;
    close_listeners(acceptor);
    pthread_mutex_unlock(&acceptor->lock);
}

void
rpc_acceptor_close(struct rpc_acceptor *acceptor)
{
    pthread_mutex_lock(&acceptor->lock);
    acceptor->stopped = true;
    close_listeners(acceptor);
    for (struct connection *held = acceptor->held; held != NULL; held = held->next)
        connection_shut(held);
    pthread_mutex_unlock(&acceptor->lock);
}

static void
stop_handing(struct rpc_acceptor *acceptor)
{
    pthread_mutex_lock(&acceptor->handing);
    acceptor->stopped_handing = true;
    pthread_mutex_unlock(&acceptor->handing);
}

void
rpc_acceptor_stop(struct rpc_acceptor *acceptor)
{
    stop_handing(acceptor);
    rpc_acceptor_close(acceptor);
}

void
rpc_acceptor_shut(struct rpc_acceptor *acceptor)
{
    stop_handing(acceptor);
    pthread_mutex_lock(&acceptor->lock);
    for (uint32_t i = 0; i < acceptor->connection_count; i++)
        if (acceptor->connections[i].fd >= 0)
            connection_shut(&acceptor->connections[i]);
    pthread_mutex_unlock(&acceptor->lock);
}

void
rpc_acceptor_destroy(struct rpc_acceptor *acceptor)
{
    pthread_mutex_lock(&acceptor->lock);
    acceptor->ended = true;
    pthread_mutex_unlock(&acceptor->lock);
    uint64_t one = 1;
    CHECK(write(acceptor->wake, &one, sizeof(one)) == (ssize_t)sizeof(one));
    CHECK(pthread_join(acceptor->thread, NULL) == 0);
    for (uint32_t i = 0; i < acceptor->connection_count; i++) {
        rpc_linger_end(&acceptor->connections[i].linger);
        if (acceptor->connections[i].fd >= 0)
            close(acceptor->connections[i].fd);
        if (acceptor->connections[i].handed >= 0)
            close(acceptor->connections[i].handed);
    }
    close(acceptor->epoll);
    close(acceptor->wake);
    pthread_mutex_destroy(&acceptor->lock);
    pthread_mutex_destroy(&acceptor->handing);
    free(acceptor->hands);
    free(acceptor->connections);
    free(acceptor->used);
    free(acceptor);
}

/* ---- any thread ---- */

struct rpc_figures
rpc_acceptor_figures(struct rpc_acceptor *acceptor)
{
    pthread_mutex_lock(&acceptor->lock);
    struct rpc_figures figures = acceptor->figures;
    pthread_mutex_unlock(&acceptor->lock);
    return figures;
}

/* Discards unread input: the library would read it first, for as long as the attack lasted. */
static void
connection_abort(struct connection *connection)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    if (connect(connection->fd, &none, sizeof(none)) < 0)
        connection_shut(connection);
}

void
rpc_acceptor_count_cut(struct rpc_acceptor *acceptor)
{
    pthread_mutex_lock(&acceptor->lock);
    acceptor->figures.cut++;
    pthread_mutex_unlock(&acceptor->lock);
}

void
rpc_acceptor_forget_queues(struct rpc_acceptor *acceptor)
{
    pthread_mutex_lock(&acceptor->lock);
    acceptor->has_queues = false;
    pthread_mutex_unlock(&acceptor->lock);
}

/* The library's connection with that peer; NULL: none any more. Under the lock. */
static struct connection *
find(struct rpc_acceptor *acceptor, const struct rpc_peer *peer)
{
    for (uint32_t i = 0; i < acceptor->connection_count; i++) {
        struct connection *connection = &acceptor->connections[i];
        if (connection->fd >= 0 && connection->handed < 0 && !connection->is_cut &&
            rpc_peer_same(&connection->peer, peer))
            return connection;
    }
    return NULL;
}

/* Like find(), for a connection that channelz lists. It lists one for a moment after its end, when
 * the peer's port may already belong to a new connection, which must be spared. The old one's
 * number is smaller than any that channelz lists for the first time after the new one was handed
 * over. */
static struct connection *
find_listed(struct rpc_acceptor *acceptor, const struct rpc_peer *peer, long number)
{
    if (number > acceptor->number_max)
        acceptor->number_max = number;
    struct connection *connection = find(acceptor, peer);
    return connection != NULL && number >= connection->number ? connection : NULL;
}

static void
cut(struct rpc_acceptor *acceptor, struct connection *connection)
{
    connection->is_cut = true;
    acceptor->figures.cut++;
    connection_abort(connection);
}

bool
rpc_acceptor_cut(struct rpc_acceptor *acceptor, const char *peer_text)
{
    struct rpc_peer peer;
    if (!rpc_peer_parse(peer_text, &peer))
        return false;
    pthread_mutex_lock(&acceptor->lock);
    struct connection *connection = find(acceptor, &peer);
    if (connection != NULL)
        cut(acceptor, connection);
    pthread_mutex_unlock(&acceptor->lock);
    return true;
}

bool
rpc_acceptor_cut_flood(struct rpc_acceptor *acceptor, const char *peer_text, long number,
                       int64_t now_ns)
{
    struct rpc_peer peer;
    if (!rpc_peer_parse(peer_text, &peer))
        return false;
    pthread_mutex_lock(&acceptor->lock);
    struct connection *connection = find_listed(acceptor, &peer, number);
    if (connection != NULL) {
        cut(acceptor, connection);
        rpc_penalties_add(&acceptor->penalties, &peer, now_ns);
    }
    pthread_mutex_unlock(&acceptor->lock);
    return true;
}

uint64_t
rpc_acceptor_fill(struct rpc_acceptor *acceptor, const struct rpc_socket_figures *figures,
                  uint64_t per_s, int64_t now_ns)
{
    struct rpc_peer peer;
    uint64_t bucket = 0;
    if (!rpc_peer_parse(figures->peer, &peer))
        return 0;
    pthread_mutex_lock(&acceptor->lock);
    struct connection *connection = find_listed(acceptor, &peer, figures->number);
    if (connection != NULL) {
        if (figures->number > connection->number) {
            connection->number = figures->number;
            connection->resets = 0;
            connection->bucket = 0;
        }
        uint64_t leaked = (uint64_t)((now_ns - connection->filled_ns) / NS_PER_MS) * per_s / 1000;
        bucket = connection->bucket > leaked ? connection->bucket - leaked : 0;
        bucket += figures->resets - connection->resets;
        connection->bucket = bucket;
        connection->resets = figures->resets;
        connection->filled_ns = now_ns;
    }
    pthread_mutex_unlock(&acceptor->lock);
    return bucket;
}
