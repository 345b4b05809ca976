/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/config/certificates.h"

#include <string.h>

/* Callers are asked as `client_auth` says; without it they must show a certificate if there is
 * `client_ca`. */
static enum rpc_tls_clients
clients_of(const struct config_tls *tls)
{
    if (tls->client_auth == NULL)
        return tls->ca != NULL ? RPC_TLS_CLIENTS_REQUIRED : RPC_TLS_CLIENTS_ANY;
    return strcmp(tls->client_auth, "required") == 0   ? RPC_TLS_CLIENTS_REQUIRED
           : strcmp(tls->client_auth, "optional") == 0 ? RPC_TLS_CLIENTS_OPTIONAL
                                                       : RPC_TLS_CLIENTS_ANY;
}

static struct rpc_tls_options
options_of(const struct config_tls *tls, const char *name)
{
    return (struct rpc_tls_options){
        .name = name,
        .certificate = tls->certificate,
        .key = tls->key,
        .key_password_file = tls->key_password_file,
        .key_password = tls->key_password,
        .key_password_from =
            tls->line > 0 ? "`key_password_file`" : "MM_TLS_PRIVATE_KEY_PASSPHRASE",
        .ca = tls->ca,
        .peer_name = tls->peer_name,
        .clients = clients_of(tls),
    };
}

enum status
certificates_open(const struct config *config, struct certificates *certificates,
                  struct error *error)
{
    struct rpc_tls_options callers = options_of(&config->tls, "tls");
    struct rpc_tls_options peers = options_of(&config->mesh.tls, "mesh: tls");
    enum status status = STATUS_OK;
    peers.clients = RPC_TLS_CLIENTS_REQUIRED;
    *certificates = (struct certificates){NULL, NULL};
    if (callers.certificate != NULL)
        status = rpc_tls_create(&callers, &certificates->callers, error);
    if (status == STATUS_OK && peers.certificate != NULL)
        status = rpc_tls_create(&peers, &certificates->peers, error);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "%s", config->path);
}

void
certificates_close(struct certificates *certificates)
{
    rpc_tls_destroy(certificates->callers);
    rpc_tls_destroy(certificates->peers);
    *certificates = (struct certificates){NULL, NULL};
}
