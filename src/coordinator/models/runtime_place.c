/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/runtime_place.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/tcp_address.h"

static bool
host_is_loopback(const char *host)
{
    return strcmp(host, "127.0.0.1") == 0 || strcmp(host, "::1") == 0 ||
           strcmp(host, "localhost") == 0;
}

static bool
host_is_any(const char *host)
{
    return host[0] == '\0' || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

/* A connection to the `runtime` address reaches the `listen` address. */
static bool
covers(const char *listen, const char *runtime)
{
    struct tcp_address there;
    struct tcp_address wanted;
    if (strncmp(listen, "unix:", 5) == 0 || strncmp(runtime, "unix:", 5) == 0)
        return strcmp(listen, runtime) == 0;
    if (!tcp_address_parse(listen, &there) || !tcp_address_parse(runtime, &wanted))
        return false;
    if (strcmp(there.port, wanted.port) != 0 || strcmp(wanted.port, "0") == 0)
        return false;
    bool local = wanted.host[0] == '\0' || host_is_loopback(wanted.host);
    return host_is_any(there.host) || strcmp(there.host, wanted.host) == 0 ||
           (local && host_is_loopback(there.host));
}

static bool
has_ipv6(void)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    int result = bind(fd, (struct sockaddr *)&address, sizeof(address));
    close(fd);
    return result == 0;
}

static void
add_own(struct runtime_place *place, const char *host, const char *rest)
{
    CHECK(place->own_count < RUNTIME_LISTEN_MAX);
    char *own = place->own[place->own_count++];
    size_t room = sizeof(place->own[0]);
    CHECK((size_t)snprintf(own, room, "%s%s", host, rest) < room);
}

/* Port 0 is any one port, which cannot be the same for both. */
static void
add_address(struct runtime_place *place, const char *address)
{
    struct tcp_address parsed;
    if (strncmp(address, "port:", 5) != 0 || !tcp_address_parse(address, &parsed)) {
        add_own(place, "", address);
        return;
    }
    add_own(place, "127.0.0.1:", parsed.port);
    if (strcmp(parsed.port, "0") != 0 && has_ipv6())
        add_own(place, "[::1]:", parsed.port);
}

/* Returns whether `runtime` names every address of the front. If not, `*other` is one that it does
 * not name. */
static bool
names_all(const struct config_addresses *runtime, const char *const *listen, uint32_t listen_count,
          const char **other)
{
    for (uint32_t i = 0; i < listen_count; i++) {
        bool named = false;
        for (uint32_t k = 0; k < runtime->count; k++)
            named = named || covers(listen[i], runtime->items[k]);
        if (!named) {
            *other = listen[i];
            return false;
        }
    }
    return true;
}

enum status
runtime_place_find(const struct config_addresses *runtime, const char *const *listen,
                   uint32_t listen_count, struct runtime_place *place, struct error *error)
{
    *place = (struct runtime_place){.front_is_local = true};
    for (uint32_t i = 0; i < runtime->count; i++) {
        const char *address = runtime->items[i];
        struct tcp_address parsed;
        uint32_t at = 0;
        while (at < listen_count && !covers(listen[at], address))
            at++;
        if (at == listen_count) {
            add_address(place, address);
            continue;
        }
        const char *other;
        if (!names_all(runtime, listen, listen_count, &other))
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "`runtime`: %s is also in `listen`, all of whose addresses would then "
                             "load models: name %s in `runtime` too, or give `runtime` an address "
                             "of its own",
                             address, other);
        place->at_front = true;
        if (strncmp(address, "unix:", 5) != 0 && strncmp(address, "port:", 5) != 0 &&
            tcp_address_parse(address, &parsed) && !host_is_loopback(parsed.host))
            place->front_is_local = false;
    }
    return STATUS_OK;
}

bool
runtime_peer_is_local(const char *peer, size_t bytes)
{
    /* The library writes brackets literally or percent-encoded, depending on its version. */
    static const char *const local[] = {"unix:", "ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D"};
    for (size_t i = 0; i < ARRAY_COUNT(local); i++) {
        size_t length = strlen(local[i]);
        if (bytes >= length && strncmp(peer, local[i], length) == 0)
            return true;
    }
    return false;
}
