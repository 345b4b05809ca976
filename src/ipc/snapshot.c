/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/snapshot.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "shm/layout.h"

/* The number of attempts at a copy while scopes come or go. */
enum { LOOKS_MAX = 100 };

static void *
must_allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    CHECK(memory != NULL);
    return memory;
}

static uint32_t
counter_words(uint32_t counter)
{
    return counter_table[counter].type == TYPE_HISTOGRAM ? HISTOGRAM_WORDS : 1;
}

static uint32_t
scope_words(enum counter_scope kind)
{
    uint32_t words = 0;
    for (uint32_t i = 0; i < COUNTER_TABLE_COUNT; i++)
        if (counter_table[i].scope == kind)
            words += counter_words(i);
    return words;
}

/* ---- reading ---- */

static int64_t
unix_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

/*
 * Each generation of a pipeline has its own worker scopes; a reader sees the workers of one index
 * as one. `into` gets the counts of both, and the gauges of the one that is or was last alive.
 */
static void
workers_merge(struct snapshot_scope *into, struct snapshot_scope *from)
{
    CHECK(into->words != NULL && from->words != NULL);
    const uint32_t sign = counter_offset[WORKER_HEARTBEAT];
    bool newer = from->words[sign] > into->words[sign];
    for (uint32_t counter = 0; counter < COUNTER_TABLE_COUNT; counter++) {
        if (counter_table[counter].scope != SCOPE_WORKER)
            continue;
        uint32_t at = counter_offset[counter];
        if (counter_table[counter].type != TYPE_GAUGE)
            for (uint32_t i = 0; i < counter_words(counter); i++)
                into->words[at + i] += from->words[at + i];
        else if (newer)
            into->words[at] = from->words[at];
    }
    from->kind = SCOPE_SPARE;
}

static void
entries_merge(struct snapshot *snapshot)
{
    /* per stage and worker index: the first scope, plus one */
    uint32_t(*firsts)[STAGE_WORKERS_MAX] = must_allocate(snapshot->scope_count, sizeof *firsts);
    for (uint32_t i = 0; i < snapshot->scope_count; i++) {
        struct snapshot_scope *worker = &snapshot->scopes[i];
        unsigned long entry = strtoul(worker->name, NULL, 10);
        if (worker->kind != SCOPE_WORKER || entry >= STAGE_WORKERS_MAX)
            continue;
        uint32_t *first = &firsts[worker->parent][entry];
        if (*first != 0)
            workers_merge(&snapshot->scopes[*first - 1], worker);
        else
            *first = i + 1;
    }
    free(firsts);
}

static void
snapshot_take(struct snapshot *snapshot, const struct counters *counters, bool live)
{
    const struct counters_header *header = counters->header;
    size_t total = 0;
    for (uint32_t i = 0; i < counters->scope_count; i++)
        total += scope_words((enum counter_scope)counters->scopes[i].kind);
    *snapshot = (struct snapshot){
        .live = live,
        .pid = header->pid,
        .started_unix_ns = header->started_unix_ns,
        .heartbeat_ns = header->heartbeat_ns,
        .taken_ns = clock_now_ns(),
        .taken_unix_ns = unix_now_ns(),
        .scope_count = counters->scope_count,
        .scopes = must_allocate(counters->scope_count, sizeof *snapshot->scopes),
        .words = must_allocate(total, sizeof *snapshot->words),
        .word_count = total,
    };
    uint32_t state = header->state;
    snapshot->state = state <= NODE_STOPPED ? (enum node_state)state : NODE_STOPPED;
    uint64_t *words = snapshot->words;
    for (uint32_t i = 0; i < counters->scope_count; i++) {
        struct snapshot_scope *scope = &snapshot->scopes[i];
        scope->kind = (enum counter_scope)counters->scopes[i].kind;
        scope->parent = counters->scopes[i].parent;
        memcpy(scope->name, counters->scopes[i].name, sizeof scope->name);
        scope->words = words;
        uint32_t count = scope_words(scope->kind);
        for (uint32_t word = 0; word < count; word++)
            words[word] = counters_values(counters, i)[word];
        words += count;
    }
    entries_merge(snapshot);
}

/* `*whole`: no scope came or went meanwhile. */
static enum status
read_once(struct snapshot *snapshot, const char *path, bool *whole, struct error *error)
{
    struct counters counters;
    bool live;
    enum status status = counters_open(&counters, path, &live, error);
    if (status != STATUS_OK)
        return status;
    snapshot_take(snapshot, &counters, live);
    *whole = counters_unchanged(&counters);
    counters_close(&counters);
    return STATUS_OK;
}

enum status
snapshot_read(struct snapshot *snapshot, const char *path, struct error *error)
{
    *snapshot = (struct snapshot){0};
    for (int look = 1;; look++) {
        struct snapshot read = {0};
        bool whole = false;
        enum status status = read_once(&read, path, &whole, error);
        if (status != STATUS_OK)
            return status;
        if (whole || look == LOOKS_MAX) {
            *snapshot = read;
            return STATUS_OK;
        }
        snapshot_free(&read);
    }
}

void
snapshot_free(struct snapshot *snapshot)
{
    free(snapshot->scopes);
    free(snapshot->words);
    *snapshot = (struct snapshot){0};
}

/* ---- arithmetic ---- */

bool
snapshot_same_node(const struct snapshot *a, const struct snapshot *b)
{
    return a->pid == b->pid && a->started_unix_ns == b->started_unix_ns &&
           a->scope_count == b->scope_count;
}

static void
counter_subtract(uint64_t *words, const uint64_t *before, uint32_t counter)
{
    if (counter_table[counter].type == TYPE_GAUGE)
        return;
    for (uint32_t i = 0; i < counter_words(counter); i++) {
        uint32_t at = counter_offset[counter] + i;
        words[at] = words[at] >= before[at] ? words[at] - before[at] : 0;
    }
}

void
snapshot_copy(struct snapshot *copy, const struct snapshot *snapshot)
{
    *copy = *snapshot;
    copy->scopes = must_allocate(snapshot->scope_count, sizeof *copy->scopes);
    copy->words = must_allocate(copy->word_count, sizeof *copy->words);
    memcpy(copy->scopes, snapshot->scopes, snapshot->scope_count * sizeof *copy->scopes);
    memcpy(copy->words, snapshot->words, copy->word_count * sizeof *copy->words);
    for (uint32_t i = 0; i < snapshot->scope_count; i++)
        copy->scopes[i].words = copy->words + (snapshot->scopes[i].words - snapshot->words);
}

void
snapshot_subtract(struct snapshot *difference, const struct snapshot *now,
                  const struct snapshot *before)
{
    snapshot_copy(difference, now);
    difference->interval_ns = now->taken_ns - before->taken_ns;
    for (uint32_t i = 0; i < now->scope_count && i < before->scope_count; i++)
        for (uint32_t counter = 0; counter < COUNTER_TABLE_COUNT; counter++)
            if (counter_table[counter].scope == now->scopes[i].kind &&
                now->scopes[i].kind == before->scopes[i].kind)
                counter_subtract(difference->scopes[i].words, before->scopes[i].words, counter);
}

uint64_t
snapshot_value(const struct snapshot_scope *scope, enum counter counter)
{
    return scope->words[counter_offset[counter]];
}

const uint64_t *
snapshot_histogram(const struct snapshot_scope *scope, enum counter counter)
{
    return scope->words + counter_offset[counter];
}

uint32_t
snapshot_index(const struct snapshot *snapshot, const struct snapshot_scope *scope)
{
    return (uint32_t)(scope - snapshot->scopes);
}

const struct snapshot_scope *
snapshot_next(const struct snapshot *snapshot, enum counter_scope kind, uint32_t parent,
              const struct snapshot_scope *after)
{
    for (uint32_t i = after != NULL ? snapshot_index(snapshot, after) + 1 : 0;
         i < snapshot->scope_count; i++)
        if (snapshot->scopes[i].kind == kind && snapshot->scopes[i].parent == parent)
            return &snapshot->scopes[i];
    return NULL;
}

struct snapshot_scope
snapshot_workers(const struct snapshot *snapshot, const struct snapshot_scope *stage)
{
    struct snapshot_scope sum = {.kind = SCOPE_WORKER};
    uint32_t parent = snapshot_index(snapshot, stage);
    sum.words = must_allocate(scope_words(SCOPE_WORKER), sizeof *sum.words);
    for (const struct snapshot_scope *worker = NULL;
         (worker = snapshot_next(snapshot, SCOPE_WORKER, parent, worker)) != NULL;)
        for (uint32_t counter = 0; counter < COUNTER_TABLE_COUNT; counter++)
            if (counter_table[counter].scope == SCOPE_WORKER &&
                counter_table[counter].type != TYPE_GAUGE)
                for (uint32_t i = 0; i < counter_words(counter); i++)
                    sum.words[counter_offset[counter] + i] +=
                        worker->words[counter_offset[counter] + i];
    return sum;
}

/* ---- life and death ---- */

/* Returns the time from which ages are computed: now for a live node, its last sign of life for a
 * dead one. */
static int64_t
snapshot_reference_ns(const struct snapshot *snapshot)
{
    return snapshot->live ? snapshot->taken_ns : snapshot->heartbeat_ns;
}

int64_t
snapshot_age_ns(const struct snapshot *snapshot, int64_t sign_of_life_ns)
{
    int64_t age_ns;
    if (__builtin_sub_overflow(snapshot_reference_ns(snapshot), sign_of_life_ns, &age_ns))
        return 0;
    return age_ns > 0 ? age_ns : 0;
}

bool
snapshot_death_unix_ns(const struct snapshot *snapshot, int64_t *unix_ns)
{
    int64_t ago_ns;
    if (__builtin_sub_overflow(snapshot->taken_ns, snapshot->heartbeat_ns, &ago_ns) || ago_ns < 0)
        return false;
    *unix_ns = snapshot->taken_unix_ns - ago_ns;
    /* The monotonic clock restarts with the machine: a sign of life before the node's start is of
     * another clock. The second tolerates a wall clock that was set in between. */
    return *unix_ns >= snapshot->started_unix_ns - NS_PER_S;
}

bool
snapshot_pipeline_ready(const struct snapshot *snapshot, const struct snapshot_scope *pipeline)
{
    if (!snapshot->live || snapshot->state != NODE_READY)
        return false;
    uint32_t parent = snapshot_index(snapshot, pipeline);
    for (const struct snapshot_scope *stage = NULL;
         (stage = snapshot_next(snapshot, SCOPE_STAGE, parent, stage)) != NULL;)
        if (snapshot_value(stage, STAGE_WORKERS_LIVE) == 0 ||
            snapshot_value(stage, STAGE_QUARANTINED) != 0)
            return false;
    return true;
}

const char *
node_state_name(enum node_state state)
{
    static const char *const names[] = {"starting", "ready", "draining", "stopped"};
    return names[state];
}
