/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/config/certificates.h"

#include <string.h>

/* Callers are asked as `client_auth` says, or must show a certificate if somebody signs theirs. */
static enum rpc_tls_clients
clients_of(const struct config_tls *tls)
{
    if (tls->client_auth == NULL)
        return tls->ca != NULL ? RPC_TLS_CLIENTS_REQUIRED : RPC_TLS_CLIENTS_ANY;
    return strcmp(tls->client_auth, "required") == 0   ? RPC_TLS_CLIENTS_REQUIRED
           : strcmp(tls->client_auth, "optional") == 0 ? RPC_TLS_CLIENTS_OPTIONAL
                                                       : RPC_TLS_CLIENTS_ANY;
}

enum status
certificates_open(const struct config *config, struct certificates *certificates,
                  struct error *error)
{
    const struct config_tls *callers = &config->tls;
    const struct config_tls *peers = &config->mesh.tls;
    enum status status = STATUS_OK;
    *certificates = (struct certificates){NULL, NULL};
    if (callers->certificate != NULL)
        status = rpc_tls_create(&(struct rpc_tls_options){.name = "tls",
                                                          .certificate = callers->certificate,
                                                          .key = callers->key,
                                                          .ca = callers->ca,
                                                          .clients = clients_of(callers)},
                                &certificates->callers, error);
    if (status == STATUS_OK && peers->certificate != NULL)
        status = rpc_tls_create(&(struct rpc_tls_options){.name = "mesh: tls",
                                                          .certificate = peers->certificate,
                                                          .key = peers->key,
                                                          .ca = peers->ca,
                                                          .peer_name = peers->peer_name,
                                                          .clients = RPC_TLS_CLIENTS_REQUIRED},
                                &certificates->peers, error);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "%s", config->path);
}

void
certificates_close(struct certificates *certificates)
{
    rpc_tls_destroy(certificates->callers);
    rpc_tls_destroy(certificates->peers);
    *certificates = (struct certificates){NULL, NULL};
}
