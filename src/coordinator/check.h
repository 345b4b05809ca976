/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the configuration and checks it: for a start, and for `shoald --check`.
 */
#pragma once

#include "coordinator/config/config.h"
#include "coordinator/node.h"

enum { CHECK_GOOD = 0, CHECK_REFUSED = 2 };

/* The addresses that the front listens on; returns their number. */
uint32_t check_listens_on(const struct node_options *options, const struct config *config,
                          const char *const **addresses);

/* Reads the configuration for a start. If it is wrong, or needs more than the process may have,
 * prints every mistake, logs `start_failed`, and frees it. The log is in the form that the
 * configuration asks for from then on. */
enum status check_start(const struct node_options *options, struct config *config) WARN_UNUSED;
