/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every bench program needs: a clock, pinning, CPU time of any process, and exact percentiles
 * of a bounded number of samples. A failure here ends the program with exit code 2: a bench without
 * its figures is worth nothing.
 */
#pragma once

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sys/types.h>

#define BENCH_NS_PER_S 1000000000ull

#define BENCH_FAIL(...)                                                                            \
    do {                                                                                           \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        exit(2);                                                                                   \
    } while (0)

static inline uint64_t
bench_clock_ns(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        BENCH_FAIL("clock_gettime: %s", strerror(errno));
    return (uint64_t)now.tv_sec * BENCH_NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline uint64_t
bench_now_ns(void)
{
    return bench_clock_ns(CLOCK_MONOTONIC);
}

/* CPU time of all threads of a process, which need not be ours. */
static inline uint64_t
bench_cpu_ns(pid_t pid)
{
    clockid_t clock;
    int failure = clock_getcpuclockid(pid, &clock);
    if (failure != 0)
        BENCH_FAIL("no CPU clock of process %d: %s", (int)pid, strerror(failure));
    return bench_clock_ns(clock);
}

/* Pins the calling thread, and those that it starts from now on. */
static inline void
bench_pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        BENCH_FAIL("cannot pin to CPU %d: %s", cpu, strerror(errno));
}

/* The whole of a decimal argument, within limits. */
static inline uint64_t
bench_number(const char *option, const char *text, uint64_t min, uint64_t max)
{
    char *end = NULL;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value < min || value > max)
        BENCH_FAIL("--%s: want a number from %llu to %llu, not \"%s\"", option,
                   (unsigned long long)min, (unsigned long long)max, text);
    return value;
}

/* A bounded, exact record of nanoseconds, allocated and touched before the measurement begins. */
struct samples {
    uint32_t *ns;
    size_t count;
    size_t count_max;
};

static inline void
samples_init(struct samples *samples, size_t count_max)
{
    samples->ns = malloc(count_max * sizeof(samples->ns[0]));
    if (samples->ns == NULL)
        BENCH_FAIL("no memory for %zu samples", count_max);
    memset(samples->ns, 0xff, count_max * sizeof(samples->ns[0]));
    samples->count = 0;
    samples->count_max = count_max;
}

static inline void
samples_fini(struct samples *samples)
{
    free(samples->ns);
}

static inline int
samples_full(const struct samples *samples)
{
    return samples->count == samples->count_max;
}

/* Times beyond 4.29 s count as that. A full record ignores the rest: the caller ends the run by
 * samples_full. */
static inline void
samples_add(struct samples *samples, uint64_t ns)
{
    if (!samples_full(samples))
        samples->ns[samples->count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static inline int
samples_order(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static inline void
samples_sort(struct samples *samples)
{
    qsort(samples->ns, samples->count, sizeof(samples->ns[0]), samples_order);
}

/* Of sorted samples: the smallest that at least so many of 10,000 did not exceed, in microseconds;
 * so 9,990 is the 99.9th percentile. */
static inline double
samples_share_us(const struct samples *samples, unsigned per_10000)
{
    if (samples->count == 0)
        return 0;
    size_t rank = (samples->count * per_10000 + 9999) / 10000;
    return (double)samples->ns[rank == 0 ? 0 : rank - 1] / 1e3;
}

static inline double
samples_percentile_us(const struct samples *samples, unsigned percent)
{
    return samples_share_us(samples, percent * 100);
}
