/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/etcd/client.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"

static int64_t
or_default(int64_t given, int64_t otherwise)
{
    return given == 0 ? otherwise : given;
}

static enum status
options_check(const struct etcd_options *options, struct error *error)
{
    bool certificate = options->cert_file != NULL || options->cert_pem != NULL;
    bool key = options->key_file != NULL || options->key_pem != NULL;
    if (certificate != key)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "etcd: a certificate needs its key, and a key its certificate");
    if ((options->user == NULL) != (options->password == NULL))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "etcd: a user needs a password, and a password a user");
    const int64_t times_ns[] = {options->call_timeout_ns, options->connect_timeout_ns,
                                options->retry_ns_max};
    for (size_t i = 0; i < ARRAY_COUNT(times_ns); i++)
        if (times_ns[i] < 0 || times_ns[i] > ETCD_TIME_NS_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "etcd: a time is negative or longer than a year");
    return STATUS_OK;
}

enum status
etcd_create(struct event_base *base, const struct etcd_options *options, struct etcd **created,
            struct error *error)
{
    if (options_check(options, error) != STATUS_OK)
        return error->status;
    struct etcd_options full = *options;
    full.connect_timeout_ns = or_default(full.connect_timeout_ns, NS_PER_S);
    full.retry_ns_max = or_default(full.retry_ns_max, 2 * NS_PER_S);
    if (full.answer_bytes_max == 0)
        full.answer_bytes_max = (size_t)64 << 20;
    struct etcd *etcd = calloc(1, sizeof(*etcd));
    CHECK(etcd != NULL);
    if (etcd_endpoints_init(&etcd->endpoints, &full, error) != STATUS_OK)
        goto out;
    if (etcd_wire_create(base, &full, &etcd->wire, error) != STATUS_OK) {
        etcd_endpoints_fini(&etcd->endpoints);
        goto out;
    }
    etcd->base = base;
    etcd->call_timeout_ns = or_default(full.call_timeout_ns, 5 * NS_PER_S);
    etcd->pieces_bytes_max = full.answer_bytes_max;
    etcd->user = memory_copy_text(full.user);
    etcd->password = memory_copy_text(full.password);
    etcd->token_known = full.user == NULL;
    etcd->token_number = 1;
    TAILQ_INIT(&etcd->calls);
    TAILQ_INIT(&etcd->waiting);
    TAILQ_INIT(&etcd->token_waits);
    *created = etcd;
    return STATUS_OK;
out:
    free(etcd);
    return error->status;
}

void
etcd_destroy(struct etcd *etcd)
{
    if (etcd == NULL)
        return;
    CHECK(etcd->users == 0);
    while (!TAILQ_EMPTY(&etcd->calls))
        etcd_cancel(TAILQ_FIRST(&etcd->calls));
    etcd_wire_destroy(etcd->wire);
    etcd_endpoints_fini(&etcd->endpoints);
    free(etcd->user);
    free(etcd->password);
    free(etcd->token);
    free(etcd);
}

const char *
etcd_trouble(const struct etcd *etcd)
{
    return etcd->trouble.text;
}

const struct etcd_figures *
etcd_figures(const struct etcd *etcd)
{
    return &etcd->figures;
}

bool
etcd_is_full(const struct etcd *etcd)
{
    return etcd->is_full;
}

int64_t
etcd_silent_ns(const struct etcd *etcd)
{
    return etcd->endpoints.silent_ns;
}
