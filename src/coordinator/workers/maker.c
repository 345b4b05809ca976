/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/workers/maker.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/check.h"
#include "shm/region.h"

struct job {
    struct maker *maker;
    struct maker_order order;
    struct made_region region;
    struct error error;
    struct job *next;
};

struct maker {
    struct loop *loop;
    pthread_t thread;
    bool started; /* with the first order: most nodes have no local clients */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* under the mutex: */
    bool ends;
    struct job *first, *last; /* ordered and not begun */
};

void
made_region_discard(struct made_region *region)
{
    if (region->fd >= 0)
        close(region->fd);
    region->fd = -1;
}

static void
make(struct job *job)
{
    struct region region;
    if (region_create(&region, &job->order.plan, 1, &job->error) != STATUS_OK)
        return;
    job->region = (struct made_region){.fd = fcntl(region.fd, F_DUPFD_CLOEXEC, 0),
                                       .bytes = region.layout.region_bytes};
    if (job->region.fd < 0)
        error_set_errno(&job->error, "a region's descriptor");
    region_detach(&region); /* no page of it is looked at again: its client can take them out */
}

/* On the loop thread, also when the maker has ended. */
static void
hand_over(void *context)
{
    struct job *job = context;
    if (job->maker->ends)
        made_region_discard(&job->region);
    else
        job->order.made(&job->order, job->region, &job->error);
    free(job);
}

/* NULL: it is to end. */
static struct job *
next_job(struct maker *maker)
{
    CHECK(pthread_mutex_lock(&maker->mutex) == 0);
    while (maker->first == NULL && !maker->ends)
        CHECK(pthread_cond_wait(&maker->changed, &maker->mutex) == 0);
    struct job *job = maker->ends ? NULL : maker->first;
    if (job != NULL)
        maker->first = job->next;
    CHECK(pthread_mutex_unlock(&maker->mutex) == 0);
    return job;
}

static void *
run(void *context)
{
    struct maker *maker = context;
    prctl(PR_SET_NAME, "shoald:maker");
    for (struct job *job; (job = next_job(maker)) != NULL;) {
        make(job);
        loop_post(maker->loop, hand_over, job);
    }
    return NULL;
}

/* No signal is for this thread. */
static void
start(struct maker *maker)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    CHECK(pthread_create(&maker->thread, NULL, run, maker) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    maker->started = true;
}

struct maker *
maker_create(struct loop *loop)
{
    struct maker *maker = calloc(1, sizeof(*maker));
    CHECK(maker != NULL);
    maker->loop = loop;
    CHECK(pthread_mutex_init(&maker->mutex, NULL) == 0);
    CHECK(pthread_cond_init(&maker->changed, NULL) == 0);
    return maker;
}

void
maker_destroy(struct maker *maker)
{
    CHECK(pthread_mutex_lock(&maker->mutex) == 0);
    maker->ends = true;
    CHECK(pthread_cond_signal(&maker->changed) == 0);
    CHECK(pthread_mutex_unlock(&maker->mutex) == 0);
    if (maker->started)
        CHECK(pthread_join(maker->thread, NULL) == 0);
    loop_run_posted(maker->loop);
    while (maker->first != NULL) {
        struct job *job = maker->first;
        maker->first = job->next;
        free(job);
    }
    CHECK(pthread_cond_destroy(&maker->changed) == 0);
    CHECK(pthread_mutex_destroy(&maker->mutex) == 0);
    free(maker);
}

void
maker_order(struct maker *maker, const struct maker_order *order)
{
    struct job *job = malloc(sizeof(*job));
    CHECK(job != NULL);
    *job = (struct job){.maker = maker, .order = *order, .region.fd = -1, .error = ERROR_NONE};
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
