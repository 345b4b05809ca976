/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Further copies of busy models: rules S1 to S5. Every ten seconds each node checks the models that
 * it serves.
 */
#include "mesh/core/copies/copies.h"
#include "mesh/core/models.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/load_times.h"
#include "mesh/core/copies/pools.h"

enum {
    RATES_MS = 10000,
    MINUTE_MS = 60000,
    AGE_FOR_SECOND_MS = 20 * 3600000, /* S2 */
    BUSIER_MS = 20000,                /* S4 */
    WINDOW_FIRST = 7,                 /* S2: minutes ago */
    WINDOW_LAST = 40,
    CALLS_MIN = 8,
    CALLS_ENOUGH = 64,
};

/* S1: shifts the bits to the current minute. */
static void
move_on(const struct mesh *mesh, struct core_entry *entry)
{
    int64_t minute = mesh->now_ms / MINUTE_MS;
    int64_t passed = minute - entry->minute;
    entry->minutes = passed >= 64 ? 0 : entry->minutes << passed;
    entry->minute = minute;
}

void
copies_use(struct mesh *mesh, struct core_entry *entry, uint32_t count)
{
    load_called(mesh, entry);
    move_on(mesh, entry);
    entry->minutes |= 1;
    if (__builtin_add_overflow(entry->uses, count, &entry->uses))
        entry->uses = UINT32_MAX;
}

void
copies_time(struct core_entry *entry, uint32_t count, uint64_t took_us)
{
    if (entry->concurrency == 0)
        return;
    entry->recent.count += count;
    if (__builtin_add_overflow(entry->recent.us, took_us, &entry->recent.us))
        entry->recent.us = UINT64_MAX;
}

/* S3, S5: the rate that justifies another copy. */
static uint32_t
rate_for_more(const struct mesh *mesh, const struct core_entry *entry)
{
    uint64_t count = entry->recent.count + entry->before.count;
    uint64_t us;
    if (__builtin_add_overflow(entry->recent.us, entry->before.us, &us))
        us = UINT64_MAX;
    if (entry->concurrency == 0 || count < CALLS_MIN || us == 0)
        return mesh->config.rate_for_more;
    const uint64_t busy_us = UINT64_C(1000) * MINUTE_MS / 100 * mesh->config.busy_percent;
    uint64_t mean_us = us / count > 0 ? us / count : 1;
    uint64_t rate = busy_us * entry->concurrency / mean_us;
    return rate == 0 ? 1 : rate < UINT32_MAX ? (uint32_t)rate : UINT32_MAX;
}

/* S2: nodes that may hold a second copy have room. */
static bool
has_room_for_second(const struct mesh *mesh, const struct core_model *model)
{
    struct tables_room all = tables_room(&mesh->tables, model);
    return all.free_units >= all.capacity_units / 10 ||
           all.oldest_ms < mesh->wall_ms - AGE_FOR_SECOND_MS;
}

static bool
wants_second(const struct mesh *mesh, const struct core_model *model,
             const struct core_entry *entry)
{
    const uint64_t before = (UINT64_C(1) << WINDOW_FIRST) - 1;
    const uint64_t window = ((UINT64_C(1) << (WINDOW_LAST + 1)) - 1) & ~before;
    return (entry->minutes & 1) != 0 && (entry->minutes & window) != 0 &&
           has_room_for_second(mesh, model);
}

/* S3: copies wanted by the rate; 0: no statement. */
static uint32_t
wanted_by_rate(const struct mesh *mesh, const struct core_model *model,
               const struct core_entry *entry, uint32_t copies)
{
    uint32_t threshold = rate_for_more(mesh, entry);
    if (entry->rate < threshold)
        return 0;
    int64_t quiet_since_ms = mesh->wall_ms - 2 * load_assumed_ms(mesh) - BUSIER_MS;
    const struct core_place *places = model_places(model);
    for (uint32_t i = 0; i < model->place_count; i++)
        if (places[i].instance != INSTANCE_SELF && place_is_copy(&mesh->tables, &places[i]) &&
            places[i].since_ms > quiet_since_ms)
            return 0; /* the last copy has yet to take its share */
    uint32_t more = entry->rate / threshold;
    uint32_t most = mesh->tables.live / 3;
    if (copies >= 2 && more > most)
        more = most == 0 ? 1 : most;
    uint32_t wanted = copies + more;
    return wanted < mesh->tables.live ? wanted : mesh->tables.live;
}

static void
look_at(struct mesh *mesh, struct core_entry *entry)
{
    const struct core_model *model = model_at(mesh, entry->model);
    mesh->tables.instances[INSTANCE_SELF].figures = pool_figures(mesh, pool_of(mesh, entry));
    uint32_t copies = model_copies(&mesh->tables, model);
    uint32_t wanted = wanted_by_rate(mesh, model, entry, copies);
    bool by_rate = wanted > copies;
    if (!by_rate && copies == 1 && mesh->tables.live > 1 && wants_second(mesh, model, entry))
        wanted = 2;
    if (model->bounds.copies_max != 0 && wanted > model->bounds.copies_max)
        wanted = model->bounds.copies_max; /* B3 */
    const struct load_wish wish = {
        .model = entry->model,
        .used_ms = entry->used_ms,
        .class = MESH_CLASS_COPY,
        .target = wanted,
        .units = entry->units,
    };
    struct nodes_asked asked = {0};
    (void)ensure_copies(mesh, &wish, by_rate ? mesh->wall_ms + BUSIER_MS : entry->used_ms, &asked);
}

void
copies_tick(struct mesh *mesh)
{
    int64_t passed_ms = mesh->now_ms - mesh->rates.checked_ms;
    if (passed_ms < RATES_MS || mesh->drain.active)
        return;
    mesh->rates.checked_ms = mesh->now_ms;
    uint64_t served = 0;
    for (uint32_t i = 0; i < mesh->entries.used; i++) {
        struct core_entry *entry = &mesh->entries.at[i];
        if (entry->state != MESH_STATE_LOADED)
            continue;
        served += entry->uses;
        uint64_t rate = (uint64_t)entry->uses * MINUTE_MS / (uint64_t)passed_ms;
        entry->rate = rate < UINT32_MAX ? (uint32_t)rate : UINT32_MAX;
        if (entry->rate >= rate_for_more(mesh, entry) / 3 * 2)
            entry->heavy_ms = mesh->now_ms; /* J5 */
        bool used = entry->uses > 0;
        entry->uses = 0;
        move_on(mesh, entry);
        if (used && mesh->mirror.session != 0)
            look_at(mesh, entry);
        if (entry->recent.count >= CALLS_ENOUGH) {
            entry->before = entry->recent;
            entry->recent = (struct call_times){0};
        }
    }
    uint64_t rate = served * MINUTE_MS / (uint64_t)passed_ms;
    mesh->rates.per_minute = rate < UINT32_MAX ? (uint32_t)rate : UINT32_MAX;
}
