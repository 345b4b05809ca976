/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of the mesh core's decisions: routing a model of two copies, placing one over 1,000
 * instances, and a record from the mirror. Prints nanoseconds; `mesh_bench 100 1` does little, for
 * callgrind.
 */
#include <stdio.h>
#include <stdlib.h>

#include "../random.h"
#include "base/check.h"
#include "base/clock.h"
#include "mesh/core/calls/route.h"

enum { INSTANCES = 1000, MODELS = 20000 };

static struct tables tables;
static uint64_t seed = 1;

static void
fill(void)
{
    const struct mesh_config config = {
        .instance = "i0", .models_max = MODELS, .instances_max = INSTANCES, .seed = 7};
    tables_init(&tables, &config);
    for (uint32_t i = 0; i < INSTANCES; i++) {
        char id[32];
        snprintf(id, sizeof(id), "i%u", i);
        struct mesh_instance instance = {
            .id = id,
            .labels = i % 2 ? "gpu" : "",
            .session = i + 1,
            .revision = i + 1,
            .figures = {.capacity_units = 100000,
                        .free_units = random_draw(&seed) % 50000,
                        .oldest_ms = (int64_t)(random_draw(&seed) % 1000000),
                        .calls_per_minute = (uint32_t)(random_draw(&seed) % 3000)},
        };
        CHECK(tables_put_instance(&tables, &instance, 0));
    }
    for (uint32_t i = 0; i < MODELS; i++) {
        char id[32], one[32], two[32];
        snprintf(id, sizeof(id), "model-%u", i);
        snprintf(one, sizeof(one), "i%u", (uint32_t)(random_draw(&seed) % INSTANCES));
        snprintf(two, sizeof(two), "i%u", (uint32_t)(random_draw(&seed) % INSTANCES));
        const struct mesh_place places[] = {
            {.instance = one, .since_ms = 10, .kind = MESH_PLACE_LOADED},
            {.instance = two, .since_ms = 20, .kind = MESH_PLACE_LOADED},
        };
        struct mesh_model model = {.id = id,
                                   .type = "t",
                                   .path = "",
                                   .key = "",
                                   .revision = 1,
                                   .create_revision = 1,
                                   .places = places,
                                   .place_count = 2};
        uint32_t number;
        CHECK(tables_put_model(&tables, &model, &number));
    }
}

static void
say(const char *what, int64_t began_ns, long count)
{
    printf("%-40s %8.1f ns\n", what, (double)(clock_now_ns() - began_ns) / (double)count);
}

int
main(int argc, char **argv)
{
    long routes = argc > 1 ? strtol(argv[1], NULL, 10) : 5000000;
    long placements = argc > 2 ? strtol(argv[2], NULL, 10) : 20000;
    fill();
    uint64_t sum = 0;
    int64_t began_ns = clock_now_ns();
    for (long i = 0; i < routes; i++) {
        const struct route_wish wish = {.model = &tables.models[i * 7919 % MODELS],
                                        .now_ms = 1000,
                                        .wall_ms = 1000000,
                                        .assumed_ms = 3000};
        sum += route_choose(&tables, &wish).instance;
    }
    say("route_choose, two copies", began_ns, routes);
    began_ns = clock_now_ns();
    for (long i = 0; i < placements; i++) {
        const struct place_wish wish = {.model = &tables.models[i % MODELS],
                                        .now_ms = 1000,
                                        .wall_ms = 2000000,
                                        .used_ms = 2000000,
                                        .churn_ms = 30000,
                                        .fresh_ms = 900000};
        sum += place_choose(&tables, &wish, &seed);
    }
    say("place_choose, 1,000 instances", began_ns, placements);
    tables_fini(&tables);
    return sum == 0;
}
