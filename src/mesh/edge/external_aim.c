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

void
external_aim_free(struct external_aim *aim)
{
    free((void *)(uintptr_t)aim->target);
    free((void *)(uintptr_t)aim->serving);
    *aim = (struct external_aim){0};
}

void
external_aim(struct external *external, const struct external_aim *aim)
{
    pthread_mutex_lock(&external->lock);
    bool is_open = !external->is_closing;
    if (is_open) {
        external_aim_free(&external->aim);
        external->aim = (struct external_aim){copy(aim->target), copy(aim->serving), aim->fetches};
        external->is_aimed = true;
        external->is_known = false; /* nobody is told of the former one any more */
    }
    pthread_mutex_unlock(&external->lock);
    if (is_open)
        external_wake(external);
}

void
external_tell(struct external *external, const char *why)
{
    const char *text = why != NULL ? why : "";
    pthread_mutex_lock(&external->lock);
    bool is_news = why == NULL || strncmp(external->why, text, sizeof(external->why) - 1) != 0;
    snprintf(external->why, sizeof(external->why), "%s", text);
    pthread_mutex_unlock(&external->lock);
    if (is_news && external->options.on_change != NULL)
        external->options.on_change(external->options.on_change_context);
}

/* Locked. Calls, loads and the poll at the former runtime end later. */
static void
leave(struct external *external)
{
    rpc_client_destroy(external->candidate);
    rpc_client_destroy(external->prober);
    external->candidate = external->management = external->prober = NULL;
    for (uint32_t i = 0; external->serving != NULL && i < external->options.queue_count; i++)
        rpc_client_destroy(external->serving[i]);
    free(external->serving);
    external->serving = NULL;
    external->is_ready = external->is_known = external->is_cut = external->is_suspect = false;
    external_circuit_reset(&external->circuit);
    external->away[0] = external->why[0] = '\0';
}

/* Locked. The aim's texts become the targets. */
static void
take_aim(struct external *external)
{
    for (uint32_t i = 0; i < external->options.target_count; i++)
        free(external->targets[i]);
    free(external->serving_target);
    external->targets[0] = (char *)(uintptr_t)external->aim.target;
    external->serving_target = (char *)(uintptr_t)external->aim.serving;
    external->options.target_count = external->aim.target != NULL ? 1 : 0;
    external->fetches = external->aim.fetches;
    external->is_run = true;
    external->target = 0;
    external->aim = (struct external_aim){0};
    external->is_aimed = false;
}

/* The runner comes first, as in external_cut_off. */
void
external_turn(struct external *external)
{
    pthread_mutex_lock(&external->lock);
    bool is_due = external->is_aimed && !external->is_closing;
    pthread_mutex_unlock(&external->lock);
    if (!is_due)
        return;
    runner_runtime_lost(external->runner, external->options.pool);
    if (external->options.files.fetch != NULL)
        external->options.files.release(external->options.files.context, NULL);
    pthread_mutex_lock(&external->lock);
    if (!external->is_closing) {
        leave(external);
        take_aim(external);
    }
    pthread_mutex_unlock(&external->lock);
    external->is_stale = external->is_polling;
    external->has_failed = external->was_told = external->was_ready = external->was_seen = false;
    external->is_proven = external->is_asking = false;
    external->poll_at_ns = clock_now_ns();
}
