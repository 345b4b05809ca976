/* SPDX-License-Identifier: Apache-2.0 */
/*
 * R14. A call that finds no room waits: it ends for want of it only when its deadline has come, a
 * tick more or less; where nothing but room can be missing, it ends early for no reason at all; and
 * the first in line does not go on waiting when somebody would take it.
 */
#include "../invariants.h"
#include "mesh/core/calls/refusal.h"

enum { TICK_MS = 1000, SEEN_MS = 12000 };

/* Models load, nodes stay, everybody sees everything: only room may be short, or a runtime rests,
 * for which calls wait as well. */
static bool
is_only_full(const struct world *world)
{
    const struct options *options = &world->options;
    const struct faults *faults = &options->faults;
    uint32_t harm = faults->load_fails + faults->kills + faults->leases + faults->links +
                    faults->replacements + faults->pauses + faults->crashes + faults->partitions +
                    faults->swizzles + faults->outages + faults->elections + faults->keeps +
                    faults->slow + faults->lost + faults->emptyings + faults->orders +
                    faults->size_lies + faults->drains + faults->constraints + faults->hangs +
                    options->concurrency + options->poisoned + options->lost_for_good;
    return harm == 0 && !options->labelled && options->bounds != BOUNDS_MANY;
}

static void
on_answer(struct world *world, const struct client_call *call)
{
    bool early = call->deadline_ms - world->now_ms > TICK_MS;
    if (call->lost || call->end == MESH_END_OK || !early)
        return;
    if (call->end == MESH_END_FULL)
        broken(world, &R14_room, "n%u gives up a call of m%u for want of room, %lld ms early",
               call->entry, call->model, (long long)(call->deadline_ms - world->now_ms));
    /* A call for a model larger than every empty node ends at once. */
    bool fits = runtime_bytes(world, call->model) * 10 <= world->options.capacity_bytes * 9;
    if (call->began_ms > SEEN_MS && fits && is_only_full(world))
        broken(world, &R14_room, "n%u ends a call of m%u with %d, though it could wait",
               call->entry, call->model, (int)call->end);
}

/* After a tick: all that wait have just been looked at. Whether somebody would take the first one
 * in line is asked of the core's own placement: what is seen is that it was asked. */
static void
on_step(struct world *world, const struct sight *sight)
{
    struct mesh *mesh = world->nodes[sight->node].mesh;
    if (sight->event->kind != MESH_TICK || mesh->room_queue.first == CALL_NONE ||
        mesh->room_queue.due)
        return;
    const struct core_call *call = &mesh->calls.at[mesh->room_queue.first];
    bool member = mesh->mirror.session != 0 && mesh->tables.instances[INSTANCE_SELF].session != 0;
    if (!member || call->tried_count > 0 || call->tries >= MESH_TRIES_MAX)
        return;
    struct place_wish wish = call_place_wish(mesh, call);
    uint64_t random = 1;
    uint32_t there = place_choose(&mesh->tables, &wish, &random);
    if (there != NAME_NONE)
        broken(world, &R14_room, "a call of %s waits at n%u, though %s would take it",
               names_text(&mesh->tables.model_names, call->model), sight->node,
               names_text(&mesh->tables.instance_names, there));
}

static void
see(struct world *world, const struct sight *sight)
{
    if (sight->kind == SAW_ANSWER)
        on_answer(world, &world->calls[sight->client_call]);
    else
        on_step(world, sight);
}

const struct invariant R14_room = {
    .name = "R14 calls wait for room", .sees = SEES(ANSWER) | SEES(STEP), .see = see};
