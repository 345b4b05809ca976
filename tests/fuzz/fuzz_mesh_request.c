/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a request of mmesh.ModelMesh, cut into spans of any length: an accepted request is
 * within its limits, and where protobuf-c reads the message, too, it has the same texts.
 *
 * The first bytes: which request, length of the spans.
 */
#include <string.h>

#include "base/check.h"
#include "coordinator/mesh/mesh_request.h"
#include "mmesh/model-mesh.pb-c.h"
#include "spans.h"

enum { HEAD_BYTES = 2, KINDS = MESH_VMODEL_STATUS + 1 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_same(const char *ours, const char *theirs)
{
    CHECK(strcmp(ours == NULL ? "" : ours, theirs) == 0);
}

static void
check_register(const struct mesh_order *order, const uint8_t *data, size_t size)
{
    Mmesh__RegisterModelRequest *theirs = mmesh__register_model_request__unpack(NULL, size, data);
    if (theirs == NULL)
        return;
    check_same(order->model, theirs->modelid);
    mmesh__register_model_request__free_unpacked(theirs, NULL);
}

static void
check_set(const struct mesh_order *order, const uint8_t *data, size_t size)
{
    Mmesh__SetVModelRequest *theirs = mmesh__set_vmodel_request__unpack(NULL, size, data);
    if (theirs == NULL)
        return;
    check_same(order->vmodel, theirs->vmodelid);
    check_same(order->model, theirs->targetmodelid);
    check_same(order->expected, theirs->expectedtargetmodelid);
    check_same(order->owner, theirs->owner);
    mmesh__set_vmodel_request__free_unpacked(theirs, NULL);
}

static void
check_limits(const struct mesh_order *order)
{
    const char *const ids[] = {order->model, order->vmodel, order->type, order->owner,
                               order->expected};
    for (size_t i = 0; i < ARRAY_COUNT(ids); i++)
        CHECK(ids[i] == NULL || (ids[i][0] != '\0' && strlen(ids[i]) <= MESH_ID_BYTES_MAX));
    CHECK(order->used_ms >= 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire_span spans[SPANS_MAX];
    struct mesh_request request;
    struct error error = ERROR_NONE;
    if (size < HEAD_BYTES)
        return 0;
    enum mesh_order_kind kind = (enum mesh_order_kind)(data[0] % KINDS);
    struct wire_message message = cut(data + HEAD_BYTES, size - HEAD_BYTES, data[1], spans);
    if (mesh_request_read(kind, &message, NULL, &request, &error) == STATUS_OK) {
        check_limits(&request.order);
        if (kind == MESH_REGISTER)
            check_register(&request.order, data + HEAD_BYTES, size - HEAD_BYTES);
        else if (kind == MESH_SET_VMODEL)
            check_set(&request.order, data + HEAD_BYTES, size - HEAD_BYTES);
    }
    mesh_request_fini(&request);
    return 0;
}
