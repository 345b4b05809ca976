/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `mesh: management` of file and environment: clients that can reach it must be known by a
 * certificate or be on this machine, unless the file says that it is intended.
 */
#include <string.h>

#include "coordinator/config/config_tree.h"

enum { MODE_DEFAULT = 0600, CONNECTIONS_DEFAULT = 256 };

static int
line_of(const struct config_reader *reader)
{
    const struct tree_node *node = reader->mesh_given.nodes[KEY_MESH_MANAGEMENT];
    return node != NULL ? node->line : reader->config->mesh.line;
}

/* Returns whether a client without a certificate of `client_ca` cannot connect by TLS. */
static bool
demands_certificates(const struct config_tls *tls)
{
    return tls->certificate != NULL && tls->ca != NULL &&
           (tls->client_auth == NULL || strcmp(tls->client_auth, "required") == 0);
}

static void
check_address(struct config_reader *reader, const char *address,
              const struct config_transport *transport)
{
    const struct config *config = reader->config;
    const struct config_management *management = &config->mesh.management;
    bool is_unix = strncmp(address, "unix:", 5) == 0;
    bool is_plain = config_is_yes(transport->plain);
    bool is_guarded = demands_certificates(&config->tls) || management->allow_count > 0;
    if (transport->tls != NULL)
        report_add(
            reader->report, transport->line,
            "`management`: %s: remove `tls`: a TCP address uses the `tls` at the top, unless it "
            "has `plain: yes`",
            address);
    else if (is_plain && !is_unix && management->allow_count > 0)
        report_add(reader->report, transport->line,
                   "`management`: %s: `allow` identifies callers by their certificates, and with "
                   "`plain: yes` they show none",
                   address);
    else if (!is_plain && !is_guarded && !config_is_local(address))
        report_add(
            reader->report, transport->line,
            "`management`: %s would let anyone who can reach it register and delete models: set "
            "`tls` at the top with `client_ca`, which demands certificates, or write {address: %s, "
            "plain: yes} to allow that",
            address, address);
}

void
config_check_management(struct config_reader *reader)
{
    struct config *config = reader->config;
    struct config_management *management = &config->mesh.management;
    if (!config->mesh.on)
        return;
    management->socket_mode_bits = MODE_DEFAULT;
    if (management->connections_max == 0) /* without a map, which would have the default */
        management->connections_max = CONNECTIONS_DEFAULT;
    if (management->socket_mode != NULL &&
        !config_read_mode(management->socket_mode, &management->socket_mode_bits))
        report_add(
            reader->report, line_of(reader),
            "`management`: `socket_mode`: \"%s\" is not a mode such as 0660: octal digits, 0777 "
            "at most",
            management->socket_mode);
    if (management->allow_count > 0 && !config_asks_for_certificates(&config->tls))
        report_add(
            reader->report, line_of(reader),
            "`management`: `allow` identifies callers by their certificates: it needs `tls` at the "
            "top with `client_ca`");
    for (uint32_t i = 0; i < management->addresses.count; i++)
        check_address(reader, management->addresses.items[i], &management->addresses.transports[i]);
}
