/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The item's way through the modelet, from a claimed slot to a slot passed on.
 *
 * Every item taken is passed on exactly once: to the next stage or the results with a new payload,
 * or to the errors with status and text. A failed item keeps only its input payload; blocks
 * acquired for outputs go back to the arena.
 */
#include "worker/worker.h"

#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "ipc/spec.h"
#include "shm/former.h"
#include "shm/slot.h"
#include "shm/stamp.h"
#include "worker/collect.h"
#include "worker/crash.h"

static struct shm_payload *
payload_at(struct shm_slot *slot, uint8_t place)
{
    return &slot->payload[place & 1];
}

/* ---- passing on ---- */

/* Items of a lost client region are not passed on: no client waits for them. */
static void
push(struct worker *worker, struct host_item *item, uint8_t place, int64_t now_ns)
{
    struct source *source = item->source;
    if (source->lost)
        return;
    if (item->stamp != NULL)
        stamp_ended(item->stamp, now_ns);
    if (place >= region_result_place(source->region))
        worker->bells_owed |= UINT64_C(1) << (source - worker->sources);
    if (slot_push(source->region, item->ticket, worker->place, place, worker->owner, now_ns) !=
        RING_OK)
        source_corrupt(worker, source, "push");
}

/* Fails an item with its status and text. */
static void
push_failed(struct worker *worker, struct host_item *item, int64_t now_ns)
{
    if (!item->source->lost)
        slot_set_failure(item->slot, worker->place, status_from_number(item->shown.status),
                         item->text);
    push(worker, item, PLACE_ERROR, now_ns);
}

/* Returns an item unchanged: the coordinator pushes it to the stage again when its model is
 * loaded. */
static void
push_not_held(struct worker *worker, struct host_item *item, int64_t now_ns)
{
    worker_entry_count(&worker->entry, WORKER_ITEMS_NOT_HELD, 1);
    item->stamp = NULL;
    slot_set_not_held(item->slot, worker->place);
    push(worker, item, PLACE_ERROR, now_ns);
}

void
hand_back(struct worker *worker)
{
    uint32_t count = groups_clear(&worker->groups, worker->positions);
    for (uint32_t i = 0; i < count; i++) {
        struct host_item *item = &worker->items[worker->positions[i]];
        item->stamp = NULL;
        push(worker, item, worker->place, item->enqueued_ns);
    }
    worker_entry_count(&worker->entry, WORKER_ITEMS_HANDED_BACK, count);
}

/* ---- taking ---- */

/* True, and the item is failed, if its caller is gone, or its deadline passes before the end of a
 * run of `batch_items`. A load and two comparisons; the expected cost is computed only for items
 * with a deadline. */
static bool
item_is_dropped(struct worker *worker, struct host_item *item, uint32_t batch_items, int64_t now_ns)
{
    if (slot_cancelled(item->slot, item->ticket.generation)) {
        worker_entry_count(&worker->entry, WORKER_ITEMS_CANCELLED, 1);
        item_fail(item, STATUS_CANCELLED, "cancelled before stage %s ran it", worker->start.stage);
        return true;
    }
    if (item->shown.deadline_ns == TIME_NEVER_NS)
        return false;
    if (item->shown.deadline_ns <= now_ns) {
        worker_entry_count(&worker->entry, WORKER_ITEMS_LATE, 1);
        item_fail(item, STATUS_DEADLINE_EXCEEDED, "its deadline passed before stage %s ran it",
                  worker->start.stage);
        return true;
    }
    int64_t run_ns = cost_tested_ns(&worker->cost, batch_items, now_ns);
    if (item->shown.deadline_ns - now_ns < run_ns) {
        worker_entry_count(&worker->entry, WORKER_ITEMS_LATE, 1);
        item_fail(item, STATUS_DEADLINE_EXCEEDED,
                  "stage %s did not run it: a run takes about %lld ms, %lld ms were left",
                  worker->start.stage, (long long)(run_ns / NS_PER_MS),
                  (long long)((item->shown.deadline_ns - now_ns) / NS_PER_MS));
        return true;
    }
    return false;
}

/* The checks of admission, for client regions' requests. */
static enum status
client_region_check(const struct worker *worker, const struct payload_view *view,
                    struct error *error)
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

/* A client region's payload was not checked before, and must be read only once. */
static enum status
item_read(struct worker *worker, struct host_item *item, struct error *error)
{
    const struct region *region = item->source->region;
    const struct shm_payload *payload = payload_at(item->slot, worker->place);
    if (!item->source->is_client_region)
        return payload_read(region, payload, &item->view, error);
    enum status status = payload_read_copied(region, payload, &item->table, &item->view, error);
    /* later stages are not held to their declared inputs in the lane either */
    if (status != STATUS_OK || worker->place != 0)
        return status;
    return client_region_check(worker, &item->view, error);
}

static bool
item_is_unreadable(struct worker *worker, struct host_item *item)
{
    struct error error;
    error_clear(&error);
    enum status status = item_read(worker, item, &error);
    if (status == STATUS_OK)
        return false;
    worker_entry_count(&worker->entry, WORKER_ITEMS_FAILED, 1);
    if (status == STATUS_DATA_LOSS)
        item_fail(item, STATUS_INTERNAL, "stage %s: %s", worker->start.stage, error.text);
    else
        item_fail(item, status, "%s", error.text);
    return true;
}

/* Returns the item's arrival at the stage. A client may have written any time. */
static int64_t
arrival_of(const struct host_item *item, int64_t now_ns)
{
    int64_t enqueued_ns = slot_enqueued_ns(item->slot);
    if (!item->source->is_client_region)
        return enqueued_ns;
    if (enqueued_ns < item->source->since_ns)
        return item->source->since_ns;
    return enqueued_ns < now_ns ? enqueued_ns : now_ns;
}

/* Untraced items cost one load and a comparison, in a cache line that is read anyway. */
static void
item_trace(struct worker *worker, struct host_item *item)
{
    item->stamp = NULL;
    if (item->source->is_client_region || !slot_traced(item->slot, item->ticket.generation))
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
    struct host_item *item = &worker->items[groups_position(&worker->groups)];
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
    worker_entry_count(&worker->entry, WORKER_ITEMS, 1);
    if (source->is_client_region)
        worker_entry_count(&worker->entry, WORKER_ITEMS_LOCAL, 1);
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
        wait_met(&worker->wait, groups_joined(&worker->groups) ? WAIT_JOINS : WAIT_STRANGER);
    return true;
}

/* ---- after a run ---- */

static void
item_abandon(struct worker *worker, struct host_item *item)
{
    collected_drop(&item->collected);
    builder_abandon(&item->builder, payload_at(item->slot, worker->place + 1));
}

/* Determines an item's outcome from what the modelet set. */
static void
item_judge(struct worker *worker, struct host_item *item)
{
    const char *name = worker->modelet.table.name;
    struct shoal_item *shown = &item->shown;
    if (item->refused != STATUS_OK)
        shown->status = (int32_t)item->refused;
    else if (shown->status == SHOAL_UNSET)
        item_fail(item, STATUS_INTERNAL, "modelet %s left the item unset", name);
    else if (shown->status == SHOAL_OK && item->builder.tensor_count == 0 && item->emitted == 0)
        item_fail(item, STATUS_INTERNAL, "modelet %s gave no output", name);
    else if (shown->status != SHOAL_OK && item->text[0] == '\0')
        item_fail(item, status_from_number(shown->status), "modelet %s gave no reason", name);
    else if (shown->status != SHOAL_OK)
        item_explain(item, &worker->sandbox);
}

static enum status
item_seal(struct worker *worker, struct host_item *item, struct error *error)
{
    enum status status = STATUS_OK;
    if (item->collected != NULL)
        status = item_gather(item, (enum handshake_collect)worker->start.collect,
                             payload_at(item->slot, worker->place + 1), error);
    if (status == STATUS_OK)
        status = builder_carry_parameters(&item->builder, &item->view, error);
    if (status != STATUS_OK)
        return status;
    return builder_seal(&item->builder, payload_at(item->slot, worker->place + 1), error);
}

static void
item_pass_on(struct worker *worker, struct host_item *item, int64_t now_ns)
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
        worker_entry_count(&worker->entry, WORKER_ITEMS_OK, 1);
        push(worker, item, worker->place + 1, now_ns);
        return;
    }
    worker_entry_count(&worker->entry, unset ? WORKER_ITEMS_UNSET : WORKER_ITEMS_FAILED, 1);
    item_abandon(worker, item);
    push_failed(worker, item, now_ns);
}

/* Call once per group of items. */
static void
notify(struct worker *worker)
{
    if (worker->place + 1u < region_result_place(&worker->region))
        stage_notify(&worker->region, worker->place + 1u);
    sources_ring(worker);
}

/* ---- running ---- */

/* Resets the item for its first run, or for another one in a half. */
static void
item_begin(struct worker *worker, struct host_item *item)
{
    item->shown.status = SHOAL_UNSET;
    item->refused = STATUS_OK;
    item->emitted = 0;
    item->text[0] = '\0';
    builder_init(&item->builder, item->source->region, item->ticket.index, worker->owner,
                 &item->view.payload, payload_at(item->slot, worker->place + 1));
}

/* Calls the modelet and returns its result. */
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
    worker_entry_alive(&worker->entry, began_ns); /* also between two runs of a batch */
    worker_entry_run_began(&worker->entry, began_ns, count);
    crash_begin_run(worker->model_id, shown, count);
    int status = worker->modelet.table.run(worker->modelet.instance, worker->model, &batch);
    crash_end();
    *ended_ns = clock_now_ns();
    worker_entry_alive(&worker->entry, *ended_ns);
    worker_entry_run_ended(&worker->entry);
    /* before anything is passed on: an answered caller may return at once, and must not count as
     * another one */
    if (worker->adaptive && count == worker->ran_items)
        worker->arrived = sources_arrived(worker);
    worker_entry_record(&worker->entry, WORKER_RUN, (uint64_t)(*ended_ns - began_ns));
    return status;
}

/* Fails all items of a group, with the code and text of the modelet's `run`. */
static void
group_fail(struct shoal_item **shown, uint32_t count, int status, struct shoal_error *theirs)
{
    theirs->text[sizeof(theirs->text) - 1] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        struct host_item *item = item_of(shown[i]);
        item->refused = STATUS_OK;
        item_fail(item, status_from_number(status), "%s", theirs->text);
    }
}

static bool
may_halve(const struct worker *worker, struct shoal_item *const *shown, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (item_of(shown[i])->emitted > 0)
            return false; /* what was sent cannot be sent again */
    return count > 1 && worker->halvings_left > 0 &&
           !(worker->modelet.table.abilities & SHOAL_CHANGES_INPUTS);
}

/* Runs a group, and again in halves if it fails as a whole, as often as the stage allows. The
 * recursion is at most 16 deep, because batches are halved. */
static void
group_run(struct worker *worker, struct shoal_item **shown, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        item_begin(worker, item_of(shown[i]));
    struct shoal_error theirs;
    theirs.text[0] = '\0';
    int64_t now_ns;
    int status = call_run(worker, shown, count, &theirs, &now_ns);
    if (status != SHOAL_OK && may_halve(worker, shown, count)) {
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

/* Fails items whose callers have gone since they were taken and items that cannot finish in time.
 * Each of them shortens the run for the rest. Returns how many are left. */
static uint32_t
drop_items(struct worker *worker, uint32_t count, int64_t now_ns)
{
    uint32_t kept = 0;
    uint32_t left = count;
    for (uint32_t i = 0; i < count; i++) {
        struct host_item *item = item_of(worker->shown[i]);
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
    struct host_item *item = &sieve->worker->items[position];
    if (!item_is_dropped(sieve->worker, item, 1, sieve->now_ns))
        return false;
    push_failed(sieve->worker, item, sieve->now_ns);
    return true;
}

/* Drops held items of other models after each run, so that no caller waits for a batch to learn
 * that its item is too late. */
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
    worker_entry_count(&worker->entry, WORKER_BATCHES, 1);
    worker_entry_count(&worker->entry, reasons[closed], 1);
    worker_entry_record(&worker->entry, WORKER_BATCH_ITEMS, count);
    for (uint32_t i = 0; i < count; i++) {
        int64_t waited_ns = now_ns - item_of(worker->shown[i])->enqueued_ns;
        worker_entry_record(&worker->entry, WORKER_WAIT, waited_ns > 0 ? (uint64_t)waited_ns : 0);
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

/* Runs a batch's items, of one model, which stays loaded meanwhile. */
static void
run_items(struct worker *worker, enum batch_state closed, uint32_t count, int64_t now_ns)
{
    worker->ran_items = count;
    count_batch(worker, closed, count, now_ns);
    worker->halvings_left = worker->start.halvings_max;
    group_run(worker, worker->shown, count);
    if (worker->halvings_left < worker->start.halvings_max)
        worker_entry_count(&worker->entry, WORKER_BATCHES_HALVED, 1);
}

/* The model may have been unloaded since the items were taken. */
static void
run_by_model(struct worker *worker, enum batch_state closed, uint32_t count, uint64_t model,
             int64_t now_ns)
{
    struct loaded_model *loaded = model_table_enter(&worker->loader.table, model);
    if (loaded == NULL) {
        for (uint32_t i = 0; i < count; i++)
            push_not_held(worker, item_of(worker->shown[i]), now_ns);
        return;
    }
    worker->model = loaded->model;
    worker->model_id = loaded->id;
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
        sources_unmap_ended(worker);
}
