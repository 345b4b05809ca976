/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/workers/client_region.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/workers/pool_member.h"
#include "shm/former.h"

/* The maximum that a worker takes (worker/source.h): more would let a client keep it busy for long.
 */
enum { SLOTS_MOST = 256, BLOCKS_MOST = 1024 };

/* An arena of any configurable size holds messages of a fifth of it: two of the largest blocks and
 * two of each smaller size take less than five times the largest. */
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
worker_pools_region_plan(const struct worker_pools *pools, const struct client_region_wish *wish,
                         struct region_plan *plan, struct error *error)
{
    const struct config_pipeline *config = pools->lane->generation->config;
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
take_pages_out(const struct lane_client_region *client_region)
{
    if (client_region->pages == CLIENT_PAGES_KEPT)
        return;
    if (fallocate(client_region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                  (off_t)client_region->bytes) != 0)
        log_warn_limited("guest_memory_kept bytes=%llu", (unsigned long long)client_region->bytes);
}

/* Returns whether any of the places knows it. */
static bool
is_known(const struct pool_member *first, uint32_t count, uint32_t number)
{
    for (uint32_t i = 0; i < count; i++)
        if (first[i].client_regions_reported & UINT32_C(1) << number)
            return true;
    return false;
}

/* All workers that knew it have confirmed its end or died: its number is free. */
static void
forget(struct worker_pools *pools, uint32_t number)
{
    struct lane_client_region *client_region = &pools->client_regions[number];
    CHECK(!is_known(pools->members, pools->pool_member_count, number));
    close(client_region->fd);
    *client_region = (struct lane_client_region){.fd = -1};
}

static void
free_if_left(struct worker_pools *pools, uint32_t number)
{
    struct lane_client_region *client_region = &pools->client_regions[number];
    if (client_region->state != CLIENT_REGION_LEAVING ||
        is_known(pools->members, pools->pool_member_count, number))
        return;
    take_pages_out(client_region); /* again: a worker in a run may have written there */
    forget(pools, number);
}

/* ---- telling the workers ---- */

static enum status
notify(struct pool_member *member, uint32_t number, enum handshake_client_region_event event,
       struct error *error)
{
    const struct lane_client_region *client_region = &member->pools->client_regions[number];
    struct handshake_client_region word = {
        .header = {HANDSHAKE_VERSION, HANDSHAKE_CLIENT_REGION, sizeof(word), 0},
        .event = event,
        .number = number,
        .serial = client_region->serial,
    };
    return handshake_send_client_region(member->process.control, &word,
                                        event == CLIENT_REGION_OPEN ? client_region->fd : -1,
                                        error);
}

/* Raises the epoch, after the messages, then wakes all workers. */
static void
announce(struct worker_pools *pools)
{
    const struct region *region = &pools->lane->region;
    for (uint32_t i = 0; i < pools->stage_count; i++)
        atomic_fetch_add(&region_stage(region, i)->client_regions_epoch, 1);
    stages_awaken(region);
}

/* Notifies those of the places that know it. There is room for three messages about each client
 * region, and a number is not reused before each of them has answered the last one. */
static void
notify_to_leave(struct pool_member *first, uint32_t count, uint32_t number,
                enum handshake_client_region_event event)
{
    struct error error = ERROR_NONE;
    for (uint32_t i = 0; i < count; i++)
        if ((first[i].client_regions_reported & UINT32_C(1) << number) != 0 &&
            notify(&first[i], number, event, &error) != STATUS_OK && !first[i].pools->stopping &&
            error.status != STATUS_UNAVAILABLE)
            pool_member_kill(&first[i], KILL_NONSENSE);
}

/* Ends the serving of the client region. */
static void
leave(struct worker_pools *pools, uint32_t number)
{
    struct lane_client_region *client_region = &pools->client_regions[number];
    CHECK(client_region->state == CLIENT_REGION_SERVED ||
          client_region->state == CLIENT_REGION_ENDING);
    client_region->state = CLIENT_REGION_LEAVING;
    take_pages_out(client_region);
    notify_to_leave(pools->members, pools->pool_member_count, number, CLIENT_REGION_DISCARD);
    announce(pools);
    free_if_left(pools, number);
}

static void
lose(struct worker_pools *pools, uint32_t number, const char *why)
{
    struct client_region_events owner = pools->client_regions[number].owner;
    leave(pools, number);
    owner.lost(owner.context, why);
}

/* ---- the end ---- */

static void
end_at(struct worker_pools *pools, const struct lane_client_region *client_region)
{
    notify_to_leave(stage_members(pools, client_region->stage),
                    stage_member_count(pools, client_region->stage),
                    (uint32_t)(client_region - pools->client_regions), CLIENT_REGION_FINISH);
    announce(pools);
}

/* Has a ready worker of the stage at which the region ends look there. False: there is none. */
static bool
send_one_to_look(struct worker_pools *pools, uint32_t number)
{
    const struct lane_client_region *client_region = &pools->client_regions[number];
    struct pool_member *members = stage_members(pools, client_region->stage);
    struct error error = ERROR_NONE;
    for (uint32_t i = 0; i < stage_member_count(pools, client_region->stage); i++)
        if (members[i].state == MEMBER_READY &&
            notify(&members[i], number, CLIENT_REGION_OPEN, &error) == STATUS_OK) {
            members[i].client_regions_reported |= UINT32_C(1) << number;
            end_at(pools, client_region);
            return true;
        }
    return false;
}

/* Returns whether items may wait at the stage, for a worker that is there or about to be ready. */
static bool
needs_a_look(const struct worker_pools *pools, const struct lane_client_region *client_region)
{
    uint64_t dead = atomic_load(&pools->lane->dead_stages);
    return client_region->stage > 0 && !client_region->looked && !pools->stopping &&
           (dead & UINT64_C(1) << client_region->stage) == 0;
}

/*
 * Ends it stage by stage: when the workers of one stage have left, nothing comes to the next one
 * any more, whose workers leave when they find nothing. So requests that have begun are finished in
 * this lane, and the others still wait at the first stage, their inputs untouched. After the death
 * of a worker its client puts the worker's items back into the stage, so another worker, or the
 * dead one's successor, looks there again.
 */
static void
go_on_ending(struct worker_pools *pools, uint32_t number)
{
    struct lane_client_region *client_region = &pools->client_regions[number];
    if (client_region->state != CLIENT_REGION_ENDING)
        return;
    while (client_region->stage < pools->stage_count) {
        if (is_known(stage_members(pools, client_region->stage),
                     stage_member_count(pools, client_region->stage), number))
            return;
        if (needs_a_look(pools, client_region)) {
            (void)!send_one_to_look(pools, number); /* or the next one that is ready */
            return;
        }
        client_region->looked = false;
        if (++client_region->stage < pools->stage_count)
            end_at(pools, client_region);
    }
    struct client_region_events owner = client_region->owner;
    forget(pools, number);
    owner.ended(owner.context);
}

void
worker_pools_region_end(struct worker_pools *pools)
{
    for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++)
        if (pools->client_regions[i].state == CLIENT_REGION_SERVED)
            pools->client_regions[i].owner.ends(pools->client_regions[i].owner.context);
    for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++) {
        struct lane_client_region *client_region = &pools->client_regions[i];
        if (client_region->state == CLIENT_REGION_SERVED) {
            client_region->state = CLIENT_REGION_ENDING;
            client_region->stage = 0;
            end_at(pools, client_region);
        }
        go_on_ending(pools, i);
    }
}

/* ---- coming and going ---- */

static uint32_t
count_client_regions(const struct worker_pools *pools, enum client_region_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++)
        count += pools->client_regions[i].state == state;
    return count;
}

struct client_region_counts
worker_pools_region_count(const struct worker_pools *pools)
{
    return (struct client_region_counts){
        .served = count_client_regions(pools, CLIENT_REGION_SERVED),
        .ending = count_client_regions(pools, CLIENT_REGION_ENDING)};
}

enum status
worker_pools_region_admit(struct worker_pools *pools, const struct client_region_wish *wish,
                          const struct client_region_events *owner, struct made_region *region,
                          uint32_t *number, struct error *error)
{
    const struct config_pipeline *config = pools->lane->generation->config;
    uint32_t most = wish->moves ? CLIENT_REGIONS_MAX : config->local_clients;
    uint32_t n = 0;
    while (n < most && pools->client_regions[n].state != CLIENT_REGION_FREE)
        n++;
    if (n >= most || count_client_regions(pools, CLIENT_REGION_SERVED) >= config->local_clients)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "pipeline \"%s\" has its %u local clients (local_clients)", config->name,
                         config->local_clients);
    enum status status = STATUS_OK;
    struct lane_client_region *client_region = &pools->client_regions[n];
    *client_region = (struct lane_client_region){.state = CLIENT_REGION_SERVED,
                                                 .fd = region->fd,
                                                 .bytes = region->bytes,
                                                 .serial = ++pools->client_region_serials,
                                                 .owner = *owner};
    region->fd = -1;
    for (uint32_t i = 0; i < pools->pool_member_count && status == STATUS_OK; i++) {
        struct pool_member *member = &pools->members[i];
        if (member->state != MEMBER_READY) /* that worker is notified when it is ready */
            continue;
        enum status reported = notify(member, n, CLIENT_REGION_OPEN, error);
        if (reported == STATUS_OK)
            member->client_regions_reported |= UINT32_C(1) << n;
        else if (reported != STATUS_UNAVAILABLE) /* otherwise its death is about to be seen */
            status = reported;
    }
    if (status != STATUS_OK) {
        leave(pools, n);
        return error_prefix(error, "telling a worker about a client");
    }
    announce(pools);
    *number = n;
    return STATUS_OK;
}

void
worker_pools_region_dismiss(struct worker_pools *pools, uint32_t number, enum client_pages pages)
{
    pools->client_regions[number].pages = pages;
    leave(pools, number);
}

void
worker_pools_region_fini(struct worker_pools *pools)
{
    for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++) {
        free_if_left(pools, i);
        CHECK(pools->client_regions[i].state == CLIENT_REGION_FREE);
    }
}

/* ---- the places ---- */

void
pool_member_announce_regions(struct pool_member *member)
{
    struct worker_pools *pools = member->pools;
    struct error error = ERROR_NONE;
    for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++) {
        const struct lane_client_region *client_region = &pools->client_regions[i];
        if (client_region->state != CLIENT_REGION_SERVED &&
            (client_region->state != CLIENT_REGION_ENDING ||
             member->stage <= client_region->stage)) {
            go_on_ending(pools, i); /* it may be the one to look */
            continue;
        }
        if (notify(member, i, CLIENT_REGION_OPEN, &error) == STATUS_OK)
            member->client_regions_reported |= UINT32_C(1) << i;
        else if (error.status != STATUS_UNAVAILABLE)
            lose(pools, i, "a new worker could not be notified of it");
    }
    if (member->client_regions_reported != 0)
        announce(pools);
}

bool
member_is_reported_of_region(struct pool_member *member, const struct handshake_client_region *word)
{
    struct worker_pools *pools = member->pools;
    uint32_t bit = word->number < CLIENT_REGIONS_MAX ? UINT32_C(1) << word->number : 0;
    if ((member->client_regions_reported & bit) == 0)
        return false;
    struct lane_client_region *client_region = &pools->client_regions[word->number];
    if (client_region->serial != word->serial)
        return false;
    bool asked =
        client_region->state == CLIENT_REGION_LEAVING ||
        (client_region->state == CLIENT_REGION_ENDING && member->stage <= client_region->stage);
    if (word->event == CLIENT_REGION_CLOSED && asked) {
        member->client_regions_reported &= ~bit;
        member->client_regions_lost &= ~bit;
        if (member->stage == client_region->stage)
            client_region->looked = true;
        free_if_left(pools, word->number);
        go_on_ending(pools, word->number);
        return true;
    }
    /* once per client region, which could otherwise keep us busy */
    if (word->event != CLIENT_REGION_LOST || (member->client_regions_lost & bit) != 0)
        return false;
    member->client_regions_lost |= bit;
    if (client_region->state == CLIENT_REGION_SERVED ||
        client_region->state == CLIENT_REGION_ENDING) {
        log_warn_limited("local_client_corrupt pipeline=%s number=%u what=\"%s\"",
                         pools->lane->info.name, word->number, word->text);
        lose(pools, word->number, "its shared memory was found corrupt");
    }
    return true;
}

uint32_t
pool_member_left_regions(struct pool_member *member)
{
    struct worker_pools *pools = member->pools;
    const struct shm_worker *worker =
        region_worker(&pools->lane->region, member->stage, member->index);
    uint32_t held = atomic_load_explicit(&worker->run_client_regions, memory_order_relaxed);
    uint32_t reported = member->client_regions_reported;
    member->client_regions_reported = 0;
    member->client_regions_lost = 0;
    held &= reported;
    if (pools->stopping)
        held = 0; /* we ended it ourselves */
    for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++) {
        uint32_t bit = UINT32_C(1) << i;
        struct lane_client_region *client_region = &pools->client_regions[i];
        if ((reported & bit) != 0 && member->stage == client_region->stage)
            client_region->looked = false;
        if ((reported & bit) != 0 && (client_region->state == CLIENT_REGION_SERVED ||
                                      client_region->state == CLIENT_REGION_ENDING))
            client_region->owner.worker_died(client_region->owner.context, member->owner,
                                             (held & bit) != 0 ? CLIENT_HELD_ITEMS
                                                               : CLIENT_HELD_NOTHING);
        free_if_left(pools, i);
        go_on_ending(pools, i);
    }
    return held;
}

void
worker_pools_region_stage_closed(struct worker_pools *pools)
{
    for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++)
        go_on_ending(pools, i);
}
