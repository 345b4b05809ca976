/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_manage.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/mesh/mesh_answer.h"
#include "coordinator/mesh/mesh_request.h"
#include "ipc/counters.h"

struct mesh_manage {
    struct mesh_manage_options options;
    struct mesh_runner *runner;
};

/* One call, until it is answered. */
struct managed {
    struct pending_item item; /* first */
    struct mesh_manage *manage;
    struct runner_order order;
    struct mesh_request request;
    struct rpc_call *call;
    _Atomic bool ended;
};

/* ---- methods ---- */

/* KServe ModelMesh takes calls by these names, too: the former names of two methods of its service,
 * and all methods of the service's former name. */
#define OLD_SERVICE "com.ibm.watson.tas.proto.TasRuntime"
#define BOTH(name, kind)                                                                           \
    {"/" MESH_SERVICE "/" name, kind},                                                             \
    {                                                                                              \
        "/" OLD_SERVICE "/" name, kind                                                             \
    }

static const struct named {
    const char *path;
    enum mesh_order_kind kind;
} named[MESH_METHOD_COUNT] = {
    BOTH("registerModel", MESH_REGISTER),       BOTH("addModel", MESH_REGISTER),
    BOTH("unregisterModel", MESH_UNREGISTER),   BOTH("deleteModel", MESH_UNREGISTER),
    BOTH("getModelStatus", MESH_MODEL_STATUS),  BOTH("ensureLoaded", MESH_ENSURE_LOADED),
    BOTH("setVModel", MESH_SET_VMODEL),         BOTH("deleteVModel", MESH_DELETE_VMODEL),
    BOTH("getVModelStatus", MESH_VMODEL_STATUS)};

void
mesh_manage_methods(struct rpc_method methods[MESH_METHOD_COUNT],
                    void (*on_message)(void *context, struct rpc_call *call,
                                       const struct wire_message *message),
                    void (*on_cancel)(void *context, uint64_t tag))
{
    for (size_t i = 0; i < MESH_METHOD_COUNT; i++)
        methods[i] = (struct rpc_method){.path = named[i].path,
                                         .kind = RPC_UNARY,
                                         .on_message = on_message,
                                         .on_cancel = on_cancel};
}

bool
mesh_manage_is(const char *method)
{
    static const char *const services[] = {"/" MESH_SERVICE "/", "/" OLD_SERVICE "/"};
    for (size_t i = 0; i < ARRAY_COUNT(services); i++)
        if (strncmp(method, services[i], strlen(services[i])) == 0)
            return true;
    return false;
}

static enum mesh_order_kind
kind_of(const struct rpc_call *call)
{
    const struct named *one = named;
    while (strcmp(one->path, rpc_call_method(call)) != 0)
        one++;
    return one->kind;
}

/* ---- the end ---- */

static void
managed_destroy(struct pending_item *item)
{
    struct managed *managed = (struct managed *)(void *)item;
    mesh_request_fini(&managed->request);
    free(managed);
}

static void
managed_over(struct managed *managed)
{
    pending_remove(&managed->item);
    pending_unref(&managed->item);
}

static void
on_end(struct runner_order *order, const struct runner_reply *reply)
{
    struct managed *managed =
        (struct managed *)(void *)((char *)order - offsetof(struct managed, order));
    struct error error;
    void *message = NULL;
    size_t bytes = 0;
    error_clear(&error);
    atomic_store(&managed->ended, true);
    if (mesh_answer_order(&order->order, reply, &message, &bytes, &error) == STATUS_OK) {
        struct rpc_piece piece = {.data = message, .bytes = bytes};
        rpc_call_reply(managed->call, &piece, bytes > 0);
    } else {
        rpc_call_finish(managed->call, error.status, error.text[0] != '\0' ? error.text : NULL);
    }
    free(message);
    managed_over(managed);
}

static void
on_cancel(struct pending_item *item)
{
    struct managed *managed = (struct managed *)(void *)item;
    runner_order_cancelled(managed->manage->runner, &managed->order);
    if (atomic_exchange(&managed->ended, true))
        return;
    rpc_call_finish(managed->call, STATUS_CANCELLED, NULL);
    managed_over(managed);
}

/* ---- permissions ---- */

static bool
fits(const char *pattern, const char *id)
{
    size_t bytes = strlen(pattern);
    bool is_beginning = pattern[bytes - 1] == '*';
    return is_beginning ? strncmp(pattern, id, bytes - 1) == 0 : strcmp(pattern, id) == 0;
}

/* `id` NULL: the call names none. */
static bool
allows_id(const struct config_allow *allow, const char *id)
{
    bool allows = id == NULL || allow->model_count == 0;
    for (uint32_t i = 0; i < allow->model_count && !allows; i++)
        allows = fits(allow->models[i], id);
    return allows;
}

/* The words of the key `methods` are in the order of mesh_order_kind. */
static bool
allows(const struct config_allow *allow, const struct rpc_call *call,
       const struct mesh_order *order)
{
    bool method = allow->methods == 0 || (allow->methods & 1U << (unsigned)order->kind) != 0;
    return method && allows_id(allow, order->model) && allows_id(allow, order->vmodel) &&
           rpc_call_caller_has_name(call, allow->identity);
}

static enum status
judge(const struct managed *managed, struct error *error)
{
    const struct mesh_manage_options *options = &managed->manage->options;
    const struct mesh_order *order = &managed->request.order;
    char name[128];
    if (options->management->allow_count == 0)
        return STATUS_OK;
    for (uint32_t i = 0; i < options->management->allow_count; i++)
        if (allows(&options->management->allow[i], managed->call, order))
            return STATUS_OK;
    counter_add_shared(options->counters, NODE_MESH_MANAGEMENT_DENIED, 1);
    rpc_call_caller_name(managed->call, name, sizeof(name));
    const char *method = strrchr(rpc_call_method(managed->call), '/') + 1;
    bool both = order->vmodel != NULL && order->model != NULL;
    return error_set(error, STATUS_PERMISSION_DENIED,
                     "\"%s\" may not call %s for %s \"%.100s\"%s%.100s%s: no entry of `mesh: "
                     "management: allow` permits it",
                     name, method, order->vmodel != NULL ? "vmodel" : "model",
                     order->vmodel != NULL  ? order->vmodel
                     : order->model != NULL ? order->model
                                            : "",
                     both ? " and model \"" : "", both ? order->model : "", both ? "\"" : "");
}

bool
mesh_manage_allows_all(struct mesh_manage *manage, const struct rpc_call *call)
{
    const struct config_management *management = manage->options.management;
    for (uint32_t i = 0; i < management->allow_count; i++) {
        const struct config_allow *allow = &management->allow[i];
        if (allow->methods == 0 && allow->model_count == 0 &&
            rpc_call_caller_has_name(call, allow->identity))
            return true;
    }
    if (management->allow_count > 0)
        counter_add_shared(manage->options.counters, NODE_MESH_MANAGEMENT_DENIED, 1);
    return management->allow_count == 0;
}

/* ---- the beginning ---- */

static enum status
begin(struct managed *managed, enum mesh_manage_door door, const struct wire_message *message,
      struct error *error)
{
    struct mesh_manage *manage = managed->manage;
    enum status status = mesh_request_read(kind_of(managed->call), message,
                                           manage->options.vmodel_owner, &managed->request, error);
    if (status == STATUS_OK && door == MESH_MANAGE_GUARDED)
        status = judge(managed, error);
    if (status != STATUS_OK)
        return status;
    uint64_t tag = pending_add(manage->options.pending, &managed->item);
    if (tag == 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "too many calls of this node wait for the mesh");
    rpc_call_set_tag(managed->call, tag);
    managed->order = (struct runner_order){.order = managed->request.order,
                                           .deadline_ns = rpc_call_deadline_ns(managed->call),
                                           .on_end = on_end};
    runner_order(manage->runner, &managed->order); /* it may be over by then */
    return STATUS_OK;
}

void
mesh_manage_on_message(struct mesh_manage *manage, enum mesh_manage_door door,
                       struct rpc_call *call, const struct wire_message *message)
{
    struct managed *managed = calloc(1, sizeof(*managed));
    CHECK(managed != NULL);
    managed->item.on_cancel = on_cancel;
    managed->item.destroy = managed_destroy;
    managed->manage = manage;
    managed->call = call;
    struct error error;
    error_clear(&error);
    if (begin(managed, door, message, &error) == STATUS_OK)
        return;
    rpc_call_finish(call, error.status, error.text);
    managed_destroy(&managed->item);
}

/* ---- life ---- */

struct mesh_manage *
mesh_manage_create(const struct mesh_manage_options *options)
{
    struct mesh_manage *manage = calloc(1, sizeof(*manage));
    CHECK(manage != NULL);
    manage->options = *options;
    return manage;
}

void
mesh_manage_destroy(struct mesh_manage *manage)
{
    free(manage);
}

void
mesh_manage_bind(struct mesh_manage *manage, struct mesh_runner *runner)
{
    manage->runner = runner;
}
