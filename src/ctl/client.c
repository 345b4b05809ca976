/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "ctl/ctl.h"

enum status
client_open(struct client *client, const char *target, const struct client_tls *tls,
            struct error *error)
{
    enum status status = STATUS_OK;
    *client = (struct client){.target = target};
    if (tls != NULL &&
        (tls->ca != NULL || tls->cert != NULL || tls->key != NULL || tls->name != NULL))
        status =
            rpc_tls_create(&(struct rpc_tls_options){.name = "--tls",
                                                     .ca = tls->ca,
                                                     .certificate = tls->cert,
                                                     .key = tls->key,
                                                     .key_password_file = tls->key_password_file,
                                                     .key_password_from = "--tls-key-password-file",
                                                     .peer_name = tls->name},
                           &client->tls, error);
    if (status == STATUS_OK)
        status = rpc_channel_create_tls(target, client->tls, &client->channel, error);
    return status;
}

void
client_close(struct client *client)
{
    rpc_channel_destroy(client->channel);
    rpc_tls_destroy(client->tls);
    client->channel = NULL;
    client->tls = NULL;
}

void *
client_ask(struct client *client, const char *path, const ProtobufCMessage *request,
           const ProtobufCMessageDescriptor *answer, int64_t deadline_ns, struct error *error)
{
    size_t bytes = protobuf_c_message_get_packed_size(request);
    uint8_t *packed = ctl_allocate(bytes + 1, 1);
    protobuf_c_message_pack(request, packed);
    void *response = NULL;
    void *message = NULL;
    size_t response_bytes = 0;
    if (rpc_channel_call(client->channel,
                         &(struct rpc_channel_ask){path, packed, bytes, deadline_ns}, &response,
                         &response_bytes, error) == STATUS_OK) {
        message = protobuf_c_message_unpack(answer, NULL, response_bytes, response);
        if (message == NULL)
            error_set(error, STATUS_DATA_LOSS, "the answer cannot be read");
    }
    free(response);
    free(packed);
    return message;
}

/* The library reports only that it could not connect in time. */
static bool
is_denied(const char *target)
{
    const size_t scheme = strlen("unix:");
    return strncmp(target, "unix:", scheme) == 0 && access(target + scheme, W_OK) != 0 &&
           errno == EACCES;
}

enum status
client_reach(struct client *client, int64_t deadline_ns, struct error *error)
{
    Inference__ServerLiveRequest request = INFERENCE__SERVER_LIVE_REQUEST__INIT;
    void *answer = client_ask(client, CLIENT_SERVICE "ServerLive", &request.base,
                              &inference__server_live_response__descriptor, deadline_ns, error);
    enum status status = answer != NULL ? STATUS_OK : error->status;
    if (answer != NULL)
        protobuf_c_message_free_unpacked(answer, NULL);
    if (status == STATUS_DEADLINE_EXCEEDED && is_denied(client->target))
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "%.200s: permission denied: the node's `socket_mode` or umask does "
                         "not let this user connect",
                         client->target);
    if (status == STATUS_DEADLINE_EXCEEDED)
        return error_set(error, STATUS_UNAVAILABLE, "no node answers at %.200s%s", client->target,
                         client->tls != NULL ? " over TLS, with these certificates" : "");
    *error = ERROR_NONE;
    return STATUS_OK;
}
