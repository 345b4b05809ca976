/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the runtime: sizes, loads, unloads. The core gets one end for each, from the runtime
 * or from here after the timeout; the memory is freed with the runtime's answer, whenever it comes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "mesh/edge/runner_inside.h"

enum {
    SIZE_MS = 5000,
    LOAD_MARGIN_MS_MAX = 5000,
    UNLOAD_MS = 15 * 60000,
};

struct runner_load {
    struct runner_work work;
    struct runner_link link; /* in the list of its kind, or owing */
    uint64_t ticket;
    int64_t begun_ns;
    int64_t deadline_ns;
    int64_t timeout_ms;
    enum load_kind kind;
    bool given_up;
    bool ended; /* the runtime has answered, and may yet report the size */
    struct runner_model model;
    char texts[];
};

static struct runner_load *
load_of(struct runner_link *link)
{
    return (struct runner_load *)((char *)link - offsetof(struct runner_load, link));
}

/* A load's is the runtime's own timeout, which it should enforce itself, plus a margin. */
static int64_t
timeout_ms(const struct mesh_runner *runner, enum load_kind kind, uint32_t pool)
{
    int64_t load_ms = runner->runtimes.capacity[pool].load_timeout_ms;
    switch (kind) {
    case LOAD_SIZE: return SIZE_MS;
    case LOAD_LOAD: return load_ms + (load_ms < LOAD_MARGIN_MS_MAX ? load_ms : LOAD_MARGIN_MS_MAX);
    case LOAD_UNLOAD: return UNLOAD_MS;
    case LOAD_KINDS: break;
    }
    UNREACHABLE();
}

static const struct runner_runtime *
runtime_of(const struct mesh_runner *runner, uint32_t pool)
{
    const struct runner_options *options = &runner->options;
    bool is_second = options->second.load != NULL && pool == runner_pools(runner) - 1;
    return is_second ? &options->second : &options->runtime;
}

void
runner_load_do_admit(struct mesh_runner *runner, const struct mesh_action *action,
                     enum runner_admission admission)
{
    const struct runner_runtime *runtime = runtime_of(runner, action->load.pool);
    if (runtime->admit != NULL)
        runtime->admit(runtime->context, action->load.model, admission);
}

static void
run(struct mesh_runner *runner, struct runner_work *work)
{
    struct runner_load *load = (struct runner_load *)work;
    const struct runner_runtime *runtime = runtime_of(runner, load->model.pool);
    if (runner->store == NULL)
        return; /* closed before this could run; freed with the runner */
    switch (load->kind) {
    case LOAD_SIZE: runtime->size(runtime->context, load, &load->model); break;
    case LOAD_LOAD: runtime->load(runtime->context, load, &load->model); break;
    case LOAD_UNLOAD: runtime->unload(runtime->context, load, &load->model); break;
    case LOAD_KINDS: UNREACHABLE();
    }
}

/* Copies the next text; NULL stays NULL. */
static const char *
put(char **to, const char *text)
{
    if (text == NULL)
        return NULL;
    char *copy = *to;
    size_t bytes = strlen(text) + 1;
    memcpy(copy, text, bytes);
    *to += bytes;
    return copy;
}

static size_t
room_for(const char *text)
{
    return text == NULL ? 0 : strlen(text) + 1;
}

static void
measure_begin(struct mesh_runner *runner, const struct mesh_action *action, enum load_kind kind)
{
    if (kind == LOAD_LOAD)
        runner_measure(runner, RUNNER_QUEUE_NS, (uint64_t)(action->load.queued_ms * NS_PER_MS));
    if (kind == LOAD_UNLOAD && action->load.evicted) {
        runner->counts.evictions++;
        runner_measure(runner, RUNNER_EVICTED_MS, (uint64_t)action->load.unused_ms);
    }
}

/* Two pools may have different timeouts. */
static void
add_by_deadline(struct runner_link *head, struct runner_load *load)
{
    struct runner_link *after = head;
    while (after->previous != head && load_of(after->previous)->deadline_ns > load->deadline_ns)
        after = after->previous;
    link_add_last(after, &load->link);
}

void
runner_load_do(struct mesh_runner *runner, const struct mesh_action *action, enum load_kind kind)
{
    size_t bytes = room_for(action->load.model) + room_for(action->load.type) +
                   room_for(action->load.path) + room_for(action->load.key);
    struct runner_load *load = calloc(1, sizeof(*load) + bytes);
    CHECK(load != NULL);
    char *to = load->texts;
    load->work.run = run;
    load->ticket = action->load.ticket;
    load->kind = kind;
    load->timeout_ms = timeout_ms(runner, kind, action->load.pool);
    load->begun_ns = clock_now_ns();
    load->deadline_ns = load->begun_ns + load->timeout_ms * NS_PER_MS;
    load->model.id = put(&to, action->load.model);
    load->model.type = put(&to, action->load.type);
    load->model.path = put(&to, action->load.path);
    load->model.key = put(&to, action->load.key);
    load->model.pool = action->load.pool;
    CHECK(to == load->texts + bytes);
    add_by_deadline(&runner->loads[kind], load);
    runner->counts.loads += kind == LOAD_LOAD;
    runner->counts.unloads += kind == LOAD_UNLOAD;
    measure_begin(runner, action, kind);
    runner_work_add(runner, &load->work);
}

/* ---- the ends ---- */

static void
measure_end(struct mesh_runner *runner, const struct runner_load *load,
            const struct runner_load_end *end)
{
    static const enum runner_measure times[] = {[LOAD_SIZE] = RUNNER_SIZE_NS,
                                                [LOAD_LOAD] = RUNNER_LOAD_NS,
                                                [LOAD_UNLOAD] = RUNNER_UNLOAD_NS};
    runner_measure(runner, times[load->kind], (uint64_t)(clock_now_ns() - load->begun_ns));
    if (load->kind == LOAD_LOAD && end->size_bytes > 0)
        runner_measure(runner, RUNNER_LOADED_BYTES, end->size_bytes);
}

static void
notify(struct mesh_runner *runner, const struct runner_load *load,
       const struct runner_load_end *end)
{
    static const enum mesh_event_kind kinds[] = {
        [LOAD_SIZE] = MESH_SIZE_PREDICTED,
        [LOAD_LOAD] = MESH_LOAD_ENDED,
        [LOAD_UNLOAD] = MESH_UNLOAD_ENDED,
    };
    bool ok = end->end == MESH_LOAD_OK;
    runner->counts.load_failures += load->kind == LOAD_LOAD && !ok;
    runner->counts.unload_failures += load->kind == LOAD_UNLOAD && !ok;
    if (ok)
        measure_end(runner, load, end);
    else if (load->kind == LOAD_LOAD)
        runner_clearance_failed(runner, load->model.id, end->reason);
    runner_step(runner, (struct mesh_event){.kind = kinds[load->kind],
                                            .loaded = {.ticket = load->ticket,
                                                       .size_bytes = end->size_bytes,
                                                       .end = end->end,
                                                       .reason = end->reason,
                                                       .max_concurrency = end->max_concurrency,
                                                       .freed = ok}});
}

/* An answer is still due. */
static void
keep(struct mesh_runner *runner, struct runner_load *load)
{
    link_remove(&load->link);
    link_add_last(&runner->owing, &load->link);
}

void
runner_load_ended(struct mesh_runner *runner, struct runner_load *load,
                  const struct runner_load_end *end)
{
    bool is_kept = end->is_measured;
    runner_lock(runner);
    CHECK(!load->ended && (!is_kept || (load->kind == LOAD_LOAD && end->end == MESH_LOAD_OK)));
    load->ended = true;
    if (is_kept)
        keep(runner, load);
    else
        link_remove(&load->link);
    if (!load->given_up && !runner->closed)
        notify(runner, load, end);
    runner_unlock(runner);
    if (!is_kept)
        free(load);
}

void
runner_load_measured(struct mesh_runner *runner, struct runner_load *load, uint64_t size_bytes)
{
    runner_lock(runner);
    CHECK(load->ended);
    link_remove(&load->link);
    if (!load->given_up && !runner->closed && size_bytes > 0) {
        runner_measure(runner, RUNNER_LOADED_BYTES, size_bytes);
        runner_step(runner, (struct mesh_event){
                                .kind = MESH_SIZE_MEASURED,
                                .loaded = {.ticket = load->ticket, .size_bytes = size_bytes}});
    }
    runner_unlock(runner);
    free(load);
}

static void
give_up(struct mesh_runner *runner, struct runner_load *load)
{
    char reason[96];
    snprintf(reason, sizeof(reason),
             "DEADLINE_EXCEEDED: the runtime did not answer within %" PRId64 " ms",
             load->timeout_ms);
    CHECK(!load->given_up && !load->ended); /* the core gets one end */
    load->given_up = true;
    keep(runner, load);
    runner->counts.given_up++;
    notify(runner, load, &(struct runner_load_end){.end = MESH_LOAD_BROKE, .reason = reason});
}

void
runner_load_tick(struct mesh_runner *runner)
{
    int64_t now_ns = clock_now_ns();
    for (enum load_kind kind = LOAD_SIZE; kind < LOAD_KINDS; kind++) {
        struct runner_link *first = runner->loads[kind].next;
        while (first != &runner->loads[kind] && load_of(first)->deadline_ns <= now_ns) {
            give_up(runner, load_of(first));
            first = runner->loads[kind].next;
        }
    }
}

static void
drop_list(struct runner_link *head)
{
    for (struct runner_link *link = head->next, *next; link != head; link = next) {
        next = link->next;
        free(load_of(link));
    }
    link_init(head);
}

void
runner_load_drop_all(struct mesh_runner *runner)
{
    for (enum load_kind kind = LOAD_SIZE; kind < LOAD_KINDS; kind++)
        drop_list(&runner->loads[kind]);
    drop_list(&runner->owing);
}
