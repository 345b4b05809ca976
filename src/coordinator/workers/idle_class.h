/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers load in the kernel's idle class (worker/pacer.h): with what CPU nobody else wants. Where
 * nobody leaves any, that is a three-hundredth, so a load that is starved is put into the ordinary
 * class, and ends there. Threads can't do that for themselves without a right that a worker in its
 * sandbox shall not have; whether the coordinator may is tried out once.
 *
 * Loop thread. The process looked at must be a child that has not been waited for, or its number
 * may be another's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* One load as last seen; all zeros before. */
struct idle_watch {
    int64_t looked_ns;
    uint64_t cpu_ns; /* of its threads in the idle class, then */
    bool over;       /* it is in the ordinary class */
};

/* Whether a thread of a worker can be taken out of the idle class again: with CAP_SYS_NICE, or a
 * limit (RLIMIT_NICE, `LimitNICE` of systemd) of at least 10. And /proc must be there to find it.
 */
bool idle_class_can_be_left(void);

/* Looks at the process each IDLE_LOOK_NS while it loads; true: what is in the idle class had less
 * than a tenth of the time since the last look, and is in the ordinary class now. */
bool idle_watch_look(struct idle_watch *watch, pid_t pid, int64_t now_ns);

#define IDLE_LOOK_NS (100 * (int64_t)NS_PER_MS)
