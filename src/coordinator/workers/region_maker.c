/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/workers/region_maker.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/check.h"
#include "shm/region.h"

struct region_job {
    struct region_maker *maker;
    struct region_maker_order order;
    struct made_region region;
    struct error error;
    struct region_job *next;
};

struct region_maker {
    struct loop *loop;
    pthread_t thread;
    bool started; /* started with the first order: most nodes have no local clients */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* under the mutex: */
    bool ends;
    struct region_job *first, *last; /* ordered and not begun */
};

void
made_region_discard(struct made_region *region)
{
    if (region->fd >= 0)
        close(region->fd);
    region->fd = -1;
}

static void
make(struct region_job *job)
{
    struct region region;
    if (region_create(&region, &job->order.plan, 1, &job->error) != STATUS_OK)
        return;
    job->region = (struct made_region){.fd = fcntl(region.fd, F_DUPFD_CLOEXEC, 0),
                                       .bytes = region.layout.region_bytes};
    if (job->region.fd < 0)
        error_set_errno(&job->error, "a region's descriptor");
    region_detach(&region); /* no page of it is touched again: its client can remove them */
}

/* Runs on the loop thread, possibly after the region maker's end. */
static void
hand_over(void *context)
{
    struct region_job *job = context;
    if (job->maker->ends)
        made_region_discard(&job->region);
    else
        job->order.made(&job->order, job->region, &job->error);
    free(job);
}

/* NULL: the thread is to end. */
static struct region_job *
next_job(struct region_maker *maker)
{
    CHECK(pthread_mutex_lock(&maker->mutex) == 0);
    while (maker->first == NULL && !maker->ends)
        CHECK(pthread_cond_wait(&maker->changed, &maker->mutex) == 0);
    struct region_job *job = maker->ends ? NULL : maker->first;
    if (job != NULL)
        maker->first = job->next;
    CHECK(pthread_mutex_unlock(&maker->mutex) == 0);
    return job;
}

static void *
run(void *context)
{
    struct region_maker *maker = context;
    prctl(PR_SET_NAME, "shoald:maker");
    for (struct region_job *job; (job = next_job(maker)) != NULL;) {
        make(job);
        loop_post(maker->loop, hand_over, job);
    }
    return NULL;
}

/* This thread takes no signals. */
static void
start(struct region_maker *maker)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    CHECK(pthread_create(&maker->thread, NULL, run, maker) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    maker->started = true;
}

struct region_maker *
region_maker_create(struct loop *loop)
{
    struct region_maker *maker = calloc(1, sizeof(*maker));
    CHECK(maker != NULL);
    maker->loop = loop;
    CHECK(pthread_mutex_init(&maker->mutex, NULL) == 0);
    CHECK(pthread_cond_init(&maker->changed, NULL) == 0);
    return maker;
}

void
region_maker_destroy(struct region_maker *maker)
{
    CHECK(pthread_mutex_lock(&maker->mutex) == 0);
    maker->ends = true;
    CHECK(pthread_cond_signal(&maker->changed) == 0);
    CHECK(pthread_mutex_unlock(&maker->mutex) == 0);
    if (maker->started)
        CHECK(pthread_join(maker->thread, NULL) == 0);
    loop_run_posted(maker->loop);
    while (maker->first != NULL) {
        struct region_job *job = maker->first;
        maker->first = job->next;
        free(job);
    }
    CHECK(pthread_cond_destroy(&maker->changed) == 0);
    CHECK(pthread_mutex_destroy(&maker->mutex) == 0);
    free(maker);
}

void
region_maker_order(struct region_maker *maker, const struct region_maker_order *order)
{
    struct region_job *job = malloc(sizeof(*job));
    CHECK(job != NULL);
    *job =
        (struct region_job){.maker = maker, .order = *order, .region.fd = -1, .error = ERROR_NONE};
    if (!maker->started)
        start(maker);
    CHECK(pthread_mutex_lock(&maker->mutex) == 0);
    if (maker->first == NULL)
        maker->first = job;
    else
        maker->last->next = job;
    maker->last = job;
    CHECK(pthread_cond_signal(&maker->changed) == 0);
    CHECK(pthread_mutex_unlock(&maker->mutex) == 0);
}
