/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of a link: to whom, with which certificates. */
#include <string.h>

#include "base/log.h"
#include "mesh/edge/peer_link.h"

/* A node without TLS would read nothing but noise of one that has it, and the other way round: the
 * one would be told that a connection was closed, and neither why. */
static enum status
check_tls(const struct link *link, const struct peers_options *options, struct error *error)
{
    bool there = strncmp(link->address, PEERS_TLS, strlen(PEERS_TLS)) == 0;
    if (there == (options->tls != NULL))
        return STATUS_OK;
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "%s has TLS between nodes, %s has not: `mesh: tls` must be the same at all",
                     there ? "that node" : "this node", there ? "this one" : "that one");
}

/* Locked. */
static bool
client_make(struct link *link, const struct peers_options *options)
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

/* Locked. A client keeps the certificates that it was made with; those that it will show when it
 * connects anew may have expired since. Of a connection that is there nothing changes. */
static void
client_renew(struct link *link, const struct peers_options *options)
{
    if (link->client == NULL || options->tls == NULL ||
        rpc_tls_version(options->tls) == link->tls_version)
        return;
    rpc_client_destroy(link->client);
    link->client = NULL;
}

bool
link_client(struct link *link, const struct peers_options *options)
{
    client_renew(link, options);
    return link->client != NULL || client_make(link, options);
}
