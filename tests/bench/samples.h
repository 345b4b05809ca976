/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the bench programs: a clock, pinning, CPU time of any process, exact percentiles of a
 * bounded number of samples, and how they are printed. A failure here ends the program with exit
 * code 2: a bench without its figures is worth nothing.
 */
#pragma once

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
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

/* The processes whose CPU time counts as the server's. */
enum { BENCH_SERVERS_MAX = 64 };

struct bench_servers {
    pid_t pids[BENCH_SERVERS_MAX];
    unsigned count;
};

static inline void
bench_servers_add(struct bench_servers *servers, const char *text)
{
    if (servers->count == BENCH_SERVERS_MAX)
        BENCH_FAIL("too many --server-pid");
    servers->pids[servers->count++] = (pid_t)bench_number("server-pid", text, 1, INT32_MAX);
}

static inline uint64_t
bench_servers_cpu_ns(const struct bench_servers *servers)
{
    uint64_t sum_ns = 0;
    for (unsigned i = 0; i < servers->count; i++)
        sum_ns += bench_cpu_ns(servers->pids[i]);
    return sum_ns;
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

/* One figure of those that a program prints. */
struct bench_field {
    const char *name;
    double value;
    int decimals;
};

/* Opens the program's line; with `json` the caller closes the brace. */
static inline void
bench_print_fields(const char *bench, const struct bench_field *fields, size_t count, bool json)
{
    printf(json ? "{\"bench\": \"%s\"" : "%s", bench);
    for (size_t i = 0; i < count; i++) {
        printf(json ? ", \"%s\": %.*f" : "  %s %.*f", fields[i].name, fields[i].decimals,
               fields[i].value);
    }
}

/* JSON: [share, microseconds that this share of the sorted samples did not exceed], the share of 1.
 */
static inline void
samples_print_distribution(const struct samples *samples)
{
    static const unsigned shares[] = {0,    1000, 2500, 5000, 7500, 9000,
                                      9500, 9900, 9950, 9990, 9999, 10000};
    printf(", \"distribution\": [");
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
        printf("%s[%.4f, %.2f]", i > 0 ? ", " : "", shares[i] / 1e4,
               samples_share_us(samples, shares[i]));
    printf("]");
}
