/* SPDX-License-Identifier: Apache-2.0 */
/* The address book, and the interface for the runner. Locks: the book's before a link's. */
#include "mesh/edge/peers.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/hash_table.h"
#include "base/memory.h"
#include "mesh/edge/peer_link.h"
#include "mesh/edge/skew.h"

/* An entry of the address book. */
struct peer {
    struct hash_entry entry;
    char *instance;
    char *address;
    struct peer_link *links[]; /* by queue; NULL: not used yet */
};

struct peers {
    struct peers_options options;
    char *instance;
    struct peer_scratch *scratches; /* by queue */
    struct skew *skew;
    pthread_mutex_t lock; /* of the fields below */
    bool is_closed;
    struct hash_table book;  /* of peers */
    struct peer_link *links; /* all links */
    struct peer_link *free;
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

/* Unseeded: a client that chooses ids can write to the registry and needs no collisions to do
 * harm. */
static uint64_t
hash_of(const char *instance)
{
    return hash_fnv1a(HASH_FNV1A_SEED, instance, strlen(instance));
}

static struct peer *
find(const struct peers *peers, const char *instance)
{
    struct hash_entry *at = hash_table_first(&peers->book, hash_of(instance));
    while (at != NULL && strcmp(((struct peer *)at)->instance, instance) != 0)
        at = hash_table_next(at);
    return (struct peer *)at;
}

/* The peer after `before` (NULL: the first); NULL: none. */
static struct peer *
walk(const struct peers *peers, const struct peer *before)
{
    return (struct peer *)hash_table_walk(&peers->book, before == NULL ? NULL : &before->entry);
}

static void
peer_free(struct peer *peer)
{
    free(peer->instance);
    free(peer->address);
    free(peer);
}

static void
peer_add(struct peers *peers, const struct runner_peer *from)
{
    struct peer *peer =
        calloc(1, sizeof(*peer) + peers->options.queue_count * sizeof(struct peer_link *));
    CHECK(peer != NULL);
    peer->instance = memory_copy_text(from->instance);
    peer->address = memory_copy_text(from->address);
    hash_table_add(&peers->book, &peer->entry, hash_of(peer->instance));
}

/* ---- links ---- */

/* Locked. */
static struct peer_link *
link_take(struct peers *peers, const struct peer *peer, uint32_t queue)
{
    struct peer_link *link = peers->free;
    if (link != NULL) {
        CHECK(link->call == NULL && link->client == NULL && link->slots.used_count == 0);
        peers->free = link->next_free;
    } else {
        link = malloc(sizeof(*link));
        CHECK(link != NULL);
        link_init(link, peers);
        link->next = peers->links;
        peers->links = link;
    }
    pthread_mutex_lock(&link->lock);
    link->instance = memory_copy_text(peer->instance);
    link->address = memory_copy_text(peer->address);
    link->scratch = &peers->scratches[queue];
    link->is_leaving = link->has_warned = false;
    link->unreachable_ns = 0;
    pthread_mutex_unlock(&link->lock);
    return link;
}

void
peers_link_free(struct peers *peers, struct peer_link *link)
{
    pthread_mutex_lock(&link->lock);
    CHECK(link->is_leaving && link->call == NULL);
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

/* The link to that peer from that queue, locked and open; NULL: unreachable. */
static struct peer_link *
link_to(struct peers *peers, const char *instance, uint32_t queue)
{
    CHECK(queue < peers->options.queue_count);
    pthread_mutex_lock(&peers->lock);
    struct peer *peer = peers->is_closed ? NULL : find(peers, instance);
    struct peer_link *link = NULL;
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

/* Retires the links of a peer that has left the address book. */
static void
peer_leave(struct peers *peers, struct peer *peer)
{
    for (uint32_t i = 0; i < peers->options.queue_count; i++)
        if (peer->links[i] != NULL)
            link_leave(peer->links[i]);
    peer_free(peer);
}

/* ---- the runner's functions ---- */

static enum runner_begun
forward(void *context, struct runner_call *call, const struct runner_attempt *attempt,
        struct runner_end *end)
{
    struct peer_link *link = link_to(context, attempt->instance, call->request->queue);
    *end = (struct runner_end){.end = MESH_END_UNREACHABLE};
    if (link == NULL)
        return RUNNER_ENDED;
    enum runner_begun begun = link_forward(link, attempt, call->request, end);
    pthread_mutex_unlock(&link->lock);
    return begun;
}

static bool
abandon(void *context, struct runner_call *call, uint32_t number)
{
    struct peer_request *request = call->request;
    (void)context;
    if (!link_abandon(request->link, request, number))
        return false;
    request->type->release(request);
    return true;
}

static bool
ensure(void *context, const struct mesh_ensure *wanted)
{
    struct peer_link *link = link_to(context, wanted->instance, 0);
    if (link == NULL)
        return false;
    link_ensure(link, wanted);
    pthread_mutex_unlock(&link->lock);
    return true;
}

static void
on_peer(void *context, const struct runner_peer *peer)
{
    struct peers *peers = context;
    pthread_mutex_lock(&peers->lock);
    struct peer *known = find(peers, peer->instance);
    bool has_moved = known != NULL && strcmp(known->address, peer->address) != 0;
    if (has_moved)
        hash_table_remove(&peers->book, &known->entry);
    if (known == NULL || has_moved)
        peer_add(peers, peer);
    pthread_mutex_unlock(&peers->lock);
    if (has_moved)
        peer_leave(peers, known);
}

static void
on_peer_gone(void *context, const char *instance)
{
    struct peers *peers = context;
    pthread_mutex_lock(&peers->lock);
    struct peer *gone = find(peers, instance);
    if (gone != NULL)
        hash_table_remove(&peers->book, &gone->entry);
    pthread_mutex_unlock(&peers->lock);
    skew_forget(peers->skew, instance);
    if (gone != NULL)
        peer_leave(peers, gone);
}

struct runner_peers
peers_for_runner(struct peers *peers)
{
    return (struct runner_peers){.context = peers,
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
        struct peer_link *link = peer->links[i];
        if (link == NULL)
            continue;
        pthread_mutex_lock(&link->lock);
        connected = link->call != NULL && link->has_hello;
        pthread_mutex_unlock(&link->lock);
    }
    return connected;
}

void
peers_look(struct peers *peers, struct peers_view *view)
{
    *view = (struct peers_view){0};
    pthread_mutex_lock(&peers->lock);
    for (const struct peer *peer = walk(peers, NULL); peer != NULL; peer = walk(peers, peer))
        view->connected += is_connected(peers, peer);
    for (struct peer_link *link = peers->links; link != NULL; link = link->next) {
        pthread_mutex_lock(&link->lock);
        view->calls += link->slots.used_count;
        view->sent_bytes += link->sent_bytes;
        view->received_bytes += link->received_bytes;
        pthread_mutex_unlock(&link->lock);
    }
    pthread_mutex_unlock(&peers->lock);
}

/* Locked. 0: connected, or never used. */
static int64_t
unreachable_ns(const struct peers *peers, const struct peer *peer)
{
    int64_t since_ns = 0;
    for (uint32_t i = 0; i < peers->options.queue_count; i++) {
        struct peer_link *link = peer->links[i];
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
    const struct peer *peer = find(peers, instance);
    int64_t since_ns = peer == NULL ? 0 : unreachable_ns(peers, peer);
    pthread_mutex_unlock(&peers->lock);
    return since_ns;
}

/* Locked. Uses the first queue's link; a lost one is left to the probe. */
static void
ask_clock(struct peers *peers, struct peer *peer)
{
    if (peer->address[0] == '\0' || !skew_ask(peers->skew, peer->instance))
        return;
    if (peer->links[0] == NULL)
        peer->links[0] = link_take(peers, peer, 0);
    struct peer_link *link = peer->links[0];
    pthread_mutex_lock(&link->lock);
    if (link->unreachable_ns == 0 && link_open(link, &peers->options))
        link_ask_clock(link);
    pthread_mutex_unlock(&link->lock);
}

static void
ask_clocks(struct peers *peers)
{
    pthread_mutex_lock(&peers->lock);
    struct peer *peer = peers->is_closed ? NULL : walk(peers, NULL);
    for (; peer != NULL; peer = walk(peers, peer))
        ask_clock(peers, peer);
    pthread_mutex_unlock(&peers->lock);
}

void
peers_probe(struct peers *peers)
{
    ask_clocks(peers);
    skew_watch(peers->skew);
    pthread_mutex_lock(&peers->lock);
    for (struct peer_link *link = peers->is_closed ? NULL : peers->links; link != NULL;
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
    peers->options.instance = peers->instance = memory_copy_text(options->instance);
    peers->skew = skew_create(options->instance);
    peers->scratches = calloc(options->queue_count, sizeof(*peers->scratches));
    CHECK(peers->scratches != NULL);
    for (uint32_t i = 0; i < options->queue_count; i++)
        peers->scratches[i].queue = options->queues[i];
    pthread_mutex_init(&peers->lock, NULL);
    return peers;
}

void
peers_close(struct peers *peers)
{
    pthread_mutex_lock(&peers->lock);
    peers->is_closed = true;
    struct peer_link *first = peers->links;
    pthread_mutex_unlock(&peers->lock);
    for (struct peer_link *link = first; link != NULL; link = link->next)
        link_close(link);
}

void
peers_destroy(struct peers *peers)
{
    if (peers == NULL)
        return;
    for (struct peer *peer = walk(peers, NULL), *next; peer != NULL; peer = next) {
        next = walk(peers, peer);
        peer_free(peer);
    }
    for (struct peer_link *link = peers->links, *next; link != NULL; link = next) {
        next = link->next;
        link_fini(link);
        free(link);
    }
    hash_table_fini(&peers->book);
    free(peers->scratches);
    skew_destroy(peers->skew);
    free(peers->instance);
    pthread_mutex_destroy(&peers->lock);
    free(peers);
}
