/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reasons why stages of a lane have no worker. The loop thread writes them; the thread that refuses
 * callers reports them. Only refusals and the loop thread take the lock.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>

#include "base/error.h"
#include "shm/layout.h"

enum { OUTAGE_TEXT_BYTES = 384 };

struct outage {
    pthread_mutex_t lock;
    struct {
        char why[OUTAGE_TEXT_BYTES];
        int64_t retry_ns; /* when a worker is started again; 0: not said */
        char advice[128]; /* what can be done before that; may be empty */
    } stages[STAGES_MAX];
};

void outage_init(struct outage *outage);
void outage_fini(struct outage *outage);

/* Callers get `why` without absolute paths, which only the log has. */
void outage_set(struct outage *outage, uint32_t stage, int64_t retry_ns, const char *advice,
                const char *why);

/* "stage "x" …; next try in 42 s, …" */
void outage_describe(struct outage *outage, uint32_t stage, int64_t now_ns,
                     char text[OUTAGE_TEXT_BYTES]);
