/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Death after every single instruction. A child performs one operation on a shared region under
 * ptrace, one instruction at a time. After each instruction the bytes of the region are what a
 * SIGKILL at this point would leave, so the parent keeps a copy, repairs, lets a survivor finish
 * all work, and checks that every request was answered once and every slot and block is free; then
 * it puts the bytes back and steps on. An instruction that changed no byte leaves what the one
 * before it left, and needs no second look. At the end of each operation, and at one point within
 * it, the child is in fact killed.
 *
 * Every operation runs at five fill levels of the ring it is about: empty, one, half, all but one,
 * full. Repair is stepped through in the same way, from every state that a death in the middle of a
 * worker's step leaves, and then repaired for both.
 *
 * This program and its copy of src/shm are built without sanitizers (CMakeLists.txt): their
 * instructions are not ours. ctest: timeout=300
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "rig.h"
#include "shm/arena.h"
#include "shm/doorbell.h"
#include "shm/former.h"
#include "shm/piece.h"

enum { SLOTS = 8, STAGES = 2, VICTIM = 2, SURVIVOR = 3, REPAIRER = 4, STEPS_MAX = 200000 };
enum { LEVELS = 5 };
static const uint32_t level_items[LEVELS] = {0, 1, SLOTS / 2, SLOTS - 1, SLOTS};

static struct region region;
static char *pristine; /* a fresh region */
static char *restored; /* the region as the stepped child left it */
static struct rig_ledger ledger;
static uint32_t pieces_of[SLOTS]; /* of the answer in flight, popped so far */

/* The operation's objects in the child: set up before it is forked. */
static struct {
    struct shm_ticket ticket;
    uint32_t block;
} given;

struct operation {
    const char *name;
    /* Fills the region for `items` in the ring concerned; false: this level makes no sense. */
    bool (*prepare)(uint32_t items);
    void (*run)(void);
    uint32_t seat_stage; /* where the victim sits; STAGES_MAX: nowhere */
};

static size_t
region_bytes(void)
{
    return region.layout.region_bytes;
}

/* ---- filling ---- */

static void
submit(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(rig_submit(&region, &ledger, ledger.submitted + 1), RING_OK);
}

/* Passes `count` requests on from stage 0 to the place `to`. */
static void
bring_to(uint8_t to, uint32_t count)
{
    for (uint32_t stage = 0; stage < to; stage++)
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(rig_stage(&region, stage, SURVIVOR), RING_OK);
}

static void
take_for_victim(uint8_t place, uint16_t owner)
{
    assert_int_equal(slot_pop(&region, place, owner, &given.ticket), RING_OK);
}

/* ---- operations ---- */

static bool
prepare_acquire(uint32_t items)
{
    submit(SLOTS - items); /* items are left in the free ring */
    return true;
}

static void
run_acquire(void)
{
    struct shm_ticket ticket;
    (void)!slot_acquire(&region, VICTIM, &ticket);
}

static bool
prepare_push(uint32_t items)
{
    if (items == SLOTS)
        return false; /* the victim holds one of them */
    submit(items);
    bring_to(1, items);
    submit(1);
    take_for_victim(0, VICTIM);
    return true;
}

static void
run_run(void)
{
    (void)!rig_run(&region, 0, VICTIM, given.ticket);
    stage_notify(&region, 1);
}

static void
run_push(void)
{
    /* the same place again: the ring of stage 0 with a ticket that it has seen */
    (void)!slot_push(&region, given.ticket, 0, 0, VICTIM, 1);
}

static bool
prepare_push_back(uint32_t items)
{
    if (items == SLOTS)
        return false;
    submit(items + 1);
    take_for_victim(0, VICTIM);
    return true;
}

static bool
prepare_stage(uint32_t items)
{
    submit(items);
    return true;
}

static void
run_pop(void)
{
    struct shm_ticket ticket;
    (void)!slot_pop(&region, 0, VICTIM, &ticket);
}

static void
run_stage(void)
{
    if (rig_stage(&region, 0, VICTIM) == RING_OK)
        stage_notify(&region, 1);
}

static bool
prepare_last_stage(uint32_t items)
{
    submit(items);
    bring_to(1, items);
    return true;
}

static void
run_last_stage(void)
{
    if (rig_stage(&region, 1, VICTIM) == RING_OK)
        doorbell_ring(&region.header->coordinator_bell);
}

static bool
prepare_release(uint32_t items)
{
    if (items == SLOTS)
        return false;
    submit(SLOTS - items);
    bring_to(2, SLOTS - items);
    take_for_victim(2, VICTIM);
    rig_answer(&region, &ledger, given.ticket, 2); /* answered before it is released */
    return true;
}

static void
run_release(void)
{
    (void)!slot_release(&region, given.ticket, 2, VICTIM);
}

static bool
prepare_arena(uint32_t items)
{
    /* `items` of SLOTS requests use blocks, and the victim's request is one more */
    return prepare_push_back(items);
}

static void
run_arena_acquire(void)
{
    uint32_t block;
    (void)!arena_acquire(&region, given.ticket.index, 1, &block);
}

static bool
prepare_arena_release(uint32_t items)
{
    if (!prepare_push_back(items))
        return false;
    assert_int_equal(arena_acquire(&region, given.ticket.index, 1, &given.block), STATUS_OK);
    return true;
}

static void
run_arena_release(void)
{
    arena_release(&region, given.ticket.index, given.block, VICTIM);
}

static void
run_fail(void)
{
    struct shm_slot *slot = region_slot(&region, given.ticket.index);
    struct shm_payload *current = &slot->payload[0], *next = &slot->payload[1];
    static struct payload_builder builder;
    struct error error = ERROR_NONE;
    struct shoal_tensor tensor = {
        .name = "x", .datatype = SHOAL_UINT8, .rank = 1, .shape = {100}, .bytes = 100};
    void *data;
    builder_init(&builder, &region, given.ticket.index, VICTIM, current, next);
    (void)!builder_add(&builder, &tensor, &data, &error);
    builder_abandon(&builder, next);
    slot_set_failure(slot, 0, STATUS_INTERNAL, "the modelet says no");
    (void)!slot_push(&region, given.ticket, 0, PLACE_ERROR, VICTIM, 1);
    doorbell_ring(&region.header->coordinator_bell);
}

static bool
prepare_emit(uint32_t items)
{
    if (items == SLOTS)
        return false;
    submit(items + 1);
    bring_to(1, items + 1);
    take_for_victim(1, VICTIM);
    return true;
}

/* Two pieces, the second of two blocks that are brought together, and the end. */
static void
run_emit(void)
{
    static struct payload_builder builder;
    struct shm_slot *slot = region_slot(&region, given.ticket.index);
    struct error error = ERROR_NONE;
    struct shoal_tensor tensor = {
        .name = "x", .datatype = SHOAL_UINT8, .rank = 1, .shape = {100}, .bytes = 100};
    struct shoal_tensor other = {
        .name = "y", .datatype = SHOAL_UINT8, .rank = 1, .shape = {3000}, .bytes = 3000};
    const struct piece_pusher pusher = {&region, given.ticket, VICTIM, 0, &slot->payload[0]};
    void *data;
    builder_init(&builder, &region, given.ticket.index, VICTIM, &slot->payload[1],
                 &slot->payload[0]);
    (void)!builder_add(&builder, &tensor, &data, &error);
    (void)!piece_push(&pusher, &builder, &error);
    (void)!builder_add(&builder, &tensor, &data, &error);
    (void)!builder_add(&builder, &other, &data, &error);
    (void)!piece_push(&pusher, &builder, &error);
    builder_abandon(&builder, &slot->payload[0]);
    (void)!rig_run(&region, 1, VICTIM, given.ticket);
    doorbell_ring(&region.header->coordinator_bell);
}

/* The victim has stage 0 to itself, and takes and leaves the role; the survivor sleeps. */
static void
run_former(void)
{
    struct shm_ticket ticket;
    idle_enter(&region, 0, 0);
    uint32_t prepared = doorbell_prepare(&region_worker(&region, 0, 0)->bell);
    (void)prepared;
    doorbell_cancel(&region_worker(&region, 0, 0)->bell);
    idle_leave(&region, 0, 0);
    if (former_take(&region, 0, 0, VICTIM))
        (void)!slot_pop(&region, 0, VICTIM, &ticket);
    former_leave(&region, 0, 0, VICTIM);
    stage_notify(&region, 0);
}

static const struct operation operations[] = {
    {"slot_acquire", prepare_acquire, run_acquire, STAGES_MAX},
    {"slot_push_back", prepare_push_back, run_push, 0},
    {"slot_pop", prepare_stage, run_pop, 0},
    {"slot_release", prepare_release, run_release, STAGES_MAX},
    {"arena_acquire", prepare_arena, run_arena_acquire, 0},
    {"arena_release", prepare_arena_release, run_arena_release, 0},
    {"run_and_push", prepare_push, run_run, 0},
    {"stage_step", prepare_stage, run_stage, 0},
    {"last_stage_step", prepare_last_stage, run_last_stage, 1},
    {"abandon_and_fail", prepare_push_back, run_fail, 0},
    {"emit", prepare_emit, run_emit, 1},
    {"former", prepare_stage, run_former, 0},
};

/* ---- after a death ---- */

/* As the coordinator's: a request of which a piece was counted is not run again. */
static enum repair_verdict
judge_death(void *context, struct shm_ticket ticket, uint8_t stage, struct error *error)
{
    enum repair_verdict verdict = rig_judge(context, ticket, stage, error);
    if (verdict != REPAIR_RUN_AGAIN ||
        slot_emitted(region_slot(&region, ticket.index), ticket.generation) == 0)
        return verdict;
    (void)error_set(error, STATUS_UNAVAILABLE, "it had begun to answer");
    return REPAIR_FAIL;
}

/* All pieces that are there: each of a request in flight, the next of its answer. */
static void
take_pieces(void)
{
    struct piece piece;
    enum ring_result result;
    while ((result = piece_pop(&region, &piece)) == RING_OK) {
        assert_true(piece.ticket.index < SLOTS);
        assert_int_equal(ledger.generation[piece.ticket.index], piece.ticket.generation);
        assert_int_equal(piece.number, pieces_of[piece.ticket.index]++);
        assert_int_equal(piece.payload.tensor_count, piece.number == 0 ? 1 : 2);
        assert_int_equal(piece_release(&region, piece.block), STATUS_OK);
    }
    assert_int_equal(result, RING_EMPTY);
}

static void
repair(uint16_t owner, uint32_t seat_stage)
{
    const struct repair_dead dead = {.owner = owner, .stage = seat_stage};
    struct repair_judge judge = {.judge = judge_death, .context = &ledger};
    struct repair_report report;
    struct error error = ERROR_NONE;
    if (region_repair(&region, &dead, OWNER_COORDINATOR, &judge, &report, &error) != STATUS_OK)
        fail_msg("region_repair: %s", error.text);
}

static void
drain(void)
{
    uint32_t idle_turns = 0;
    while (idle_turns < 2) {
        uint32_t done = 0;
        for (uint32_t stage = 0; stage < STAGES; stage++)
            done += rig_stage(&region, stage, SURVIVOR) == RING_OK;
        take_pieces(); /* before the ends */
        enum ring_result result = rig_gather(&region, &ledger);
        assert_int_not_equal(result, RING_CORRUPT);
        idle_turns = done == 0 && result != RING_OK ? idle_turns + 1 : 0;
    }
}

/* Nobody else can be waiting without a wake-up to come: the survivor's bell has been rung, the role
 * is free or his, and not on offer. */
static void
assert_awake(const uint32_t *sequences)
{
    uint32_t n = 0;
    for (uint32_t stage = 0; stage < STAGES; stage++) {
        uint32_t former = atomic_load(&region_stage(&region, stage)->former);
        assert_true(former == 0 ||
                    ((former & FORMER_OFFERED) == 0 && (former & OWNER_MAX) == SURVIVOR));
        for (uint32_t i = 0; i < 2; i++)
            assert_int_not_equal(atomic_load(&region_worker(&region, stage, i)->bell.sequence),
                                 sequences[n++]);
    }
    assert_int_not_equal(atomic_load(&region.header->coordinator_bell.sequence), sequences[n]);
}

static void
note_sequences(uint32_t *sequences)
{
    uint32_t n = 0;
    for (uint32_t stage = 0; stage < STAGES; stage++)
        for (uint32_t i = 0; i < 2; i++)
            sequences[n++] = atomic_load(&region_worker(&region, stage, i)->bell.sequence);
    sequences[n] = atomic_load(&region.header->coordinator_bell.sequence);
}

static void
finish_and_check(bool released_by_victim)
{
    memset(pieces_of, 0, sizeof(pieces_of));
    drain();
    for (uint32_t i = 0; i < SLOTS; i++) { /* one more may be counted than was pushed */
        struct shm_word word = slot_where(&region, i);
        uint32_t emitted = slot_emitted(region_slot(&region, i), word.generation - 1);
        assert_in_range(pieces_of[i], emitted == 0 ? 0 : emitted - 1, emitted);
    }
    if (released_by_victim) /* its answer was given: it comes back unanswered-for, once at most */
        assert_in_range(ledger.strange, 0, 1);
    else
        assert_int_equal(ledger.strange, 0);
    assert_int_equal(ledger.wrong, 0);
    assert_int_equal(ledger.answered, ledger.submitted);
    const char *wrong = rig_conserved(&region);
    if (wrong != NULL)
        fail_msg("%s", wrong);
}

/* ---- stepping ---- */

struct stepped {
    pid_t pid;
    uint64_t steps;
    uint64_t states; /* that differ from the one before */
};

static pid_t
start_stepped(void (*run)(void))
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        run();
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    return pid;
}

/* One instruction; false when the second marker has been reached. */
static bool
step(pid_t pid)
{
    int status;
    assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status));
    if (WSTOPSIG(status) == SIGSTOP)
        return false;
    assert_int_equal(WSTOPSIG(status), SIGTRAP);
    return true;
}

static void
kill_stepped(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Steps a child through `run`; calls `look` for every state that it leaves behind. */
static struct stepped
step_through(void (*run)(void), char *image, void (*look)(const void *context), const void *context)
{
    struct stepped stepped = {.pid = start_stepped(run)};
    struct rig_ledger before = ledger;
    memcpy(image, region.base, region_bytes());
    bool first = true;
    bool more;
    do {
        more = step(stepped.pid);
        stepped.steps++;
        assert_true(stepped.steps < STEPS_MAX);
        if (!first && memcmp(image, region.base, region_bytes()) == 0)
            continue;
        first = false;
        stepped.states++;
        memcpy(image, region.base, region_bytes());
        look(context);
        memcpy(region.base, image, region_bytes());
        ledger = before;
    } while (more);
    kill_stepped(stepped.pid);
    return stepped;
}

/* The same death in earnest: SIGKILL after so many instructions. */
static void
kill_after(void (*run)(void), uint64_t steps)
{
    pid_t pid = start_stepped(run);
    for (uint64_t i = 0; i < steps && step(pid); i++)
        ;
    kill_stepped(pid);
}

/* ---- death in an operation ---- */

static void
reset(void)
{
    memcpy(region.base, pristine, region_bytes());
    memset(&ledger, 0, sizeof(ledger));
    for (uint32_t stage = 0; stage < STAGES; stage++) {
        for (uint32_t i = 0; i < 2; i++)
            atomic_store(&region_worker(&region, stage, i)->owner, i == 0 ? VICTIM : SURVIVOR);
        /* the survivor sleeps */
        idle_enter(&region, stage, 1);
        (void)doorbell_prepare(&region_worker(&region, stage, 1)->bell);
    }
}

static void
after_death(const void *context)
{
    const struct operation *operation = context;
    uint32_t sequences[2 * STAGES + 1];
    note_sequences(sequences);
    repair(VICTIM, operation->seat_stage);
    assert_awake(sequences);
    finish_and_check(operation->run == run_release);
}

TEST_CASE(test_operation)
{
    const struct operation *operation = *state;
    uint64_t steps = 0, states = 0;
    for (uint32_t level = 0; level < LEVELS; level++) {
        reset();
        if (!operation->prepare(level_items[level]))
            continue;
        struct rig_ledger prepared = ledger;
        memcpy(restored, region.base, region_bytes());
        char *image = malloc(region_bytes());
        assert_non_null(image);
        struct stepped stepped = step_through(operation->run, image, after_death, operation);
        steps += stepped.steps;
        states += stepped.states;
        uint64_t kills[] = {stepped.steps, stepped.steps / 2};
        for (uint32_t i = 0; i < ARRAY_COUNT(kills); i++) {
            memcpy(region.base, restored, region_bytes());
            ledger = prepared;
            kill_after(operation->run, kills[i]);
            after_death(operation);
        }
        free(image);
    }
    print_message("%-16s %6llu kill points, %4llu states\n", operation->name,
                  (unsigned long long)steps, (unsigned long long)states);
    assert_true(states > 0);
}

/* ---- death in repair ---- */

static const struct operation *interrupted;
static uint64_t repair_steps, repair_states;

static void
run_repair(void)
{
    struct repair_judge judge = {.judge = judge_death, .context = &ledger};
    struct repair_report report;
    struct error error = ERROR_NONE;
    const struct repair_dead dead = {.owner = VICTIM, .stage = interrupted->seat_stage};
    (void)!region_repair(&region, &dead, REPAIRER, &judge, &report, &error);
}

static void
after_repairer_death(const void *context)
{
    (void)context;
    uint32_t sequences[2 * STAGES + 1];
    note_sequences(sequences);
    /* in both orders, in turn */
    uint16_t first = repair_states % 2 == 0 ? VICTIM : REPAIRER;
    repair_states++;
    repair(first, first == VICTIM ? interrupted->seat_stage : STAGES_MAX);
    repair(first == VICTIM ? REPAIRER : VICTIM,
           first == VICTIM ? STAGES_MAX : interrupted->seat_stage);
    assert_awake(sequences);
    finish_and_check(false);
}

static void
step_repair(const void *context)
{
    char *image = malloc(region_bytes());
    assert_non_null(image);
    (void)context;
    repair_steps += step_through(run_repair, image, after_repairer_death, NULL).steps;
    free(image);
}

TEST_CASE(test_repair)
{
    interrupted = *state;
    repair_steps = repair_states = 0;
    uint64_t deaths = 0;
    uint32_t levels = interrupted->run == run_emit ? 2 : 4; /* it is long */
    for (uint32_t level = 1; level < levels; level++) {
        reset();
        if (!interrupted->prepare(level_items[level]))
            continue;
        char *image = malloc(region_bytes());
        assert_non_null(image);
        deaths += step_through(interrupted->run, image, step_repair, NULL).states;
        free(image);
    }
    print_message("repair after %-16s %8llu kill points, %5llu states, from %llu deaths\n",
                  interrupted->name, (unsigned long long)repair_steps,
                  (unsigned long long)repair_states, (unsigned long long)deaths);
    assert_true(repair_states > deaths);
}

/* ---- main ---- */

static int
set_up(void **state)
{
    (void)state;
    struct region_plan plan = rig_plan(STAGES, 2, SLOTS);
    plan.pieces = 1;
    struct error error = ERROR_NONE;
    if (region_create(&region, &plan, 1, &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        return -1;
    }
    pristine = malloc(region_bytes());
    restored = malloc(region_bytes());
    if (pristine == NULL || restored == NULL)
        return -1;
    memcpy(pristine, region.base, region_bytes());
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    free(pristine);
    free(restored);
    region_detach(&region);
    return 0;
}

enum { OPERATIONS = ARRAY_COUNT(operations), REPAIRED = 4 };

/* Stepper and stepped take turns: on one processor, none has to be woken for a turn. */
static void
stay_here(void)
{
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET((size_t)sched_getcpu(), &here);
    (void)sched_setaffinity(0, sizeof(here), &here);
}

int
main(void)
{
    stay_here();
    struct CMUnitTest tests[OPERATIONS + REPAIRED];
    for (uint32_t i = 0; i < OPERATIONS; i++)
        tests[i] = (struct CMUnitTest){.name = operations[i].name,
                                       .test_func = test_operation,
                                       .initial_state = (void *)(uintptr_t)&operations[i]};
    /* where a death leaves most to repair: pop, push to the ring it came from, the whole step,
     * pieces */
    static const uint32_t repaired[REPAIRED] = {1, 2, 7, 10};
    for (uint32_t i = 0; i < REPAIRED; i++)
        tests[OPERATIONS + i] =
            (struct CMUnitTest){.name = "repair",
                                .test_func = test_repair,
                                .initial_state = (void *)(uintptr_t)&operations[repaired[i]]};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
