/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials: none, or those of TLS. The library copies what it is given. */
#include <grpc/grpc_security.h>

#include "rpc/internal.h"

enum status
rpc_tls_check(const struct rpc_tls *tls, bool server, struct error *error)
{
    if (tls == NULL)
        return STATUS_OK;
    if ((tls->certificate == NULL) != (tls->key == NULL))
        return error_set(error, STATUS_INVALID_ARGUMENT, "TLS: %s without %s",
                         tls->key == NULL ? "a certificate" : "a key",
                         tls->key == NULL ? "its key" : "its certificate");
    if (server && tls->certificate == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "TLS: a server needs a certificate");
    return STATUS_OK;
}

grpc_channel_credentials *
rpc_tls_client(const struct rpc_tls *tls)
{
    if (tls == NULL)
        return grpc_insecure_credentials_create();
    grpc_ssl_pem_key_cert_pair pair = {.private_key = tls->key, .cert_chain = tls->certificate};
    return grpc_ssl_credentials_create(tls->ca, tls->key != NULL ? &pair : NULL, NULL, NULL);
}

grpc_server_credentials *
rpc_tls_server(const struct rpc_tls *tls)
{
    if (tls == NULL)
        return grpc_insecure_server_credentials_create();
    grpc_ssl_pem_key_cert_pair pair = {.private_key = tls->key, .cert_chain = tls->certificate};
    grpc_ssl_client_certificate_request_type whom =
        tls->ca != NULL ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                        : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    return grpc_ssl_server_credentials_create_ex(tls->ca, &pair, 1, whom, NULL);
}
