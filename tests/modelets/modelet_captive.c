/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A captive: tries to get out of its worker, and says what it met.
 *
 * Input "try": BYTES [1], "MOMENT ATTEMPT [ARGUMENT]". Output "met": BYTES [1], "ok" or the name of
 * an errno. The moment is `run`, where the attempt is made now; `thread`, the same in a thread that
 * the constructor has made; or `constructor` or `open`, where all attempts that need no argument
 * were made, and what they met is told. The table at the end lists the attempts.
 * Attempts undo what they did, if it was granted.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shoal/modelet.h>

enum { PATH_BYTES = 512, TEXT_BYTES = 512 };

static char own_folder[PATH_BYTES];
static void *region; /* where the worker has mapped it */

/* Of a call that returns -1 and sets errno. */
static int
met(long result)
{
    return result == -1 ? errno : 0;
}

static int
met_fd(int fd)
{
    int code = met(fd);
    if (fd >= 0)
        close(fd);
    return code;
}

/* ---- sockets ---- */

static int
try_tcp_socket(const char *argument)
{
    (void)argument;
    return met_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int
try_unix_socket(const char *argument)
{
    (void)argument;
    return met_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int
try_socketpair(const char *argument)
{
    (void)argument;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return errno;
    close(pair[0]);
    close(pair[1]);
    return 0;
}

/* Connects to the abstract socket of that name. */
static int
try_abstract_socket(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    size_t bytes = strlen(name);
    memcpy(address.sun_path + 1, name, bytes);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes);
    int code = met(connect(fd, (const struct sockaddr *)&address, length));
    close(fd);
    return code;
}

/* ---- processes ---- */

/* That there is a child is what counts, even if it may not be waited for. */
static int
met_child(pid_t pid)
{
    if (pid < 0)
        return errno;
    (void)waitpid(pid, NULL, 0);
    return 0;
}

static int
try_fork(const char *argument)
{
    (void)argument;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return met_child(pid);
}

static int
try_vfork(const char *argument)
{
    (void)argument;
    pid_t pid = vfork(); /* NOLINT: is it granted? */
    if (pid == 0)
        _exit(0);
    return met_child(pid);
}

static int
try_clone3(const char *argument)
{
    (void)argument;
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &arguments, sizeof(arguments));
    if (pid == 0)
        _exit(0);
    return met_child((pid_t)pid);
}

/* A thread that is not one: shares nothing, ends like a process. */
static int
try_clone_process(const char *argument)
{
    (void)argument;
    long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        _exit(0);
    return met_child((pid_t)pid);
}

static int
try_spawn(const char *argument)
{
    (void)argument;
    char name[] = "true";
    char *const arguments[] = {name, NULL};
    char *const environment[] = {NULL};
    pid_t pid;
    int code = posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environment);
    return code != 0 ? code : met_child(pid);
}

/* If this is granted the worker is gone: the test sees that, too. */
static int
try_execve(const char *argument)
{
    (void)argument;
    char name[] = "true";
    char *const arguments[] = {name, NULL};
    return met(execve("/bin/true", arguments, NULL));
}

static int
try_signal_parent(const char *argument)
{
    (void)argument;
    return met(kill(getppid(), 0));
}

static int
try_signal(const char *pid)
{
    return met(kill(atoi(pid), 0));
}

static int
try_pidfd_parent(const char *argument)
{
    (void)argument;
    return met_fd((int)syscall(SYS_pidfd_open, getppid(), 0));
}

/* The kernel would then send any signal there when the socket becomes readable. */
static int
try_setown(const char *argument)
{
    (void)argument;
    int code = met(fcntl(5, F_SETOWN, getppid()));
    if (code == 0)
        fcntl(5, F_SETOWN, 0);
    return code;
}

static int
try_ptrace_parent(const char *argument)
{
    (void)argument;
    pid_t parent = getppid();
    if (ptrace(PTRACE_SEIZE, parent, NULL, NULL) != 0)
        return errno;
    int status;
    if (ptrace(PTRACE_INTERRUPT, parent, NULL, NULL) == 0 && waitpid(parent, &status, __WALL) > 0)
        ptrace(PTRACE_DETACH, parent, NULL, NULL);
    return 0;
}

static int
try_read_parent(const char *argument)
{
    (void)argument;
    char here[8];
    struct iovec local = {here, sizeof(here)};
    struct iovec remote = {own_folder, sizeof(here)};
    int code = met(process_vm_readv(getppid(), &local, 1, &remote, 1, 0));
    return code == EFAULT ? 0 : code; /* it was allowed to look */
}

static int
try_parent_memory(const char *argument)
{
    (void)argument;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)getppid());
    return met_fd(open(path, O_RDONLY | O_CLOEXEC));
}

static int
try_move_parent(const char *argument)
{
    (void)argument;
    cpu_set_t cpus;
    if (sched_getaffinity(getppid(), sizeof(cpus), &cpus) != 0)
        return errno;
    return met(sched_setaffinity(getppid(), sizeof(cpus), &cpus));
}

/* ---- files ---- */

static int
try_read(const char *path)
{
    char byte;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int code = met(read(fd, &byte, 1));
    close(fd);
    return code;
}

static int
try_read_passwd(const char *argument)
{
    (void)argument;
    return try_read("/etc/passwd");
}

static int
try_read_own(const char *argument)
{
    (void)argument;
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof(path), "%s/libcaptive.so", own_folder);
    return try_read(path);
}

/* The test has put a link there that leads out. */
static int
try_read_link(const char *argument)
{
    (void)argument;
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof(path), "%s/out", own_folder);
    return try_read(path);
}

static int
try_write_own(const char *argument)
{
    (void)argument;
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof(path), "%s/written", own_folder);
    int code = met_fd(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (code == 0)
        unlink(path);
    return code;
}

/* A file that may be read, cut short without being opened for writing. */
static int
try_truncate_own(const char *argument)
{
    (void)argument;
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof(path), "%s/victim", own_folder);
    return met_fd(open(path, O_RDONLY | O_TRUNC | O_CLOEXEC));
}

static int
try_chmod_own(const char *argument)
{
    (void)argument;
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof(path), "%s/victim", own_folder);
    return met(chmod(path, 0600));
}

static int
try_memfd(const char *argument)
{
    (void)argument;
    return met_fd(memfd_create("captive", MFD_CLOEXEC));
}

/* ---- memory and limits ---- */

static int
try_map_code(const char *argument)
{
    (void)argument;
    void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return errno;
    munmap(code, 4096);
    return 0;
}

static int
try_make_code(const char *argument)
{
    (void)argument;
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return errno;
    int met_code = met(mprotect(code, 4096, PROT_READ | PROT_EXEC));
    munmap(code, 4096);
    return met_code;
}

/* Pages of the region, taken away from every process that maps it. */
static int
try_punch_region(const char *argument)
{
    (void)argument;
    return region == NULL ? ENXIO : met(madvise(region, 4096, MADV_REMOVE));
}

/* The same with rubbish in the half of the register that the kernel does not look at. */
static int
try_punch_region_long(const char *argument)
{
    (void)argument;
    long advice = (1L << 32) | MADV_REMOVE;
    return region == NULL ? ENXIO : met(syscall(SYS_madvise, region, 4096L, advice));
}

/* Through the descriptor that the worker was started with. */
static int
try_cut_region(const char *argument)
{
    (void)argument;
    struct stat info;
    return fstat(3, &info) != 0 ? errno : met(fallocate(3, 3, 0, 4096)); /* KEEP_SIZE, PUNCH_HOLE */
}

static int
try_cut_counters(const char *argument)
{
    (void)argument;
    struct stat info;
    return fstat(4, &info) != 0 ? errno : met(ftruncate(4, info.st_size));
}

static int
try_raise_limits(const char *argument)
{
    (void)argument;
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) != 0)
        return errno;
    limit.rlim_max = RLIM_INFINITY;
    return met(setrlimit(RLIMIT_CORE, &limit));
}

static int
try_outlive(const char *argument)
{
    (void)argument;
    int code = met(prctl(PR_SET_PDEATHSIG, 0));
    if (code == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return code;
}

static int
try_dumpable(const char *argument)
{
    (void)argument;
    return met(prctl(PR_SET_DUMPABLE, 1));
}

static int
try_affinity(const char *argument)
{
    (void)argument;
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0)
        return errno;
    return met(sched_setaffinity(0, sizeof(cpus), &cpus));
}

/* Types a letter into the node's terminal. */
static int
try_type(const char *argument)
{
    (void)argument;
    char letter = 'x';
    return met(ioctl(2, TIOCSTI, &letter));
}

/* ---- the kernel ---- */

/* A call with nothing in it: what is not refused fails for its arguments. An empty name of the
 * machine would be a valid one. */
static int
try_call(long number)
{
    long second = number == SYS_sethostname || number == SYS_setdomainname ? -1L : 0L;
    return met(syscall(number, -1L, second, 0L, 0L, 0L, 0L));
}

/* ---- what must go on to work ---- */

static int
try_raise(const char *argument)
{
    (void)argument;
    signal(SIGUSR1, SIG_IGN);
    return raise(SIGUSR1);
}

static void *
return_from_thread(void *argument)
{
    return argument;
}

static void *
exit_from_thread(void *argument)
{
    pthread_exit(argument);
}

static int
run_thread(void *(*body)(void *argument))
{
    pthread_t thread;
    int code = pthread_create(&thread, NULL, body, NULL);
    return code != 0 ? code : pthread_join(thread, NULL);
}

static int
try_thread(const char *argument)
{
    (void)argument;
    return run_thread(return_from_thread);
}

/* For which the C library wants libgcc; in a constructor it waits for its own lock. */
static int
try_thread_exit(const char *argument)
{
    (void)argument;
    return run_thread(exit_from_thread);
}

/* ---- the attempts ---- */

#define CALL(name)                                                                                 \
    {                                                                                              \
        "call_" #name, NULL, 0, SYS_##name                                                         \
    }

static const struct attempt {
    const char *name;
    int (*make)(const char *argument);
    int needs_argument;
    long call; /* if `make` is NULL */
} attempts[] = {
    {"tcp_socket", try_tcp_socket, 0, 0},
    {"unix_socket", try_unix_socket, 0, 0},
    {"socketpair", try_socketpair, 0, 0},
    {"abstract_socket", try_abstract_socket, 1, 0},
    {"fork", try_fork, 0, 0},
    {"vfork", try_vfork, 0, 0},
    {"clone3", try_clone3, 0, 0},
    {"clone_process", try_clone_process, 0, 0},
    {"spawn", try_spawn, 0, 0},
    {"execve", try_execve, 1, 0},
    {"signal_parent", try_signal_parent, 0, 0},
    {"signal", try_signal, 1, 0},
    {"pidfd_parent", try_pidfd_parent, 0, 0},
    {"setown", try_setown, 0, 0},
    {"ptrace_parent", try_ptrace_parent, 1, 0},
    {"read_parent", try_read_parent, 0, 0},
    {"parent_memory", try_parent_memory, 0, 0},
    {"move_parent", try_move_parent, 0, 0},
    {"read", try_read, 1, 0},
    {"read_passwd", try_read_passwd, 0, 0},
    {"read_own", try_read_own, 0, 0},
    {"read_link", try_read_link, 0, 0},
    {"write_own", try_write_own, 0, 0},
    {"truncate_own", try_truncate_own, 0, 0},
    {"chmod_own", try_chmod_own, 0, 0},
    {"memfd", try_memfd, 0, 0},
    {"map_code", try_map_code, 0, 0},
    {"make_code", try_make_code, 0, 0},
    {"punch_region", try_punch_region, 1, 0},
    {"punch_region_long", try_punch_region_long, 1, 0},
    {"cut_region", try_cut_region, 0, 0},
    {"cut_counters", try_cut_counters, 0, 0},
    {"raise_limits", try_raise_limits, 0, 0},
    {"outlive", try_outlive, 0, 0},
    {"dumpable", try_dumpable, 0, 0},
    {"affinity", try_affinity, 0, 0},
    {"type", try_type, 0, 0},
    {"unheard", NULL, 0, 470},
    {"raise", try_raise, 0, 0},
    {"thread", try_thread, 0, 0},
    {"thread_exit", try_thread_exit, 1, 0},
    /* clang-format off */
    CALL(accept4), CALL(acct), CALL(add_key), CALL(bind), CALL(bpf), CALL(capset), CALL(chroot),
    CALL(clock_settime), CALL(connect), CALL(delete_module), CALL(execveat), CALL(fallocate),
    CALL(fanotify_init), CALL(fchmodat), CALL(fchownat), CALL(fgetxattr), CALL(finit_module),
    CALL(flock), CALL(ftruncate), CALL(init_module), CALL(inotify_init1), CALL(io_uring_enter),
    CALL(io_uring_register), CALL(io_uring_setup), CALL(ioprio_set), CALL(kcmp), CALL(kexec_load),
    CALL(keyctl), CALL(landlock_create_ruleset), CALL(linkat), CALL(listen), CALL(listxattr),
    CALL(memfd_secret), CALL(migrate_pages), CALL(mkdirat), CALL(mknodat), CALL(mount),
    CALL(mount_setattr), CALL(move_mount), CALL(move_pages), CALL(mq_open), CALL(msgget),
    CALL(name_to_handle_at), CALL(open_by_handle_at), CALL(open_tree), CALL(perf_event_open),
    CALL(personality), CALL(pidfd_getfd), CALL(pidfd_send_signal), CALL(pivot_root),
    CALL(process_madvise), CALL(process_mrelease), CALL(process_vm_writev), CALL(ptrace),
    CALL(quotactl), CALL(reboot), CALL(recvfrom), CALL(recvmsg), CALL(remap_file_pages),
    CALL(renameat2), CALL(request_key), CALL(sched_setattr), CALL(sched_setscheduler), CALL(semget),
    CALL(sendfile), CALL(sendmsg), CALL(setdomainname), CALL(setgid), CALL(setgroups),
    CALL(sethostname), CALL(setns), CALL(setpgid), CALL(setpriority), CALL(setresuid),
    CALL(setrlimit), CALL(setsid), CALL(setsockopt), CALL(settimeofday), CALL(setuid),
    CALL(setxattr), CALL(shmget), CALL(splice), CALL(swapoff), CALL(swapon), CALL(symlinkat),
    CALL(syslog), CALL(tee), CALL(tkill), CALL(truncate), CALL(umount2), CALL(unlinkat),
    CALL(unshare), CALL(userfaultfd), CALL(utimensat), CALL(vhangup), CALL(vmsplice), CALL(wait4),
    /* clang-format on */
};

enum { ATTEMPT_COUNT = sizeof(attempts) / sizeof(attempts[0]) };

static int met_in_constructor[ATTEMPT_COUNT];
static int met_in_open[ATTEMPT_COUNT];

static int
attempt_make(const struct attempt *attempt, const char *argument)
{
    return attempt->make != NULL ? attempt->make(argument) : try_call(attempt->call);
}

static void
make_all(int *codes)
{
    for (size_t i = 0; i < ATTEMPT_COUNT; i++)
        codes[i] = attempts[i].needs_argument ? ENOMSG : attempt_make(&attempts[i], "");
}

/* ---- a thread that was there before the modelet was ready ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const struct attempt *wanted; /* NULL: none, or done */
    int met;
} elder = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *
elder_live(void *argument)
{
    pthread_mutex_lock(&elder.lock);
    for (;;) {
        while (elder.wanted == NULL)
            pthread_cond_wait(&elder.changed, &elder.lock);
        elder.met = attempt_make(elder.wanted, "");
        elder.wanted = NULL;
        pthread_cond_broadcast(&elder.changed);
    }
    return argument;
}

static int
elder_make(const struct attempt *attempt)
{
    pthread_mutex_lock(&elder.lock);
    elder.wanted = attempt;
    pthread_cond_broadcast(&elder.changed);
    while (elder.wanted != NULL)
        pthread_cond_wait(&elder.changed, &elder.lock);
    int code = elder.met;
    pthread_mutex_unlock(&elder.lock);
    return code;
}

static void
find_region(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[PATH_BYTES];
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        uintptr_t from;
        if (strstr(line, "memfd:shoal-region") != NULL && sscanf(line, "%lx", &from) == 1)
            region = (void *)from;
    }
    if (maps != NULL)
        fclose(maps);
}

static void
find_folder(void)
{
    Dl_info info;
    if (dladdr(attempts, &info) == 0)
        return;
    snprintf(own_folder, sizeof(own_folder), "%s", info.dli_fname);
    char *slash = strrchr(own_folder, '/');
    if (slash != NULL)
        *slash = '\0';
}

__attribute__((constructor)) static void
captive_construct(void)
{
    find_folder();
    find_region();
    make_all(met_in_constructor);
    pthread_t thread;
    if (pthread_create(&thread, NULL, elder_live, NULL) == 0)
        pthread_detach(thread);
}

static int
captive_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    (void)open;
    (void)instance;
    (void)error;
    make_all(met_in_open);
    return SHOAL_OK;
}

/* ---- answering ---- */

static int
attempt_find(const char *name)
{
    for (int i = 0; i < ATTEMPT_COUNT; i++)
        if (strcmp(attempts[i].name, name) == 0)
            return i;
    return -1;
}

static int32_t
answer(struct shoal_batch *batch, struct shoal_item *item, int code)
{
    static const int64_t one = 1;
    const char *text = code == 0 ? "ok" : strerrorname_np(code);
    uint32_t bytes = (uint32_t)strlen(text);
    char *out = batch->host->output_bytes(item, "met", SHOAL_BYTES, 1, &one, sizeof(bytes) + bytes);
    if (out == NULL)
        return item->status;
    memcpy(out, &bytes, sizeof(bytes));
    memcpy(out + sizeof(bytes), text, bytes);
    return SHOAL_OK;
}

static int32_t
perform(struct shoal_batch *batch, struct shoal_item *item)
{
    const struct shoal_tensor *input = &item->inputs[0];
    char text[TEXT_BYTES];
    snprintf(text, sizeof(text), "%.*s", (int)(input->bytes - 4), (const char *)input->data + 4);
    char *rest = text;
    const char *moment = strsep(&rest, " ");
    const char *name = rest == NULL ? "" : strsep(&rest, " ");
    int index = attempt_find(name);
    if (index < 0)
        return batch->host->fail(item, SHOAL_INVALID_ARGUMENT, "no attempt \"%s\"", name);
    if (strcmp(moment, "constructor") == 0)
        return answer(batch, item, met_in_constructor[index]);
    if (strcmp(moment, "open") == 0)
        return answer(batch, item, met_in_open[index]);
    if (strcmp(moment, "thread") == 0)
        return answer(batch, item, elder_make(&attempts[index]));
    return answer(batch, item, attempt_make(&attempts[index], rest == NULL ? "" : rest));
}

static int
captive_run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++)
        batch->items[i]->status = perform(batch, batch->items[i]);
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER, .name = "captive",  .version = "1",
    .open = captive_open, .run = captive_run,
};
