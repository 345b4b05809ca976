/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/doorbell.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* Not the PRIVATE forms: the word is shared between processes. */
static long
futex(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
}

uint32_t
doorbell_prepare(struct shm_doorbell *bell)
{
    uint32_t sequence = atomic_load_explicit(&bell->sequence, memory_order_relaxed);
    atomic_store_explicit(&bell->asleep, 1, memory_order_relaxed);
    /* pairs with the fence in doorbell_ring: the waker sees our flag, or we see its work */
    atomic_thread_fence(memory_order_seq_cst);
    return sequence;
}

void
doorbell_cancel(struct shm_doorbell *bell)
{
    atomic_store_explicit(&bell->asleep, 0, memory_order_relaxed);
}

bool
doorbell_sleep(struct shm_doorbell *bell, uint32_t prepared, int64_t timeout_ns)
{
    bool rung = true;
    if (timeout_ns > 0) {
        struct timespec timeout = {.tv_sec = timeout_ns / NS_PER_S,
                                   .tv_nsec = timeout_ns % NS_PER_S};
        /* EAGAIN: the sequence has changed since prepare, so the bell was rung already */
        if (futex(&bell->sequence, FUTEX_WAIT, prepared, &timeout) != 0 && errno != EAGAIN)
            rung = false;
    } else {
        rung = atomic_load_explicit(&bell->sequence, memory_order_relaxed) != prepared;
    }
    atomic_store_explicit(&bell->asleep, 0, memory_order_relaxed);
    return rung;
}

/* ---- several bells ---- */

void
doorbells_prepare(struct doorbells *doorbells)
{
    for (uint32_t i = 0; i < doorbells->count; i++) {
        struct shm_doorbell *bell = doorbells->bells[i];
        doorbells->prepared[i] = atomic_load_explicit(&bell->sequence, memory_order_relaxed);
        atomic_store_explicit(&bell->asleep, 1, memory_order_relaxed);
    }
    atomic_thread_fence(memory_order_seq_cst); /* one for all bells; as in doorbell_prepare */
}

void
doorbells_cancel(struct doorbells *doorbells)
{
    doorbell_cancel(doorbells->bells[0]);
}

/* Waits on any of them. ENOSYS or EPERM: not available. */
static long
futex_any(const struct doorbells *doorbells, const struct timespec *until)
{
    struct futex_waitv waits[DOORBELLS_MAX];
    for (uint32_t i = 0; i < doorbells->count; i++)
        waits[i] = (struct futex_waitv){
            .val = doorbells->prepared[i],
            .uaddr = (uintptr_t)&doorbells->bells[i]->sequence,
            .flags = FUTEX_32,
        };
    return syscall(SYS_futex_waitv, waits, doorbells->count, 0, until, CLOCK_MONOTONIC);
}

bool
doorbells_can_wait(void)
{
    struct shm_doorbell bell = {0};
    struct doorbells one = {.bells = {&bell}, .prepared = {1}, .count = 1};
    return futex_any(&one, NULL) == 0 || errno == EAGAIN; /* the value differs: returns at once */
}

bool
doorbells_sleep(struct doorbells *doorbells, int64_t timeout_ns)
{
    if (doorbells->count == 1 || timeout_ns <= 0)
        return doorbell_sleep(doorbells->bells[0], doorbells->prepared[0], timeout_ns);
    int64_t until_ns = clock_now_ns() + timeout_ns;
    struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};
    bool rung = futex_any(doorbells, &until) >= 0 || errno == EAGAIN;
    if (!rung && (errno == ENOSYS || errno == EPERM)) {
        if (timeout_ns > DOORBELLS_BLIND_NS)
            timeout_ns = DOORBELLS_BLIND_NS;
        return doorbell_sleep(doorbells->bells[0], doorbells->prepared[0], timeout_ns);
    }
    doorbell_cancel(doorbells->bells[0]);
    return rung;
}

bool
doorbell_ring(struct shm_doorbell *bell)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&bell->asleep, memory_order_relaxed) == 0)
        return false;
    /* only one of several wakers makes the system call */
    if (atomic_exchange_explicit(&bell->asleep, 0, memory_order_relaxed) == 0)
        return false;
    doorbell_wake(bell);
    return true;
}

void
doorbell_wake(struct shm_doorbell *bell)
{
    atomic_fetch_add_explicit(&bell->sequence, 1, memory_order_release);
    futex(&bell->sequence, FUTEX_WAKE, 1, NULL);
}

void
spin_init(struct spin *spin, int64_t limit_ns)
{
    spin->limit_ns = limit_ns;
    spin->barred_until_ns = 0;
    spin->budget_ns = limit_ns < SPIN_BUDGET_MIN_NS ? limit_ns : SPIN_BUDGET_MIN_NS;
}

static void
spin_grow(struct spin *spin)
{
    spin->budget_ns *= 2;
    if (spin->budget_ns > spin->limit_ns)
        spin->budget_ns = spin->limit_ns;
}

void
spin_rewarded(struct spin *spin)
{
    spin_grow(spin);
}

void
spin_failed(struct spin *spin)
{
    spin->budget_ns /= 2;
    if (spin->budget_ns < SPIN_BUDGET_MIN_NS)
        spin->budget_ns = spin->limit_ns < SPIN_BUDGET_MIN_NS ? spin->limit_ns : SPIN_BUDGET_MIN_NS;
}

void
spin_after_sleep(struct spin *spin, int64_t slept_ns)
{
    /* not only to the old value: the unsuccessful polling before this sleep has halved it */
    if (slept_ns < spin->limit_ns && 2 * slept_ns > spin->budget_ns)
        spin->budget_ns = 2 * slept_ns < spin->limit_ns ? 2 * slept_ns : spin->limit_ns;
}

int64_t
spin_budget(const struct spin *spin, int64_t now_ns)
{
    return now_ns < spin->barred_until_ns ? 0 : spin->budget_ns;
}

int64_t
spin_pause(struct spin *spin, int64_t now_ns)
{
    sched_yield();
    int64_t after_ns = clock_now_ns();
    if (after_ns - now_ns > SPIN_PAUSE_NS_MAX)
        spin->barred_until_ns = after_ns + SPIN_BAR_FACTOR * (after_ns - now_ns);
    return after_ns;
}
