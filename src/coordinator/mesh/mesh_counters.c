/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_counters.h"

#include "base/check.h"
#include "base/clock.h"
#include "ipc/counters.h"
#include "mesh/edge/peers.h"
#include "mesh/edge/skew.h"
#include "mesh/etcd/etcd.h"
#include "mesh/record/record.h"

struct pair {
    enum counter counter;
    uint64_t value;
};

static void
set_all(_Atomic uint64_t *counters, const struct pair *pairs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        counter_set(counters, pairs[i].counter, pairs[i].value);
}

static uint64_t
bytes_of(uint64_t units)
{
    return units * RECORD_UNIT_BYTES;
}

static uint64_t
refused(const uint64_t ways[RUNNER_WAYS], enum mesh_end end)
{
    return ways[RUNNER_REFUSED + (int)end];
}

static void
set_calls(_Atomic uint64_t *counters, const struct runner_view *view)
{
    const uint64_t *own = view->counts.entered;
    const uint64_t *theirs = view->counts.passed;
    uint64_t returned = 0;
    for (int way = RUNNER_REFUSED; way < RUNNER_WAYS; way++)
        returned += theirs[way];
    const struct pair pairs[] = {
        {NODE_MESH_CALLS_HERE, own[RUNNER_HERE]},
        {NODE_MESH_CALLS_WAITED, own[RUNNER_WAITED]},
        {NODE_MESH_CALLS_ELSEWHERE, own[RUNNER_ELSEWHERE]},
        {NODE_MESH_CALLS_CANCELLED, own[RUNNER_CANCELLED]},
        {NODE_MESH_CALLS_NOT_FOUND, refused(own, MESH_END_NOT_FOUND)},
        {NODE_MESH_CALLS_LOAD_FAILED, refused(own, MESH_END_LOAD_FAILED)},
        {NODE_MESH_CALLS_FAILED, refused(own, MESH_END_FAILED) + refused(own, MESH_END_NOT_HERE) +
                                     refused(own, MESH_END_REFUSED) +
                                     refused(own, MESH_END_UNREACHABLE)},
        {NODE_MESH_CALLS_OVERLOADED, refused(own, MESH_END_OVERLOADED)},
        {NODE_MESH_CALLS_FULL, refused(own, MESH_END_FULL)},
        {NODE_MESH_CALLS_UNAVAILABLE, refused(own, MESH_END_UNAVAILABLE)},
        {NODE_MESH_CALLS_DEADLINE, refused(own, MESH_END_DEADLINE)},
        {NODE_MESH_PEER_CALLS_HERE, theirs[RUNNER_HERE]},
        {NODE_MESH_PEER_CALLS_WAITED, theirs[RUNNER_WAITED]},
        {NODE_MESH_PEER_CALLS_ELSEWHERE, theirs[RUNNER_ELSEWHERE]},
        {NODE_MESH_PEER_CALLS_CANCELLED, theirs[RUNNER_CANCELLED]},
        {NODE_MESH_PEER_CALLS_RETURNED, returned},
        {NODE_MESH_UNDER_WAY, view->calls},
    };
    set_all(counters, pairs, ARRAY_COUNT(pairs));
}

static void
set_tries(_Atomic uint64_t *counters, const struct runner_counts *counts)
{
    const uint64_t *tried = counts->tried;
    const struct pair pairs[] = {
        {NODE_MESH_FORWARDS, counts->forwarded},
        {NODE_MESH_TRIES_FAILED_UNREACHABLE, tried[MESH_END_UNREACHABLE]},
        {NODE_MESH_TRIES_FAILED_OVERLOADED, tried[MESH_END_OVERLOADED]},
        {NODE_MESH_TRIES_FAILED_NOT_HERE, tried[MESH_END_NOT_HERE]},
        {NODE_MESH_TRIES_FAILED_NOT_LOADED, tried[MESH_END_REFUSED] + tried[MESH_END_LOAD_FAILED]},
        {NODE_MESH_TRIES_FAILED_OTHER, tried[MESH_END_NOT_FOUND] + tried[MESH_END_FAILED] +
                                           tried[MESH_END_UNAVAILABLE] + tried[MESH_END_DEADLINE]},
    };
    set_all(counters, pairs, ARRAY_COUNT(pairs));
}

static void
set_models(_Atomic uint64_t *counters, const struct runner_view *view)
{
    const struct runner_counts *counts = &view->counts;
    const struct mesh_figures *figures = &view->figures.figures;
    const struct mesh_sums *sums = &view->sums;
    const struct pair pairs[] = {
        {NODE_MESH_LOADS, counts->loads},
        {NODE_MESH_LOADS_FAILED, counts->load_failures},
        {NODE_MESH_UNLOADS, counts->unloads},
        {NODE_MESH_UNLOADS_FAILED, counts->unload_failures},
        {NODE_MESH_EVICTIONS, counts->evictions},
        {NODE_MESH_GIVEN_UP, counts->given_up},
        {NODE_MESH_QUEUED, sums->queued},
        {NODE_MESH_LOADING, sums->loading},
        {NODE_MESH_CAPACITY, bytes_of(sums->capacity_units)},
        {NODE_MESH_RESERVE, bytes_of(sums->reserve_units)},
        {NODE_MESH_USED, bytes_of(sums->resident_units)},
        {NODE_MESH_FREE, bytes_of(figures->free_units)},
        {NODE_MESH_LOST, bytes_of(sums->lost_units)},
        {NODE_MESH_COPIES, sums->loaded},
        {NODE_MESH_OLDEST, figures->copies == 0 ? 0 : (uint64_t)figures->oldest_ms},
        {NODE_MESH_LEADS, view->leads},
        {NODE_MESH_INSTANCES, view->instances},
        {NODE_MESH_MODELS, view->models},
        {NODE_MESH_MODELS_HELD, sums->models_held},
        {NODE_MESH_MODELS_FAILED, sums->models_failed},
        {NODE_MESH_VMODELS, view->vmodels},
        {NODE_MESH_VMODELS_MOVING, sums->vmodels_moving},
        {NODE_MESH_TRANSITIONS, sums->transitions},
    };
    set_all(counters, pairs, ARRAY_COUNT(pairs));
}

static void
set_store(_Atomic uint64_t *counters, const struct runner_view *view,
          const struct mesh_store *store)
{
    const struct runner_counts *counts = &view->counts;
    const struct etcd_figures *etcd = store->etcd != NULL ? etcd_figures(store->etcd) : NULL;
    struct store_figures figures = {0};
    if (store->store != NULL)
        store_look(store->store, &figures);
    const struct pair pairs[] = {
        {NODE_MESH_CONNECTED, view->session != 0},
        {NODE_MESH_HEARD, (uint64_t)view->reported_ms},
        {NODE_MESH_REVISION, view->revision},
        {NODE_MESH_STORE_EVENTS, counts->store_records},
        {NODE_MESH_TXNS_OK, counts->txns_done},
        {NODE_MESH_TXNS_LOST, counts->txns_lost},
        {NODE_MESH_TXNS_UNKNOWN, counts->txns_unknown},
        {NODE_MESH_WRITES_FULL, etcd != NULL ? etcd->full : 0},
        {NODE_MESH_STORE_FULL, mesh_store_is_full(store)},
        {NODE_MESH_STORE_WAITING, figures.waiting},
        {NODE_MESH_WRITES_BUSY, figures.busy},
        {NODE_MESH_BATCH_MAX, figures.batch_max},
        {NODE_MESH_WATCHES, etcd != NULL ? etcd->streams : 0},
        {NODE_MESH_LISTS, etcd != NULL ? etcd->lists : 0},
        {NODE_MESH_SESSIONS, counts->sessions},
        {NODE_MESH_EMPTIED, counts->emptied},
        {NODE_MESH_BAD_RECORDS, counts->bad_records},
        {NODE_MESH_PUBLISHED, counts->published},
    };
    set_all(counters, pairs, ARRAY_COUNT(pairs));
}

static void
set_clock(_Atomic uint64_t *counters, struct skew *skew)
{
    struct skew_view view = {.clocks = 0};
    if (skew != NULL)
        skew_look(skew, &view);
    int64_t off_ms = view.ahead_ms < 0 ? -view.ahead_ms : view.ahead_ms;
    const struct pair pairs[] = {
        {NODE_MESH_CLOCK_SKEW, (uint64_t)off_ms * NS_PER_MS},
        {NODE_MESH_CLOCKS, view.clocks},
    };
    set_all(counters, pairs, ARRAY_COUNT(pairs));
}

void
mesh_counters_publish(_Atomic uint64_t *counters, struct mesh_runner *runner, struct peers *peers,
                      const struct mesh_store *store)
{
    struct runner_view view;
    struct peers_view others = {0};
    runner_look(runner, &view);
    if (peers != NULL)
        peers_look(peers, &others);
    set_calls(counters, &view);
    set_tries(counters, &view.counts);
    set_models(counters, &view);
    set_store(counters, &view, store);
    set_clock(counters, runner_skew(runner));
    const struct pair pairs[] = {
        {NODE_MESH_PEERS, others.connected},
        {NODE_MESH_OUT, others.calls},
        {NODE_MESH_PEER_SENT, others.sent_bytes},
        {NODE_MESH_PEER_RECEIVED, others.received_bytes},
        {NODE_MESH_ON, 1},
    };
    set_all(counters, pairs, ARRAY_COUNT(pairs));
}

void
mesh_counters_measure(_Atomic uint64_t *counters, enum runner_measure measure, uint64_t value)
{
    static const enum counter of[RUNNER_MEASURES] = {
        [RUNNER_WAIT_NS] = NODE_MESH_WAIT,          [RUNNER_PERMIT_NS] = NODE_MESH_SEAT_TIME,
        [RUNNER_QUEUE_NS] = NODE_MESH_QUEUE_TIME,   [RUNNER_SIZE_NS] = NODE_MESH_SIZE_TIME,
        [RUNNER_LOAD_NS] = NODE_MESH_LOAD_TIME,     [RUNNER_LOADED_BYTES] = NODE_MESH_LOADED_SIZE,
        [RUNNER_UNLOAD_NS] = NODE_MESH_UNLOAD_TIME, [RUNNER_EVICTED_MS] = NODE_MESH_EVICTED_AGE,
    };
    histogram_record(counters, of[measure], value);
}
