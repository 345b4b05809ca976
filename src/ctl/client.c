/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/ctl.h"

#define SERVICE "/inference.GRPCInferenceService/"

enum status
client_open(struct client *client, const char *target, struct error *error)
{
    *client = (struct client){.target = target};
    return rpc_channel_create(target, &client->channel, error);
}

void
client_close(struct client *client)
{
    rpc_channel_destroy(client->channel);
    client->channel = NULL;
}

enum status
client_call_packed(struct client *client, const char *method, const void *request,
                   size_t request_bytes, int64_t deadline_ns, void **response,
                   size_t *response_bytes, struct error *error)
{
    char path[128];
    int length = snprintf(path, sizeof path, SERVICE "%s", method);
    CHECK(length > 0 && (size_t)length < sizeof path);
    return rpc_channel_call(client->channel, path, request, request_bytes, deadline_ns, response,
                            response_bytes, error);
}

enum status
client_call(struct client *client, const char *method, const ProtobufCMessage *request,
            int64_t deadline_ns, void **response, size_t *response_bytes, struct error *error)
{
    size_t bytes = protobuf_c_message_get_packed_size(request);
    uint8_t *packed = ctl_allocate(bytes, 1);
    protobuf_c_message_pack(request, packed);
    enum status status = client_call_packed(client, method, packed, bytes, deadline_ns, response,
                                            response_bytes, error);
    free(packed);
    return status;
}

enum status
client_reach(struct client *client, int64_t deadline_ns, struct error *error)
{
    Inference__ServerLiveRequest request = INFERENCE__SERVER_LIVE_REQUEST__INIT;
    void *response = NULL;
    size_t bytes;
    enum status status =
        client_call(client, "ServerLive", &request.base, deadline_ns, &response, &bytes, error);
    free(response);
    if (status == STATUS_DEADLINE_EXCEEDED)
        return error_set(error, STATUS_UNAVAILABLE, "no node answers at %.200s", client->target);
    *error = ERROR_NONE;
    return STATUS_OK;
}
