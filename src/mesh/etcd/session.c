/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session:
 *
 *   1. The lease counts from when its grant or renewal was sent, not answered.
 *   2. Its time is the TTL minus the margin. After a third of it the lease is renewed with a call
 *      that may take the rest, each attempt a sixth: so several endpoints are tried.
 *   3. An answer after that time is ignored: the owner has stopped by then.
 *   4. Time is CLOCK_BOOTTIME: leases also end while a machine is suspended.
 *   5. A grant is repeated until it is answered. If an answer is lost, that lease ends by itself.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "loop/timer.h"
#include "mesh/etcd/client.h"
#include "mesh/etcd/request.h"

enum { RENEWALS = 3, ATTEMPTS = 6, MARGIN_SHARE = 10 };

#define GRANT_PAUSE_NS (500LL * NS_PER_MS)

struct etcd_session {
    struct etcd *etcd;
    struct etcd_session_options options;
    struct loop_timer *timer;
    struct etcd_call *call;
    int64_t lease_id;
    int64_t asked_ns; /* when the current call began */
    int64_t lasts_ns; /* duration from then on, without the margin */
    int64_t until_ns; /* 0: not granted */
    bool lost;
};

static int64_t
boot_now_ns(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_BOOTTIME, &now) == 0);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

int64_t
etcd_session_lease_id(const struct etcd_session *session)
{
    return session->lease_id;
}

int64_t
etcd_session_left_ns(const struct etcd_session *session)
{
    int64_t left_ns = session->lost ? 0 : session->until_ns - boot_now_ns();
    return left_ns > 0 ? left_ns : 0;
}

static void
notify_trouble(struct etcd_session *session, const struct error *error)
{
    if (session->options.on_trouble != NULL)
        session->options.on_trouble(session->options.context, error);
}

static void
lose(struct etcd_session *session, enum status status, const char *why)
{
    struct error error;
    CHECK(!session->lost); /* it is reported once */
    error_set(&error, status, "etcd: the lease %" PRIx64 " is lost: %s",
              (uint64_t)session->lease_id, why);
    session->lost = true;
    loop_timer_clear(session->timer);
    if (session->call != NULL)
        etcd_cancel(session->call);
    session->call = NULL;
    session->options.on_lost(session->options.context, &error);
}

/* Granted or renewed for that long from the request; sets the timer for the next renewal. */
static void
extend(struct etcd_session *session, int64_t ttl_s)
{
    int64_t margin_ns = session->options.margin_ns;
    if (margin_ns == 0)
        margin_ns = ttl_s * NS_PER_S / MARGIN_SHARE;
    session->lasts_ns = ttl_s * NS_PER_S - margin_ns;
    session->until_ns = session->asked_ns + session->lasts_ns;
    int64_t next_ns = session->asked_ns + session->lasts_ns / RENEWALS;
    loop_timer_set(session->timer, next_ns - boot_now_ns());
}

static void
on_renewed(void *context, const struct etcd_answer *answer)
{
    struct etcd_session *session = context;
    session->call = NULL;
    if (etcd_session_left_ns(session) == 0) {
        lose(session, STATUS_DEADLINE_EXCEEDED, "it was not renewed in time");
    } else if (answer->fate == ETCD_DONE && answer->ttl_s == 0) {
        lose(session, STATUS_NOT_FOUND, "it has expired in etcd");
    } else if (answer->fate == ETCD_DONE) {
        extend(session, answer->ttl_s);
    } else { /* a refusal: an unreachable etcd would have used up the time */
        int64_t left_ns = etcd_session_left_ns(session);
        int64_t pause_ns = session->lasts_ns / ATTEMPTS;
        loop_timer_set(session->timer, pause_ns < left_ns ? pause_ns : left_ns);
        notify_trouble(session, &answer->error);
    }
}

static void
renew(struct etcd_session *session, int64_t left_ns)
{
    struct etcd_call_plan plan = {
        .path = "/v3/lease/keepalive",
        .kind = ETCD_KIND_RENEW,
        .effect = ETCD_CALL_READS,
        .lane = ETCD_LANE_OWN,
        .attempt_ns = session->lasts_ns / ATTEMPTS,
        .reply = {on_renewed, session, left_ns},
    };
    etcd_request_lease(&plan.body, session->lease_id);
    CHECK(session->call == NULL && !session->lost && session->lease_id != 0);
    session->asked_ns = boot_now_ns();
    session->call = etcd_call_start(session->etcd, &plan);
}

static void
on_granted(void *context, const struct etcd_answer *answer)
{
    struct etcd_session *session = context;
    session->call = NULL;
    if (answer->fate == ETCD_DONE) {
        session->lease_id = answer->lease_id;
        extend(session, answer->ttl_s);
        if (etcd_session_left_ns(session) > 0)
            session->options.on_granted(session->options.context, session->lease_id);
        else
            lose(session, STATUS_DEADLINE_EXCEEDED, "the grant took longer than its TTL");
        return;
    }
    loop_timer_set(session->timer,
                   etcd_endpoints_jitter(&session->etcd->endpoints, GRANT_PAUSE_NS));
    notify_trouble(session, &answer->error);
}

static void
grant(struct etcd_session *session)
{
    struct etcd_reply reply = {on_granted, session, 0};
    CHECK(session->call == NULL && session->lease_id == 0);
    session->asked_ns = boot_now_ns();
    session->call = etcd_lease_grant(session->etcd, session->options.ttl_s, 0, reply);
}

/* Our own clock's end is checked with each answer and here. */
static void
on_time(void *context)
{
    struct etcd_session *session = context;
    int64_t left_ns = etcd_session_left_ns(session);
    if (session->lease_id == 0)
        grant(session);
    else if (left_ns == 0)
        lose(session, STATUS_DEADLINE_EXCEEDED, "it was not renewed in time");
    else
        renew(session, left_ns);
}

struct etcd_session *
etcd_session_open(struct etcd *etcd, const struct etcd_session_options *options)
{
    CHECK(options->ttl_s > 0 && options->ttl_s <= INT32_MAX && options->margin_ns >= 0 &&
          options->margin_ns < options->ttl_s * NS_PER_S);
    struct etcd_session *session = calloc(1, sizeof(*session));
    CHECK(session != NULL);
    session->etcd = etcd;
    session->options = *options;
    session->timer = loop_timer_create(etcd->base, on_time, session);
    etcd->users++;
    grant(session);
    return session;
}

void
etcd_session_close(struct etcd_session *session)
{
    if (session->call != NULL)
        etcd_cancel(session->call);
    loop_timer_destroy(session->timer);
    session->etcd->users--;
    free(session);
}
