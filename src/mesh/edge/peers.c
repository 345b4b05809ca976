/* SPDX-License-Identifier: Apache-2.0 */
/* The address book, and what the driver is given. Locks: the book's before a link's. */
#include "mesh/edge/peers.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/edge/peer_link.h"
#include "mesh/edge/skew.h"

enum { SHELVES_FIRST = 64 };

/* An entry of the book. */
struct peer {
    struct peer *next; /* on the shelf of its id's hash */
    char *instance;
    char *address;
    struct link *links[]; /* by queue; NULL: nothing has gone there yet */
};

struct peers {
    struct peers_options options;
    char *instance;
    struct peer_scratch *scratches; /* by queue */
    struct skew *skew;
    pthread_mutex_t lock; /* of what follows */
    bool is_closed;
    struct peer **shelves;
    uint32_t shelf_count;
    uint32_t peer_count;
    struct link *links; /* all there are */
    struct link *free;
};

const struct peers_options *
peers_options_of(const struct peers *peers)
{
    return &peers->options;
}

struct skew *
peers_skew(const struct peers *peers)
{
    return peers->skew;
}

/* ---- metadata ---- */

static bool
begins(const struct rpc_metadata *entry, const char *with)
{
    size_t bytes = strlen(with);
    return entry->key.bytes >= bytes && memcmp(entry->key.data, with, bytes) == 0;
}

static bool
is(const struct rpc_metadata *entry, const char *key)
{
    return entry->key.bytes == strlen(key) && begins(entry, key);
}

bool
peers_pass_on(const struct rpc_metadata *entry)
{
    return !begins(entry, "mm-") && !begins(entry, "grpc-") && !is(entry, "tas-model-id") &&
           !is(entry, "content-type") && !is(entry, "user-agent") && !is(entry, "host");
}

/* ---- the book: locked ---- */

/* FNV-1a. Who chooses ids can write to the registry, and need not hash to do harm. */
static uint32_t
hash(const char *text)
{
    uint32_t sum = 2166136261u;
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++)
        sum = (sum ^ *at) * 16777619u;
    return sum;
}

static struct peer **
shelf_of(const struct peers *peers, const char *instance)
{
    return &peers->shelves[hash(instance) & (peers->shelf_count - 1)];
}

/* The link that points to it, or the end of its shelf. */
static struct peer **
find(const struct peers *peers, const char *instance)
{
    struct peer **at = shelf_of(peers, instance);
    while (*at != NULL && strcmp((*at)->instance, instance) != 0)
        at = &(*at)->next;
    return at;
}

static void
shelves_grow(struct peers *peers)
{
    struct peer **old = peers->shelves;
    uint32_t count = peers->shelf_count;
    peers->shelf_count = count == 0 ? SHELVES_FIRST : count * 2;
    peers->shelves = calloc(peers->shelf_count, sizeof(struct peer *));
    CHECK(peers->shelves != NULL);
    for (uint32_t i = 0; i < count; i++)
        for (struct peer *peer = old[i], *next; peer != NULL; peer = next) {
            struct peer **shelf = shelf_of(peers, peer->instance);
            next = peer->next;
            peer->next = *shelf;
            *shelf = peer;
        }
    free(old);
}

static void
peer_free(struct peer *peer)
{
    free(peer->instance);
    free(peer->address);
    free(peer);
}

static char *
copy(const char *text)
{
    char *copied = strdup(text);
    CHECK(copied != NULL);
    return copied;
}

static void
peer_add(struct peers *peers, const struct driver_peer *from)
{
    if (peers->peer_count == peers->shelf_count)
        shelves_grow(peers);
    struct peer *peer =
        calloc(1, sizeof(*peer) + peers->options.queue_count * sizeof(struct link *));
    CHECK(peer != NULL);
    peer->instance = copy(from->instance);
    peer->address = copy(from->address);
    struct peer **shelf = shelf_of(peers, peer->instance);
    peer->next = *shelf;
    *shelf = peer;
    peers->peer_count++;
}

static struct peer *
peer_take(struct peers *peers, struct peer **at)
{
    struct peer *peer = *at;
    *at = peer->next;
    peers->peer_count--;
    return peer;
}

/* ---- links ---- */

/* Locked. */
static struct link *
link_take(struct peers *peers, const struct peer *peer, uint32_t queue)
{
    struct link *link = peers->free;
    if (link != NULL) {
        peers->free = link->next_free;
    } else {
        link = malloc(sizeof(*link));
        CHECK(link != NULL);
        link_init(link, peers);
        link->next = peers->links;
        peers->links = link;
    }
    pthread_mutex_lock(&link->lock);
    link->instance = copy(peer->instance);
    link->address = copy(peer->address);
    link->scratch = &peers->scratches[queue];
    link->is_leaving = link->has_warned = false;
    link->unreachable_ns = 0;
    pthread_mutex_unlock(&link->lock);
    return link;
}

void
peers_link_free(struct peers *peers, struct link *link)
{
    pthread_mutex_lock(&link->lock);
    rpc_client_destroy(link->client);
    link->client = NULL;
    free(link->instance);
    free(link->address);
    link->instance = link->address = NULL;
    pthread_mutex_unlock(&link->lock);
    pthread_mutex_lock(&peers->lock);
    link->next_free = peers->free;
    peers->free = link;
    pthread_mutex_unlock(&peers->lock);
}

/* The way to that peer from that queue, locked and open; NULL: it is not to be reached. */
static struct link *
link_to(struct peers *peers, const char *instance, uint32_t queue)
{
    CHECK(queue < peers->options.queue_count);
    pthread_mutex_lock(&peers->lock);
    struct peer *peer = peers->is_closed ? NULL : *find(peers, instance);
    struct link *link = NULL;
    if (peer != NULL && peer->address[0] != '\0') {
        if (peer->links[queue] == NULL)
            peer->links[queue] = link_take(peers, peer, queue);
        link = peer->links[queue];
        pthread_mutex_lock(&link->lock);
        if (!link_open(link, &peers->options)) {
            pthread_mutex_unlock(&link->lock);
            link = NULL;
        }
    }
    pthread_mutex_unlock(&peers->lock);
    return link;
}

/* The links of a peer that is no longer in the book. */
static void
peer_leave(struct peers *peers, struct peer *peer)
{
    for (uint32_t i = 0; i < peers->options.queue_count; i++)
        if (peer->links[i] != NULL)
            link_leave(peer->links[i]);
    peer_free(peer);
}

/* ---- what the driver is given ---- */

static enum driver_begun
forward(void *context, struct driver_call *call, const struct driver_attempt *attempt,
        struct driver_end *end)
{
    struct link *link = link_to(context, attempt->instance, call->request->queue);
    *end = (struct driver_end){.end = MESH_END_UNREACHABLE};
    if (link == NULL)
        return DRIVER_ENDED;
    enum driver_begun begun = link_forward(link, attempt, call->request, end);
    pthread_mutex_unlock(&link->lock);
    return begun;
}

static bool
abandon(void *context, struct driver_call *call, uint32_t number)
{
    struct peer_request *request = call->request;
    (void)context;
    if (!link_abandon(request->link, request, number))
        return false;
    request->type->release(request);
    return true;
}

static bool
ensure(void *context, const struct driver_ensure *wanted)
{
    struct link *link = link_to(context, wanted->instance, 0);
    if (link == NULL)
        return false;
    link_ensure(link, wanted);
    pthread_mutex_unlock(&link->lock);
    return true;
}

static void
on_peer(void *context, const struct driver_peer *peer)
{
    struct peers *peers = context;
    struct peer *moved = NULL;
    pthread_mutex_lock(&peers->lock);
    struct peer **at = find(peers, peer->instance);
    if (*at != NULL && strcmp((*at)->address, peer->address) != 0)
        moved = peer_take(peers, at);
    if (*find(peers, peer->instance) == NULL)
        peer_add(peers, peer);
    pthread_mutex_unlock(&peers->lock);
    if (moved != NULL)
        peer_leave(peers, moved);
}

static void
on_peer_gone(void *context, const char *instance)
{
    struct peers *peers = context;
    pthread_mutex_lock(&peers->lock);
    struct peer **at = find(peers, instance);
    struct peer *gone = *at == NULL ? NULL : peer_take(peers, at);
    pthread_mutex_unlock(&peers->lock);
    skew_forget(peers->skew, instance);
    if (gone != NULL)
        peer_leave(peers, gone);
}

struct driver_peers
peers_for_driver(struct peers *peers)
{
    return (struct driver_peers){.context = peers,
                                 .forward = forward,
                                 .abandon = abandon,
                                 .ensure = ensure,
                                 .skew = peers->skew,
                                 .on_peer = on_peer,
                                 .on_peer_gone = on_peer_gone};
}

/* ---- looking at it ---- */

/* Locked. */
static bool
is_connected(const struct peers *peers, const struct peer *peer)
{
    bool connected = false;
    for (uint32_t i = 0; i < peers->options.queue_count && !connected; i++) {
        struct link *link = peer->links[i];
        if (link == NULL)
            continue;
        pthread_mutex_lock(&link->lock);
        connected = link->call != NULL && link->has_heard;
        pthread_mutex_unlock(&link->lock);
    }
    return connected;
}

void
peers_look(struct peers *peers, struct peers_view *view)
{
    *view = (struct peers_view){0};
    pthread_mutex_lock(&peers->lock);
    for (uint32_t i = 0; i < peers->shelf_count; i++)
        for (const struct peer *peer = peers->shelves[i]; peer != NULL; peer = peer->next)
            view->connected += is_connected(peers, peer);
    for (struct link *link = peers->links; link != NULL; link = link->next) {
        pthread_mutex_lock(&link->lock);
        view->calls += link->slots.used_count;
        view->sent_bytes += link->sent_bytes;
        view->received_bytes += link->received_bytes;
        pthread_mutex_unlock(&link->lock);
    }
    pthread_mutex_unlock(&peers->lock);
}

/* Locked. 0: it is connected, or nothing has gone there. */
static int64_t
unreachable_ns(const struct peers *peers, const struct peer *peer)
{
    int64_t since_ns = 0;
    for (uint32_t i = 0; i < peers->options.queue_count; i++) {
        struct link *link = peer->links[i];
        if (link == NULL)
            continue;
        pthread_mutex_lock(&link->lock);
        if (link->unreachable_ns != 0 && (since_ns == 0 || link->unreachable_ns < since_ns))
            since_ns = link->unreachable_ns;
        pthread_mutex_unlock(&link->lock);
    }
    return since_ns != 0 && !is_connected(peers, peer) ? since_ns : 0;
}

int64_t
peers_unreachable_ns(struct peers *peers, const char *instance)
{
    pthread_mutex_lock(&peers->lock);
    const struct peer *peer = *find(peers, instance);
    int64_t since_ns = peer == NULL ? 0 : unreachable_ns(peers, peer);
    pthread_mutex_unlock(&peers->lock);
    return since_ns;
}

/* Locked. Over the link of the first queue; one that is lost is probed. */
static void
ask_clock(struct peers *peers, struct peer *peer)
{
    if (peer->address[0] == '\0' || !skew_ask(peers->skew, peer->instance))
        return;
    if (peer->links[0] == NULL)
        peer->links[0] = link_take(peers, peer, 0);
    struct link *link = peer->links[0];
    pthread_mutex_lock(&link->lock);
    if (link->unreachable_ns == 0 && link_open(link, &peers->options))
        link_ask_clock(link);
    pthread_mutex_unlock(&link->lock);
}

static void
ask_clocks(struct peers *peers)
{
    pthread_mutex_lock(&peers->lock);
    for (uint32_t i = 0; i < peers->shelf_count && !peers->is_closed; i++)
        for (struct peer *peer = peers->shelves[i]; peer != NULL; peer = peer->next)
            ask_clock(peers, peer);
    pthread_mutex_unlock(&peers->lock);
}

void
peers_probe(struct peers *peers)
{
    ask_clocks(peers);
    skew_watch(peers->skew);
    pthread_mutex_lock(&peers->lock);
    for (struct link *link = peers->is_closed ? NULL : peers->links; link != NULL;
         link = link->next) {
        pthread_mutex_lock(&link->lock);
        link_probe(link, &peers->options);
        pthread_mutex_unlock(&link->lock);
    }
    pthread_mutex_unlock(&peers->lock);
}

/* ---- life ---- */

struct peers *
peers_create(const struct peers_options *options)
{
    struct peers *peers = calloc(1, sizeof(*peers));
    CHECK(peers != NULL);
    peers->options = *options;
    peers->options.instance = peers->instance = copy(options->instance);
    peers->skew = skew_create(options->instance);
    peers->scratches = calloc(options->queue_count, sizeof(*peers->scratches));
    CHECK(peers->scratches != NULL);
    for (uint32_t i = 0; i < options->queue_count; i++)
        peers->scratches[i].queue = options->queues[i];
    pthread_mutex_init(&peers->lock, NULL);
    shelves_grow(peers);
    return peers;
}

void
peers_close(struct peers *peers)
{
    pthread_mutex_lock(&peers->lock);
    peers->is_closed = true;
    struct link *first = peers->links;
    pthread_mutex_unlock(&peers->lock);
    for (struct link *link = first; link != NULL; link = link->next)
        link_close(link);
}

void
peers_destroy(struct peers *peers)
{
    if (peers == NULL)
        return;
    for (uint32_t i = 0; i < peers->shelf_count; i++)
        while (peers->shelves[i] != NULL)
            peer_free(peer_take(peers, &peers->shelves[i]));
    for (struct link *link = peers->links, *next; link != NULL; link = next) {
        next = link->next;
        link_fini(link);
        free(link);
    }
    free(peers->shelves);
    free(peers->scratches);
    skew_destroy(peers->skew);
    free(peers->instance);
    pthread_mutex_destroy(&peers->lock);
    free(peers);
}
