/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A storm of deaths among the living. One coordinator and some workers pass requests through three
 * stages of a region at full speed, asleep in between as in life, while SIGKILL and SIGSTOP strike
 * the workers at random moments. The coordinator repairs at once and starts a successor, and goes
 * on submitting. At the end everything is drained: nothing may be lost, answered twice, answered
 * wrongly or leaked.
 *
 *     storm [--kills N] [--stops N] [--workers N] [--seed S] [--deadline SECONDS]
 *
 * --workers is for each stage. A run of a given seed is not the same run again (the kernel's
 * schedule is not ours), but it kills in the same order at the same distances.
 * ctest: timeout=300
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../random.h"
#include "base/check.h"
#include "base/clock.h"
#include "rig.h"
#include "shm/doorbell.h"
#include "shm/former.h"

enum { STAGES = 3, WORKERS_PER_STAGE_MAX = 8, SLOTS = 32, GAP_NS_MAX = 400 * 1000 };
enum { SEATS_MAX = STAGES * WORKERS_PER_STAGE_MAX };
#define SLEEP_NS (NS_PER_S / 100)
/* In life a sleep ends by itself after a second, which hides a lost wake; here it would show. */
#define WORKER_SLEEP_NS (60 * NS_PER_S)
#define PAUSE_NS_MAX (20 * NS_PER_S)

struct options {
    uint64_t kills;
    uint64_t stops;
    uint64_t seed;
    uint32_t workers; /* of each stage */
    int64_t deadline_ns;
};

struct entry {
    pid_t pid;
    uint16_t owner;
    int64_t resume_ns; /* stopped until then; 0: not stopped */
};

struct storm {
    struct options options;
    struct region region;
    struct rig_ledger ledger;
    struct entry seats[SEATS_MAX];
    uint32_t worker_entry_count;
    uint32_t owner_next;
    uint64_t random;
    uint64_t kills;
    uint64_t stops;
    uint64_t resets;
    struct repair_report repaired; /* sums */
    int64_t *repair_ns;            /* how long each repair took */
    int64_t end_ns;
    int64_t answered_ns; /* when the last answer came, or the last request went in */
    int64_t pause_ns;    /* the longest time without an answer while requests were in flight */
};

static void
storm_fail(const struct storm *storm, const char *what)
{
    fprintf(stderr, "storm: %s (seed %llu, after %llu kills)\n", what,
            (unsigned long long)storm->options.seed, (unsigned long long)storm->kills);
    for (uint32_t i = 0; i < storm->worker_entry_count; i++)
        if (storm->seats[i].pid > 0)
            kill(storm->seats[i].pid, SIGKILL);
    exit(1);
}

/* ---- workers ---- */

enum { BATCH_MAX = 3, COMPANY_NS = 200 * 1000 };

/* Gathers a batch; every now and then one that has room waits for company, asleep with the role. */
static uint32_t
worker_gather(const struct region *region, uint32_t stage, uint32_t index, uint16_t owner,
              struct shm_ticket *batch)
{
    struct shm_doorbell *bell = &region_worker(region, stage, index)->bell;
    struct shm_ring ring = region_slot_ring(region, (uint8_t)stage);
    int64_t end_ns = 0;
    uint32_t count = 0;
    for (;;) {
        while (count < BATCH_MAX &&
               slot_pop(region, (uint8_t)stage, owner, &batch[count]) == RING_OK)
            count++;
        if (count == 0 || count == BATCH_MAX || batch[0].generation % 4 != 0)
            return count;
        int64_t now_ns = clock_now_ns();
        if (end_ns == 0)
            end_ns = now_ns + COMPANY_NS;
        if (now_ns >= end_ns)
            return count;
        uint32_t prepared = doorbell_prepare(bell);
        if (ring_has_cell(&ring))
            doorbell_cancel(bell);
        else
            doorbell_sleep(bell, prepared, end_ns - now_ns);
    }
}

/* A worker's loop without a modelet: role, batch, rest. */
static void
worker_turn(const struct region *region, uint32_t stage, uint32_t index, uint16_t owner)
{
    struct shm_doorbell *bell = &region_worker(region, stage, index)->bell;
    if (former_take(region, stage, index, owner)) {
        struct shm_ticket batch[BATCH_MAX];
        uint32_t count = worker_gather(region, stage, index, owner, batch);
        CHECK(atomic_load(&region_stage(region, stage)->former) == (index << 16 | owner));
        former_leave(region, stage, index, owner);
        for (uint32_t i = 0; i < count; i++)
            CHECK(rig_run(region, stage, owner, batch[i]) == RING_OK);
        if (count > 0) {
            if (stage + 1 < STAGES)
                stage_notify(region, stage + 1);
            /* failures go to the coordinator from every stage */
            doorbell_ring(&region->header->coordinator_bell);
            return;
        }
    }
    idle_enter(region, stage, index);
    uint32_t prepared = doorbell_prepare(bell);
    if (stage_wants_former(region, stage, index, owner))
        doorbell_cancel(bell);
    else
        doorbell_sleep(bell, prepared, WORKER_SLEEP_NS);
    idle_leave(region, stage, index);
}

static void
worker_start(struct storm *storm, uint32_t entry)
{
    uint32_t stage = entry / storm->options.workers;
    uint32_t index = entry % storm->options.workers;
    uint16_t owner = (uint16_t)storm->owner_next++;
    atomic_store(&region_worker(&storm->region, stage, index)->owner, owner);
    pid_t coordinator = getpid();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == coordinator)
            worker_turn(&storm->region, stage, index, owner);
        _exit(0);
    }
    storm->seats[entry] = (struct entry){.pid = pid, .owner = owner};
}

/* ---- deaths ---- */

static void
worker_repair(struct storm *storm, uint32_t entry)
{
    struct entry *dead = &storm->seats[entry];
    struct repair_judge judge = {.judge = rig_judge, .context = &storm->ledger};
    struct repair_report report;
    struct error error = ERROR_NONE;
    int status;
    CHECK(waitpid(dead->pid, &status, 0) == dead->pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
        dead->pid = 0;
        storm_fail(storm, "a worker ended by itself");
    }
    int64_t began_ns = clock_now_ns();
    const struct repair_dead party = {dead->owner, entry / storm->options.workers,
                                      entry % storm->options.workers};
    if (region_repair(&storm->region, &party, OWNER_COORDINATOR, &judge, &report, &error) !=
        STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        storm_fail(storm, "repair failed");
    }
    storm->repair_ns[storm->kills++] = clock_now_ns() - began_ns;
    storm->repaired.run_again += report.run_again;
    storm->repaired.failed += report.failed;
    storm->repaired.pushed += report.pushed;
    storm->repaired.blocks_released += report.blocks_released;
}

static void
strike(struct storm *storm, int64_t now_ns)
{
    uint32_t entry = (uint32_t)(random_draw(&storm->random) % storm->worker_entry_count);
    struct entry *victim = &storm->seats[entry];
    bool stop = storm->stops < storm->options.stops && random_draw(&storm->random) % 4 == 0;
    if (stop && victim->resume_ns == 0) {
        kill(victim->pid, SIGSTOP);
        victim->resume_ns = now_ns + (int64_t)(random_draw(&storm->random) % (5 * GAP_NS_MAX));
        storm->stops++;
    } else if (storm->kills < storm->options.kills) {
        kill(victim->pid, SIGKILL); /* a stopped one too */
        worker_repair(storm, entry);
        worker_start(storm, entry);
    }
}

static void
resume(struct storm *storm, int64_t now_ns)
{
    for (uint32_t i = 0; i < storm->worker_entry_count; i++) {
        struct entry *entry = &storm->seats[i];
        if (entry->resume_ns != 0 && now_ns >= entry->resume_ns) {
            entry->resume_ns = 0;
            kill(entry->pid, SIGCONT);
        }
    }
}

/* ---- the coordinator ---- */

static uint32_t
gather(struct storm *storm)
{
    uint32_t gathered = 0;
    enum ring_result result;
    while ((result = rig_gather(&storm->region, &storm->ledger)) == RING_OK)
        gathered++;
    if (result == RING_CORRUPT)
        storm_fail(storm, "corrupt while gathering");
    int64_t now_ns = clock_now_ns();
    if (gathered == 0 && storm->ledger.answered < storm->ledger.submitted) {
        int64_t pause_ns = now_ns - storm->answered_ns;
        if (pause_ns > storm->pause_ns)
            storm->pause_ns = pause_ns;
        if (pause_ns > PAUSE_NS_MAX)
            storm_fail(storm, "work waits and all sleep");
    } else {
        storm->answered_ns = now_ns;
    }
    return gathered;
}

static bool
results_wait(const struct region *region)
{
    struct shm_ring results = region_slot_ring(region, region_result_place(region));
    struct shm_ring errors = region_slot_ring(region, PLACE_ERROR);
    return ring_has_cell(&results) || ring_has_cell(&errors);
}

static void
sleep_for_results(struct storm *storm, int64_t until_ns)
{
    struct shm_doorbell *bell = &storm->region.header->coordinator_bell;
    uint32_t prepared = doorbell_prepare(bell);
    int64_t now_ns = clock_now_ns();
    if (results_wait(&storm->region) || now_ns >= until_ns)
        doorbell_cancel(bell);
    else
        doorbell_sleep(bell, prepared, until_ns - now_ns);
}

static uint32_t
submit(struct storm *storm)
{
    uint32_t submitted = 0;
    enum ring_result result;
    while ((result = rig_submit(&storm->region, &storm->ledger, storm->ledger.submitted + 1)) ==
           RING_OK)
        submitted++;
    if (result == RING_CORRUPT)
        storm_fail(storm, "corrupt while submitting");
    if (submitted > 0)
        stage_notify(&storm->region, 0);
    return submitted;
}

/* Until everything in flight is answered. */
static void
drain(struct storm *storm)
{
    while (storm->ledger.answered < storm->ledger.submitted) {
        int64_t now_ns = clock_now_ns();
        if (now_ns > storm->end_ns)
            storm_fail(storm, "requests are left without an answer");
        resume(storm, now_ns);
        if (gather(storm) == 0)
            sleep_for_results(storm, now_ns + SLEEP_NS);
    }
}

/* Owner numbers are used up: a new region, as the coordinator would. */
static void
change_region(struct storm *storm)
{
    for (uint32_t i = 0; i < storm->worker_entry_count; i++) {
        kill(storm->seats[i].pid, SIGKILL);
        CHECK(waitpid(storm->seats[i].pid, NULL, 0) == storm->seats[i].pid);
    }
    struct region_plan plan = storm->region.layout.plan;
    region_detach(&storm->region);
    struct error error = ERROR_NONE;
    CHECK(region_create(&storm->region, &plan, ++storm->resets, &error) == STATUS_OK);
    storm->owner_next = OWNER_COORDINATOR + 1;
    for (uint32_t i = 0; i < storm->worker_entry_count; i++)
        worker_start(storm, i);
}

static void
check_conserved(struct storm *storm)
{
    if (storm->ledger.strange != 0)
        storm_fail(storm, "a request was answered twice");
    if (storm->ledger.wrong != 0)
        storm_fail(storm, "a request got another one's answer");
    const char *wrong = rig_conserved(&storm->region);
    if (wrong != NULL)
        storm_fail(storm, wrong);
}

static void
storm_run(struct storm *storm)
{
    int64_t strike_ns = clock_now_ns();
    while (storm->kills < storm->options.kills || storm->stops < storm->options.stops) {
        int64_t now_ns = clock_now_ns();
        if (now_ns > storm->end_ns)
            storm_fail(storm, "not done within the deadline");
        resume(storm, now_ns);
        if (now_ns >= strike_ns) {
            strike(storm, now_ns);
            strike_ns = clock_now_ns() + (int64_t)(random_draw(&storm->random) % GAP_NS_MAX);
        }
        if (storm->owner_next > OWNER_MAX - SEATS_MAX) {
            drain(storm);
            check_conserved(storm);
            change_region(storm);
        }
        if (gather(storm) + submit(storm) == 0)
            sleep_for_results(storm, strike_ns);
    }
    drain(storm);
    check_conserved(storm);
}

/* ---- main ---- */

static uint64_t
option(int argc, char **argv, const char *name, uint64_t otherwise)
{
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0)
            return strtoull(argv[i + 1], NULL, 10);
    return otherwise;
}

static int
by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void
print_report(struct storm *storm)
{
    printf("storm: %llu kills, %llu stops, %llu requests answered, %llu of them failed\n",
           (unsigned long long)storm->kills, (unsigned long long)storm->stops,
           (unsigned long long)storm->ledger.answered, (unsigned long long)storm->ledger.failed);
    printf("repaired: %u run again, %u failed, %u owed pushes, %u blocks given back\n",
           storm->repaired.run_again, storm->repaired.failed, storm->repaired.pushed,
           storm->repaired.blocks_released);
    if (storm->kills > 0) {
        qsort(storm->repair_ns, storm->kills, sizeof(int64_t), by_size);
        printf("repair time: median %lld us, longest %lld us\n",
               (long long)storm->repair_ns[storm->kills / 2] / NS_PER_US,
               (long long)storm->repair_ns[storm->kills - 1] / NS_PER_US);
    }
    printf("longest time without an answer: %lld ms\n", (long long)storm->pause_ns / NS_PER_MS);
    printf("lost 0, answered twice 0, wrong 0, leaked slots 0, leaked blocks 0\n");
}

int
main(int argc, char **argv)
{
    static struct storm storm;
    storm.options = (struct options){
        .kills = option(argc, argv, "--kills", 1000),
        .stops = option(argc, argv, "--stops", 200),
        .seed = random_seed(option(argc, argv, "--seed", (uint64_t)clock_now_ns())),
        .workers = (uint32_t)option(argc, argv, "--workers", 2),
        .deadline_ns = (int64_t)option(argc, argv, "--deadline", 240) * NS_PER_S,
    };
    if (storm.options.workers < 1 || storm.options.workers > WORKERS_PER_STAGE_MAX)
        return 2;
    storm.random = storm.options.seed;
    storm.end_ns = clock_now_ns() + storm.options.deadline_ns;
    storm.answered_ns = clock_now_ns();
    storm.worker_entry_count = STAGES * storm.options.workers;
    storm.owner_next = OWNER_COORDINATOR + 1;
    storm.repair_ns = calloc(storm.options.kills + 1, sizeof(int64_t));
    CHECK(storm.repair_ns != NULL);
    struct region_plan plan = rig_plan(STAGES, storm.options.workers, SLOTS);
    struct error error = ERROR_NONE;
    CHECK(region_create(&storm.region, &plan, 0, &error) == STATUS_OK);
    for (uint32_t i = 0; i < storm.worker_entry_count; i++)
        worker_start(&storm, i);
    storm_run(&storm);
    for (uint32_t i = 0; i < storm.worker_entry_count; i++) {
        kill(storm.seats[i].pid, SIGKILL);
        CHECK(waitpid(storm.seats[i].pid, NULL, 0) == storm.seats[i].pid);
    }
    print_report(&storm);
    free(storm.repair_ns);
    region_detach(&storm.region);
    return 0;
}
