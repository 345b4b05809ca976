/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/workers/idle_class.h"

#include <ctype.h>
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "ipc/handshake.h"

enum { SHARE_LEAST = 10 };

static bool
leave(pid_t tid)
{
    const struct sched_param none = {.sched_priority = 0};
    return sched_setscheduler(tid, SCHED_OTHER, &none) == 0;
}

/* ---- may we ---- */

/* Does as a loader does, so that the kernel treats this attempt alike. */
static void *
try_it(void *context)
{
    bool *left = context;
    const struct sched_param none = {.sched_priority = 0};
    *left = setpriority(PRIO_PROCESS, 0, LOADER_NICE) == 0 &&
            sched_setscheduler(0, SCHED_IDLE, &none) == 0 && leave(0);
    return NULL;
}

bool
idle_class_can_be_left(void)
{
    static enum { UNTRIED, NO, YES } known;
    if (known != UNTRIED)
        return known == YES;
    bool left = false;
    pthread_t thread;
    DIR *tasks = opendir("/proc/self/task");
    if (tasks != NULL && pthread_create(&thread, NULL, try_it, &left) == 0)
        pthread_join(thread, NULL);
    if (tasks != NULL)
        closedir(tasks);
    known = left ? YES : NO;
    return left;
}

/* ---- one load ---- */

/* 0 where the kernel does not say: then all count as starved, and none waits forever. */
static uint64_t
cpu_ns_of(pid_t pid, pid_t tid)
{
    char path[64];
    unsigned long long cpu_ns = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)pid, (int)tid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu", &cpu_ns) != 1)
        cpu_ns = 0;
    fclose(file);
    return cpu_ns;
}

/* Counts its threads in the idle class and their CPU time; `leaves`: takes them out of it. An
 * engine may have started some of them in a load. */
static uint32_t
each_idle(pid_t pid, uint64_t *cpu_ns, bool leaves)
{
    char path[32];
    uint32_t count = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        return 0;
    const struct dirent *entry;
    while ((entry = readdir(tasks)) != NULL) {
        pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (!isdigit((unsigned char)entry->d_name[0]) || sched_getscheduler(tid) != SCHED_IDLE)
            continue;
        *cpu_ns += cpu_ns_of(pid, tid);
        count += !leaves || leave(tid);
    }
    closedir(tasks);
    return count;
}

bool
idle_watch_look(struct idle_watch *watch, pid_t pid, int64_t now_ns)
{
    int64_t past_ns = now_ns - watch->looked_ns;
    uint64_t cpu_ns = 0;
    if (watch->over || past_ns < IDLE_LOOK_NS)
        return false;
    if (each_idle(pid, &cpu_ns, false) == 0)
        return false;
    bool first = watch->looked_ns == 0;
    bool starved = !first && (cpu_ns - watch->cpu_ns) * SHARE_LEAST < (uint64_t)past_ns;
    *watch = (struct idle_watch){.looked_ns = now_ns, .cpu_ns = cpu_ns, .over = starved};
    return starved && each_idle(pid, &cpu_ns, true) > 0;
}
