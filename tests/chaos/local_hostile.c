/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A local client that does its worst, until it is killed: it connects, writes anything anywhere in
 * its region while it submits requests there, says nonsense on the socket or nothing, does not
 * read it, closes, and connects again. Uses tests/unit/hostile_client.h against a whole node.
 */
#include "../unit/hostile_client.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "ipc/local.h"
#include "shm/payload.h"
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
    uint8_t place = (uint8_t)(random_draw(random) % region->layout.plan.stage_count);
    if (slot_acquire(region, OWNER_COORDINATOR, &ticket) != RING_OK)
        return;
    struct shoal_tensor tensor = {.name = names[place % 3], .datatype = SHOAL_FP32, .rank = 2};
    memcpy(tensor.shape, shapes[place % 3], sizeof(shapes[0]));
    tensor.bytes = (size_t)(tensor.shape[0] * tensor.shape[1]) * sizeof(float);
    builder_init(&builder, region, ticket.index, OWNER_COORDINATOR, NULL, NULL);
    if (builder_add(&builder, &tensor, &data, &error) != STATUS_OK)
        return;
    memset(data, (int)(random_draw(random) % 0x42), tensor.bytes);
    struct shm_slot *slot = region_slot(region, ticket.index);
    if (builder_seal(&builder, &slot->payload[place & 1], &error) != STATUS_OK ||
        slot_push(region, ticket, PLACE_FREE, place, OWNER_COORDINATOR, clock_now_ns()) != RING_OK)
        return;
    doorbell_ring(client_region_bell(region, place));
}

static void
take(const struct region *region)
{
    struct shm_ticket ticket;
    const uint8_t places[] = {region_result_place(region), PLACE_ERROR};
    for (size_t i = 0; i < sizeof(places); i++)
        if (slot_pop(region, places[i], OWNER_COORDINATOR, &ticket) == RING_OK)
            (void)!slot_release(region, ticket, places[i], OWNER_COORDINATOR);
}

static void
live(const struct region *region, uint64_t *random)
{
    enum way way = random_draw(random) % WAYS;
    int64_t until_ns =
        clock_now_ns() + (int64_t)(random_draw(random) % LIFE_MS_MAX) * (int64_t)NS_PER_MS;
    while (clock_now_ns() < until_ns) {
        write_somewhere(region, way, random);
        uint64_t act = random_draw(random) % 8;
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
    (void)!send(fd, nonsense, random_draw(random) % sizeof(nonsense), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Its socket, with a region; -1: not now. */
static int
be_welcomed(const char *path, struct region *region)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = 1};
    struct local_hello hello = {.version = LOCAL_VERSION, .pipeline = "digits"};
    struct local_note taken = {LOCAL_VERSION, NOTE_TAKEN};
    struct local_word word;
    struct error error = ERROR_NONE;
    int descriptor = -1;
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
        local_send(fd, &hello, sizeof(hello), -1, &error) == STATUS_OK &&
        local_receive(fd, &word, sizeof(word), LOCAL_WAIT, &descriptor, &error) == STATUS_OK &&
        word.type == LOCAL_WELCOME && region_attach(region, descriptor, &error) == STATUS_OK) {
        (void)!local_send(fd, &taken, sizeof(taken), -1, &error);
        return fd;
    }
    if (descriptor >= 0)
        close(descriptor);
    close(fd);
    return -1;
}

int
main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: local_hostile SOCKET SEED\n");
        return 2;
    }
    uint64_t random = strtoull(argv[2], NULL, 10);
    for (;;) {
        struct region region;
        int fd = be_welcomed(argv[1], &region);
        if (fd < 0) {
            poll(NULL, 0, RETRY_MS);
            continue;
        }
        live(&region, &random);
        if (random_draw(&random) % 4 == 0)
            say_nonsense(fd, &random);
        close(fd);
        region_detach(&region);
    }
}
