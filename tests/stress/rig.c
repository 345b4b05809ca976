/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "shm/arena.h"

enum { ATTEMPTS_MAX = 3, SMALL_BYTES = 2048, LARGE_BYTES = 8192 };

struct region_plan
rig_plan(uint32_t stages, uint32_t workers, uint32_t slots)
{
    struct region_plan plan = {
        .slot_count = slots,
        .stage_count = stages,
        .class_count = 2,
        /* a slot holds at most three blocks; half of what all could want, so that both classes
           serve */
        .class_block_counts = {slots + slots / 2, 2 * slots},
        .class_block_bytes = {SMALL_BYTES, LARGE_BYTES},
    };
    for (uint32_t i = 0; i < stages; i++)
        plan.worker_counts[i] = workers;
    return plan;
}

static struct shoal_tensor
serial_tensor(const char *name)
{
    return (struct shoal_tensor){
        .name = name, .datatype = SHOAL_UINT64, .rank = 1, .shape = {1}, .bytes = sizeof(uint64_t)};
}

/* A stage's result for a serial number. */
static uint64_t
derived(uint64_t serial, uint32_t stages_done)
{
    return serial * UINT64_C(0x9e3779b97f4a7c15) + stages_done;
}

enum ring_result
rig_submit(const struct region *region, struct rig_ledger *ledger, uint64_t serial)
{
    struct shm_ticket ticket;
    enum ring_result result = slot_acquire(region, OWNER_COORDINATOR, &ticket);
    if (result != RING_OK)
        return result;
    struct error error = ERROR_NONE;
    static _Thread_local struct payload_builder builder;
    struct shm_slot *slot = region_slot(region, ticket.index);
    builder_init(&builder, region, ticket.index, OWNER_COORDINATOR, NULL, NULL);
    struct shoal_tensor tensor = serial_tensor("serial");
    void *data;
    if (builder_add(&builder, &tensor, &data, &error) != STATUS_OK) {
        builder_abandon(&builder, &slot->payload[0]);
        result = slot_release(region, ticket, PLACE_FREE, OWNER_COORDINATOR) == STATUS_OK
                     ? RING_EMPTY
                     : RING_CORRUPT;
        return error.status == STATUS_RESOURCE_EXHAUSTED ? result : RING_CORRUPT;
    }
    memcpy(data, &serial, sizeof(serial));
    if (builder_seal(&builder, &slot->payload[0], &error) != STATUS_OK)
        return RING_CORRUPT;
    ledger->generation[ticket.index] = ticket.generation;
    ledger->serial[ticket.index] = serial;
    ledger->attempts[ticket.index] = 0;
    ledger->submitted++;
    return slot_push(region, ticket, PLACE_FREE, 0, OWNER_COORDINATOR, clock_now_ns());
}

bool
rig_payload_right(const struct region *region, const struct shm_payload *payload,
                  uint32_t stages_done, uint64_t *serial)
{
    static _Thread_local struct payload_view view;
    struct error error = ERROR_NONE;
    if (payload_read(region, payload, &view, &error) != STATUS_OK)
        return false;
    if (view.tensor_count != (stages_done == 0 ? 1 : 2) ||
        strcmp(view.tensors[0].name, "serial") != 0 || view.tensors[0].bytes != sizeof(*serial))
        return false;
    memcpy(serial, view.tensors[0].data, sizeof(*serial));
    if (stages_done == 0)
        return true;
    uint64_t value;
    memcpy(&value, view.tensors[1].data, sizeof(value));
    return strcmp(view.tensors[1].name, "derived") == 0 && value == derived(*serial, stages_done);
}

void
rig_answer(const struct region *region, struct rig_ledger *ledger, struct shm_ticket ticket,
           uint8_t place)
{
    if (ticket.index >= RIG_SLOTS_MAX || ledger->generation[ticket.index] != ticket.generation) {
        ledger->strange++;
        return;
    }
    uint64_t serial = ledger->serial[ticket.index];
    uint64_t carried = ~serial;
    const struct shm_slot *slot = region_slot(region, ticket.index);
    if (place == PLACE_ERROR)
        ledger->failed++;
    else if (!rig_payload_right(region, &slot->payload[place & 1], place, &carried) ||
             carried != serial)
        ledger->wrong++;
    ledger->generation[ticket.index] = 0;
    ledger->answered++;
}

enum ring_result
rig_gather(const struct region *region, struct rig_ledger *ledger)
{
    struct shm_ticket ticket;
    uint8_t place = region_result_place(region);
    enum ring_result result = slot_pop(region, place, OWNER_COORDINATOR, &ticket);
    if (result == RING_EMPTY || result == RING_LOST) {
        place = PLACE_ERROR;
        result = slot_pop(region, place, OWNER_COORDINATOR, &ticket);
    }
    if (result != RING_OK)
        return result;
    rig_answer(region, ledger, ticket, place);
    return slot_release(region, ticket, place, OWNER_COORDINATOR) == STATUS_OK ? RING_OK
                                                                               : RING_CORRUPT;
}

enum ring_result
rig_run(const struct region *region, uint32_t stage, uint16_t owner, struct shm_ticket ticket)
{
    static _Thread_local struct payload_view view;
    static _Thread_local struct payload_builder builder;
    struct error error = ERROR_NONE;
    struct shm_slot *slot = region_slot(region, ticket.index);
    struct shm_payload *current = &slot->payload[stage & 1];
    struct shm_payload *next = &slot->payload[(stage + 1) & 1];
    struct shoal_tensor tensor = serial_tensor("derived");
    void *data;
    uint64_t serial;
    builder_init(&builder, region, ticket.index, owner, current, next);
    enum status status = payload_read(region, current, &view, &error);
    if (status == STATUS_OK)
        status = builder_forward(&builder, &view, 0, "serial", &error);
    if (status == STATUS_OK)
        status = builder_add(&builder, &tensor, &data, &error);
    if (status == STATUS_OK) {
        memcpy(&serial, view.tensors[0].data, sizeof(serial));
        serial = derived(serial, stage + 1);
        memcpy(data, &serial, sizeof(serial));
        status = builder_seal(&builder, next, &error);
    }
    uint8_t to = (uint8_t)(stage + 1);
    if (status != STATUS_OK) {
        builder_abandon(&builder, next);
        slot_set_failure(slot, (uint8_t)stage, status, error.text);
        to = PLACE_ERROR;
    }
    return slot_push(region, ticket, (uint8_t)stage, to, owner, clock_now_ns());
}

enum ring_result
rig_stage(const struct region *region, uint32_t stage, uint16_t owner)
{
    struct shm_ticket ticket;
    enum ring_result result = slot_pop(region, (uint8_t)stage, owner, &ticket);
    return result == RING_OK ? rig_run(region, stage, owner, ticket) : result;
}

enum repair_verdict
rig_judge(void *context, struct shm_ticket ticket, uint8_t stage, struct error *error)
{
    (void)stage;
    struct rig_ledger *ledger = context;
    if (ticket.index >= RIG_SLOTS_MAX || ledger->generation[ticket.index] != ticket.generation)
        return REPAIR_CORRUPT;
    if (++ledger->attempts[ticket.index] < ATTEMPTS_MAX)
        return REPAIR_RUN_AGAIN;
    (void)error_set(error, STATUS_UNAVAILABLE, "worker died");
    return REPAIR_FAIL;
}

static const char *
blocks_conserved(const struct region *region)
{
    const struct region_layout *layout = &region->layout;
    char *seen = calloc(layout->block_count, 1);
    CHECK(seen != NULL);
    const char *wrong = NULL;
    uint32_t block;
    for (uint32_t n = 0; n < layout->block_count && wrong == NULL; n++) {
        if (arena_acquire(region, 0, 1, &block) != STATUS_OK)
            wrong = "a block is not to be had";
        else if (seen[block]++)
            wrong = "a block is to be had twice";
    }
    if (wrong == NULL && arena_acquire(region, 0, 1, &block) == STATUS_OK)
        wrong = "there are more blocks than there are";
    for (uint32_t i = 0; i < layout->block_count; i++)
        if (seen[i] && arena_release(region, 0, i, OWNER_COORDINATOR) != STATUS_OK)
            wrong = "a block is not to be given back";
    free(seen);
    return wrong;
}

const char *
rig_conserved(const struct region *region)
{
    struct shm_ticket tickets[RIG_SLOTS_MAX];
    char seen[RIG_SLOTS_MAX] = {0};
    if (slots_used(region) != 0)
        return "a slot is not free";
    if (arena_used(region, -1) != 0)
        return "a block is not free";
    const char *wrong = blocks_conserved(region);
    uint32_t count = 0;
    while (slot_acquire(region, OWNER_COORDINATOR, &tickets[count]) == RING_OK) {
        if (seen[tickets[count].index]++)
            return "a slot is to be had twice";
        if (++count == RIG_SLOTS_MAX)
            break;
    }
    if (count != region->slots.count)
        wrong = "a slot is not to be had";
    for (uint32_t i = 0; i < count; i++)
        if (slot_release(region, tickets[i], PLACE_FREE, OWNER_COORDINATOR) != STATUS_OK)
            wrong = "a slot is not to be given back";
    return wrong;
}
