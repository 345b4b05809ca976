/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/pacer.h"

#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "ipc/handshake.h"

/* Half of this brought no improvement. */
static const struct timespec turn = {.tv_nsec = NS_PER_MS / 2};

/* ---- the class ---- */

static void
set_class(const struct pacer *pacer, int class)
{
    const struct sched_param none = {.sched_priority = 0};
    if (pacer->may_idle)
        (void)sched_setscheduler(0, class, &none);
}

/* ---- where it runs ---- */

/* Moves this thread to the loader's CPU; `*here` is the CPU to which it was moved last. */
static void
go_where(uint32_t cpu, uint32_t *here)
{
    cpu_set_t cpus;
    if (cpu == *here || cpu >= CPU_SETSIZE)
        return;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    (void)sched_setaffinity(0, sizeof(cpus), &cpus);
    *here = cpu;
}

/* ---- the thread ---- */

static void *
pacer_run(void *context)
{
    struct pacer *pacer = context;
    uint32_t here = UINT32_MAX;
    pthread_setname_np(pthread_self(), "shoal:pacer");
    pthread_mutex_lock(&pacer->lock);
    while (!pacer->ended) {
        if (!pacer->wanted) {
            pthread_cond_wait(&pacer->changed, &pacer->lock);
            continue;
        }
        uint32_t cpu = running_cpu_read(pacer->loader_cpu);
        pthread_mutex_unlock(&pacer->lock);
        go_where(cpu, &here);
        nanosleep(&turn, NULL);
        pthread_mutex_lock(&pacer->lock);
        pacer->wakes++;
    }
    pthread_mutex_unlock(&pacer->lock);
    return NULL;
}

enum status
pacer_start(struct pacer *pacer, enum pacer_class class, struct error *error)
{
    *pacer = (struct pacer){.may_idle = class == PACER_MAY_IDLE};
    pthread_mutex_init(&pacer->lock, NULL);
    pthread_cond_init(&pacer->changed, NULL);
    int code = pthread_create(&pacer->thread, NULL, pacer_run, pacer);
    if (code != 0) {
        errno = code;
        return error_set_errno(error, "starting the loader's pacer");
    }
    pacer->started = true;
    return STATUS_OK;
}

void
pacer_stop(struct pacer *pacer)
{
    if (!pacer->started)
        return;
    pthread_mutex_lock(&pacer->lock);
    pacer->ended = true;
    pthread_cond_signal(&pacer->changed);
    pthread_mutex_unlock(&pacer->lock);
    pthread_join(pacer->thread, NULL);
    pacer->started = false;
    pthread_cond_destroy(&pacer->changed);
    pthread_mutex_destroy(&pacer->lock);
}

/* ---- the thread that loads ---- */

void
pacer_follow(struct pacer *pacer)
{
    (void)setpriority(PRIO_PROCESS, 0, LOADER_NICE); /* for this thread alone */
    pacer->loader_cpu = running_cpu_own();
}

static void
notify(struct pacer *pacer, bool wanted)
{
    pthread_mutex_lock(&pacer->lock);
    pacer->wanted = wanted;
    pthread_cond_signal(&pacer->changed);
    pthread_mutex_unlock(&pacer->lock);
}

void
pacer_begin(struct pacer *pacer)
{
    if (!pacer->started)
        return;
    notify(pacer, true);
    set_class(pacer, SCHED_IDLE);
}

/* Between loads the loader is in the ordinary class: in the idle class it might not receive the
 * next order. */
void
pacer_end(struct pacer *pacer)
{
    if (!pacer->started)
        return;
    set_class(pacer, SCHED_OTHER);
    notify(pacer, false);
}

uint64_t
pacer_wakes(struct pacer *pacer)
{
    pthread_mutex_lock(&pacer->lock);
    uint64_t wakes = pacer->wakes;
    pthread_mutex_unlock(&pacer->lock);
    return wakes;
}
