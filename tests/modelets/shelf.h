/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modelet `shelf` loads models that do what their key says, so that one plug-in shows a loader
 * every way in which a model can behave or misbehave. `shelf_alone` is the same without
 * SHOAL_RUN_DURING_LOAD. Input and output are those of `probe` (probe.h), commands ECHO, SLOW and
 * WAIT; the fact MODEL is the number in the model's id ("m17": 17), PARAMETER_VALUE the first
 * byte of its file.
 *
 * A key is words, separated by spaces:
 *   heap=N         allocates N bytes, and touches them
 *   leak=N         and does not free them
 *   give           frees what `heap` is in its first run, on the thread that runs
 *   aside=N        allocates N bytes while it runs, and frees them in a later run
 *   map            maps the file at its path; map=NAME: the one in its folder
 *   gate=PATH      waits until that file is there, before anything else
 *   size=N  concurrency=N   what it says of itself; predict=N likewise
 *   describe=ok    declares a tensor; describe=nonsense: one of a type that is none;
 *   describe=fail  fails to
 *   fail  silent  crash  exit   in `load`: fails with OUT_OF_RANGE and a text, without one, …
 *   escape         fails, and says what of its attempts was granted: `read` the file at its path,
 *                  `library` to load one, `thread` to make one; and `write` there, `passwd` to
 *                  read that, `socket`, `fork`, `code` in memory of its own, `urgent` to be more so
 *   stuck          `load` never comes back
 *   lie            `load` says nonsense to the coordinator, and takes its time
 *   crash_unload   `unload` crashes
 *   thief          maps a file in `unload`, and says in the log what came of it
 */
#pragma once

#include "probe.h"
