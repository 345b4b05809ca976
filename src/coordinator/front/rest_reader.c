/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/rest_reader.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/check.h"

struct rest_job {
    void (*work)(void *context);
    void *context;
};

struct rest_reader {
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct rest_job *jobs; /* a ring of `waiting_max` */
    uint32_t waiting_max;
    uint32_t first;
    uint32_t count;
    bool is_ending;
};

/* False: it is the end. */
static bool
wait_for_job(struct rest_reader *reader, struct rest_job *job)
{
    pthread_mutex_lock(&reader->lock);
    while (reader->count == 0 && !reader->is_ending)
        pthread_cond_wait(&reader->changed, &reader->lock);
    bool found = reader->count > 0;
    if (found) {
        *job = reader->jobs[reader->first];
        reader->first = (reader->first + 1) % reader->waiting_max;
        reader->count--;
    }
    pthread_mutex_unlock(&reader->lock);
    return found;
}

static void *
run(void *context)
{
    struct rest_job job;
    prctl(PR_SET_NAME, "shoald:json");
    while (wait_for_job(context, &job))
        job.work(job.context);
    return NULL;
}

struct rest_reader *
rest_reader_create(uint32_t waiting_max)
{
    sigset_t all;
    sigset_t before;
    struct rest_reader *reader = calloc(1, sizeof(*reader));
    CHECK(reader != NULL && waiting_max > 0);
    reader->jobs = calloc(waiting_max, sizeof(*reader->jobs));
    CHECK(reader->jobs != NULL);
    reader->waiting_max = waiting_max;
    CHECK(pthread_mutex_init(&reader->lock, NULL) == 0);
    CHECK(pthread_cond_init(&reader->changed, NULL) == 0);
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    CHECK(pthread_create(&reader->thread, NULL, run, reader) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    return reader;
}

bool
rest_reader_push(struct rest_reader *reader, void (*work)(void *context), void *context)
{
    pthread_mutex_lock(&reader->lock);
    bool has_room = reader->count < reader->waiting_max;
    if (has_room) {
        reader->jobs[(reader->first + reader->count) % reader->waiting_max] =
            (struct rest_job){work, context};
        reader->count++;
        pthread_cond_signal(&reader->changed);
    }
    pthread_mutex_unlock(&reader->lock);
    return has_room;
}

void
rest_reader_destroy(struct rest_reader *reader)
{
    if (reader == NULL)
        return;
    pthread_mutex_lock(&reader->lock);
    reader->is_ending = true;
    pthread_cond_signal(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
    CHECK(pthread_join(reader->thread, NULL) == 0);
    pthread_cond_destroy(&reader->changed);
    pthread_mutex_destroy(&reader->lock);
    free(reader->jobs);
    free(reader);
}
