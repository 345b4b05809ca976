/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/check_addresses.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "base/tcp_address.h"

/* 0, or errno. */
static int
bind_failure(const struct addrinfo *at)
{
    int on = 1;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int failure = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
                          bind(fd, at->ai_addr, at->ai_addrlen) != 0
                      ? errno
                      : 0;
    close(fd);
    return failure;
}

/* All interfaces: IPv6 takes IPv4, too; without IPv6 in the kernel, IPv4 alone. */
enum status
check_tcp_address(const char *address, int *failure, struct error *error)
{
    struct tcp_address parsed;
    struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    if (!tcp_address_parse(address, &parsed))
        return error_set(error, STATUS_INVALID_ARGUMENT, "not an address");
    int code =
        getaddrinfo(parsed.host[0] != '\0' ? parsed.host : NULL, parsed.port, &hints, &found);
    if (code != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s", gai_strerror(code));
    *failure = EADDRNOTAVAIL;
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        int one = bind_failure(at);
        if (one == 0 || *failure != EADDRINUSE)
            *failure = one;
        if (one == 0)
            break;
    }
    freeaddrinfo(found);
    return STATUS_OK;
}

/* The start replaces a socket, but no other file. */
static int
unix_failure(const char *path)
{
    char folder[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    struct stat file;
    const char *slash = strrchr(path, '/');
    size_t bytes = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (strlen(path) >= sizeof(folder))
        return ENAMETOOLONG;
    snprintf(folder, sizeof(folder), "%.*s", (int)bytes, path);
    if (lstat(path, &file) == 0)
        return S_ISSOCK(file.st_mode) ? EADDRINUSE : EEXIST;
    return access(bytes > 0 ? folder : ".", W_OK | X_OK) == 0 ? 0 : errno;
}

static uint32_t
check_one(const char *key, const char *address, struct addresses_found *found,
          void (*say)(const char *mistake))
{
    static const char prefix[] = "unix:";
    struct error error = ERROR_NONE;
    int failure = 0;
    enum status status = STATUS_OK;
    if (strncmp(address, prefix, sizeof(prefix) - 1) == 0)
        failure = unix_failure(address + sizeof(prefix) - 1);
    else
        status = check_tcp_address(address, &failure, &error);
    if (status == STATUS_OK && (failure == 0 || failure == EADDRINUSE)) {
        *(failure == 0 ? &found->free : &found->in_use) += 1;
        return 0;
    }
    char text[2 * sizeof(error.text)];
    snprintf(text, sizeof(text), "%s: %s: cannot listen there: %s", key, address,
             status != STATUS_OK ? error.text : strerror(failure));
    say(text);
    return 1;
}

bool
check_address_is_used(const char *address)
{
    struct error error = ERROR_NONE;
    int failure = 0;
    return strncmp(address, "unix:", strlen("unix:")) != 0 &&
           check_tcp_address(address, &failure, &error) == STATUS_OK && failure == EADDRINUSE;
}

uint32_t
check_addresses(const struct config *config, const char *const *listen, uint32_t listen_count,
                struct addresses_found *found, void (*say)(const char *mistake))
{
    const struct config_mesh *mesh = &config->mesh;
    bool has_peers = mesh->on && (mesh->store_kind == CONFIG_STORE_ENDPOINTS ||
                                  mesh->store_kind == CONFIG_STORE_ETCD_FILE);
    const struct {
        const char *key;
        const struct config_addresses *addresses;
        bool is_used;
    } lists[] = {
        {"http", &config->http, true},
        {"metrics", &config->metrics, true},
        {"probes", &config->probes, true},
        {"prestop", &config->prestop, true},
        {"dashboard", &config->dashboard.addresses, true},
        {"runtime", &config->runtime, true},
        {"mesh: management", &mesh->management.addresses, mesh->on},
        {"mesh: peers", &mesh->peers, has_peers},
        {"mesh: upgrade_peers", &mesh->upgrade_peers, has_peers},
    };
    uint32_t mistakes = 0;
    for (uint32_t i = 0; i < listen_count; i++)
        mistakes += check_one("listen", listen[i], found, say);
    for (size_t i = 0; i < ARRAY_COUNT(lists); i++)
        for (uint32_t j = 0; lists[i].is_used && j < lists[i].addresses->count; j++)
            mistakes += check_one(lists[i].key, lists[i].addresses->items[j], found, say);
    return mistakes;
}
