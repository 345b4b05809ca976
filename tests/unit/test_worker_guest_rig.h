/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local clients by hand, for tests of real worker processes: a guest is a rig of its own
 * (test_worker_rig.h) whose region the workers of another, the lane, are given. The test plays both
 * the coordinator, who announces guests and hears what workers say of them, and the clients.
 */
#pragma once

#include "test_worker_rig.h"

#include "shm/guests.h"

struct guest {
    struct rig *lane;
    struct rig rig; /* of it only the region, and what the request functions need */
    uint32_t number;
    uint64_t serial;
};

/* ---- the coordinator's part ---- */

static inline struct handshake_guest
word_of(const struct guest *guest, enum handshake_guest_event event)
{
    return (struct handshake_guest){
        .header = {HANDSHAKE_VERSION, HANDSHAKE_GUEST, sizeof(struct handshake_guest), 0},
        .event = event,
        .number = guest->number,
        .serial = guest->serial,
    };
}

/* Tells every worker, raises the epoch, wakes all: in this order. */
static inline void
announce(struct rig *lane, const struct handshake_guest *word, int fd)
{
    struct error error = ERROR_NONE;
    for (uint32_t i = 0; i < lane->stage_count; i++)
        for (uint32_t k = 0; k < rig_worker_count(lane, i); k++)
            if (lane->workers[i][k].pid != 0)
                assert_int_equal(
                    handshake_send_guest(lane->workers[i][k].control, word, fd, &error), STATUS_OK);
    for (uint32_t i = 0; i < lane->stage_count; i++)
        atomic_fetch_add(&region_stage(&lane->region, i)->guests_epoch, 1);
    stages_awaken(&lane->region);
}

/* Tells the workers of one stage that it ends. */
static inline void
guest_end_at(const struct guest *guest, uint32_t stage)
{
    struct rig *lane = guest->lane;
    struct handshake_guest word = word_of(guest, GUEST_ENDS);
    struct error error = ERROR_NONE;
    for (uint32_t k = 0; k < rig_worker_count(lane, stage); k++)
        assert_int_equal(handshake_send_guest(lane->workers[stage][k].control, &word, -1, &error),
                         STATUS_OK);
    for (uint32_t i = 0; i < lane->stage_count; i++)
        atomic_fetch_add(&region_stage(&lane->region, i)->guests_epoch, 1);
    stages_awaken(&lane->region);
}

static inline void
guest_make(struct guest *guest, struct rig *lane, uint32_t number)
{
    static uint64_t serials;
    *guest = (struct guest){.lane = lane, .number = number, .serial = ++serials};
    struct region_plan plan = {.slot_count = 32, .stage_count = lane->stage_count};
    for (uint32_t i = 0; i < lane->stage_count; i++)
        plan.worker_counts[i] = 1;
    struct error error = ERROR_NONE;
    assert_int_equal(plan_arena(&plan, 1 << 14, 1 << 20, &error), STATUS_OK);
    assert_int_equal(region_create(&guest->rig.region, &plan, 1, &error), STATUS_OK);
}

static inline void
guest_come(struct guest *guest, struct rig *lane, uint32_t number)
{
    guest_make(guest, lane, number);
    struct handshake_guest word = word_of(guest, GUEST_COMES);
    announce(lane, &word, guest->rig.region.fd);
}

/* What the worker says next of a guest. */
static inline struct handshake_guest
hear(const struct rig *lane, uint32_t stage, uint32_t index)
{
    int control = lane->workers[stage][index].control;
    struct pollfd said = {.fd = control, .events = POLLIN};
    assert_int_equal(poll(&said, 1, (int)(RIG_PATIENCE_NS / NS_PER_MS)), 1);
    struct handshake_guest message;
    struct error error = ERROR_NONE;
    int fd;
    if (handshake_receive_guest(control, &message, &fd, &error) != STATUS_OK)
        fail_msg("a worker says: %s", error.text);
    assert_int_equal(fd, -1);
    return message;
}

static inline void
expect_word(const struct guest *guest, uint32_t stage, uint32_t index,
            enum handshake_guest_event event)
{
    struct handshake_guest message = hear(guest->lane, stage, index);
    if (message.event != (uint32_t)event)
        fail_msg("event %u instead of %u: %s", message.event, event, message.text);
    assert_int_equal(message.number, guest->number);
    assert_int_equal(message.serial, guest->serial);
}

/* Sends it away, and waits until every worker has unmapped it. */
static inline void
guest_go(struct guest *guest)
{
    struct handshake_guest word = word_of(guest, GUEST_GOES);
    announce(guest->lane, &word, -1);
    for (uint32_t i = 0; i < guest->lane->stage_count; i++)
        for (uint32_t k = 0; k < rig_worker_count(guest->lane, i); k++)
            if (guest->lane->workers[i][k].pid != 0)
                expect_word(guest, i, k, GUEST_LEFT);
    region_detach(&guest->rig.region);
}

/* ---- the client's part ---- */

static inline struct shm_ticket
guest_submit(struct guest *guest, struct rig_request request)
{
    struct shm_ticket ticket = rig_push(&guest->rig, request);
    doorbell_ring(guest_bell(&guest->rig.region, 0));
    return ticket;
}

static inline struct rig_outcome
guest_call(struct guest *guest, struct rig_request request)
{
    struct shm_ticket ticket = guest_submit(guest, request);
    struct rig_outcome outcome = rig_wait_outcome(&guest->rig);
    assert_int_equal(outcome.ticket.index, ticket.index);
    return outcome;
}

static inline void
guest_assert_empty(const struct guest *guest)
{
    assert_int_equal(slots_used(&guest->rig.region), 0);
    assert_int_equal(arena_used(&guest->rig.region, -1), 0);
}

/* Until the word of a slot says that a worker holds it at stage 0; returns the party. */
static inline uint16_t
wait_held(const struct region *region, struct shm_ticket ticket)
{
    int64_t deadline_ns = clock_now_ns() + RIG_PATIENCE_NS;
    while (clock_now_ns() < deadline_ns) {
        struct shm_word word = word_unpack(atomic_load(object_word(&region->slots, ticket.index)));
        if (word.held && word.place == 0)
            return word.party;
        poll(NULL, 0, 1);
    }
    fail_msg("nobody takes the slot");
    return 0;
}
