/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants of the calls between two steps. Visits everything: for tests. */
#include <stdlib.h>

#include "base/check.h"
#include "mesh/core/calls/call.h"
#include "mesh/core/copies/copy_calls.h"

static void
check_state(const struct mesh *mesh, const struct core_call *call)
{
    switch ((enum core_call_state)call->state) {
    case CALL_FREE: CHECK(call->tried_count == 0); return;
    case CALL_ROUTING: UNREACHABLE(); /* the step has routed it */
    case CALL_WAITING:
    case CALL_SERVED:
        CHECK(call->entry < mesh->entries.used);
        CHECK(mesh->entries.at[call->entry].model == call->model);
        break;
    case CALL_THERE:
        CHECK(call->there != INSTANCE_SELF && call->there_hop != MESH_HOP_ENTRY);
        CHECK(call->hop != MESH_HOP_HIT); /* R8 */
        break;
    case CALL_PARKED: CHECK(call->vmodel != NAME_NONE); break;
    case CALL_QUEUED:
        CHECK(call->hop == MESH_HOP_ENTRY && call->overloads == 0 && !call->gone); /* R14 */
        CHECK(call->arrival > 0 && call->arrival <= mesh->room_queue.arrivals);
        break;
    case CALL_ASKING: CHECK((call->model == NAME_NONE) != (call->vmodel == NAME_NONE)); break;
    }
    CHECK(call->state == CALL_ASKING || call->model != NAME_NONE);
    CHECK(call->tried_count <= MESH_TRIED_MAX);
    CHECK(call->tries <= MESH_TRIES_MAX);        /* R9 */
    CHECK(call->overloads < CALL_OVERLOADS_MAX); /* R11 */
}

/* ---- the lists: each call that waits is on one ---- */

static uint32_t
check_list(const struct mesh *mesh, uint32_t first, enum core_call_state state)
{
    uint32_t count = 0;
    for (uint32_t call = first; call != CALL_NONE; call = mesh->calls.at[call].next) {
        CHECK(mesh->calls.at[call].state == state);
        count++;
        CHECK(count <= mesh->calls.capacity); /* the list has no cycle */
    }
    return count;
}

/* R13. Returns the number of calls that wait for an answer. */
static uint32_t
check_questions(const struct mesh *mesh)
{
    uint32_t asking = 0;
    for (uint32_t i = 0; i < QUESTIONS_MAX; i++) {
        const struct core_question *question = &mesh->questions.at[i];
        CHECK(question->model == NAME_NONE || question->vmodel == NAME_NONE);
        if (question->model == NAME_NONE && question->vmodel == NAME_NONE)
            continue;
        asking += check_list(mesh, question->asked, CALL_ASKING) +
                  check_list(mesh, question->later, CALL_ASKING);
        CHECK(question->txn != 0 || (question->asked == CALL_NONE && question->later == CALL_NONE));
    }
    return asking;
}

/* R14: in order of arrival. */
static void
check_room_queue(const struct mesh *mesh)
{
    uint64_t arrival = 0;
    uint32_t last = CALL_NONE;
    for (uint32_t call = mesh->room_queue.first; call != CALL_NONE;
         call = mesh->calls.at[call].next) {
        CHECK(mesh->calls.at[call].arrival > arrival);
        arrival = mesh->calls.at[call].arrival;
        last = call;
    }
    CHECK(last == mesh->room_queue.last);
}

/* ---- calls elsewhere and here ---- */

/* Calls by state, entry and instance. */
struct call_sums {
    uint32_t states[CALL_ASKING + 1];
    uint32_t *in_flight;
    uint32_t *out;
    uint32_t *loads_out;
};

static void
add_call(struct call_sums *sums, const struct core_call *call)
{
    sums->states[call->state]++;
    if (call->state == CALL_SERVED)
        sums->in_flight[call->entry]++;
    if (call->state != CALL_THERE)
        return;
    sums->out[call->there]++;
    sums->loads_out[call->there] += call->there_hop == MESH_HOP_LOAD;
}

static void
check_sums(const struct mesh *mesh, const struct call_sums *sums)
{
    uint32_t waiting = 0;
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        bool is_free = mesh->entries.at[i].state == MESH_STATE_NONE;
        CHECK(sums->in_flight[i] == (is_free ? 0 : mesh->entries.at[i].in_flight)); /* I4 */
        waiting += is_free ? 0 : mesh->entries.at[i].waiting;
    }
    for (uint32_t i = 0; i < mesh->tables.instance_names.used; i++) {
        CHECK(sums->out[i] == mesh->tables.instances[i].out);
        CHECK(sums->loads_out[i] == mesh->tables.instances[i].loads_out);
        CHECK(mesh->tables.instances[i].sent <= mesh->calls.sent);
    }
    CHECK(waiting == sums->states[CALL_WAITING] && waiting == mesh->calls.deadlines.count);
    CHECK(sums->states[CALL_PARKED] == check_list(mesh, mesh->calls.parked, CALL_PARKED));
    CHECK(sums->states[CALL_QUEUED] == check_list(mesh, mesh->room_queue.first, CALL_QUEUED));
    CHECK(sums->states[CALL_ASKING] == check_questions(mesh));
    CHECK(sums->states[CALL_ASKING] == mesh->questions.asking);
}

void
calls_check(const struct mesh *mesh)
{
    struct call_sums sums = {
        .in_flight = calloc(mesh->entries.used + 1, sizeof(uint32_t)),
        .out = calloc(mesh->tables.instance_names.used, sizeof(uint32_t)),
        .loads_out = calloc(mesh->tables.instance_names.used, sizeof(uint32_t)),
    };
    CHECK(sums.in_flight != NULL && sums.out != NULL && sums.loads_out != NULL);
    for (uint32_t i = 0; i < mesh->calls.capacity; i++) {
        const struct core_call *call = &mesh->calls.at[i];
        check_state(mesh, call);
        CHECK(heap_has(&mesh->calls.deadlines, i) == (call->state == CALL_WAITING));
        CHECK(call->state != CALL_WAITING ||
              heap_key(&mesh->calls.deadlines, i) == call->deadline_ms);
        add_call(&sums, call);
    }
    check_sums(mesh, &sums);
    check_room_queue(mesh);
    heap_check(&mesh->calls.deadlines);
    free(sums.in_flight);
    free(sums.out);
    free(sums.loads_out);
}
