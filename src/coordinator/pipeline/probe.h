/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests whether a lane can serve: before it takes over, each of its stages must answer a probe,
 * which goes a request's way except for the modelet (lane_probe). Readiness of workers says nothing
 * about the region: this finds a modelet that destroyed it while starting, while the previous
 * generation still serves.
 */
#pragma once

#include "base/error.h"

struct lane;

/* Calls `done` once, on the loop thread, after this has returned; `error` NULL: every stage
 * answered. It is not called if the lane is condemned meanwhile. */
void probe_begin(struct lane *lane, void (*done)(struct lane *lane, const struct error *error));
