/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modelet `probe` does what each request tells it to, and says in its output what it has seen.
 * So one plug-in shows a worker every way in which a modelet can behave or misbehave.
 *
 * Input: one INT64 tensor "probe" of [PROBE_WORDS]: command, argument, and what is to come back.
 * Output: one INT64 tensor "probe" of [PROBE_WORDS + PROBE_FACTS]: the input, then the facts.
 * Params of the stage: fail = open | describe | load     that function fails with OUT_OF_RANGE and
 * a text describe = inputs                 declares its tensors; "nonsense": with a datatype that
 * is none trace = PATH                      appends a line to this file for each call but run
 */
#pragma once

enum probe_command {
    PROBE_ECHO = 0,
    PROBE_FAIL,        /* fails the item by host->fail with status `argument` */
    PROBE_FAIL_SILENT, /* sets the item's status to `argument`, no text */
    PROBE_UNSET,       /* leaves the item as it is */
    PROBE_FAIL_BATCH,  /* `run` returns `argument`, with any batch */
    PROBE_NO_OUTPUT,   /* OK, without an output */
    PROBE_CRASH,       /* writes to address 0 */
    PROBE_EXIT,        /* ends the process with code `argument` */
    PROBE_HANG,        /* never comes back */
    PROBE_SLOW,        /* takes `argument` ms longer */
    PROBE_WAIT,        /* until the caller is gone, as host->cancelled tells */
    PROBE_TWICE,       /* a second output of the same name, and says OK all the same */
    PROBE_TOO_LARGE,   /* an output of `argument` bytes, and says OK all the same */
    PROBE_WASTE,       /* an output of `argument` bytes, then fails with ABORTED */
    PROBE_FORWARD,     /* the output is the input itself, without a copy; no facts */
    PROBE_FORWARD_BAD, /* forwards an input that is not there, and says OK all the same */
    PROBE_PARAMETER,   /* like PROBE_ECHO; fact PARAMETER is the request's parameter "probe" */
    PROBE_LOG,         /* like PROBE_ECHO, and logs a line */
    PROBE_EMIT, /* `argument` pieces like the answer, numbered in word 1; then as PROBE_END_… */
    PROBE_COMMANDS,
};

/* PROBE_EMIT: how it goes on after the pieces; the argument's bits from 32 on. Those from 16 on are
 * the milliseconds after each piece. */
enum probe_ending {
    PROBE_END_ANSWER,  /* one more, as the answer */
    PROBE_END_NOTHING, /* OK, without an output */
    PROBE_END_FAIL,    /* fails with ABORTED */
    PROBE_END_CRASH,
    PROBE_END_BATCH,   /* `run` fails as a whole */
    PROBE_END_ENDLESS, /* more pieces, until one is refused */
    PROBE_END_LARGE,   /* as PROBE_END_ANSWER; each piece takes a large block */
    PROBE_END_WIDE, /* as PROBE_END_ANSWER; the pieces have more outputs, one of them the input */
    PROBE_END_WAIT, /* fails with CANCELLED when the caller is gone, as host->cancelled tells */
};
#define PROBE_PIECES(pieces, ending) ((int64_t)(pieces) | (int64_t)(ending) << 32)

enum { PROBE_WORDS = 3 };

enum probe_fact {
    PROBE_BATCH_COUNT = PROBE_WORDS, /* items of this run */
    PROBE_RUNS,                      /* runs of this worker so far, this one included */
    PROBE_ITEMS,                     /* items of all these runs */
    PROBE_WORKER,                    /* index of the worker */
    PROBE_PID,
    PROBE_MODEL, /* 1 if `run` was given what `load` made */
    PROBE_PARAMETER_VALUE,
    PROBE_END,
};
