/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/config/certificates.h"

#include <string.h>

#include "base/check.h"

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

uint32_t
certificates_check(const struct config *config, uint32_t *good, void (*say)(const char *mistake))
{
    struct rpc_tls_options all[] = {options_of(&config->tls, "tls"),
                                    options_of(&config->mesh.tls, "mesh: tls")};
    uint32_t mistakes = 0;
    all[1].clients = RPC_TLS_CLIENTS_REQUIRED;
    for (size_t i = 0; i < ARRAY_COUNT(all); i++) {
        struct error error = ERROR_NONE;
        struct rpc_tls *tls = NULL;
        if (all[i].certificate == NULL)
            continue;
        if (rpc_tls_create(&all[i], &tls, &error) == STATUS_OK) {
            *good += 1;
        } else {
            error_prefix(&error, "%s", config->path);
            say(error.text);
            mistakes++;
        }
        rpc_tls_destroy(tls);
    }
    return mistakes;
}

void
certificates_close(struct certificates *certificates)
{
    rpc_tls_destroy(certificates->callers);
    rpc_tls_destroy(certificates->peers);
    *certificates = (struct certificates){NULL, NULL};
}
