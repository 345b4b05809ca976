/* SPDX-License-Identifier: Apache-2.0 */
#include "seen.h"

static const struct seen_record *
find(const struct seen *seen, enum store_table table, const char *id)
{
    for (size_t i = 0; i < seen->record_count; i++)
        if (seen->records[i].table == table && strcmp(seen->records[i].id, id) == 0)
            return &seen->records[i];
    return NULL;
}

/* NULL: the known record is newer. */
static struct seen_record *
make(struct seen *seen, enum store_table table, const char *id, uint64_t revision)
{
    const struct seen_record *known = find(seen, table, id);
    if (known != NULL && revision <= known->revision)
        return NULL;
    size_t at = known == NULL ? seen->record_count : (size_t)(known - seen->records);
    assert_true(at < SEEN_RECORDS_MAX);
    struct seen_record *record = &seen->records[at];
    if (known == NULL) {
        seen->record_count++;
        *record = (struct seen_record){.table = table};
        snprintf(record->id, sizeof(record->id), "%s", id);
    }
    free(record->value);
    record->value = NULL;
    record->revision = revision;
    return record;
}

static void
on_put(void *context, const struct store_record *reported)
{
    struct seen *seen = context;
    assert_true(reported->revision >= reported->create_revision && reported->create_revision > 0);
    struct seen_record *record = make(seen, reported->table, reported->id, reported->revision);
    if (record == NULL)
        return;
    record->create_revision = reported->create_revision;
    record->value = malloc(reported->value_bytes + 1);
    CHECK(record->value != NULL);
    memcpy(record->value, reported->value, reported->value_bytes);
    record->value[reported->value_bytes] = '\0';
    record->value_bytes = reported->value_bytes;
}

static void
on_gone(void *context, enum store_table table, const char *id, uint64_t revision)
{
    struct seen *seen = context;
    assert_true(revision > 0);
    seen->gones++;
    make(seen, table, id, revision);
}

static void
on_whole(void *context, uint64_t revision)
{
    struct seen *seen = context;
    assert_true(revision > 0 && revision >= seen->whole);
    seen->whole = revision;
    seen->wholes++;
}

static void
on_session(void *context, uint64_t session)
{
    struct seen *seen = context;
    assert_true((session == 0) != (seen->session == 0));
    assert_int_equal(seen->leadership, STORE_FOLLOWS);
    assert_true(session == store_session(seen->store));
    seen->session = session;
    seen->sessions += session != 0;
}

static void
on_leader(void *context, enum store_leadership leadership)
{
    struct seen *seen = context;
    assert_true(leadership == STORE_FOLLOWS || seen->session != 0);
    seen->leadership = leadership;
    seen->demotions += leadership == STORE_FOLLOWS;
}

static void
on_emptied(void *context)
{
    struct seen *seen = context;
    assert_int_equal(seen->session, 0);
    seen->emptied++;
    seen->whole = 0;
    for (size_t i = 0; i < seen->record_count; i++)
        seen->records[i].revision = 0;
}

static void
on_trouble(void *context, const struct error *error)
{
    struct seen *seen = context;
    assert_int_not_equal(error->status, STATUS_OK);
    assert_true(error->text[0] != '\0');
    seen->trouble = *error;
    seen->troubles++;
}

static void
on_full(void *context, const struct error *error)
{
    struct seen *seen = context;
    assert_non_null(strstr(error->text, "database space exceeded"));
    seen->fulls++;
}

static void
on_batch_limit(void *context, size_t operations, const struct error *error)
{
    struct seen *seen = context;
    assert_int_equal(error->status, STATUS_INVALID_ARGUMENT);
    seen->batch_limits++;
    seen->batch_max = operations;
}

struct store_events
seen_events(struct seen *seen)
{
    return (struct store_events){.on_put = on_put,
                                 .on_gone = on_gone,
                                 .on_whole = on_whole,
                                 .on_session = on_session,
                                 .on_leader = on_leader,
                                 .on_emptied = on_emptied,
                                 .on_trouble = on_trouble,
                                 .on_full = on_full,
                                 .on_batch_limit = on_batch_limit,
                                 .context = seen};
}

void
seen_fini(struct seen *seen)
{
    for (size_t i = 0; i < seen->record_count; i++)
        free(seen->records[i].value);
    *seen = (struct seen){0};
}

const char *
seen_value(const struct seen *seen, enum store_table table, const char *id)
{
    const struct seen_record *record = find(seen, table, id);
    return record == NULL ? NULL : record->value;
}

uint64_t
seen_revision(const struct seen *seen, enum store_table table, const char *id)
{
    const struct seen_record *record = find(seen, table, id);
    return record == NULL || record->value == NULL ? 0 : record->revision;
}

uint64_t
seen_created(const struct seen *seen, enum store_table table, const char *id)
{
    const struct seen_record *record = find(seen, table, id);
    return record == NULL || record->value == NULL ? 0 : record->create_revision;
}

static void
on_end(void *context, enum store_txn_end end, const struct error *error)
{
    struct seen *seen = context;
    assert_int_equal(end == STORE_OK, error->status == STATUS_OK);
    seen->end = end;
    seen->error = *error;
    seen->ends++;
}

void
txn_begin(struct seen *seen, const struct store_txn *txn)
{
    struct error error = ERROR_NONE;
    size_t ends = seen->ends;
    if (store_txn(seen->store, txn, (struct store_reply){on_end, seen}, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_int_equal(seen->ends, ends); /* never from within */
}

enum store_txn_end
txn_run(struct seen *seen, const struct store_compare *compares, size_t compare_count,
        const struct store_change *changes, size_t change_count)
{
    size_t ends = seen->ends;
    txn_begin(seen,
              &(struct store_txn){seen->session, compares, compare_count, changes, change_count});
    WAIT_UNTIL(seen->ends > ends);
    return seen->end;
}

enum store_txn_end
model_set(struct seen *seen, const char *id, uint64_t revision, const char *value)
{
    const struct store_compare compare = {STORE_MODELS, id, revision};
    const struct store_change change = {STORE_MODELS, id, value, value == NULL ? 0 : strlen(value)};
    return txn_run(seen, &compare, 1, &change, 1);
}

void
seen_join(struct seen *seen, const char *value)
{
    store_set_instance(seen->store, value, strlen(value));
    WAIT_UNTIL(seen->session != 0);
}
