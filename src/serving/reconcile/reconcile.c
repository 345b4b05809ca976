/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/reconcile/reconcile.h"

#include <stddef.h>
#include <string.h>

/* ---- words of ModelMesh Serving ---- */

#define UP_TO_DATE "UpToDate"
#define IN_PROGRESS "InProgress"
#define BLOCKED "BlockedByFailedLoad"
#define INVALID "InvalidSpec"

#define PENDING "Pending"
#define STANDBY "Standby"
#define LOADING "Loading"
#define LOADED "Loaded"
#define FAILED "FailedToLoad"

#define UNHEALTHY "RuntimeUnhealthy"

static const char *
refusal(enum serving_form form, enum serving_support support, const char **message)
{
    switch (support) {
    case SERVING_RUNTIME_UNKNOWN:
        *message = "Specified runtime name not recognized";
        return "RuntimeNotRecognized";
    case SERVING_RUNTIME_DISABLED:
        *message = "Specified runtime is disabled, or not for several models";
        return "RuntimeDisabled";
    case SERVING_NO_RUNTIME:
    case SERVING_SUPPORTED:
    case SERVING_WAITS: break;
    }
    *message = form == SERVING_PREDICTOR
                   ? "No ServingRuntime supports specified model type"
                   : "No ServingRuntime supports specified model type and/or protocol";
    return "NoSupportingRuntime";
}

/* ---- the state of a model ---- */

struct model_words {
    const char *state;
    const char *reason; /* NULL: no failure */
    const char *message;
};

static struct model_words
notify(const struct serving_model *model)
{
    static const char *const states[] = {
        [SERVING_NOT_FOUND] = PENDING, [SERVING_NOT_LOADED] = STANDBY, [SERVING_LOADING] = LOADING,
        [SERVING_LOADED] = LOADED,     [SERVING_LOAD_FAILED] = FAILED,
    };
    struct model_words reported = {.state = states[model->load]};
    if (model->load != SERVING_LOAD_FAILED)
        return reported;
    reported.reason = "ModelLoadFailed";
    reported.message = model->error != NULL ? model->error : "";
    return reported;
}

static void
count_copies(struct serving_status *status, const struct serving_model *model)
{
    status->copies += model->copies;
    status->failed_copies += model->failed_copies;
}

/* S1, S2 */
static void
look(const struct serving_observed *observed, struct serving_status *status)
{
    static const char *const transitions[] = {
        [SERVING_ABSENT] = UP_TO_DATE,
        [SERVING_DEFINED] = UP_TO_DATE,
        [SERVING_MOVING] = IN_PROGRESS,
        [SERVING_MOVE_FAILED] = BLOCKED,
    };
    bool moves = strcmp(observed->active, observed->target) != 0;
    const struct serving_model *last = moves ? &observed->target_model : &observed->active_model;
    struct model_words active = notify(&observed->active_model);
    struct model_words target = moves ? notify(&observed->target_model) : active;
    *status = (struct serving_status){
        .transition = transitions[observed->vmodel],
        .active = active.state,
        .target = moves ? target.state : "",
        .reason = target.reason,
        .message = target.message,
        .model = observed->target,
        .location = last->location,
        .failed_ms = last->failed_ms,
    };
    count_copies(status, &observed->active_model);
    if (moves)
        count_copies(status, &observed->target_model);
    status->available = observed->vmodel != SERVING_ABSENT && strcmp(active.state, FAILED) != 0 &&
                        strcmp(active.state, PENDING) != 0;
}

/* S4: no node may load it yet. */
static void
wait_for_runtime(const struct serving_observed *observed, struct serving_status *status)
{
    bool moves = status->target[0] != '\0';
    const struct serving_model *last = moves ? &observed->target_model : &observed->active_model;
    if (last->load == SERVING_LOADED)
        return;
    status->reason = UNHEALTHY;
    status->message = "Waiting for supporting runtime Pod to become available";
    status->location = NULL;
    status->failed_ms = 0;
    if (moves) {
        status->transition = IN_PROGRESS;
        status->target = LOADING;
    } else {
        status->active = LOADING;
        status->available = false;
    }
}

/* S3: what serves goes on, and the failure is reported. */
static void
refuse(struct serving_status *status, const char *reason, const char *message, const char *model)
{
    bool serves = status->available;
    status->transition = serves ? BLOCKED : UP_TO_DATE;
    status->active = serves ? status->active : FAILED;
    status->target = serves ? FAILED : "";
    status->reason = reason;
    status->message = message;
    status->model = model;
    status->location = NULL;
    status->failed_ms = 0;
}

/* A model without a record cannot have any. */
static bool
has_bounds(const struct serving_observed *observed, const struct serving_bounds *wanted)
{
    bool moves = strcmp(observed->active, observed->target) != 0;
    const struct serving_model *last = moves ? &observed->target_model : &observed->active_model;
    const struct serving_bounds *bounds = &last->bounds;
    return last->load == SERVING_NOT_FOUND ||
           (bounds->copies_min == wanted->copies_min && bounds->copies_max == wanted->copies_max &&
            bounds->size_mib == wanted->size_mib);
}

/* ---- rules ---- */

enum serving_act
serving_reconcile(const struct serving_wanted *wanted, enum serving_support support,
                  const struct serving_observed *observed, struct serving_status *status)
{
    bool exists = observed->vmodel != SERVING_ABSENT;
    bool ours = exists && strcmp(observed->owner, wanted->owner) == 0;
    const char *message = NULL;
    look(observed, status);
    if (wanted->deleted) /* R1 */
        return ours ? SERVING_DELETE : wanted->aged ? SERVING_FORGET : SERVING_HIDE;
    if (exists && !ours) { /* R2 */
        status->available = false;
        refuse(status, "InvalidPredictorSpec",
               "Predictor already exists with the same name from a different source",
               wanted->model);
        status->transition = INVALID;
        return SERVING_KEEP;
    }
    bool reached = exists && strcmp(observed->target, wanted->model) == 0;
    if (support > SERVING_WAITS && !(reached && status->available)) { /* R3 */
        const char *reason = refusal(wanted->form, support, &message);
        refuse(status, reason, message, wanted->model);
        return SERVING_KEEP;
    }
    if (!reached && wanted->refusal != NULL) { /* R6 */
        refuse(status, "InvalidPredictorSpec", wanted->refusal, wanted->model);
        return SERVING_SET;
    }
    if (!reached) { /* R4 */
        status->transition = exists ? IN_PROGRESS : status->transition;
        status->reason = status->message = NULL;
        return SERVING_SET;
    }
    if (support == SERVING_WAITS)
        wait_for_runtime(observed, status);
    if (!has_bounds(observed, &wanted->bounds)) /* R7 */
        return SERVING_SET;
    if (support == SERVING_WAITS)
        return SERVING_KEEP;
    bool idle = strcmp(status->active, STANDBY) == 0 && status->target[0] == '\0';
    return wanted->waited && idle ? SERVING_SET : SERVING_KEEP; /* R5 */
}

bool
serving_is_steady(const struct serving_status *status)
{
    bool waits = status->reason != NULL && strcmp(status->reason, UNHEALTHY) == 0;
    return !waits && strcmp(status->transition, IN_PROGRESS) != 0 &&
           strcmp(status->active, LOADING) != 0 && strcmp(status->active, PENDING) != 0;
}
