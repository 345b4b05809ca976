/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the runtime: sizes, loads, unloads. The core gets one end for each, from the
 * runtime, or from here when that does not answer in time; the memory goes with the runtime's
 * answer, whenever that comes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "mesh/edge/driver_inside.h"

enum {
    SIZE_MS = 5000,
    LOAD_MARGIN_MS_MAX = 5000,
    UNLOAD_MS = 15 * 60000,
};

struct driver_load {
    struct work work;
    struct link link; /* by its kind, or owing */
    uint64_t ticket;
    int64_t begun_ns;
    int64_t deadline_ns;
    int64_t timeout_ms;
    enum load_kind kind;
    bool given_up;
    struct driver_model model;
    char texts[];
};

static struct driver_load *
load_of(struct link *link)
{
    return (struct driver_load *)((char *)link - offsetof(struct driver_load, link));
}

/* A load's is the runtime's own, which it should keep itself, and a margin. */
static int64_t
timeout_ms(const struct driver *driver, enum load_kind kind, uint32_t pool)
{
    int64_t load_ms = driver->capacity[pool].load_timeout_ms;
    switch (kind) {
    case LOAD_SIZE: return SIZE_MS;
    case LOAD_LOAD: return load_ms + (load_ms < LOAD_MARGIN_MS_MAX ? load_ms : LOAD_MARGIN_MS_MAX);
    case LOAD_UNLOAD: return UNLOAD_MS;
    case LOAD_KINDS: break;
    }
    UNREACHABLE();
}

static void
run(struct driver *driver, struct work *work)
{
    struct driver_load *load = (struct driver_load *)work;
    const struct driver_runtime *runtime =
        load->model.pool == 0 ? &driver->options.runtime : &driver->options.second;
    if (driver->store == NULL)
        return; /* closed while this was about to run; it goes with the driver */
    switch (load->kind) {
    case LOAD_SIZE: runtime->size(runtime->context, load, &load->model); break;
    case LOAD_LOAD: runtime->load(runtime->context, load, &load->model); break;
    case LOAD_UNLOAD: runtime->unload(runtime->context, load, &load->model); break;
    case LOAD_KINDS: UNREACHABLE();
    }
}

/* The next of the texts, copied; NULL stays NULL. */
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
measure_begin(struct driver *driver, const struct mesh_action *action, enum load_kind kind)
{
    if (kind == LOAD_LOAD)
        driver_measure(driver, DRIVER_QUEUE_NS, (uint64_t)(action->load.queued_ms * NS_PER_MS));
    if (kind == LOAD_UNLOAD && action->load.evicted) {
        driver->counts.evictions++;
        driver_measure(driver, DRIVER_EVICTED_MS, (uint64_t)action->load.unused_ms);
    }
}

void
driver_load_do(struct driver *driver, const struct mesh_action *action, enum load_kind kind)
{
    size_t bytes = room_for(action->load.model) + room_for(action->load.type) +
                   room_for(action->load.path) + room_for(action->load.key);
    struct driver_load *load = calloc(1, sizeof(*load) + bytes);
    CHECK(load != NULL);
    char *to = load->texts;
    load->work.run = run;
    load->ticket = action->load.ticket;
    load->kind = kind;
    load->timeout_ms = timeout_ms(driver, kind, action->load.pool);
    load->begun_ns = clock_now_ns();
    load->deadline_ns = load->begun_ns + load->timeout_ms * NS_PER_MS;
    load->model.id = put(&to, action->load.model);
    load->model.type = put(&to, action->load.type);
    load->model.path = put(&to, action->load.path);
    load->model.key = put(&to, action->load.key);
    load->model.pool = action->load.pool;
    link_add_last(&driver->loads[kind], &load->link);
    driver->counts.loads += kind == LOAD_LOAD;
    driver->counts.unloads += kind == LOAD_UNLOAD;
    measure_begin(driver, action, kind);
    driver_work_add(driver, &load->work);
}

/* ---- the ends ---- */

static void
measure_end(struct driver *driver, const struct driver_load *load,
            const struct driver_load_end *end)
{
    static const enum driver_measure times[] = {[LOAD_SIZE] = DRIVER_SIZE_NS,
                                                [LOAD_LOAD] = DRIVER_LOAD_NS,
                                                [LOAD_UNLOAD] = DRIVER_UNLOAD_NS};
    driver_measure(driver, times[load->kind], (uint64_t)(clock_now_ns() - load->begun_ns));
    if (load->kind == LOAD_LOAD && end->size_bytes > 0)
        driver_measure(driver, DRIVER_LOADED_BYTES, end->size_bytes);
}

static void
tell(struct driver *driver, const struct driver_load *load, const struct driver_load_end *end)
{
    static const enum mesh_event_kind kinds[] = {
        [LOAD_SIZE] = MESH_SIZE_PREDICTED,
        [LOAD_LOAD] = MESH_LOAD_ENDED,
        [LOAD_UNLOAD] = MESH_UNLOAD_ENDED,
    };
    bool ok = end->end == MESH_LOAD_OK;
    driver->counts.load_failures += load->kind == LOAD_LOAD && !ok;
    driver->counts.unload_failures += load->kind == LOAD_UNLOAD && !ok;
    if (ok)
        measure_end(driver, load, end);
    else if (load->kind == LOAD_LOAD)
        driver_clearance_failed(driver, load->model.id, end->reason);
    driver_step(driver, (struct mesh_event){.kind = kinds[load->kind],
                                            .loaded = {.ticket = load->ticket,
                                                       .size_bytes = end->size_bytes,
                                                       .end = end->end,
                                                       .reason = end->reason,
                                                       .max_concurrency = end->max_concurrency,
                                                       .freed = ok}});
}

/* It still owes an answer. */
static void
keep(struct driver *driver, struct driver_load *load)
{
    link_remove(&load->link);
    link_add_last(&driver->owing, &load->link);
}

void
driver_load_ended(struct driver *driver, struct driver_load *load,
                  const struct driver_load_end *end)
{
    bool is_kept = end->is_measured;
    driver_lock(driver);
    if (is_kept)
        keep(driver, load);
    else
        link_remove(&load->link);
    if (!load->given_up && !driver->closed)
        tell(driver, load, end);
    driver_unlock(driver);
    if (!is_kept)
        free(load);
}

void
driver_load_measured(struct driver *driver, struct driver_load *load, uint64_t size_bytes)
{
    driver_lock(driver);
    link_remove(&load->link);
    if (!load->given_up && !driver->closed && size_bytes > 0) {
        driver_measure(driver, DRIVER_LOADED_BYTES, size_bytes);
        driver_step(driver, (struct mesh_event){
                                .kind = MESH_SIZE_MEASURED,
                                .loaded = {.ticket = load->ticket, .size_bytes = size_bytes}});
    }
    driver_unlock(driver);
    free(load);
}

static void
give_up(struct driver *driver, struct driver_load *load)
{
    char reason[96];
    snprintf(reason, sizeof(reason),
             "DEADLINE_EXCEEDED: the runtime did not answer within %" PRId64 " ms",
             load->timeout_ms);
    load->given_up = true;
    keep(driver, load);
    driver->counts.given_up++;
    tell(driver, load, &(struct driver_load_end){.end = MESH_LOAD_BROKE, .reason = reason});
}

void
driver_load_tick(struct driver *driver)
{
    int64_t now_ns = clock_now_ns();
    for (enum load_kind kind = LOAD_SIZE; kind < LOAD_KINDS; kind++) {
        struct link *first = driver->loads[kind].next;
        while (first != &driver->loads[kind] && load_of(first)->deadline_ns <= now_ns) {
            give_up(driver, load_of(first));
            first = driver->loads[kind].next;
        }
    }
}

static void
drop_list(struct link *head)
{
    for (struct link *link = head->next, *next; link != head; link = next) {
        next = link->next;
        free(load_of(link));
    }
    link_init(head);
}

void
driver_load_drop_all(struct driver *driver)
{
    for (enum load_kind kind = LOAD_SIZE; kind < LOAD_KINDS; kind++)
        drop_list(&driver->loads[kind]);
    drop_list(&driver->owing);
}
