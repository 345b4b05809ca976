/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a pipeline's oldest requests in flight into the counters file, where an operator finds out
 * what is stuck in a live or a dead node. Requests and their ages are private knowledge; their
 * place and owner come from the region, and are "unknown" if they cannot be (workers/DESIGN.md).
 * One pass over the requests of the lanes that have any. Loop thread.
 */
#pragma once

struct pipeline;

void oldest_publish(struct pipeline *pipeline);
