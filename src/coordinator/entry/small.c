/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/entry/small.h"

#include <string.h>

#include "coordinator/entry/inbound.h"

bool
small_is_of_model(const char *method, enum oip_method *which)
{
    bool is_ready = strcmp(method, INBOUND_OIP "ModelReady") == 0;
    *which = is_ready ? OIP_MODEL_READY : OIP_MODEL_METADATA;
    return is_ready || strcmp(method, INBOUND_OIP "ModelMetadata") == 0;
}

struct asking {
    const struct small_ask *ask;
    struct target_description reported; /* of the called model, until the answer is packed */
};

static bool
node_is_ready(void *context)
{
    const struct asking *asking = context;
    return asking->ask->node_is_ready;
}

static enum status
describe(void *context, const struct oip_named *named, struct oip_model_info *info, bool *ready,
         struct error *error)
{
    struct asking *asking = context;
    const struct small_ask *ask = asking->ask;
    const struct oip_named meant = {ask->id != NULL ? ask->id : named->name, named->version};
    enum status status = target_describe(ask->scope, &meant, info, ready, &asking->reported, error);
    return status == STATUS_OK || !ask->was_here
               ? status
               : error_set(error, STATUS_UNAVAILABLE, "the model has just been unloaded");
}

enum status
small_answer(enum oip_method method, const struct small_ask *ask,
             const struct wire_message *message, void **response, size_t *response_bytes,
             struct error *error)
{
    struct asking asking = {.ask = ask};
    struct oip_node node = {ask->server_name, node_is_ready, describe, &asking};
    enum status status = oip_answer(method, &node, message, response, response_bytes, error);
    target_forget(&asking.reported);
    return status;
}
