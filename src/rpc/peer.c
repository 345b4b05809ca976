/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of callers, as the kernel returns them from accept and as the library writes them. Both
 * become the same `struct rpc_peer`.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/internal.h"

struct rpc_peer
rpc_peer_of(const struct sockaddr_storage *address)
{
    struct rpc_peer peer = {.family = address->ss_family};
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        peer.port = ntohs(in->sin_port);
        memcpy(peer.address, &in->sin_addr, sizeof(in->sin_addr));
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)address;
        peer.port = ntohs(in->sin6_port);
        bool is_v4 = IN6_IS_ADDR_V4MAPPED(&in->sin6_addr);
        peer.family = is_v4 ? AF_INET : AF_INET6;
        peer.scope = is_v4 ? 0 : in->sin6_scope_id;
        const unsigned char *bytes = in->sin6_addr.s6_addr;
        memcpy(peer.address, is_v4 ? bytes + 12 : bytes, is_v4 ? 4 : sizeof(peer.address));
    }
    return peer;
}

bool
rpc_peer_parse(const char *text, struct rpc_peer *peer)
{
    static const char v4_prefix[] = "ipv4:";
    static const char v6_prefix[] = "ipv6:%5B";
    static const char v6_end[] = "%5D:";
    static const char scope_prefix[] = "%25";
    char address[INET6_ADDRSTRLEN];
    *peer = (struct rpc_peer){.family = AF_INET6};
    bool is_v6 = strncmp(text, v6_prefix, strlen(v6_prefix)) == 0;
    if (!is_v6 && strncmp(text, v4_prefix, strlen(v4_prefix)) != 0)
        return false;
    const char *from = text + strlen(is_v6 ? v6_prefix : v4_prefix);
    const char *to = strstr(from, is_v6 ? v6_end : ":");
    if (to == NULL)
        return false;
    peer->port = (uint16_t)strtoul(to + strlen(is_v6 ? v6_end : ":"), NULL, 10);
    const char *scope = is_v6 ? strstr(from, scope_prefix) : NULL;
    if (scope != NULL && scope < to) {
        peer->scope = (uint32_t)strtoul(scope + strlen(scope_prefix), NULL, 10);
        to = scope;
    }
    if ((size_t)(to - from) >= sizeof(address))
        return false;
    memcpy(address, from, (size_t)(to - from));
    address[to - from] = '\0';
    peer->family = is_v6 ? AF_INET6 : AF_INET;
    return inet_pton(peer->family, address, peer->address) == 1;
}

bool
rpc_peer_same_machine(const struct rpc_peer *a, const struct rpc_peer *b)
{
    return a->family == b->family && a->scope == b->scope &&
           memcmp(a->address, b->address, sizeof(a->address)) == 0;
}

bool
rpc_peer_same(const struct rpc_peer *a, const struct rpc_peer *b)
{
    return a->port == b->port && rpc_peer_same_machine(a, b);
}
