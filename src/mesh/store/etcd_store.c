/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store in etcd, under ModelMesh's keys:
 *
 *   1. A lease is kept while an instance is set. Two keys live under it: the instance's record,
 *      whose creation is the session, and then the candidate. Without the lease there is no
 * session, and a new lease is sought; if only the instance's key is lost, it is recreated.
 *   2. A mirror of the five tables and the candidates reports the content. Keys missing from a
 * listing are reported when it is done, with its revision.
 *   3. When etcd returns without its data (libetcd reports that revisions restart), the session
 *      ends, a new lease is sought, and everything is reported again. Missing records are not
 *      reported.
 *   4. Answers report records before the mirror does. If such a record is deleted before the mirror
 *      reports it, no event would follow. So it is remembered until the mirror reports it; if the
 *      mirror's revision passes it without, it is gone.
 *   5. The oldest candidate leads. Believed once the mirror shows our own: older ones have been
 * shown by then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "loop/timer.h"
#include "mesh/store/batch.h"
#include "mesh/store/etcd_store.h"

enum { LEASE_S = 25, WHOLE_S = 1, LEAVE_S = 2, WAITING_MAX = 4096 };

#define TIMEOUT_NS (3500LL * NS_PER_MS)

static struct etcd_store *
etcd_store_of(struct store *store)
{
    return (struct etcd_store *)store;
}

/* Each refusal for lack of space is reported in the turn in which etcd's figures count it: a
 * transaction's as its end, all others here. */
static void
notify_trouble(void *context, const struct error *error)
{
    struct etcd_store *store = context;
    const struct store_events *events = &store->store.events;
    bool is_full = store->fulls != etcd_figures(store->etcd)->full;
    etcd_store_fulls_reported(store);
    events->on_trouble(events->context, error);
    if (is_full)
        events->on_full(events->context, error);
}

/* ---- session and leadership ---- */

static void
lead_check(struct etcd_store *store)
{
    uint64_t own = claim_held(store->candidate);
    bool leads = store->session != 0 && own != 0 && candidates_first(&store->candidates) == own;
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
        if (store->leaving != NULL) /* the lease has returned before that was answered */
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
        etcd_store_reported(store, RECORD_INSTANCES, store->store.instance, revision);
    }
    session_set(store, revision);
}

static void
on_candidate_held(void *context, uint64_t revision)
{
    struct etcd_store *store = context;
    if (revision != 0)
        etcd_store_reported(store, RECORD_CANDIDATES, store->store.instance, revision);
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
    claim_set_lease(store->candidate, 0);
    claim_set_lease(store->instance, 0);
}

static void
on_granted(void *context, int64_t lease_id)
{
    struct etcd_store *store = context;
    claim_set_lease(store->instance, lease_id);
    claim_set_lease(store->candidate, lease_id);
}

static void
on_lease_lost(void *context, const struct error *error)
{
    struct etcd_store *store = context;
    lease_close(store);
    session_set(store, 0);
    notify_trouble(store, error);
    lease_open(store);
}

static void
lease_open(struct etcd_store *store)
{
    const struct etcd_session_options options = {
        .ttl_s = store->lease_s,
        .on_granted = on_granted,
        .on_lost = on_lease_lost,
        .on_trouble = notify_trouble,
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
    candidates_fini(&store->candidates);
    table_fini(&store->reported);
    missed_drop(store);
    lease_close(store);
    session_set(store, 0);
    store->store.events.on_emptied(store->store.events.context);
    if (wanted)
        lease_open(store);
}

/* False: no key of ours is held. */
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

/* The mirror has shown a record or a candidate; `created` 0: it is absent. */
static void
seen(struct etcd_store *store, size_t area, const char *id, uint64_t created, uint64_t revision)
{
    if (strcmp(id, store->store.instance) != 0)
        return;
    if (area == RECORD_INSTANCES)
        claim_seen(store->instance, created, revision);
    else if (area == RECORD_CANDIDATES)
        claim_seen(store->candidate, created, revision);
}

static void
notify_put(struct etcd_store *store, size_t area, const char *id, const struct etcd_kv *kv)
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
    if (area == RECORD_CANDIDATES)
        candidates_put(&store->candidates, kv->key, (uint64_t)kv->create_revision);
    if (id_of(store, area, kv->key, id)) {
        if (area != RECORD_CANDIDATES)
            notify_put(store, area, id, kv);
        seen(store, area, id, (uint64_t)kv->create_revision, (uint64_t)kv->mod_revision);
    }
    lead_check(store);
}

static void
notify_gone(struct etcd_store *store, size_t area, const char *id, uint64_t revision)
{
    const struct store_events *events = &store->store.events;
    if (area != RECORD_CANDIDATES)
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
    if (area == RECORD_CANDIDATES)
        candidates_delete(&store->candidates, kv->key);
    if (id_of(store, area, kv->key, id)) {
        if (kv->mod_revision != 0)
            notify_gone(store, area, id, (uint64_t)kv->mod_revision);
        else if (!store->emptied)
            miss(store, (enum record_area)area, id);
    }
    lead_check(store);
}

/* Keys reported by answers. */
struct sweep {
    struct etcd_store *store;
    uint64_t revision;
    struct record_table left; /* not reached by the mirror yet */
};

static void
sweep_reported(void *context, const struct store_record *reported)
{
    struct sweep *sweep = context;
    struct etcd_store *store = sweep->store;
    enum record_area area = (enum record_area)reported->table;
    struct bytes key = {0};
    record_key_put(&key, etcd_store_prefix(store), area, record_text(reported->id));
    CHECK(!key.failed);
    int64_t has = etcd_mirror_reported(store->mirror, (struct etcd_bytes){key.data, key.used});
    if ((uint64_t)has < reported->revision && reported->revision > sweep->revision)
        table_put(&sweep->left, reported);
    else if (has == 0)
        miss(store, area, reported->id);
    bytes_fini(&key);
}

/* Reports everything absent as of the revision that was not known to be. */
static void
notify_missed(struct etcd_store *store, uint64_t revision)
{
    struct sweep sweep = {store, revision, {0}};
    table_walk(&store->reported, sweep_reported, &sweep);
    table_fini(&store->reported);
    store->reported = sweep.left;
    while (store->missed != NULL) {
        struct missed *missed = store->missed;
        store->missed = missed->next;
        notify_gone(store, missed->area, missed->id, revision);
        free(missed);
    }
}

static void
notify_whole(struct etcd_store *store, uint64_t revision)
{
    notify_missed(store, revision);
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
    notify_whole(store, (uint64_t)revision);
    loop_timer_set(store->whole_timer, WHOLE_S * NS_PER_S);
}

/* Now and then, as revisions advance. */
static void
on_whole_time(void *context)
{
    struct etcd_store *store = context;
    if (store->whole != 0 && !store->emptied)
        notify_whole(store, (uint64_t)etcd_mirror_revision(store->mirror));
    loop_timer_set(store->whole_timer, WHOLE_S * NS_PER_S);
}

/* ---- transactions ---- */

static void
on_refused_time(void *context)
{
    struct etcd_store *store = context;
    struct store_request *request;
    struct error error;
    struct request_queue refused = store->refused;
    store->refused = (struct request_queue){0};
    while ((request = request_queue_take(&refused)) != NULL) {
        error_set(&error, STATUS_ABORTED, "%s", request->refusal);
        request_end(request, request->refused, &error);
    }
}

/* ---- the interface ---- */

static void
store_txn_of(struct store *store, struct store_request *request)
{
    etcd_store_txn(etcd_store_of(store), request);
}

/* The keys are gone with the lease, or will be. */
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

static bool
store_leader_of(const struct store *base, char id[STORE_ID_BYTES_MAX + 1])
{
    const struct etcd_store *store = (const struct etcd_store *)base;
    const struct candidate *leader = candidates_leader(&store->candidates);
    /* Without a session the candidates are only as recent as etcd's last report. */
    bool is_known =
        leader != NULL && store->session != 0 &&
        id_of(store, RECORD_CANDIDATES, (struct etcd_bytes){leader->key, leader->key_bytes}, id);
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
    claim_destroy(store->candidate);
    loop_timer_destroy(store->whole_timer);
    loop_timer_destroy(store->refused_timer);
    request_queue_drop(&store->refused);
    candidates_fini(&store->candidates);
    table_fini(&store->reported);
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

static void
store_look_of(const struct store *base, struct store_figures *figures)
{
    const struct etcd_store *store = (const struct etcd_store *)base;
    *figures = (struct store_figures){
        .waiting = store->waiting_count, .busy = store->busy_count, .batch_max = store->ops_max};
}

static const struct store_kind etcd_kind = {
    .name = "etcd",
    .close = store_close_of,
    .set_instance = store_set_instance_of,
    .leave = store_leave_of,
    .is_leaving = store_is_leaving_of,
    .txn = store_txn_of,
    .session = store_session_of,
    .leader = store_leader_of,
    .prefix = store_prefix_of,
    .look = store_look_of,
};

/* ---- opening ---- */

static struct store_claim *
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
        .on_trouble = notify_trouble,
        .context = store,
    };
    struct store_claim *claim = claim_create(store->base, &options);
    bytes_fini(&key);
    return claim;
}

static void
set_candidate(struct etcd_store *store)
{
    struct bytes value = {0};
    bytes_put_char(&value, '_');
    bytes_put_text(&value, store->store.instance);
    claim_set_value(store->candidate, value.data, value.used);
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
        .on_trouble = notify_trouble,
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
                         "store etcd: the lease, the timeout or the page is negative");
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
    store->waiting_max = etcd->waiting_max == 0 ? WAITING_MAX : etcd->waiting_max;
    etcd_store_fulls_reported(store);
    bytes_put_text(&store->prefix, etcd->prefix);
    if (store_init(&store->store, &etcd_kind, options, error) != STATUS_OK) {
        bytes_fini(&store->prefix);
        free(store);
        return error->status;
    }
    store->whole_timer = loop_timer_create(base, on_whole_time, store);
    store->refused_timer = loop_timer_create(base, on_refused_time, store);
    store->instance = claim_make(store, RECORD_INSTANCES, "the instance", on_instance_held);
    store->candidate = claim_make(store, RECORD_CANDIDATES, "the latch of", on_candidate_held);
    set_candidate(store);
    if (mirror_open(store, etcd->page_keys, error) != STATUS_OK) {
        store_close_of(&store->store);
        return error->status;
    }
    *opened = &store->store;
    return STATUS_OK;
}
