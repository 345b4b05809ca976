/* SPDX-License-Identifier: Apache-2.0 */
/* Knowledge that answers bring, and that all calls and streams of a client share. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "mesh/etcd/client.h"

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

void
etcd_token_take(struct etcd *etcd, const char *token, const struct error *error)
{
    etcd->token_call = NULL;
    /* authentication is off for now: calls go without a token and are refused when that changes */
    bool no_users = error != NULL && strstr(error->text, "authentication is not enabled") != NULL;
    if (error == NULL || no_users) {
        free(etcd->token);
        etcd->token = memory_copy_text(token);
        etcd->token_known = true;
        etcd->token_number++;
        etcd->figures.tokens += error == NULL;
    }
    notify_waits(etcd, no_users ? NULL : error);
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
