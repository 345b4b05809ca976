/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/etcd/client.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "mesh/etcd/request.h"

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

static char *
copy_of(const char *text)
{
    char *copy = text == NULL ? NULL : strdup(text);
    CHECK(text == NULL || copy != NULL);
    return copy;
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
    etcd->user = copy_of(full.user);
    etcd->password = copy_of(full.password);
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

const char *
etcd_endpoint(const struct etcd *etcd)
{
    return etcd->endpoints.list[etcd->endpoints.current].url;
}

/* ---- the token ---- */

static void
notify_waits(struct etcd *etcd, const struct error *error)
{
    struct etcd_token_wait *end = &etcd->token_waits_end;
    struct etcd_token_wait *wait;
    TAILQ_INSERT_TAIL(&etcd->token_waits, end, link);
    while ((wait = TAILQ_FIRST(&etcd->token_waits)) != end) {
        TAILQ_REMOVE(&etcd->token_waits, wait, link);
        wait->waiting = false;
        wait->on_token(wait->context, error);
    }
    TAILQ_REMOVE(&etcd->token_waits, end, link);
}

static void
on_token(struct etcd *etcd, const char *token, const struct error *error)
{
    etcd->token_call = NULL;
    /* authentication is off for now: calls go without a token and are refused when that changes */
    bool no_users = error != NULL && strstr(error->text, "authentication is not enabled") != NULL;
    if (error == NULL || no_users) {
        free(etcd->token);
        etcd->token = copy_of(token);
        etcd->token_known = true;
        etcd->token_number++;
        etcd->figures.tokens += error == NULL;
    }
    notify_waits(etcd, no_users ? NULL : error);
}

static void
ask_for_token(struct etcd *etcd)
{
    struct etcd_call_plan plan = {
        .path = "/v3/auth/authenticate",
        .kind = ETCD_KIND_TOKEN,
        .effect = ETCD_CALL_READS,
        .lane = ETCD_LANE_OWN,
        .on_token = on_token,
    };
    etcd_request_token(&plan.body, etcd->user, etcd->password);
    etcd->token_call = etcd_call_start(etcd, &plan);
}

void
etcd_token_get(struct etcd *etcd, uint64_t refused_number, struct etcd_token_wait *wait)
{
    if (etcd->user != NULL && refused_number == etcd->token_number)
        etcd->token_known = false;
    if (etcd->token_known) {
        wait->on_token(wait->context, NULL);
        return;
    }
    wait->waiting = true;
    TAILQ_INSERT_TAIL(&etcd->token_waits, wait, link);
    if (etcd->token_call == NULL)
        ask_for_token(etcd);
}

void
etcd_token_leave(struct etcd *etcd, struct etcd_token_wait *wait)
{
    if (!wait->waiting)
        return;
    wait->waiting = false;
    TAILQ_REMOVE(&etcd->token_waits, wait, link);
}

/* ---- the cluster ---- */

/* All reachable endpoints are behind, at least twice in a row: then not the endpoints are old, but
 * our knowledge is gone. */
static bool
history_is_lost(const struct etcd *etcd)
{
    if (etcd->behind_in_row < 2)
        return false;
    for (size_t i = 0; i < etcd->endpoints.count; i++) {
        const struct etcd_endpoint *endpoint = &etcd->endpoints.list[i];
        if (!endpoint->behind && endpoint->failures == 0)
            return false;
    }
    return true;
}

static void
forget_behind(struct etcd *etcd)
{
    etcd->behind_in_row = 0;
    for (size_t i = 0; i < etcd->endpoints.count; i++)
        etcd->endpoints.list[i].behind = 0;
}

void
etcd_history_lost(struct etcd *etcd)
{
    forget_behind(etcd);
    etcd->history++;
    etcd->figures.histories++;
}

bool
etcd_cluster_seen(struct etcd *etcd, size_t index, const struct etcd_answer *answer, int64_t floor,
                  struct error *error)
{
    struct etcd_endpoint *endpoint = &etcd->endpoints.list[index];
    if (etcd->cluster_id != 0 && etcd->cluster_id != answer->cluster_id) {
        error_set(error, STATUS_FAILED_PRECONDITION,
                  "%s belongs to the etcd cluster %" PRIx64 ", not to %" PRIx64
                  " as before: the endpoints must be of one cluster",
                  endpoint->url, answer->cluster_id, etcd->cluster_id);
        return false;
    }
    etcd->cluster_id = answer->cluster_id;
    if (answer->revision >= floor) {
        if (answer->revision > etcd->revision_max)
            etcd->revision_max = answer->revision;
        if (floor > 0)
            forget_behind(etcd);
        return true;
    }
    endpoint->behind = 1;
    etcd->behind_in_row++;
    etcd->figures.behind++;
    if (history_is_lost(etcd)) {
        etcd_history_lost(etcd);
        etcd->revision_max = answer->revision;
        return true;
    }
    error_set(error, STATUS_UNAVAILABLE,
              "%s is behind: revision %" PRId64 " after %" PRId64 " was seen", endpoint->url,
              answer->revision, floor);
    return false;
}
