/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/loop/drains.h"

bool
drains_take(struct drains *drains, const struct control_request *request, struct control_call *call,
            bool can_drain)
{
    struct error error = ERROR_NONE;
    bool waits = (request->flags & CONTROL_NO_WAIT) == 0;
    if (!can_drain)
        error_set(&error, STATUS_FAILED_PRECONDITION, "the node is stopping already");
    else if (waits && drains->count == DRAINS_MAX)
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

static void
tell(struct drains *drains, const struct error *error)
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
drains_tell(struct drains *drains, uint64_t in_flight, bool left_copies)
{
    struct error late = ERROR_NONE;
    if (in_flight == 0 && !left_copies) {
        tell(drains, NULL);
        return;
    }
    error_set(&late, STATUS_DEADLINE_EXCEEDED,
              "drain_timeout_ms was over: %llu requests were in flight%s",
              (unsigned long long)in_flight,
              left_copies ? ", models were still to move, or calls for them to be answered" : "");
    tell(drains, &late);
}

void
drains_stop(struct drains *drains)
{
    struct error stopped = ERROR_NONE;
    error_set(&stopped, STATUS_CANCELLED, "the node stops at once, it does not drain");
    tell(drains, &stopped);
}
