/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/rest_reader.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/check.h"

enum {
    READ_MAX = 2
}; /* bodies in memory as decompressed and read: one is taken while the next is
      being read */

struct rest_reader {
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct rest_reader_limits limits;
    struct rest_job *jobs; /* a ring of `limits.waiting_max` */
    uint32_t first;
    uint32_t count;
    uint64_t waiting_bytes; /* of their bodies */
    uint32_t read;          /* being read, or not taken since */
    bool is_ending;
};

/* False: it is the end. */
static bool
wait_for_job(struct rest_reader *reader, struct rest_job *job)
{
    pthread_mutex_lock(&reader->lock);
    while (reader->read == READ_MAX || (reader->count == 0 && !reader->is_ending))
        pthread_cond_wait(&reader->changed, &reader->lock);
    bool found = reader->count > 0;
    if (found) {
        *job = reader->jobs[reader->first];
        reader->first = (reader->first + 1) % reader->limits.waiting_max;
        reader->count--;
        reader->waiting_bytes -= job->body_bytes;
        reader->read++;
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
rest_reader_create(const struct rest_reader_limits *limits)
{
    sigset_t all;
    sigset_t before;
    struct rest_reader *reader = calloc(1, sizeof(*reader));
    CHECK(reader != NULL && limits->waiting_max > 0);
    reader->jobs = calloc(limits->waiting_max, sizeof(*reader->jobs));
    CHECK(reader->jobs != NULL);
    reader->limits = *limits;
    CHECK(pthread_mutex_init(&reader->lock, NULL) == 0);
    CHECK(pthread_cond_init(&reader->changed, NULL) == 0);
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    CHECK(pthread_create(&reader->thread, NULL, run, reader) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    return reader;
}

bool
rest_reader_push(struct rest_reader *reader, const struct rest_job *job)
{
    const struct rest_reader_limits *limits = &reader->limits;
    pthread_mutex_lock(&reader->lock);
    bool has_room = reader->count < limits->waiting_max &&
                    (reader->count == 0 ||
                     reader->waiting_bytes + job->body_bytes <= limits->waiting_bytes_max);
    if (has_room) {
        reader->jobs[(reader->first + reader->count) % limits->waiting_max] = *job;
        reader->count++;
        reader->waiting_bytes += job->body_bytes;
        pthread_cond_signal(&reader->changed);
    }
    pthread_mutex_unlock(&reader->lock);
    return has_room;
}

void
rest_reader_taken(struct rest_reader *reader)
{
    pthread_mutex_lock(&reader->lock);
    CHECK(reader->read > 0);
    reader->read--;
    pthread_cond_signal(&reader->changed);
    pthread_mutex_unlock(&reader->lock);
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
