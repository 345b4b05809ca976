/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a call of a mesh: metadata, and a message in which the data-plane configuration
 * looks for an id. A call must name the same as a plain reading of the rules: the same
 * ids, in their order and each as often, or a refusal where that refuses, in the promised words.
 * Nothing of it is passed on with the call but the id that is meant: in metadata the caller's own
 * end here, and where a runtime wants the id in the message, each of several is found there.
 *
 * The first bytes: depth and numbers of the path, and what it leads to; length of the spans; number
 * of entries. Each entry: key, length (from LONG_FROM on of 32 bytes each), value. The rest is the
 * message. ctest: libs=jansson
 */
#include <grpc/slice.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/entry/inbound.h"
#include "coordinator/mesh/mesh_id.h"
#include "mesh/edge/external_state.h"
#include "rpc/internal.h"
#include "spans.h"

enum { HEAD_BYTES = 3, ENTRIES_MAX = 80, DEPTH_MAX = 3, INJECTED_MAX = 3, LONG_FROM = 220 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct key {
    const char *text;
    bool is_passed_on;
} keys[] = {
    {"mm-model-id", false},
    {"mm-model-id-bin", false},
    {"mm-vmodel-id", false},
    {"tas-model-id", false},
    {"mm-vmodel-id-bin", false},
    {"mm-model-id-", false},
    {"mm-model-i", false},
    {"mm-required", false},
    {"mm-", false},
    {"grpc-x", false},
    {"tas-model-id-bin", true},
    {"model-id", true},
    {"tas-model-i", true},
    {"m", true},
    {"x-key", true},
};

struct entry {
    const struct key *key;
    uint8_t *value; /* exactly so long, so that AddressSanitizer sees a read past the end */
    size_t bytes;
};

/* The call as it came, and as the library gives it. */
struct given {
    struct entry entries[ENTRIES_MAX];
    uint32_t count;
    grpc_metadata items[ENTRIES_MAX];
    struct rpc_call call;
};

static bool
metadata(const void *call, const char *key, size_t *position, struct wire_span *value)
{
    return rpc_call_metadata_next(call, key, position, value);
}

static const struct inbound_type given_type = {.metadata = metadata};

/* Returns the bytes that it has used. */
static size_t
given_init(struct given *given, const uint8_t *data, size_t size, uint32_t wanted)
{
    size_t at = 0;
    memset(&given->call, 0, sizeof(given->call));
    given->count = 0;
    while (given->count < wanted && at + 2 <= size) {
        struct entry *entry = &given->entries[given->count];
        entry->key = &keys[data[at] % ARRAY_COUNT(keys)];
        size_t bytes = data[at + 1] < LONG_FROM ? data[at + 1] : (data[at + 1] - LONG_FROM) * 32;
        entry->bytes = bytes <= size - at - 2 ? bytes : size - at - 2;
        entry->value = malloc(entry->bytes);
        CHECK(entry->value != NULL || entry->bytes == 0);
        if (entry->bytes > 0)
            memcpy(entry->value, data + at + 2, entry->bytes);
        at += 2 + entry->bytes;
        given->items[given->count++] = (grpc_metadata){
            .key = grpc_slice_from_static_string(entry->key->text),
            .value = grpc_slice_from_static_buffer(entry->value, entry->bytes),
        };
    }
    given->call.metadata = (grpc_metadata_array){given->count, ENTRIES_MAX, given->items};
    return at;
}

static void
given_fini(struct given *given)
{
    for (uint32_t i = 0; i < given->count; i++)
        free(given->entries[i].value);
}

/* ---- the plain reading ---- */

struct reading {
    enum status status;
    const char *text; /* of a refusal; NULL: some */
    enum runner_name name;
    uint32_t count;
    const struct entry *ids[ENTRIES_MAX];
};

static uint32_t
collect(const struct given *given, const char *key, const struct entry *ids[ENTRIES_MAX])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < given->count; i++)
        if (strcmp(given->entries[i].key->text, key) == 0)
            ids[count++] = &given->entries[i];
    return count;
}

static bool
is_id(const void *text, size_t bytes)
{
    json_t *json = json_stringn(text, bytes); /* NULL: not UTF-8 */
    json_decref(json);
    return json != NULL && bytes > 0 && bytes <= TARGET_ID_BYTES_MAX &&
           memchr(text, 0, bytes) == NULL;
}

/* The ids of `name`, of the form that is not -bin if there are any. */
static struct reading
read_name(const struct given *given, enum runner_name name)
{
    bool is_model = name == RUNNER_NAME_MODEL;
    struct reading reading = {.name = name};
    reading.count = collect(given, is_model ? "mm-model-id" : "mm-vmodel-id", reading.ids);
    if (reading.count == 0)
        reading.count =
            collect(given, is_model ? "mm-model-id-bin" : "mm-vmodel-id-bin", reading.ids);
    return reading;
}

static void
judge(struct reading *reading)
{
    for (uint32_t i = 0; i < reading->count; i++) {
        const struct entry *id = reading->ids[i];
        if (i < MESH_IDS_MAX && is_id(id->value, id->bytes))
            continue;
        reading->status = STATUS_INVALID_ARGUMENT;
        if (i < MESH_IDS_MAX && id->bytes == 0)
            reading->text = reading->name == RUNNER_NAME_MODEL
                                ? "provided model-id header must be non-empty"
                                : "provided vmodel-id header must be non-empty";
        return;
    }
}

static struct reading
read_plainly(const struct given *given)
{
    struct reading models = read_name(given, RUNNER_NAME_MODEL);
    struct reading vmodels = read_name(given, RUNNER_NAME_VMODEL);
    if (models.count == 0 && vmodels.count == 0)
        models.count = collect(given, "tas-model-id", models.ids);
    judge(&models);
    judge(&vmodels);
    if (vmodels.count == 0)
        return models;
    if (models.count == 0)
        return vmodels;
    bool is_fine = models.status == STATUS_OK && vmodels.status == STATUS_OK;
    return (struct reading){
        .status = STATUS_INVALID_ARGUMENT,
        .text = is_fine ? "must include only one of model id and vmodel id" : NULL,
    };
}

/* ---- comparisons ---- */

static void
check_refused(const struct error *error, const char *text)
{
    CHECK(error->status == STATUS_INVALID_ARGUMENT && error->text[0] != '\0');
    CHECK(text == NULL || strcmp(error->text, text) == 0);
}

static void
check_same(const struct target_id *id, const void *text, size_t bytes)
{
    CHECK(id->bytes == bytes && bytes <= TARGET_ID_BYTES_MAX);
    CHECK(memcmp(id->text, text, bytes) == 0 && id->text[bytes] == '\0');
}

/* Of what came there is what the plan leaves, in order; returns where it lies. */
static const struct wire_span *
spans_of(const struct external_list *list, const struct id_inject *plan, size_t *bytes)
{
    struct wire_span *spans = malloc(list->count * sizeof(*spans));
    uint64_t at = 0, kept = 0, left = 0;
    CHECK(spans != NULL);
    *bytes = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct rpc_piece *piece = &list->at[i];
        const char *from = piece->data;
        if (piece->kept != NULL) {
            CHECK(piece->offset >= at && piece->bytes > 0);
            at = piece->offset + piece->bytes;
            kept += piece->bytes;
            CHECK(at <= rpc_kept_message(piece->kept)->bytes);
            from = rpc_kept_message(piece->kept)->spans[0].data;
        }
        spans[i] = (struct wire_span){from + piece->offset, piece->bytes};
        *bytes += piece->bytes;
    }
    for (uint32_t i = 0; i < plan->range_count; i++)
        left += plan->ranges[i].to - plan->ranges[i].from;
    CHECK(kept == left);
    return spans;
}

/* The message with the id in it, as a runtime gets it, says that id at the path. */
static void
check_injected(const struct rpc_kept *kept, size_t split, const struct dataplane_rule *rule,
               const char *id)
{
    struct rpc_piece pieces[] = {rpc_kept_piece(kept), rpc_kept_piece(kept)};
    struct external_method method = {.depth = rule->depth};
    struct external_list list;
    struct id_inject plan;
    struct target_id found;
    struct error error = ERROR_NONE;
    memcpy(method.path, rule->numbers, sizeof(method.path));
    pieces[0].bytes = split;
    pieces[1].offset = split;
    pieces[1].bytes -= split;
    const struct external_pieces whole = {pieces, 2};
    CHECK(external_list_make(&list, &method, &whole, id, &plan, &error) == STATUS_OK);
    struct wire_message message = {.span_count = list.count};
    message.spans = spans_of(&list, &plan, &message.bytes);
    CHECK(target_id_of_message(&message, rule->numbers, rule->depth, TARGET_ID_BYTES_MAX, &found,
                               &error) == STATUS_OK);
    check_same(&found, id, strlen(id));
    free((void *)(uintptr_t)message.spans);
    external_list_fini(&list);
}

/* The ids one by one; and the message, in which there is none that counts, for the first of them.
 */
static void
check_ids(struct given *given, const struct mesh_named *named, const struct reading *reading,
          const struct wire_message *message, const struct dataplane_rule *rule)
{
    const struct inbound inbound = {.type = &given_type, .call = &given->call};
    struct target_id id;
    size_t position = 0;
    struct rpc_kept *kept = rpc_message_keep(message);
    CHECK(named->count == reading->count && named->name == reading->name);
    CHECK(rpc_kept_message(kept)->span_count <= 1);
    for (uint32_t i = 0; i < reading->count; i++) {
        const struct entry *entry = reading->ids[i];
        CHECK(strcmp(named->key, entry->key->text) == 0);
        CHECK(mesh_id_next(&inbound, named, &position, &id));
        check_same(&id, entry->value, entry->bytes);
        if (i == 0)
            check_same(&named->id, entry->value, entry->bytes);
        if (rule->depth > 0 && i < INJECTED_MAX)
            check_injected(kept, message->bytes / (i + 1), rule, id.text);
    }
    CHECK(reading->count == 0 || !mesh_id_next(&inbound, named, &position, &id));
    CHECK(reading->count > 0 || named->id.bytes == 0);
    rpc_kept_release(kept);
}

static void
check_passed_on(const struct given *given)
{
    struct rpc_metadata entry;
    size_t position = 0;
    for (uint32_t i = 0; i < given->count; i++) {
        CHECK(rpc_call_metadata_walk(&given->call, &position, &entry));
        CHECK(peers_pass_on(&entry) == given->entries[i].key->is_passed_on);
    }
    CHECK(!rpc_call_metadata_walk(&given->call, &position, &entry));
}

/* True: the message, and not the metadata, has said what is meant, or that it is wrong. */
static bool
check_message(const struct wire_message *message, const struct dataplane_rule *rule,
              enum status status, const struct mesh_named *named, const struct error *error)
{
    struct wire_cursor found;
    struct error reason = ERROR_NONE;
    bool any = false;
    enum status read = rule->depth == 0 ? STATUS_OK
                                        : field_path_find(message, rule->numbers, rule->depth,
                                                          &found, &any, &reason);
    if (read == STATUS_OK && (!any || found.left == 0))
        return false;
    size_t bytes = any ? (size_t)found.left : 0;
    char *text = malloc(bytes + 1);
    CHECK(text != NULL);
    if (read == STATUS_OK)
        wire_read(&found, text, bytes);
    if (read == STATUS_OK && is_id(text, bytes)) {
        CHECK(status == STATUS_OK && named->count == 0 && named->name == rule->name);
        check_same(&named->id, text, bytes);
    } else {
        CHECK(status != STATUS_OK && strstr(error->text, "looking for the model's id") != NULL);
        check_refused(error, NULL);
    }
    free(text);
    return true;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct given given;
    static struct wire_span spans[SPANS_MAX];
    struct mesh_named named;
    struct error error = ERROR_NONE;
    if (size < HEAD_BYTES)
        return 0;
    struct dataplane_rule rule = {
        .depth = data[0] % (DEPTH_MAX + 1),
        .name = data[0] & 0x80 ? RUNNER_NAME_VMODEL : RUNNER_NAME_MODEL,
    };
    for (uint32_t i = 0; i < rule.depth; i++)
        rule.numbers[i] = 1 + (data[0] >> (2 + i) & 1);
    size_t used = HEAD_BYTES + given_init(&given, data + HEAD_BYTES, size - HEAD_BYTES,
                                          data[2] % (ENTRIES_MAX + 1));
    struct wire_message message = cut(data + used, size - used, data[1], spans);
    struct reading reading = read_plainly(&given);
    const struct inbound inbound = {.type = &given_type, .call = &given.call, .message = &message};
    enum status status = mesh_id_find(&inbound, &rule, &named, &error);
    if (!check_message(&message, &rule, status, &named, &error)) {
        CHECK(status == reading.status);
        if (status == STATUS_OK)
            check_ids(&given, &named, &reading, &message, &rule);
        else
            check_refused(&error, reading.text);
    }
    check_passed_on(&given);
    given_fini(&given);
    return 0;
}
