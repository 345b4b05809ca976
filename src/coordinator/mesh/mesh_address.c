/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "mesh/edge/peers.h"

/* An address with colons in it stands in brackets before a port. */
static void
put(char address[MESH_ADDRESS_BYTES], const char *before, const char *host, int port)
{
    bool bare = strchr(host, ':') != NULL && host[0] != '[';
    snprintf(address, MESH_ADDRESS_BYTES, "%s%s%s%s:%d", before, bare ? "[" : "", host,
             bare ? "]" : "", port);
}

/* Whether `given` ends in a port. */
static bool
has_port(const char *given)
{
    const char *colon = strrchr(given, ':');
    if (colon == NULL || colon[1] == '\0' || colon[1 + strspn(colon + 1, "0123456789")] != '\0')
        return false;
    return given[0] == '[' ? colon[-1] == ']' : strchr(given, ':') == colon;
}

/* What the host's own name means. */
static enum status
host_address(char host[NI_MAXHOST], struct error *error)
{
    char name[256] = "";
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    (void)gethostname(name, sizeof(name) - 1);
    int failed = getaddrinfo(name, NULL, &hints, &found);
    if (failed == 0)
        failed = getnameinfo(found->ai_addr, found->ai_addrlen, host, NI_MAXHOST, NULL, 0,
                             NI_NUMERICHOST);
    if (found != NULL)
        freeaddrinfo(found);
    if (failed != 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "mesh: the host's name \"%s\" has no address (%s): set `address` to what "
                         "other nodes reach this one by",
                         name, gai_strerror(failed));
    return STATUS_OK;
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
                         "mesh: the first of `peers`, %s, is no port: set `address` to HOST:PORT",
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
    return STATUS_OK;
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
