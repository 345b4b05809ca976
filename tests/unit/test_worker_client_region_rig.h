/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local clients by hand, for tests of real worker processes: a client region is a rig of its own
 * (test_worker_rig.h) whose region the workers of another, the lane, are given. The test plays both
 * the coordinator, which announces client regions and gets the workers' reports, and the
 * clients.
 */
#pragma once

#include "test_worker_rig.h"

#include "shm/client_regions.h"

struct client_region {
    struct rig *lane;
    struct rig rig; /* of it only the region, and what the request functions need */
    uint32_t number;
    uint64_t serial;
};

/* ---- the coordinator's part ---- */

static inline struct handshake_client_region
word_of(const struct client_region *client_region, enum handshake_client_region_event event)
{
    return (struct handshake_client_region){
        .header = {HANDSHAKE_VERSION, HANDSHAKE_CLIENT_REGION,
                   sizeof(struct handshake_client_region), 0},
        .event = event,
        .number = client_region->number,
        .serial = client_region->serial,
    };
}

/* Notifies every worker, raises the epoch, wakes all: in this order. */
static inline void
announce(struct rig *lane, const struct handshake_client_region *word, int fd)
{
    struct error error = ERROR_NONE;
    for (uint32_t i = 0; i < lane->stage_count; i++)
        for (uint32_t k = 0; k < rig_worker_count(lane, i); k++)
            if (lane->workers[i][k].pid != 0)
                assert_int_equal(
                    handshake_send_client_region(lane->workers[i][k].control, word, fd, &error),
                    STATUS_OK);
    for (uint32_t i = 0; i < lane->stage_count; i++)
        atomic_fetch_add(&region_stage(&lane->region, i)->client_regions_epoch, 1);
    stages_awaken(&lane->region);
}

/* Notifies the workers of one stage that it ends. */
static inline void
client_region_end_at(const struct client_region *client_region, uint32_t stage)
{
    struct rig *lane = client_region->lane;
    struct handshake_client_region word = word_of(client_region, CLIENT_REGION_FINISH);
    struct error error = ERROR_NONE;
    for (uint32_t k = 0; k < rig_worker_count(lane, stage); k++)
        assert_int_equal(
            handshake_send_client_region(lane->workers[stage][k].control, &word, -1, &error),
            STATUS_OK);
    for (uint32_t i = 0; i < lane->stage_count; i++)
        atomic_fetch_add(&region_stage(&lane->region, i)->client_regions_epoch, 1);
    stages_awaken(&lane->region);
}

static inline void
client_region_make(struct client_region *client_region, struct rig *lane, uint32_t number)
{
    static uint64_t serials;
    *client_region = (struct client_region){.lane = lane, .number = number, .serial = ++serials};
    struct region_plan plan = {.slot_count = 32, .stage_count = lane->stage_count};
    for (uint32_t i = 0; i < lane->stage_count; i++)
        plan.worker_counts[i] = 1;
    struct error error = ERROR_NONE;
    assert_int_equal(plan_arena(&plan, 1 << 14, 1 << 20, &error), STATUS_OK);
    assert_int_equal(region_create(&client_region->rig.region, &plan, 1, &error), STATUS_OK);
}

static inline void
client_region_come(struct client_region *client_region, struct rig *lane, uint32_t number)
{
    client_region_make(client_region, lane, number);
    struct handshake_client_region word = word_of(client_region, CLIENT_REGION_OPEN);
    announce(lane, &word, client_region->rig.region.fd);
}

/* The worker's next report on a client region. */
static inline struct handshake_client_region
receive(const struct rig *lane, uint32_t stage, uint32_t index)
{
    int control = lane->workers[stage][index].control;
    struct pollfd said = {.fd = control, .events = POLLIN};
    assert_int_equal(poll(&said, 1, (int)(RIG_PATIENCE_NS / NS_PER_MS)), 1);
    struct handshake_client_region message;
    struct error error = ERROR_NONE;
    int fd;
    if (handshake_receive_client_region(control, &message, &fd, &error) != STATUS_OK)
        fail_msg("a worker says: %s", error.text);
    assert_int_equal(fd, -1);
    return message;
}

static inline void
expect_word(const struct client_region *client_region, uint32_t stage, uint32_t index,
            enum handshake_client_region_event event)
{
    struct handshake_client_region message = receive(client_region->lane, stage, index);
    if (message.event != (uint32_t)event)
        fail_msg("event %u instead of %u: %s", message.event, event, message.text);
    assert_int_equal(message.number, client_region->number);
    assert_int_equal(message.serial, client_region->serial);
}

/* Sends it away, and waits until every worker has unmapped it. */
static inline void
client_region_go(struct client_region *client_region)
{
    struct handshake_client_region word = word_of(client_region, CLIENT_REGION_DISCARD);
    announce(client_region->lane, &word, -1);
    for (uint32_t i = 0; i < client_region->lane->stage_count; i++)
        for (uint32_t k = 0; k < rig_worker_count(client_region->lane, i); k++)
            if (client_region->lane->workers[i][k].pid != 0)
                expect_word(client_region, i, k, CLIENT_REGION_CLOSED);
    region_detach(&client_region->rig.region);
}

/* ---- the client's part ---- */

static inline struct shm_ticket
client_region_submit(struct client_region *client_region, struct rig_request request)
{
    struct shm_ticket ticket = rig_push(&client_region->rig, request);
    doorbell_ring(client_region_bell(&client_region->rig.region, 0));
    return ticket;
}

static inline struct rig_outcome
client_region_call(struct client_region *client_region, struct rig_request request)
{
    struct shm_ticket ticket = client_region_submit(client_region, request);
    struct rig_outcome outcome = rig_wait_outcome(&client_region->rig);
    assert_int_equal(outcome.ticket.index, ticket.index);
    return outcome;
}

static inline void
client_region_assert_empty(const struct client_region *client_region)
{
    assert_int_equal(slots_used(&client_region->rig.region), 0);
    assert_int_equal(arena_used(&client_region->rig.region, -1), 0);
}

/* Until the word of a slot says that a worker holds it at stage 0; returns the owner. */
static inline uint16_t
wait_held(const struct region *region, struct shm_ticket ticket)
{
    int64_t deadline_ns = clock_now_ns() + RIG_PATIENCE_NS;
    while (clock_now_ns() < deadline_ns) {
        struct shm_word word = word_unpack(atomic_load(object_word(&region->slots, ticket.index)));
        if (word.held && word.place == 0)
            return word.owner;
        poll(NULL, 0, 1);
    }
    fail_msg("nobody takes the slot");
    return 0;
}
