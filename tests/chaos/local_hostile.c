/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A local client that does its worst, until it is killed: it connects, writes anything anywhere in
 * its region while it submits requests there, says nonsense on the socket or nothing, does not
 * read it, closes, and connects again. What is reached by tests/unit/hostile_client.h, here of a
 * whole node.
 */
#include "../unit/hostile_client.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/link.h"
#include "shm/slot.h"

enum { LIFE_MS_MAX = 60, RETRY_MS = 20, PIXELS = 64 };

static struct payload_builder builder;

/* A digit of noise, at any stage, by the rules as far as the region still lets us. */
static void
submit(const struct region *region, uint64_t *random)
{
    static const char *const names[] = {"image", "image", "probabilities"};
    static const int64_t shapes[][2] = {{1, PIXELS}, {1, PIXELS}, {1, 10}};
    struct error error = ERROR_NONE;
    struct shm_ticket ticket;
    void *data;
    uint8_t place = (uint8_t)(draw(random) % region->layout.plan.stage_count);
    if (slot_acquire(region, PARTY_COORDINATOR, &ticket) != RING_OK)
        return;
    struct shoal_tensor tensor = {.name = names[place % 3], .datatype = SHOAL_FP32, .rank = 2};
    memcpy(tensor.shape, shapes[place % 3], sizeof(shapes[0]));
    tensor.bytes = (size_t)(tensor.shape[0] * tensor.shape[1]) * sizeof(float);
    builder_init(&builder, region, ticket.index, PARTY_COORDINATOR, NULL, NULL);
    if (builder_add(&builder, &tensor, &data, &error) != STATUS_OK)
        return;
    memset(data, (int)(draw(random) % 0x42), tensor.bytes);
    struct shm_slot *slot = region_slot(region, ticket.index);
    if (builder_seal(&builder, &slot->payload[place & 1], &error) != STATUS_OK ||
        slot_push(region, ticket, PLACE_FREE, place, PARTY_COORDINATOR, clock_now_ns()) != RING_OK)
        return;
    doorbell_ring(guest_bell(region, place));
}

static void
take(const struct region *region)
{
    struct shm_ticket ticket;
    const uint8_t places[] = {region_result_place(region), PLACE_ERROR};
    for (size_t i = 0; i < sizeof(places); i++)
        if (slot_pop(region, places[i], PARTY_COORDINATOR, &ticket) == RING_OK)
            (void)!slot_release(region, ticket, places[i], PARTY_COORDINATOR);
}

static void
live(const struct region *region, uint64_t *random)
{
    enum way way = draw(random) % WAYS;
    int64_t until_ns = clock_now_ns() + (int64_t)(draw(random) % LIFE_MS_MAX) * (int64_t)NS_PER_MS;
    while (clock_now_ns() < until_ns) {
        write_somewhere(region, way, random);
        uint64_t act = draw(random) % 8;
        if (act == 0)
            submit(region, random);
        else if (act == 1)
            take(region);
        else if (act == 2) /* there are two processors, and others are honest */
            poll(NULL, 0, 1);
    }
}

/* Of any length. */
static void
say_nonsense(int fd, uint64_t *random)
{
    static char nonsense[512];
    (void)!send(fd, nonsense, draw(random) % sizeof(nonsense), MSG_NOSIGNAL | MSG_DONTWAIT);
}

int
main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: local_hostile SOCKET SEED\n");
        return 2;
    }
    uint64_t random = strtoull(argv[2], NULL, 10) | 1;
    struct local_hello hello = {.version = LOCAL_VERSION, .pipeline = "digits"};
    for (;;) {
        struct link *link;
        struct error error = ERROR_NONE;
        if (link_open(argv[1], &hello, NS_PER_S, 0, &link, &error) != STATUS_OK) {
            poll(NULL, 0, RETRY_MS);
            continue;
        }
        live(&link->region, &random);
        if (draw(&random) % 4 == 0)
            say_nonsense(link->fd, &random);
        link_close(link);
    }
}
