/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a claimed slot to a slot passed on: the item's way through the modelet.
 *
 * Every item that is taken is passed on exactly once: to the next stage or the results with a new
 * payload, or to the errors with status and text. A failed item keeps its input payload only; what
 * it had acquired for outputs goes back to the arena.
 */
#include "worker/worker.h"

#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "shm/former.h"
#include "shm/slot.h"
#include "shm/spec.h"
#include "shm/stamp.h"

static struct shm_payload *
payload_at(struct shm_slot *slot, uint8_t place)
{
    return &slot->payload[place & 1];
}

/* ---- passing on ---- */

/* Of a guest that is lost nothing is passed on: nobody may wait for it. */
static void
push(struct worker *worker, struct item *item, uint8_t place, int64_t now_ns)
{
    struct source *source = item->source;
    if (source->lost)
        return;
    if (item->stamp != NULL)
        stamp_ended(item->stamp, now_ns);
    if (place >= region_result_place(source->region))
        worker->bells_owed |= UINT64_C(1) << (source - worker->sources);
    if (slot_push(source->region, item->ticket, worker->place, place, worker->party, now_ns) !=
        RING_OK)
        source_corrupt(worker, source, "push");
}

/* With the status and text that the item has. */
static void
push_failed(struct worker *worker, struct item *item, int64_t now_ns)
{
    if (!item->source->lost)
        slot_set_failure(item->slot, worker->place, status_from_number(item->shown.status),
                         item->text);
    push(worker, item, PLACE_ERROR, now_ns);
}

/* It is as it was: the coordinator gives it to the stage again when its model is here. */
static void
push_not_held(struct worker *worker, struct item *item, int64_t now_ns)
{
    seat_count(&worker->seat, WORKER_ITEMS_NOT_HELD, 1);
    item->stamp = NULL;
    slot_set_not_held(item->slot, worker->place);
    push(worker, item, PLACE_ERROR, now_ns);
}

void
hand_back(struct worker *worker)
{
    uint32_t count = groups_clear(&worker->groups, worker->positions);
    for (uint32_t i = 0; i < count; i++) {
        struct item *item = &worker->items[worker->positions[i]];
        item->stamp = NULL;
        push(worker, item, worker->place, item->enqueued_ns);
    }
    seat_count(&worker->seat, WORKER_ITEMS_HANDED_BACK, count);
}

/* ---- taking ---- */

/* Nobody waits for it any more, or nobody will when a run of `batch_items` is over. A load and two
 * comparisons; what a run costs is reckoned for those that have a deadline. */
static bool
item_is_dropped(struct worker *worker, struct item *item, uint32_t batch_items, int64_t now_ns)
{
    if (slot_cancelled(item->slot, item->ticket.generation)) {
        seat_count(&worker->seat, WORKER_ITEMS_CANCELLED, 1);
        item_fail(item, STATUS_CANCELLED, "cancelled before stage %s ran it", worker->start.stage);
        return true;
    }
    if (item->shown.deadline_ns == TIME_NEVER_NS)
        return false;
    if (item->shown.deadline_ns <= now_ns) {
        seat_count(&worker->seat, WORKER_ITEMS_LATE, 1);
        item_fail(item, STATUS_DEADLINE_EXCEEDED, "its deadline passed before stage %s ran it",
                  worker->start.stage);
        return true;
    }
    int64_t run_ns = cost_tested_ns(&worker->cost, batch_items, now_ns);
    if (item->shown.deadline_ns - now_ns < run_ns) {
        seat_count(&worker->seat, WORKER_ITEMS_LATE, 1);
        item_fail(item, STATUS_DEADLINE_EXCEEDED,
                  "stage %s did not run it: that takes about %lld ms, %lld ms were left",
                  worker->start.stage, (long long)(run_ns / NS_PER_MS),
                  (long long)((item->shown.deadline_ns - now_ns) / NS_PER_MS));
        return true;
    }
    return false;
}

/* The checks of admission, for guests' requests. */
static enum status
guest_check(const struct worker *worker, const struct payload_view *view, struct error *error)
{
    const struct handshake_ready *takes = worker->ready;
    enum status status = STATUS_OK;
    if (takes->input_count > 0)
        status = spec_check(takes->inputs, takes->input_count, view->tensors, view->tensor_count,
                            worker->start.pipeline, error);
    for (uint32_t i = 0; i < view->tensor_count && status == STATUS_OK; i++)
        if (view->tensors[i].datatype == SHOAL_BYTES)
            status = tensor_check_elements(&view->tensors[i], error);
    return status;
}

/* Of a guest nothing was checked before, and nothing may be read twice. */
static enum status
item_read(struct worker *worker, struct item *item, struct error *error)
{
    const struct region *region = item->source->region;
    const struct shm_payload *payload = payload_at(item->slot, worker->place);
    if (!item->source->is_guest)
        return payload_read(region, payload, &item->view, error);
    enum status status = payload_read_copied(region, payload, &item->table, &item->view, error);
    /* what a later stage's modelet declares, it is not given in the lane either */
    if (status != STATUS_OK || worker->place != 0)
        return status;
    return guest_check(worker, &item->view, error);
}

static bool
item_is_unreadable(struct worker *worker, struct item *item)
{
    struct error error;
    error_clear(&error);
    enum status status = item_read(worker, item, &error);
    if (status == STATUS_OK)
        return false;
    seat_count(&worker->seat, WORKER_ITEMS_FAILED, 1);
    if (status == STATUS_DATA_LOSS)
        item_fail(item, STATUS_INTERNAL, "stage %s: %s", worker->start.stage, error.text);
    else
        item_fail(item, status, "%s", error.text);
    return true;
}

/* When it came to the stage. A client may have written anything. */
static int64_t
arrival_of(const struct item *item, int64_t now_ns)
{
    int64_t enqueued_ns = slot_enqueued_ns(item->slot);
    if (!item->source->is_guest)
        return enqueued_ns;
    if (enqueued_ns < item->source->since_ns)
        return item->source->since_ns;
    return enqueued_ns < now_ns ? enqueued_ns : now_ns;
}

/* One load and a comparison for what is not traced, in a cache line that is read anyway. */
static void
item_trace(struct worker *worker, struct item *item)
{
    item->stamp = NULL;
    if (item->source->is_guest || !slot_traced(item->slot, item->ticket.generation))
        return;
    item->stamp = region_stamp(item->source->region, item->ticket.index, worker->place);
    struct stamp stamp = {.enqueued_ns = item->enqueued_ns,
                          .stage = worker->place,
                          .worker = worker->start.worker_index,
                          .pid = worker->pid};
    if (item->stamp != NULL)
        stamp_taken(item->stamp, item->ticket.generation, &stamp);
}

bool
item_take(struct worker *worker, struct source *source, struct shm_ticket ticket, int64_t now_ns)
{
    struct item *item = &worker->items[groups_position(&worker->groups)];
    item->source = source;
    item->ticket = ticket;
    item->slot = region_slot(source->region, ticket.index);
    item->enqueued_ns = arrival_of(item, now_ns);
    item->shown.deadline_ns = slot_deadline_ns(item->slot);
    if (slot_model(item->slot) == SLOT_MODEL_PROBE) {
        item->stamp = NULL;
        item_fail(item, STATUS_CANCELLED, "a probe");
        push_failed(worker, item, now_ns);
        return false;
    }
    item_trace(worker, item);
    seat_count(&worker->seat, WORKER_ITEMS, 1);
    if (source->is_guest)
        seat_count(&worker->seat, WORKER_ITEMS_LOCAL, 1);
    if (worker->adaptive)
        wait_arrived(&worker->wait, item->enqueued_ns, now_ns);
    if (item_is_dropped(worker, item, 1, now_ns)) {
        push_failed(worker, item, now_ns);
        return false;
    }
    uint64_t model = worker->by_model ? slot_model(item->slot) : 0;
    if (worker->by_model && !model_table_has(&worker->loader.table, model)) {
        push_not_held(worker, item, now_ns);
        return false;
    }
    if (item_is_unreadable(worker, item)) {
        push_failed(worker, item, now_ns);
        return false;
    }
    item->shown.input_count = item->view.tensor_count;
    item->shown.inputs = item->view.tensors;
    groups_take(&worker->groups,
                (struct batch_item){.model = model,
                                    .alone = worker->groups.held == 0 &&
                                             slot_runs_alone(item->slot, ticket.generation),
                                    .enqueued_ns = item->enqueued_ns,
                                    .deadline_ns = item->shown.deadline_ns},
                now_ns);
    if (worker->adaptive && worker->by_model && worker->groups.held > 1)
        wait_joined(&worker->wait, groups_joined(&worker->groups));
    return true;
}

/* ---- after a run ---- */

static void
item_abandon(struct worker *worker, struct item *item)
{
    builder_abandon(&item->builder, payload_at(item->slot, worker->place + 1));
}

/* Turns what the modelet said of an item into what becomes of it. */
static void
item_judge(struct worker *worker, struct item *item)
{
    const char *name = worker->modelet.table.name;
    struct shoal_item *shown = &item->shown;
    if (item->refused != STATUS_OK)
        shown->status = (int32_t)item->refused;
    else if (shown->status == SHOAL_UNSET)
        item_fail(item, STATUS_INTERNAL, "modelet %s left the item unset", name);
    else if (shown->status == SHOAL_OK && item->builder.tensor_count == 0)
        item_fail(item, STATUS_INTERNAL, "modelet %s gave no output", name);
    else if (shown->status != SHOAL_OK && item->text[0] == '\0')
        item_fail(item, status_from_number(shown->status), "modelet %s gave no reason", name);
}

static enum status
item_seal(struct worker *worker, struct item *item, struct error *error)
{
    enum status status = builder_carry_parameters(&item->builder, &item->view, error);
    if (status != STATUS_OK)
        return status;
    return builder_seal(&item->builder, payload_at(item->slot, worker->place + 1), error);
}

static void
item_pass_on(struct worker *worker, struct item *item, int64_t now_ns)
{
    bool unset = item->refused == STATUS_OK && item->shown.status == SHOAL_UNSET;
    item_judge(worker, item);
    struct error error;
    error_clear(&error);
    if (item->shown.status == SHOAL_OK && item_seal(worker, item, &error) != STATUS_OK)
        item_fail(item, error.status, "stage %s: %s", worker->start.stage, error.text);
    if (item->refused == STATUS_DATA_LOSS || error.status == STATUS_DATA_LOSS)
        source_corrupt(worker, item->source, "arena");
    if (item->shown.status == SHOAL_OK) {
        seat_count(&worker->seat, WORKER_ITEMS_OK, 1);
        push(worker, item, worker->place + 1, now_ns);
        return;
    }
    seat_count(&worker->seat, unset ? WORKER_ITEMS_UNSET : WORKER_ITEMS_FAILED, 1);
    item_abandon(worker, item);
    push_failed(worker, item, now_ns);
}

/* Once for many items, not once for each. */
static void
notify(struct worker *worker)
{
    if (worker->place + 1u < region_result_place(&worker->region))
        stage_notify(&worker->region, worker->place + 1u);
    sources_ring(worker);
}

/* ---- running ---- */

/* A fresh start, the first time and again in a half. */
static void
item_begin(struct worker *worker, struct item *item)
{
    item->shown.status = SHOAL_UNSET;
    item->refused = STATUS_OK;
    item->text[0] = '\0';
    builder_init(&item->builder, item->source->region, item->ticket.index, worker->party,
                 &item->view.payload, payload_at(item->slot, worker->place + 1));
}

/* Calls the modelet; returns what it returned. */
static int
call_run(struct worker *worker, struct shoal_item **shown, uint32_t count,
         struct shoal_error *error, int64_t *ended_ns)
{
    struct shoal_batch batch = {
        .host = worker->host, .count = count, .items = shown, .error = error};
    int64_t began_ns = clock_now_ns();
    for (uint32_t i = 0; i < count; i++)
        if (item_of(shown[i])->stamp != NULL)
            stamp_began(item_of(shown[i])->stamp, began_ns, count);
    seat_alive(&worker->seat, began_ns); /* between two runs of a batch, too */
    seat_run_began(&worker->seat, began_ns, count);
    int status = worker->modelet.table.run(worker->modelet.instance, worker->model, &batch);
    *ended_ns = clock_now_ns();
    seat_alive(&worker->seat, *ended_ns);
    seat_run_ended(&worker->seat);
    /* before anything is passed on: who is answered may be back at once, and is no second one */
    if (worker->adaptive && count == worker->ran_items)
        worker->arrived = sources_arrived(worker);
    seat_record(&worker->seat, WORKER_RUN, (uint64_t)(*ended_ns - began_ns));
    return status;
}

/* All of a group that failed as a whole and is not halved: the modelet's own code and text. */
static void
group_fail(struct shoal_item **shown, uint32_t count, int status, struct shoal_error *theirs)
{
    theirs->text[sizeof(theirs->text) - 1] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        struct item *item = item_of(shown[i]);
        item->refused = STATUS_OK;
        item_fail(item, status_from_number(status), "%s", theirs->text);
    }
}

static bool
may_halve(const struct worker *worker, uint32_t count)
{
    return count > 1 && worker->halvings_left > 0 &&
           !(worker->modelet.table.abilities & SHOAL_CHANGES_INPUTS);
}

/* A group that fails as a whole is run again in halves, as often as the stage allows. Recursion as
 * deep as the batch can be halved: 16 at most. */
static void
group_run(struct worker *worker, struct shoal_item **shown, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        item_begin(worker, item_of(shown[i]));
    struct shoal_error theirs;
    theirs.text[0] = '\0';
    int64_t now_ns;
    int status = call_run(worker, shown, count, &theirs, &now_ns);
    if (status != SHOAL_OK && may_halve(worker, count)) {
        worker->halvings_left--;
        for (uint32_t i = 0; i < count; i++)
            item_abandon(worker, item_of(shown[i]));
        group_run(worker, shown, count / 2);
        group_run(worker, shown + count / 2, count - count / 2);
        return;
    }
    if (status != SHOAL_OK)
        group_fail(shown, count, status, &theirs);
    for (uint32_t i = 0; i < count; i++)
        item_pass_on(worker, item_of(shown[i]), now_ns);
    notify(worker);
}

/* Fails those that nobody waits for any more since they were taken, and those that cannot be ready
 * in time. Each that goes makes the run shorter for the rest. Returns how many are left. */
static uint32_t
drop_items(struct worker *worker, uint32_t count, int64_t now_ns)
{
    uint32_t kept = 0;
    uint32_t left = count;
    for (uint32_t i = 0; i < count; i++) {
        struct item *item = item_of(worker->shown[i]);
        if (item_is_dropped(worker, item, left, now_ns)) {
            push_failed(worker, item, now_ns);
            left--;
        } else {
            worker->shown[kept++] = worker->shown[i];
        }
    }
    return kept;
}

struct sieve {
    struct worker *worker;
    int64_t now_ns;
};

static bool
drop_if_unwanted(void *context, uint32_t position)
{
    struct sieve *sieve = context;
    struct item *item = &sieve->worker->items[position];
    if (!item_is_dropped(sieve->worker, item, 1, sieve->now_ns))
        return false;
    push_failed(sieve->worker, item, sieve->now_ns);
    return true;
}

/* For items behind the runs of other models: no caller waits for a batch to learn that it is too
 * late for it. */
static void
drop_held(struct worker *worker, int64_t now_ns)
{
    struct sieve sieve = {worker, now_ns};
    groups_sieve(&worker->groups, now_ns, drop_if_unwanted, &sieve);
}

static void
count_batch(struct worker *worker, enum batch_state closed, uint32_t count, int64_t now_ns)
{
    static const enum counter reasons[] = {
        [BATCH_CLOSED_SINGLE] = WORKER_CLOSED_SINGLE,
        [BATCH_CLOSED_FULL] = WORKER_CLOSED_FULL,
        [BATCH_CLOSED_WAIT] = WORKER_CLOSED_WAIT,
        [BATCH_CLOSED_DEADLINE] = WORKER_CLOSED_DEADLINE,
        [BATCH_CLOSED_DRAINING] = WORKER_CLOSED_DRAINING,
        [BATCH_CLOSED_ADAPTIVE] = WORKER_CLOSED_ADAPTIVE,
        [BATCH_CLOSED_CROWDED] = WORKER_CLOSED_CROWDED,
    };
    seat_count(&worker->seat, WORKER_BATCHES, 1);
    seat_count(&worker->seat, reasons[closed], 1);
    seat_record(&worker->seat, WORKER_BATCH_ITEMS, count);
    for (uint32_t i = 0; i < count; i++) {
        int64_t waited_ns = now_ns - item_of(worker->shown[i])->enqueued_ns;
        seat_record(&worker->seat, WORKER_WAIT, waited_ns > 0 ? (uint64_t)waited_ns : 0);
    }
}

uint32_t
batch_close(struct worker *worker, uint32_t group, uint64_t *model)
{
    uint32_t count = groups_close(&worker->groups, group, worker->positions, model);
    for (uint32_t i = 0; i < count; i++)
        worker->shown[i] = &worker->items[worker->positions[i]].shown;
    return count;
}

/* The batch's items, of one model, which stays while they are run. */
static void
run_items(struct worker *worker, enum batch_state closed, uint32_t count, int64_t now_ns)
{
    worker->ran_items = count;
    count_batch(worker, closed, count, now_ns);
    worker->halvings_left = worker->start.halvings_max;
    group_run(worker, worker->shown, count);
    if (worker->halvings_left < worker->start.halvings_max)
        seat_count(&worker->seat, WORKER_BATCHES_HALVED, 1);
}

/* It may have been unloaded since they were taken. */
static void
run_by_model(struct worker *worker, enum batch_state closed, uint32_t count, uint64_t model,
             int64_t now_ns)
{
    struct loaded *loaded = model_table_enter(&worker->loader.table, model);
    if (loaded == NULL) {
        for (uint32_t i = 0; i < count; i++)
            push_not_held(worker, item_of(worker->shown[i]), now_ns);
        return;
    }
    worker->model = loaded->model;
    run_items(worker, closed, count, now_ns);
    model_table_leave(&worker->loader.table);
}

void
batch_run(struct worker *worker, enum batch_state closed, uint32_t count, uint64_t model)
{
    CHECK(closed != BATCH_OPEN);
    int64_t now_ns = clock_now_ns();
    worker->ran_items = 0;
    count = drop_items(worker, count, now_ns);
    if (count > 0 && worker->by_model)
        run_by_model(worker, closed, count, model, now_ns);
    else if (count > 0)
        run_items(worker, closed, count, now_ns);
    if (worker->groups.held > 0)
        drop_held(worker, clock_now_ns());
    sources_ring(worker);
    if (worker->held != 0 || worker->leaving)
        sources_settle(worker);
}
