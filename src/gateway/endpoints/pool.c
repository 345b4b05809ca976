/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/endpoints/pool.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash_table.h"
#include "base/log.h"
#include "gateway/endpoints/internal.h"
#include "gateway/endpoints/pem_files.h"

enum { WATCH_MS = 1000 };

/* ---- actions ---- */

static void
on_changed(struct endpoint_member *member, enum gateway_state state)
{
    static const char *const names[] = {
        [GATEWAY_FREE] = "freed", [GATEWAY_DOWN] = "down",       [GATEWAY_SUSPECT] = "suspect",
        [GATEWAY_UP] = "up",      [GATEWAY_LEAVING] = "removed",
    };
    bool was_usable = member->state == GATEWAY_UP || member->state == GATEWAY_SUSPECT;
    if (state == GATEWAY_LEAVING || (state == GATEWAY_DOWN && was_usable)) {
        member_forget(member);
        member_forget_loaded(member);
    }
    member->state = state;
    log_info_limited("endpoint_changed endpoint=\"%s\" address=%s state=%s", member->entry.name,
                     member->entry.address, names[state]);
}

static void
destroy_targets(struct endpoint_member *member)
{
    if (member->metrics_target != member->target)
        http_target_destroy(member->metrics_target);
    if (member->grpc_target != member->target)
        http_target_destroy(member->grpc_target);
    http_target_destroy(member->target);
    member->target = member->metrics_target = member->grpc_target = NULL;
}

static void
on_freed(struct endpoint_member *member)
{
    member_forget(member);
    member_forget_loaded(member);
    destroy_targets(member);
    member->is_used = false;
}

static void
on_send(struct endpoint_pool *pool, const struct gateway_action *action,
        const struct endpoint_member *member)
{
    if (pool->journal != NULL)
        journal_add(pool, gateway_look_choice(pool->core, action->request));
    const char *model = pool_target_name(pool, action->target);
    const struct endpoint_send send = {.request = action->request,
                                       .endpoint = member->number,
                                       .target = member->target,
                                       .grpc_target = member->grpc_target,
                                       .address = member->entry.address,
                                       .model = model};
    if (action->request < pool->picker.first)
        pool->handler.on_send(pool->handler.context, &send);
    else
        pool->picker.on_send(pool->picker.context, &send);
}

static void
on_refuse(struct endpoint_pool *pool, const struct gateway_action *action)
{
    if (action->request < pool->picker.first)
        pool->handler.on_refuse(pool->handler.context, action->request, action->refusal);
    else
        pool->picker.on_refuse(pool->picker.context, action->request, action->refusal);
}

/* Carries out all actions but a refusal, which is left for last: its answer may let the next
 * request of its connection in, and so step again. */
static const struct gateway_action *
act(struct endpoint_pool *pool, const struct gateway_action *actions, uint32_t count)
{
    const struct gateway_action *refusal = NULL;
    for (uint32_t i = 0; i < count; i++) {
        struct endpoint_member *member =
            actions[i].kind != GATEWAY_REFUSE ? &pool->members[actions[i].endpoint] : NULL;
        switch (actions[i].kind) {
        case GATEWAY_SEND: on_send(pool, &actions[i], member); break;
        case GATEWAY_REFUSE: refusal = &actions[i]; break;
        case GATEWAY_SCRAPE: member_scrape(member); break;
        case GATEWAY_LOAD: member_load(member, actions[i].adapter); break;
        case GATEWAY_UNLOAD: member_unload(member, actions[i].adapter); break;
        case GATEWAY_CHANGED: on_changed(member, actions[i].state); break;
        case GATEWAY_FREED: on_freed(member); break;
        }
    }
    return refusal;
}

void
endpoint_pool_step(struct endpoint_pool *pool, struct gateway_event *event)
{
    uint32_t count;
    event->now_ms = pool_now_ms();
    const struct gateway_action *actions = gateway_step(pool->core, event, &count);
    const struct gateway_action *refusal = act(pool, actions, count);
    int64_t next_ms = gateway_next_ms(pool->core);
    if (next_ms != INT64_MAX)
        loop_timer_set(pool->tick, (next_ms - event->now_ms) * NS_PER_MS);
    if (refusal != NULL)
        on_refuse(pool, refusal);
}

void
endpoint_pool_attach(struct endpoint_pool *pool, const struct endpoint_pool_picker *picker)
{
    pool->picker = picker != NULL ? *picker : (struct endpoint_pool_picker){.first = UINT32_MAX};
}

uint32_t
endpoint_pool_fallbacks(struct endpoint_pool *pool, uint32_t request, const struct gateway_ask *ask,
                        const char **addresses, uint32_t max)
{
    uint32_t endpoints[GATEWAY_TRIES_MAX];
    CHECK(max <= GATEWAY_TRIES_MAX);
    uint32_t count = gateway_fallbacks(pool->core, request, ask, endpoints, max);
    for (uint32_t i = 0; i < count; i++)
        addresses[i] = pool->members[endpoints[i]].entry.address;
    return count;
}

static void
on_tick(void *context)
{
    endpoint_pool_step(context, &(struct gateway_event){.kind = GATEWAY_TICK});
}

static void
on_scraped(struct endpoint_member *member, const struct gateway_figures *figures)
{
    struct gateway_event event = {.kind = GATEWAY_SCRAPE_FAILED, .endpoint = member->number};
    uint64_t catalogue[GATEWAY_ADAPTERS_MAX];
    if (figures != NULL) {
        event.kind = GATEWAY_SCRAPED;
        event.figures = *figures;
        event.figures.has_catalogue = member_lists(member);
        event.figures.catalogue = catalogue;
        event.figures.catalogue_count =
            model_list_adapters(&member->model_list, figures->base_model, catalogue);
    }
    endpoint_pool_step(member->pool, &event);
}

static void
on_adapted(struct endpoint_member *member, enum gateway_event_kind end)
{
    endpoint_pool_step(member->pool,
                       &(struct gateway_event){.kind = end, .endpoint = member->number});
}

const char *
endpoint_pool_name(const struct endpoint_pool *pool, uint32_t endpoint)
{
    return pool->members[endpoint].entry.name;
}

/* ---- resources: a set with a mistake changes nothing ---- */

/* Replaces the resources before the step, which may send requests by the new routes. */
static void
replace_resources(struct endpoint_pool *pool, struct resource_set *set)
{
    size_t max = (size_t)pool->settings->endpoints_max;
    struct resource_set *old = pool->resources;
    uint64_t *bits = calloc(max, sizeof(*bits));
    CHECK(bits != NULL);
    pool->resources = set;
    for (size_t i = 0; i < max; i++)
        if (pool->members[i].is_used)
            bits[i] = pool_bits(pool, &pool->members[i].entry);
    const struct gateway_routes routes = {.routes = set->routes,
                                          .route_count = set->route_count,
                                          .targets = set->targets,
                                          .target_count = set->target_count,
                                          .open_pools = set->open_pools,
                                          .rollouts = set->rollouts,
                                          .rollout_count = set->rollout_count,
                                          .pools = bits};
    endpoint_pool_step(pool, &(struct gateway_event){.kind = GATEWAY_ROUTED, .routes = &routes});
    resources_free(old);
    free(bits);
}

static uint64_t
stamp(const struct endpoint_pool *pool)
{
    return resources_stamp(pool->settings->resources) * 31 +
           resources_stamp(pool->settings->objectives);
}

static enum status
read_resources(struct endpoint_pool *pool, struct error *error)
{
    const char *const paths[] = {pool->settings->resources, pool->settings->objectives};
    struct resource_set *set;
    pool->resources_stamp = stamp(pool);
    enum status status = pool->store != NULL
                             ? gateway_store_read(pool->store, &set, error)
                             : resources_read(paths, ARRAY_COUNT(paths), &set, error);
    free(pool->resources_mistake);
    pool->resources_mistake = NULL;
    if (status == STATUS_OK) {
        replace_resources(pool, set);
        log_info("resources_read count=%u", set->count);
        return status;
    }
    pool->resources_mistake = strdup(error->text);
    CHECK(pool->resources_mistake != NULL);
    resources_free(set);
    return status;
}

/* A mistake leaves the old ones. */
static void
read_again(struct endpoint_pool *pool)
{
    struct error error = ERROR_NONE;
    if (read_resources(pool, &error) == STATUS_OK) {
        pool->file_reloads++;
        return;
    }
    pool->file_mistakes++;
    log_warn("resources_refused error=\"%s\"", error.text);
}

static void
watch_resources(struct endpoint_pool *pool)
{
    if (pool->has_resources && stamp(pool) != pool->resources_stamp)
        read_again(pool);
}

/* ---- the file ---- */

static bool
is_same_entry(const struct endpoint_entry *a, const struct endpoint_entry *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->address, b->address) == 0 &&
           strcmp(a->metrics_address, b->metrics_address) == 0 &&
           strcmp(a->grpc_address, b->grpc_address) == 0 && a->label == b->label &&
           strcmp(a->tls_name, b->tls_name) == 0 && strcmp(a->labels, b->labels) == 0;
}

/* Creates a target at another port of the endpoint, or the same. */
static enum status
create_target(struct endpoint_member *member, const struct endpoint_entry *entry,
              const char *address, struct http_target **target, struct error *error)
{
    const char *tls_name = entry->tls_name[0] != '\0' ? entry->tls_name : NULL;
    *target = member->target;
    if (*target != NULL && strcmp(address, entry->address) == 0)
        return STATUS_OK;
    *target = NULL;
    return http_target_create(member->pool->client, address, tls_name, target, error);
}

static enum status
create_targets(struct endpoint_member *member, const struct endpoint_entry *entry,
               struct error *error)
{
    enum status status = create_target(member, entry, entry->address, &member->target, error);
    if (status == STATUS_OK)
        status =
            create_target(member, entry, entry->metrics_address, &member->metrics_target, error);
    if (status == STATUS_OK)
        status = create_target(member, entry, entry->grpc_address, &member->grpc_target, error);
    if (status != STATUS_OK)
        destroy_targets(member);
    return status;
}

/* Scrapes say nothing about these. */
static uint32_t
ports_apart(const struct endpoint_member *member)
{
    uint32_t apart = 0;
    apart |= (uint32_t)(strcmp(member->entry.address, member->entry.metrics_address) != 0)
             << GATEWAY_PORT_HTTP;
    apart |= (uint32_t)(strcmp(member->entry.grpc_address, member->entry.metrics_address) != 0)
             << GATEWAY_PORT_GRPC;
    return apart;
}

/* Numbers below `*free_number` are not free. */
static void
add(struct endpoint_pool *pool, const struct endpoint_entry *entry, int64_t *free_number)
{
    struct error error = ERROR_NONE;
    int64_t number = *free_number;
    while (number < pool->settings->endpoints_max && pool->members[number].is_used)
        number++;
    *free_number = number;
    if (number == pool->settings->endpoints_max) { /* some are still leaving */
        pool->is_behind = true;
        return;
    }
    struct endpoint_member *member = &pool->members[number];
    if (create_targets(member, entry, &error) != STATUS_OK) {
        log_warn("endpoint_refused endpoint=\"%s\" error=\"%s\"", entry->name, error.text);
        return;
    }
    member->is_used = member->is_listed = true;
    member->entry = *entry;
    member->state = GATEWAY_FREE;
    if (pool->journal != NULL) /* the number may have been another's */
        memset(&pool->journal->latencies[number], 0, sizeof(pool->journal->latencies[number]));
    endpoint_pool_step(pool, &(struct gateway_event){.kind = GATEWAY_ADDED,
                                                     .endpoint = member->number,
                                                     .label = entry->label,
                                                     .pools = pool_bits(pool, entry),
                                                     .apart = ports_apart(member),
                                                     .identity = gateway_name_hash(
                                                         entry->address, strlen(entry->address))});
}

/* The entries of the file, and those of nodes in place of their mesh's. */
static uint32_t
list(struct endpoint_pool *pool)
{
    uint32_t max = (uint32_t)pool->settings->endpoints_max;
    uint32_t count = 0;
    for (uint32_t i = 0; i < pool->entry_count && count < max; i++)
        if (pool->entries[i].is_mesh)
            count = gateway_store_expand(pool->store, &pool->entries[i], pool->listed, count, max);
        else
            pool->listed[count++] = pool->entries[i];
    return count;
}

/* A configured endpoint, by its address. */
struct wanted_endpoint {
    struct hash_entry entry;
    const struct endpoint_entry *wanted;
    bool is_there;
};

static struct wanted_endpoint *
wanted_find(const struct hash_table *table, const struct endpoint_entry *entry)
{
    struct hash_entry *at =
        hash_table_first(table, gateway_name_hash(entry->address, strlen(entry->address)));
    while (at != NULL &&
           strcmp(((struct wanted_endpoint *)at)->wanted->address, entry->address) != 0)
        at = hash_table_next(at);
    return (struct wanted_endpoint *)at;
}

/* If several entries have one address, such as those of a mesh that match the same node, the first
 * counts. Returns how many addresses there are. */
static uint32_t
wanted_index(const struct endpoint_pool *pool, uint32_t count, struct wanted_endpoint *items,
             struct hash_table *table)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct endpoint_entry *entry = &pool->wanted[i];
        const struct wanted_endpoint *other = wanted_find(table, entry);
        if (other != NULL) {
            log_warn_limited("endpoint_refused endpoint=\"%s\" error=\"%s has its address\"",
                             entry->name, other->wanted->name);
            continue;
        }
        items[used].wanted = entry;
        hash_table_add(table, &items[used++].entry,
                       gateway_name_hash(entry->address, strlen(entry->address)));
    }
    return used;
}

/* Removes and adds endpoints until they are those that are wanted. */
static void
adjust(struct endpoint_pool *pool, uint32_t count)
{
    struct hash_table table = {.slots = NULL};
    struct wanted_endpoint *items = calloc(count + 1, sizeof(*items));
    int64_t free_number = 0;
    CHECK(items != NULL);
    count = wanted_index(pool, count, items, &table);
    pool->is_behind = false;
    for (int64_t i = 0; i < pool->settings->endpoints_max; i++) {
        struct endpoint_member *member = &pool->members[i];
        if (!member->is_used || !member->is_listed)
            continue;
        struct wanted_endpoint *wanted = wanted_find(&table, &member->entry);
        if (wanted != NULL && is_same_entry(wanted->wanted, &member->entry)) {
            wanted->is_there = true;
            continue;
        }
        member->is_listed = false;
        endpoint_pool_step(
            pool, &(struct gateway_event){.kind = GATEWAY_REMOVED, .endpoint = member->number});
    }
    for (uint32_t i = 0; i < count; i++)
        if (!items[i].is_there)
            add(pool, items[i].wanted, &free_number);
    hash_table_fini(&table);
    free(items);
}

static void
reconcile(struct endpoint_pool *pool)
{
    uint32_t count = 0;
    if (pool->store != NULL && !pool->has_read_store) /* which models are admitted is unknown */
        return;
    uint32_t listed = list(pool);
    endpoint_names_set(pool->names, pool->listed, listed);
    for (uint32_t i = 0; i < listed; i++)
        if (pool->listed[i].host[0] == '\0')
            pool->wanted[count++] = pool->listed[i];
    count = endpoint_names_expand(pool->names, pool->wanted, count,
                                  (uint32_t)pool->settings->endpoints_max);
    adjust(pool, count);
}

static void
on_nodes_changed(void *context)
{
    reconcile(context);
}

static void
on_resources_changed(void *context)
{
    struct endpoint_pool *pool = context;
    read_again(pool);
    gateway_store_report(pool->store, pool->resources, pool->resources_mistake);
    if (pool->resources == NULL || pool->has_read_store)
        return;
    pool->has_read_store = true;
    reconcile(pool);
}

static void
on_names_changed(void *context)
{
    reconcile(context);
}

/* A mistake leaves the old list. */
static enum status
read_file(struct endpoint_pool *pool, struct error *error)
{
    uint32_t max = (uint32_t)pool->settings->endpoints_max;
    struct endpoint_entry *read = calloc(max, sizeof(*read));
    uint32_t count;
    CHECK(read != NULL);
    enum status status = endpoint_file_read(pool->settings->endpoints, &pool->settings->labels, max,
                                            read, &count, error);
    if (status == STATUS_OK)
        status = gateway_store_check_entries(pool->settings, read, count, error);
    if (status != STATUS_OK) {
        free(read);
        return status;
    }
    free(pool->entries);
    pool->entries = read;
    pool->entry_count = count;
    reconcile(pool);
    log_info("endpoints_read path=\"%s\" count=%u", pool->settings->endpoints, count);
    return STATUS_OK;
}

static bool
is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Reads the file again if it changed. One that is gone or wrong changes nothing. */
static void
watch_file(struct endpoint_pool *pool)
{
    struct error error = ERROR_NONE;
    struct stat now;
    if (stat(pool->settings->endpoints, &now) != 0 ||
        (is_same_file(&now, &pool->seen) && !pool->is_behind))
        return;
    pool->seen = now;
    if (read_file(pool, &error) == STATUS_OK) {
        pool->file_reloads++;
        return;
    }
    pool->file_mistakes++;
    log_warn("endpoints_refused error=\"%s\"", error.text);
}

static void
on_watch(void *context)
{
    struct endpoint_pool *pool = context;
    loop_timer_set(pool->watch, (int64_t)WATCH_MS * NS_PER_MS);
    watch_file(pool);
    watch_resources(pool);
}

/* ---- life ---- */

static struct gateway *
core_create(const struct gateway_settings *settings)
{
    struct gateway_config config = {
        .endpoints_max = (uint32_t)settings->endpoints_max,
        .requests_max = (uint32_t)(settings->requests_max + settings_picker_requests(settings)),
        .tries_max = (uint32_t)settings->tries_max,
        .prefix_blocks_max = (uint32_t)settings->prefix_blocks_max,
        .scrape_ms_min = settings->scrape_ms_min,
        .scrape_ms_max = settings->scrape_ms_max,
        .share_window_ms = settings->share_window_ms,
        .keeps_reasons = settings->dashboard[0] != '\0',
        .objective_window_ms = settings->objective_window_ms,
        .scheduler = settings->scheduler,
        .flow_control = settings->flow_control,
    };
    CHECK(getrandom(&config.seed, sizeof(config.seed), 0) == sizeof(config.seed));
    return gateway_create(&config);
}

static enum status
client_create(struct endpoint_pool *pool, struct error *error)
{
    const struct gateway_settings *settings = pool->settings;
    enum status status = pem_files_create(settings->endpoints_certificate, settings->endpoints_key,
                                          settings->endpoints_ca, &pool->pems, error);
    const struct http_tls_source source = {.fetch = pem_files_fetch, .context = pool->pems};
    if (status == STATUS_OK)
        status = http_tls_create_client(&source, &pool->tls, error);
    if (status != STATUS_OK)
        return error_prefix(error, "endpoints_ca, endpoints_certificate, endpoints_key");
    const struct http_client_options options = {
        .idle_max = (uint32_t)settings->idle_connections_max,
        .keep_ns = 30 * NS_PER_S,
        .header_bytes_max = (size_t)settings->header_kib_max << 10,
        .tls = pool->tls};
    pool->client = http_client_create(pool->base, &options);
    return STATUS_OK;
}

enum status
endpoint_pool_create(struct event_base *base, const struct gateway_settings *settings,
                     const struct endpoint_pool_handler *handler, struct endpoint_pool **created,
                     struct error *error)
{
    size_t count = (size_t)settings->endpoints_max;
    struct endpoint_pool *pool = calloc(1, sizeof(*pool));
    CHECK(pool != NULL);
    pool->base = base;
    pool->settings = settings;
    pool->handler = *handler;
    endpoint_pool_attach(pool, NULL);
    pool->core = core_create(settings);
    if (settings->dashboard[0] != '\0')
        pool->journal = journal_create((uint32_t)settings->endpoints_max);
    pool->on_scraped = on_scraped;
    pool->on_adapted = on_adapted;
    pool->tick = loop_timer_create(base, on_tick, pool);
    pool->watch = loop_timer_create(base, on_watch, pool);
    pool->members = calloc(count, sizeof(*pool->members));
    pool->listed = calloc(count, sizeof(*pool->listed));
    pool->wanted = calloc(count, sizeof(*pool->wanted));
    CHECK(pool->members != NULL && pool->listed != NULL && pool->wanted != NULL);
    pool->names = endpoint_names_create(base, settings->dns_ms, on_names_changed, pool);
    for (uint32_t i = 0; i < count; i++) {
        pool->members[i].pool = pool;
        pool->members[i].number = i;
    }
    (void)stat(settings->endpoints, &pool->seen);
    pool->has_resources = settings->resources[0] != '\0' || settings->objectives[0] != '\0';
    enum status status = client_create(pool, error);
    if (status == STATUS_OK && pool->has_resources)
        status = read_resources(pool, error);
    if (status == STATUS_OK && settings->store[0] != '\0')
        status = gateway_store_create(
            base, settings,
            &(struct gateway_store_handler){on_resources_changed, on_nodes_changed, pool},
            &pool->store, error);
    if (status == STATUS_OK)
        status = read_file(pool, error);
    if (status != STATUS_OK) {
        endpoint_pool_destroy(pool);
        return status;
    }
    loop_timer_set(pool->watch, (int64_t)WATCH_MS * NS_PER_MS);
    *created = pool;
    return STATUS_OK;
}

void
endpoint_pool_destroy(struct endpoint_pool *pool)
{
    if (pool == NULL)
        return;
    loop_timer_destroy(pool->tick);
    loop_timer_destroy(pool->watch);
    endpoint_names_destroy(pool->names);
    gateway_store_destroy(pool->store);
    for (int64_t i = 0; i < pool->settings->endpoints_max; i++) {
        struct endpoint_member *member = &pool->members[i];
        if (!member->is_used)
            continue;
        if (member->scrape != NULL)
            http_call_cancel(member->scrape);
        if (member->adapting != NULL)
            http_call_cancel(member->adapting);
        free(member->adapter_name);
        bytes_fini(&member->adapt_body);
        member->scrape_waits = false;
        on_freed(member);
    }
    http_client_destroy(pool->client);
    http_tls_destroy(pool->tls);
    pem_files_destroy(pool->pems);
    gateway_destroy(pool->core);
    free(pool->journal);
    resources_free(pool->resources);
    free(pool->resources_mistake);
    free(pool->members);
    free(pool->entries);
    free(pool->listed);
    free(pool->wanted);
    free(pool);
}
