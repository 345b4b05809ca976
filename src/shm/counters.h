/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters as one table in one file. The coordinator creates the file and hands its descriptor to
 * the workers; `shoalctl` maps it read-only, of a live node or a dead one. The table is
 * counters.def.
 *
 * The file: a header, the scopes (this node, its pipelines, their stages, their workers' seats),
 * then each scope's values as 64-bit words, from a page's start, so that a worker can be given its
 * own pages and no others. A value has one writing process; readers see each word whole, and
 * nothing of Shoal decides by them: a modelet that writes here spoils its own worker's figures and
 * nothing else.
 *
 * Scopes come and go while the node serves: stages and workers are claimed and released, always by
 * the coordinator's loop thread, which counts each change twice (before and after) in
 * `scope_changes`: a reader whose copy was made at an even count that did not move has a whole one.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum counter_scope {
    SCOPE_NODE,
    SCOPE_PIPELINE,
    SCOPE_STAGE,
    SCOPE_WORKER,
    SCOPE_OLDEST, /* one of a pipeline's oldest requests in flight */
    SCOPE_SPARE,  /* nobody's: room for a stage or a worker that comes later */
    SCOPE_COUNT
};
enum counter_type { TYPE_COUNT, TYPE_GAUGE, TYPE_HISTOGRAM };
enum counter_unit { UNIT_NONE, UNIT_NS, UNIT_MS, UNIT_ITEMS, UNIT_BYTES };

/* How many of a pipeline's oldest requests are shown, and where they can be. */
enum { OLDEST_MAX = 8 };
enum oldest_where {
    OLDEST_UNKNOWN,
    OLDEST_WAITS,
    OLDEST_IN_BATCH, /* claimed by a worker, and not run yet */
    OLDEST_RUNS,
    OLDEST_ANSWER_WAITS,
    OLDEST_BEING_ANSWERED,
    OLDEST_WAITS_FOR_MODEL,
};

/* NODE_CALLS, PIPELINE_REQUESTS, WORKER_BATCHES, …: index into counter_table. */
enum counter {
#define COUNTER(scope, id, type, unit, help) scope##_##id,
#include "shm/counters.def"
#undef COUNTER
    COUNTER_TABLE_COUNT,
};

struct counter_entry {
    enum counter_scope scope;
    enum counter_type type;
    enum counter_unit unit;
    const char *name; /* as printed: lower case */
    const char *help;
};

extern const struct counter_entry counter_table[COUNTER_TABLE_COUNT];

/*
 * Histogram buckets: values 0 … 7 each have their own, above that four per power of two; the last
 * takes all that is larger. The words of a histogram: count, sum, then the buckets.
 */
enum { HISTOGRAM_BUCKETS = 8 + 4 * 40, HISTOGRAM_WORDS = 2 + HISTOGRAM_BUCKETS };

uint32_t histogram_bucket(uint64_t value);
/* The least value that falls into a bucket. */
uint64_t histogram_bucket_floor(uint32_t bucket);

enum { COUNTERS_NAME_BYTES = 64, COUNTERS_PATH_BYTES_MAX = 250 };

struct counters_scope {
    uint32_t kind;   /* enum counter_scope */
    uint32_t parent; /* index of the scope it belongs to; the node's is itself */
    uint64_t values_offset;
    char name[COUNTERS_NAME_BYTES]; /* of pipeline or stage; of a worker its index */
};

#define COUNTERS_MAGIC UINT64_C(0x3152544353414853)

struct counters_header {
    uint64_t magic;
    uint64_t table_hash; /* of counters.def: file and reader must agree */
    uint64_t file_bytes;
    uint32_t scope_count;
    _Atomic uint32_t scope_changes; /* odd: a change is being made */
    int64_t started_unix_ns;
    int32_t pid;
    _Atomic uint32_t state;       /* enum node_state */
    _Atomic int64_t heartbeat_ns; /* the coordinator's last sign of life, monotonic clock */
    struct counters_scope scopes[];
};

enum node_state { NODE_STARTING, NODE_READY, NODE_DRAINING, NODE_STOPPED };

/*
 * A private view. What the file says of its own layout is validated and copied once: `scopes` is
 * that copy, so whoever writes into the file later cannot lead a reader out of it.
 */
struct counters {
    int fd;      /* of the creator: to hand to workers, without the lock; else -1 */
    int lock_fd; /* of the creator; else -1 */
    char *base;
    struct counters_header *header;
    size_t bytes;
    struct counters_scope *scopes;
    uint32_t changes; /* of a reader: what scope_changes was when they were copied */
    uint32_t *claims; /* of the creator, per scope: who has claimed it; else NULL */
    uint32_t scope_count;
    char path[COUNTERS_PATH_BYTES_MAX + 1]; /* of the file that we created; "" otherwise */
};

struct counters_spec {
    enum counter_scope kind;
    uint32_t parent;
    const char *name;
};

/*
 * Creates the file at `path`, missing last directory included, mode 0644, and takes an exclusive
 * lock on it for as long as the process lives: of the open file (F_OFD_SETLK), so that readers can
 * ask about it without taking it. FAILED_PRECONDITION, naming the pid: another node has it; or what
 * is there is no file of counters. A dead node's file is replaced by a new one, never cut short
 * under a reader. scopes[0] is the node; each scope's parent stands before it.
 */
enum status counters_create(struct counters *counters, const char *path,
                            const struct counters_spec *scopes, uint32_t scope_count,
                            struct error *error) WARN_UNUSED;

/*
 * A scope of that name beneath `parent`, which stands before it: the one that was there before, its
 * values going on, or a spare one. A stage's scope may be claimed by several, a worker's by one at
 * a time: two processes never write the same values. A scope that was created by name waits to be
 * claimed. RESOURCE_EXHAUSTED: there is no spare one left.
 */
enum status counters_claim(struct counters *counters, enum counter_scope kind, uint32_t parent,
                           const char *name, uint32_t *scope, struct error *error) WARN_UNUSED;
/* A stage that nobody claims any more is no longer seen, nor are its workers; what they counted
 * goes on if they are claimed again. */
void counters_release(struct counters *counters, uint32_t scope);

/* Of the table that this program was built with: what two who share values must agree on. */
uint64_t counters_table_hash(void);

/*
 * For a worker: maps the pages of its own values for writing, and nothing else of the file, so that
 * no modelet can spoil another's figures, or the header. They are scope 0 of the view, which has no
 * header. The coordinator says where they are (`values_offset` of the scope, SCOPE_WORKER). Takes
 * over `fd` in success, and closes it at once: with it, a modelet could map the rest, or cut the
 * file short.
 */
enum status counters_attach(struct counters *counters, int fd, uint64_t values_offset,
                            struct error *error) WARN_UNUSED;

/* Maps a file read-only; validates everything that readers rely on. `*live`: its node runs. */
enum status counters_open(struct counters *counters, const char *path, bool *live,
                          struct error *error) WARN_UNUSED;

/* Of a reader: no scope has come or gone since the file was opened. */
bool counters_unchanged(const struct counters *counters);

/* Unmaps and closes; the creator also removes the file. */
void counters_close(struct counters *counters);

/* /run/shoal/counters for root, else beneath $XDG_RUNTIME_DIR/shoal or /tmp/shoal-<uid>. */
void counters_default_path(char *path, size_t room);

/* A scope's values, and a counter in them. */
_Atomic uint64_t *counters_values(const struct counters *counters, uint32_t scope);
extern const uint32_t counter_offset[COUNTER_TABLE_COUNT]; /* in words from the scope's values */

/* The writer is one thread of one process: no locked instruction. */
static inline void
counter_add(_Atomic uint64_t *values, enum counter counter, uint64_t amount)
{
    _Atomic uint64_t *word = values + counter_offset[counter];
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + amount,
                          memory_order_relaxed);
}

/* Several threads of one process write. */
static inline void
counter_add_shared(_Atomic uint64_t *values, enum counter counter, uint64_t amount)
{
    atomic_fetch_add_explicit(values + counter_offset[counter], amount, memory_order_relaxed);
}

static inline void
counter_set(_Atomic uint64_t *values, enum counter counter, uint64_t value)
{
    atomic_store_explicit(values + counter_offset[counter], value, memory_order_relaxed);
}

static inline uint64_t
counter_get(_Atomic uint64_t *values, enum counter counter)
{
    return atomic_load_explicit(values + counter_offset[counter], memory_order_relaxed);
}

/* counter_add on count, sum and bucket; and its form for several threads. */
void histogram_record(_Atomic uint64_t *values, enum counter counter, uint64_t value);
void histogram_record_shared(_Atomic uint64_t *values, enum counter counter, uint64_t value);

/* For readers: the value at a quantile (0 … 1), from summed words; 0 when it is empty. */
uint64_t histogram_quantile(const uint64_t words[HISTOGRAM_WORDS], double quantile);
