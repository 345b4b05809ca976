/* SPDX-License-Identifier: Apache-2.0 */
/* A runtime that comes, moves and goes while the node runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/edge/external_state.h"

static char *
copy(const char *text)
{
    char *made = text != NULL ? strdup(text) : NULL;
    CHECK(text == NULL || made != NULL);
    return made;
}

static void *
copy_bytes(const void *data, size_t bytes)
{
    if (data == NULL)
        return NULL;
    void *made = malloc(bytes);
    CHECK(made != NULL);
    return memcpy(made, data, bytes);
}

void
external_aim_free(struct external_aim *aim)
{
    free((void *)(uintptr_t)aim->target);
    free((void *)(uintptr_t)aim->serving);
    free((void *)(uintptr_t)aim->server);
    *aim = (struct external_aim){0};
}

void
external_aim(struct external *external, const struct external_aim *aim)
{
    pthread_mutex_lock(&external->lock);
    bool is_open = !external->is_closing;
    if (is_open) {
        external_aim_free(&external->aim);
        external->aim = *aim;
        external->aim.target = copy(aim->target);
        external->aim.serving = copy(aim->serving);
        external->aim.server = copy_bytes(aim->server, aim->server_bytes);
        external->is_aimed = true;
        external->is_known = false; /* nobody gets events of the former one any more */
    }
    pthread_mutex_unlock(&external->lock);
    if (is_open)
        external_wake(external);
}

void
external_notify(struct external *external, const char *why)
{
    const char *text = why != NULL ? why : "";
    pthread_mutex_lock(&external->lock);
    bool is_news = why == NULL || strncmp(external->why, text, sizeof(external->why) - 1) != 0;
    snprintf(external->why, sizeof(external->why), "%s", text);
    pthread_mutex_unlock(&external->lock);
    if (is_news && external->options.on_change != NULL)
        external->options.on_change(external->options.on_change_context);
}

/* Locked. Loads and the poll at the former runtime end soon, its calls when it has answered. */
static void
leave(struct external *external)
{
    rpc_client_destroy(external->candidate);
    rpc_client_destroy(external->prober);
    external->candidate = external->management = external->prober = NULL;
    external_serving_leave(external);
    external->is_ready = external->is_known = external->is_cut = external->is_suspect = false;
    external_circuit_reset(&external->circuit);
    external->away[0] = external->why[0] = '\0';
}

/* Locked. The aim's texts become the targets. Returns its server, to be freed. */
static void *
take_aim(struct external *external)
{
    void *server = (void *)(uintptr_t)external->aim.server;
    for (uint32_t i = 0; i < external->options.target_count; i++)
        free(external->targets[i]);
    free(external->serving_target);
    external->targets[0] = (char *)(uintptr_t)external->aim.target;
    external->serving_target = (char *)(uintptr_t)external->aim.serving;
    external->options.target_count = external->aim.target != NULL ? 1 : 0;
    external->fetches = external->aim.fetches;
    external->model_calls_max = external->aim.model_calls_max;
    external->translates = server != NULL;
    external->is_run = true;
    external->target = 0;
    external->aim = (struct external_aim){0};
    external->is_aimed = false;
    return server;
}

/* The runner comes first, as in external_cut_off. */
void
external_turn(struct external *external)
{
    const struct external_translator *translator = &external->options.translator;
    void *server = NULL;
    pthread_mutex_lock(&external->lock);
    bool is_due = external->is_aimed && !external->is_closing;
    pthread_mutex_unlock(&external->lock);
    if (!is_due)
        return;
    runner_runtime_lost(external->runner, external->options.pool);
    if (external->options.files.fetch != NULL)
        external->options.files.release(external->options.files.context, NULL);
    pthread_mutex_lock(&external->lock);
    bool is_open = !external->is_closing;
    if (is_open) {
        leave(external);
        server = take_aim(external);
    }
    pthread_mutex_unlock(&external->lock);
    external_loads_refuse(external);
    if (is_open && translator->start != NULL)
        translator->turn(translator->context, server);
    free(server);
    external->is_stale = external->is_polling;
    external->has_failed = external->was_reported = external->was_ready = external->was_seen =
        false;
    external->is_proven = external->is_asking = false;
    external->poll_at_ns = clock_now_ns();
}
