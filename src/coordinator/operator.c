/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/operator.h"

#include "coordinator/mesh/mesh_node.h"
#include "coordinator/models/model_orders.h"
#include "coordinator/reload.h"

bool
operator_only_looks(const struct control_request *request)
{
    return request->verb >= CONTROL_MODEL_LIST;
}

enum status
operator_list(const struct operator_scope *scope, const struct control_request *request,
              struct bytes *list, struct error *error)
{
    if (request->verb != CONTROL_MODEL_LIST)
        return mesh_node_report(scope->mesh, request, list, error);
    model_orders_list(scope->model_orders, request, list);
    return STATUS_OK;
}

static void
answer_list(const struct operator_scope *scope, const struct control_request *request,
            struct control_call *call)
{
    struct bytes list = {0};
    struct error error = ERROR_NONE;
    if (operator_list(scope, request, &list, &error) == STATUS_OK)
        control_answer_list(call, &list);
    else
        control_answer(call, &error, NULL);
    bytes_fini(&list);
}

/* Returns whether it is an order for models, which a mesh refuses. */
static bool
is_of_mesh(const struct operator_scope *scope, const struct control_request *request)
{
    return scope->mesh != NULL && request->verb != CONTROL_RELOAD;
}

static void
refuse_model_order(struct control_call *call)
{
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_FAILED_PRECONDITION,
              "the node is one of a mesh, which says what is loaded: register the model "
              "with " MESH_SERVICE);
    control_answer(call, &error, NULL);
}

void
operator_take(const struct operator_scope *scope, const struct control_request *request,
              struct control_call *call)
{
    if (operator_only_looks(request)) {
        answer_list(scope, request, call);
    } else if (is_of_mesh(scope, request)) {
        refuse_model_order(call);
    } else if (request->verb == CONTROL_RELOAD) {
        if (request->pipeline[0] == '\0') /* all, as SIGHUP does */
            mesh_node_reload(scope->mesh);
        reload_asked(scope->reloads, request->pipeline, call);
    } else if (request->verb == CONTROL_MODEL_ROLLBACK) {
        model_orders_roll_back(scope->directories, request, call);
    } else {
        model_orders_take(scope->model_orders, request, call);
    }
}

void
operator_refuse(const struct operator_scope *scope, const struct control_request *request,
                const char *doing, struct control_call *call)
{
    struct error error = ERROR_NONE;
    if (is_of_mesh(scope, request)) {
        refuse_model_order(call);
        return;
    }
    error_set(&error, STATUS_FAILED_PRECONDITION, "the node is %s: nothing is %s", doing,
              request->verb == CONTROL_RELOAD ? "reloaded" : "loaded or unloaded");
    control_answer(call, &error, NULL);
}
