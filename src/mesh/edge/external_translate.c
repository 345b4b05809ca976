/* SPDX-License-Identifier: Apache-2.0 */
/* Runtimes that do not implement mmesh.ModelRuntime: a translator stands between. */
#include <string.h>

#include "mesh/edge/external_state.h"

void
external_request(struct external *external, struct rpc_client *client,
                 const struct rpc_client_request *request)
{
    const struct external_translator *translator = &external->options.translator;
    if (external->translates)
        translator->start(translator->context, external, request);
    else
        rpc_client_start(client, request, NULL);
}

/* The status is asked for before the runtime is ready, everything else while it is: a request that
 * a lost connection has overtaken must not reach the next start of the server. */
void
external_send(struct external *external, const struct rpc_client_request *request)
{
    static const char text[] = "not connected to the server";
    pthread_mutex_lock(&external->lock);
    bool is_sent = external->candidate != NULL && !external->is_closing &&
                   (external->is_ready || external->is_polling);
    if (is_sent)
        rpc_client_start(external->candidate, request, NULL);
    pthread_mutex_unlock(&external->lock);
    if (is_sent)
        return;
    const struct rpc_client_end end = {.status = STATUS_UNAVAILABLE,
                                       .text = {text, sizeof(text) - 1}};
    request->events->on_end(request->context, &end);
}

const char *
external_name(const struct external *external, const char *id, char name[EXTERNAL_NAME_BYTES])
{
    const struct external_translator *translator = &external->options.translator;
    return external->translates ? translator->name(id, name) : id;
}
