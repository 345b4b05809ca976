/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_register.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/mesh/mesh_answer.h"

enum {
    SLOTS = 32,
    LOOK_MS = 5, /* for the runner's readiness */
    WAIT_FIRST_MS = 100,
    WAIT_MAX_MS = 10000,
    HOUR_MS = 3600000,
};

enum register_pass { PASS_REGISTER, PASS_LOAD, PASS_OVER };

enum slot_state {
    SLOT_FREE,
    SLOT_UNDER_WAY, /* with the runner, or its end is posted */
    SLOT_AGAIN,     /* waits for the timer */
};

/* Results of an order. */
enum ending { ENDING_DONE, ENDING_AGAIN, ENDING_REFUSED };

struct register_slot {
    struct mesh_register *reg;
    struct runner_order order;
    const struct mesh_listed_model *model;
    enum slot_state state;
    /* Written with the runner's lock when the order ends, read by the work posted then: */
    enum ending ending;
    struct error error;
};

struct mesh_register {
    struct mesh_register_options options;
    struct loop_timer *timer;
    struct register_slot slots[SLOTS];
    enum register_pass pass;
    uint32_t next;       /* of the list, in this pass */
    int64_t wait_ms;     /* before orders that ended AGAIN are retried */
    bool waits;          /* the timer is set for that */
    bool stopped;        /* or finished */
    int64_t began_ns;    /* 0: the runner was not ready yet */
    struct error waited; /* logged last */
};

/* ---- what an end means ---- */

static const char *
advice(enum mesh_outcome outcome)
{
    switch (outcome) {
    case MESH_OUTCOME_DIFFERS:
        return ": unregister that one, or list another modelId, or the registered values";
    case MESH_OUTCOME_OTHER_OWNER: return ": list another vModelId, or set `vmodel_owner`";
    default: return "";
    }
}

/* The text of the first failed copy; NULL: none has failed. */
static const char *
failure_of(const struct mesh_status *status)
{
    for (uint32_t i = 0; i < status->place_count; i++) {
        const struct mesh_place *place = &status->places[i];
        if (place->kind == MESH_PLACE_FAILED)
            return place->reason != NULL ? place->reason : "";
    }
    return NULL;
}

/* No node may load it, for its labels or for lack of room, which may pass. */
static enum ending
judge_load(const struct mesh_status *status, struct error *error)
{
    const char *failure = failure_of(status);
    if (status->state == MESH_MODEL_LOADED)
        return ENDING_DONE;
    if (status->state == MESH_MODEL_FAILED && failure != NULL) {
        error_set(error, STATUS_FAILED_PRECONDITION,
                  "it has `ensureLoaded`, and its load failed: %.300s", failure);
        return ENDING_REFUSED;
    }
    error_set(error, STATUS_UNAVAILABLE, "it has `ensureLoaded`, and is not loaded: %.300s",
              status->error != NULL ? status->error : "its load has ended");
    return ENDING_AGAIN;
}

static enum ending
judge(const struct mesh_order *order, const struct runner_reply *reply, struct error *error)
{
    bool loads = order->kind == MESH_ENSURE_LOADED;
    void *message = NULL;
    size_t bytes;
    if (reply->outcome == MESH_OUTCOME_OK)
        return loads ? judge_load(&reply->model, error) : ENDING_DONE;
    if (reply->outcome == MESH_OUTCOME_NO_MODEL && loads)
        return ENDING_DONE; /* somebody has unregistered it meanwhile */
    enum status status = mesh_answer_order(order, reply, &message, &bytes, error);
    free(message);
    if (status == STATUS_UNAVAILABLE || status == STATUS_DEADLINE_EXCEEDED ||
        reply->refusal != NULL) /* an unreadable record may be mended */
        return ENDING_AGAIN;
    struct error said = *error;
    error_set(error, status, "%s: %.300s%s", status_name(status), said.text,
              advice(reply->outcome));
    return ENDING_REFUSED;
}

/* ---- the end ---- */

static void
end(struct mesh_register *reg, const struct error *error)
{
    mesh_register_stop(reg);
    reg->options.on_end(reg->options.context, error);
}

static void
refuse(struct register_slot *slot)
{
    const struct mesh_listed *listed = slot->reg->options.listed;
    struct error error = slot->error;
    error_prefix(&error, "mesh: register: entry %u: \"%.100s\"%s%.100s%s",
                 (unsigned)(slot->model - listed->models) + 1, slot->model->model,
                 slot->model->vmodel != NULL ? " as \"" : "",
                 slot->model->vmodel != NULL ? slot->model->vmodel : "",
                 slot->model->vmodel != NULL ? "\"" : "");
    end(slot->reg, &error);
}

static void
log_result(const struct mesh_register *reg)
{
    const struct mesh_listed *listed = reg->options.listed;
    uint32_t vmodels = 0;
    uint32_t loaded = 0;
    for (uint32_t i = 0; i < listed->count; i++) {
        vmodels += listed->models[i].vmodel != NULL;
        loaded += listed->models[i].ensure_loaded;
    }
    log_info("mesh_registered entries=%u vmodels=%u loaded=%u ms=%lld", listed->count, vmodels,
             loaded, (long long)((clock_now_ns() - reg->began_ns) / NS_PER_MS));
}

/* ---- orders ---- */

static void step(struct mesh_register *reg);

static void
on_slot_ended(void *context)
{
    struct register_slot *slot = context;
    struct mesh_register *reg = slot->reg;
    if (reg->stopped)
        return;
    CHECK(slot->state == SLOT_UNDER_WAY);
    slot->state = slot->ending == ENDING_AGAIN ? SLOT_AGAIN : SLOT_FREE;
    if (slot->ending == ENDING_DONE)
        reg->wait_ms = WAIT_FIRST_MS;
    if (slot->ending == ENDING_REFUSED)
        refuse(slot);
    else
        step(reg);
}

/* Called under the runner's lock, on any thread. */
static void
on_order_end(struct runner_order *order, const struct runner_reply *reply)
{
    struct register_slot *slot =
        (struct register_slot *)(void *)((char *)order - offsetof(struct register_slot, order));
    slot->error = ERROR_NONE;
    slot->ending = judge(&order->order, reply, &slot->error);
    loop_post(slot->reg->options.loop, on_slot_ended, slot);
}

/* The registration began the load. This order waits for it, and counts as a use no later than that
 * one did. */
static struct mesh_order
order_load(const struct mesh_listed_model *model, int64_t now_ms)
{
    return (struct mesh_order){.kind = MESH_ENSURE_LOADED,
                               .model = model->model,
                               .used_ms = now_ms - HOUR_MS,
                               .sync = true};
}

static struct mesh_order
order_register(const struct mesh_listed_model *model, const char *owner)
{
    return (struct mesh_order){
        .kind = model->vmodel != NULL ? MESH_SET_VMODEL : MESH_REGISTER,
        .model = model->model,
        .type = model->type,
        .path = model->path,
        .key = model->key,
        .vmodel = model->vmodel,
        .owner = model->vmodel != NULL ? owner : NULL,
        .auto_delete = model->auto_delete,
        .load_now = model->ensure_loaded,
    };
}

static void
begin(struct register_slot *slot)
{
    struct mesh_register *reg = slot->reg;
    CHECK(slot->state != SLOT_UNDER_WAY);
    slot->state = SLOT_UNDER_WAY;
    slot->order = (struct runner_order){
        .order = reg->pass == PASS_LOAD
                     ? order_load(slot->model, runner_mesh_ms(reg->options.runner))
                     : order_register(slot->model, reg->options.vmodel_owner),
        .deadline_ns = TIME_NEVER_NS,
        .on_end = on_order_end,
    };
    runner_order(reg->options.runner, &slot->order);
}

/* ---- one after the other ---- */

/* NULL: this pass has no more. */
static const struct mesh_listed_model *
take_next(struct mesh_register *reg)
{
    const struct mesh_listed *listed = reg->options.listed;
    while (reg->next < listed->count) {
        const struct mesh_listed_model *model = &listed->models[reg->next++];
        if (reg->pass == PASS_REGISTER || model->ensure_loaded)
            return model;
    }
    return NULL;
}

/* Returns the number of unfinished ones. */
static uint32_t
fill_slots(struct mesh_register *reg)
{
    uint32_t busy = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct register_slot *slot = &reg->slots[i];
        if (slot->state == SLOT_FREE && (slot->model = take_next(reg)) != NULL)
            begin(slot);
        busy += slot->state != SLOT_FREE;
    }
    return busy;
}

/* Logs an error again only when it changes. */
static void
notify_wait(struct mesh_register *reg, const struct register_slot *slot)
{
    if (strcmp(reg->waited.text, slot->error.text) == 0)
        return;
    reg->waited = slot->error;
    log_warn("mesh_register_waits model=\"%.200s\" error=\"%s\" action=\"it is retried; the node "
             "is not ready before\"",
             slot->model->model, slot->error.text);
}

static void
wait_for_again(struct mesh_register *reg)
{
    for (uint32_t i = 0; i < SLOTS && !reg->waits; i++) {
        if (reg->slots[i].state != SLOT_AGAIN)
            continue;
        notify_wait(reg, &reg->slots[i]);
        reg->waits = true;
        loop_timer_set(reg->timer, reg->wait_ms * (int64_t)NS_PER_MS);
        reg->wait_ms = reg->wait_ms * 2 < WAIT_MAX_MS ? reg->wait_ms * 2 : WAIT_MAX_MS;
    }
}

static void
step(struct mesh_register *reg)
{
    while (fill_slots(reg) == 0) {
        reg->pass++;
        reg->next = 0;
        if (reg->pass == PASS_OVER) {
            log_result(reg);
            end(reg, &ERROR_NONE);
            return;
        }
    }
    wait_for_again(reg);
}

static void
on_time(void *context)
{
    struct mesh_register *reg = context;
    reg->waits = false;
    if (reg->began_ns == 0 && !runner_is_ready(reg->options.runner)) {
        loop_timer_set(reg->timer, LOOK_MS * (int64_t)NS_PER_MS);
        return;
    }
    if (reg->began_ns == 0)
        reg->began_ns = clock_now_ns();
    for (uint32_t i = 0; i < SLOTS; i++)
        if (reg->slots[i].state == SLOT_AGAIN)
            begin(&reg->slots[i]);
    step(reg);
}

/* ---- life ---- */

struct mesh_register *
mesh_register_start(const struct mesh_register_options *options)
{
    struct mesh_register *reg = calloc(1, sizeof(*reg));
    CHECK(reg != NULL);
    reg->options = *options;
    reg->wait_ms = WAIT_FIRST_MS;
    for (uint32_t i = 0; i < SLOTS; i++)
        reg->slots[i].reg = reg;
    reg->timer = loop_timer_create(loop_base(options->loop), on_time, reg);
    loop_timer_set(reg->timer, 0);
    return reg;
}

void
mesh_register_stop(struct mesh_register *reg)
{
    if (reg == NULL || reg->stopped)
        return;
    reg->stopped = true;
    loop_timer_clear(reg->timer);
    for (uint32_t i = 0; i < SLOTS; i++)
        runner_order_cancelled(reg->options.runner, &reg->slots[i].order);
}

void
mesh_register_destroy(struct mesh_register *reg)
{
    if (reg == NULL)
        return;
    loop_timer_destroy(reg->timer);
    free(reg);
}
