/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mmesh/model-mesh.pb-c.h"

/* ---- messages ---- */

/* protobuf-c's structures have non-const pointers to data that is only read. */
static char *
loose(const char *text)
{
    return text != NULL ? (char *)(uintptr_t)text : (char *)(uintptr_t) "";
}

/* A status for protobuf-c, with the memory of its lists. */
struct answer_status {
    Mmesh__ModelStatusInfo info;
    Mmesh__ModelStatusInfo__ModelCopyInfo *copies;
    Mmesh__ModelStatusInfo__ModelCopyInfo **copy_list;
    char **errors;
};

static Mmesh__ModelStatusInfo__ModelStatus
copy_status(enum mesh_place_kind kind)
{
    static const Mmesh__ModelStatusInfo__ModelStatus statuses[] = {
        [MESH_PLACE_LOADING] = MMESH__MODEL_STATUS_INFO__MODEL_STATUS__LOADING,
        [MESH_PLACE_LOADED] = MMESH__MODEL_STATUS_INFO__MODEL_STATUS__LOADED,
        [MESH_PLACE_FAILED] = MMESH__MODEL_STATUS_INFO__MODEL_STATUS__LOADING_FAILED,
    };
    return statuses[kind];
}

static Mmesh__ModelStatusInfo__ModelStatus
model_status(enum mesh_model_state state)
{
    static const Mmesh__ModelStatusInfo__ModelStatus statuses[] = {
        [MESH_MODEL_NOT_FOUND] = MMESH__MODEL_STATUS_INFO__MODEL_STATUS__NOT_FOUND,
        [MESH_MODEL_NOT_LOADED] = MMESH__MODEL_STATUS_INFO__MODEL_STATUS__NOT_LOADED,
        [MESH_MODEL_LOADING] = MMESH__MODEL_STATUS_INFO__MODEL_STATUS__LOADING,
        [MESH_MODEL_LOADED] = MMESH__MODEL_STATUS_INFO__MODEL_STATUS__LOADED,
        [MESH_MODEL_FAILED] = MMESH__MODEL_STATUS_INFO__MODEL_STATUS__LOADING_FAILED,
    };
    return statuses[state];
}

static void
add_error(struct answer_status *reported, const char *text)
{
    if (text != NULL && text[0] != '\0')
        reported->errors[reported->info.n_errors++] = loose(text);
}

static void
fill_status(const struct mesh_status *status, struct answer_status *reported)
{
    size_t count = status->place_count;
    mmesh__model_status_info__init(&reported->info);
    reported->copies = calloc(count + 1, sizeof(*reported->copies));
    reported->copy_list = calloc(count + 1, sizeof(Mmesh__ModelStatusInfo__ModelCopyInfo *));
    reported->errors = calloc(count + 1, sizeof(*reported->errors));
    CHECK(reported->copies != NULL && reported->copy_list != NULL && reported->errors != NULL);
    for (size_t i = 0; i < count; i++) {
        const struct mesh_place *place = &status->places[i];
        mmesh__model_status_info__model_copy_info__init(&reported->copies[i]);
        reported->copies[i].location = loose(place->instance);
        reported->copies[i].copystatus = copy_status(place->kind);
        reported->copies[i].time = place->since_ms > 0 ? (uint64_t)place->since_ms : 0;
        reported->copy_list[i] = &reported->copies[i];
        if (place->kind == MESH_PLACE_FAILED)
            add_error(reported, place->reason);
    }
    if (reported->info.n_errors == 0) /* the error of no copy: no other node can load it, either */
        add_error(reported, status->error);
    reported->info.status = model_status(status->state);
    reported->info.modelcopyinfos = reported->copy_list;
    reported->info.n_modelcopyinfos = count;
    reported->info.errors = reported->errors;
}

static void
status_fini(struct answer_status *reported)
{
    free(reported->copies);
    free(reported->copy_list);
    free(reported->errors);
}

static void
pack(const ProtobufCMessage *message, void **packed, size_t *bytes)
{
    *bytes = protobuf_c_message_get_packed_size(message);
    *packed = malloc(*bytes + 1); /* it may be none */
    CHECK(*packed != NULL);
    protobuf_c_message_pack(message, *packed);
}

static void
pack_model(const struct mesh_status *status, void **message, size_t *bytes)
{
    struct answer_status reported;
    fill_status(status, &reported);
    pack(&reported.info.base, message, bytes);
    status_fini(&reported);
}

static void
pack_vmodel(const struct mesh_vmodel_status *status, void **message, size_t *bytes)
{
    static const Mmesh__VModelStatusInfo__VModelStatus statuses[] = {
        [MESH_VMODEL_NOT_FOUND] = MMESH__VMODEL_STATUS_INFO__VMODEL_STATUS__NOT_FOUND,
        [MESH_VMODEL_DEFINED] = MMESH__VMODEL_STATUS_INFO__VMODEL_STATUS__DEFINED,
        [MESH_VMODEL_TRANSITIONING] = MMESH__VMODEL_STATUS_INFO__VMODEL_STATUS__TRANSITIONING,
        [MESH_VMODEL_FAILED] = MMESH__VMODEL_STATUS_INFO__VMODEL_STATUS__TRANSITION_FAILED,
    };
    Mmesh__VModelStatusInfo info = MMESH__VMODEL_STATUS_INFO__INIT;
    struct answer_status active = {0};
    struct answer_status target = {0};
    if (status->state != MESH_VMODEL_NOT_FOUND) {
        bool moves = status->state != MESH_VMODEL_DEFINED;
        info.status = statuses[status->state];
        info.owner = loose(status->owner);
        info.activemodelid = loose(status->active);
        info.targetmodelid = loose(status->target);
        fill_status(&status->active_status, &active);
        info.activemodelstatus = &active.info;
        if (moves)
            fill_status(&status->target_status, &target);
        info.targetmodelstatus = moves ? &target.info : NULL;
    }
    pack(&info.base, message, bytes);
    status_fini(&active);
    status_fini(&target);
}

static void
pack_reply(const struct mesh_order *order, const struct runner_reply *reply, void **message,
           size_t *bytes)
{
    switch (order->kind) {
    case MESH_REGISTER:
    case MESH_MODEL_STATUS:
    case MESH_ENSURE_LOADED: pack_model(&reply->model, message, bytes); return;
    case MESH_SET_VMODEL:
    case MESH_VMODEL_STATUS: pack_vmodel(&reply->vmodel, message, bytes); return;
    case MESH_UNREGISTER:
    case MESH_DELETE_VMODEL:
        *message = NULL;
        *bytes = 0;
        return;
    }
    UNREACHABLE();
}

/* ---- refusals ---- */

/* ModelMesh checks this before it checks whether the vmodel must exist. */
static bool
expects_another(const struct mesh_order *order)
{
    return order->expected != NULL && strcmp(order->expected, loose(order->model)) != 0;
}

static enum status
refuse_vmodel(const struct mesh_order *order, const struct runner_reply *reply, struct error *error)
{
    const char *vmodel = loose(order->vmodel);
    const struct mesh_vmodel_status *there = &reply->vmodel;
    switch (reply->outcome) {
    case MESH_OUTCOME_NO_VMODEL:
        if (!expects_another(order))
            return error_set(error, STATUS_NOT_FOUND, "vmodel %.200s not found", vmodel);
        return error_set(error, STATUS_FAILED_PRECONDITION, "vmodel %.200s not found", vmodel);
    case MESH_OUTCOME_OTHER_OWNER:
        return error_set(error, STATUS_ALREADY_EXISTS,
                         "vmodel %.200s already exists with different owner \"%.200s\"", vmodel,
                         loose(there->owner));
    case MESH_OUTCOME_UNEXPECTED:
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "Existing target model %.200s does not match expected %.200s",
                         loose(there->target), loose(order->expected));
    case MESH_OUTCOME_OK:
    case MESH_OUTCOME_INVALID:
    case MESH_OUTCOME_NO_MODEL:
    case MESH_OUTCOME_DIFFERS:
    case MESH_OUTCOME_REFERENCED:
    case MESH_OUTCOME_FULL:
    case MESH_OUTCOME_UNAVAILABLE:
    case MESH_OUTCOME_DEADLINE: break;
    }
    UNREACHABLE();
}

/* A caller that asks for its own vmodel learns nothing about another owner's. */
static bool
is_anothers(const struct mesh_order *order, const struct runner_reply *reply)
{
    return order->kind == MESH_VMODEL_STATUS && order->owner != NULL &&
           reply->vmodel.state != MESH_VMODEL_NOT_FOUND &&
           strcmp(order->owner, loose(reply->vmodel.owner)) != 0;
}

enum status
mesh_answer_order(const struct mesh_order *order, const struct runner_reply *reply, void **message,
                  size_t *bytes, struct error *error)
{
    static const struct runner_reply nothing = {.vmodel = {.state = MESH_VMODEL_NOT_FOUND}};
    if (reply->refusal != NULL)
        return error_set(error, reply->refusal->status, "%s", reply->refusal->text);
    switch (reply->outcome) {
    case MESH_OUTCOME_OK:
        pack_reply(order, is_anothers(order, reply) ? &nothing : reply, message, bytes);
        return STATUS_OK;
    case MESH_OUTCOME_INVALID:
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "must provide ids and a type of 1 to %d bytes", MESH_ID_BYTES_MAX);
    case MESH_OUTCOME_NO_MODEL:
        if (order->kind == MESH_SET_VMODEL)
            return error_set(error, STATUS_NOT_FOUND, "Target model %.200s not found",
                             loose(order->model));
        return error_set(error, STATUS_NOT_FOUND, "model not found");
    case MESH_OUTCOME_DIFFERS:
        if (order->kind == MESH_SET_VMODEL)
            return error_set(error, STATUS_ALREADY_EXISTS,
                             "Target model %.200s already exists with different attribute values",
                             loose(order->model));
        return error_set(error, STATUS_ALREADY_EXISTS,
                         "Model already exists with different attribute values");
    case MESH_OUTCOME_REFERENCED:
        return error_set(error, STATUS_FAILED_PRECONDITION, "Model %.400s has referents",
                         loose(order->model));
    case MESH_OUTCOME_NO_VMODEL:
    case MESH_OUTCOME_OTHER_OWNER:
    case MESH_OUTCOME_UNEXPECTED: return refuse_vmodel(order, reply, error);
    case MESH_OUTCOME_FULL:
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "this node knows as many models, or vmodels, as it can");
    case MESH_OUTCOME_UNAVAILABLE:
        return error_set(error, STATUS_UNAVAILABLE,
                         "this node cannot read or write the registry now: try again");
    case MESH_OUTCOME_DEADLINE: return error_set(error, STATUS_DEADLINE_EXCEEDED, "%s", "");
    }
    UNREACHABLE();
}

/* A load that took too long, at any node: the registry has only its text, which begins with this.
 */
static enum status
load_status(const char *text)
{
    static const char late[] = "DEADLINE_EXCEEDED: ";
    return strncmp(text, late, sizeof(late) - 1) == 0 ? STATUS_DEADLINE_EXCEEDED : STATUS_INTERNAL;
}

enum status
mesh_answer_call(enum runner_name name, const struct runner_answer *answer, struct error *error)
{
    const char *text = loose(answer->text);
    switch (answer->end) {
    case MESH_END_NOT_FOUND:
        return error_set(error, STATUS_NOT_FOUND,
                         name == RUNNER_NAME_VMODEL ? "vmodel not found" : "model not found");
    case MESH_END_OVERLOADED:
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "Model queue overload%s%s",
                         text[0] != '\0' ? ": " : "", text);
    case MESH_END_UNAVAILABLE:
        return error_set(error, STATUS_UNAVAILABLE, "%s",
                         text[0] != '\0' ? text : "this node cannot take calls for models now");
    case MESH_END_DEADLINE: return error_set(error, STATUS_DEADLINE_EXCEEDED, "%s", text);
    case MESH_END_FULL:
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "%s: it waited for room until now",
                         text);
    case MESH_END_LOAD_FAILED:
        return error_set(error, load_status(text), "%s",
                         text[0] != '\0' ? text : "the model failed to load");
    case MESH_END_OK: /* for calls with this end, answer is not called */
    case MESH_END_NOT_HERE:
    case MESH_END_REFUSED:
    case MESH_END_UNREACHABLE:
    case MESH_END_FAILED:
        return error_set(error, STATUS_INTERNAL, "%s",
                         text[0] != '\0' ? text : "Nowhere available to load");
    }
    UNREACHABLE();
}
