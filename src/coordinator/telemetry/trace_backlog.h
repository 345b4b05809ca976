/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exports that wait for a file or a collector, and when to try them. Pure, except for memory, which
 * is bounded.
 *
 *  1. Exports are sent in the order in which they were made, one at a time.
 *  2. A failed export is retried after a pause that begins at BACKLOG_PAUSE_FIRST_NS and doubles up
 *     to BACKLOG_PAUSE_MAX_NS, or when the collector says, if that is later, but not beyond
 *     BACKLOG_SAID_MAX_NS.
 *  3. Exports that exceed the bound push out the oldest, because the latest are the ones that
 *     somebody will look for. The one that is being sent stays.
 *  4. An export that is taken, or refused for good, ends the pauses.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

enum { BACKLOG_EXPORTS_MAX = 1024 };

#define BACKLOG_PAUSE_FIRST_NS (NS_PER_S / 4)
#define BACKLOG_PAUSE_MAX_NS (30 * NS_PER_S)
#define BACKLOG_SAID_MAX_NS (300 * NS_PER_S)

struct backlog_export {
    char *text;
    size_t bytes;
    uint32_t spans;
};

struct backlog {
    struct backlog_export exports[BACKLOG_EXPORTS_MAX]; /* a ring */
    uint32_t first;
    uint32_t count;
    size_t bytes;
    size_t bytes_max;
    bool sending;     /* the oldest one */
    int64_t pause_ns; /* 0: the last one was taken */
    int64_t retry_ns; /* when to try; 0: now */
};

void backlog_init(struct backlog *backlog, size_t bytes_max);
void backlog_fini(struct backlog *backlog);

/* Takes over `text`. Returns the number of spans dropped for it (its own, if it exceeds the bound).
 */
uint64_t backlog_put(struct backlog *backlog, struct backlog_export export);

/* The oldest, or NULL. */
const struct backlog_export *backlog_first(const struct backlog *backlog);
/* The oldest is being sent until one of the next two; its text stays in place. */
void backlog_send(struct backlog *backlog);

/* The oldest was taken, or refused for good. */
void backlog_pop(struct backlog *backlog);
/* The oldest is to be retried. `said_ns`: the collector's delay; 0: none given. */
void backlog_later(struct backlog *backlog, int64_t now_ns, int64_t said_ns);

/* The time until the oldest is to be tried; TIME_NEVER_NS: there is none. */
int64_t backlog_wait_ns(const struct backlog *backlog, int64_t now_ns);

/* The number of spans that wait. */
uint64_t backlog_spans(const struct backlog *backlog);
