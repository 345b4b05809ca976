/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world of a seed. Each kind of fault is off in half of the worlds: a world in which
 * something never happens comes to states that one in which everything does never sees.
 */
#include <stdio.h>

#include "world.h"

static uint32_t
below(struct world *world, uint32_t most)
{
    return draw(world, STREAM_OPTIONS, most);
}

static uint32_t
rate(struct world *world, uint32_t most)
{
    uint32_t drawn = below(world, most) + 1;
    return below(world, 2) ? drawn : 0;
}

/* Most worlds are small, as a small one is quick and comes to the same states; some are not. */
static uint32_t
draw_nodes(struct world *world)
{
    uint32_t kind = below(world, 256);
    if (kind == 0)
        return 100 + below(world, 200);
    if (kind < 6)
        return 20 + below(world, 40);
    return 1 + below(world, kind < 64 ? 12 : 6);
}

static struct faults
draw_faults(struct world *world)
{
    return (struct faults){
        .slow = rate(world, 40),
        .lost = rate(world, 40),
        .load_fails = rate(world, 200),
        .load_slow = rate(world, 100),
        .size_lies = rate(world, 200),
        .forgets = rate(world, 20),
        .keeps = rate(world, 20),
        .cancels = rate(world, 300),
        .kills = rate(world, 60),
        .pauses = rate(world, 60),
        .crashes = rate(world, 40),
        .leases = rate(world, 60),
        .clocks = rate(world, 40),
        .drains = rate(world, 60),
        .links = rate(world, 200),
        .partitions = rate(world, 40),
        .swizzles = rate(world, 40),
        .outages = rate(world, 20),
        .elections = rate(world, 30),
        .compactions = rate(world, 200),
        .replacements = rate(world, 100),
        .emptyings = below(world, 4) == 0 ? below(world, 40) : 0,
        .constraints = rate(world, 60),
        .orders = rate(world, 1000),
        .forced = below(world, 2),
    };
}

void
options_draw(struct world *world)
{
    struct options *options = &world->options;
    options->nodes = draw_nodes(world);
    bool large = options->nodes > 60;
    options->models = 1 + below(world, large ? 300 : 40);
    options->zipf = below(world, 3);
    options->call_every_ms = 50 + below(world, 400);
    options->rate_for_more = below(world, 2) ? 60 : 1000000;
    options->delay_ms = 1 + below(world, 40);
    options->watch_lag_ms = below(world, 4) == 0 ? 4000 : 100;
    options->model_bytes = UINT64_C(8192) * (1 + below(world, 20));
    uint32_t fit = below(world, 4) == 0 ? 400 : 10 + below(world, 40);
    options->capacity_bytes = options->model_bytes * fit;
    options->chaos_ms = large ? 20000 : 30000 + below(world, 30000);
    options->skewed = below(world, 2);
    options->labelled = below(world, 3) == 0;
    options->poisoned = below(world, 3) == 0;
    options->notifies_own = below(world, 2);
    options->unsure = below(world, 2);
    options->concurrency = below(world, 2) ? 1 + below(world, 4) : 0;
    options->upgrades = below(world, 2);
    options->vmodels = 1 + below(world, 8);
    options->lost_for_good = below(world, 3) == 0 ? options->nodes / 3 : 0;
    options->faults = draw_faults(world);
    if (options->faults.orders == 0)
        options->vmodels = 0;
    bool calm = below(world, 8) == 0; /* to see that it is quiet */
    options->load_ms = below(world, 2) ? 1500 : 2900;
    options->faults.hangs = rate(world, 60);
    options->faults.sizes_late = rate(world, 500);
    if (draw(world, STREAM_CLOCKS, 3) == 0) /* draws nothing of the other streams */
        options->wrong_clocks = 1 + draw(world, STREAM_CLOCKS, options->nodes);
    if (draw(world, STREAM_SPACE, 3) == 0)
        options->faults.no_space = 1 + draw(world, STREAM_SPACE, 40);
    options->pools = draw(world, STREAM_POOLS, 4) == 0;
    uint32_t bounds = draw(world, STREAM_BOUNDS, 8);
    options->bounds = bounds < 2 ? BOUNDS_FEW : bounds == 2 ? BOUNDS_MANY : BOUNDS_NONE;
    if (options->bounds == BOUNDS_MANY && options->lost_for_good > 1)
        options->lost_for_good = 1; /* the reaper removes one place of a model in each round */
    if (calm) {
        options->faults = (struct faults){0};
        options->poisoned = false;
        options->vmodels = 0;
        options->lost_for_good = 0;
    }
    if (draw(world, STREAM_RESTS, 3) == 0)
        options->faults.rests = 1 + draw(world, STREAM_RESTS, 400);
}

void
options_print(const struct world *world)
{
    const struct options *options = &world->options;
    const struct faults *faults = &options->faults;
    fprintf(stderr,
            "seed %llu: %u nodes, %u models, zipf %u, a call each %u ms, room for %llu units of "
            "%llu, second copies at %u a minute,\n"
            "delay %u ms, watch %u ms, chaos %u ms, skewed %d, wrong clocks %u, labelled %d, "
            "poisoned %d, own %d, "
            "unsure %d, lost %u, pools %d, bounds %d;\n",
            (unsigned long long)world->seed, options->nodes, options->models, options->zipf,
            options->call_every_ms, (unsigned long long)(options->capacity_bytes / 8192),
            (unsigned long long)(options->model_bytes / 8192), options->rate_for_more,
            options->delay_ms, options->watch_lag_ms, options->chaos_ms, options->skewed,
            options->wrong_clocks, options->labelled, options->poisoned, options->notifies_own,
            options->unsure, options->lost_for_good, options->pools, (int)options->bounds);
    fprintf(
        stderr,
        "slow %u, lost %u, load_fails %u, load_slow %u, loads of %u ms, hangs %u, size_lies %u, "
        "sizes_late %u, "
        "forgets %u, keeps %u, cancels %u, kills %u, pauses %u,\ncrashes %u, rests %u, leases %u, "
        "clocks %u, "
        "drains %u, "
        "links %u, partitions %u, swizzles %u, outages %u, elections %u, compactions %u, "
        "no space %u, replacements %u, emptyings %u, constraints %u, orders %u of %u vmodels, "
        "forced %d, "
        "concurrency %u, upgrades %d\n",
        faults->slow, faults->lost, faults->load_fails, faults->load_slow, options->load_ms,
        faults->hangs, faults->size_lies, faults->sizes_late, faults->forgets, faults->keeps,
        faults->cancels, faults->kills, faults->pauses, faults->crashes, faults->rests,
        faults->leases, faults->clocks, faults->drains, faults->links, faults->partitions,
        faults->swizzles, faults->outages, faults->elections, faults->compactions, faults->no_space,
        faults->replacements, faults->emptyings, faults->constraints, faults->orders,
        options->vmodels, faults->forced, options->concurrency, options->upgrades);
}
