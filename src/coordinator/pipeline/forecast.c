/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/forecast.h"

#include "base/clock.h"

/* A worker's words are cut at these, so that no sum or product below overflows. */
#define COST_NS_MAX (UINT64_C(60) * NS_PER_S)
#define LIMIT_NS_MAX (INT64_C(1000000) * NS_PER_S)

static const int64_t TESTED_NS = 10 * NS_PER_S;

/* Times the mean distance of a run from its expectation: nine runs in ten end by then if run times
 * have their usual distribution (log-normal, sigma 0.5). */
enum { SPREAD_TIMES = 2 };

/* Fewer slots than this are not divided. */
enum { SLOTS_DIVIDED = 64 };

/* The part, in percent, that a priority may fill, and the part kept from callers that already have
 * half of their fair share, as room for the next caller. */
static const uint32_t percent_of[] = {
    [PRIORITY_HIGH] = 100, [PRIORITY_NORMAL] = 90, [PRIORITY_LOW] = 70};
enum { KEPT_FROM_LARGE_PERCENT = 5 };

/* ---- from the workers' words ---- */

static uint64_t
at_most(uint64_t value, uint64_t limit)
{
    return value < limit ? value : limit;
}

void
forecast_receive(struct forecast_stage *stage, const struct forecast_words *words, int64_t now_ns)
{
    bool is_running = words->began_ns > 0 && words->began_ns <= now_ns;
    if (is_running && now_ns - words->began_ns > stage->run_ns)
        stage->run_ns = (int64_t)at_most((uint64_t)(now_ns - words->began_ns), COST_NS_MAX);
    bool tested = words->ran_ns > 0 && words->ran_ns <= now_ns &&
                  (is_running || now_ns - words->ran_ns <= TESTED_NS);
    if (!tested || (words->fixed_ns == 0 && words->item_ns == 0))
        return;
    stage->reporting++;
    stage->fixed_ns += at_most(words->fixed_ns, COST_NS_MAX);
    stage->item_ns += at_most(words->item_ns, COST_NS_MAX);
    stage->spread_ns += at_most(words->spread_ns, COST_NS_MAX);
}

void
forecast_add(struct forecast *forecast, const struct forecast_stage *stage)
{
    if (stage->run_ns > forecast->run_ns)
        forecast->run_ns = stage->run_ns;
    if (stage->reporting == 0)
        return;
    uint64_t batch = stage->batch_size > 0 ? stage->batch_size : 1;
    uint64_t live = stage->live > stage->reporting ? stage->live : stage->reporting;
    uint64_t fixed_ns = stage->fixed_ns / stage->reporting;
    uint64_t item_ns = stage->item_ns / stage->reporting;
    uint64_t spread_ns = stage->spread_ns / stage->reporting;
    int64_t next_ns = (int64_t)((fixed_ns / batch + item_ns) / live);
    forecast->fixed_ns += (int64_t)(fixed_ns + SPREAD_TIMES * spread_ns);
    forecast->slope_ns += (int64_t)item_ns;
    forecast->full_ns += (int64_t)(item_ns * batch);
    if (next_ns > forecast->item_ns)
        forecast->item_ns = next_ns;
}

/* Its own way through all stages, in batches as large as there is company for. */
static int64_t
pass_ns(const struct forecast *forecast, uint32_t waiting)
{
    int64_t batch_ns = forecast->slope_ns * ((int64_t)waiting + 1);
    return forecast->fixed_ns + (batch_ns < forecast->full_ns ? batch_ns : forecast->full_ns);
}

int64_t
forecast_take_ns(const struct forecast *forecast, uint32_t waiting)
{
    return pass_ns(forecast, waiting) + forecast->item_ns * waiting;
}

/* ---- the verdict ---- */

/* A resource that fills up: the time until the answer is due, or the slots. All members have one
 * unit. */
struct gauge {
    int64_t used;
    int64_t own;  /* this caller's part of it */
    int64_t full; /* all of it */
    int64_t step; /* what one more request takes */
    bool divided; /* a part is kept from most requests */
};

static int64_t
part(const struct gauge *gauge, uint32_t percent)
{
    return gauge->full - gauge->full * (100 - percent) / 100;
}

/* Returns how much must be free again before a request like this one is admitted; 0: it is. Fair
 * shares divide the part that is open to large callers, so that these alone do not fill it all. */
static int64_t
lacking(const struct gauge *gauge, const struct forecast_demand *demand, enum verdict *verdict)
{
    uint32_t percent = gauge->divided ? percent_of[demand->priority] : 100;
    uint32_t kept_percent = gauge->divided ? KEPT_FROM_LARGE_PERCENT : 0;
    int64_t open = part(gauge, percent);
    int64_t open_to_large = part(gauge, percent - kept_percent);
    int64_t fair_used = gauge->own * (int64_t)demand->callers;
    bool contended = demand->callers > 1 && gauge->used > gauge->full / 2;
    if (contended && fair_used >= open_to_large) {
        *verdict = VERDICT_SHARE;
        return (fair_used - open_to_large) / (int64_t)demand->callers + 1;
    }
    if (fair_used >= open / 2)
        open = open_to_large;
    return gauge->used + gauge->step <= open ? 0 : gauge->used + gauge->step - open;
}

static uint32_t
retry_ms(int64_t lacking_ns, int64_t queue_ns)
{
    /* The first slot is free very soon, but the refused callers that come back for it would find it
     * taken: half of the present queue is done by this time. */
    int64_t wait_ms = (lacking_ns + queue_ns / 2) / NS_PER_MS + 1;
    return wait_ms < RETRY_MS_MAX ? (uint32_t)wait_ms : RETRY_MS_MAX;
}

uint32_t
forecast_retry_ms(const struct forecast *forecast, uint32_t waiting)
{
    if (forecast->item_ns > 0)
        return retry_ms(forecast->item_ns, forecast_take_ns(forecast, waiting));
    uint32_t run_ms = retry_ms(forecast->run_ns, 0);
    return run_ms > RETRY_UNKNOWN_MS ? run_ms : RETRY_UNKNOWN_MS;
}

static void
judge_time(const struct forecast *forecast, const struct forecast_demand *demand,
           struct judgement *judgement)
{
    int64_t limit_ns = demand->limit_ns < LIMIT_NS_MAX ? demand->limit_ns : LIMIT_NS_MAX;
    int64_t own_pass_ns = pass_ns(forecast, demand->waiting);
    struct gauge gauge = {
        .used = forecast->item_ns * demand->waiting,
        .own = forecast->item_ns * demand->own_held,
        .full = limit_ns - own_pass_ns,
        .divided = true,
    };
    enum verdict verdict = VERDICT_LATE;
    int64_t lacking_ns =
        gauge.full > 0 ? lacking(&gauge, demand, &verdict) : gauge.used - gauge.full + 1;
    if (lacking_ns == 0)
        return;
    judgement->verdict = verdict;
    judgement->open_ns = judgement->take_ns - lacking_ns;
    judgement->retry_ms = retry_ms(lacking_ns, gauge.used);
}

static void
judge_slots(const struct forecast *forecast, const struct forecast_demand *demand,
            struct judgement *judgement)
{
    struct gauge gauge = {
        .used = demand->held,
        .own = demand->own_held,
        .full = demand->slots,
        .step = 1,
        .divided = demand->slots >= SLOTS_DIVIDED,
    };
    if (demand->held >= demand->slots)
        return; /* the ring of free slots refuses by itself */
    enum verdict verdict = VERDICT_FULL;
    int64_t slots = lacking(&gauge, demand, &verdict);
    if (slots == 0)
        return;
    judgement->verdict = verdict;
    judgement->retry_ms = forecast->item_ns == 0
                              ? forecast_retry_ms(forecast, demand->waiting)
                              : retry_ms(forecast->item_ns * slots, judgement->take_ns);
}

struct judgement
forecast_judge(const struct forecast *forecast, const struct forecast_demand *demand)
{
    struct judgement judgement = {.verdict = VERDICT_ADMIT,
                                  .take_ns = forecast_take_ns(forecast, demand->waiting)};
    bool at_once = demand->waiting < demand->at_once;
    if (!at_once && demand->limit_ns != TIME_NEVER_NS && forecast->item_ns > 0)
        judge_time(forecast, demand, &judgement);
    if (judgement.verdict == VERDICT_ADMIT)
        judge_slots(forecast, demand, &judgement);
    return judgement;
}
