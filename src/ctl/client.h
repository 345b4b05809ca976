/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls a node's Open Inference Protocol service: sends a protobuf message, returns the answer's
 * bytes.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "inference/open_inference.pb-c.h"
#include "rpc/rpc.h"

/* The way to connect; all NULL: without TLS. */
struct client_tls {
    const char *ca; /* NULL: the system's */
    const char *cert;
    const char *key;
    const char *key_password_file; /* NULL: the key is not encrypted */
    const char *name;              /* NULL: the target's */
};

/* The options that fill it, for every command with a target; `tls` is its offset in the settings.
 */
#define CLIENT_TLS_WORD(tls, field)                                                                \
    .form = CTL_WORD, .at = (tls) + offsetof(struct client_tls, field)
#define CLIENT_TLS_OPTIONS(tls)                                                                    \
    {"tls-ca", "FILE", "use TLS; PEM of the authority of the node's certificate",                  \
     CLIENT_TLS_WORD(tls, ca)},                                                                    \
        {"tls-cert", "FILE", "use TLS; PEM of the client certificate, with --tls-key",             \
         CLIENT_TLS_WORD(tls, cert)},                                                              \
        {"tls-key", "FILE", "PEM of its key", CLIENT_TLS_WORD(tls, key)},                          \
        {"tls-key-password-file", "FILE", "file whose first line is the password of that key",     \
         CLIENT_TLS_WORD(tls, key_password_file)},                                                 \
    {                                                                                              \
        "tls-name", "NAME", "use TLS; name in the node's certificate; default: the target's",      \
            CLIENT_TLS_WORD(tls, name)                                                             \
    }

struct client {
    const char *target;
    struct rpc_channel *channel;
    struct rpc_tls *tls; /* NULL: none */
};

/* Call between rpc_init and rpc_shutdown. Does not connect yet. `target` is kept. `tls` may be
 * NULL. */
enum status client_open(struct client *client, const char *target, const struct client_tls *tls,
                        struct error *error) WARN_UNUSED;
void client_close(struct client *client);

/*
 * Checks that a gRPC server answers there, even with an error. UNAVAILABLE: none until
 * `deadline_ns`. PERMISSION_DENIED: this user may not connect to the unix socket. This
 * distinguishes an absent node from a slow one, which answers such a call at once.
 */
enum status client_reach(struct client *client, int64_t deadline_ns,
                         struct error *error) WARN_UNUSED;

/* Prefix of the path of a method of the Open Inference Protocol, such as "ModelInfer". */
#define CLIENT_SERVICE "/inference.GRPCInferenceService/"

/* Any method, by its path. NULL: it failed. Free the answer with protobuf_c_message_free_unpacked.
 */
void *client_ask(struct client *client, const char *path, const ProtobufCMessage *request,
                 const ProtobufCMessageDescriptor *answer, int64_t deadline_ns,
                 struct error *error);
