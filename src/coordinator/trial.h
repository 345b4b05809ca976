/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a configuration's pipelines as a node does, one worker for each stage, and stops them when
 * each stage's modelet, with its model, has been found ready or has failed, and then each model of
 * their folders: the part of `shoald --check` that runs modelets. Nothing is listened on, and a
 * running node does not notice.
 */
#pragma once

#include "coordinator/config/config.h"
#include "coordinator/node.h"

/* Calls `say` with each mistake; returns their number. `*models`: those that were loaded. Takes
 * over `config`. */
uint32_t trial_run(const struct node_options *options, struct config *config,
                   void (*say)(const char *mistake), uint32_t *models);
