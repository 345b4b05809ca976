/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kills workers that do not return from a run: the place's word in the region says when the run
 * began, and a run longer than the stage's `run_timeout_ms` ends in SIGKILL, a death like any
 * other.
 *
 * The worker writes that word and may lie. An impossible beginning (in the future, or before the
 * process was ready) counts as a run that began when it was first seen, until a possible value
 * appears. So a liar is killed like a worker that hangs, or behaves like one in a stage without the
 * key. It can only get processes of its own pipeline killed, because the coordinator knows the
 * process of each place.
 *
 * Outside of a run a worker gives a sign of life at least every half second. A worker that has
 * given none for `run_timeout_ms`, SILENCE_MS_MIN at least, is stopped or stuck: it gets SIGCONT,
 * and SIGKILL if as long again changes nothing. Only a change of the word counts, not its value;
 * and the time counts twice, so that no worker is killed because the whole machine stood still.
 * Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A worker's run as last seen. Zero at first, and for each new process. */
struct run_watch {
    bool lies;
    int64_t lies_since_ns;
};

/*
 * Returns when the worker's present run of the modelet began; TIME_NEVER_NS: none. `began_ns` was
 * loaded from the place before `now_ns` was taken.
 */
int64_t run_since_ns(struct run_watch *watch, int64_t began_ns, int64_t ready_ns, int64_t now_ns);

enum { SILENCE_MS_MIN = 2000 };

/* A worker's signs of life as last seen. Zero at first, and for each new process. */
struct beat_watch {
    int64_t word;
    int64_t since_ns; /* when that word was first seen, or SIGCONT sent; 0: nothing seen yet */
    bool continued;
};

enum beat_verdict { BEAT_FINE, BEAT_CONTINUE, BEAT_KILL };

enum beat_duty {
    BEAT_DUE,
    BEAT_EXCUSED, /* another time-out limits what the worker does now */
};

enum beat_verdict beat_judge(struct beat_watch *watch, int64_t word, enum beat_duty duty,
                             int64_t limit_ns, int64_t now_ns);

/* Returns when to look again at runs that may last `timeout_ns`, the first of which expires at
 * `expires_ns` (TIME_NEVER_NS: none runs): soon enough that no new run exceeds its time by much. */
int64_t hang_look_after_ns(int64_t timeout_ns, int64_t expires_ns, int64_t now_ns);

struct worker_pools;

/* Begins to look, if any stage has a limit. */
void hang_start(struct worker_pools *pools);
void hang_stop(struct worker_pools *pools);
