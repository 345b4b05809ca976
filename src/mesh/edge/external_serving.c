/* SPDX-License-Identifier: Apache-2.0 */
/* The clients for models' calls. Those of a former runtime stay until its last call has ended. */
#include <stdlib.h>

#include "base/check.h"
#include "mesh/edge/external_state.h"

enum status
external_serving_create(struct external *external, struct error *error)
{
    const struct external_options *options = &external->options;
    const char *target =
        external->serving_target == NULL ? external_target(external) : external->serving_target;
    enum status status = STATUS_OK;
    if (external->serving != NULL)
        return STATUS_OK;
    struct external_serving *serving =
        calloc(1, sizeof(*serving) + options->queue_count * sizeof(struct rpc_client *));
    CHECK(serving != NULL);
    external->serving = serving;
    for (uint32_t i = 0; i < options->queue_count && status == STATUS_OK; i++) {
        struct rpc_client_options made =
            external_client_options(external, options->queues[i], target);
        status = rpc_client_create(&made, &serving->clients[i], error);
    }
    return status;
}

/* Ends its calls. */
static void
drop_clients(const struct external *external, struct external_serving *serving)
{
    for (uint32_t i = 0; i < external->options.queue_count; i++) {
        rpc_client_destroy(serving->clients[i]);
        serving->clients[i] = NULL;
    }
}

void
external_serving_leave(struct external *external)
{
    struct external_serving *serving = external->serving;
    external->serving = NULL;
    if (serving != NULL && serving->calls > 0) {
        serving->is_former = true;
        serving->next = external->former;
        external->former = serving;
    } else if (serving != NULL) {
        drop_clients(external, serving);
        free(serving);
    }
}

bool
external_serving_ended(struct external *external, struct external_serving *serving)
{
    CHECK(serving->calls > 0);
    if (--serving->calls > 0 || !serving->is_former)
        return false;
    struct external_serving **at = &external->former;
    while (*at != serving)
        at = &(*at)->next;
    *at = serving->next;
    drop_clients(external, serving);
    free(serving);
    return external->former == NULL;
}

void
external_serving_close(struct external *external)
{
    if (external->serving != NULL)
        drop_clients(external, external->serving);
    for (struct external_serving *one = external->former; one != NULL; one = one->next)
        drop_clients(external, one);
}
