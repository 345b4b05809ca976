/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/loop/drains.h"

#include "base/check.h"

bool
drains_take(struct drains *drains, const struct control_request *request, struct control_call *call)
{
    struct error error = ERROR_NONE;
    bool waits = !request->no_wait;
    if (waits && drains->count == DRAINS_MAX)
        error_set(&error, STATUS_RESOURCE_EXHAUSTED, "%d wait for this node's drain already",
                  DRAINS_MAX);
    if (error.status != STATUS_OK)
        control_answer(call, &error, NULL);
    else if (waits)
        drains->calls[drains->count++] = call;
    else
        control_answer(call, NULL, "the node drains");
    return error.status == STATUS_OK;
}

void
drains_add(struct drains *drains, struct control_call *call)
{
    CHECK(drains->count < DRAINS_MAX);
    drains->calls[drains->count++] = call;
}

void
drains_refuse(struct control_call *call)
{
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_FAILED_PRECONDITION, "the node is stopping already");
    control_answer(call, &error, NULL);
}

static void
notify(struct drains *drains, const struct error *error)
{
    while (drains->count > 0) {
        struct control_call *call = drains->calls[--drains->count];
        if (error != NULL)
            control_answer(call, error, NULL);
        else
            control_answer_keep(call, "drained");
    }
}

void
drains_notify(struct drains *drains, const struct drain_rest *rest)
{
    struct error late = ERROR_NONE;
    if (rest->in_flight == 0 && !rest->copies) {
        notify(drains, NULL);
        return;
    }
    error_set(&late, STATUS_DEADLINE_EXCEEDED,
              "drain_timeout_ms was over: %llu requests were in flight%s",
              (unsigned long long)rest->in_flight,
              rest->copies ? ", models were still to move, or calls for them to be answered" : "");
    notify(drains, &late);
}

void
drains_stop(struct drains *drains)
{
    struct error stopped = ERROR_NONE;
    error_set(&stopped, STATUS_CANCELLED, "the node stops at once, it does not drain");
    notify(drains, &stopped);
}
