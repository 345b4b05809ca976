/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"

enum {
    EXIT_USAGE = 2,
    EXIT_NOT_RUN = 126,
    PATH_BYTES = 4096,
    CPU_PERIOD_US = 100000,
    OPEN_FOLDERS = 16,
};

struct keeper {
    pid_t program;
    int status; /* of its end */
    bool ended;
    unsigned long long memory_bytes, cpu_milli;
    char group[PATH_BYTES]; /* its cgroup's folder; "": none */
    char folder[64];        /* a scratch folder; "": none */
    bool limits_data;       /* no cgroup limits the memory */
};

/* ---- files of the kernel ---- */

static bool
put_file(const char *folder, const char *name, const char *text)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t bytes = strlen(text);
    bool is_put = write(fd, text, bytes) == (ssize_t)bytes;
    close(fd);
    return is_put;
}

static bool
has_file(const char *folder, const char *name)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, W_OK) == 0;
}

/* Finds where cgroup v2 is mounted; false: nowhere. */
static bool
find_mount(char mount[PATH_BYTES])
{
    char line[PATH_BYTES];
    bool found = false;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        const char *type = strstr(line, " - cgroup2 ");
        found = type != NULL && sscanf(line, "%*s %*s %*s %*s %4095s", mount) == 1;
    }
    if (file != NULL)
        fclose(file);
    return found;
}

/* This process's path in it, with a slash in front. */
static bool
find_own(char own[PATH_BYTES])
{
    char line[PATH_BYTES];
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "0::/", 4) == 0) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(own, PATH_BYTES, "%s", line + 3);
            found = true;
        }
    if (file != NULL)
        fclose(file);
    return found;
}

/* ---- the cgroup ---- */

/* Makes the cgroup below `parent`. */
static bool
make_group(struct keeper *keeper, const char *parent)
{
    char group[PATH_BYTES];
    if (snprintf(group, sizeof(group), "%s/shoal-%d", parent, (int)getpid()) >= PATH_BYTES ||
        mkdir(group, 0755) != 0)
        return false;
    memcpy(keeper->group, group, sizeof(group));
    (void)put_file(parent, "cgroup.subtree_control", "+memory");
    (void)put_file(parent, "cgroup.subtree_control", "+cpu");
    return true;
}

/* shoald's own cgroup has processes and thus, below the root, no controllers for others; its parent
 * may have been delegated as well. */
static void
find_group(struct keeper *keeper)
{
    char mount[PATH_BYTES];
    char own[PATH_BYTES];
    char path[2 * PATH_BYTES];
    if (!find_mount(mount) || !find_own(own))
        return;
    snprintf(path, sizeof(path), "%s%s", mount, strcmp(own, "/") == 0 ? "" : own);
    bool made = make_group(keeper, path);
    if (made && has_file(keeper->group, "memory.max"))
        return;
    char *slash = strrchr(path, '/');
    if (strlen(path) <= strlen(mount) || slash == NULL)
        return;
    char without[PATH_BYTES];
    memcpy(without, keeper->group, sizeof(without));
    *slash = '\0';
    if (make_group(keeper, path) && made)
        rmdir(without);
}

static void
limit(struct keeper *keeper)
{
    char text[64];
    bool memory = keeper->memory_bytes == 0;
    bool cpu = keeper->cpu_milli == 0;
    find_group(keeper);
    if (!memory && keeper->group[0] != '\0') {
        snprintf(text, sizeof(text), "%llu", keeper->memory_bytes);
        memory = put_file(keeper->group, "memory.max", text);
        (void)put_file(keeper->group, "memory.swap.max", "0");
        (void)put_file(keeper->group, "memory.oom.group", "1");
    }
    if (!cpu && keeper->group[0] != '\0') {
        snprintf(text, sizeof(text), "%llu %d", keeper->cpu_milli * CPU_PERIOD_US / 1000,
                 CPU_PERIOD_US);
        cpu = put_file(keeper->group, "cpu.max", text);
    }
    keeper->limits_data = !memory;
    if (!memory || !cpu)
        log_warn("container_limits memory=%s cpu=%s cgroup=\"%s\" action=\"delegate a cgroup v2 "
                 "with memory and cpu to shoald, such as by Delegate=yes of systemd\"",
                 keeper->memory_bytes == 0 ? "none"
                 : memory                  ? "cgroup"
                                           : "rlimit_of_each_process",
                 keeper->cpu_milli == 0 ? "none"
                 : cpu                  ? "cgroup"
                                        : "not_enforced",
                 keeper->group);
}

/* ---- the program ---- */

/* Enters the folder where the program starts. A container's folder need not exist on the host. */
static void
enter_folder(struct keeper *keeper, const char *folder)
{
    const char *temporary = getenv("TMPDIR");
    if (chdir(folder) == 0)
        return;
    snprintf(keeper->folder, sizeof(keeper->folder), "%.40s/shoal-XXXXXX",
             temporary != NULL ? temporary : "/tmp");
    if (mkdtemp(keeper->folder) == NULL || chdir(keeper->folder) != 0) {
        log_error("container_folder_failed folder=\"%s\" error=\"%s\"", keeper->folder,
                  strerror(errno));
        keeper->folder[0] = '\0';
        (void)!chdir("/");
        return;
    }
    log_info("container_folder folder=\"%s\" instead_of=\"%s\"", keeper->folder, folder);
}

/* Runs in the child. The keeper may have died before the kernel was asked to kill this process with
 * it. */
static _Noreturn void
become_program(const struct keeper *keeper, pid_t parent, char **argv)
{
    sigset_t none;
    sigemptyset(&none);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(EXIT_NOT_RUN);
    (void)setpgid(0, 0);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)dup2(nothing, STDIN_FILENO);
    if (keeper->group[0] != '\0')
        (void)put_file(keeper->group, "cgroup.procs", "0");
    const struct rlimit data = {keeper->memory_bytes, keeper->memory_bytes};
    if (keeper->limits_data)
        (void)setrlimit(RLIMIT_DATA, &data);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(argv[KEEP_PROGRAM], &argv[KEEP_ARGUMENTS]);
    log_error("container_not_run program=\"%s\" error=\"%s\"", argv[KEEP_PROGRAM], strerror(errno));
    _exit(EXIT_NOT_RUN);
}

static bool
start_program(struct keeper *keeper, char **argv)
{
    pid_t self = getpid();
    keeper->program = fork();
    if (keeper->program == 0)
        become_program(keeper, self, argv);
    if (keeper->program < 0)
        log_error("container_not_run program=\"%s\" error=\"%s\"", argv[KEEP_PROGRAM],
                  strerror(errno));
    else
        (void)setpgid(keeper->program, keeper->program); /* either of the two is the first */
    return keeper->program > 0;
}

/* ---- its end ---- */

/* One child, or none; false: no child has ended, or none is left. */
static bool
reap_one(struct keeper *keeper, int flags)
{
    int status;
    pid_t pid = waitpid(-1, &status, flags);
    if (pid > 0 && pid == keeper->program) {
        keeper->status = status;
        keeper->ended = true;
    }
    return pid > 0;
}

/* False: no child is left that may be killed. */
static bool
kill_children(void)
{
    char path[64];
    int pid;
    bool any = false;
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    while (file != NULL && fscanf(file, "%d", &pid) == 1)
        any = kill(pid, SIGKILL) == 0 || any;
    if (file != NULL)
        fclose(file);
    return any;
}

/* Children of killed ones come here, alive, and are killed in the next round: so a round waits for
 * one end, not for all. */
static void
kill_all(struct keeper *keeper)
{
    if (keeper->group[0] != '\0')
        (void)put_file(keeper->group, "cgroup.kill", "1");
    while (kill_children() && reap_one(keeper, 0))
        continue;
}

static int
remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info;
    (void)type;
    (void)at;
    (void)remove(path);
    return 0;
}

static void
clean_up(struct keeper *keeper)
{
    if (keeper->group[0] != '\0')
        (void)rmdir(keeper->group);
    if (keeper->folder[0] != '\0' && chdir("/") == 0)
        (void)nftw(keeper->folder, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
}

/* Ends as the program did, for shoald to see. */
static int
end_likewise(const struct keeper *keeper)
{
    const struct rlimit none = {0, 0};
    sigset_t own;
    if (!keeper->ended || !WIFSIGNALED(keeper->status))
        return keeper->ended ? WEXITSTATUS(keeper->status) : EXIT_NOT_RUN;
    int number = WTERMSIG(keeper->status);
    (void)setrlimit(RLIMIT_CORE, &none);
    signal(number, SIG_DFL);
    sigemptyset(&own);
    sigaddset(&own, number);
    (void)raise(number);
    sigprocmask(SIG_UNBLOCK, &own, NULL);
    return 128 + number;
}

static void
wait_for_end(struct keeper *keeper, const sigset_t *signals)
{
    while (!keeper->ended) {
        int number = sigwaitinfo(signals, NULL);
        if (number == SIGTERM)
            (void)kill(-keeper->program, SIGTERM);
        else if (number == SIGHUP)
            return;
        else if (number == SIGCHLD)
            while (reap_one(keeper, WNOHANG))
                continue;
    }
}

int
keep(int argc, char **argv)
{
    static struct keeper keeper;
    sigset_t all;
    sigset_t signals;
    if (argc <= KEEP_ARGUMENTS)
        return EXIT_USAGE;
    log_init("shoal-container", LOG_INFO);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    if (prctl(PR_SET_PDEATHSIG, SIGHUP) != 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 ||
        getppid() != (pid_t)strtol(argv[KEEP_PARENT], NULL, 10))
        return EXIT_NOT_RUN;
    keeper.memory_bytes = strtoull(argv[KEEP_MEMORY], NULL, 10);
    keeper.cpu_milli = strtoull(argv[KEEP_CPU], NULL, 10);
    limit(&keeper);
    enter_folder(&keeper, argv[KEEP_FOLDER]);
    if (start_program(&keeper, argv))
        wait_for_end(&keeper, &signals);
    kill_all(&keeper);
    clean_up(&keeper);
    return end_likewise(&keeper);
}
