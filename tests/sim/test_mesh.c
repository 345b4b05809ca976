/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole meshes of real cores on virtual time, with all that goes wrong: a thousand seeds, each with
 * its own number of nodes, models, room and faults. What must hold stands in invariants/.
 * SHOAL_SEED runs one seed and prints its options and the hash of its trace; SHOAL_SIM_SEEDS says
 * how many.
 *
 * ctest: timeout=900
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "world.h"

enum { SEEDS_MANY = 1000, SEED_TWICE = 1000 };

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = SEEDS_MANY / 5 }; /* each takes five times as long */
#else
enum { SEEDS = SEEDS_MANY };
#endif

static char now_running[64]; /* said when something is broken */

static struct {
    uint64_t ends[16];
    uint64_t loads, unloads, drained, reaped, relists, unknowns, faults, calls, revisions;
    uint32_t nodes_max;
} total;

static void
add_up(const struct world *world)
{
    for (int i = 0; i < 16; i++)
        total.ends[i] += world->ends[i];
    total.loads += world->loads;
    total.unloads += world->unloads;
    total.drained += world->drained;
    total.reaped += world->reaped;
    total.relists += world->relists;
    total.unknowns += world->unknowns;
    total.faults += world->faults_done;
    total.calls += world->call_count;
    total.revisions += (uint64_t)fake_etcd_revision(world->etcd);
    if (world->options.nodes > total.nodes_max)
        total.nodes_max = world->options.nodes;
}

/* The hash of all that happened. */
static uint64_t
run(uint64_t seed)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    snprintf(now_running, sizeof(now_running), "SHOAL_SEED=%llu\n", (unsigned long long)seed);
    world_init(world, seed);
    if (getenv("SHOAL_SEED") != NULL && getenv("SHOAL_SIM_SEEDS") == NULL)
        options_print(world);
    world_run(world, world->options.chaos_ms);
    world_converge(world);
    uint64_t hash = world->trace;
    add_up(world);
    world_fini(world);
    free(world);
    return hash;
}

static void
print_total(uint64_t seeds, uint64_t hash)
{
    printf("%llu seeds, up to %u nodes: %llu calls, %llu loads, %llu unloads, %llu drains, %llu "
           "faults, %llu revisions of etcd,\n%llu calls to it without an answer, %llu listings "
           "anew, %llu places of the dead removed; calls by end:",
           (unsigned long long)seeds, total.nodes_max, (unsigned long long)total.calls,
           (unsigned long long)total.loads, (unsigned long long)total.unloads,
           (unsigned long long)total.drained, (unsigned long long)total.faults,
           (unsigned long long)total.revisions, (unsigned long long)total.unknowns,
           (unsigned long long)total.relists, (unsigned long long)total.reaped);
    for (int i = 0; i <= MESH_END_FULL; i++)
        printf(" %llu", (unsigned long long)total.ends[i]);
    printf("\ntrace %016llx\n", (unsigned long long)hash);
}

static void
test_seeds(void **state)
{
    (void)state;
    const char *given = getenv("SHOAL_SEED");
    const char *count = getenv("SHOAL_SIM_SEEDS");
    uint64_t first = given != NULL ? strtoull(given, NULL, 0) : 1;
    uint64_t seeds = count != NULL ? strtoull(count, NULL, 0) : given != NULL ? 1 : SEEDS;
    uint64_t hash = 0;
    for (uint64_t seed = first; seed < first + seeds; seed++)
        hash = hash * 31 + run(seed);
    print_total(seeds, hash);
    if (seeds < SEEDS_MANY)
        return; /* few may miss what is rare */
    assert_true(total.ends[MESH_END_OK] > 50 * seeds);
    assert_true(total.drained > 0 && total.reaped > 0 && total.relists > 0 && total.unknowns > 0);
}

static void
test_the_same_again(void **state)
{
    (void)state;
    for (uint64_t seed = SEED_TWICE; seed < SEED_TWICE + 3; seed++)
        assert_true(run(seed) == run(seed));
    assert_true(run(SEED_TWICE) != run(SEED_TWICE + 1));
}

static void
on_abort(int number)
{
    (void)number;
    ssize_t written = write(STDERR_FILENO, now_running, sizeof(now_running));
    _exit(written > 0 ? 1 : 2);
}

int
main(void)
{
    signal(SIGABRT, on_abort);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_the_same_again),
    };
    size_t skipped = getenv("SHOAL_SEED") != NULL; /* one seed is what was asked for */
    return _cmocka_run_group_tests("mesh", tests, 2 - skipped, NULL, NULL);
}
