/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mirror:
 *
 *   1. It lists all ranges in pages as of one revision, which the first page fixes, then watches
 *      from the next revision. No change in between is missed or repeated.
 *   2. If that revision is compacted before the last page, the listing starts again.
 *   3. When a watch ends (history compacted, etcd emptied), a listing follows. It reports only
 *      differences, deleted keys last.
 *   4. When revisions went back everywhere, equal revisions mean nothing: every key is reported.
 *   5. A failed page is requested again after a pause; only its owner ends a mirror. An oversized
 *      page is halved, and pages then grow again slowly. No page asks for more keys than would fill
 *      PAGE_BYTES if they were as long as those of the page before.
 *   6. A listing that failed, or was soon useless, is followed by a growing pause.
 *   7. etcd may return without its data and have written more than before until we ask: revisions
 *      then look as if nothing had happened. So a resumed watch is checked: one reported key must
 *      have had its reported content at its reported revision. Otherwise rule 4.
 *   8. A callback may close the mirror: it is freed when the mirror's code has returned.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "loop/timer.h"
#include "mesh/etcd/client.h"
#include "mesh/etcd/index.h"
#include "mesh/etcd/request.h"

/* For each page etcd counts all keys behind it, so few pages are cheap. A page is held completely
 * in etcd's memory, and several times in ours. */
enum { PAGE_KEYS = 4096, PAGE_BYTES = 4 << 20, PAUSE_DOUBLINGS_MAX = 16 };

#define PAGE_PAUSE_NS (500LL * NS_PER_MS)

/* The purpose of the timer. */
enum mirror_wait { WAIT_LIST, WAIT_PAGE, WAIT_CHECK };

struct etcd_mirror {
    struct etcd *etcd;
    struct etcd_mirror_options options;
    struct etcd_range ranges[ETCD_RANGES_MAX];
    int64_t revisions[ETCD_RANGES_MAX]; /* up to which the range has been reported */
    struct etcd_index index;
    struct loop_timer *timer;
    enum mirror_wait wait;
    struct etcd_call *call; /* for a page or for the witness */
    struct etcd_watch *watch;
    struct etcd_index_entry *last; /* last reported; NULL: gone */

    /* Rule 7, as of the end of the watch: later events prove nothing. */
    struct etcd_range witness; /* no key: there was none */
    int64_t witness_mod_revision;
    int64_t witness_revision; /* as reported for its range */

    uint32_t listing;          /* current listing's number */
    size_t range_index;        /* being listed */
    struct etcd_range rest;    /* of that range, still to be listed */
    int64_t page_keys;         /* for the listing's pages */
    int64_t revision;          /* of the listing; 0: its first page is pending */
    uint64_t history;          /* of the listing */
    uint64_t history_reported; /* of the index's content */
    bool synced;
    uint32_t relists; /* in a row, without an event in between */
    bool in_trouble;  /* since the last on_synced */
    uint32_t depth;   /* nesting of callbacks */
    bool closed;
};

static void list_begin(struct etcd_mirror *mirror);
static void list_again(struct etcd_mirror *mirror);
static void page_ask(struct etcd_mirror *mirror);

/* ---- waiting ---- */

static void
pause_before(struct etcd_mirror *mirror, enum mirror_wait wait, int64_t pause_ns)
{
    mirror->wait = wait;
    loop_timer_set(mirror->timer, etcd_endpoints_jitter(&mirror->etcd->endpoints, pause_ns));
}

/* Has no request out and none due. */
static void
stop_asking(struct etcd_mirror *mirror)
{
    if (mirror->call != NULL)
        etcd_cancel(mirror->call);
    mirror->call = NULL;
    loop_timer_clear(mirror->timer);
}

/* ---- life ---- */

static void
mirror_free(struct etcd_mirror *mirror)
{
    for (size_t i = 0; i < mirror->options.range_count; i++)
        etcd_range_free(&mirror->ranges[i]);
    etcd_range_free(&mirror->rest);
    etcd_range_free(&mirror->witness);
    etcd_index_fini(&mirror->index);
    free(mirror);
}

void
etcd_mirror_close(struct etcd_mirror *mirror)
{
    CHECK(!mirror->closed);
    stop_asking(mirror);
    if (mirror->watch != NULL)
        etcd_watch_close(mirror->watch);
    loop_timer_destroy(mirror->timer);
    mirror->etcd->users--;
    mirror->closed = true;
    if (mirror->depth == 0)
        mirror_free(mirror);
}

static void
enter(struct etcd_mirror *mirror)
{
    mirror->depth++;
}

static void
leave(struct etcd_mirror *mirror)
{
    CHECK(mirror->depth > 0);
    if (--mirror->depth == 0 && mirror->closed)
        mirror_free(mirror);
}

int64_t
etcd_mirror_revision(const struct etcd_mirror *mirror)
{
    int64_t least = mirror->synced ? INT64_MAX : 0;
    for (size_t i = 0; i < mirror->options.range_count; i++)
        if (mirror->revisions[i] < least)
            least = mirror->revisions[i];
    return least;
}

size_t
etcd_mirror_keys(const struct etcd_mirror *mirror)
{
    return mirror->index.all.count;
}

int64_t
etcd_mirror_reported(const struct etcd_mirror *mirror, struct etcd_bytes key)
{
    const struct etcd_index_entry *entry = etcd_index_find(&mirror->index, key);
    return entry == NULL ? 0 : entry->mod_revision;
}

/* ---- reports ---- */

static void
notify_trouble(struct etcd_mirror *mirror, const struct error *error)
{
    mirror->in_trouble = true;
    if (mirror->options.on_trouble != NULL)
        mirror->options.on_trouble(mirror->options.context, error);
}

static void
notify_synced(struct etcd_mirror *mirror)
{
    mirror->in_trouble = false;
    mirror->options.on_synced(mirror->options.context, etcd_mirror_revision(mirror));
}

static void
notify_put(struct etcd_mirror *mirror, size_t range_index, const struct etcd_kv *kv)
{
    CHECK(!mirror->closed && range_index < mirror->options.range_count);
    struct etcd_index_entry *entry = etcd_index_add(&mirror->index, kv->key);
    bool is_new = entry->mod_revision == 0;
    bool same_history = mirror->history == mirror->history_reported;
    bool known = !is_new && same_history && kv->mod_revision <= entry->mod_revision;
    entry->listing = mirror->listing;
    entry->range_index = (uint32_t)range_index;
    if (known)
        return;
    entry->mod_revision = kv->mod_revision;
    mirror->last = entry;
    mirror->options.on_put(mirror->options.context, range_index, kv);
}

static void
notify_delete(struct etcd_mirror *mirror, struct etcd_index_entry *entry, int64_t revision)
{
    struct etcd_kv kv = {.key = {entry->key, entry->key_bytes}, .mod_revision = revision};
    etcd_index_remove(&mirror->index, entry);
    if (mirror->last == entry)
        mirror->last = NULL;
    mirror->options.on_delete(mirror->options.context, entry->range_index, &kv);
    free(entry);
}

/* ---- watching ---- */

static void
on_events(void *context, size_t range_index, const struct etcd_event *events, size_t count)
{
    struct etcd_mirror *mirror = context;
    enter(mirror);
    mirror->relists = 0;
    for (size_t i = 0; i < count && !mirror->closed; i++) {
        const struct etcd_kv *kv = &events[i].kv;
        /* before the last one is reported: from then on the mirror claims to be complete */
        if (i + 1 == count)
            mirror->revisions[range_index] = kv->mod_revision;
        if (events[i].kind == ETCD_EVENT_PUT) {
            notify_put(mirror, range_index, kv);
            continue;
        }
        struct etcd_index_entry *entry = etcd_index_find(&mirror->index, kv->key);
        if (entry != NULL && entry->mod_revision < kv->mod_revision)
            notify_delete(mirror, entry, kv->mod_revision);
    }
    leave(mirror);
}

static void
on_progress(void *context, size_t range_index, int64_t revision)
{
    struct etcd_mirror *mirror = context;
    mirror->relists = 0;
    if (revision > mirror->revisions[range_index])
        mirror->revisions[range_index] = revision;
}

static void
watch_stop(struct etcd_mirror *mirror)
{
    stop_asking(mirror);
    etcd_watch_close(mirror->watch);
    mirror->watch = NULL;
}

static void
witness_take(struct etcd_mirror *mirror)
{
    const struct etcd_index_entry *entry = mirror->last;
    if (entry == NULL) /* any entry will do */
        entry = etcd_index_walk(&mirror->index, NULL);
    etcd_range_free(&mirror->witness);
    if (entry == NULL)
        return;
    mirror->witness = etcd_range_copy(&(struct etcd_range){.key = {entry->key, entry->key_bytes}});
    mirror->witness_mod_revision = entry->mod_revision;
    mirror->witness_revision = mirror->revisions[entry->range_index];
}

static void
on_checked(void *context, const struct etcd_answer *answer)
{
    struct etcd_mirror *mirror = context;
    mirror->call = NULL;
    enter(mirror);
    if (answer->fate == ETCD_DONE) {
        const struct etcd_response *found = &answer->responses[0];
        if (found->kv_count == 1 && found->kvs[0].mod_revision == mirror->witness_mod_revision) {
            notify_synced(mirror);
        } else {
            etcd_history_lost(mirror->etcd);
            watch_stop(mirror);
            list_again(mirror);
        }
    } else if (answer->error.status == STATUS_OUT_OF_RANGE) { /* compacted */
        watch_stop(mirror);
        list_again(mirror);
    } else {
        pause_before(mirror, WAIT_CHECK, PAGE_PAUSE_NS);
        notify_trouble(mirror, &answer->error);
    }
    leave(mirror);
}

static void
check(struct etcd_mirror *mirror)
{
    struct etcd_op op = {
        .kind = ETCD_RANGE,
        .range = mirror->witness,
        .revision = mirror->witness_revision,
        .content = ETCD_KEYS_ONLY,
    };
    mirror->call = etcd_op(mirror->etcd, &op, (struct etcd_reply){on_checked, mirror, 0});
}

static void
on_watch_open(void *context)
{
    struct etcd_mirror *mirror = context;
    if (!mirror->in_trouble)
        return;
    if (mirror->witness.key.data != NULL) {
        check(mirror);
        return;
    }
    watch_stop(mirror); /* nothing was reported: listing costs no more than checking */
    list_again(mirror);
}

static void
on_watch_trouble(void *context, const struct error *error)
{
    struct etcd_mirror *mirror = context;
    enter(mirror);
    stop_asking(mirror);
    if (!mirror->in_trouble)
        witness_take(mirror);
    notify_trouble(mirror, error);
    leave(mirror);
}

static void
on_watch_end(void *context, enum etcd_watch_end end, const struct error *error)
{
    struct etcd_mirror *mirror = context;
    enter(mirror);
    watch_stop(mirror);
    notify_trouble(mirror, error);
    if (!mirror->closed && end == ETCD_WATCH_REFUSED)
        pause_before(mirror, WAIT_LIST, PAGE_PAUSE_NS);
    else if (!mirror->closed)
        list_again(mirror);
    leave(mirror);
}

static void
watch_begin(struct etcd_mirror *mirror)
{
    struct etcd_watch_options options = {
        .ranges = mirror->ranges,
        .range_count = mirror->options.range_count,
        .revision = mirror->revision + 1,
        .progress_ns = mirror->options.progress_ns,
        .on_events = on_events,
        .on_progress = on_progress,
        .on_open = on_watch_open,
        .on_trouble = on_watch_trouble,
        .on_end = on_watch_end,
        .context = mirror,
    };
    struct error error = ERROR_NONE;
    CHECK(mirror->watch == NULL && mirror->revision > 0); /* rule 1 */
    CHECK(etcd_watch_open(mirror->etcd, &options, &mirror->watch, &error) == STATUS_OK);
}

/* ---- listing ---- */

static void
list_end(struct etcd_mirror *mirror)
{
    struct etcd_index_entry *entry = etcd_index_walk(&mirror->index, NULL), *next;
    mirror->history_reported = mirror->history;
    for (; entry != NULL; entry = next) {
        next = etcd_index_walk(&mirror->index, entry);
        if (entry->listing != mirror->listing)
            notify_delete(mirror, entry, 0);
        if (mirror->closed)
            return;
    }
    for (size_t i = 0; i < mirror->options.range_count; i++)
        mirror->revisions[i] = mirror->revision;
    mirror->synced = true;
    watch_begin(mirror);
    notify_synced(mirror);
}

static void
next_range(struct etcd_mirror *mirror)
{
    etcd_range_free(&mirror->rest);
    mirror->range_index++;
    if (mirror->range_index == mirror->options.range_count) {
        list_end(mirror);
        return;
    }
    mirror->rest = etcd_range_copy(&mirror->ranges[mirror->range_index]);
    page_ask(mirror);
}

/* Rule 5: the size of the next page, by this one's content. */
static void
page_resize(struct etcd_mirror *mirror, const struct etcd_response *page)
{
    size_t bytes = page->kv_count;
    for (size_t i = 0; i < page->kv_count; i++)
        bytes += page->kvs[i].key.bytes + page->kvs[i].value.bytes;
    int64_t most = (int64_t)(PAGE_BYTES * page->kv_count / bytes);
    if (most > mirror->options.page_keys)
        most = mirror->options.page_keys;
    mirror->page_keys += mirror->page_keys / 8 + 1;
    if (mirror->page_keys > most)
        mirror->page_keys = most > 0 ? most : 1;
}

static void
page_take(struct etcd_mirror *mirror, const struct etcd_answer *answer)
{
    const struct etcd_response *page = &answer->responses[0];
    if (mirror->revision == 0) {
        mirror->revision = answer->revision;
        mirror->history = answer->history;
    }
    if (mirror->history != answer->history) {
        list_begin(mirror);
        return;
    }
    for (size_t i = 0; i < page->kv_count && !mirror->closed; i++)
        notify_put(mirror, mirror->range_index, &page->kvs[i]);
    if (mirror->closed)
        return;
    if (!page->more || page->kv_count == 0) {
        next_range(mirror);
        return;
    }
    page_resize(mirror, page);
    struct etcd_range rest =
        etcd_range_rest(&mirror->ranges[mirror->range_index], page->kvs[page->kv_count - 1].key);
    etcd_range_free(&mirror->rest);
    mirror->rest = rest;
    page_ask(mirror);
}

static void
on_page(void *context, const struct etcd_answer *answer)
{
    struct etcd_mirror *mirror = context;
    mirror->call = NULL;
    enter(mirror);
    if (answer->fate == ETCD_DONE) {
        page_take(mirror, answer);
    } else if (answer->error.status == STATUS_OUT_OF_RANGE && mirror->revision != 0) {
        list_again(mirror); /* compacted, or no longer there */
    } else if (answer->error.status == STATUS_RESOURCE_EXHAUSTED && mirror->page_keys > 1) {
        mirror->page_keys /= 2;
        page_ask(mirror);
    } else {
        pause_before(mirror, WAIT_PAGE, PAGE_PAUSE_NS);
        notify_trouble(mirror, &answer->error);
    }
    leave(mirror);
}

static void
page_ask(struct etcd_mirror *mirror)
{
    struct etcd_op op = {
        .kind = ETCD_RANGE,
        .range = mirror->rest,
        .limit = mirror->page_keys,
        .revision = mirror->revision,
    };
    mirror->call = etcd_op(mirror->etcd, &op, (struct etcd_reply){on_page, mirror, 0});
}

static void
list_begin(struct etcd_mirror *mirror)
{
    mirror->etcd->figures.lists++;
    mirror->listing++;
    mirror->range_index = 0;
    mirror->page_keys = mirror->options.page_keys;
    mirror->revision = 0;
    etcd_range_free(&mirror->rest);
    mirror->rest = etcd_range_copy(&mirror->ranges[0]);
    page_ask(mirror);
}

/* Lists at once the first time. If history is compacted faster than we list, the listing would
 * repeat without end. */
static void
list_again(struct etcd_mirror *mirror)
{
    int64_t pause_ns = mirror->relists == 0 ? 0 : PAGE_PAUSE_NS << (mirror->relists - 1);
    if (pause_ns > mirror->etcd->endpoints.pause_ns_max)
        pause_ns = mirror->etcd->endpoints.pause_ns_max;
    if (mirror->relists < PAUSE_DOUBLINGS_MAX)
        mirror->relists++;
    pause_before(mirror, WAIT_LIST, pause_ns);
}

static void
on_time(void *context)
{
    struct etcd_mirror *mirror = context;
    switch (mirror->wait) {
    case WAIT_LIST: list_begin(mirror); break;
    case WAIT_PAGE: page_ask(mirror); break;
    case WAIT_CHECK: check(mirror); break;
    }
}

enum status
etcd_mirror_open(struct etcd *etcd, const struct etcd_mirror_options *options,
                 struct etcd_mirror **opened, struct error *error)
{
    if (etcd_ranges_check(options->ranges, options->range_count, error) != STATUS_OK)
        return error->status;
    if (options->page_keys < 0 || options->progress_ns < 0 ||
        options->progress_ns > ETCD_TIME_NS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "etcd: a mirror's page or time is negative or longer than a year");
    struct etcd_mirror *mirror = calloc(1, sizeof(*mirror));
    CHECK(mirror != NULL);
    mirror->etcd = etcd;
    mirror->options = *options;
    mirror->options.ranges = NULL;
    if (options->page_keys == 0)
        mirror->options.page_keys = PAGE_KEYS;
    for (size_t i = 0; i < options->range_count; i++)
        mirror->ranges[i] = etcd_range_copy(&options->ranges[i]);
    mirror->index.seed = etcd->endpoints.random;
    mirror->timer = loop_timer_create(etcd->base, on_time, mirror);
    etcd->users++;
    list_begin(mirror);
    *opened = mirror;
    return STATUS_OK;
}
