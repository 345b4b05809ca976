/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a lane can serve: before it takes over, each of its stages has to answer a probe, which
 * goes the way of a request but for the modelet (lane_probe). Workers that say they are ready say
 * nothing of the region they share: a modelet that destroyed it while it started is found out here,
 * while the generation before it still serves.
 */
#pragma once

#include "base/error.h"

struct lane;

/* `done` is called once, on the loop thread, not before this returns; `error` NULL: every stage has
 * answered. It is not called of a lane that is condemned meanwhile. */
void probe_begin(struct lane *lane, void (*done)(struct lane *lane, const struct error *error));
