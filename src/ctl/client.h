/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls to a node's Open Inference Protocol service: a protobuf message out, the bytes of one back.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "inference/open_inference.pb-c.h"
#include "rpc/rpc.h"

/* How a node is spoken to; all NULL: without TLS. */
struct client_tls {
    const char *ca; /* NULL: the system's */
    const char *cert;
    const char *key;
    const char *key_password_file; /* NULL: the key has none */
    const char *name;              /* NULL: the target's */
};

/* The options that fill it, of every command with a target. */
#define CLIENT_TLS_CA                                                                              \
    {                                                                                              \
        "tls-ca", "FILE", "speak TLS; PEM of who signs the node's certificate"                     \
    }
#define CLIENT_TLS_CERT                                                                            \
    {                                                                                              \
        "tls-cert", "FILE", "speak TLS; PEM of the certificate to show, with --tls-key"            \
    }
#define CLIENT_TLS_KEY                                                                             \
    {                                                                                              \
        "tls-key", "FILE", "PEM of its key"                                                        \
    }
#define CLIENT_TLS_KEY_PASSWORD                                                                    \
    {                                                                                              \
        "tls-key-password-file", "FILE", "first line: the password of that key, if it has one"     \
    }
#define CLIENT_TLS_NAME                                                                            \
    {                                                                                              \
        "tls-name", "NAME", "speak TLS; name in the node's certificate; default: the target's"     \
    }

/* False: it is none of these. */
bool client_tls_take(struct client_tls *tls, const char *option, const char *value);

struct client {
    const char *target;
    struct rpc_channel *channel;
    struct rpc_tls *tls; /* NULL: none */
};

/* Between rpc_init and rpc_shutdown. Does not connect yet. `target` is kept. `tls` may be NULL. */
enum status client_open(struct client *client, const char *target, const struct client_tls *tls,
                        struct error *error) WARN_UNUSED;
void client_close(struct client *client);

/*
 * Whether anybody speaks gRPC there: any answer will do, an error too. UNAVAILABLE: nobody until
 * `deadline_ns`. PERMISSION_DENIED: this user may not connect to the unix socket. Told apart from a
 * node that is late, which answers this one at once.
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
