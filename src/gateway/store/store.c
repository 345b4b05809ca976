/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/store/internal.h"
#include "loop/loop.h"
#include "mesh/record/keys.h"
#include "serving/manifest/manifest.h"
#include "serving/manifest/record.h"

enum { LEASE_S = 25, CHANGE_MS = 20, PASSWORD_BYTES_MAX = 1023 };

/* ---- the mirror ---- */

static bool
is_kind_of_gateway(const char *id)
{
    size_t bytes = strcspn(id, "/");
    for (enum manifest_kind kind = 0; kind < MANIFEST_KINDS; kind++)
        if (manifest_is_of_gateway(kind) && strlen(manifest_kind_name(kind)) == bytes &&
            strncmp(id, manifest_kind_name(kind), bytes) == 0)
            return true;
    return false;
}

/* The table that a key belongs to, and its id there; NULL: neither. */
static struct hash_table *
table_of(struct gateway_store *store, struct etcd_bytes key, char id[STORE_ID_BYTES_MAX + 1])
{
    enum record_area area;
    struct record_span span;
    const struct record_span prefix = {store->prefix.data, store->prefix.used};
    if (!record_key_parse(prefix, (struct record_span){key.data, key.bytes}, &area, &span) ||
        span.bytes > STORE_ID_BYTES_MAX || memchr(span.data, '\0', span.bytes) != NULL)
        return NULL;
    memcpy(id, span.data, span.bytes);
    id[span.bytes] = '\0';
    if (area == RECORD_INSTANCES)
        return &store->nodes;
    const char *name = strchr(id, '/');
    if (name == NULL || !is_kind_of_gateway(id))
        return NULL;
    const char *more = strchr(name + 1, '/');
    if (more == NULL)
        return &store->objects;
    bool is_ours = strncmp(more, "/gateway/", 9) == 0 && strcmp(more + 9, store->name) == 0;
    return is_ours ? &store->reports : NULL;
}

static void
keep_value(struct store_item *item, const char *value, size_t bytes)
{
    free(item->value);
    item->value = malloc(bytes + 1);
    CHECK(item->value != NULL);
    memcpy(item->value, value, bytes);
    item->value[bytes] = '\0';
    item->value_bytes = bytes;
}

/* The manifest within the record, by its bytes. False: it is none. */
static bool
take_object(struct store_item *item, const struct etcd_kv *kv)
{
    struct manifest_record record;
    if (kv->value.bytes == 0 || !manifest_record_read(kv->value.data, kv->value.bytes, &record) ||
        record.deleted)
        return false;
    keep_value(item, record.json, record.json_bytes);
    return true;
}

/* The first change sets the time: further ones do not put it off. */
static void
has_changed(struct gateway_store *store, const struct hash_table *table)
{
    bool is_set = store->are_nodes_others || store->are_objects_others;
    store->are_nodes_others = store->are_nodes_others || table == &store->nodes;
    store->are_objects_others = store->are_objects_others || table == &store->objects;
    if (store->is_read && !is_set)
        loop_timer_set(store->change, CHANGE_MS * (int64_t)NS_PER_MS);
}

static void
on_put(void *context, size_t range, const struct etcd_kv *kv)
{
    struct gateway_store *store = context;
    char id[STORE_ID_BYTES_MAX + 1];
    struct hash_table *table = table_of(store, kv->key, id);
    (void)range;
    if (table == NULL)
        return;
    struct store_item *item = store_item_make(table, id);
    if (table == &store->nodes) {
        if (store_node_take(store, item, kv))
            has_changed(store, table);
        return;
    }
    if (table == &store->objects && !take_object(item, kv)) {
        store->counts.skipped++;
        log_warn_limited("gateway_record_skipped id=\"%s\" error=\"it is no manifest\"", id);
        if (item->value == NULL) /* else the former one stays */
            store_item_drop(table, item);
        return;
    }
    if (table == &store->objects)
        store->is_emptied = false;
    item->created = (uint64_t)kv->create_revision;
    item->changed = (uint64_t)kv->mod_revision;
    item->lease_id = kv->lease_id;
    if (table != &store->reports) {
        has_changed(store, table);
        return;
    }
    /* not at once: a gateway with the same name would do so, too */
    keep_value(item, kv->value.data != NULL ? kv->value.data : "", kv->value.bytes);
    loop_timer_set(store->notify, STORE_AGAIN_NS);
}

static void
on_delete(void *context, size_t range, const struct etcd_kv *kv)
{
    struct gateway_store *store = context;
    char id[STORE_ID_BYTES_MAX + 1];
    struct hash_table *table = table_of(store, kv->key, id);
    struct store_item *item = table != NULL ? store_item_find(table, id) : NULL;
    (void)range;
    if (item == NULL)
        return;
    free(item->value);
    item->value = NULL;
    if (item->wanted == NULL && item != store->written)
        store_item_drop(table, item);
    if (table == &store->reports)
        store_notify_begin(store);
    else
        has_changed(store, table);
}

/* An etcd that lost its data takes no resources away. */
static void
on_synced(void *context, int64_t revision)
{
    struct gateway_store *store = context;
    uint64_t histories = etcd_figures(store->etcd)->histories;
    log_info("gateway_store_read revision=%lld objects=%zu", (long long)revision,
             (size_t)store->objects.count);
    store->is_emptied =
        store->objects.count == 0 && (store->is_emptied || histories != store->histories);
    store->histories = histories;
    store->are_objects_others = store->are_objects_others || !store->is_read;
    store->is_read = true;
    loop_timer_set(store->change, 0);
}

static void
on_trouble(void *context, const struct error *error)
{
    struct gateway_store *store = context;
    store->counts.troubles++;
    log_warn_limited("gateway_store_away error=\"%s\" action=\"what was read stays in force\"",
                     error->text);
}

static void
on_change_time(void *context)
{
    struct gateway_store *store = context;
    const struct gateway_store_handler *handler = &store->handler;
    bool are_objects = store->are_objects_others;
    bool are_nodes = store->are_nodes_others;
    store->are_objects_others = store->are_nodes_others = false;
    if (are_objects)
        handler->on_resources(handler->context);
    if (are_nodes)
        handler->on_nodes(handler->context);
}

/* ---- reading ---- */

static int
by_age(const void *a, const void *b)
{
    const struct store_item *one = *(const struct store_item *const *)a;
    const struct store_item *other = *(const struct store_item *const *)b;
    if (one->created != other->created)
        return one->created < other->created ? -1 : 1;
    return strcmp(one->id, other->id);
}

enum status
gateway_store_read(struct gateway_store *store, struct resource_set **set, struct error *error)
{
    size_t max = store->objects.count + 1;
    struct hash_entry *entry = NULL;
    uint32_t count = 0;
    *set = NULL;
    if (store->is_emptied)
        return error_set(error, STATUS_UNAVAILABLE,
                         "etcd has lost its data: the resources stay in force; apply them again");
    const struct store_item **sorted = calloc(max, sizeof(const struct store_item *));
    struct resource_text *texts = calloc(max, sizeof(*texts));
    CHECK(sorted != NULL && texts != NULL);
    while ((entry = hash_table_walk(&store->objects, entry)) != NULL)
        sorted[count++] = (struct store_item *)(void *)entry;
    qsort(sorted, count, sizeof(const struct store_item *), by_age);
    if (count > RESOURCES_MAX + 1) /* one too many is refused: the rest need not be read */
        count = RESOURCES_MAX + 1;
    for (uint32_t i = 0; i < count; i++)
        texts[i] = (struct resource_text){.name = sorted[i]->id,
                                          .text = sorted[i]->value,
                                          .bytes = sorted[i]->value_bytes,
                                          .version = sorted[i]->changed};
    enum status status = resources_read_texts(texts, count, set, error);
    free(texts);
    free(sorted);
    return status;
}

const struct gateway_store_counts *
gateway_store_counts(const struct gateway_store *store)
{
    return &store->counts;
}

/* ---- the lease ---- */

static void session_open(struct gateway_store *store);

static void
on_granted(void *context, int64_t lease_id)
{
    (void)lease_id;
    store_notify_begin(context);
}

static void
on_lost(void *context, const struct error *error)
{
    struct gateway_store *store = context;
    on_trouble(store, error);
    etcd_session_close(store->session);
    session_open(store);
}

static void
session_open(struct gateway_store *store)
{
    const struct etcd_session_options options = {
        .ttl_s = LEASE_S, .on_granted = on_granted, .on_lost = on_lost, .context = store};
    store->session = etcd_session_open(store->etcd, &options);
}

/* ---- life ---- */

/* "etcd:URL,URL". `text` has the URLs, each cut off by a NUL. */
static enum status
read_place(const struct gateway_settings *settings, char text[SETTING_TEXT_BYTES],
           const char *endpoints[ETCD_ENDPOINTS_MAX], size_t *count, struct error *error)
{
    static const char start[] = "etcd:";
    char *rest = NULL;
    *count = 0;
    if (strncmp(settings->store, start, strlen(start)) != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "store: must be etcd:http://host:2379, with commas between several, not "
                         "%.200s",
                         settings->store);
    snprintf(text, SETTING_TEXT_BYTES, "%s", settings->store + strlen(start));
    for (char *at = strtok_r(text, ",", &rest); at != NULL; at = strtok_r(NULL, ",", &rest)) {
        if (*count == ETCD_ENDPOINTS_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT, "store: has more than %d endpoints",
                             ETCD_ENDPOINTS_MAX);
        endpoints[(*count)++] = at;
    }
    return STATUS_OK;
}

/* The first line. */
static enum status
read_password(const char *path, char text[PASSWORD_BYTES_MAX + 1], struct error *error)
{
    text[0] = '\0';
    if (path[0] == '\0')
        return STATUS_OK;
    FILE *in = fopen(path, "re");
    if (in == NULL)
        return error_set_errno(error, "store_password_file %s", path);
    text[fread(text, 1, PASSWORD_BYTES_MAX, in)] = '\0';
    (void)fclose(in);
    text[strcspn(text, "\r\n")] = '\0';
    return STATUS_OK;
}

static const char *
or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

static enum status
open_etcd(struct event_base *base, const struct gateway_settings *settings, struct etcd **etcd,
          struct error *error)
{
    char place[SETTING_TEXT_BYTES];
    char password[PASSWORD_BYTES_MAX + 1];
    const char *endpoints[ETCD_ENDPOINTS_MAX];
    struct etcd_options options = {.endpoints = endpoints,
                                   .user = or_null(settings->store_user),
                                   .ca_file = or_null(settings->store_ca),
                                   .cert_file = or_null(settings->store_certificate),
                                   .key_file = or_null(settings->store_key)};
    enum status status = read_place(settings, place, endpoints, &options.endpoint_count, error);
    if (status == STATUS_OK)
        status = read_password(settings->store_password_file, password, error);
    if (status != STATUS_OK)
        return status;
    options.password = options.user != NULL ? password : NULL;
    CHECK(getrandom(&options.seed, sizeof(options.seed), 0) == sizeof(options.seed));
    status = etcd_create(base, &options, etcd, error);
    explicit_bzero(password, sizeof(password));
    return status == STATUS_OK ? status : error_prefix(error, "store");
}

/* HOST:PORT, so that several of one host differ. */
static void
name_store(struct gateway_store *store)
{
    char host[128] = "";
    const char *colon = strrchr(store->settings->listen, ':');
    (void)gethostname(host, sizeof(host) - 1);
    if (store->settings->name[0] != '\0')
        snprintf(store->name, sizeof(store->name), "%.250s", store->settings->name);
    else
        snprintf(store->name, sizeof(store->name), "%s%.100s", host, colon != NULL ? colon : "");
}

static enum status
open_mirror(struct gateway_store *store, struct error *error)
{
    static const enum record_area areas[] = {RECORD_MANIFESTS, RECORD_INSTANCES};
    struct bytes starts[ARRAY_COUNT(areas)] = {{0}};
    struct etcd_range ranges[ARRAY_COUNT(areas)];
    for (size_t i = 0; i < ARRAY_COUNT(areas); i++) {
        record_area_put(&starts[i], (struct record_span){store->prefix.data, store->prefix.used},
                        areas[i]);
        CHECK(!starts[i].failed);
        ranges[i] =
            (struct etcd_range){.span = ETCD_PREFIX, .key = {starts[i].data, starts[i].used}};
    }
    const struct etcd_mirror_options options = {.ranges = ranges,
                                                .range_count = ARRAY_COUNT(ranges),
                                                .on_put = on_put,
                                                .on_delete = on_delete,
                                                .on_synced = on_synced,
                                                .on_trouble = on_trouble,
                                                .context = store};
    enum status status = etcd_mirror_open(store->etcd, &options, &store->mirror, error);
    for (size_t i = 0; i < ARRAY_COUNT(areas); i++)
        bytes_fini(&starts[i]);
    return status;
}

static enum status
check_settings(const struct gateway_settings *settings, struct error *error)
{
    char place[SETTING_TEXT_BYTES];
    const char *endpoints[ETCD_ENDPOINTS_MAX];
    size_t count;
    if (settings->store[0] == '\0')
        return STATUS_OK;
    if (settings->resources[0] != '\0' || settings->objectives[0] != '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "store: resources come from etcd or from files: remove resources and "
                         "objectives, and apply the files with `shoalctl apply -f`");
    if (strpbrk(settings->name, "/\n") != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "name: must have no / in it");
    return read_place(settings, place, endpoints, &count, error);
}

static enum status
check_files(const struct gateway_settings *settings, struct error *error)
{
    const char *const files[][2] = {{"store_ca", settings->store_ca},
                                    {"store_certificate", settings->store_certificate},
                                    {"store_key", settings->store_key}};
    for (size_t i = 0; i < ARRAY_COUNT(files); i++)
        if (files[i][1][0] != '\0' && access(files[i][1], R_OK) != 0)
            return error_set_errno(error, "%s %s", files[i][0], files[i][1]);
    return STATUS_OK;
}

enum status
gateway_store_check(const struct gateway_settings *settings, struct error *error)
{
    struct loop *loop;
    struct etcd *etcd;
    enum status status = check_settings(settings, error);
    if (status == STATUS_OK)
        status = check_files(settings, error);
    if (status != STATUS_OK || settings->store[0] == '\0')
        return status;
    status = loop_create(&loop, error);
    if (status != STATUS_OK)
        return status;
    status = open_etcd(loop_base(loop), settings, &etcd, error);
    if (status == STATUS_OK)
        etcd_destroy(etcd);
    loop_destroy(loop);
    return status;
}

enum status
gateway_store_check_entries(const struct gateway_settings *settings,
                            const struct endpoint_entry *entries, uint32_t count,
                            struct error *error)
{
    for (uint32_t i = 0; i < count; i++)
        if (entries[i].is_mesh && settings->store[0] == '\0')
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "%s: %s: mesh needs `store` in the gateway's configuration",
                             settings->endpoints, entries[i].name);
    return STATUS_OK;
}

enum status
gateway_store_create(struct event_base *base, const struct gateway_settings *settings,
                     const struct gateway_store_handler *handler, struct gateway_store **created,
                     struct error *error)
{
    struct gateway_store *store = calloc(1, sizeof(*store));
    CHECK(store != NULL);
    store->settings = settings;
    store->handler = *handler;
    store->change = loop_timer_create(base, on_change_time, store);
    store->notify = loop_timer_create(base, store_on_notify_time, store);
    name_store(store);
    enum status status = check_settings(settings, error);
    if (status == STATUS_OK)
        status = record_prefix(settings->store_root, settings->store_prefix,
                               settings->store_service, &store->prefix, error);
    if (status == STATUS_OK)
        status = open_etcd(base, settings, &store->etcd, error);
    if (status == STATUS_OK)
        status = open_mirror(store, error);
    if (status != STATUS_OK) {
        gateway_store_destroy(store);
        return status;
    }
    session_open(store);
    *created = store;
    return STATUS_OK;
}

/* Its reports end with the lease, 25 s later. */
void
gateway_store_destroy(struct gateway_store *store)
{
    if (store == NULL)
        return;
    if (store->writing != NULL)
        etcd_cancel(store->writing);
    if (store->session != NULL)
        etcd_session_close(store->session);
    if (store->mirror != NULL)
        etcd_mirror_close(store->mirror);
    etcd_destroy(store->etcd);
    loop_timer_destroy(store->change);
    loop_timer_destroy(store->notify);
    store_items_free(&store->objects);
    store_items_free(&store->reports);
    store_items_free(&store->nodes);
    bytes_fini(&store->prefix);
    free(store);
}
