/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "shm/slot.h"
#include "worker/worker.h"

/* The time that we wait for items that others hold in a region that ends. A client looks for news
 * of deaths every few milliseconds; one that is stopped does not keep us. */
#define OTHERS_NS NS_PER_S

void
sources_init(struct worker *worker)
{
    worker->sources[0] = (struct source){.region = &worker->region};
    worker->client_regions =
        (struct client_regions){.epoch = worker_entry_regions_epoch(&worker->entry)};
    worker->region.client_regions = &worker->client_regions;
}

/* ---- coming and going ---- */

static void
say(const struct source *source, enum handshake_client_region_event event, const char *text)
{
    struct handshake_client_region message = {
        .header = {HANDSHAKE_VERSION, HANDSHAKE_CLIENT_REGION, sizeof(message), 0},
        .event = event,
        .number = source->number,
        .serial = source->serial,
    };
    snprintf(message.text, sizeof(message.text), "%s", text);
    struct error error = ERROR_NONE;
    /* The socket has room for as many as the coordinator has sent; a coordinator that does not read
     * has closed. */
    if (handshake_send_client_region(HANDSHAKE_FD_CONTROL, &message, -1, &error) != STATUS_OK)
        log_warn("guest_untold error=\"%s\"", error.text);
}

static void
source_unmap(struct worker *worker, struct source *source)
{
    if (worker->client_regions.regions[source->number] != NULL)
        client_regions_remove(&worker->client_regions, source->number);
    if (source->ends && !source->lost)
        client_region_ends(source->region);
    worker->ending &= ~(UINT32_C(1) << source->number);
    region_detach(&source->own);
    say(source, CLIENT_REGION_CLOSED, "");
    *source = (struct source){0};
}

/* Checks that we can serve the region. region_attach has checked the plan, and this is our copy. */
static enum status
client_region_validate(const struct worker *worker, const struct region *client_region,
                       struct error *error)
{
    const struct region_plan *plan = &client_region->layout.plan;
    uint32_t stages = worker->region.layout.plan.stage_count;
    if (plan->stage_count != stages)
        return error_set(error, STATUS_DATA_LOSS, "%u stages instead of %u", plan->stage_count,
                         stages);
    if (plan->slot_count > CLIENT_REGION_SLOTS_MAX ||
        client_region->layout.block_count > CLIENT_REGION_BLOCKS_MAX)
        return error_set(error, STATUS_DATA_LOSS, "%u slots and %u blocks", plan->slot_count,
                         client_region->layout.block_count);
    return STATUS_OK;
}

/* Logs once; docs/operating.md explains it. */
static void
say_if_blind(struct worker *worker)
{
    if (worker->said_blind || doorbells_can_wait())
        return;
    worker->said_blind = true;
    log_warn("local_clients_polled pipeline=%s stage=%s worker=%u why=\"futex_waitv: %s\"",
             worker->start.pipeline, worker->start.stage, worker->start.worker_index,
             strerror(errno));
}

static void
open_region(struct worker *worker, const struct handshake_client_region *message, int fd)
{
    struct source *source = &worker->sources[1 + message->number];
    if (source->region != NULL) { /* the coordinator waits for CLIENT_REGION_CLOSED before it reuses
                                   * a number */
        log_error("guest_refused why=\"number %u is taken\"", message->number);
        if (fd >= 0)
            close(fd);
        return;
    }
    *source = (struct source){.region = &source->own,
                              .is_client_region = true,
                              .number = message->number,
                              .serial = message->serial,
                              .since_ns = clock_now_ns()};
    struct error error = ERROR_NONE;
    enum status status = region_attach(&source->own, fd, &error);
    if (fd >= 0) /* -1 if this process had no room for a descriptor */
        close(fd);
    source->own.fd = -1;
    if (status == STATUS_OK)
        status = client_region_validate(worker, &source->own, &error);
    if (status == STATUS_OK) {
        client_regions_add(&worker->client_regions, source->number, &source->own);
        say_if_blind(worker);
    } else {
        source_corrupt(worker, source, error.text);
    }
}

static void
discard_region(struct worker *worker, const struct handshake_client_region *message)
{
    struct source *source = &worker->sources[1 + message->number];
    if (source->region == NULL || source->serial != message->serial)
        return;
    source->leaves = true;
    source->lost = true;
    worker->leaving = true;
    if (worker->client_regions.regions[source->number] != NULL)
        client_regions_remove(&worker->client_regions, source->number);
}

/* Items that the previous stage has passed on are finished here; items that have not begun begin in
 * another region. */
static void
finish_region(struct worker *worker, const struct handshake_client_region *message)
{
    struct source *source = &worker->sources[1 + message->number];
    if (source->region == NULL || source->serial != message->serial)
        return;
    source->ends = true;
    source->ends_ns = clock_now_ns() + OTHERS_NS;
    source->takes_left = 2 * source->region->slots.count;
    worker->ending |= UINT32_C(1) << source->number;
    if (worker->place == 0 && worker->client_regions.regions[source->number] != NULL)
        client_regions_remove(&worker->client_regions, source->number);
}

/* Returns whether items are at our stage: in its ring, held by another worker, or held by a dead
 * one, whose items the client puts back into the ring. */
static bool
has_items(const struct worker *worker, const struct source *source)
{
    struct shm_ring ring = region_slot_ring(source->region, worker->place);
    if (ring_has_cell(&ring))
        return true;
    for (uint32_t i = 0; i < source->region->slots.count; i++)
        if (slot_where(source->region, i).place == worker->place)
            return clock_now_ns() < source->ends_ns;
    return false;
}

static bool
has_ended(const struct worker *worker, const struct source *source)
{
    if (!source->ends)
        return false;
    if (worker->place == 0 || source->lost || source->takes_left == 0)
        return true;
    return !has_items(worker, source);
}

static void
receive_one(struct worker *worker, const struct handshake_client_region *message, int fd)
{
    if (message->number < CLIENT_REGIONS_MAX && message->event == CLIENT_REGION_OPEN) {
        open_region(worker, message, fd);
        return;
    }
    if (message->number < CLIENT_REGIONS_MAX && message->event == CLIENT_REGION_DISCARD)
        discard_region(worker, message);
    if (message->number < CLIENT_REGIONS_MAX && message->event == CLIENT_REGION_FINISH)
        finish_region(worker, message);
    if (fd >= 0)
        close(fd);
}

bool
sources_receive(struct worker *worker)
{
    /* read before the socket: later announcements raise it again */
    worker->client_regions.epoch = worker_entry_regions_epoch(&worker->entry);
    struct handshake_client_region message;
    struct error error = ERROR_NONE;
    int fd;
    for (;;) {
        switch (handshake_receive_client_region(HANDSHAKE_FD_CONTROL, &message, &fd, &error)) {
        case STATUS_OK: receive_one(worker, &message, fd); break;
        case STATUS_DATA_LOSS: log_warn("guest_unheard error=\"%s\"", error.text); break;
        case STATUS_DEADLINE_EXCEEDED:
            if (worker->groups.held == 0)
                sources_unmap_ended(worker);
            return false;
        default: return true;
        }
    }
}

/* ---- whose turn it is ---- */

struct source *
sources_next(struct worker *worker)
{
    uint32_t limit = worker->client_regions.limit;
    worker->lane_turn = !worker->lane_turn;
    if (limit == 0 || worker->lane_turn)
        return &worker->sources[0];
    for (uint32_t i = 1; i <= limit; i++) {
        uint32_t number = (worker->last_client_region + i) % limit;
        if (worker->client_regions.regions[number] == NULL)
            continue;
        worker->last_client_region = number;
        return &worker->sources[1 + number];
    }
    return &worker->sources[0];
}

uint32_t
sources_round(const struct worker *worker)
{
    return worker->client_regions.limit == 0 ? 1 : 2 * worker->client_regions.limit;
}

/* ---- how much comes ---- */

/* Returns the source after `source`: the lane first, then the client regions being served; NULL:
 * none. */
static const struct source *
source_after(const struct worker *worker, const struct source *source)
{
    if (source == NULL)
        return &worker->sources[0];
    uint32_t number =
        (uint32_t)(source - worker->sources); /* number of the client region after it */
    while (number < worker->client_regions.limit && worker->client_regions.regions[number] == NULL)
        number++;
    return number < worker->client_regions.limit ? &worker->sources[1 + number] : NULL;
}

static uint64_t
stage_pushes(const struct worker *worker, const struct source *source)
{
    struct shm_ring ring = region_slot_ring(source->region, worker->place);
    return ring_pushes(&ring);
}

uint32_t
sources_in_flight(const struct worker *worker)
{
    uint32_t count = 0;
    for (const struct source *at = source_after(worker, NULL); at != NULL;
         at = source_after(worker, at))
        count += slots_in_flight(at->region);
    return count;
}

void
sources_note_pushes(struct worker *worker)
{
    for (const struct source *at = source_after(worker, NULL); at != NULL;
         at = source_after(worker, at))
        worker->pushes[at - worker->sources] = stage_pushes(worker, at);
}

uint32_t
sources_arrived(const struct worker *worker)
{
    uint32_t count = 0;
    for (const struct source *at = source_after(worker, NULL); at != NULL;
         at = source_after(worker, at)) {
        uint64_t arrived = stage_pushes(worker, at) - worker->pushes[at - worker->sources];
        uint32_t slots = at->region->slots.count; /* more only if the ring was corrupted */
        count += arrived < slots ? (uint32_t)arrived : slots;
    }
    return count;
}

/* ---- what is held of them ---- */

void
source_corrupt(struct worker *worker, struct source *source, const char *what)
{
    if (!source->is_client_region) {
        if (!worker->corrupt)
            log_error("region_corrupt pipeline=%s what=\"%s\"", worker->start.pipeline, what);
        worker->corrupt = true;
        return;
    }
    if (source->lost)
        return;
    source->lost = true;
    if (worker->client_regions.regions[source->number] != NULL)
        client_regions_remove(&worker->client_regions, source->number);
    say(source, CLIENT_REGION_LOST, what);
}

void
source_touch(struct worker *worker, const struct source *source)
{
    if (!source->is_client_region)
        return;
    worker_entry_holds_regions(&worker->entry, worker->held | UINT32_C(1) << source->number);
}

void
source_touched(struct worker *worker, const struct source *source, enum source_held held)
{
    if (!source->is_client_region)
        return;
    if (held == SOURCE_GAVE_AN_ITEM)
        worker->held |= UINT32_C(1) << source->number;
    worker_entry_holds_regions(&worker->entry, worker->held);
}

void
sources_unmap_ended(struct worker *worker)
{
    worker->held = 0;
    worker->leaving = false;
    worker_entry_holds_regions(&worker->entry, 0);
    for (uint32_t i = 1; i <= CLIENT_REGIONS_MAX; i++) {
        struct source *source = &worker->sources[i];
        if (source->region != NULL && (source->leaves || has_ended(worker, source)))
            source_unmap(worker, source);
    }
}

void
sources_ring(struct worker *worker)
{
    for (uint64_t owed = worker->bells_owed; owed != 0; owed &= owed - 1) {
        const struct source *source = &worker->sources[__builtin_ctzll(owed)];
        if (!source->lost)
            doorbell_ring(&source->region->header->coordinator_bell);
    }
    worker->bells_owed = 0;
}
