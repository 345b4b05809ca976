/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_address.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "coordinator/mesh/mesh_store.h"
#include "mesh/edge/peers.h"

/* Puts brackets around an address with colons before a port. */
static void
put(char address[MESH_ADDRESS_BYTES], const char *before, const char *host, int port)
{
    bool bare = strchr(host, ':') != NULL && host[0] != '[';
    snprintf(address, MESH_ADDRESS_BYTES, "%s%s%s%s:%d", before, bare ? "[" : "", host,
             bare ? "]" : "", port);
}

/* Returns whether `given` ends in a port. */
static bool
has_port(const char *given)
{
    const char *colon = strrchr(given, ':');
    if (colon == NULL || colon[1] == '\0' || colon[1 + strspn(colon + 1, "0123456789")] != '\0')
        return false;
    return given[0] == '[' ? colon[-1] == ']' : strchr(given, ':') == colon;
}

static bool
is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
        return ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
    bool is_mapped = IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);
    return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) ||
           (is_mapped && in6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
}

/* The host's first address that other machines could call, or else its first; numeric. Debian maps
 * the machine's own name to 127.0.1.1. Returns getaddrinfo's result. */
static int
resolve(const char *name, char host[NI_MAXHOST], bool *only_loopback)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(name, NULL, &hints, &found);
    const struct addrinfo *best = found;
    while (best != NULL && is_loopback(best->ai_addr))
        best = best->ai_next;
    *only_loopback = failed == 0 && best == NULL;
    if (best == NULL)
        best = found;
    if (best != NULL)
        failed =
            getnameinfo(best->ai_addr, best->ai_addrlen, host, NI_MAXHOST, NULL, 0, NI_NUMERICHOST);
    if (found != NULL)
        freeaddrinfo(found);
    return failed;
}

/* Resolves the host's own name. */
static enum status
host_address(char host[NI_MAXHOST], struct error *error)
{
    char name[256] = "";
    bool only_loopback;
    (void)gethostname(name, sizeof(name) - 1);
    int failed = resolve(name, host, &only_loopback);
    if (failed != 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "mesh: the host's name \"%s\" has no address (%s): set `address` to the "
                         "address at which other nodes reach this one",
                         name, gai_strerror(failed));
    return STATUS_OK;
}

/* The host of "http://host:port", "https://[::1]:port/", without brackets. */
static void
endpoint_host(const char *endpoint, char host[NI_MAXHOST])
{
    const char *from = strstr(endpoint, "://");
    from = from == NULL ? endpoint : from + 3;
    bool bracket = from[0] == '[';
    from += bracket;
    snprintf(host, NI_MAXHOST, "%.*s", (int)strcspn(from, bracket ? "]" : ":/"), from);
}

/* Returns whether the host of an address, with brackets or without, is loopback. */
static bool
host_is_local(const char *host)
{
    char bare[NI_MAXHOST];
    char numeric[NI_MAXHOST];
    bool only_loopback;
    host += host[0] == '[';
    snprintf(bare, sizeof(bare), "%.*s", (int)strcspn(host, "]"), host);
    return resolve(bare, numeric, &only_loopback) == 0 && only_loopback;
}

/* A loopback address is right if all nodes are on one machine, which holds if their etcd is
 * reachable only there. */
static enum status
check_reach(const char *host, const struct etcd_place *place, struct error *error)
{
    if (!host_is_local(host))
        return STATUS_OK;
    for (uint32_t i = 0; i < place->endpoint_count; i++) {
        char etcd[NI_MAXHOST];
        endpoint_host(place->endpoints[i], etcd);
        if (!host_is_local(etcd))
            return error_set(error, STATUS_FAILED_PRECONDITION,
                             "mesh: this node would publish the address %s, which is another "
                             "machine to each other node, and etcd (%s) is not on this machine "
                             "alone: set `address` to the address at which other nodes reach this "
                             "one",
                             host, place->endpoints[i]);
    }
    return STATUS_OK;
}

static enum status
check_host(const struct config_mesh *config, const char *host, struct error *error)
{
    struct etcd_place place;
    enum status status = mesh_store_place(config, &place, error);
    if (status == STATUS_OK)
        status = check_reach(host, &place, error);
    else
        error_prefix(error, "mesh: store");
    etcd_place_fini(&place);
    return status;
}

enum status
mesh_address_find(const struct config_mesh *config, int port, char address[MESH_ADDRESS_BYTES],
                  struct error *error)
{
    const char *listen = config->peers.items[0];
    const char *before = config->tls.certificate != NULL ? PEERS_TLS : "";
    char host[NI_MAXHOST] = "";
    if (config->address != NULL && has_port(config->address)) {
        snprintf(address, MESH_ADDRESS_BYTES, "%s%s", before, config->address);
        return STATUS_OK;
    }
    if (port == 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "mesh: the first of `peers`, %s, has no port: set `address` to HOST:PORT",
                         listen);
    if (config->address != NULL) {
        put(address, before, config->address, port);
        return STATUS_OK;
    }
    const char *colon = strrchr(listen, ':');
    size_t bytes = (size_t)(colon - listen);
    bool named = strncmp(listen, "port:", 5) != 0 && strncmp(listen, "0.0.0.0:", 8) != 0 &&
                 strncmp(listen, "[::]:", 5) != 0 && bytes < sizeof(host);
    if (named)
        snprintf(host, sizeof(host), "%.*s", (int)bytes, listen);
    else if (host_address(host, error) != STATUS_OK)
        return error->status;
    put(address, before, host, port);
    return check_host(config, host, error);
}

int64_t
mesh_version(const char *text)
{
    int64_t version = 0;
    for (int part = 0; part < 3; part++) {
        char *end;
        version = version * 1000 + (int64_t)(strtoul(text, &end, 10) % 1000);
        text = end + (*end == '.');
    }
    return version;
}

int64_t
mesh_wall_ms(void)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / NS_PER_MS;
}
