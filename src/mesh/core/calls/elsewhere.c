/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads that hang or take long (R17): calls that wait for them try another node while one would
 * load the model.
 */
#include "mesh/core/calls/elsewhere.h"
#include "mesh/core/models.h"
#include "mesh/core/cluster/place.h"
#include "mesh/core/copies/copy_calls.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/load_times.h"

enum { PATIENCE_MS_MIN = 3000, MOVES_MAX = 64 };

static int64_t
patience_ms(const struct mesh *mesh)
{
    int64_t assumed_ms = load_assumed_ms(mesh);
    return assumed_ms > PATIENCE_MS_MIN ? assumed_ms : PATIENCE_MS_MIN;
}

/* No load has ended for the patience, and none can begin. */
static bool
is_stuck(const struct mesh *mesh, uint32_t number)
{
    const struct pool *pool = &mesh->pools.at[number];
    if (pool->loading < pool->loaders || pool->loaders == 0)
        return false;
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        const struct core_entry *entry = &mesh->entries.at[i];
        if (entry->state == MESH_STATE_LOADING && entry->pool == number &&
            mesh->now_ms - entry->began_ms < patience_ms(mesh))
            return false;
    }
    return true;
}

/* For a call, this node's load goes on. */
static bool
others_would_load(struct mesh *mesh, uint32_t model, const struct core_call *call)
{
    struct place_wish wish = ensure_wish(mesh, model);
    wish.not_self = true;
    wish.reachable = true;
    wish.churn_ms = 0;
    wish.leaves = call == NULL;
    if (call != NULL) {
        wish.tried = call->tried;
        wish.tried_count = call->tried_count;
    }
    return place_choose(&mesh->tables, &wish, &mesh->random) != NAME_NONE;
}

/* Withdraws loads that have not begun; their calls go elsewhere. */
static void
leave_queue(struct mesh *mesh, uint32_t number)
{
    struct pool *pool = &mesh->pools.at[number];
    uint32_t looks = 0;
    for (uint32_t i = 0; i < mesh->entries.used && looks < MOVES_MAX; i++) {
        struct core_entry *entry = &mesh->entries.at[i];
        if (!heap_has(&pool->queue, i))
            continue;
        looks++;
        if (others_would_load(mesh, entry->model, NULL))
            entry_leave(mesh, entry);
    }
}

/* The load counts as a copy that was tried without success. */
static void
leave_entry(struct mesh *mesh, uint32_t number, const struct core_entry *entry)
{
    struct core_call *call = &mesh->calls.at[number];
    call_stop_waiting(mesh, number);
    uint8_t count = call->tried_count;
    call_list(mesh, call, INSTANCE_SELF, MESH_LIST_HIT, entry->since_ms);
    if (call->tried_count > count)
        call->tried[count].left = true;
    if (call->hop == MESH_HOP_ENTRY)
        call_route_later(mesh, number);
    else
        call_answer(mesh, number, MESH_END_NOT_HERE, NULL);
}

/* A call does this once: if the other load hangs as well, it waits there. */
static void
leave_load(struct mesh *mesh, struct core_entry *entry)
{
    uint32_t looks = 0;
    uint32_t next = CALL_NONE;
    for (uint32_t number = entry->first_call; number != CALL_NONE && looks < MOVES_MAX;
         number = next) {
        struct core_call *call = &mesh->calls.at[number];
        next = call->next;
        if (call->moved)
            continue;
        looks++;
        if (!others_would_load(mesh, entry->model, call))
            continue;
        call->moved = true;
        leave_entry(mesh, number, entry);
    }
}

void
elsewhere_tick(struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->pools.count; i++) {
        mesh->pools.at[i].stuck = is_stuck(mesh, i);
        if (mesh->pools.at[i].stuck && !mesh->drain.active && mesh->mirror.session != 0)
            leave_queue(mesh, i);
    }
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        struct core_entry *entry = &mesh->entries.at[i];
        if (entry->state == MESH_STATE_LOADING && !entry->doomed && entry->waiting > 0 &&
            mesh->now_ms - entry->began_ms >= patience_ms(mesh))
            leave_load(mesh, entry);
    }
}

void
elsewhere_learn(struct mesh *mesh, struct core_call *call, uint32_t instance)
{
    const struct core_place *place = model_place(model_at(mesh, call->model), (uint16_t)instance);
    if (place != NULL && place_is_copy(&mesh->tables, place))
        call_list(mesh, call, instance, MESH_LIST_HIT, place->since_ms);
}
