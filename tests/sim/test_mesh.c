/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole meshes of real cores on virtual time, with all that goes wrong. Each seed has its own
 * number of nodes, models, room and faults. invariants/ has the properties.
 *
 * Runs the seeds of seeds.h, then new ones, which begin at a number made of the commit's, or at
 * SHOAL_SIM_BASE. SHOAL_SEED runs one seed and prints its options and the hash of its trace;
 * SHOAL_SIM_SEEDS=N runs N seeds from SHOAL_SEED, or from 1, on.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include "../test.h"
#include "base/check.h"
#include "seeds.h"
#include "world.h"

/* SEEDS_MANY: so many meet what is rare. */
enum { SEEDS_MANY = 400, SEED_TWICE = 1000, BASE = 1000000 };

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS_NEW = 20 }; /* each takes five times as long */
#else
enum { SEEDS_NEW = SEEDS_MANY };
#endif

static char now_running[64]; /* empty between two seeds */

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
    now_running[0] = '\0';
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

static uint64_t
setting(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text != NULL ? strtoull(text, NULL, 0) : otherwise;
}

static void
run_range(uint64_t first, uint64_t seeds)
{
    uint64_t hash = 0;
    memset(&total, 0, sizeof(total));
    for (uint64_t seed = first; seed < first + seeds; seed++)
        hash = hash * 31 + run(seed);
    print_total(seeds, hash);
    if (seeds < SEEDS_MANY)
        return; /* few may miss what is rare */
    assert_true(total.ends[MESH_END_OK] > 50 * seeds);
    assert_true(total.drained > 0 && total.reaped > 0 && total.relists > 0 && total.unknowns > 0);
}

/* The seeds that somebody asked for. */
TEST_CASE(test_seeds_given)
{
    uint64_t otherwise = getenv("SHOAL_SEED") != NULL ? 1 : SEEDS_MANY;
    run_range(setting("SHOAL_SEED", 1), setting("SHOAL_SIM_SEEDS", otherwise));
}

TEST_CASE(test_seeds_that_once_failed)
{
    for (size_t i = 0; i < ARRAY_COUNT(seeds_once_failed); i++)
        run(seeds_once_failed[i]);
}

/* Of each commit its own, and of one commit always the same. */
static uint64_t
base_of_commit(void)
{
    const char *folder = getenv("SHOAL_SOURCE_DIR");
    char command[PATH_MAX + 64];
    char digits[9] = "";
    snprintf(command, sizeof(command), "git -C '%s' rev-parse HEAD 2>/dev/null",
             folder != NULL ? folder : ".");
    FILE *git = popen(command, "r");
    if (git == NULL)
        return BASE;
    bool read = fgets(digits, sizeof(digits), git) != NULL;
    (void)pclose(git);
    return read ? BASE + strtoull(digits, NULL, 16) : BASE; /* no git, or no clone: the same */
}

TEST_CASE(test_new_seeds)
{
    uint64_t first = setting("SHOAL_SIM_BASE", base_of_commit());
    printf("%d new seeds from %llu on\n", SEEDS_NEW, (unsigned long long)first);
    run_range(first, SEEDS_NEW);
}

TEST_CASE(test_the_same_again)
{
    for (uint64_t seed = SEED_TWICE; seed < SEED_TWICE + 3; seed++)
        assert_true(run(seed) == run(seed));
    assert_true(run(SEED_TWICE) != run(SEED_TWICE + 1));
}

/* The seed that did not come to its end, so that `./dev test` can say how to run it again. */
static void
say_seed(void)
{
    if (write(STDERR_FILENO, now_running, strlen(now_running)) < 0)
        _exit(2);
}

/* cmocka goes on after a signal, a crash for instance. */
static int
after_each(void **state)
{
    (void)state;
    say_seed();
    now_running[0] = '\0';
    return 0;
}

static void
on_abort(int number)
{
    (void)number;
    say_seed();
    _exit(1);
}

int
main(void)
{
    signal(SIGABRT, on_abort);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_set_death_callback(say_seed);
#endif
    const struct CMUnitTest given[] = {
        cmocka_unit_test_teardown(test_seeds_given, after_each),
        cmocka_unit_test_teardown(test_the_same_again, after_each),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_seeds_that_once_failed, after_each),
        cmocka_unit_test_teardown(test_new_seeds, after_each),
        cmocka_unit_test_teardown(test_the_same_again, after_each),
    };
    if (getenv("SHOAL_SEED") != NULL) /* that seed is what was asked for */
        return _cmocka_run_group_tests("mesh", given, 1, NULL, NULL);
    if (getenv("SHOAL_SIM_SEEDS") != NULL)
        return cmocka_run_group_tests_name("mesh", given, NULL, NULL);
    return cmocka_run_group_tests_name("mesh", tests, NULL, NULL);
}
