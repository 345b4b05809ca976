/* SPDX-License-Identifier: Apache-2.0 */
/* The results of a scale run. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "mesh/core/state.h"
#include "scale.h"

static double
per_cent(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
}

static int
by_size(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* max / mean, and 99th percentile / mean, of those that are up. */
static void
print_balance(const char *what, uint64_t *values, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += values[i];
    qsort(values, count, sizeof(*values), by_size);
    double mean = (double)sum / count;
    printf("%-28s max/mean %.3f, p99/mean %.3f, min/mean %.3f\n", what,
           (double)values[count - 1] / mean, (double)values[count * 99 / 100] / mean,
           (double)values[0] / mean);
}

static void
print_balances(void)
{
    uint64_t *memory = calloc(options.nodes, sizeof(*memory));
    uint64_t *served_by = calloc(options.nodes, sizeof(*served_by));
    CHECK(memory != NULL && served_by != NULL);
    uint32_t up = 0;
    for (uint32_t i = 0; i < options.nodes; i++)
        if (nodes[i].mesh != NULL && !nodes[i].draining) {
            memory[up] = nodes[i].mesh->pools.at[0].ledger.resident;
            served_by[up++] = nodes[i].served;
        }
    print_balance("memory in use of nodes", memory, up);
    print_balance("calls served by nodes", served_by, up);
    free(memory);
    free(served_by);
}

static void
print_copies(void)
{
    uint64_t copies[4] = {0};
    for (uint32_t m = 0; m < options.models; m++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < records[m].count; i++)
            count += records[m].places[i].kind != MESH_PLACE_FAILED &&
                     nodes[records[m].places[i].node].mesh != NULL;
        copies[count < 3 ? count : 3]++;
    }
    printf("models with 0, 1, 2, more copies: %llu %llu %llu %llu\n", (unsigned long long)copies[0],
           (unsigned long long)copies[1], (unsigned long long)copies[2],
           (unsigned long long)copies[3]);
}

void
print_hour(uint32_t hour, double seconds)
{
    static uint64_t calls_before, hits_before, oracle_before, loads_before, units_before;
    printf("hour %2u: hits %.2f %%, oracle %.2f %%, cold loads %.1f /s, moved %.1f GiB, %.0f s\n",
           hour, per_cent(figures.hits - hits_before, figures.calls - calls_before),
           per_cent(figures.oracle_hits - oracle_before, figures.calls - calls_before),
           (double)(figures.loads - loads_before) / 3600,
           (double)(figures.loaded_units - units_before) * UNIT_BYTES / (1 << 30), seconds);
    fflush(stdout);
    calls_before = figures.calls;
    hits_before = figures.hits;
    oracle_before = figures.oracle_hits;
    loads_before = figures.loads;
    units_before = figures.loaded_units;
}

void
print_all(void)
{
    double seconds = (double)now_ms / 1000;
    printf("\ncalls %llu: hits %.2f %%, an oracle LRU with the same memory %.2f %%\n",
           (unsigned long long)figures.calls, per_cent(figures.hits, figures.calls),
           per_cent(figures.oracle_hits, figures.calls));
    printf("calls by end:");
    for (int i = 0; i <= MESH_END_FULL; i++)
        printf(" %llu", (unsigned long long)figures.ends[i]);
    printf("\nloads %llu (%.1f /s), unloads %llu, moved %.1f GiB, forwards %llu\n",
           (unsigned long long)figures.loads, (double)figures.loads / seconds,
           (unsigned long long)figures.unloads,
           (double)figures.loaded_units * UNIT_BYTES / (1 << 30),
           (unsigned long long)figures.forwards);
    printf("etcd: %llu transactions (%.1f /s), %llu of them lost; %.1f events /s to %u mirrors of "
           "all; %.1f renewals of leases /s\n",
           (unsigned long long)figures.txns, (double)figures.txns / seconds,
           (unsigned long long)figures.txns_lost,
           (double)(figures.txns - figures.txns_lost) * options.nodes / seconds, options.nodes,
           options.nodes / 5.0);
    printf("nodes killed %llu, drained %llu; steps of cores %llu\n",
           (unsigned long long)figures.kills, (unsigned long long)figures.drains,
           (unsigned long long)figures.steps);
    print_balances();
    print_copies();
}
