/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/caller.h"

#include <stdio.h>
#include <string.h>

#include "http/server.h"
#include "rpc/rpc.h"

#define METADATA_DEFAULT "shoal-caller"

enum { PEER_BYTES = 128 };

struct callers
callers_of(const struct config *config, struct share_key key)
{
    return (struct callers){
        .key = key,
        .metadata = config->caller_metadata != NULL ? config->caller_metadata : METADATA_DEFAULT,
        .proxies = config->caller_proxies,
        .asks = config_asks_for_certificates(&config->tls),
    };
}

/* ---- certificates ---- */

struct identity {
    const struct callers *callers;
    uint64_t hash; /* of the names so far */
    bool is_proxy;
};

static bool
is_listed(const char *list, const void *name, size_t bytes)
{
    while (list != NULL) {
        const char *end = strchrnul(list, ',');
        if ((size_t)(end - list) == bytes && memcmp(list, name, bytes) == 0)
            return true;
        list = *end == ',' ? end + 1 : NULL;
    }
    return false;
}

/* Each name is hashed with a key that those before it have made, so that neither their order nor
 * where one ends is lost. */
static void
take_name(void *context, const void *name, size_t bytes)
{
    struct identity *identity = context;
    struct share_key key = identity->callers->key;
    key.words[0] ^= identity->hash;
    key.words[1] = ~key.words[1];
    identity->hash = share_hash(key, name, bytes);
    identity->is_proxy |= is_listed(identity->callers->proxies, name, bytes);
}

/* ---- both ways ---- */

uint64_t
caller_of_call(const struct callers *callers, const struct rpc_call *call)
{
    struct identity identity = {.callers = callers};
    struct rpc_span name;
    char peer[PEER_BYTES];
    bool shown = callers->asks && rpc_call_caller_names(call, take_name, &identity);
    if (shown && !identity.is_proxy)
        return identity.hash;
    if (rpc_call_metadata(call, callers->metadata, &name))
        return share_hash(callers->key, name.data, name.bytes);
    return shown ? identity.hash
                 : share_hash(callers->key, peer, rpc_call_peer(call, peer, sizeof(peer)));
}

/* An address is written as gRPC writes it, so that a machine that comes both ways is one caller. */
uint64_t
caller_of_request(const struct callers *callers, const struct http_request *request)
{
    struct identity identity = {.callers = callers};
    char peer[PEER_BYTES];
    bool shown = http_request_peer_names(request, take_name, &identity);
    if (shown && !identity.is_proxy)
        return identity.hash;
    const char *name = http_request_header(request, callers->metadata);
    if (name != NULL)
        return share_hash(callers->key, name, strlen(name));
    if (shown)
        return identity.hash;
    const char *address = http_request_peer(request);
    snprintf(peer, sizeof(peer), strchr(address, ':') == NULL ? "ipv4:%s" : "ipv6:%%5B%s%%5D",
             address);
    return share_hash(callers->key, peer, strlen(peer));
}
