/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/workers/guest.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/workers/seat.h"
#include "shm/former.h"

/* As a worker takes them at most (worker/source.h): more would let a client keep it busy for long.
 */
enum { SLOTS_MOST = 256, BLOCKS_MOST = 1024 };

/* An arena of any size that can be configured holds messages of a fifth of it: two of the largest
 * blocks, and two of each smaller size, take less than five times the largest. */
enum { LOCAL_MESSAGES = 5 };

/* ---- planning and unmaking ---- */

/* Small messages: an input and an output of every slot. The larger classes share the rest. */
static void
bound_blocks(struct region_plan *plan)
{
    uint32_t most = 2 * plan->slot_count;
    for (uint32_t i = 0; i < plan->class_count; i++) {
        if (plan->class_block_counts[i] > most)
            plan->class_block_counts[i] = most;
        if (i == 0 && plan->class_count > 1)
            most = (BLOCKS_MOST - plan->class_block_counts[0]) / (plan->class_count - 1);
    }
}

enum status
roster_guest_plan(const struct roster *roster, const struct guest_wish *wish,
                  struct region_plan *plan, struct error *error)
{
    const struct config_pipeline *config = roster->lane->generation->config;
    uint32_t slots = config->local_slots < SLOTS_MOST ? config->local_slots : SLOTS_MOST;
    if (wish->slots > 0 && wish->slots < slots)
        slots = wish->slots;
    *plan = (struct region_plan){.slot_count = slots, .stage_count = config->stage_count};
    for (uint32_t i = 0; i < config->stage_count; i++)
        plan->worker_counts[i] = 1; /* for its bell */
    uint64_t most = config->local_bytes / LOCAL_MESSAGES;
    if (wish->message_bytes > most)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "messages of %llu bytes: at most %llu, a fifth of local_mib",
                         (unsigned long long)wish->message_bytes, (unsigned long long)most);
    uint64_t message_bytes = wish->message_bytes > 0 ? wish->message_bytes : most;
    enum status status = plan_arena(plan, message_bytes, config->local_bytes, error);
    if (status == STATUS_OK)
        bound_blocks(plan);
    return status;
}

/* A process that still has it mapped sees zeros, and gets pages of its own if it writes. */
static void
take_pages_out(const struct lane_guest *guest)
{
    if (guest->keeps_pages)
        return;
    if (fallocate(guest->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)guest->bytes) !=
        0)
        log_warn_limited("guest_memory_kept bytes=%llu", (unsigned long long)guest->bytes);
}

/* Whether one of some seats knows it. */
static bool
is_known(const struct seat *first, uint32_t count, uint32_t number)
{
    for (uint32_t i = 0; i < count; i++)
        if (first[i].guests_told & UINT32_C(1) << number)
            return true;
    return false;
}

static void
free_if_left(struct roster *roster, uint32_t number)
{
    struct lane_guest *guest = &roster->guests[number];
    if (guest->state != GUEST_LEAVING || is_known(roster->seats, roster->seat_count, number))
        return;
    take_pages_out(guest); /* once more: a worker in a run may have written there */
    close(guest->fd);
    *guest = (struct lane_guest){.fd = -1};
}

/* ---- telling the workers ---- */

static enum status
tell(struct seat *seat, uint32_t number, enum handshake_guest_event event, struct error *error)
{
    const struct lane_guest *guest = &seat->roster->guests[number];
    struct handshake_guest word = {
        .header = {HANDSHAKE_VERSION, HANDSHAKE_GUEST, sizeof(word), 0},
        .event = event,
        .number = number,
        .serial = guest->serial,
    };
    return handshake_send_guest(seat->process.control, &word, event == GUEST_COMES ? guest->fd : -1,
                                error);
}

/* After the messages: raises the epoch, then wakes all. */
static void
announce(struct roster *roster)
{
    const struct region *region = &roster->lane->region;
    for (uint32_t i = 0; i < roster->stage_count; i++)
        atomic_fetch_add(&region_stage(region, i)->guests_epoch, 1);
    stages_awaken(region);
}

/* Tells those of some seats that know it. There is room for three messages of each guest, and its
 * number is not used again before each of them has answered the last. */
static void
tell_to_leave(struct seat *first, uint32_t count, uint32_t number, enum handshake_guest_event event)
{
    struct error error = ERROR_NONE;
    for (uint32_t i = 0; i < count; i++)
        if ((first[i].guests_told & UINT32_C(1) << number) != 0 &&
            tell(&first[i], number, event, &error) != STATUS_OK && !first[i].roster->stopping &&
            error.status != STATUS_UNAVAILABLE)
            seat_kill(&first[i], KILL_NONSENSE);
}

/* From now on it is served no more. */
static void
leave(struct roster *roster, uint32_t number)
{
    struct lane_guest *guest = &roster->guests[number];
    CHECK(guest->state == GUEST_SERVED || guest->state == GUEST_ENDING);
    guest->state = GUEST_LEAVING;
    take_pages_out(guest);
    tell_to_leave(roster->seats, roster->seat_count, number, GUEST_GOES);
    announce(roster);
    free_if_left(roster, number);
}

static void
lose(struct roster *roster, uint32_t number, const char *why)
{
    struct guest_owner owner = roster->guests[number].owner;
    leave(roster, number);
    owner.lost(owner.context, why);
}

/* ---- the end ---- */

static void
end_at(struct roster *roster, const struct lane_guest *guest)
{
    tell_to_leave(stage_seats(roster, guest->stage), stage_seat_count(roster, guest->stage),
                  (uint32_t)(guest - roster->guests), GUEST_ENDS);
    announce(roster);
}

/*
 * Stage by stage: when the workers of one have left, nothing comes to the next one any more, whose
 * workers leave when they find nothing. So what has begun is finished in this lane, and what has
 * not begun still waits at the first stage, its inputs untouched. A stage where nobody is left who
 * knows the guest is passed over.
 */
static void
go_on_ending(struct roster *roster, uint32_t number)
{
    struct lane_guest *guest = &roster->guests[number];
    if (guest->state != GUEST_ENDING)
        return;
    while (guest->stage < roster->stage_count) {
        if (is_known(stage_seats(roster, guest->stage), stage_seat_count(roster, guest->stage),
                     number))
            return;
        if (++guest->stage < roster->stage_count)
            end_at(roster, guest);
    }
    struct guest_owner owner = guest->owner;
    close(guest->fd);
    *guest = (struct lane_guest){.fd = -1};
    owner.ended(owner.context);
}

void
roster_guests_end(struct roster *roster)
{
    for (uint32_t i = 0; i < GUESTS_MAX; i++)
        if (roster->guests[i].state == GUEST_SERVED)
            roster->guests[i].owner.ends(roster->guests[i].owner.context);
    for (uint32_t i = 0; i < GUESTS_MAX; i++) {
        struct lane_guest *guest = &roster->guests[i];
        if (guest->state == GUEST_SERVED) {
            guest->state = GUEST_ENDING;
            guest->stage = 0;
            end_at(roster, guest);
        }
        go_on_ending(roster, i);
    }
}

/* ---- coming and going ---- */

enum status
roster_guest_admit(struct roster *roster, const struct guest_wish *wish,
                   const struct guest_owner *owner, struct made_region *region, uint32_t *number,
                   struct error *error)
{
    const struct config_pipeline *config = roster->lane->generation->config;
    uint32_t most = wish->moves ? GUESTS_MAX : config->local_clients;
    uint32_t n = 0;
    while (n < most && roster->guests[n].state != GUEST_FREE)
        n++;
    if (n >= most || roster_guests_served(roster) >= config->local_clients)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "pipeline \"%s\" has its %u local clients (local_clients)", config->name,
                         config->local_clients);
    enum status status = STATUS_OK;
    struct lane_guest *guest = &roster->guests[n];
    *guest = (struct lane_guest){.state = GUEST_SERVED,
                                 .fd = region->fd,
                                 .bytes = region->bytes,
                                 .serial = ++roster->guest_serials,
                                 .owner = *owner};
    region->fd = -1;
    for (uint32_t i = 0; i < roster->seat_count && status == STATUS_OK; i++) {
        struct seat *seat = &roster->seats[i];
        if (seat->state != SEAT_READY) /* it is told when it is */
            continue;
        enum status told = tell(seat, n, GUEST_COMES, error);
        if (told == STATUS_OK)
            seat->guests_told |= UINT32_C(1) << n;
        else if (told != STATUS_UNAVAILABLE) /* else its death is about to be seen */
            status = told;
    }
    if (status != STATUS_OK) {
        leave(roster, n);
        return error_prefix(error, "telling a worker of a client");
    }
    announce(roster);
    *number = n;
    return STATUS_OK;
}

void
roster_guest_dismiss(struct roster *roster, uint32_t number, bool keeps_pages)
{
    roster->guests[number].keeps_pages = keeps_pages;
    leave(roster, number);
}

void
roster_guests_fini(struct roster *roster)
{
    for (uint32_t i = 0; i < GUESTS_MAX; i++) {
        free_if_left(roster, i);
        CHECK(roster->guests[i].state == GUEST_FREE);
    }
}

static uint32_t
count_guests(const struct roster *roster, enum guest_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < GUESTS_MAX; i++)
        count += roster->guests[i].state == state;
    return count;
}

uint32_t
roster_guests_served(const struct roster *roster)
{
    return count_guests(roster, GUEST_SERVED);
}

uint32_t
roster_guests_ending(const struct roster *roster)
{
    return count_guests(roster, GUEST_ENDING);
}

/* ---- the seats ---- */

void
seat_tell_guests(struct seat *seat)
{
    struct roster *roster = seat->roster;
    struct error error = ERROR_NONE;
    for (uint32_t i = 0; i < GUESTS_MAX; i++) {
        const struct lane_guest *guest = &roster->guests[i];
        if (guest->state != GUEST_SERVED &&
            (guest->state != GUEST_ENDING || seat->stage <= guest->stage))
            continue;
        if (tell(seat, i, GUEST_COMES, &error) == STATUS_OK)
            seat->guests_told |= UINT32_C(1) << i;
        else if (error.status != STATUS_UNAVAILABLE)
            lose(roster, i, "a new worker could not be told of it");
    }
    if (seat->guests_told != 0)
        announce(roster);
}

bool
seat_hears_of_guest(struct seat *seat, const struct handshake_guest *word)
{
    struct roster *roster = seat->roster;
    uint32_t bit = word->number < GUESTS_MAX ? UINT32_C(1) << word->number : 0;
    if ((seat->guests_told & bit) == 0)
        return false;
    struct lane_guest *guest = &roster->guests[word->number];
    if (guest->serial != word->serial)
        return false;
    bool asked = guest->state == GUEST_LEAVING ||
                 (guest->state == GUEST_ENDING && seat->stage <= guest->stage);
    if (word->event == GUEST_LEFT && asked) {
        seat->guests_told &= ~bit;
        seat->guests_lost &= ~bit;
        free_if_left(roster, word->number);
        go_on_ending(roster, word->number);
        return true;
    }
    /* once for each guest: it could else keep us busy */
    if (word->event != GUEST_LOST || (seat->guests_lost & bit) != 0)
        return false;
    seat->guests_lost |= bit;
    if (guest->state == GUEST_SERVED || guest->state == GUEST_ENDING) {
        log_warn_limited("local_client_corrupt pipeline=%s number=%u what=\"%s\"",
                         roster->lane->info.name, word->number, word->text);
        lose(roster, word->number, "its shared memory was found corrupt");
    }
    return true;
}

uint32_t
seat_leaves_guests(struct seat *seat)
{
    struct roster *roster = seat->roster;
    const struct shm_worker *worker =
        region_worker(&roster->lane->region, seat->stage, seat->index);
    uint32_t held = atomic_load_explicit(&worker->run_guests, memory_order_relaxed);
    uint32_t told = seat->guests_told;
    seat->guests_told = 0;
    seat->guests_lost = 0;
    held &= told;
    if (roster->stopping)
        held = 0; /* we have ended it ourselves */
    for (uint32_t i = 0; i < GUESTS_MAX; i++) {
        uint32_t bit = UINT32_C(1) << i;
        struct lane_guest *guest = &roster->guests[i];
        if ((told & bit) != 0 && (guest->state == GUEST_SERVED || guest->state == GUEST_ENDING))
            guest->owner.party_died(guest->owner.context, seat->party, (held & bit) != 0);
        free_if_left(roster, i);
        go_on_ending(roster, i);
    }
    return held;
}
