/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls to a node's Open Inference Protocol service: a protobuf message out, the bytes of one back.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "inference/open_inference.pb-c.h"
#include "rpc/rpc.h"

struct client {
    const char *target;
    struct rpc_channel *channel;
};

/* Between rpc_init and rpc_shutdown. Does not connect yet. `target` is kept. */
enum status client_open(struct client *client, const char *target, struct error *error) WARN_UNUSED;
void client_close(struct client *client);

/*
 * Whether anybody speaks gRPC there: any answer will do, an error too. UNAVAILABLE: nobody until
 * `deadline_ns`. Told apart from a node that is late, which answers this one at once.
 */
enum status client_reach(struct client *client, int64_t deadline_ns,
                         struct error *error) WARN_UNUSED;

/* `method` is that of the service, as "ModelInfer". The response is to be freed. */
enum status client_call(struct client *client, const char *method, const ProtobufCMessage *request,
                        int64_t deadline_ns, void **response, size_t *response_bytes,
                        struct error *error) WARN_UNUSED;
/* The same with a request that is packed already. */
enum status client_call_packed(struct client *client, const char *method, const void *request,
                               size_t request_bytes, int64_t deadline_ns, void **response,
                               size_t *response_bytes, struct error *error) WARN_UNUSED;
