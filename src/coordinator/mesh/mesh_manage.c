/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_manage.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/mesh/mesh_answer.h"
#include "coordinator/mesh/mesh_request.h"

struct mesh_manage {
    struct pending *pending;
    const char *vmodel_owner;
    struct driver *driver;
};

/* One call, until it is answered. */
struct managed {
    struct pending_item item; /* first */
    struct mesh_manage *manage;
    struct driver_order order;
    struct mesh_request request;
    struct rpc_call *call;
    _Atomic bool ended;
};

/* ---- methods ---- */

/* KServe ModelMesh takes calls by these names, too: of its own service the former names of two
 * methods, and of the service that it once was all. */
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
                                       const struct rpc_message *message),
                    void (*on_cancel)(void *context, uint64_t tag))
{
    for (size_t i = 0; i < MESH_METHOD_COUNT; i++)
        methods[i] = (struct rpc_method){.path = named[i].path,
                                         .kind = RPC_UNARY,
                                         .on_message = on_message,
                                         .on_cancel = on_cancel};
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
on_end(struct driver_order *order, const struct driver_reply *reply)
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
    driver_order_cancelled(managed->manage->driver, &managed->order);
    if (atomic_exchange(&managed->ended, true))
        return;
    rpc_call_finish(managed->call, STATUS_CANCELLED, NULL);
    managed_over(managed);
}

/* ---- the beginning ---- */

static enum status
begin(struct managed *managed, const struct rpc_message *message, struct error *error)
{
    struct mesh_manage *manage = managed->manage;
    enum status status = mesh_request_read(kind_of(managed->call), message, manage->vmodel_owner,
                                           &managed->request, error);
    if (status != STATUS_OK)
        return status;
    uint64_t tag = pending_add(manage->pending, &managed->item);
    if (tag == 0)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "too many calls of this node wait for the mesh");
    rpc_call_set_tag(managed->call, tag);
    managed->order = (struct driver_order){.order = managed->request.order,
                                           .deadline_ns = rpc_call_deadline_ns(managed->call),
                                           .on_end = on_end};
    driver_order(manage->driver, &managed->order); /* it may be over by then */
    return STATUS_OK;
}

void
mesh_manage_on_message(struct mesh_manage *manage, struct rpc_call *call,
                       const struct rpc_message *message)
{
    struct managed *managed = calloc(1, sizeof(*managed));
    CHECK(managed != NULL);
    managed->item.on_cancel = on_cancel;
    managed->item.destroy = managed_destroy;
    managed->manage = manage;
    managed->call = call;
    struct error error;
    error_clear(&error);
    if (begin(managed, message, &error) == STATUS_OK)
        return;
    rpc_call_finish(call, error.status, error.text);
    managed_destroy(&managed->item);
}

/* ---- life ---- */

struct mesh_manage *
mesh_manage_create(struct pending *pending, const char *vmodel_owner)
{
    struct mesh_manage *manage = calloc(1, sizeof(*manage));
    CHECK(manage != NULL);
    manage->pending = pending;
    manage->vmodel_owner = vmodel_owner;
    return manage;
}

void
mesh_manage_destroy(struct mesh_manage *manage)
{
    free(manage);
}

void
mesh_manage_bind(struct mesh_manage *manage, struct driver *driver)
{
    manage->driver = driver;
}
