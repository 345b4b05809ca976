/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/successor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/tcp_address.h"
#include "coordinator/check_addresses.h"
#include "coordinator/config/config.h"
#include "coordinator/mesh/mesh_successor.h"

static void
replace(char **text, const char *by)
{
    free(*text);
    *text = memory_copy_text(by);
}

static void
name_instance(struct config_mesh *mesh, pid_t pid)
{
    char name[CONFIG_NAME_BYTES_MAX + 1];
    char end[MESH_SUCCESSOR_END_BYTES];
    mesh_successor_end(pid, end);
    snprintf(name, sizeof(name), "%.*s%s", (int)(sizeof(name) - 1 - strlen(end)), mesh->instance,
             end);
    replace(&mesh->instance, name);
}

static bool
are_used(const struct config_addresses *addresses)
{
    for (uint32_t i = 0; i < addresses->count; i++)
        if (check_address_is_used(addresses->items[i]))
            return true;
    return false;
}

/* All that has a port gets any. */
static void
free_ports(struct config_addresses *addresses)
{
    for (uint32_t i = 0; i < addresses->count; i++) {
        struct tcp_address parsed;
        char address[sizeof(parsed.host) + 8];
        if (!tcp_address_parse(addresses->items[i], &parsed))
            continue;
        bool is_six = strchr(parsed.host, ':') != NULL;
        if (parsed.host[0] == '\0')
            snprintf(address, sizeof(address), "port:0");
        else
            snprintf(address, sizeof(address), is_six ? "[%s]:0" : "%s:0", parsed.host);
        replace(&addresses->items[i], address);
    }
}

/* The port that is published is that of the first of `peers`. */
static void
forget_port(struct config_mesh *mesh)
{
    struct tcp_address parsed;
    if (mesh->address != NULL && tcp_address_parse(mesh->address, &parsed) &&
        parsed.host[0] != '\0')
        replace(&mesh->address, parsed.host);
}

void
successor_configure(struct config_mesh *mesh, pid_t pid)
{
    if (!mesh->on)
        return;
    name_instance(mesh, pid);
    if (!are_used(&mesh->peers))
        return;
    if (mesh->upgrade_peers.count > 0) {
        const struct config_addresses peers = mesh->peers;
        mesh->peers = mesh->upgrade_peers;
        mesh->upgrade_peers = peers;
    } else {
        free_ports(&mesh->peers);
    }
    forget_port(mesh);
}
