/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept messages, and parts of them, as the spans in which they lie. Any thread.
 */
#pragma once

#include "rpc/rpc.h"

/* The bytes of a kept piece: at most as many spans as its message has; returns how many. */
size_t spans_of_kept(const struct rpc_piece *piece, struct wire_span *spans);
