/* SPDX-License-Identifier: Apache-2.0 */
/* Clients call through any node that they reach; some models are called much more than others. */
#include "world.h"

enum { SHORT_MS_MAX = 3000, DEEP = 4096 };

/* Whole numbers alone: the same on each machine. */
static uint64_t
weight(uint32_t zipf, uint64_t rank)
{
    const uint64_t one = UINT64_C(1) << 32;
    if (zipf == 0)
        return one;
    if (zipf == 2)
        return one / rank;
    uint64_t root = 1;
    while ((root + 1) * (root + 1) <= rank * DEEP)
        root++;
    return one * 64 / root;
}

static uint32_t
draw_model(struct world *world)
{
    uint32_t count = world->options.models;
    uint64_t high = draw(world, STREAM_CLIENTS, UINT32_MAX);
    uint64_t at =
        (high << 24 | draw(world, STREAM_CLIENTS, 1 << 24)) % world->popularity[count - 1];
    uint32_t first = 0;
    uint32_t last = count - 1;
    while (first < last) {
        uint32_t middle = first + (last - first) / 2;
        if (world->popularity[middle] > at)
            last = middle;
        else
            first = middle + 1;
    }
    return first;
}

static void
client(struct world *world, struct task *task)
{
    const struct options *options = &world->options;
    uint32_t node = draw(world, STREAM_CLIENTS, options->nodes);
    uint32_t model = draw_model(world);
    int64_t for_ms = draw(world, STREAM_CLIENTS, 4) == 0
                         ? 1 + draw(world, STREAM_CLIENTS, SHORT_MS_MAX)
                         : CALL_MS_MAX;
    bool asks = happens(world, STREAM_CLIENTS, 20);
    if (!world->quiet && node_is_up(world, node) && asks)
        node_step(world, node,
                  (struct mesh_event){.kind = MESH_ENSURE,
                                      .ensure = {.model = world->model_names[model],
                                                 .class = MESH_CLASS_COPY,
                                                 .where = MESH_ANYWHERE,
                                                 .target = 1}});
    else if (!world->quiet && node_is_up(world, node) && options->vmodels > 0 &&
             draw(world, STREAM_CLIENTS, 2))
        call_begin_vmodel(world, node, draw(world, STREAM_CLIENTS, options->vmodels),
                          world->now_ms + for_ms);
    else if (!world->quiet && node_is_up(world, node))
        call_begin(world, node, model, world->now_ms + for_ms);
    later(world, 1 + draw(world, STREAM_CLIENTS, 2 * options->call_every_ms), *task);
}

void
clients_start(struct world *world)
{
    uint32_t count = world->options.models;
    world->popularity = arena_take(&world->arena, count * sizeof(*world->popularity));
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += weight(world->options.zipf, i + 1);
        world->popularity[i] = sum;
    }
    later(world, 100, (struct task){.run = client, .life = LIFE_ANY});
}
