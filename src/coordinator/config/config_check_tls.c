/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tls` and `mesh: tls` of file and environment. The content of the files that they name is judged
 * when they are opened (certificates.h).
 */
#include <string.h>

#include "coordinator/config/config_tree.h"

static void
resolve(const struct config *config, struct config_tls *tls)
{
    char **const paths[] = {&tls->certificate, &tls->key, &tls->key_password_file, &tls->ca};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (*paths[i] != NULL)
            *paths[i] = config_resolve(config, *paths[i]);
}

/* The file's keys are required; the environment may have one without the other. */
static void
check_pair(struct config_reader *reader, const struct config_tls *tls)
{
    if (tls->line > 0 || (tls->certificate == NULL) == (tls->key == NULL))
        return;
    report_add(reader->report, 0, "environment: %s of TLS for callers, but no %s",
               tls->key == NULL ? "MM_TLS_KEY_CERT_PATH" : "MM_TLS_PRIVATE_KEY_PATH",
               tls->key == NULL ? "MM_TLS_PRIVATE_KEY_PATH" : "MM_TLS_KEY_CERT_PATH");
}

enum tls_callers { ANY_CALLERS, CALLERS };

/* `whose`: the service is for callers, as `listen` is. */
static void
check_addresses(struct config_reader *reader, const char *key, enum tls_callers whose,
                const struct config_addresses *addresses)
{
    const struct config_tls *tls = &reader->config->tls;
    for (uint32_t i = 0; i < addresses->count; i++) {
        const struct config_transport *transport = &addresses->transports[i];
        const char *address = addresses->items[i];
        bool is_plain = config_is_yes(transport->plain);
        if (config_is_yes(transport->tls) && is_plain)
            report_add(reader->report, transport->line,
                       "`%s`: %s: `tls: yes` and `plain: yes` exclude each other", key, address);
        else if (config_is_yes(transport->tls) && tls->certificate == NULL)
            report_add(reader->report, transport->line,
                       "`%s`: %s: `tls: yes`, but there is no `tls` at the top, which has the "
                       "certificates",
                       key, address);
        else if (whose == CALLERS && tls->ca != NULL && !config_is_yes(transport->tls) &&
                 !is_plain && !config_is_local(address))
            report_add(reader->report, transport->line,
                       "`%s`: %s would serve callers without the certificate that `listen` demands "
                       "(`client_ca`): make it {address: %s, tls: yes}, or {…, plain: yes} to "
                       "allow that",
                       key, address, address);
    }
}

/* Returns whether the address serves only clients with a certificate. */
static bool
wants_certificate(const struct config_tls *tls, const struct config_transport *transport)
{
    return config_is_yes(transport->tls) && tls->ca != NULL &&
           (tls->client_auth == NULL || strcmp(tls->client_auth, "required") == 0);
}

static void
check_dashboard(struct config_reader *reader)
{
    const struct config_dashboard *dashboard = &reader->config->dashboard;
    const struct config_addresses *addresses = &dashboard->addresses;
    check_addresses(reader, "dashboard", CALLERS, addresses);
    for (uint32_t i = 0; i < addresses->count; i++)
        if (dashboard->token_file == NULL && !config_is_local(addresses->items[i]) &&
            !wants_certificate(&reader->config->tls, &addresses->transports[i]))
            report_add(reader->report, addresses->transports[i].line,
                       "`dashboard`: %s would show the node to anyone in its network: set "
                       "`dashboard_token`, or make it {address: %s, tls: yes} with `client_ca` of "
                       "`tls`, or 127.0.0.1:8088",
                       addresses->items[i], addresses->items[i]);
    if (dashboard->token_file != NULL && addresses->count == 0)
        report_add(reader->report, 0, "`dashboard_token` without `dashboard`: add its address");
}

void
config_check_tls(struct config_reader *reader)
{
    struct config *config = reader->config;
    struct config_tls *callers = &config->tls;
    bool asked = callers->client_auth != NULL && strcmp(callers->client_auth, "none") != 0;
    check_pair(reader, callers);
    if (callers->line == 0 && callers->client_auth == NULL)
        callers->client_auth = must_copy("none"); /* the default of ModelMesh's container */
    if ((asked || callers->key_password != NULL) && callers->certificate == NULL &&
        callers->key == NULL && callers->line == 0)
        report_add(reader->report, 0,
                   "environment: %s, but no MM_TLS_KEY_CERT_PATH and "
                   "MM_TLS_PRIVATE_KEY_PATH: without them there is no TLS",
                   asked ? "MM_TLS_CLIENT_AUTH" : "MM_TLS_PRIVATE_KEY_PASSPHRASE");
    else if (asked && callers->ca == NULL)
        report_add(reader->report, callers->line,
                   "`client_auth: %s` without `client_ca` (MM_TLS_TRUST_CERT_PATH): name the "
                   "authorities that sign callers' certificates",
                   callers->client_auth);
    check_addresses(reader, "http", CALLERS, &config->http);
    check_addresses(reader, "metrics", ANY_CALLERS, &config->metrics);
    check_addresses(reader, "probes", ANY_CALLERS, &config->probes);
    check_addresses(reader, "prestop", ANY_CALLERS, &config->prestop);
    check_dashboard(reader);
    if (config->dashboard.token_file != NULL)
        config->dashboard.token_file = config_resolve(config, config->dashboard.token_file);
    resolve(config, callers);
    resolve(config, &config->mesh.tls);
}
