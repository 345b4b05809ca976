/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts metadata between the user's form and the library's. The library refuses a whole batch
 * for one bad entry, so each is validated here first: some come from a peer, which may write
 * anything.
 */
#include <grpc/slice.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "rpc/internal.h"

/* Keys of one hop's transport; the library makes its own. */
static const char *const transport_keys[] = {
    "connection",
    "content-length",
    "content-type",
    "endpoint-load-metrics-bin",
    "grpc-accept-encoding",
    "grpc-encoding",
    "grpc-internal-encoding-request",
    "grpc-message",
    "grpc-previous-rpc-attempts",
    "grpc-status",
    "grpc-timeout",
    "host",
    "lb-cost-bin",
    "lb-token",
    "te",
    "user-agent",
};

static bool
is_transport_key(const struct wire_span *key)
{
    for (size_t i = 0; i < ARRAY_COUNT(transport_keys); i++)
        if (strlen(transport_keys[i]) == key->bytes &&
            memcmp(transport_keys[i], key->data, key->bytes) == 0)
            return true;
    return false;
}

/* Neither copied nor counted: for use within this file. */
static grpc_slice
borrowed(const struct wire_span *span)
{
    return grpc_slice_from_static_buffer(span->data, span->bytes);
}

bool
rpc_metadata_is_legal(const struct rpc_metadata *entry)
{
    grpc_slice key = borrowed(&entry->key);
    if (entry->key.bytes == 0 || entry->value.bytes > INT32_MAX || !grpc_header_key_is_legal(key) ||
        is_transport_key(&entry->key))
        return false;
    return grpc_is_binary_header(key) || grpc_header_nonbin_value_is_legal(borrowed(&entry->value));
}

static struct wire_span
span_copy(const struct wire_span *span, char **room)
{
    struct wire_span copy = {*room, span->bytes};
    if (span->bytes > 0)
        memcpy(*room, span->data, span->bytes);
    *room += span->bytes;
    return copy;
}

struct rpc_metadata *
rpc_metadata_copy(const struct rpc_metadata *from, size_t count)
{
    size_t bytes = count * sizeof(*from);
    for (size_t i = 0; i < count; i++)
        bytes += from[i].key.bytes + from[i].value.bytes;
    struct rpc_metadata *to = rpc_allocate(1, bytes + 1);
    char *room = (char *)(to + count);
    for (size_t i = 0; i < count; i++)
        to[i] =
            (struct rpc_metadata){span_copy(&from[i].key, &room), span_copy(&from[i].value, &room)};
    return to;
}

/* Short values fit into their slices, so most need no allocation. The library copies keys and takes
 * references to values; both a batch started now and one that waits need us to own them. */
struct rpc_headers
rpc_headers_to_core(const struct rpc_metadata *entries, size_t count)
{
    struct rpc_headers headers = {0};
    if (count == 0)
        return headers;
    headers.items = rpc_allocate(count, sizeof(*headers.items));
    for (size_t i = 0; i < count; i++) {
        if (!rpc_metadata_is_legal(&entries[i]))
            continue;
        grpc_metadata *item = &headers.items[headers.count++];
        item->key = grpc_slice_from_copied_buffer(entries[i].key.data, entries[i].key.bytes);
        item->value = grpc_slice_from_copied_buffer(entries[i].value.data, entries[i].value.bytes);
    }
    return headers;
}

void
rpc_headers_release(struct rpc_headers *headers)
{
    for (size_t i = 0; i < headers->count; i++) {
        grpc_slice_unref(headers->items[i].key);
        grpc_slice_unref(headers->items[i].value);
    }
    free(headers->items);
    *headers = (struct rpc_headers){0};
}

struct wire_span
rpc_span_of(const grpc_slice *slice)
{
    return (struct wire_span){GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice)};
}

static void
entries_fill(struct rpc_metadata *entries, const grpc_metadata_array *array)
{
    for (size_t i = 0; i < array->count; i++)
        entries[i] = (struct rpc_metadata){rpc_span_of(&array->metadata[i].key),
                                           rpc_span_of(&array->metadata[i].value)};
}

void
rpc_headers_from_core(struct rpc_queue *queue, const grpc_metadata_array *first,
                      const grpc_metadata_array *second, const struct rpc_metadata **first_out,
                      const struct rpc_metadata **second_out)
{
    size_t count = first->count + second->count;
    if (count > queue->entry_capacity)
        queue->entries =
            rpc_grow(queue->entries, &queue->entry_capacity, count, sizeof(*queue->entries));
    *first_out = queue->entries;
    *second_out = count > 0 ? queue->entries + first->count : queue->entries;
    if (count == 0)
        return;
    entries_fill(queue->entries, first);
    entries_fill(queue->entries + first->count, second);
}
