/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The use of the adaptive wait: a stage is simulated, event by event and with fixed seeds, in
 * worlds with different callers and CPUs. The worker in it is the real one, as far as it decides:
 * worker/batch.h, cost.h, wait.h. Each world is gone through with the fixed waits 0, 0.5, 1, 2 and
 * 5 ms and with the adaptive one, of 5 ms at most. Assertions are in simulated time, so exact on
 * every machine: a lone caller is not made to wait, callers in a loop get at least as much done as
 * with the best fixed wait, the slow ones among Poisson arrivals and bursts wait hardly longer than
 * with it.
 *
 * A world: callers (in a loop, Poisson, or bursts) → a stage before, one item or a group at a time
 * (if it shares the CPU it stands still while our worker runs) → the stage's ring → the worker.
 * ctest: presets=release
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <math.h>

#include "../test.h"
#include "base/clock.h"
#include "worker/batch.h"
#include "worker/cost.h"
#include "worker/wait.h"

enum {
    US = NS_PER_US,
    MS = NS_PER_MS,
    CALLERS_MAX = 128,
    FLIGHT_MAX = 1024, /* admission: more are turned away */
    BATCH_SIZE = 64,
    ITEMS_MAX = 1 << 18,
    WORKERS_MAX = 2,
};

struct world {
    int64_t fixed_ns; /* of a run, and for each item */
    int64_t item_ns;
    uint32_t callers; /* each sends again `back_ns` and up to `jitter_ns` after its answer */
    int64_t back_ns;
    int64_t jitter_ns;
    int64_t gap_ns; /* Poisson arrivals, in the mean; 0: none */
    uint32_t burst; /* so many at once, … */
    int64_t burst_every_ns;
    int64_t before_ns; /* the stage before: for each item (half to one and a half times), 0: none */
    uint32_t before_items; /* … which it passes on in groups; 0: one by one */
    uint32_t workers;      /* of the stage; 0: one */
    bool shared_cpu;       /* it stands still while the worker runs */
    int64_t others_ns;     /* now and then others have it when the worker wakes up, so long */
    int64_t change_ns;     /* then there are so many callers, or this gap; 0: never */
    uint32_t callers_later;
    int64_t gap_later_ns;
    int64_t end_ns;
};

struct policy {
    uint32_t size;
    int64_t wait_ns;
    bool adaptive;
};

struct outcome {
    double items_per_ms; /* in the last three quarters, or since the change */
    double mean_ns;
    int64_t p50_ns;
    int64_t p99_ns;
    double batch;
    uint64_t closed[BATCH_CLOSED_ADAPTIVE + 1];
};

struct sim_item {
    int64_t sent_ns;
    int64_t enqueued_ns;
    uint32_t caller; /* CALLERS_MAX: none that waits */
};

struct queue {
    struct sim_item items[FLIGHT_MAX];
    uint32_t head;
    uint32_t count;
};

struct sim_worker {
    struct batch batch;
    struct cost cost;
    struct wait wait;
    struct sim_item hand[BATCH_SIZE];
    int64_t run_began_ns;
    int64_t run_end_ns;  /* TIME_NEVER_NS: it does not run */
    uint64_t pushes_had; /* when the run began */
};

struct sim {
    const struct world *world;
    struct sim_worker workers[WORKERS_MAX];
    uint32_t worker_count;
    struct sim_worker *former; /* NULL: none gathers */
    uint64_t seed;
    int64_t now_ns;
    uint32_t callers;
    uint32_t callers_ever; /* before the change and after it */
    int64_t gap_ns;
    int64_t send_ns[CALLERS_MAX];
    int64_t poisson_ns; /* when the next event of each kind is; TIME_NEVER_NS: not in sight */
    int64_t burst_ns;
    int64_t before_ns;
    int64_t look_ns; /* the former's next turn */
    int64_t change_ns;
    int64_t others_end_ns; /* until then others have the CPU */
    struct queue before;
    struct queue ring;
    uint32_t flight;
    uint64_t pushes;
    int64_t from_ns; /* what ends after this is counted */
    uint64_t batches;
    uint64_t batch_items;
    struct outcome outcome;
    uint32_t latency_count;
    int64_t latencies[ITEMS_MAX];
};

/* The cost of waking up. */
static const int64_t WAKE_NS = 3 * US;
static const double OTHERS_PART = 0.2;

/* A xorshift instead of ../random.h: the ratios that the tests demand hold for its sequence. */
static double
draw(struct sim *sim)
{
    sim->seed ^= sim->seed << 13;
    sim->seed ^= sim->seed >> 7;
    sim->seed ^= sim->seed << 17;
    return ((double)(sim->seed >> 11) + 1) / 9007199254740992.0;
}

static void
queue_put(struct queue *queue, struct sim_item item)
{
    assert_true(queue->count < FLIGHT_MAX);
    queue->items[(queue->head + queue->count++) % FLIGHT_MAX] = item;
}

static struct sim_item
queue_take(struct queue *queue)
{
    assert_true(queue->count > 0);
    struct sim_item item = queue->items[queue->head];
    queue->head = (queue->head + 1) % FLIGHT_MAX;
    queue->count--;
    return item;
}

static bool
running(const struct sim_worker *worker)
{
    return worker->run_end_ns != TIME_NEVER_NS;
}

/* If none gathers, one that does not run is to. */
static void
appoint(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->worker_count && sim->former == NULL; i++)
        if (!running(&sim->workers[i]))
            sim->former = &sim->workers[i];
}

/* ---- on the way to the worker ---- */

static void
push(struct sim *sim, struct sim_item item)
{
    item.enqueued_ns = sim->now_ns;
    queue_put(&sim->ring, item);
    sim->pushes++;
    appoint(sim);
    if (sim->former == NULL || sim->now_ns + WAKE_NS >= sim->look_ns ||
        sim->now_ns < sim->others_end_ns)
        return;
    sim->others_end_ns = sim->now_ns;
    if (sim->world->others_ns > 0 && draw(sim) < OTHERS_PART)
        sim->others_end_ns += (int64_t)(draw(sim) * 2 * (double)sim->world->others_ns);
    sim->look_ns = sim->others_end_ns + WAKE_NS;
}

static uint32_t
before_group(const struct sim *sim)
{
    uint32_t most = sim->world->before_items == 0 ? 1 : sim->world->before_items;
    return sim->before.count < most ? sim->before.count : most;
}

static void
before_begin(struct sim *sim)
{
    double each_ns = (double)sim->world->before_ns * (0.5 + draw(sim));
    const struct sim_worker *first = &sim->workers[0]; /* the only one where the CPU is shared */
    int64_t begin_ns = running(first) && sim->world->shared_cpu ? first->run_end_ns : sim->now_ns;
    if (begin_ns < sim->others_end_ns && sim->world->shared_cpu)
        begin_ns = sim->others_end_ns;
    sim->before_ns = begin_ns + (int64_t)(each_ns * before_group(sim));
}

static void
before_end(struct sim *sim)
{
    for (uint32_t left = before_group(sim); left > 0; left--)
        push(sim, queue_take(&sim->before));
    sim->before_ns = TIME_NEVER_NS;
    if (sim->before.count > 0)
        before_begin(sim);
}

static void
send(struct sim *sim, uint32_t caller)
{
    if (sim->flight == FLIGHT_MAX)
        return;
    struct sim_item item = {.sent_ns = sim->now_ns, .caller = caller};
    sim->flight++;
    if (sim->world->before_ns == 0) {
        push(sim, item);
        return;
    }
    queue_put(&sim->before, item);
    if (sim->before_ns == TIME_NEVER_NS)
        before_begin(sim);
}

/* ---- the worker ---- */

static void
run_begin(struct sim *sim, enum batch_state closed, const struct wait_moment *moment)
{
    struct sim_worker *worker = sim->former;
    uint32_t count = worker->batch.count;
    wait_closed(&worker->wait, moment);
    int64_t run_ns = sim->world->fixed_ns + sim->world->item_ns * count;
    worker->run_began_ns = sim->now_ns;
    worker->run_end_ns = sim->now_ns + run_ns;
    worker->pushes_had = sim->pushes;
    sim->batches++;
    sim->batch_items += count;
    sim->outcome.closed[closed]++;
    if (sim->world->shared_cpu && sim->before_ns != TIME_NEVER_NS)
        sim->before_ns += run_ns;
    sim->former = NULL;
    if (sim->ring.count == 0)
        return;
    appoint(sim);
    if (sim->former != NULL)
        sim->look_ns = sim->now_ns + WAKE_NS;
}

static void
run_end(struct sim *sim, struct sim_worker *worker)
{
    uint32_t count = worker->batch.count;
    for (uint32_t i = 0; i < count; i++) {
        const struct sim_item *item = &worker->hand[i];
        sim->flight--;
        if (sim->now_ns > sim->from_ns && sim->latency_count < ITEMS_MAX)
            sim->latencies[sim->latency_count++] = sim->now_ns - item->sent_ns;
        if (item->caller < sim->callers)
            sim->send_ns[item->caller] = sim->now_ns + sim->world->back_ns +
                                         (int64_t)(draw(sim) * (double)sim->world->jitter_ns);
    }
    cost_learn(&worker->cost, count, sim->now_ns - worker->run_began_ns, sim->now_ns);
    wait_ran(&worker->wait, worker->run_began_ns, sim->now_ns, count,
             (uint32_t)(sim->pushes - worker->pushes_had));
    batch_begin(&worker->batch);
    worker->run_end_ns = TIME_NEVER_NS;
    if (sim->former != NULL) {
        wait_looked_away(&worker->wait);
        return;
    }
    sim->former = worker;
    sim->look_ns = sim->now_ns;
}

/* A turn of the loop in worker/step.c. */
static void
look(struct sim *sim)
{
    struct sim_worker *worker = sim->former;
    struct batch *batch = &worker->batch;
    sim->look_ns = TIME_NEVER_NS;
    while (sim->ring.count > 0 && !batch_full(batch)) {
        struct sim_item item = queue_take(&sim->ring);
        worker->hand[batch->count] = item;
        wait_arrived(&worker->wait, item.enqueued_ns, sim->now_ns);
        assert_true(batch_offer(
            batch,
            (struct batch_item){.enqueued_ns = item.enqueued_ns, .deadline_ns = TIME_NEVER_NS},
            sim->now_ns));
    }
    if (batch->count == 0 && sim->worker_count > 1) { /* the role is another's to take */
        wait_looked_away(&worker->wait);
        sim->former = NULL;
    }
    if (batch->count == 0)
        return;
    struct cost_line line = cost_line(&worker->cost);
    struct wait_moment moment = {sim->now_ns,           batch->count,
                                 sim->flight,           (int64_t)line.fixed_ns,
                                 (int64_t)line.item_ns, batch->oldest_ns + batch->wait_ns};
    struct batch_due due =
        batch_due(batch, (struct batch_moment){
                             .now_ns = sim->now_ns,
                             .company_until_ns = wait_until(&worker->wait, &moment),
                         });
    if (due.state == BATCH_OPEN)
        sim->look_ns = due.look_again_ns;
    else
        run_begin(sim, due.state, &moment);
}

/* ---- the world ---- */

static int64_t
earlier(int64_t a_ns, int64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

static void
change(struct sim *sim)
{
    const struct world *world = sim->world;
    sim->change_ns = TIME_NEVER_NS;
    for (uint32_t i = sim->callers; i < world->callers_later; i++)
        sim->send_ns[i] = sim->now_ns + i * US;
    sim->callers = world->callers_later;
    sim->gap_ns = world->gap_later_ns;
}

static void
callers_step(struct sim *sim)
{
    for (uint32_t i = 0; i < sim->callers_ever; i++)
        if (sim->send_ns[i] == sim->now_ns) {
            sim->send_ns[i] = TIME_NEVER_NS;
            if (i < sim->callers)
                send(sim, i);
        }
    if (sim->poisson_ns == sim->now_ns) {
        send(sim, CALLERS_MAX);
        sim->poisson_ns += 1 + (int64_t)(-log(draw(sim)) * (double)sim->gap_ns);
    }
    if (sim->burst_ns == sim->now_ns) {
        for (uint32_t i = 0; i < sim->world->burst; i++)
            send(sim, CALLERS_MAX);
        sim->burst_ns += sim->world->burst_every_ns;
    }
}

static void
step(struct sim *sim)
{
    int64_t next_ns = earlier(sim->look_ns, earlier(sim->poisson_ns, sim->burst_ns));
    next_ns = earlier(next_ns, earlier(sim->before_ns, sim->change_ns));
    for (uint32_t i = 0; i < sim->callers_ever; i++)
        next_ns = earlier(next_ns, sim->send_ns[i]);
    for (uint32_t i = 0; i < sim->worker_count; i++)
        next_ns = earlier(next_ns, sim->workers[i].run_end_ns);
    assert_true(next_ns >= sim->now_ns && next_ns < TIME_NEVER_NS);
    sim->now_ns = next_ns;
    if (sim->change_ns == next_ns)
        change(sim);
    callers_step(sim);
    if (sim->before_ns == next_ns)
        before_end(sim);
    for (uint32_t i = 0; i < sim->worker_count; i++)
        if (sim->workers[i].run_end_ns == next_ns)
            run_end(sim, &sim->workers[i]);
    if (sim->look_ns == next_ns)
        look(sim);
}

static int
compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static struct outcome
simulate(const struct world *world, struct policy policy)
{
    static struct sim sim;
    memset(&sim, 0, sizeof(sim));
    sim.world = world;
    sim.seed = 88172645463325252u;
    sim.worker_count = world->workers == 0 ? 1 : world->workers;
    for (uint32_t i = 0; i < sim.worker_count; i++) {
        struct sim_worker *worker = &sim.workers[i];
        batch_init(&worker->batch, policy.size, policy.wait_ns);
        worker->batch.adaptive = policy.adaptive;
        worker->run_end_ns = TIME_NEVER_NS;
    }
    sim.callers = world->callers;
    sim.callers_ever =
        world->callers > world->callers_later ? world->callers : world->callers_later;
    sim.gap_ns = world->gap_ns;
    for (uint32_t i = 0; i < CALLERS_MAX; i++)
        sim.send_ns[i] = i < world->callers ? (int64_t)(draw(&sim) * 50 * US) : TIME_NEVER_NS;
    sim.poisson_ns = world->gap_ns > 0 ? world->gap_ns : TIME_NEVER_NS;
    sim.burst_ns = world->burst > 0 ? world->burst_every_ns : TIME_NEVER_NS;
    sim.before_ns = sim.look_ns = TIME_NEVER_NS;
    sim.change_ns = world->change_ns > 0 ? world->change_ns : TIME_NEVER_NS;
    sim.from_ns = world->change_ns > 0 ? world->change_ns : world->end_ns / 4;
    while (sim.now_ns < world->end_ns)
        step(&sim);
    assert_true(sim.latency_count > 0 && sim.latency_count < ITEMS_MAX);
    qsort(sim.latencies, sim.latency_count, sizeof(sim.latencies[0]), compare);
    double sum_ns = 0;
    for (uint32_t i = 0; i < sim.latency_count; i++)
        sum_ns += (double)sim.latencies[i];
    struct outcome outcome = sim.outcome;
    outcome.items_per_ms = sim.latency_count / ((double)(sim.now_ns - sim.from_ns) / MS);
    outcome.mean_ns = sum_ns / sim.latency_count;
    outcome.p50_ns = sim.latencies[sim.latency_count / 2];
    outcome.p99_ns = sim.latencies[(uint64_t)sim.latency_count * 99 / 100];
    outcome.batch = (double)sim.batch_items / (double)sim.batches;
    return outcome;
}

/* ---- comparing ---- */

struct ratios {
    double items;   /* adaptive ÷ the most of any fixed wait */
    double mean;    /* adaptive ÷ the least of any */
    double p99;     /* the same */
    double no_wait; /* items, adaptive ÷ fixed 0 */
    struct outcome adaptive;
};

static struct ratios
compare_waits(const char *name, const struct world *world)
{
    static const int64_t waits_ns[] = {0, MS / 2, MS, 2 * MS, 5 * MS};
    double most_items = 0;
    double least_mean_ns = INFINITY;
    double least_p99_ns = INFINITY;
    double no_wait_items = 0;
    for (size_t i = 0; i < sizeof(waits_ns) / sizeof(waits_ns[0]); i++) {
        struct outcome fixed =
            simulate(world, (struct policy){.size = BATCH_SIZE, .wait_ns = waits_ns[i]});
        most_items = fmax(most_items, fixed.items_per_ms);
        least_mean_ns = fmin(least_mean_ns, fixed.mean_ns);
        least_p99_ns = fmin(least_p99_ns, (double)fixed.p99_ns);
        if (waits_ns[i] == 0)
            no_wait_items = fixed.items_per_ms;
    }
    struct outcome adaptive =
        simulate(world, (struct policy){.size = BATCH_SIZE, .wait_ns = 5 * MS, .adaptive = true});
    struct ratios ratios = {
        .items = adaptive.items_per_ms / most_items,
        .mean = adaptive.mean_ns / least_mean_ns,
        .p99 = (double)adaptive.p99_ns / least_p99_ns,
        .no_wait = adaptive.items_per_ms / no_wait_items,
        .adaptive = adaptive,
    };
    printf("%-24s batch %5.1f  items/s %.3f (to no wait %5.2f)  mean %.3f  p99 %.3f\n", name,
           adaptive.batch, ratios.items, ratios.no_wait, ratios.mean, ratios.p99);
    return ratios;
}

static struct world
world_with(uint32_t callers)
{
    return (struct world){
        .fixed_ns = 100 * US,
        .item_ns = 2 * US,
        .callers = callers,
        .back_ns = 60 * US,
        .jitter_ns = 60 * US,
        .end_ns = 400 * MS,
    };
}

static struct world
world_open(int64_t gap_ns)
{
    struct world world = world_with(0);
    world.gap_ns = gap_ns;
    return world;
}

/* ---- the worlds ---- */

TEST_CASE(test_a_lone_caller)
{
    for (int64_t back_ns = 5 * US; back_ns < 20 * MS; back_ns *= 8) {
        struct world world = world_with(1);
        world.back_ns = back_ns;
        world.before_ns = 8 * US;
        struct outcome off = simulate(&world, (struct policy){.size = 1});
        struct outcome on = simulate(
            &world, (struct policy){.size = BATCH_SIZE, .wait_ns = 5 * MS, .adaptive = true});
        assert_true(on.p50_ns <= off.p50_ns + off.p50_ns / 20);
        assert_true(on.p99_ns <= off.p99_ns + off.p99_ns / 20);
        assert_int_equal(on.closed[BATCH_CLOSED_WAIT], 0);
        assert_true(on.closed[BATCH_CLOSED_ADAPTIVE] > 10);
    }
}

/* On a CPU of the worker's own, and behind a stage that has the same. */
TEST_CASE(test_callers_in_a_loop)
{
    static const uint32_t callers[] = {2, 4, 8, 16, 32, 64, 128};
    for (size_t i = 0; i < sizeof(callers) / sizeof(callers[0]); i++) {
        char name[32];
        struct world world = world_with(callers[i]);
        snprintf(name, sizeof(name), "%u callers", callers[i]);
        double least = callers[i] < 16 ? 0.95 : 0.98;
        assert_true(compare_waits(name, &world).items >= least);
        world.before_ns = 8 * US;
        snprintf(name, sizeof(name), "%u behind a stage", callers[i]);
        assert_true(compare_waits(name, &world).items >= least);
    }
    struct world world = world_with(16); /* callers that come back soon are worth waiting for */
    world.back_ns = 20 * US;
    world.jitter_ns = 20 * US;
    assert_true(compare_waits("16 callers, soon back", &world).no_wait >= 1.1);
}

/* The CPU is shared with the callers: without waiting each gets a run of its own. */
TEST_CASE(test_callers_on_one_cpu)
{
    static const struct {
        uint32_t callers;
        int64_t before_ns;
        double no_wait;
    } cases[] = {{128, 8 * US, 5},
                 {128, 20 * US, 4},
                 {64, 20 * US, 4},
                 {16, 20 * US, 2},
                 {1, 20 * US, 0.999}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world world = world_with(cases[i].callers);
        world.before_ns = cases[i].before_ns;
        world.shared_cpu = true;
        char name[32];
        snprintf(name, sizeof(name), "%u on one CPU", cases[i].callers);
        struct ratios ratios = compare_waits(name, &world);
        assert_true(ratios.items >= 0.98);
        assert_true(ratios.no_wait >= cases[i].no_wait);
    }
}

/* The CPU is shared with others, too, which keep it for a while. That nothing came meanwhile must
 * not look as if nobody would: batches would be a fraction of these. */
TEST_CASE(test_others_on_the_cpu)
{
    static const int64_t others_ns[] = {100 * US, 400 * US, 1000 * US};
    for (size_t i = 0; i < sizeof(others_ns) / sizeof(others_ns[0]); i++)
        for (uint32_t callers = 128; callers >= 32; callers /= 4) {
            struct world world = {
                .fixed_ns = 20 * US,
                .item_ns = 6 * US,
                .callers = callers,
                .back_ns = 60 * US,
                .jitter_ns = 60 * US,
                .before_ns = 10 * US,
                .shared_cpu = true,
                .others_ns = others_ns[i],
                .end_ns = 400 * MS,
            };
            char name[32];
            snprintf(name, sizeof(name), "%u, others %d us", callers, (int)(others_ns[i] / US));
            struct ratios ratios = compare_waits(name, &world);
            assert_true(ratios.items >= 0.98);
            assert_true(ratios.adaptive.batch >= callers / 8.0);
        }
}

TEST_CASE(test_poisson)
{
    static const int64_t gaps_ns[] = {2 * MS, 500 * US, 100 * US, 50 * US, 20 * US, 5 * US};
    for (size_t i = 0; i < sizeof(gaps_ns) / sizeof(gaps_ns[0]); i++) {
        struct world world = world_open(gaps_ns[i]);
        char name[32];
        snprintf(name, sizeof(name), "Poisson, %d us", (int)(gaps_ns[i] / US));
        struct ratios ratios = compare_waits(name, &world);
        assert_true(ratios.p99 <= 1.1);
        assert_true(ratios.mean <= 1.02);
    }
    for (int64_t gap_ns = 100 * US; gap_ns > 10 * US; gap_ns /= 2) {
        struct world world = world_open(gap_ns);
        world.before_ns = 8 * US;
        world.shared_cpu = true;
        struct ratios ratios = compare_waits("Poisson, on one CPU", &world);
        assert_true(ratios.p99 <= 1.1);
        assert_true(ratios.mean <= 1.1);
    }
}

/* Runs that are long beside what an item adds. Waiting pays little there and delays much: the slow
 * ones must not wait longer than without any. Over 12 s, for p99 moves by itself. */
TEST_CASE(test_poisson_and_long_runs)
{
    static const int64_t per_s[] = {200, 800, 2500};
    for (size_t i = 0; i < 2 * sizeof(per_s) / sizeof(per_s[0]); i++) {
        struct world world = world_open(NS_PER_S / per_s[i / 2]);
        world.workers = 1 + i % 2;
        world.fixed_ns = 4 * MS;
        world.item_ns = 50 * US;
        world.end_ns = 12 * (int64_t)NS_PER_S;
        struct outcome off = simulate(&world, (struct policy){.size = BATCH_SIZE, .wait_ns = 0});
        for (int64_t bound_ns = 2 * MS; bound_ns <= 5 * MS; bound_ns += 3 * MS) {
            struct outcome on = simulate(
                &world, (struct policy){.size = BATCH_SIZE, .wait_ns = bound_ns, .adaptive = true});
            double p99 = (double)on.p99_ns / (double)off.p99_ns;
            double mean = on.mean_ns / off.mean_ns;
            printf("Poisson, %4d/s, long runs, %u workers, %d ms at most: p99 %.3f  mean %.3f\n",
                   (int)per_s[i / 2], world.workers, (int)(bound_ns / MS), p99, mean);
            assert_true(p99 <= 1.05);
            assert_true(mean <= 1.05);
        }
    }
}

TEST_CASE(test_bursts)
{
    struct world world = world_open(0);
    world.burst = 32;
    world.burst_every_ns = 5 * MS;
    assert_true(compare_waits("bursts", &world).p99 <= 1.05);
    world.before_ns = 3 * US;
    assert_true(compare_waits("bursts through a stage", &world).p99 <= 1.05);
    world.burst = 1; /* steady, and alone each time */
    struct ratios ratios = compare_waits("one every 5 ms", &world);
    assert_true(ratios.p99 <= 1.01);
    assert_int_equal(ratios.adaptive.closed[BATCH_CLOSED_WAIT], 0);
}

/* Behind a stage that batches, too. */
TEST_CASE(test_clumps)
{
    struct world world = world_with(128);
    world.before_ns = 3 * US;
    world.before_items = 32;
    assert_true(compare_waits("128, in clumps of 32", &world).items >= 0.98);
    world.callers = 48;
    assert_true(compare_waits("48, in clumps of 32", &world).items >= 0.98);
}

/* Only what comes after the change is judged, learning included. */
TEST_CASE(test_changes)
{
    struct world world = world_with(1);
    world.change_ns = 100 * MS;
    world.callers_later = 128;
    world.before_ns = 8 * US;
    world.shared_cpu = true;
    struct ratios ratios = compare_waits("1, then 128", &world);
    assert_true(ratios.items >= 0.98);
    assert_true(ratios.no_wait >= 5);
    world.callers = 128;
    world.callers_later = 1;
    assert_true(compare_waits("128, then 1", &world).p99 <= 1.05);

    world = world_open(2 * MS);
    world.change_ns = 100 * MS;
    world.gap_later_ns = 20 * US;
    assert_true(compare_waits("Poisson 2 ms, then 20 us", &world).p99 <= 1.1);
    world.gap_ns = 20 * US;
    world.gap_later_ns = 2 * MS;
    assert_true(compare_waits("Poisson 20 us, then 2 ms", &world).p99 <= 1.1);
}

TEST_MAIN()
