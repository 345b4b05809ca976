/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of the mesh, of which host and labels are kept: their figures are scraped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "gateway/store/internal.h"
#include "mesh/record/record.h"

/* A part of the endpoint's name, which metrics and the log put between quotes. */
static bool
is_plain(const char *id)
{
    for (; *id != '\0'; id++)
        if ((unsigned char)*id < ' ' || *id == '"' || *id == '\\')
            return false;
    return true;
}

/* "HOST\n,label,label,"; NULL: it drains, or is no node of ours. */
static char *
text_of(const struct record_instance *record)
{
    const char *address = record->address;
    const char *labels = record->instance.labels;
    const char *colon = strrchr(address, ':');
    bool is_six = address[0] == '[';
    char *text = NULL;
    if (record->instance.draining || !is_plain(record->instance.id) || colon == NULL ||
        colon - address < 1 + 2 * is_six)
        return NULL;
    int bytes = (int)(colon - address) - 2 * is_six;
    CHECK(asprintf(&text, "%.*s\n,%s%s", bytes, address + is_six, labels,
                   labels[0] != '\0' ? "," : "") >= 0);
    return text;
}

bool
store_node_take(struct gateway_store *store, struct store_item *node, const struct etcd_kv *kv)
{
    struct error error = ERROR_NONE;
    struct record_instance *record = NULL;
    const struct record_source source = {.id = node->id,
                                         .value = kv->value.data,
                                         .bytes = kv->value.bytes,
                                         .create_revision = (uint64_t)kv->create_revision,
                                         .revision = (uint64_t)kv->mod_revision};
    if (record_instance_read(&source, 0, &record, &error) != STATUS_OK) {
        store->counts.skipped++;
        log_warn_limited("gateway_record_skipped id=\"%s\" error=\"%s\"", node->id, error.text);
        return false;
    }
    char *text = text_of(record);
    bool is_same =
        text == NULL || node->value == NULL ? text == node->value : strcmp(text, node->value) == 0;
    free(record);
    free(node->value);
    node->value = text;
    return !is_same;
}

/* Both lists have commas around each label. */
static bool
has_labels(const char *labels, const char *wanted)
{
    for (const char *at = wanted; at[1] != '\0'; at += 1 + strcspn(at + 1, ",")) {
        size_t bytes = 2 + strcspn(at + 1, ",");
        if (memmem(labels, strlen(labels), at, bytes) == NULL)
            return false;
    }
    return true;
}

static bool
make_entry(const struct endpoint_entry *of, const struct store_item *node,
           struct endpoint_entry *entry)
{
    char host[ENDPOINT_HOST_BYTES];
    size_t bytes = strcspn(node->value, "\n");
    *entry = *of;
    entry->is_mesh = false;
    int used = snprintf(entry->name, sizeof(entry->name), "%s@%s", of->name, node->id);
    if (used >= (int)sizeof(entry->name) || bytes >= sizeof(host))
        return false;
    memcpy(host, node->value, bytes);
    host[bytes] = '\0';
    return endpoint_entry_place(entry, host);
}

static int
by_id(const void *a, const void *b)
{
    return strcmp((*(const struct store_item *const *)a)->id,
                  (*(const struct store_item *const *)b)->id);
}

uint32_t
gateway_store_expand(const struct gateway_store *store, const struct endpoint_entry *entry,
                     struct endpoint_entry *entries, uint32_t count, uint32_t max)
{
    struct hash_entry *at = NULL;
    size_t node_count = 0;
    const struct store_item **nodes =
        calloc(store->nodes.count + 1, sizeof(const struct store_item *));
    CHECK(nodes != NULL);
    while ((at = hash_table_walk(&store->nodes, at)) != NULL)
        nodes[node_count++] = (struct store_item *)(void *)at;
    qsort(nodes, node_count, sizeof(const struct store_item *), by_id);
    for (size_t i = 0; i < node_count; i++) {
        const char *value = nodes[i]->value;
        if (value == NULL || !has_labels(strchr(value, '\n') + 1, entry->mesh_labels))
            continue;
        if (count < max && make_entry(entry, nodes[i], &entries[count]))
            count++;
        else
            log_warn_limited("endpoint_refused endpoint=\"%s@%s\" error=\"more than "
                             "endpoints_max, or no address\"",
                             entry->name, nodes[i]->id);
    }
    free(nodes);
    return count;
}
