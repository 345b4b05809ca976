/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a worker process from outside: what it says when it is ready, which messages and
 * descriptors make it refuse (exit code 2, with a text that says why), how it ends: asked to by
 * SIGTERM or by a closed socket it finishes what it holds and closes the modelet; it dies with its
 * coordinator; a corrupt region makes it give up (exit code 3). And what it is while it lives: its
 * name, its CPU, its descriptors, its signs of life, nearly no CPU time when idle.
 *
 * ctest: timeout=120
 */
#include <sched.h>
#include <sys/prctl.h>

#include "test_worker_rig.h"

/* A wait that no test sees the end of. */
#define LONG_NS (3600 * NS_PER_S)

static union rig_reply reply;

/* ---- refusals ---- */

static void
assert_refused(struct rig *rig, uint32_t stage, const char *text)
{
    assert_int_equal(reply.header.type, HANDSHAKE_FAILED);
    assert_true(memchr(reply.failed.text, '\0', sizeof(reply.failed.text)) != NULL);
    if (strstr(reply.failed.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", reply.failed.text, text);
    rig_assert_exit(rig_wait_worker(rig, stage, 0), 2);
}

static void
assert_stage_refused(struct rig_stage stage, const char *text)
{
    struct rig *rig = rig_open(&stage, 1);
    rig_spawn(rig, 0, 0, &reply);
    assert_refused(rig, 0, text);
    rig_close(rig);
}

TEST_CASE(test_modelets_that_do_not_suit)
{
    assert_stage_refused((struct rig_stage){.modelet = "wrong_abi_version"},
                         "libwrong_abi_version.so: shoal_modelet.abi_version is 2, this worker "
                         "speaks 1");
    assert_stage_refused((struct rig_stage){.modelet = "not_there"}, "libnot_there.so");
    assert_stage_refused((struct rig_stage){.modelet = "wrong_workers_max", .workers = 2},
                         "2 workers, but shoal_modelet.workers_max is 1");
    assert_stage_refused((struct rig_stage){.modelet = "wrong_workers_max", .batch_size = 4},
                         "batch_size is 4, but the modelet runs single items only");
    assert_stage_refused((struct rig_stage){.modelet = "wrong_workers_max", .model_id = "m"},
                         "model \"m\" is configured, but shoal_modelet.load is missing");
}

TEST_CASE(test_functions_that_fail)
{
    struct rig_stage stage = {.modelet = "probe", .param_name = "fail"};
    stage.param_value = "open";
    assert_stage_refused(stage, "libprobe.so: open failed (OUT_OF_RANGE): told to fail in open");
    assert_int_equal(reply.failed.status, STATUS_OUT_OF_RANGE);
    stage.param_value = "describe";
    assert_stage_refused(stage, "libprobe.so: describe failed (OUT_OF_RANGE): told to fail");
    stage.param_value = "load";
    stage.model_id = "m";
    assert_stage_refused(stage, "model \"m\": libprobe.so: load failed (OUT_OF_RANGE)");
    stage.model_id = NULL;
    stage.param_name = "describe";
    stage.param_value = "nonsense";
    assert_stage_refused(stage, "libprobe.so: describe: input \"probe\": no such datatype: 99");
}

static void
assert_start_refused(void (*spoil)(struct handshake_start *), const char *text)
{
    struct rig *rig = rig_open(&(struct rig_stage){.modelet = "probe"}, 1);
    struct handshake_start start;
    rig_start_message(rig, 0, 0, &start);
    struct rig_worker *worker = &rig->workers[0][0];
    int control[2];
    rig_control_pair(control);
    worker->control = control[0];
    worker->pid = rig_spawn_with(rig->region.fd, rig->counters.fd, control[1], -1);
    close(control[1]);
    spoil(&start);
    assert_int_equal(send(control[0], &start, sizeof(start), 0), sizeof(start));
    rig_receive(worker, &reply);
    assert_refused(rig, 0, text);
    rig_close(rig);
}

#define SPOIL(name, statement)                                                                     \
    static void spoil_##name(struct handshake_start *start)                                        \
    {                                                                                              \
        statement;                                                                                 \
    }

SPOIL(version, start->header.version = HANDSHAKE_VERSION + 1)
SPOIL(type, start->header.type = 9)
SPOIL(length, start->header.bytes--)
SPOIL(parent, start->coordinator_pid++)
SPOIL(stage_name, memset(start->stage, 'x', sizeof(start->stage)))
SPOIL(path, memset(start->modelet_path, '/', sizeof(start->modelet_path)))
SPOIL(relative, memmove(start->modelet_path, start->modelet_path + 1, 100))
SPOIL(param_count, start->param_count = HANDSHAKE_PARAMS_MAX + 1)
SPOIL(param, start->param_count = 1; memset(&start->params[0], 'x', sizeof(start->params[0])))
SPOIL(stage, start->stage_index = 1)
SPOIL(worker, start->worker_index = 1)
SPOIL(owner, start->owner = OWNER_COORDINATOR)
SPOIL(table, start->counters_table++)
SPOIL(values, start->counters_offset += 64)
SPOIL(header, start->counters_offset = 0)
SPOIL(no_values, start->counters_offset = UINT64_C(1) << 62)
SPOIL(batch, start->batch_size = RIG_SLOTS + 1)
SPOIL(wait, start->batch_wait_ns = -1)
SPOIL(adaptive, start->wait_adaptive = 2)
SPOIL(cpu, start->cpu = CPU_SETSIZE + 5)

TEST_CASE(test_start_messages_that_are_wrong)
{
    assert_start_refused(spoil_version, "version 7");
    assert_start_refused(spoil_type, "type 9");
    assert_start_refused(spoil_length, "it says");
    assert_start_refused(spoil_parent, "is gone");
    assert_start_refused(spoil_stage_name, "stage is not terminated");
    assert_start_refused(spoil_path, "modelet_path is not terminated");
    assert_start_refused(spoil_relative, "is not absolute");
    char text[64];
    snprintf(text, sizeof(text), "param_count is %d; at most", HANDSHAKE_PARAMS_MAX + 1);
    assert_start_refused(spoil_param_count, text);
    assert_start_refused(spoil_param, "params.name is not terminated");
    assert_start_refused(spoil_stage, "no worker 0 in stage 1");
    assert_start_refused(spoil_worker, "no worker 1 in stage 0");
    assert_start_refused(spoil_owner, "owner is 1");
    assert_start_refused(spoil_table, "another table");
    assert_start_refused(spoil_values, "no values of a worker at");
    assert_start_refused(spoil_header, "no values of a worker at 0");
    assert_start_refused(spoil_no_values, "no values of a worker at");
    assert_start_refused(spoil_batch, "batch_size is 257, but at most 256 requests");
    assert_start_refused(spoil_wait, "negative");
    assert_start_refused(spoil_adaptive, "wait_adaptive is 2");
    assert_start_refused(spoil_cpu, "pinning to CPU");
}

/* Files where the region, the counters or the socket should be. */
TEST_CASE(test_wrong_descriptors)
{
    struct rig *rig = rig_open(&(struct rig_stage){.modelet = "probe"}, 1);
    struct handshake_start start;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int wrong = 0; wrong < 2; wrong++) {
        rig_start_message(rig, 0, 0, &start);
        struct rig_worker *worker = &rig->workers[0][0];
        int control[2];
        rig_control_pair(control);
        worker->pid = rig_spawn_with(wrong == 0 ? null : rig->region.fd,
                                     wrong == 1 ? null : rig->counters.fd, control[1], -1);
        worker->control = control[0];
        close(control[1]);
        struct error error = ERROR_NONE;
        assert_int_equal(handshake_send(control[0], &start, sizeof(start), &error), STATUS_OK);
        rig_receive(worker, &reply);
        assert_refused(rig, 0, wrong == 0 ? "region" : "counters");
        close(worker->control);
        worker->control = 0;
    }
    rig_assert_exit(rig_wait_end(rig_spawn_with(rig->region.fd, rig->counters.fd, null, -1)), 2);
    int control[2]; /* a coordinator that closes without a word */
    rig_control_pair(control);
    pid_t pid = rig_spawn_with(rig->region.fd, rig->counters.fd, control[1], -1);
    close(control[0]);
    close(control[1]);
    rig_assert_exit(rig_wait_end(pid), 2);
    close(null);
    rig_close(rig);
}

/* ---- ready ---- */

TEST_CASE(test_ready_notifies_what_the_modelet_is)
{
    struct rig *rig = rig_open(
        &(struct rig_stage){.modelet = "probe", .param_name = "describe", .param_value = "inputs"},
        1);
    rig_spawn(rig, 0, 0, &reply);
    assert_int_equal(reply.header.type, HANDSHAKE_READY);
    struct error error = ERROR_NONE;
    assert_int_equal(handshake_ready_validate(&reply.ready, &error), STATUS_OK);
    assert_string_equal(reply.ready.name, "probe");
    assert_string_equal(reply.ready.modelet_version, "7");
    assert_string_equal(reply.ready.platform, "probe");
    assert_int_equal(reply.ready.abilities, SHOAL_RUNS_BATCHES);
    assert_int_equal(reply.ready.input_count, 1);
    assert_string_equal(reply.ready.inputs[0].name, "probe");
    assert_int_equal(reply.ready.inputs[0].datatype, SHOAL_INT64);
    assert_int_equal(reply.ready.inputs[0].rank, 1);
    assert_true(reply.ready.inputs[0].shape[0] == PROBE_WORDS);
    assert_true(reply.ready.outputs[0].shape[0] == -1);
    rig_stop(rig);
}

/* Reads a small file whole. */
static void
read_file(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t bytes = read(fd, text, room - 1);
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    close(fd);
}

/* Every call once, in order, and the model's id, path and key where they belong. */
TEST_CASE(test_life_of_the_modelet)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe",
                                                    .model_id = "digits",
                                                    .param_name = "trace",
                                                    .param_value = "trace"},
                                1);
    struct rig_outcome outcome = rig_call(rig, (struct rig_request){.tag = 1});
    assert_int_equal(outcome.words[PROBE_MODEL], 1);
    kill(rig->workers[0][0].pid, SIGTERM);
    rig_assert_exit(rig_wait_worker(rig, 0, 0), 0);
    char path[128];
    snprintf(path, sizeof(path), "%s/trace", rig->directory); /* relative to the configuration */
    char text[512];
    read_file(path, text, sizeof(text));
    assert_string_equal(text, "open\ndescribe\n"
                              "load id=digits path=/models/digits key=key of digits\n"
                              "load\nunload\nclose\n");
    unlink(path);
    rig_stop(rig);
}

/* ---- the process ---- */

TEST_CASE(test_name_and_descriptors)
{
    int stray = open("/dev/null", O_RDWR); /* not close-on-exec: the worker closes it */
    int above = fcntl(stray, F_DUPFD, 40);
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
    close(stray);
    close(above);
    char path[64];
    char text[64];
    snprintf(path, sizeof(path), "/proc/%d/comm", (int)rig->workers[0][0].pid);
    read_file(path, text, sizeof(text));
    assert_string_equal(text, "shoal:stage0.0\n");
    for (int fd = 6; fd < 64; fd++) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)rig->workers[0][0].pid, fd);
        if (readlink(path, text, sizeof(text)) >= 0)
            fail_msg("%s is open", path);
    }
    rig_stop(rig);
}

TEST_CASE(test_pinned)
{
    cpu_set_t mine;
    assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET((size_t)last, &mine))
        last--;
    struct rig *rig = rig_open(&(struct rig_stage){.modelet = "probe"}, 1);
    struct handshake_start start;
    rig_start_message(rig, 0, 0, &start);
    start.cpu = last;
    rig_spawn_start(rig, &start);
    rig_receive(&rig->workers[0][0], &reply);
    assert_int_equal(reply.header.type, HANDSHAKE_READY);
    cpu_set_t theirs;
    assert_int_equal(sched_getaffinity(rig->workers[0][0].pid, sizeof(theirs), &theirs), 0);
    assert_int_equal(CPU_COUNT(&theirs), 1);
    assert_true(CPU_ISSET((size_t)last, &theirs));
    rig_stop(rig);
}

/* Asleep it still says that it lives, and uses next to nothing. */
TEST_CASE(test_idle)
{
    struct rig *rig =
        rig_start(&(struct rig_stage){.modelet = "probe", .workers = 2, .spin_limit_ns = 50000}, 1);
    struct shm_worker *entry = region_worker(&rig->region, 0, 0);
    int64_t began_ns = clock_now_ns();
    uint64_t sleeps = rig_counter(rig, 0, WORKER_SLEEPS);
    rig_wait_counter_at_least(rig, 0, WORKER_SLEEPS,
                              sleeps + 4); /* two each: at least one whole sleep */
    int64_t heartbeat_ns = atomic_load(&entry->heartbeat_ns);
    assert_true(heartbeat_ns > began_ns);
    assert_true(counter_get(counters_values(&rig->counters, rig->workers[0][0].scope),
                            WORKER_HEARTBEAT) >= (uint64_t)heartbeat_ns);
    assert_true(clock_now_ns() - began_ns > 300 * (int64_t)NS_PER_MS); /* and not more often */
    rig_stop(rig);
}

/* While the modelet runs, the place says since when and with how many items. */
TEST_CASE(test_run_is_seen)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
    struct shm_worker *entry = region_worker(&rig->region, 0, 0);
    struct shm_ticket ticket =
        rig_submit(rig, (struct rig_request){.command = PROBE_WAIT, .tag = 1});
    int64_t deadline_ns = clock_now_ns() + RIG_PATIENCE_NS;
    while (atomic_load(&entry->run_began_ns) == 0 && clock_now_ns() < deadline_ns)
        poll(NULL, 0, 1);
    assert_true(atomic_load(&entry->run_began_ns) != 0);
    assert_int_equal(atomic_load(&entry->run_items), 1);
    slot_cancel(&rig->region, ticket);
    rig_wait_outcome(rig);
    assert_true(atomic_load(&entry->run_began_ns) == 0);
    rig_stop(rig);
}

/* ---- ends ---- */

/* SIGTERM, with a batch open that would wait for an hour: it is run, then the worker leaves. */
TEST_CASE(test_sigterm_finishes_the_batch)
{
    struct rig *rig = rig_start(
        &(struct rig_stage){.modelet = "probe", .batch_size = 4, .batch_wait_ns = LONG_NS}, 1);
    rig_submit(rig, (struct rig_request){.tag = 1});
    rig_wait_counter(rig, 0, WORKER_ITEMS, 1);
    kill(rig->workers[0][0].pid, SIGTERM);
    rig_assert_exit(rig_wait_worker(rig, 0, 0), 0);
    assert_int_equal(rig_wait_outcome(rig).status, STATUS_OK);
    assert_int_equal(rig_counter(rig, 0, WORKER_CLOSED_DRAINING), 1);
    rig_stop(rig);
}

/* SIGTERM in the middle of a run: the run ends, its item is passed on. */
TEST_CASE(test_sigterm_in_a_run)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
    struct shm_ticket ticket =
        rig_submit(rig, (struct rig_request){.command = PROBE_WAIT, .tag = 1});
    rig_wait_counter(rig, 0, WORKER_BATCHES, 1);
    kill(rig->workers[0][0].pid, SIGTERM);
    slot_cancel(&rig->region, ticket);
    rig_assert_exit(rig_wait_worker(rig, 0, 0), 0);
    assert_int_equal(rig_wait_outcome(rig).status, STATUS_OK);
    rig_stop(rig);
}

/* Offered the role while it sleeps, and asked to stop: it does not take the role along. */
TEST_CASE(test_sigterm_gives_an_appointment_back)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
    rig_wait_asleep(rig, 0, 0);
    uint32_t offer = FORMER_OFFERED | rig->last_owner; /* to place 0 */
    atomic_store(&region_stage(&rig->region, 0)->former, offer);
    rig_stop(rig); /* looks that nobody has the role */
}

/* Stops the process where it is; what it has written is then all that it has done. */
static void
freeze(pid_t pid)
{
    int status;
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

/*
 * SIGTERM to a worker that was frozen after `yields`: when it goes on it meets the signal before
 * anything else. If it was asleep, or about to be, its bell was rung and the sleep is over; if not,
 * it does not go to sleep any more. Nothing else rings here. Returns whether it was asleep.
 */
static bool
sigterm_after(struct rig *rig, int yields)
{
    const struct rig_worker *worker = &rig->workers[0][0];
    struct shm_doorbell *bell = &region_worker(&rig->region, 0, 0)->bell;
    rig_spawn(rig, 0, 0, &reply);
    assert_int_equal(reply.header.type, HANDSHAKE_READY);
    kill(worker->pid, SIGINT);
    if (yields < 0)
        rig_wait_asleep(rig, 0, 0);
    for (int k = 0; k < yields; k++)
        sched_yield();
    freeze(worker->pid);
    bool asleep = atomic_load(&bell->asleep) != 0;
    uint32_t rung = atomic_load(&bell->sequence);
    uint64_t sleeps = rig_counter(rig, 0, WORKER_SLEEPS);
    kill(worker->pid, SIGTERM);
    kill(worker->pid, SIGCONT);
    rig_assert_exit(rig_wait_worker(rig, 0, 0), 0);
    close(worker->control);
    rig->workers[0][0].control = 0;
    if (asleep)
        assert_int_equal(atomic_load(&bell->sequence), rung + 1);
    else
        assert_int_equal(rig_counter(rig, 0, WORKER_SLEEPS), sleeps);
    return asleep;
}

/* Many times, so that the signal meets every moment of going to sleep. A terminal's signals are not
 * for the worker. */
TEST_CASE(test_sigterm_is_never_missed)
{
    enum { ROUNDS = 40 };
    struct rig *rig = rig_open(&(struct rig_stage){.modelet = "probe"}, 1);
    assert_true(sigterm_after(rig, -1));
    for (int i = 0; i < ROUNDS; i++)
        (void)sigterm_after(rig, i);
    rig_stop(rig);
}

TEST_CASE(test_closed_socket)
{
    struct rig *rig = rig_start(
        &(struct rig_stage){.modelet = "probe", .batch_size = 4, .batch_wait_ns = LONG_NS}, 1);
    rig_submit(rig, (struct rig_request){.tag = 1});
    rig_wait_counter(rig, 0, WORKER_ITEMS, 1);
    close(rig->workers[0][0].control);
    rig->workers[0][0].control = 0;
    rig_assert_exit(rig_wait_worker(rig, 0, 0), 0);
    assert_int_equal(rig_wait_outcome(rig).status, STATUS_OK);
    rig_stop(rig);
}

/* A process in between starts the worker, reports its pid and is killed: the worker is gone with
 * it. */
TEST_CASE(test_dies_with_its_coordinator)
{
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); /* so that we can wait for it */
    int report[2];
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    pid_t coordinator = fork();
    if (coordinator == 0) {
        struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
        rig_submit(rig, (struct rig_request){.command = PROBE_HANG});
        rig_wait_counter(rig, 0, WORKER_BATCHES, 1);
        ssize_t written = write(report[1], &rig->workers[0][0].pid, sizeof(pid_t));
        char path[128];
        snprintf(path, sizeof(path), "%s/counters", rig->directory);
        unlink(path);
        rmdir(rig->directory);
        kill(getpid(), written == sizeof(pid_t) ? SIGKILL : SIGABRT);
    }
    assert_true(coordinator > 0);
    close(report[1]);
    pid_t worker;
    assert_int_equal(read(report[0], &worker, sizeof(worker)), sizeof(worker));
    close(report[0]);
    int status = rig_wait_end(coordinator);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = rig_wait_end(worker);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* A cell that names a slot which does not exist. */
TEST_CASE(test_corrupt_region)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
    struct shm_ring ring = region_slot_ring(&rig->region, 0);
    assert_int_equal(ring_fill_cell(&ring, RIG_SLOTS + 1, (struct shm_word){.generation = 1}),
                     RING_OK);
    stage_notify(&rig->region, 0);
    rig_assert_exit(rig_wait_worker(rig, 0, 0), 3);
    rig_close(rig);
}

/* A slot that is taken away from the worker while it runs: its push is impossible. */
TEST_CASE(test_corrupt_slot)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
    struct shm_ticket ticket =
        rig_submit(rig, (struct rig_request){.command = PROBE_WAIT, .tag = 1});
    rig_wait_counter(rig, 0, WORKER_BATCHES, 1);
    atomic_store(object_word(&rig->region.slots, ticket.index), UINT64_C(0x0000000100000000));
    slot_cancel(&rig->region, ticket);
    rig_assert_exit(rig_wait_worker(rig, 0, 0), 3);
    rig_close(rig);
}

/* A modelet that ends the process ends it with its own code: nothing of ours stands between. */
TEST_CASE(test_exit_in_a_run)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
    rig_submit(rig, (struct rig_request){.command = PROBE_EXIT, .argument = 77});
    rig_assert_exit(rig_wait_worker(rig, 0, 0), 77);
    rig_close(rig);
}

TEST_MAIN()
