/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Triton's methods about regions of shared memory, over gRPC and REST. They open and close
 * descriptors on tmpfs, which takes microseconds, so they are answered at once, on any thread.
 *
 * Only callers that could reach the memory themselves may call them: those of this machine, by a
 * loopback address or a unix socket, and those that have shown a certificate. There is no CUDA
 * memory: its lists are empty, and nothing can be registered.
 */
#pragma once

#include "coordinator/entry/inbound.h"
#include "coordinator/protocol/shared_memory.h"
#include "coordinator/protocol/triton.h"

/* Answers or refuses the call. The method is TRITON_SHARED_STATUS or a later one. */
void regions_take(struct shared_memory *memory, const struct inbound *inbound,
                  const struct triton_request *request);
