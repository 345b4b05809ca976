/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's credentials: none, or TLS. A server fetches its certificates at each connection; a
 * client keeps those of its creation. The library calls from the accepting code, on one thread at a
 * time for each socket.
 */
#include <grpc/grpc_security.h>
#include <string.h>

#include "base/check.h"
#include "rpc/internal.h"

enum status
rpc_tls_check_server(const struct rpc_tls *tls, struct error *error)
{
    if (tls != NULL && !rpc_tls_has_certificate(tls))
        return error_set(error, STATUS_INVALID_ARGUMENT, "TLS: a server needs a certificate");
    return STATUS_OK;
}

grpc_channel_credentials *
rpc_tls_client(struct rpc_tls *tls)
{
    uint64_t version;
    if (tls == NULL)
        return grpc_insecure_credentials_create();
    const struct rpc_pems *pems = rpc_tls_acquire(tls, &version);
    grpc_ssl_pem_key_cert_pair pair = {.private_key = pems->key, .cert_chain = pems->certificate};
    grpc_channel_credentials *credentials =
        grpc_ssl_credentials_create(pems->ca, pems->key != NULL ? &pair : NULL, NULL, NULL);
    rpc_tls_release(tls);
    return credentials;
}

/* The library copies everything. It requires authorities even if callers are not asked for
 * certificates, and then does not use them. */
static grpc_ssl_certificate_config_reload_status
fetch(void *context, grpc_ssl_server_certificate_config **config)
{
    struct rpc_tls_use *use = context;
    uint64_t version;
    const struct rpc_pems *pems = rpc_tls_acquire(use->tls, &version);
    bool is_new = version != use->version;
    if (is_new) {
        grpc_ssl_pem_key_cert_pair pair = {.private_key = pems->key,
                                           .cert_chain = pems->certificate};
        *config = grpc_ssl_server_certificate_config_create(
            pems->ca != NULL ? pems->ca : pems->certificate, &pair, 1);
        use->version = version;
    }
    rpc_tls_release(use->tls);
    return is_new ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW
                  : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
}

grpc_server_credentials *
rpc_tls_server(struct rpc_tls_use *use)
{
    static const grpc_ssl_client_certificate_request_type whom[] = {
        [RPC_TLS_CLIENTS_ANY] = GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
        [RPC_TLS_CLIENTS_OPTIONAL] = GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY,
        [RPC_TLS_CLIENTS_REQUIRED] = GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
    };
    if (use->tls == NULL)
        return grpc_insecure_server_credentials_create();
    use->version = 0;
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            whom[rpc_tls_clients(use->tls)], fetch, use));
}

/* Compares lengths: a name in a certificate may contain a zero byte. */
static bool
caller_has(const struct rpc_call *call, const char *kind, const char *name)
{
    grpc_auth_context *context = grpc_call_auth_context(call->core);
    bool has = false;
    if (context == NULL)
        return false;
    grpc_auth_property_iterator at = grpc_auth_context_find_properties_by_name(context, kind);
    const grpc_auth_property *property;
    while (!has && (property = grpc_auth_property_iterator_next(&at)) != NULL)
        has = property->value_length == strlen(name) &&
              memcmp(property->value, name, property->value_length) == 0;
    grpc_auth_context_release(context);
    return has;
}

bool
rpc_call_caller_is(const struct rpc_call *call, const char *name)
{
    return caller_has(call, GRPC_PEER_DNS_PROPERTY_NAME, name);
}

bool
rpc_call_caller_has_name(const struct rpc_call *call, const char *name)
{
    return caller_has(call, GRPC_X509_CN_PROPERTY_NAME, name) ||
           caller_has(call, GRPC_X509_SAN_PROPERTY_NAME, name);
}

bool
rpc_call_caller_names(const struct rpc_call *call,
                      void (*take)(void *context, const void *name, size_t bytes), void *context)
{
    static const char *const kinds[] = {GRPC_X509_SUBJECT_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME,
                                        GRPC_X509_SAN_PROPERTY_NAME};
    grpc_auth_context *shown = grpc_call_auth_context(call->core);
    bool any = false; /* a certificate without a subject has an empty property */
    for (size_t i = 0; i < ARRAY_COUNT(kinds) && shown != NULL; i++) {
        grpc_auth_property_iterator at = grpc_auth_context_find_properties_by_name(shown, kinds[i]);
        const grpc_auth_property *property;
        while ((property = grpc_auth_property_iterator_next(&at)) != NULL) {
            any = true;
            if (property->value_length > 0)
                take(context, property->value, property->value_length);
        }
    }
    if (shown != NULL)
        grpc_auth_context_release(shown);
    return any;
}

void
rpc_call_caller_name(const struct rpc_call *call, char *name, size_t room)
{
    static const char *const kinds[] = {GRPC_X509_CN_PROPERTY_NAME, GRPC_X509_SAN_PROPERTY_NAME};
    grpc_auth_context *context = grpc_call_auth_context(call->core);
    name[0] = '\0';
    for (size_t i = 0; i < ARRAY_COUNT(kinds) && context != NULL && name[0] == '\0'; i++) {
        grpc_auth_property_iterator at =
            grpc_auth_context_find_properties_by_name(context, kinds[i]);
        const grpc_auth_property *property = grpc_auth_property_iterator_next(&at);
        if (property == NULL)
            continue;
        size_t bytes = property->value_length < room ? property->value_length : room - 1;
        for (size_t k = 0; k < bytes; k++) {
            char c = property->value[k];
            name[k] = (unsigned char)c < 0x20 || c == 0x7f ? '?' : c;
        }
        name[bytes] = '\0';
    }
    if (context != NULL)
        grpc_auth_context_release(context);
}
