/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports: one write at a time, each of the first item that is not as it is to be, until all are.
 * The mirror shows what is there, so a write whose answer is lost is seen or repeated. One under
 * another lease, a former one or that of a gateway with the same name, is as good while it lasts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/log.h"
#include "gateway/store/internal.h"
#include "mesh/record/keys.h"

static bool
is_as_wanted(const struct store_item *item)
{
    if (item->wanted == NULL || item->value == NULL)
        return item->wanted == item->value;
    return item->lease_id != 0 && strcmp(item->wanted, item->value) == 0;
}

static void
on_written(void *context, const struct etcd_answer *answer)
{
    struct gateway_store *store = context;
    struct store_item *item = store->written;
    store->writing = NULL;
    store->written = NULL;
    if (answer->fate != ETCD_DONE) {
        store->counts.troubles++;
        log_warn_limited("gateway_tell_failed id=\"%s\" error=\"%s\"", item->id,
                         answer->error.text);
        free(item->value); /* unknown: written again */
        item->value = item->wanted != NULL ? NULL : strdup("");
        CHECK(item->wanted != NULL || item->value != NULL);
        loop_timer_set(store->notify, STORE_AGAIN_NS);
        return;
    }
    if (item->wanted == NULL && item->value == NULL)
        store_item_drop(&store->reports, item);
    store_notify_begin(store);
}

static void
write_item(struct gateway_store *store, struct store_item *item)
{
    struct bytes key = {0};
    record_key_put(&key, (struct record_span){store->prefix.data, store->prefix.used},
                   RECORD_MANIFESTS, record_text(item->id));
    CHECK(!key.failed);
    const struct etcd_op op = {
        .kind = item->wanted != NULL ? ETCD_PUT : ETCD_DELETE,
        .range = {.span = ETCD_ONE, .key = {key.data, key.used}},
        .value = etcd_text(item->wanted != NULL ? item->wanted : ""),
        .lease_id = item->wanted != NULL ? etcd_session_lease_id(store->session) : 0};
    store->written = item;
    store->writing =
        etcd_op(store->etcd, &op, (struct etcd_reply){.on_answer = on_written, .context = store});
    free(item->value);
    item->value = item->wanted != NULL ? strdup(item->wanted) : NULL;
    CHECK(item->wanted == NULL || item->value != NULL);
    item->lease_id = op.lease_id;
    bytes_fini(&key);
}

void
store_notify_begin(struct gateway_store *store)
{
    struct hash_entry *entry = NULL;
    if (store->writing != NULL || !store->is_read || etcd_session_lease_id(store->session) == 0)
        return;
    while ((entry = hash_table_walk(&store->reports, entry)) != NULL) {
        struct store_item *item = (struct store_item *)(void *)entry;
        if (is_as_wanted(item))
            continue;
        write_item(store, item);
        return;
    }
}

void
store_on_notify_time(void *context)
{
    store_notify_begin(context);
}

/* ---- what is reported ---- */

static const struct resource *
in_force(const struct resource_set *set, const char *id)
{
    for (uint32_t i = 0; set != NULL && i < set->count; i++) {
        const char *kind = resource_kind_name(set->items[i].kind);
        size_t bytes = strlen(kind);
        if (strncmp(id, kind, bytes) == 0 && id[bytes] == '/' &&
            strcmp(id + bytes + 1, set->items[i].name) == 0)
            return &set->items[i];
    }
    return NULL;
}

static void
write_refusal(struct json *json, const char *mistake)
{
    json_field_open(json, "conditions", '[');
    json_open(json, '{');
    json_field_string(json, "type", "Accepted");
    json_field_string(json, "status", "False");
    json_field_string(json, "reason", "Invalid");
    json_field_string(json, "message", mistake);
    json_close(json, '}');
    json_close(json, ']');
}

static char *
report_of(const struct gateway_store *store, const struct store_item *object,
          const struct resource *known, const char *mistake)
{
    struct bytes out = {0};
    bool is_current = known != NULL && known->version == object->changed;
    struct json json = json_begin(&out, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_field_string(&json, "gateway", store->name);
    json_field_uint(&json, "version", is_current ? known->version : object->changed);
    if (is_current)
        resource_write_conditions(known, &json);
    else
        write_refusal(&json, mistake != NULL ? mistake : "it is not in force");
    json_close(&json, '}');
    bytes_put_char(&out, '\0');
    CHECK(!out.failed);
    return bytes_take(&out, &(size_t){0});
}

void
gateway_store_report(struct gateway_store *store, const struct resource_set *set,
                     const char *mistake)
{
    char id[STORE_ID_BYTES_MAX + STORE_NAME_BYTES + 16];
    struct hash_entry *entry = NULL;
    while ((entry = hash_table_walk(&store->reports, entry)) != NULL) {
        struct store_item *item = (struct store_item *)(void *)entry;
        free(item->wanted);
        item->wanted = NULL;
    }
    while ((entry = hash_table_walk(&store->objects, entry)) != NULL) {
        const struct store_item *object = (struct store_item *)(void *)entry;
        snprintf(id, sizeof(id), "%s/gateway/%s", object->id, store->name);
        store_item_make(&store->reports, id)->wanted =
            report_of(store, object, in_force(set, object->id), mistake);
    }
    store_notify_begin(store);
}
