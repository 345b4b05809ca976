/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's loop: take the role of former, gather a batch, leave the role, run, pass on. Each
 * step returns how much it did; a turn that did nothing rests. A former with an open batch rests by
 * waiting for company until the batch is due. A worker without items spins for a while, then leaves
 * the role and sleeps until it is appointed.
 */
#include "worker/worker.h"

#include "base/check.h"
#include "base/clock.h"
#include "shm/former.h"
#include "shm/slot.h"

/* The longest sleep: between signs of life and looks at the control socket. */
static const int64_t SLEEP_NS_MAX = 500 * (int64_t)NS_PER_MS;

/* The longest sleep while a client region ends: another worker may take its last item, and its
 * client waits for us. */
static const int64_t ENDING_SLEEP_NS = NS_PER_MS;

/* Reserve before a deadline, beyond the run itself, for waking up and passing on. */
static const int64_t DEADLINE_MARGIN_NS = NS_PER_MS;

/* The most items dropped in one turn before an open batch is looked at again. */
enum { DROPS_MAX = 256, DROP_WEIGHT_OF_CLIENT_REGION = 16 };

static bool
ring_holds_work(const struct worker *worker)
{
    struct shm_ring ring = region_slot_ring(&worker->region, worker->place);
    return ring_has_cell(&ring) || client_regions_have_work(&worker->region, worker->place);
}

/* ---- steps ---- */

/* Gives a sign of life and looks at the control socket now and then, and when client regions have
 * come or gone. True: it is time to stop. */
static bool
look_after(struct worker *worker, int64_t now_ns)
{
    worker_entry_alive(&worker->entry, now_ns);
    if (worker_stop_requested())
        return true;
    if (worker->ending != 0 && worker->groups.held == 0)
        sources_unmap_ended(worker);
    if (now_ns < worker->control_look_ns &&
        worker_entry_regions_epoch(&worker->entry) == worker->client_regions.epoch)
        return false;
    worker->control_look_ns = now_ns + SLEEP_NS_MAX;
    return sources_receive(worker);
}

static bool
take_role(struct worker *worker)
{
    if (!worker->former)
        worker->former =
            former_take(&worker->region, worker->place, worker->start.worker_index, worker->owner);
    return worker->former;
}

static void
leave_role(struct worker *worker)
{
    if (worker->former)
        former_leave(&worker->region, worker->place, worker->start.worker_index, worker->owner);
    worker->former = false;
}

/* Returns true if the next item must run alone. Only the former pops, so it is still there
 * afterwards; should it be claimed and another one come, that one runs in company. */
static bool
next_runs_alone(const struct worker *worker, const struct source *source)
{
    struct shm_ring ring = region_slot_ring(source->region, worker->place);
    struct shm_ticket next;
    return ring_peek(&ring, &source->region->slots, &next) &&
           slot_runs_alone(region_slot(source->region, next.index), next.generation);
}

enum take { TAKE_NOTHING, TAKE_ITEM, TAKE_DROPPED, TAKE_REFUSED };

static enum take
pop_one(struct worker *worker, struct source *source, int64_t now_ns)
{
    struct shm_ticket ticket;
    switch (slot_pop(source->region, worker->place, worker->owner, &ticket)) {
    case RING_OK:
        source->takes_left -= source->takes_left > 0;
        return item_take(worker, source, ticket, now_ns) ? TAKE_ITEM : TAKE_DROPPED;
    case RING_EMPTY: return TAKE_NOTHING;
    case RING_LOST: /* in a client region no honest process refills that fast */
        if (source->is_client_region)
            source_corrupt(worker, source, "ring that is refilled while it is emptied");
        return TAKE_NOTHING;
    case RING_CORRUPT: source_corrupt(worker, source, "pop"); return TAKE_NOTHING;
    }
    UNREACHABLE();
}

/* Takes the next item of a source; a corrupt source has none. */
static enum take
take_one(struct worker *worker, struct source *source, int64_t now_ns)
{
    if (worker->groups.held > 0 && next_runs_alone(worker, source))
        return TAKE_REFUSED;
    source_touch(worker, source);
    enum take take = pop_one(worker, source, now_ns);
    source_touched(worker, source, take == TAKE_ITEM ? SOURCE_GAVE_AN_ITEM : SOURCE_GAVE_NOTHING);
    return take;
}

/* The weight of a drop: checking an unreadable item of a client region may take as long as its
 * bytes; the lane's were checked at admission. */
static uint32_t
drop_weight(const struct source *source)
{
    return source->is_client_region ? DROP_WEIGHT_OF_CLIENT_REGION : 1;
}

/* Takes waiting items as long as there is room. */
static uint32_t
gather(struct worker *worker, int64_t now_ns)
{
    uint32_t taken = 0;
    uint32_t dropped = 0;
    uint32_t futile = 0; /* consecutive picks without an item */
    while (!groups_full(&worker->groups) && dropped < DROPS_MAX && !worker->corrupt &&
           futile < sources_round(worker)) {
        struct source *source = sources_next(worker);
        enum take take = take_one(worker, source, now_ns);
        futile = take == TAKE_NOTHING ? futile + 1 : 0;
        taken += take == TAKE_ITEM;
        dropped += take == TAKE_DROPPED ? drop_weight(source) : 0;
        if (take == TAKE_REFUSED) {
            groups_refuse(&worker->groups);
            break;
        }
    }
    if (dropped > 0)
        sources_ring(worker);
    return taken + dropped;
}

/* ---- company: wait.h ---- */

static struct wait_moment
wait_moment(struct worker *worker, int64_t now_ns)
{
    struct cost_line line = cost_line(&worker->cost);
    return (struct wait_moment){
        .now_ns = now_ns,
        .count = worker->groups.held,
        .flight = sources_in_flight(worker),
        .fixed_ns = (int64_t)line.fixed_ns,
        .item_ns = (int64_t)line.item_ns,
        .close_ns = groups_close_ns(&worker->groups),
    };
}

/* Call when all waiting items were taken into a batch that had `had` items before. */
static void
judge_company(struct worker *worker, uint32_t had, int64_t now_ns)
{
    if (!worker->adaptive || worker->groups.held == 0 || groups_full(&worker->groups))
        return;
    struct wait_moment moment = wait_moment(worker, now_ns);
    worker->company_until_ns = wait_until(&worker->wait, &moment);
    int64_t wait_ns = worker->company_until_ns - now_ns;
    if (had == 0)
        worker_entry_gauge(&worker->entry, WORKER_COMPANY_WAIT,
                           wait_ns > 0 ? (uint64_t)wait_ns : 0);
}

static void
note_closed(struct worker *worker, int64_t now_ns)
{
    if (!worker->adaptive)
        return;
    struct wait_moment moment = wait_moment(worker, now_ns);
    wait_closed(&worker->wait, &moment);
    sources_note_pushes(worker);
}

static void
note_ran(struct worker *worker, int64_t began_ns, int64_t ended_ns)
{
    if (!worker->adaptive)
        return;
    wait_ran(&worker->wait, began_ns, ended_ns, worker->ran_items, worker->arrived);
}

/* Notes that the worker is without the role: new items go to another worker, if there is one. */
static void
note_without_role(struct worker *worker)
{
    if (worker->start.worker_count > 1)
        wait_looked_away(&worker->wait);
}

/* ---- closing ---- */

static struct groups_due
due(const struct worker *worker, int64_t now_ns)
{
    const struct groups_moment moment = {
        .now_ns = now_ns,
        .cost = &worker->cost,
        .margin_ns = DEADLINE_MARGIN_NS,
        .draining = worker_entry_draining(&worker->entry) || worker_stop_requested(),
        .company_until_ns = worker->company_until_ns,
    };
    return groups_due(&worker->groups, &moment);
}

/*
 * Other held items must not wait behind the run if another worker could take them: they go back to
 * the ring before the role is left, so that the next former finds them.
 */
static void
run_group(struct worker *worker, struct groups_due due)
{
    uint64_t model;
    uint32_t count = batch_close(worker, due.group, &model);
    if (worker->groups.held > 0 && worker->start.worker_count > 1) {
        hand_back(worker);
        if (worker->adaptive) /* handed back items are not arrivals */
            sources_note_pushes(worker);
    }
    leave_role(worker);
    batch_run(worker, due.state, count, model);
}

uint32_t
worker_turn(struct worker *worker, int64_t now_ns)
{
    uint32_t had = worker->groups.held;
    uint32_t done = 0;
    if (take_role(worker))
        done = gather(worker, now_ns);
    else
        note_without_role(worker);
    judge_company(worker, had, now_ns);
    struct groups_due closed = due(worker, now_ns);
    if (closed.state == BATCH_OPEN || worker->corrupt)
        return done;
    note_closed(worker, now_ns);
    done += groups_size(&worker->groups, closed.group);
    run_group(worker, closed);
    return done;
}

/*
 * Learns the cost of the previous turn, from its look at the ring until every item was passed on,
 * so that a worker that always has work does as much as is expected of it.
 */
static void
learn_cost(struct worker *worker, int64_t turned_ns, int64_t now_ns)
{
    if (worker->ran_items == 0)
        return;
    cost_learn(&worker->cost, worker->ran_items, now_ns - turned_ns, now_ns);
    note_ran(worker, turned_ns, now_ns);
    worker->ran_items = 0;
    struct cost_line line = cost_line(&worker->cost);
    worker_entry_cost(&worker->entry, (uint64_t)line.fixed_ns, (uint64_t)line.item_ns,
                      (uint64_t)worker->cost.spread_ns, now_ns);
}

/* ---- models: loader.h ---- */

/* Receives orders without a loader thread: held items that another worker could run do not wait for
 * the load. */
static void
receive_of_models(struct worker *worker)
{
    if (worker->groups.held > 0 && worker->start.worker_count > 1)
        hand_back(worker);
    leave_role(worker);
    loader_receive(&worker->loader);
}

static bool
loader_wants(const struct worker *worker)
{
    return worker->start.serves_models != 0 &&
           (loader_has_orders(&worker->loader) || model_table_flush_wanted(&worker->loader.table));
}

/* Between two turns. */
static void
serve_loader(struct worker *worker)
{
    if (!loader_wants(worker))
        return;
    if (model_table_flush_wanted(&worker->loader.table)) {
        heap_flush();
        model_table_flushed(&worker->loader.table);
    }
    if (loader_has_orders(&worker->loader))
        receive_of_models(worker);
}

/* ---- rest ---- */

/* Polls for work within the spin's budget. True: there is work. */
static bool
spin(struct worker *worker)
{
    int64_t now_ns = clock_now_ns();
    int64_t end_ns = now_ns + spin_budget(&worker->spin, now_ns);
    for (;;) {
        if (ring_holds_work(worker)) {
            spin_rewarded(&worker->spin);
            return true;
        }
        if (now_ns >= end_ns || worker_stop_requested())
            break;
        now_ns = spin_pause(&worker->spin, now_ns);
    }
    if (now_ns >= end_ns)
        spin_failed(&worker->spin);
    return false;
}

/* Call after doorbells_prepare, when the last look found no work. */
static void
sleep_until(struct worker *worker, struct doorbells *bells, int64_t until_ns)
{
    int64_t now_ns = clock_now_ns();
    int64_t longest_ns = until_ns - now_ns;
    int64_t most_ns = worker->ending != 0 ? ENDING_SLEEP_NS : SLEEP_NS_MAX;
    if (longest_ns > most_ns)
        longest_ns = most_ns;
    if (doorbells_sleep(bells, longest_ns))
        spin_after_sleep(&worker->spin, clock_now_ns() - now_ns);
}

/*
 * Waits with an open batch for more items until it is due. We sleep with the role: having accepted
 * it, we are the worker that a push wakes until we leave it. Polling instead would take the CPU
 * from the processes that make the items, for a wait that is part of each request.
 */
static void
wait_for_company(struct worker *worker)
{
    int64_t until_ns = due(worker, clock_now_ns()).look_again_ns;
    CHECK(worker->former); /* or no push would wake us */
    struct doorbells bells;
    client_regions_bells(&worker->region, worker->place, &worker->entry.worker->bell, &bells);
    doorbells_prepare(&bells);
    if (ring_holds_work(worker) || loader_wants(worker) ||
        due(worker, clock_now_ns()).state != BATCH_OPEN)
        doorbells_cancel(&bells);
    else
        sleep_until(worker, &bells, until_ns);
}

static void
sleep_for_work(struct worker *worker)
{
    const struct region *region = &worker->region;
    uint32_t index = worker->start.worker_index;
    struct doorbells bells;
    client_regions_bells(region, worker->place, &worker->entry.worker->bell, &bells);
    idle_enter(region, worker->place, index);
    doorbells_prepare(&bells);
    if (worker_stop_requested() || loader_wants(worker) ||
        stage_wants_former(region, worker->place, index, worker->owner)) {
        doorbells_cancel(&bells);
    } else {
        if (client_regions_have_cell(region, worker->place))
            former_ring(region, worker->place);
        worker_entry_count(&worker->entry, WORKER_SLEEPS, 1);
        sleep_until(worker, &bells, TIME_NEVER_NS);
    }
    idle_leave(region, worker->place, index);
}

static void
rest(struct worker *worker)
{
    if (worker->groups.held > 0) {
        wait_for_company(worker);
        return;
    }
    if (worker->former && spin(worker))
        return;
    leave_role(worker);
    note_without_role(worker);
    sleep_for_work(worker);
}

/* ---- the loop ---- */

/* Runs one of the groups that are left when it is time to stop; the other workers may be stopping,
 * too. */
static void
run_last(struct worker *worker)
{
    uint64_t model;
    uint32_t count = batch_close(worker, groups_oldest(&worker->groups), &model);
    leave_role(worker);
    batch_run(worker, BATCH_CLOSED_DRAINING, count, model);
}

enum worker_exit
worker_serve(struct worker *worker)
{
    int64_t turned_ns = 0;
    for (;;) {
        int64_t now_ns = clock_now_ns();
        learn_cost(worker, turned_ns, now_ns);
        turned_ns = now_ns;
        bool stop = look_after(worker, now_ns);
        while (stop && worker->groups.held > 0 && !worker->corrupt)
            run_last(worker);
        if (worker->corrupt)
            return EXIT_CORRUPT;
        if (stop)
            break;
        serve_loader(worker);
        if (worker_turn(worker, now_ns) == 0)
            rest(worker);
    }
    take_role(worker); /* we may have been appointed while we slept */
    leave_role(worker);
    return EXIT_STOPPED;
}
