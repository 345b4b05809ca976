/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's figures again and again: what stat --interval and top have in common.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/snapshot.h"

struct watch {
    const char *path;
    const char *pipeline; /* NULL: all */
    int64_t interval_ns;
    int64_t count; /* 0: until interrupted */
    bool json;
    struct snapshot last;
};

/*
 * Reads the file: `shown` becomes what has changed since the step before, or all since the node's
 * start if there was none, or another node has taken the place. Free it. NOT_FOUND: no such
 * pipeline.
 */
enum status watch_step(struct watch *watch, struct snapshot *shown,
                       struct error *error) WARN_UNUSED;
void watch_free(struct watch *watch);

/* When the interval after the one that began at `last_ns` ends; after a pause, one from now. */
int64_t watch_next_ns(const struct watch *watch, int64_t last_ns);

/* Prints the figures of each interval, one below the other; ends by SIGINT or SIGTERM. */
int watch_print(struct watch *watch);
