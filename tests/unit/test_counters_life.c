/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose the counters' file is: a node is told live from dead by the lock alone, SIGKILL included,
 * and by no descriptor that a worker still holds; two nodes never have one file, for any action at
 * any system call of the other (a traced child is stopped at each of them, and killed, met by
 * another that stays, or met by one that comes and goes), nor when many start at once.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "ipc/counters.h"
#include "test_counters_rig.h"

TEST_CASE(test_two_nodes)
{
    struct counters writer = create();
    char text[256];
    snprintf(text, sizeof(text), "pid %d has %s", (int)getpid(), path);
    assert_create_fails(STATUS_FAILED_PRECONDITION, text);
    struct counters reader = open_expecting(true); /* unharmed, and reading does not lock */
    assert_create_fails(STATUS_FAILED_PRECONDITION, text);
    counters_close(&reader);
    counters_close(&writer);
    writer = create();
    counters_close(&writer);
}

/* Another process that has the file until it is killed. */
static pid_t
node_start(void)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct counters counters;
        struct error error;
        if (counters_create(&counters, path, scopes, SCOPES, &error) != STATUS_OK)
            _exit(1);
        counter_add(counters_values(&counters, NODE), NODE_CALLS, 77);
        (void)!write(ready[1], "r", 1);
        for (;;)
            pause();
    }
    char byte;
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void
node_kill(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

TEST_CASE(test_dead_node)
{
    pid_t pid = node_start();
    struct counters reader = open_expecting(true);
    assert_int_equal(reader.header->pid, pid);
    assert_create_fails(STATUS_FAILED_PRECONDITION, "pid ");
    node_kill(pid);
    counters_close(&reader);
    reader = open_expecting(false);
    assert_int_equal(counter_get(counters_values(&reader, NODE), NODE_CALLS), 77);

    struct counters writer = create(); /* a new file: the reader of the old one sees no change */
    assert_int_equal(counter_get(counters_values(&reader, NODE), NODE_CALLS), 77);
    struct counters other = open_expecting(true);
    assert_int_equal(counter_get(counters_values(&other, NODE), NODE_CALLS), 0);
    counters_close(&other);
    counters_close(&reader);
    counters_close(&writer);
}

/* A worker that outlives its coordinator for a moment does not make it look alive. */
TEST_CASE(test_lock_is_not_inherited)
{
    struct counters writer = create();
    int kept = dup(writer.fd);
    char saved[256];
    snprintf(saved, sizeof(saved), "%s.kept", path);
    assert_int_equal(link(path, saved), 0);
    counters_close(&writer);
    assert_int_equal(rename(saved, path), 0);
    struct counters reader = open_expecting(false);
    counters_close(&reader);
    close(kept);
}

/* Many start at once, over a dead node's file and over none: one gets it, the others get an
 * error. */
enum { RACERS = 8, RACES = 25 };

static void
race_run(int start, int result)
{
    char byte;
    struct counters counters;
    struct error error;
    (void)!read(start, &byte, 1);
    enum status status = counters_create(&counters, path, scopes, SCOPES, &error);
    byte = status == STATUS_OK ? 'y' : status == STATUS_FAILED_PRECONDITION ? 'n' : '?';
    (void)!write(result, &byte, 1);
    for (;;)
        pause();
}

TEST_CASE(test_race)
{
    for (int race = 0; race < RACES; race++) {
        int start[2];
        int result[2];
        pid_t pids[RACERS];
        char bytes[RACERS] = {0};
        assert_true(pipe(start) == 0 && pipe(result) == 0);
        for (int i = 0; i < RACERS; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0)
                race_run(start[0], result[1]);
        }
        assert_int_equal(write(start[1], bytes, RACERS), RACERS);
        unsigned won = 0;
        for (int i = 0; i < RACERS; i++) {
            assert_int_equal(read(result[0], bytes, 1), 1);
            assert_true(bytes[0] == 'y' || bytes[0] == 'n');
            won += bytes[0] == 'y';
        }
        assert_int_equal(won, 1);
        struct counters reader = open_expecting(true);
        counters_close(&reader);
        for (int i = 0; i < RACERS; i++)
            node_kill(pids[i]);
        reader = open_expecting(false);
        counters_close(&reader);
        if (race % 2)
            assert_int_equal(unlink(path), 0);
        for (int i = 0; i < 2; i++) {
            close(start[i]);
            close(result[i]);
        }
    }
}

/* ---- two nodes, step by step ---- */

/*
 * A child that creates the file, closes it if it got it, and stops before and after: traced, so
 * that the test can let it run up to any of its system calls and do something meanwhile.
 */
enum { CHILD_CREATE, CHILD_CLOSE };

static _Atomic int *child_status;

static void
traced_run(void)
{
    struct counters counters;
    struct error error;
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    *child_status = (int)counters_create(&counters, path, scopes, SCOPES, &error);
    raise(SIGSTOP);
    counters_close(&counters);
    raise(SIGSTOP);
    _exit(0);
}

/* Waits for the child's next stop. True: its own, by SIGSTOP; false: at a system call. */
static bool
traced_wait(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSTOPPED(status));
    assert_true(WSTOPSIG(status) == SIGSTOP || WSTOPSIG(status) == (SIGTRAP | 0x80));
    return WSTOPSIG(status) == SIGSTOP;
}

static void
traced_finish(pid_t pid)
{
    assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
    assert_true(traced_wait(pid));
}

/* A child at its `step`th stop at a system call of that phase; 0: it has no so many. */
static pid_t
traced_start(int phase, int step)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        traced_run();
    assert_true(traced_wait(pid));
    assert_int_equal(
        ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
    if (phase == CHILD_CLOSE)
        traced_finish(pid);
    for (int i = 0; i <= step; i++) {
        assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
        if (traced_wait(pid)) {
            node_kill(pid);
            return 0;
        }
    }
    return pid;
}

static void
assert_folder_empty(void)
{
    char fresh[160];
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    assert_true(access(path, F_OK) != 0 && access(fresh, F_OK) != 0);
}

static void
leave_dead_file(void)
{
    node_kill(node_start());
    struct counters reader = open_expecting(false);
    counters_close(&reader);
}

/* Killed anywhere, it leaves nothing that keeps the next from starting. */
static void
meet_killed(pid_t pid)
{
    node_kill(pid);
    struct counters writer = create();
    counters_close(&writer);
    assert_folder_empty();
}

/* Another starts meanwhile and stays: one of the two has the file, and the path is that one's. */
static void
meet_staying(pid_t pid)
{
    struct counters counters;
    struct error error = ERROR_NONE;
    enum status status = counters_create(&counters, path, scopes, SCOPES, &error);
    assert_true(status == STATUS_OK || status == STATUS_FAILED_PRECONDITION);
    traced_finish(pid);
    assert_int_equal(*child_status, status == STATUS_OK ? STATUS_FAILED_PRECONDITION : STATUS_OK);
    struct counters reader = open_expecting(true);
    assert_int_equal(reader.header->pid, status == STATUS_OK ? getpid() : pid);
    counters_close(&reader);
    node_kill(pid);
    counters_close(&counters);
    if (status != STATUS_OK) {
        counters = create();
        counters_close(&counters);
    }
    assert_folder_empty();
}

/* Another comes and goes meanwhile: then there is no reason to be refused. */
static void
meet_passing(pid_t pid)
{
    struct counters counters;
    struct error error = ERROR_NONE;
    (void)!counters_create(&counters, path, scopes, SCOPES, &error);
    counters_close(&counters);
    traced_finish(pid);
    assert_int_equal(*child_status, STATUS_OK);
    struct counters reader = open_expecting(true);
    assert_int_equal(reader.header->pid, pid);
    counters_close(&reader);
    traced_finish(pid);
    node_kill(pid);
    assert_folder_empty();
}

/* Another starts while it closes: what that one got is still there afterwards. */
static void
meet_closing(pid_t pid)
{
    struct counters counters;
    struct error error = ERROR_NONE;
    enum status status = counters_create(&counters, path, scopes, SCOPES, &error);
    assert_true(status == STATUS_OK || status == STATUS_FAILED_PRECONDITION);
    traced_finish(pid);
    assert_int_equal(access(path, F_OK) == 0, status == STATUS_OK);
    node_kill(pid);
    counters_close(&counters);
    assert_folder_empty();
}

TEST_CASE(test_steps)
{
    static const struct {
        int phase;
        void (*meet)(pid_t pid);
    } meetings[] = {
        {CHILD_CREATE, meet_killed}, {CHILD_CREATE, meet_staying}, {CHILD_CREATE, meet_passing},
        {CHILD_CLOSE, meet_killed},  {CHILD_CLOSE, meet_closing},
    };
    child_status = mmap(NULL, sizeof(*child_status), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(child_status, MAP_FAILED);
    for (size_t i = 0; i < ARRAY_COUNT(meetings); i++)
        for (int dead = 0; dead < 2; dead++)
            for (int step = 0;; step++) {
                if (dead)
                    leave_dead_file();
                pid_t pid = traced_start(meetings[i].phase, step);
                if (pid == 0) {
                    assert_true(step > 4);
                    break;
                }
                meetings[i].meet(pid);
            }
    assert_int_equal(munmap((void *)(uintptr_t)child_status, sizeof(*child_status)), 0);
}

/* A file that was removed by hand: the name may be another node's by now. */
TEST_CASE(test_removed_by_hand)
{
    struct counters first = create();
    assert_int_equal(unlink(path), 0);
    struct counters second = create();
    counters_close(&first);
    struct counters reader = open_expecting(true);
    counters_close(&reader);
    counters_close(&second);
    assert_folder_empty();
}

/* The folder's owner could give the name to another file: only root takes that from others. */
TEST_CASE(test_foreign_folder)
{
    enum { SOMEBODY = 65534, OTHER = 65533 };
    if (geteuid() != 0)
        skip();
    char run[96];
    snprintf(run, sizeof(run), "%s/run", folder);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_true(mkdir(run, 0755) == 0 && chmod(run, 0777) == 0);
    for (int own = 0; own < 2; own++) {
        assert_int_equal(chown(run, own ? SOMEBODY : OTHER, OTHER), 0);
        assert_int_equal(seteuid(SOMEBODY), 0);
        struct counters counters;
        struct error error = ERROR_NONE;
        enum status status = counters_create(&counters, path, scopes, SCOPES, &error);
        counters_close(&counters);
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(status, own ? STATUS_OK : STATUS_PERMISSION_DENIED);
        assert_true(own || strstr(error.text, "belongs to another user") != NULL);
    }
}

TEST_MAIN(.setup = folder_make, .teardown = folder_remove)
