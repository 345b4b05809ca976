/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call: it waits for its turn, for a token, for an endpoint; is sent; is judged; is sent again
 * or answered. One timer serves both its pauses and its end.
 *
 *     WAITING ─turn─▶ TOKEN ─▶ (PAUSED ─▶) RUNNING ─▶ answered
 *                       ▲          ▲          │ token refused, endpoint bad
 *                       └──────────┴──────────┘ and nothing can have been done, or it only reads
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "loop/timer.h"
#include "mesh/etcd/client.h"
#include "mesh/etcd/request.h"

/* Each has its own connection, which costs etcd 17 kB. */
enum { RUNNING_MAX = 8 };

enum etcd_call_state { CALL_WAITING, CALL_TOKEN, CALL_PAUSED, CALL_RUNNING, CALL_REFUSED };

struct etcd_call {
    TAILQ_ENTRY(etcd_call) link;
    TAILQ_ENTRY(etcd_call) waiting_link;
    struct etcd *etcd;
    struct etcd_call_plan plan;
    enum etcd_call_state state;
    bool counted; /* included in etcd->running */
    bool hurried; /* its pause was cut short; sent when that ends */
    int64_t deadline_ns;
    struct loop_timer *timer;
    struct etcd_exchange *exchange;
    size_t endpoint;         /* of the exchange */
    uint64_t token_number;   /* of the exchange */
    uint64_t refused_number; /* of the token that etcd refused; 0: none */
    int64_t floor;
    bool is_full; /* etcd has no space for it */
    struct etcd_token_wait token_wait;
    struct error last; /* why it has not been answered yet */
};

static void call_prepare(struct etcd_call *call);

/* ---- the end ---- */

static void
next_turn(struct etcd *etcd)
{
    struct etcd_call *next = TAILQ_FIRST(&etcd->waiting);
    if (next == NULL || etcd->running >= RUNNING_MAX)
        return;
    TAILQ_REMOVE(&etcd->waiting, next, waiting_link);
    etcd->waiting_count--;
    next->counted = true;
    etcd->running++;
    next->state = CALL_PAUSED;
    loop_timer_set(next->timer, 0); /* not from within another call's end */
}

static void
call_free(struct etcd_call *call)
{
    struct etcd *etcd = call->etcd;
    if (call->exchange != NULL)
        etcd_exchange_cancel(call->exchange);
    if (call->state == CALL_WAITING) {
        TAILQ_REMOVE(&etcd->waiting, call, waiting_link);
        etcd->waiting_count--;
    }
    if (etcd->token_call == call)
        etcd->token_call = NULL;
    etcd_token_leave(etcd, &call->token_wait);
    TAILQ_REMOVE(&etcd->calls, call, link);
    CHECK(etcd->running >= call->counted);
    etcd->running -= call->counted;
    loop_timer_destroy(call->timer);
    bytes_fini(&call->plan.body);
    free(call);
    next_turn(etcd);
}

void
etcd_cancel(struct etcd_call *call)
{
    call_free(call);
}

/* `reading`: of a successful answer. */
static void
call_answer(struct etcd_call *call, const struct etcd_reading *reading,
            const struct etcd_answer *answer)
{
    struct etcd *etcd = call->etcd;
    struct etcd_call_plan plan = call->plan;
    plan.body = (struct bytes){0};
    if (plan.kind == ETCD_KIND_TOKEN) {
        call_free(call);
        if (reading != NULL)
            plan.on_token(etcd, reading->token, NULL);
        else
            plan.on_token(etcd, NULL, &answer->error);
        return;
    }
    etcd->figures.calls++;
    etcd->figures.unknown += answer->fate == ETCD_UNKNOWN;
    call_free(call);
    plan.reply.on_answer(plan.reply.context, answer);
}

static void
call_fail(struct etcd_call *call, enum etcd_fate fate, const struct error *error)
{
    struct etcd_answer answer = {.fate =
                                     call->plan.effect == ETCD_CALL_READS ? ETCD_NOT_DONE : fate,
                                 .error = *error,
                                 .is_full = call->is_full};
    if (call->plan.kind == ETCD_KIND_TOKEN) /* callers that wait for a token have their own text */
        error_prefix(&answer.error, "no token");
    else if (answer.fate == ETCD_UNKNOWN)
        error_prefix(&answer.error, "etcd: unknown whether the write happened");
    else
        error_prefix(&answer.error, "etcd");
    call_answer(call, NULL, &answer);
}

static void
call_fail_late(struct etcd_call *call)
{
    struct error error = call->last;
    if (error.status == STATUS_OK)
        error_set(&error, STATUS_DEADLINE_EXCEEDED, "no answer in time from %s",
                  etcd_endpoint(call->etcd));
    else
        error_prefix(&error, "no answer in time; last");
    call_fail(call, ETCD_NOT_DONE, &error);
}

/* ---- one attempt ---- */

static void
call_judge(struct etcd_call *call, const struct etcd_exchange_end *end,
           struct etcd_verdict *verdict)
{
    const char *endpoint = call->etcd->endpoints.list[call->endpoint].url;
    if (end->http_status != 0) {
        etcd_answer_judge(endpoint, end->http_status, end->answer, end->answer_bytes, verdict);
        return;
    }
    *verdict = (struct etcd_verdict){
        .fate = end->body_given ? ETCD_UNKNOWN : ETCD_NOT_DONE,
        /* an oversized answer would be the same elsewhere */
        .endpoint_bad = end->error.status != STATUS_RESOURCE_EXHAUSTED,
        .error = end->error,
    };
}

/* Repeats the call if that is harmless and useful; otherwise the failure is the answer. */
static void
call_retry_or_fail(struct etcd_call *call, const struct etcd_verdict *verdict)
{
    struct etcd *etcd = call->etcd;
    int64_t now_ns = clock_now_ns();
    if (verdict->is_full) {
        call->is_full = etcd->is_full = true;
        etcd->figures.full++;
    }
    if (verdict->endpoint_bad) {
        etcd->figures.endpoint_failures++;
        etcd->trouble = verdict->error;
        etcd_endpoints_failed(&etcd->endpoints, call->endpoint, now_ns);
    } else {
        etcd_endpoints_worked(&etcd->endpoints, call->endpoint);
    }
    bool harmless = verdict->fate == ETCD_NOT_DONE || call->plan.effect == ETCD_CALL_READS;
    bool token_helps = verdict->token_bad && etcd->user != NULL && call->refused_number == 0 &&
                       call->plan.kind != ETCD_KIND_TOKEN;
    if (!harmless || !(verdict->endpoint_bad || token_helps)) {
        call_fail(call, verdict->fate, &verdict->error);
        return;
    }
    call->last = verdict->error;
    if (token_helps)
        call->refused_number = call->token_number;
    else
        call->refused_number = 0; /* the next endpoint may not know the new token either */
    if (now_ns >= call->deadline_ns)
        call_fail_late(call);
    else
        call_prepare(call);
}

/* True: the answer belongs to this kind of call. */
static bool
call_read(const struct etcd_call *call, const struct etcd_exchange_end *end,
          struct etcd_reading *reading, struct error *error)
{
    if (etcd_answer_read(call->plan.kind, end->answer, end->answer_bytes, reading, error) !=
        STATUS_OK)
        return false;
    const struct etcd_answer *answer = &reading->answer;
    if (call->plan.kind != ETCD_KIND_TXN ||
        answer->response_count == call->plan.response_counts[answer->succeeded])
        return true;
    error_set(error, STATUS_INTERNAL, "invalid answer from etcd: %zu responses to %zu operations",
              answer->response_count, call->plan.response_counts[answer->succeeded]);
    return false;
}

static void
call_take(struct etcd_call *call, const struct etcd_exchange_end *end)
{
    struct etcd_reading reading;
    struct etcd_verdict verdict = {.fate = ETCD_UNKNOWN, .endpoint_bad = true, .error = ERROR_NONE};
    const char *url = call->etcd->endpoints.list[call->endpoint].url;
    if (!call_read(call, end, &reading, &verdict.error)) {
        error_prefix(&verdict.error, "%s", url);
        /* a stream's answer may be an error in a 200 */
        if (call->plan.kind == ETCD_KIND_RENEW && strstr(end->answer, "\"error\"") != NULL)
            etcd_answer_judge(url, end->http_status, end->answer, end->answer_bytes, &verdict);
        call_retry_or_fail(call, &verdict);
    } else if (!etcd_cluster_seen(call->etcd, call->endpoint, &reading.answer, call->floor,
                                  &verdict.error)) {
        call_retry_or_fail(call, &verdict);
    } else {
        etcd_endpoints_worked(&call->etcd->endpoints, call->endpoint);
        bool held = call->plan.kind != ETCD_KIND_TXN || reading.answer.succeeded;
        if (call->plan.takes_space[held])
            call->etcd->is_full = false;
        reading.answer.fate = ETCD_DONE;
        reading.answer.history = call->etcd->history;
        call_answer(call, &reading, &reading.answer);
    }
    etcd_reading_fini(&reading);
}

static void
on_end(void *context, const struct etcd_exchange_end *end)
{
    struct etcd_call *call = context;
    call->exchange = NULL;
    if (end->http_status == 200) {
        call_take(call, end);
        return;
    }
    struct etcd_verdict verdict;
    call_judge(call, end, &verdict);
    call_retry_or_fail(call, &verdict);
}

static int64_t
attempt_ns(const struct etcd_call *call, int64_t left_ns)
{
    if (call->plan.effect == ETCD_CALL_WRITES)
        return left_ns; /* giving up earlier would only make it unknown earlier */
    int64_t whole_ns = call->plan.reply.timeout_ns;
    int64_t most_ns = call->plan.attempt_ns != 0 ? call->plan.attempt_ns : whole_ns / 3 + 1;
    return left_ns < most_ns ? left_ns : most_ns;
}

static void
call_send(struct etcd_call *call)
{
    struct etcd *etcd = call->etcd;
    int64_t left_ns = call->deadline_ns - clock_now_ns();
    if (left_ns <= 0) {
        call_fail_late(call);
        return;
    }
    call->state = CALL_RUNNING;
    call->endpoint = etcd->endpoints.current;
    call->token_number = etcd->token_number;
    call->floor = call->plan.floor == ETCD_FLOOR_KNOWN ? etcd->revision_max : 0;
    etcd->figures.attempts += call->plan.kind != ETCD_KIND_TOKEN;
    call->exchange = etcd_exchange_start(
        etcd->wire, &(struct etcd_exchange_request){
                        .endpoint = etcd->endpoints.list[call->endpoint].url,
                        .path = call->plan.path,
                        .token = call->plan.kind == ETCD_KIND_TOKEN ? NULL : etcd->token,
                        .body = call->plan.body.data,
                        .body_bytes = call->plan.body.used,
                        .timeout_ns = attempt_ns(call, left_ns),
                        .form = ETCD_ANSWER_WHOLE,
                        .on_end = on_end,
                        .context = call,
                    });
}

static void
call_pause_or_send(struct etcd_call *call)
{
    int64_t now_ns = clock_now_ns();
    int64_t wait_ns = etcd_endpoints_wait_ns(&call->etcd->endpoints, now_ns);
    if (wait_ns == 0 || call->hurried) {
        call->hurried = false;
        loop_timer_clear(call->timer); /* the attempt has its own timeout */
        call_send(call);
        return;
    }
    int64_t left_ns = call->deadline_ns - now_ns;
    /* another call's revision does not end a call that was never sent */
    bool sent = call->last.status != STATUS_OK;
    if (!sent && wait_ns > left_ns / 2) {
        wait_ns = left_ns / 2;
        call->hurried = true;
    }
    call->state = CALL_PAUSED;
    loop_timer_set(call->timer, wait_ns < left_ns ? wait_ns : left_ns);
}

static void
on_token(void *context, const struct error *error)
{
    struct etcd_call *call = context;
    if (error == NULL) {
        call_pause_or_send(call);
    } else if (etcd_status_is_refusal(error->status)) {
        call_fail(call, ETCD_NOT_DONE, error);
    } else { /* no token within that call's time; this call may have more */
        call->last = *error;
        call_prepare(call);
    }
}

static void
call_prepare(struct etcd_call *call)
{
    if (call->plan.kind == ETCD_KIND_TOKEN) {
        call_pause_or_send(call);
        return;
    }
    call->state = CALL_TOKEN;
    loop_timer_set(call->timer, call->deadline_ns - clock_now_ns());
    call->token_wait.on_token = on_token;
    call->token_wait.context = call;
    etcd_token_get(call->etcd, call->refused_number, &call->token_wait);
}

static void
on_time(void *context)
{
    struct etcd_call *call = context;
    if (call->state == CALL_REFUSED)
        call_fail(call, ETCD_NOT_DONE, &call->last);
    else if (clock_now_ns() >= call->deadline_ns)
        call_fail_late(call);
    else if (call->state == CALL_PAUSED)
        call_prepare(call);
    else /* libevent's clock is coarser than ours: the timer fired slightly early */
        loop_timer_set(call->timer, call->deadline_ns - clock_now_ns());
}

struct etcd_call *
etcd_call_start(struct etcd *etcd, const struct etcd_call_plan *plan)
{
    struct etcd_call *call = calloc(1, sizeof(*call));
    CHECK(call != NULL && !plan->body.failed);
    call->etcd = etcd;
    call->plan = *plan;
    if (plan->reply.timeout_ns <= 0)
        call->plan.reply.timeout_ns = etcd->call_timeout_ns;
    if (plan->reply.timeout_ns > ETCD_TIME_NS_MAX)
        call->plan.reply.timeout_ns = ETCD_TIME_NS_MAX;
    call->deadline_ns = clock_now_ns() + call->plan.reply.timeout_ns;
    call->last = ERROR_NONE;
    call->timer = loop_timer_create(etcd->base, on_time, call);
    TAILQ_INSERT_TAIL(&etcd->calls, call, link);
    if (plan->lane == ETCD_LANE_OWN || etcd->running < RUNNING_MAX) {
        call->counted = plan->lane == ETCD_LANE_SHARED;
        etcd->running += call->counted;
        call->state = CALL_PAUSED;
        loop_timer_set(call->timer, 0);
    } else if (etcd->waiting_count < ETCD_WAITING_MAX) {
        call->state = CALL_WAITING;
        TAILQ_INSERT_TAIL(&etcd->waiting, call, waiting_link);
        etcd->waiting_count++;
        loop_timer_set(call->timer, call->plan.reply.timeout_ns);
    } else {
        call->state = CALL_REFUSED;
        error_set(&call->last, STATUS_RESOURCE_EXHAUSTED, "%d calls are waiting", ETCD_WAITING_MAX);
        loop_timer_set(call->timer, 0);
    }
    return call;
}

/* ---- the token ---- */

static void
ask_for_token(struct etcd *etcd)
{
    struct etcd_call_plan plan = {
        .path = "/v3/auth/authenticate",
        .kind = ETCD_KIND_TOKEN,
        .effect = ETCD_CALL_READS,
        .lane = ETCD_LANE_OWN,
        .on_token = etcd_token_take,
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
