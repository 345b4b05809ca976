/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store of this process alone, with or without a journal: one node is the whole mesh, so it leads
 * while it has a session, and a session never ends by itself.
 *
 *   1. All work happens in turns of the event base, never within the requesting call. A turn takes
 *      requests in order, as long as none touches what an earlier one of the turn changes, and
 *      judges them by the current records.
 *   2. Their changes are committed to the journal as one frame, then applied, reported, and
 *      answered. So nothing is reported that a crash could undo, and one flush serves the whole
 *      turn.
 *   3. If the journal does not accept the frame, nothing is applied: LOST if it is certainly not in
 *      the file, otherwise UNKNOWN.
 *   4. Instances are not in the journal: they end with the process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "loop/timer.h"
#include "mesh/store/journal.h"
#include "mesh/store/kind.h"
#include "mesh/store/table.h"

enum {
    BATCH_MAX = 64,
    BATCH_BYTES_MAX = 32 << 20 /* of values; a single transaction may be that large */
};

/* A request of this turn, judged. */
struct judged {
    struct store_request *request;
    enum store_txn_end end;
    uint64_t revision; /* OK: of its changes */
    struct error error;
};

struct local_store {
    struct store store;
    struct record_table table;
    struct journal *journal; /* NULL: in memory only */
    struct loop_timer *timer;
    struct request_queue queue;
    struct judged batch[BATCH_MAX];
    size_t batch_count;
    size_t batch_bytes;
    uint64_t revision;
    uint64_t session;
    char *instance; /* the record's value */
    size_t instance_bytes;
    bool instance_changed;
    bool leaving;
    bool reported; /* the initial records have been reported */
    bool writable; /* this turn may write to the journal */
    size_t cut;    /* bytes removed from the journal's end, to be reported */
};

static struct local_store *
local_of(struct store *store)
{
    return (struct local_store *)store;
}

static void
wake(struct local_store *local)
{
    loop_timer_set(local->timer, 0);
}

/* ---- telling ---- */

static void
notify_put(void *context, const struct store_record *record)
{
    const struct local_store *local = context;
    local->store.events.on_put(local->store.events.context, record);
}

static void
notify_gone(const struct local_store *local, enum store_table table, const char *id)
{
    local->store.events.on_gone(local->store.events.context, table, id, local->revision);
}

static void
notify_whole(const struct local_store *local)
{
    local->store.events.on_whole(local->store.events.context, local->revision);
}

static void
notify_start(struct local_store *local)
{
    local->reported = true;
    table_walk(&local->table, notify_put, local);
    notify_whole(local);
    if (local->cut == 0)
        return;
    struct error error;
    error_set(&error, STATUS_DATA_LOSS,
              "the registry file: %zu bytes at its end were removed: an unconfirmed write that a "
              "crash interrupted",
              local->cut);
    local->cut = 0;
    local->store.events.on_trouble(local->store.events.context, &error);
}

/* ---- the own instance ---- */

static void
session_set(struct local_store *local, uint64_t session)
{
    const struct store_events *events = &local->store.events;
    CHECK((session == 0) != (local->session == 0)); /* a session ends before the next begins */
    if (session == 0)
        events->on_leader(events->context, STORE_FOLLOWS);
    local->session = session;
    events->on_session(events->context, session);
    if (session != 0)
        events->on_leader(events->context, STORE_LEADS);
}

static void
instance_write(struct local_store *local)
{
    bool is_new = local->session == 0;
    local->instance_changed = false;
    local->revision++;
    const struct store_record record = {
        .table = STORE_INSTANCES,
        .id = local->store.instance,
        .value = local->instance,
        .value_bytes = local->instance_bytes,
        .create_revision = is_new ? local->revision : local->session,
        .revision = local->revision,
    };
    table_put(&local->table, &record);
    notify_put(local, &record);
    notify_whole(local);
    if (is_new)
        session_set(local, record.revision);
}

static void
instance_leave(struct local_store *local)
{
    local->leaving = false;
    if (local->session == 0)
        return;
    local->revision++;
    table_delete(&local->table, STORE_INSTANCES, local->store.instance);
    notify_gone(local, STORE_INSTANCES, local->store.instance);
    notify_whole(local);
    session_set(local, 0);
}

/* ---- judging ---- */

static bool
touches(const struct store_txn *txn, enum store_table table, const char *id)
{
    for (size_t i = 0; i < txn->compare_count; i++)
        if (txn->compares[i].table == table && strcmp(txn->compares[i].id, id) == 0)
            return true;
    for (size_t i = 0; i < txn->change_count; i++)
        if (txn->changes[i].table == table && strcmp(txn->changes[i].id, id) == 0)
            return true;
    return false;
}

/* Returns whether it touches something that an earlier request of this turn changes. */
static bool
depends(const struct local_store *local, const struct store_txn *txn)
{
    for (size_t i = 0; i < local->batch_count; i++) {
        const struct store_txn *earlier = &local->batch[i].request->txn;
        for (size_t k = 0; local->batch[i].end == STORE_OK && k < earlier->change_count; k++)
            if (touches(txn, earlier->changes[k].table, earlier->changes[k].id))
                return true;
    }
    return false;
}

static bool
holds(const struct local_store *local, const struct store_txn *txn, struct error *error)
{
    if (txn->session != local->session || local->session == 0) {
        error_set(error, STATUS_ABORTED, "the session %llu is over",
                  (unsigned long long)txn->session);
        return false;
    }
    for (size_t i = 0; i < txn->compare_count; i++) {
        const struct store_compare *compare = &txn->compares[i];
        const struct store_record *record = table_find(&local->table, compare->table, compare->id);
        uint64_t revision = record == NULL ? 0 : record->revision;
        if (revision == compare->revision)
            continue;
        error_set(error, STATUS_ABORTED, "\"%s\" has revision %llu, not %llu", compare->id,
                  (unsigned long long)revision, (unsigned long long)compare->revision);
        return false;
    }
    return true;
}

static struct store_record
record_after(const struct local_store *local, const struct store_change *change, uint64_t revision)
{
    const struct store_record *before = table_find(&local->table, change->table, change->id);
    return (struct store_record){
        .table = change->table,
        .id = change->id,
        .value = change->value,
        .value_bytes = change->value_bytes,
        .create_revision = before == NULL ? revision : before->create_revision,
        .revision = revision,
    };
}

static void
journal_changes(struct local_store *local, const struct judged *judged)
{
    const struct store_txn *txn = &judged->request->txn;
    for (size_t i = 0; local->writable && i < txn->change_count; i++) {
        struct store_record record = record_after(local, &txn->changes[i], judged->revision);
        if (record.value == NULL)
            journal_delete(local->journal, record.table, record.id, record.revision);
        else
            journal_put(local->journal, &record);
        local->batch_bytes += record.value_bytes;
    }
}

/* Returns the revision after the last one. */
static uint64_t
judge(struct local_store *local)
{
    uint64_t revision = local->revision;
    CHECK(local->batch_count == 0); /* the last turn answered its requests */
    local->batch_bytes = 0;
    while (local->queue.first != NULL && local->batch_count < BATCH_MAX &&
           local->batch_bytes < BATCH_BYTES_MAX && !depends(local, &local->queue.first->txn)) {
        struct judged *judged = &local->batch[local->batch_count++];
        judged->request = request_queue_take(&local->queue);
        judged->end = STORE_LOST;
        error_clear(&judged->error);
        if (!holds(local, &judged->request->txn, &judged->error))
            continue;
        judged->end = STORE_OK;
        judged->revision = ++revision;
        journal_changes(local, judged);
    }
    return revision;
}

/* ---- committing ---- */

/* Ends all requests that would have been OK with another end. */
static void
spoil(struct local_store *local, enum store_txn_end end, const struct error *error)
{
    for (size_t i = 0; i < local->batch_count; i++)
        if (local->batch[i].end == STORE_OK) {
            local->batch[i].end = end;
            local->batch[i].error = *error;
        }
    local->store.events.on_trouble(local->store.events.context, error);
}

static void
commit(struct local_store *local)
{
    struct error error = ERROR_NONE;
    if (!local->writable)
        return;
    switch (journal_commit(local->journal, &error)) {
    case JOURNAL_DONE: return;
    case JOURNAL_NOT_DONE: spoil(local, STORE_LOST, &error); return;
    case JOURNAL_UNKNOWN: spoil(local, STORE_UNKNOWN, &error); return;
    }
    UNREACHABLE();
}

static void
apply(struct local_store *local, const struct judged *judged)
{
    const struct store_txn *txn = &judged->request->txn;
    for (size_t i = 0; i < txn->change_count; i++) {
        struct store_record record = record_after(local, &txn->changes[i], judged->revision);
        if (record.value == NULL) {
            table_delete(&local->table, record.table, record.id);
            notify_gone(local, record.table, record.id);
        } else {
            table_put(&local->table, &record);
            notify_put(local, &record);
        }
    }
}

static void
notify_compared(struct local_store *local, const struct store_txn *txn)
{
    for (size_t i = 0; txn->session == local->session && i < txn->compare_count; i++) {
        const struct store_compare *compare = &txn->compares[i];
        const struct store_record *record = table_find(&local->table, compare->table, compare->id);
        if (record == NULL)
            notify_gone(local, compare->table, compare->id);
        else
            notify_put(local, record);
    }
}

static void
answer(struct local_store *local)
{
    for (size_t i = 0; i < local->batch_count; i++) {
        struct judged *judged = &local->batch[i];
        if (judged->end == STORE_OK) {
            CHECK(judged->revision == local->revision + 1);
            local->revision = judged->revision;
            apply(local, judged);
            notify_whole(local);
        } else if (judged->end == STORE_LOST) {
            notify_compared(local, &judged->request->txn);
        }
        request_end(judged->request, judged->end, &judged->error);
    }
    local->batch_count = 0;
}

/* ---- turns ---- */

/* Rewrites a broken or overlong journal before a write. Returns false if nothing can be written. */
static bool
journal_ready(struct local_store *local, struct error *error)
{
    bool broken = journal_is_broken(local->journal);
    if (!broken && !journal_is_long(local->journal, &local->table))
        return true;
    if (journal_rewrite(local->journal, &local->table, local->revision, error) == STATUS_OK)
        return true;
    error_prefix(error, "the registry file: it must be rewritten");
    if (journal_is_broken(local->journal))
        return false;
    local->store.events.on_trouble(local->store.events.context, error);
    return true;
}

static void
batch_run(struct local_store *local)
{
    struct error error = ERROR_NONE;
    local->writable = local->journal != NULL && journal_ready(local, &error);
    judge(local);
    if (local->journal != NULL && !local->writable)
        spoil(local, STORE_LOST, &error);
    commit(local);
    answer(local);
}

static void
on_time(void *context)
{
    struct local_store *local = context;
    if (!local->reported)
        notify_start(local);
    if (local->leaving)
        instance_leave(local);
    if (local->instance_changed)
        instance_write(local);
    if (local->queue.first != NULL)
        batch_run(local);
    if (local->queue.first != NULL || local->leaving || local->instance_changed)
        wake(local);
}

/* ---- the interface ---- */

static void
local_close(struct store *store)
{
    struct local_store *local = local_of(store);
    loop_timer_destroy(local->timer);
    request_queue_drop(&local->queue);
    journal_close(local->journal);
    table_fini(&local->table);
    free(local->instance);
    store_fini(store);
    free(local);
}

static void
local_set_instance(struct store *store, const void *value, size_t value_bytes)
{
    struct local_store *local = local_of(store);
    free(local->instance);
    local->instance = malloc(value_bytes + 1);
    CHECK(local->instance != NULL);
    if (value_bytes > 0)
        memcpy(local->instance, value, value_bytes);
    local->instance_bytes = value_bytes;
    local->instance_changed = true;
    wake(local);
}

static void
local_leave(struct store *store)
{
    struct local_store *local = local_of(store);
    local->instance_changed = false;
    local->leaving = true;
    wake(local);
}

/* There is no other node to wait for the record's deletion. */
static bool
local_is_leaving(const struct store *store)
{
    (void)store;
    return false;
}

static void
local_txn(struct store *store, struct store_request *request)
{
    struct local_store *local = local_of(store);
    request_queue_put(&local->queue, request);
    wake(local);
}

static uint64_t
local_session(const struct store *store)
{
    return ((const struct local_store *)store)->session;
}

static bool
local_leader(const struct store *store, char id[STORE_ID_BYTES_MAX + 1])
{
    snprintf(id, STORE_ID_BYTES_MAX + 1, "%s", store->instance);
    return ((const struct local_store *)store)->session != 0;
}

static struct record_span
local_prefix(const struct store *store)
{
    (void)store;
    return (struct record_span){"", 0};
}

#define LOCAL_KIND(kind_name)                                                                      \
    {                                                                                              \
        .name = (kind_name), .close = local_close, .set_instance = local_set_instance,             \
        .leave = local_leave, .is_leaving = local_is_leaving, .txn = local_txn,                    \
        .session = local_session, .leader = local_leader, .prefix = local_prefix,                  \
    }

static const struct store_kind memory_kind = LOCAL_KIND("memory");
static const struct store_kind file_kind = LOCAL_KIND("file");

/* ---- opening ---- */

static void
see_revision(void *context, uint64_t revision)
{
    struct local_store *local = context;
    if (revision > local->revision)
        local->revision = revision;
}

static void
see_put(void *context, const struct store_record *record)
{
    struct local_store *local = context;
    table_put(&local->table, record);
    see_revision(local, record->revision);
}

static void
see_delete(void *context, enum store_table table, const char *id, uint64_t revision)
{
    struct local_store *local = context;
    table_delete(&local->table, table, id);
    see_revision(local, revision);
}

/* `path`: NULL: in memory only. */
static enum status
local_open(struct event_base *base, const struct store_options *options, const char *path,
           struct store **store, struct error *error)
{
    struct local_store *local = calloc(1, sizeof(*local));
    CHECK(local != NULL);
    if (store_init(&local->store, path == NULL ? &memory_kind : &file_kind, options, error) !=
        STATUS_OK) {
        free(local);
        return error->status;
    }
    const struct journal_reader reader = {see_put, see_delete, see_revision, local};
    if (path != NULL &&
        journal_open(path, &reader, &local->journal, &local->cut, error) != STATUS_OK) {
        local_close(&local->store);
        return error->status;
    }
    if (local->revision == 0)
        local->revision = 1; /* 0 means none */
    local->timer = loop_timer_create(base, on_time, local);
    wake(local);
    *store = &local->store;
    return STATUS_OK;
}

enum status
store_open_memory(struct event_base *base, const struct store_options *options,
                  struct store **store, struct error *error)
{
    return local_open(base, options, NULL, store, error);
}

enum status
store_open_file(struct event_base *base, const struct store_options *options, const char *path,
                struct store **store, struct error *error)
{
    return local_open(base, options, path, store, error);
}
