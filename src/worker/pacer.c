/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/pacer.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"

/* Half of it helped nobody: DESIGN.md. */
static const struct timespec turn = {.tv_nsec = NS_PER_MS / 2};

static void *
pacer_run(void *context)
{
    struct pacer *pacer = context;
    pthread_setname_np(pthread_self(), "shoal:pacer");
    pthread_mutex_lock(&pacer->lock);
    while (!pacer->ended) {
        if (!pacer->wanted) {
            pthread_cond_wait(&pacer->changed, &pacer->lock);
            continue;
        }
        pthread_mutex_unlock(&pacer->lock);
        nanosleep(&turn, NULL);
        pthread_mutex_lock(&pacer->lock);
        pacer->wakes++;
    }
    pthread_mutex_unlock(&pacer->lock);
    return NULL;
}

enum status
pacer_start(struct pacer *pacer, struct error *error)
{
    *pacer = (struct pacer){.started = false};
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

static void
tell(struct pacer *pacer, bool *word, bool value)
{
    if (!pacer->started)
        return;
    pthread_mutex_lock(&pacer->lock);
    *word = value;
    pthread_cond_signal(&pacer->changed);
    pthread_mutex_unlock(&pacer->lock);
}

void
pacer_stop(struct pacer *pacer)
{
    tell(pacer, &pacer->ended, true);
    if (!pacer->started)
        return;
    pthread_join(pacer->thread, NULL);
    pacer->started = false;
    pthread_cond_destroy(&pacer->changed);
    pthread_mutex_destroy(&pacer->lock);
}

void
pacer_begin(struct pacer *pacer)
{
    tell(pacer, &pacer->wanted, true);
}

void
pacer_end(struct pacer *pacer)
{
    tell(pacer, &pacer->wanted, false);
}

uint64_t
pacer_wakes(struct pacer *pacer)
{
    pthread_mutex_lock(&pacer->lock);
    uint64_t wakes = pacer->wakes;
    pthread_mutex_unlock(&pacer->lock);
    return wakes;
}
