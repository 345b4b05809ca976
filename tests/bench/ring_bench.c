/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings between two threads pinned to two cores: a plain ring, the same with cached indices, the
 * same with a record of a cache line per item, and Shoal's. Two figures:
 *
 *     stream  ns per item when one thread pushes and the other pops as fast as they can
 *     hop     ns one way when a single item goes to and fro through two rings: what a lone
 *             request feels
 *
 * Rounds alternate between the rings, so that a slow phase of the machine meets all alike; what is
 * printed is the median and the range over the rounds. Every round checks that all items arrived,
 * in order.
 *
 * Shoal's ring carries objects, not numbers, and there are only so many: the items go round from 0
 * to OBJECTS - 1, are laid out as far apart as slots are, and the producer waits until the consumer
 * has claimed its last use. The plain rings have nearly as many cells, so that each may run ahead
 * about as far.
 *
 *     ring_bench [--rounds N] [--items N] [--cpus A,B] [--json] [--help]
 */
#include "samples.h"

#include "ring_plain.h"

#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>

#include "shm/ring.h"

#define ROUNDS_MAX 99
#define OBJECTS 1000      /* no divisor of the plain ring's cells, so that a stale cell is seen */
#define OBJECT_STRIDE 320 /* a slot */
#define SPINS_MAX (1u << 27) /* some seconds: by then the other side is stuck */

enum { HOLDER = 2 }; /* the owner on both sides: threads of one process */

/* A call per item would be half the cost of the cheapest ring. */
#define INLINE static inline __attribute__((always_inline))

/* A ring under test, and its operations. Bodies return how many items came out of order. */
struct test {
    const char *name;
    const char *figure;
    void (*init)(void);
    uint64_t (*first)(uint64_t items);
    uint64_t (*second)(uint64_t items);
    unsigned share; /* it takes one in so many of the items: a hop is slower than a stream */
    unsigned hops;  /* ring passages that an item makes */
};

struct round {
    const struct test *test;
    pthread_barrier_t start;
    uint64_t items;
    int cpus[2];
    uint64_t elapsed_ns;
    uint64_t disorder;
};

/* [0] leads from the first thread to the second, [1] back. */
static struct ring_plain plain[2];
static struct ring_record record[2];
static struct shm_ring ring[2];
static struct shm_objects objects = {.stride = OBJECT_STRIDE, .count = OBJECTS};

INLINE uint64_t
item_next(uint64_t item)
{
    return item + 1 == OBJECTS ? 0 : item + 1;
}

/* A turn of a bounded wait. */
INLINE void
relax(uint32_t *spins)
{
    if (++*spins == SPINS_MAX)
        BENCH_FAIL("an item was lost: nothing moved for %u turns", SPINS_MAX);
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void
plain_init(void)
{
    ring_plain_init(&plain[0]);
    ring_plain_init(&plain[1]);
}

static void
record_init(void)
{
    for (uint8_t i = 0; i < 2; i++) {
        atomic_store(&record[i].head, 0);
        atomic_store(&record[i].tail, 0);
    }
}

/* Once: the memory. Every round: empty rings, and all objects held, ready to be pushed. */
static void
shoal_init(void)
{
    if (objects.first == NULL)
        objects.first = aligned_alloc(64, (size_t)OBJECTS * OBJECT_STRIDE);
    for (uint8_t i = 0; i < 2; i++) {
        ring[i].place = i;
        ring[i].cell_count = ring_cells_for(OBJECTS);
        ring[i].cell_count_log2 = (uint32_t)__builtin_ctz(ring[i].cell_count);
        if (ring[i].shared == NULL)
            ring[i].shared = aligned_alloc(64, (ring_bytes(ring[i].cell_count) + 63) / 64 * 64);
        if (ring[i].shared == NULL || objects.first == NULL)
            BENCH_FAIL("no memory for the rings");
        ring_init(&ring[i]);
    }
    for (uint32_t i = 0; i < OBJECTS; i++) {
        struct shm_word held = {.generation = 1, .held = true, .owner = HOLDER};
        atomic_store_explicit(object_word(&objects, i), word_pack(held), memory_order_relaxed);
    }
}

INLINE bool
shoal_push(struct shm_ring *to, uint64_t item)
{
    uint32_t index = (uint32_t)item;
    uint64_t held = atomic_load_explicit(object_word(&objects, index), memory_order_acquire);
    struct shm_word word = word_unpack(held);
    if (!word.held)
        return false;
    enum ring_result result = ring_push(to, &objects, index, held, word.generation, HOLDER);
    if (result != RING_OK)
        BENCH_FAIL("push of item %llu: result %d", (unsigned long long)item, (int)result);
    return true;
}

INLINE bool
shoal_pop(struct shm_ring *from, uint64_t *item)
{
    struct shm_ticket taken;
    enum ring_result result = ring_pop(from, &objects, HOLDER, &taken);
    if (result == RING_EMPTY)
        return false;
    if (result != RING_OK)
        BENCH_FAIL("pop: result %d", (int)result);
    *item = taken.index;
    return true;
}

/* The same four bodies for each ring, as whole functions, so that its push and pop are inlined
 * where they can be. */
#define BODIES(kind, rings)                                                                        \
    INLINE void kind##_put(unsigned way, uint64_t item)                                            \
    {                                                                                              \
        uint32_t spins = 0;                                                                        \
        while (!kind##_push(&(rings)[way], item))                                                  \
            relax(&spins);                                                                         \
    }                                                                                              \
    INLINE uint64_t kind##_get(unsigned way, uint64_t wanted)                                      \
    {                                                                                              \
        uint64_t item = 0;                                                                         \
        uint32_t spins = 0;                                                                        \
        while (!kind##_pop(&(rings)[way], &item))                                                  \
            relax(&spins);                                                                         \
        return item != wanted;                                                                     \
    }                                                                                              \
    static uint64_t kind##_produce(uint64_t items)                                                 \
    {                                                                                              \
        for (uint64_t i = 0, item = 0; i < items; i++, item = item_next(item))                     \
            kind##_put(0, item);                                                                   \
        return 0;                                                                                  \
    }                                                                                              \
    static uint64_t kind##_consume(uint64_t items)                                                 \
    {                                                                                              \
        uint64_t disorder = 0;                                                                     \
        for (uint64_t i = 0, item = 0; i < items; i++, item = item_next(item))                     \
            disorder += kind##_get(0, item);                                                       \
        return disorder;                                                                           \
    }                                                                                              \
    static uint64_t kind##_ping(uint64_t items)                                                    \
    {                                                                                              \
        uint64_t disorder = 0;                                                                     \
        for (uint64_t i = 0, item = 0; i < items; i++, item = item_next(item)) {                   \
            kind##_put(0, item);                                                                   \
            disorder += kind##_get(1, item);                                                       \
        }                                                                                          \
        return disorder;                                                                           \
    }                                                                                              \
    static uint64_t kind##_pong(uint64_t items)                                                    \
    {                                                                                              \
        uint64_t disorder = 0;                                                                     \
        for (uint64_t i = 0, item = 0; i < items; i++, item = item_next(item)) {                   \
            disorder += kind##_get(0, item);                                                       \
            kind##_put(1, item);                                                                   \
        }                                                                                          \
        return disorder;                                                                           \
    }

BODIES(ring_plain, plain)
BODIES(ring_cached, plain)
BODIES(ring_record, record)
BODIES(shoal, ring)

static const struct test TESTS[] = {
    {"plain", "stream", plain_init, ring_plain_produce, ring_plain_consume, 1, 1},
    {"plain_cached", "stream", plain_init, ring_cached_produce, ring_cached_consume, 1, 1},
    {"plain_record", "stream", record_init, ring_record_produce, ring_record_consume, 1, 1},
    {"shoal", "stream", shoal_init, shoal_produce, shoal_consume, 1, 1},
    {"plain", "hop", plain_init, ring_plain_ping, ring_plain_pong, 20, 2},
    {"plain_cached", "hop", plain_init, ring_cached_ping, ring_cached_pong, 20, 2},
    {"plain_record", "hop", record_init, ring_record_ping, ring_record_pong, 20, 2},
    {"shoal", "hop", shoal_init, shoal_ping, shoal_pong, 20, 2},
};
#define TEST_COUNT (sizeof(TESTS) / sizeof(TESTS[0]))

static void *
first_thread(void *context)
{
    struct round *round = context;
    bench_pin(round->cpus[0]);
    pthread_barrier_wait(&round->start);
    uint64_t disorder = round->test->first(round->items);
    if (disorder != 0)
        BENCH_FAIL("%s: items came back out of order", round->test->name);
    return NULL;
}

static void *
second_thread(void *context)
{
    struct round *round = context;
    bench_pin(round->cpus[1]);
    pthread_barrier_wait(&round->start);
    uint64_t begin_ns = bench_now_ns();
    round->disorder = round->test->second(round->items);
    round->elapsed_ns = bench_now_ns() - begin_ns;
    return NULL;
}

static double
round_run(const struct test *test, uint64_t items, const int cpus[2])
{
    struct round round = {
        .test = test, .items = items / test->share + 1, .cpus = {cpus[0], cpus[1]}};
    pthread_t threads[2];
    test->init();
    pthread_barrier_init(&round.start, NULL, 2);
    if (pthread_create(&threads[0], NULL, first_thread, &round) != 0 ||
        pthread_create(&threads[1], NULL, second_thread, &round) != 0)
        BENCH_FAIL("cannot start threads");
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    pthread_barrier_destroy(&round.start);
    if (round.disorder != 0)
        BENCH_FAIL("%s: %llu of %llu items out of order", test->name,
                   (unsigned long long)round.disorder, (unsigned long long)round.items);
    return (double)round.elapsed_ns / (double)(round.items * test->hops);
}

static int
double_order(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The first two CPUs that we may run on. */
static void
choose_cpus(int cpus[2])
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        BENCH_FAIL("sched_getaffinity: %s", strerror(errno));
    int found = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
        if (CPU_ISSET((size_t)cpu, &set))
            cpus[found++] = cpu;
    }
    if (found < 2)
        BENCH_FAIL("two CPUs are needed: on one, this would measure the scheduler");
}

static void
print_test(const struct test *test, double *ns, uint64_t rounds, bool json)
{
    qsort(ns, rounds, sizeof(ns[0]), double_order);
    printf(json ? "{\"bench\": \"ring\", \"ring\": \"%s\", \"figure\": \"%s\", \"ns\": %.2f, "
                  "\"min\": %.2f, \"max\": %.2f, \"rounds\": %llu}\n"
                : "%-14s %-7s %8.2f ns  [%.2f - %.2f] in %llu rounds\n",
           test->name, test->figure, ns[rounds / 2], ns[0], ns[rounds - 1],
           (unsigned long long)rounds);
}

static const char usage[] =
    "Usage: ring_bench [--rounds N] [--items N] [--cpus A,B] [--json] [--help]\n";

static const struct option OPTIONS[] = {
    {"rounds", required_argument, NULL, 'r'}, {"items", required_argument, NULL, 'i'},
    {"cpus", required_argument, NULL, 'c'},   {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
};

int
main(int argc, char **argv)
{
    static double ns[TEST_COUNT][ROUNDS_MAX];
    uint64_t rounds = 7;
    uint64_t items = 4000000;
    int cpus[2] = {-1, -1};
    bool json = false;
    int option;
    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        switch (option) {
        case 'r': rounds = bench_number("rounds", optarg, 1, ROUNDS_MAX); break;
        case 'i': items = bench_number("items", optarg, 1, 1000000000); break;
        case 'j': json = true; break;
        case 'h': fputs(usage, stdout); return 0;
        case 'c':
            if (sscanf(optarg, "%d,%d", &cpus[0], &cpus[1]) != 2)
                BENCH_FAIL("--cpus: want two numbers, \"A,B\"");
            break;
        default: BENCH_FAIL("%s", usage);
        }
    }
    if (cpus[0] < 0)
        choose_cpus(cpus);
    for (size_t t = 0; t < TEST_COUNT; t++)
        round_run(&TESTS[t], items / 10 + 1, cpus);
    for (uint64_t round = 0; round < rounds; round++) {
        for (size_t t = 0; t < TEST_COUNT; t++)
            ns[t][round] = round_run(&TESTS[t], items, cpus);
    }
    for (size_t t = 0; t < TEST_COUNT; t++)
        print_test(&TESTS[t], ns[t], rounds, json);
    return 0;
}
