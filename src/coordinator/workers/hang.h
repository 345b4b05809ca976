/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers that do not come back from a run: found by what the seat in the region says of the run,
 * and killed when it lasts longer than the stage's `run_timeout_ms`. What follows is a death like
 * any other.
 *
 * The seat's word is the worker's own and may be anything. A beginning that cannot be (it lies
 * ahead, or before the process was ready) counts as a run that began when it was first seen, for as
 * long as nothing possible stands there. So a liar is killed as one that hangs would be, or does
 * what one may do that hangs in a stage without the key; it can never get another process killed
 * than one of its own pipeline, since who is killed is known here, not there.
 *
 * Outside of a run a worker gives a sign of life at least every half second. One that has given
 * none for the same time, SILENCE_MS_MIN at least, is stopped or stuck: it gets SIGCONT, and when
 * that has changed nothing after as long again SIGKILL. A word that does not change is what
 * counts, not what it says; and twice the time, so that nobody is killed because the whole machine
 * stood still. Loop thread.
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
 * Since when the worker runs the modelet; TIME_NEVER_NS: it does not. `began_ns` was loaded from
 * the seat before `now_ns` was taken.
 */
int64_t run_since_ns(struct run_watch *watch, int64_t began_ns, int64_t ready_ns, int64_t now_ns);

enum { SILENCE_MS_MIN = 2000 };

/* Its signs of life as last seen. Zero at first, and for each new process. */
struct beat_watch {
    int64_t word;
    int64_t since_ns; /* since when it stands there, or since SIGCONT; 0: nothing was seen yet */
    bool continued;
};

enum beat_verdict { BEAT_FINE, BEAT_CONTINUE, BEAT_KILL };

/* `excused`: something else judges how long it may take what it does now. */
enum beat_verdict beat_judge(struct beat_watch *watch, int64_t word, bool excused, int64_t limit_ns,
                             int64_t now_ns);

/* When to look again at runs that may last `timeout_ns`, the first of which ends at `expires_ns`
 * (TIME_NEVER_NS: none runs): no later than a new run could expire by much. */
int64_t hang_look_after_ns(int64_t timeout_ns, int64_t expires_ns, int64_t now_ns);

struct roster;

/* Begins to look, if a stage has a limit. */
void hang_start(struct roster *roster);
void hang_stop(struct roster *roster);
