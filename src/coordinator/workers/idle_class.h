/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers load models in the kernel's idle scheduling class (worker/pacer.h), with CPU time that
 * nothing else wants. On a busy machine that is a three-hundredth of it, so a starved load is moved
 * to the ordinary class. A thread needs a capability to do that itself, which a sandboxed worker
 * must not have; whether the coordinator has it is tried once.
 *
 * Loop thread. The process must be a child that has not been reaped, or its number may be
 * another's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A load as last seen; zero at first. */
struct idle_watch {
    int64_t looked_ns;
    uint64_t cpu_ns; /* of its threads in the idle class, at that time */
    bool over;       /* moved to the ordinary class */
};

/* Returns whether a worker's thread can be taken out of the idle class again: by CAP_SYS_NICE or a
 * limit (RLIMIT_NICE, systemd's `LimitNICE`) of at least 10. /proc must be mounted, too. */
bool idle_class_can_be_left(void);

/* Looks at the process every IDLE_LOOK_NS while it loads. True: its threads in the idle class had
 * less than a tenth of the time since the last look, and are in the ordinary class now. */
bool idle_watch_look(struct idle_watch *watch, pid_t pid, int64_t now_ns);

#define IDLE_LOOK_NS (100 * (int64_t)NS_PER_MS)
