/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's figures at intervals, for stat --interval and top.
 */
#pragma once

#include <stdint.h>

#include "ctl/ctl.h"
#include "ipc/snapshot.h"

struct watch {
    const char *path;
    const char *pipeline; /* NULL: all */
    int64_t interval_ns;
    int64_t count; /* 0: until interrupted */
    enum ctl_output output;
    struct snapshot last;
};

/*
 * Reads the file and sets `shown` to the changes since the previous step; to all since the node's
 * start in the first step, or if another node has taken the file. The caller frees it. NOT_FOUND:
 * no such pipeline.
 */
enum status watch_step(struct watch *watch, struct snapshot *shown,
                       struct error *error) WARN_UNUSED;
void watch_free(struct watch *watch);

/* End of the interval after the one that began at `last_ns`; after a pause, of one that begins
 * now. */
int64_t watch_next_ns(const struct watch *watch, int64_t last_ns);

/* Prints the figures of each interval, one below the other, until SIGINT or SIGTERM. */
int watch_print(struct watch *watch);
