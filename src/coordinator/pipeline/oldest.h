/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oldest requests in flight of a pipeline, for whoever wants to know what is stuck: written
 * into the file of counters every now and then, so that it can be read there of a live node and of
 * a dead one. Which requests there are and since when is known here; where they are and who has
 * them is what the region says, and "unknown" if that cannot be. Loop thread.
 *
 * One pass over the requests of the lanes that have any: 0.4 ms for 65,535 of them
 * (workers/DESIGN.md).
 */
#pragma once

struct pipeline;

void oldest_publish(struct pipeline *pipeline);
