/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU on which another thread of this process runs or ran last. The kernel keeps it in a word
 * of each thread (rseq(2)), registered by the C library. Reading it makes no system call and does
 * not involve the thread, which must not have ended.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/rseq.h>

struct running_cpu {
    const _Atomic uint32_t *word; /* NULL: unknown */
};

static inline const char *
running_cpu_thread_pointer(void)
{
#ifdef __x86_64__
    const char *pointer; /* its own address is the first word of what it points to */
    __asm__("mov %%fs:0, %0" : "=r"(pointer));
    return pointer;
#else
    return __builtin_thread_pointer();
#endif
}

/* Returns the calling thread's, for other threads to read. */
static inline struct running_cpu
running_cpu_own(void)
{
    struct running_cpu own = {.word = NULL};
    if (__rseq_size > 0)
        own.word = (const void *)(running_cpu_thread_pointer() + __rseq_offset +
                                  offsetof(struct rseq, cpu_id));
    return own;
}

/* Returns the CPU's number; UINT32_MAX or another number that no CPU has: unknown. Any memory
 * order: the value may be outdated anyway. */
static inline uint32_t
running_cpu_read(struct running_cpu of)
{
    return of.word == NULL ? UINT32_MAX : atomic_load_explicit(of.word, memory_order_relaxed);
}
