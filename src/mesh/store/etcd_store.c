/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store in etcd, under the incumbent's keys:
 *
 *   1. A lease is kept as long as an instance is wanted. Under it live two keys: the instance's
 * record, whose creation is the session, and then the latch. When the lease is lost there is no
 * session, and a new lease is sought; when the instance's key alone is, it is created anew.
 *   2. A mirror of the four tables and of the latches tells what there is. What a listing does not
 *      have any more is told when the listing is done, with its revision.
 *   3. When etcd comes back without its data (its revisions begin anew, libetcd says), the session
 *      ends, a new lease is sought, and all is told anew. What is missing is not told as gone.
 *   4. Answers tell of records before the mirror does. Should such a one be deleted before the
 * mirror ever came to tell of it, nobody would say so. Therefore it is kept in mind until the
 * mirror does tell of it; if the mirror's revision passes it without, it is gone.
 *   5. Whose latch was created first leads. Believed as soon as the mirror shows our own: what was
 *      created before it has been shown by then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "mesh/etcd/timer.h"
#include "mesh/store/batch.h"
#include "mesh/store/etcd_store.h"

enum { LEASE_S = 25, WHOLE_S = 1, LEAVE_S = 2 };

#define TIMEOUT_NS (3500LL * NS_PER_MS)

static struct etcd_store *
etcd_store_of(struct store *store)
{
    return (struct etcd_store *)store;
}

struct record_span
etcd_store_prefix(const struct etcd_store *store)
{
    return (struct record_span){store->prefix.data, store->prefix.used};
}

static void
tell_trouble(void *context, const struct error *error)
{
    const struct etcd_store *store = context;
    store->store.events.on_trouble(store->store.events.context, error);
}

void
etcd_store_told(struct etcd_store *store, enum record_area area, const char *id, uint64_t revision)
{
    const struct store_record told = {
        .table = (enum store_table)area, .id = id, .revision = revision};
    table_put(&store->told, &told);
}

/* ---- session and leadership ---- */

static void
lead_check(struct etcd_store *store)
{
    uint64_t own = claim_held(store->latch);
    bool leads = store->session != 0 && own != 0 && latches_first(&store->latches) == own;
    enum store_leadership leadership = leads ? STORE_LEADS : STORE_FOLLOWS;
    if (leadership == store->leadership)
        return;
    store->leadership = leadership;
    store->store.events.on_leader(store->store.events.context, leadership);
}

static void
session_set(struct etcd_store *store, uint64_t session)
{
    if (session == store->session)
        return;
    if (session != 0 && store->session != 0)
        session_set(store, 0);
    store->session = session;
    if (session == 0)
        lead_check(store);
    store->store.events.on_session(store->store.events.context, session);
    if (session != 0)
        lead_check(store);
}

static void
on_instance_held(void *context, uint64_t revision)
{
    struct etcd_store *store = context;
    if (revision != 0) {
        if (store->leaving != NULL) /* it has come back before that was answered */
            etcd_cancel(store->leaving);
        store->leaving = NULL;
        struct etcd_bytes value = claim_value(store->instance);
        const struct store_record record = {
            .table = STORE_INSTANCES,
            .id = store->store.instance,
            .value = value.data,
            .value_bytes = value.bytes,
            .create_revision = revision,
            .revision = revision,
        };
        store->store.events.on_put(store->store.events.context, &record);
        etcd_store_told(store, RECORD_INSTANCES, store->store.instance, revision);
    }
    session_set(store, revision);
}

static void
on_latch_held(void *context, uint64_t revision)
{
    struct etcd_store *store = context;
    if (revision != 0)
        etcd_store_told(store, RECORD_LATCHES, store->store.instance, revision);
    lead_check(store);
}

/* ---- the lease ---- */

static void lease_open(struct etcd_store *store);

static void
lease_close(struct etcd_store *store)
{
    if (store->lease != NULL)
        etcd_session_close(store->lease);
    store->lease = NULL;
    claim_set_lease(store->latch, 0);
    claim_set_lease(store->instance, 0);
}

static void
on_granted(void *context, int64_t lease_id)
{
    struct etcd_store *store = context;
    claim_set_lease(store->instance, lease_id);
    claim_set_lease(store->latch, lease_id);
}

static void
on_lease_lost(void *context, const struct error *error)
{
    struct etcd_store *store = context;
    lease_close(store);
    session_set(store, 0);
    tell_trouble(store, error);
    lease_open(store);
}

static void
lease_open(struct etcd_store *store)
{
    const struct etcd_session_options options = {
        .ttl_s = store->lease_s,
        .on_granted = on_granted,
        .on_lost = on_lease_lost,
        .on_trouble = tell_trouble,
        .context = store,
    };
    if (store->lease == NULL)
        store->lease = etcd_session_open(store->etcd, &options);
}

/* ---- the mirror ---- */

static void
missed_drop(struct etcd_store *store)
{
    while (store->missed != NULL) {
        struct missed *missed = store->missed;
        store->missed = missed->next;
        free(missed);
    }
}

/* Rule 3. */
static void
emptied_check(struct etcd_store *store)
{
    uint64_t histories = etcd_figures(store->etcd)->histories;
    if (histories == store->histories)
        return;
    bool wanted = store->lease != NULL;
    store->histories = histories;
    store->emptied = true;
    store->whole = 0;
    latches_fini(&store->latches);
    table_fini(&store->told);
    missed_drop(store);
    lease_close(store);
    session_set(store, 0);
    store->store.events.on_emptied(store->store.events.context);
    if (wanted)
        lease_open(store);
}

/* False: it has none that is taken. */
static bool
id_of(const struct etcd_store *store, size_t area, struct etcd_bytes key,
      char id[STORE_ID_BYTES_MAX + 1])
{
    enum record_area is;
    struct record_span span;
    if (!record_key_parse(etcd_store_prefix(store), (struct record_span){key.data, key.bytes}, &is,
                          &span) ||
        is != area || span.bytes > STORE_ID_BYTES_MAX ||
        memchr(span.data, '\0', span.bytes) != NULL)
        return false;
    memcpy(id, span.data, span.bytes);
    id[span.bytes] = '\0';
    return true;
}

/* By the mirror, of a record or a latch; `created` 0: it is not there. */
static void
seen(struct etcd_store *store, size_t area, const char *id, uint64_t created, uint64_t revision)
{
    if (strcmp(id, store->store.instance) != 0)
        return;
    if (area == RECORD_INSTANCES)
        claim_seen(store->instance, created, revision);
    else if (area == RECORD_LATCHES)
        claim_seen(store->latch, created, revision);
}

static void
tell_put(struct etcd_store *store, size_t area, const char *id, const struct etcd_kv *kv)
{
    const struct store_record record = {
        .table = (enum store_table)area,
        .id = id,
        .value = kv->value.data == NULL ? "" : kv->value.data,
        .value_bytes = kv->value.bytes,
        .create_revision = (uint64_t)kv->create_revision,
        .revision = (uint64_t)kv->mod_revision,
    };
    store->store.events.on_put(store->store.events.context, &record);
}

static void
on_put(void *context, size_t area, const struct etcd_kv *kv)
{
    struct etcd_store *store = context;
    char id[STORE_ID_BYTES_MAX + 1];
    emptied_check(store);
    if (area == RECORD_LATCHES)
        latches_put(&store->latches, kv->key, (uint64_t)kv->create_revision);
    if (id_of(store, area, kv->key, id)) {
        if (area != RECORD_LATCHES)
            tell_put(store, area, id, kv);
        seen(store, area, id, (uint64_t)kv->create_revision, (uint64_t)kv->mod_revision);
    }
    lead_check(store);
}

static void
tell_gone(struct etcd_store *store, size_t area, const char *id, uint64_t revision)
{
    const struct store_events *events = &store->store.events;
    if (area != RECORD_LATCHES)
        events->on_gone(events->context, (enum store_table)area, id, revision);
    seen(store, area, id, 0, revision);
}

static void
miss(struct etcd_store *store, enum record_area area, const char *id)
{
    size_t id_bytes = strlen(id);
    struct missed *missed = malloc(sizeof(*missed) + id_bytes + 1);
    CHECK(missed != NULL);
    *missed = (struct missed){store->missed, area, id_bytes};
    memcpy(missed->id, id, id_bytes + 1);
    store->missed = missed;
}

static void
on_delete(void *context, size_t area, const struct etcd_kv *kv)
{
    struct etcd_store *store = context;
    char id[STORE_ID_BYTES_MAX + 1];
    emptied_check(store);
    if (area == RECORD_LATCHES)
        latches_delete(&store->latches, kv->key);
    if (id_of(store, area, kv->key, id)) {
        if (kv->mod_revision != 0)
            tell_gone(store, area, id, (uint64_t)kv->mod_revision);
        else if (!store->emptied)
            miss(store, (enum record_area)area, id);
    }
    lead_check(store);
}

/* Of what answers told. */
struct sweep {
    struct etcd_store *store;
    uint64_t revision;
    struct table left; /* the mirror has not come so far */
};

static void
sweep_told(void *context, const struct store_record *told)
{
    struct sweep *sweep = context;
    struct etcd_store *store = sweep->store;
    enum record_area area = (enum record_area)told->table;
    struct bytes key = {0};
    record_key_put(&key, etcd_store_prefix(store), area, record_text(told->id));
    CHECK(!key.failed);
    int64_t has = etcd_mirror_told(store->mirror, (struct etcd_bytes){key.data, key.used});
    if ((uint64_t)has < told->revision && told->revision > sweep->revision)
        table_put(&sweep->left, told);
    else if (has == 0)
        miss(store, area, told->id);
    bytes_fini(&key);
}

/* All that is not there as of the revision, of which that was not known before. */
static void
tell_missed(struct etcd_store *store, uint64_t revision)
{
    struct sweep sweep = {store, revision, {0}};
    table_walk(&store->told, sweep_told, &sweep);
    table_fini(&store->told);
    store->told = sweep.left;
    while (store->missed != NULL) {
        struct missed *missed = store->missed;
        store->missed = missed->next;
        tell_gone(store, missed->area, missed->id, revision);
        free(missed);
    }
}

static void
tell_whole(struct etcd_store *store, uint64_t revision)
{
    tell_missed(store, revision);
    if (revision == store->whole)
        return;
    store->whole = revision;
    store->store.events.on_whole(store->store.events.context, revision);
}

static void
on_synced(void *context, int64_t revision)
{
    struct etcd_store *store = context;
    emptied_check(store);
    store->emptied = false;
    store->whole = 0;
    tell_whole(store, (uint64_t)revision);
    etcd_timer_set(store->whole_timer, WHOLE_S * NS_PER_S);
}

/* As revisions go on, now and then. */
static void
on_whole_time(void *context)
{
    struct etcd_store *store = context;
    if (store->whole != 0 && !store->emptied)
        tell_whole(store, (uint64_t)etcd_mirror_revision(store->mirror));
    etcd_timer_set(store->whole_timer, WHOLE_S * NS_PER_S);
}

/* ---- transactions ---- */

static void
on_refused_time(void *context)
{
    struct etcd_store *store = context;
    struct request *request;
    struct error error;
    struct request_queue refused = store->refused;
    store->refused = (struct request_queue){0};
    while ((request = request_queue_take(&refused)) != NULL) {
        error_set(&error, STATUS_ABORTED, "%s", request->refusal);
        request_end(request, STORE_LOST, &error);
    }
}

/* ---- the interface ---- */

static void
store_txn_of(struct store *store, struct request *request)
{
    etcd_store_txn(etcd_store_of(store), request);
}

/* The keys have gone with the lease, or will. */
static void
left(struct etcd_store *store)
{
    store->leaving = NULL;
    session_set(store, 0);
}

static void
on_revoked(void *context, const struct etcd_answer *answer)
{
    (void)answer;
    left(context);
}

static void
store_leave_of(struct store *base)
{
    struct etcd_store *store = etcd_store_of(base);
    int64_t lease_id = store->lease == NULL ? 0 : etcd_session_lease_id(store->lease);
    lease_close(store);
    if (lease_id == 0 || store->leaving != NULL)
        return;
    store->leaving = etcd_lease_revoke(store->etcd, lease_id,
                                       (struct etcd_reply){on_revoked, store, LEAVE_S * NS_PER_S});
}

static bool
store_is_leaving_of(const struct store *base)
{
    return ((const struct etcd_store *)base)->leaving != NULL;
}

static void
store_set_instance_of(struct store *base, const void *value, size_t value_bytes)
{
    struct etcd_store *store = etcd_store_of(base);
    claim_set_value(store->instance, value, value_bytes);
    lease_open(store);
}

static uint64_t
store_session_of(const struct store *store)
{
    return ((const struct etcd_store *)store)->session;
}

static uint64_t
store_revision_of(const struct store *store)
{
    return ((const struct etcd_store *)store)->whole;
}

static bool
store_leader_of(const struct store *base, char id[STORE_ID_BYTES_MAX + 1])
{
    const struct etcd_store *store = (const struct etcd_store *)base;
    const struct latch *leader = latches_leader(&store->latches);
    /* Without a session the latches are as old as the last word of etcd. */
    bool is_known =
        leader != NULL && store->session != 0 &&
        id_of(store, RECORD_LATCHES, (struct etcd_bytes){leader->key, leader->key_bytes}, id);
    bool is_self = is_known && strcmp(id, base->instance) == 0;
    return is_known && is_self == (store->leadership == STORE_LEADS);
}

static void
store_close_of(struct store *base)
{
    struct etcd_store *store = etcd_store_of(base);
    if (store->leaving != NULL)
        etcd_cancel(store->leaving);
    if (store->lease != NULL)
        etcd_session_close(store->lease);
    if (store->mirror != NULL)
        etcd_mirror_close(store->mirror);
    etcd_store_txns_drop(store);
    claim_destroy(store->instance);
    claim_destroy(store->latch);
    etcd_timer_destroy(store->whole_timer);
    etcd_timer_destroy(store->refused_timer);
    request_queue_drop(&store->refused);
    latches_fini(&store->latches);
    table_fini(&store->told);
    missed_drop(store);
    bytes_fini(&store->prefix);
    store_fini(base);
    free(store);
}

static struct record_span
store_prefix_of(const struct store *base)
{
    return etcd_store_prefix((const struct etcd_store *)base);
}

static const struct store_kind etcd_kind = {
    "etcd",       store_close_of,   store_set_instance_of, store_leave_of,  store_is_leaving_of,
    store_txn_of, store_session_of, store_revision_of,     store_leader_of, store_prefix_of,
};

/* ---- opening ---- */

static struct claim *
claim_make(struct etcd_store *store, enum record_area area, const char *what,
           void (*on_held)(void *context, uint64_t revision))
{
    struct bytes key = {0};
    char text[128];
    record_key_put(&key, etcd_store_prefix(store), area, record_text(store->store.instance));
    snprintf(text, sizeof(text), "%s \"%.64s\"", what, store->store.instance);
    const struct claim_options options = {
        .etcd = store->etcd,
        .key = {key.data, key.used},
        .what = text,
        .timeout_ns = store->timeout_ns,
        .on_held = on_held,
        .on_trouble = tell_trouble,
        .context = store,
    };
    struct claim *claim = claim_create(store->base, &options);
    bytes_fini(&key);
    return claim;
}

static void
set_latch(struct etcd_store *store)
{
    struct bytes value = {0};
    bytes_put_char(&value, '_');
    bytes_put_text(&value, store->store.instance);
    claim_set_value(store->latch, value.data, value.used);
    bytes_fini(&value);
}

static enum status
mirror_open(struct etcd_store *store, int64_t page_keys, struct error *error)
{
    struct bytes keys[RECORD_AREAS] = {{0}};
    struct etcd_range ranges[RECORD_AREAS];
    for (enum record_area area = 0; area < RECORD_AREAS; area++) {
        record_area_put(&keys[area], etcd_store_prefix(store), area);
        ranges[area] =
            (struct etcd_range){.span = ETCD_PREFIX, .key = {keys[area].data, keys[area].used}};
    }
    const struct etcd_mirror_options options = {
        .ranges = ranges,
        .range_count = RECORD_AREAS,
        .page_keys = page_keys,
        .on_put = on_put,
        .on_delete = on_delete,
        .on_synced = on_synced,
        .on_trouble = tell_trouble,
        .context = store,
    };
    enum status status = etcd_mirror_open(store->etcd, &options, &store->mirror, error);
    for (enum record_area area = 0; area < RECORD_AREAS; area++)
        bytes_fini(&keys[area]);
    return status;
}

static enum status
options_check(const struct store_etcd_options *options, struct error *error)
{
    size_t bytes = strlen(options->prefix);
    if (bytes == 0 || options->prefix[bytes - 1] != '/')
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "store etcd: the prefix \"%s\" does not end in a slash", options->prefix);
    if (options->lease_s < 0 || options->lease_s > INT32_MAX || options->timeout_ns < 0 ||
        options->page_keys < 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "store etcd: the lease, the time-out or the page is less than 0");
    return STATUS_OK;
}

enum status
store_open_etcd(struct event_base *base, const struct store_options *options,
                const struct store_etcd_options *etcd, struct store **opened, struct error *error)
{
    if (options_check(etcd, error) != STATUS_OK)
        return error->status;
    struct etcd_store *store = calloc(1, sizeof(*store));
    CHECK(store != NULL);
    store->base = base;
    store->etcd = etcd->etcd;
    store->lease_s = etcd->lease_s == 0 ? LEASE_S : etcd->lease_s;
    store->timeout_ns = etcd->timeout_ns == 0 ? TIMEOUT_NS : etcd->timeout_ns;
    store->histories = etcd_figures(etcd->etcd)->histories;
    store->leadership = STORE_FOLLOWS;
    store->ops_max = BATCH_OPS_MAX;
    bytes_put_text(&store->prefix, etcd->prefix);
    if (store_init(&store->store, &etcd_kind, options, error) != STATUS_OK) {
        bytes_fini(&store->prefix);
        free(store);
        return error->status;
    }
    store->whole_timer = etcd_timer_create(base, on_whole_time, store);
    store->refused_timer = etcd_timer_create(base, on_refused_time, store);
    store->instance = claim_make(store, RECORD_INSTANCES, "the instance", on_instance_held);
    store->latch = claim_make(store, RECORD_LATCHES, "the latch of", on_latch_held);
    set_latch(store);
    if (mirror_open(store, etcd->page_keys, error) != STATUS_OK) {
        store_close_of(&store->store);
        return error->status;
    }
    *opened = &store->store;
    return STATUS_OK;
}
