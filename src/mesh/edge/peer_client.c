/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of a link: address and certificates. */
#include <string.h>

#include "base/log.h"
#include "mesh/edge/peer_link.h"

/* If one side has no TLS, both would see only noise or a closed connection, and neither the
 * reason. */
static enum status
check_tls(const struct peer_link *link, const struct peers_options *options, struct error *error)
{
    bool there = strncmp(link->address, PEERS_TLS, strlen(PEERS_TLS)) == 0;
    if (there == (options->tls != NULL))
        return STATUS_OK;
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "%s uses TLS between nodes, %s does not: `mesh: tls` must be equal on all",
                     there ? "that node" : "this node", there ? "this one" : "that one");
}

/* Locked. */
static bool
client_make(struct peer_link *link, const struct peers_options *options)
{
    struct rpc_client_options client = {
        .queue = link->scratch->queue,
        .target = link->address,
        .tls = options->tls,
        .message_bytes_max = PEER_MESSAGE_BYTES_MAX,
        .keepalive_time_ns = PEERS_PING_NS,
        .keepalive_timeout_ns = PEERS_PING_ANSWER_NS,
    };
    struct error error = ERROR_NONE;
    enum status status = check_tls(link, options, &error);
    if (status == STATUS_OK && options->tls != NULL) {
        client.target = link->address + strlen(PEERS_TLS);
        link->tls_version = rpc_tls_version(options->tls);
    }
    if (status == STATUS_OK)
        status = rpc_client_create(&client, &link->client, &error);
    if (status == STATUS_OK)
        return true;
    if (!link->has_warned)
        log_warn_limited("peer_unreachable instance=\"%s\" address=\"%s\" status=%s error=\"%s\"",
                         link->instance, link->address, status_name(status), error.text);
    link->has_warned = true;
    link_mark(link);
    link->client = NULL;
    return false;
}

/* Locked. A client keeps its certificates, which may have expired by the next connection. Existing
 * connections stay. */
static void
client_renew(struct peer_link *link, const struct peers_options *options)
{
    if (link->client == NULL || options->tls == NULL ||
        rpc_tls_version(options->tls) == link->tls_version)
        return;
    rpc_client_destroy(link->client);
    link->client = NULL;
}

bool
link_client(struct peer_link *link, const struct peers_options *options)
{
    client_renew(link, options);
    return link->client != NULL || client_make(link, options);
}
