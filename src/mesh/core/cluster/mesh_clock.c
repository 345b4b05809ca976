/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/cluster/mesh_clock.h"
#include "base/hash.h"
#include "mesh/core/cluster/tables.h"

#include <stddef.h>
#include <string.h>

enum {
    ROUND_TRIP_MS_MAX = 2000,
    MEASURED_MS = 60000,
    CONTRADICTS_MS = 50,
    STEADY_MS = 250,
    DECIDE_MS = 100, /* every step of the core asks for the time */
};

uint64_t
mesh_clock_key(const char *instance)
{
    return hash_fnv1a(HASH_FNV1A_SEED, instance, strlen(instance)) | 1;
}

void
mesh_clock_init(struct mesh_clock *clock, const char *instance)
{
    *clock = (struct mesh_clock){.key = mesh_clock_key(instance)};
}

static struct mesh_clock_peer *
find(struct mesh_clock *clock, uint64_t key)
{
    for (size_t i = 0; i < MESH_CLOCKS_MAX; i++)
        if (clock->peers[i].key == key)
            return &clock->peers[i];
    return NULL;
}

static bool
is_silent(const struct mesh_clock_peer *peer, int64_t now_ms)
{
    return peer->received_ms == INT64_MIN || now_ms - peer->received_ms > MESH_CLOCK_SILENT_MS;
}

/* A free slot, otherwise that of the greatest key if it is greater than this one; NULL: none. */
static struct mesh_clock_peer *
find_room(struct mesh_clock *clock, uint64_t key)
{
    struct mesh_clock_peer *room = &clock->peers[0];
    for (size_t i = 1; i < MESH_CLOCKS_MAX && room->key != 0; i++)
        if (clock->peers[i].key == 0 || clock->peers[i].key > room->key)
            room = &clock->peers[i];
    return room->key == 0 || room->key > key ? room : NULL;
}

bool
mesh_clock_ask(struct mesh_clock *clock, uint64_t key, int64_t now_ms)
{
    struct mesh_clock_peer *peer = find(clock, key);
    if (peer != NULL && now_ms - peer->asked_ms < MESH_CLOCK_ASK_MS)
        return false;
    if (peer == NULL) {
        peer = find_room(clock, key);
        if (peer == NULL)
            return false;
        *peer = (struct mesh_clock_peer){.key = key, .received_ms = INT64_MIN};
    }
    peer->asked_ms = now_ms;
    return true;
}

static int64_t
distance(int64_t a, int64_t b)
{
    return a > b ? a - b : b - a;
}

void
mesh_clock_notify(struct mesh_clock *clock, uint64_t key, const struct mesh_clock_answer *answer)
{
    struct mesh_clock_peer *peer = find(clock, key);
    if (peer == NULL || answer->asked_ms > answer->received_ms ||
        answer->asked_ms < answer->received_ms - ROUND_TRIP_MS_MAX ||
        answer->wall_ms != stamp_judge(answer->wall_ms) ||
        answer->mesh_ms != stamp_judge(answer->mesh_ms))
        return;
    int64_t took_ms = answer->received_ms - answer->asked_ms;
    int64_t base_ms = answer->wall_ms - answer->asked_ms - took_ms / 2;
    int64_t error_ms = took_ms / 2 + 1;
    bool is_first = peer->received_ms == INT64_MIN;
    if (is_first || error_ms <= peer->error_ms ||
        answer->received_ms - peer->measured_ms > MEASURED_MS ||
        distance(base_ms, peer->base_ms) > error_ms + peer->error_ms + CONTRADICTS_MS) {
        peer->base_ms = base_ms;
        peer->error_ms = error_ms;
        peer->measured_ms = answer->received_ms;
    }
    peer->received_ms = answer->received_ms;
    peer->mesh_ms = answer->mesh_ms - answer->wall_ms;
    peer->voted = answer->voted;
    clock->decided = false;
}

void
mesh_clock_forget(struct mesh_clock *clock, uint64_t key)
{
    struct mesh_clock_peer *peer = find(clock, key);
    if (peer == NULL)
        return;
    *peer = (struct mesh_clock_peer){.key = 0};
    clock->decided = false;
}

/* ---- the vote ---- */

static int64_t
earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* M5 */
static int64_t
base_of_two(const struct mesh_clock *clock, const struct mesh_clock_peer *peer)
{
    int64_t theirs_ms = peer->base_ms + peer->mesh_ms;
    if (clock->voted && peer->voted)
        return earlier(clock->base_ms, theirs_ms);
    if (clock->voted)
        return clock->base_ms;
    if (peer->voted)
        return theirs_ms;
    return earlier(clock->own_ms, peer->base_ms);
}

/* Inserts the value in order. */
static void
insert(int64_t *sorted, uint32_t count, int64_t value)
{
    uint32_t at = count;
    for (; at > 0 && sorted[at - 1] > value; at--)
        sorted[at] = sorted[at - 1];
    sorted[at] = value;
}

/* M4. Collects the voting clocks' bases in order and returns their number. */
static uint32_t
count_votes(const struct mesh_clock *clock, int64_t now_ms, int64_t *bases)
{
    const struct mesh_clock_peer *last = NULL;
    uint32_t count = 0;
    for (size_t i = 0; i < MESH_CLOCKS_MAX; i++) {
        const struct mesh_clock_peer *peer = &clock->peers[i];
        if (peer->key == 0 || is_silent(peer, now_ms))
            continue;
        insert(bases, count++, peer->base_ms);
        if (last == NULL || peer->key > last->key)
            last = peer;
    }
    if (count < MESH_CLOCKS_MAX) {
        insert(bases, count++, clock->own_ms);
    } else if (last->key > clock->key) {
        uint32_t at = 0;
        while (bases[at] != last->base_ms)
            at++;
        memmove(&bases[at], &bases[at + 1], (count - at - 1) * sizeof(*bases));
        insert(bases, count - 1, clock->own_ms);
    }
    return count;
}

static const struct mesh_clock_peer *
only_peer(const struct mesh_clock *clock, int64_t now_ms)
{
    size_t i = 0;
    while (clock->peers[i].key == 0 || is_silent(&clock->peers[i], now_ms))
        i++;
    return &clock->peers[i];
}

int64_t
mesh_clock_now(struct mesh_clock *clock, int64_t now_ms, int64_t wall_ms)
{
    int64_t bases[MESH_CLOCKS_MAX];
    clock->own_ms = wall_ms - now_ms;
    if (clock->decided && now_ms - clock->decided_ms < DECIDE_MS)
        return now_ms + clock->base_ms;
    clock->clocks = count_votes(clock, now_ms, bases);
    int64_t base_ms = clock->base_ms;
    if (clock->clocks > 2)
        base_ms = bases[(clock->clocks - 1) / 2]; /* M4 */
    else if (clock->clocks == 2)
        base_ms = base_of_two(clock, only_peer(clock, now_ms));
    else if (!clock->has_compared)
        clock->base_ms = base_ms = clock->own_ms;      /* M3 */
    if (distance(base_ms, clock->base_ms) > STEADY_MS) /* M7 */
        clock->base_ms = base_ms;
    clock->has_compared = clock->has_compared || clock->clocks > 1;
    clock->voted = clock->voted || clock->clocks > 2;
    clock->decided = clock->has_compared;
    clock->decided_ms = now_ms;
    return now_ms + clock->base_ms;
}

int64_t
mesh_clock_ahead_ms(struct mesh_clock *clock, uint64_t key, int64_t now_ms)
{
    const struct mesh_clock_peer *peer = find(clock, key);
    return peer == NULL || is_silent(peer, now_ms) ? 0 : peer->base_ms - clock->base_ms;
}
