/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters as one table in one file. The coordinator creates the file and hands its descriptor to
 * the workers; `shoalctl` maps it read-only, of a live node or a dead one. The table is
 * counters.def.
 *
 * The file: a header, the scopes (this node, its pipelines, their stages, their workers), then each
 * scope's values as 64-bit words, starting at a page, so that a worker can be given its own pages
 * and no others. A value has one writing process; readers see each word whole. Shoal decides
 * nothing by these values: a modelet that writes here spoils its own worker's figures only.
 *
 * Scopes come and go while the node serves. The coordinator's loop thread claims and releases
 * stages and workers and increments `scope_changes` before and after each change: a copy made at an
 * even count that did not change is consistent.
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
    SCOPE_SPARE,  /* unused: room for a later stage or worker */
    SCOPE_COUNT
};
enum counter_type { TYPE_COUNT, TYPE_GAUGE, TYPE_HISTOGRAM };
enum counter_unit { UNIT_NONE, UNIT_NS, UNIT_MS, UNIT_ITEMS, UNIT_BYTES };

/* The number of a pipeline's oldest requests that are shown, and where they can be. */
enum { OLDEST_MAX = 8 };
enum oldest_where {
    OLDEST_UNKNOWN,
    OLDEST_WAITS,
    OLDEST_IN_BATCH, /* claimed by a worker, not running yet */
    OLDEST_RUNS,
    OLDEST_ANSWER_WAITS,
    OLDEST_BEING_ANSWERED,
    OLDEST_WAITS_FOR_MODEL,
};

/* NODE_CALLS, PIPELINE_REQUESTS, WORKER_BATCHES, …: index into counter_table. */
enum counter {
#define COUNTER(scope, id, type, unit, help) scope##_##id,
#include "ipc/counters.def"
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
 * Histogram buckets: one for each value 0 … 7, then four per power of two; the last one takes all
 * larger values. The words of a histogram: count, sum, buckets.
 */
enum { HISTOGRAM_BUCKETS = 8 + 4 * 40, HISTOGRAM_WORDS = 2 + HISTOGRAM_BUCKETS };

uint32_t histogram_bucket(uint64_t value);
/* Returns the lower bound of a bucket. */
uint64_t histogram_bucket_floor(uint32_t bucket);

enum { COUNTERS_NAME_BYTES = 64, COUNTERS_PATH_BYTES_MAX = 250 };

struct counters_scope {
    uint32_t kind;   /* enum counter_scope */
    uint32_t parent; /* index of the scope it belongs to; the node is its own parent */
    uint64_t values_offset;
    char name[COUNTERS_NAME_BYTES]; /* of pipeline or stage; a worker's index */
};

#define COUNTERS_MAGIC UINT64_C(0x3152544353414853)

struct counters_header {
    uint64_t magic;
    uint64_t table_hash; /* of counters.def: file and reader must agree */
    uint64_t file_bytes;
    uint32_t scope_count;
    _Atomic uint32_t scope_changes; /* odd: a change is in progress */
    int64_t started_unix_ns;
    int32_t pid;
    _Atomic uint32_t state;       /* enum node_state */
    _Atomic int64_t heartbeat_ns; /* the coordinator's last sign of life, monotonic clock */
    struct counters_scope scopes[];
};

enum node_state { NODE_STARTING, NODE_READY, NODE_DRAINING, NODE_STOPPED };

/*
 * A private view. The file's own layout is validated and copied once into `scopes`, so a process
 * that writes into the file later cannot lead a reader out of it.
 */
struct counters {
    int fd;      /* creator: for workers, without the lock; else -1 */
    int lock_fd; /* creator; else -1 */
    char *base;
    struct counters_header *header;
    size_t bytes;
    struct counters_scope *scopes;
    uint32_t changes; /* reader: scope_changes when `scopes` was copied */
    uint32_t *claims; /* creator: number of claims per scope; else NULL */
    uint32_t scope_count;
    char path[COUNTERS_PATH_BYTES_MAX + 1]; /* creator: of the file; else "" */
    bool is_beside;                         /* creator: the name is a predecessor's still */
};

struct counters_spec {
    enum counter_scope kind;
    uint32_t parent;
    const char *name;
};

/*
 * Creates the file at `path`, mode 0644, and its directory if missing, and holds an exclusive lock
 * on it for the life of the process. The lock belongs to the open file (F_OFD_SETLK), so that
 * readers can query it without taking it. FAILED_PRECONDITION: another node has it (naming the
 * pid), or a file there is not a counters file. A dead node's file is replaced, never truncated
 * under a reader. scopes[0] is the node; each scope's parent precedes it.
 */
enum status counters_create(struct counters *counters, const char *path,
                            const struct counters_spec *scopes, uint32_t scope_count,
                            struct error *error) WARN_UNUSED;

/*
 * Like counters_create(), for a successor: if the process `owner` has the path, the file is beside
 * it, at PATH.new, until counters_take_name.
 */
enum status counters_create_beside(struct counters *counters, const char *path, int owner,
                                   const struct counters_spec *scopes, uint32_t scope_count,
                                   struct error *error) WARN_UNUSED;
/* Says whether the owner has left it the name, or has died. */
enum counters_owner { COUNTERS_OWNER_LEAVES, COUNTERS_OWNER_DEAD };
/* The file gets its name. FAILED_PRECONDITION: the owner is dead, and another node has the name. */
enum status counters_take_name(struct counters *counters, enum counters_owner owner,
                               struct error *error) WARN_UNUSED;
/* Removes the file that a dead successor has left beside it. Only the owner may call this. */
void counters_remove_beside(const struct counters *counters);

/*
 * Claims a scope of that name beneath `parent`: the existing one, whose values go on, or a spare
 * one. A stage's scope may have several claims, a worker's one: two processes never write the same
 * values. A scope that counters_create named waits to be claimed. RESOURCE_EXHAUSTED: no spare one
 * is left.
 */
enum status counters_claim(struct counters *counters, enum counter_scope kind, uint32_t parent,
                           const char *name, uint32_t *scope, struct error *error) WARN_UNUSED;
/* Releases a claim. A stage without claims is hidden with its workers; their counts go on if they
 * are claimed again. */
void counters_release(struct counters *counters, uint32_t scope);

/* Returns the hash of this program's table. Programs that share values must agree on it. */
uint64_t counters_table_hash(void);

/*
 * Maps the pages of a worker's own values for writing and nothing else of the file, so that no
 * modelet can spoil another worker's figures or the header. They are scope 0 of the view, which has
 * no header. `values_offset` comes from the coordinator (a SCOPE_WORKER). On success takes over
 * `fd` and closes it at once: with it a modelet could map the rest or truncate the file.
 */
enum status counters_attach(struct counters *counters, int fd, uint64_t values_offset,
                            struct error *error) WARN_UNUSED;

/* Maps a file read-only and validates everything that readers rely on. `*live`: its node is
 * running. */
enum status counters_open(struct counters *counters, const char *path, bool *live,
                          struct error *error) WARN_UNUSED;

/* Returns true if no scope has come or gone since a reader opened the file. */
bool counters_unchanged(const struct counters *counters);

/* Unmaps and closes; the creator also removes the file. */
void counters_close(struct counters *counters);

/* Path of a node that runs as a service, or as root. */
#define COUNTERS_PATH_SERVICE "/run/shoal/counters"

/* COUNTERS_PATH_SERVICE for root, else beneath $XDG_RUNTIME_DIR/shoal or /tmp/shoal-<uid>. */
void counters_default_path(char *path, size_t room);

/* Returns a scope's values; counter_offset gives a counter's place in them. */
_Atomic uint64_t *counters_values(const struct counters *counters, uint32_t scope);
extern const uint32_t counter_offset[COUNTER_TABLE_COUNT]; /* in words */

/* Adds to a value that one thread writes: no locked instruction. */
static inline void
counter_add(_Atomic uint64_t *values, enum counter counter, uint64_t amount)
{
    _Atomic uint64_t *word = values + counter_offset[counter];
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + amount,
                          memory_order_relaxed);
}

/* Adds to a value that several threads of one process write. */
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

/* Record a value; the second form is for several threads. */
void histogram_record(_Atomic uint64_t *values, enum counter counter, uint64_t value);
void histogram_record_shared(_Atomic uint64_t *values, enum counter counter, uint64_t value);
/* Returns the sum of all recorded values. */
uint64_t histogram_sum(_Atomic uint64_t *values, enum counter counter);

/* Returns, for readers, the value at a quantile (0 … 1) of summed words; 0 if empty. */
uint64_t histogram_quantile(const uint64_t words[HISTOGRAM_WORDS], double quantile);
/* Like histogram_quantile(), but at most INT64_MAX: a modelet may have written any value. */
int64_t histogram_duration(const uint64_t words[HISTOGRAM_WORDS], double quantile);
/* 0 if empty. */
double histogram_mean(const uint64_t words[HISTOGRAM_WORDS]);
