/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of the Open Inference Protocol: a writer of messages that can write wrong
 * ones too, messages cut into spans of exactly allocated memory (so that AddressSanitizer sees a
 * read past any of them), and a real region to copy tensors into and to read them back from.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"
#include "../test.h"
#include "base/check.h"
#include "coordinator/protocol/oip.h"
#include "coordinator/protocol/oip_request.h"
#include "shm/arena.h"
#include "shm/payload.h"
#include "shm/slot.h"

/* ---- messages ---- */

struct blob {
    unsigned char *bytes;
    size_t used;
    size_t capacity;
};

static inline void
blob_free(struct blob *blob)
{
    free(blob->bytes);
    *blob = (struct blob){0};
}

static inline void
blob_put(struct blob *blob, const void *data, size_t bytes)
{
    if (blob->used + bytes > blob->capacity) {
        blob->capacity = 2 * (blob->used + bytes) + 64;
        blob->bytes = realloc(blob->bytes, blob->capacity);
        CHECK(blob->bytes != NULL);
    }
    if (bytes > 0)
        memcpy(blob->bytes + blob->used, data, bytes);
    blob->used += bytes;
}

static inline void
blob_varint(struct blob *blob, uint64_t value)
{
    unsigned char bytes[WIRE_VARINT_BYTES_MAX];
    blob_put(blob, bytes, wire_put_varint(bytes, value));
}

static inline void
blob_field_varint(struct blob *blob, uint32_t number, uint64_t value)
{
    blob_varint(blob, wire_tag(number, WIRE_VARINT));
    blob_varint(blob, value);
}

static inline void
blob_field_bytes(struct blob *blob, uint32_t number, const void *data, size_t bytes)
{
    blob_varint(blob, wire_tag(number, WIRE_BYTES));
    blob_varint(blob, bytes);
    blob_put(blob, data, bytes);
}

static inline void
blob_field_text(struct blob *blob, uint32_t number, const char *text)
{
    blob_field_bytes(blob, number, text, strlen(text));
}

/* Takes `inner` over. */
static inline void
blob_field_blob(struct blob *blob, uint32_t number, struct blob *inner)
{
    blob_field_bytes(blob, number, inner->bytes, inner->used);
    blob_free(inner);
}

/* ---- spans ---- */

struct spans {
    struct wire_message message;
    struct wire_span *list;
    size_t count;
};

static inline void
spans_add(struct spans *spans, const unsigned char *bytes, size_t count)
{
    unsigned char *copy = malloc(count > 0 ? count : 1);
    CHECK(copy != NULL);
    memcpy(copy, bytes, count);
    spans->list = realloc(spans->list, (spans->count + 1) * sizeof(spans->list[0]));
    CHECK(spans->list != NULL);
    spans->list[spans->count++] = (struct wire_span){copy, count};
    spans->message = (struct wire_message){spans->list, spans->count, spans->message.bytes + count};
}

static inline void
spans_free(struct spans *spans)
{
    for (size_t i = 0; i < spans->count; i++) {
        union {
            const void *in;
            void *out;
        } cast = {.in = spans->list[i].data};
        free(cast.out);
    }
    free(spans->list);
    *spans = (struct spans){0};
}

/* Two spans, the first of `at` bytes; one if `at` is all. */
static inline struct spans
spans_cut(const void *bytes, size_t count, size_t at)
{
    struct spans spans = {0};
    spans_add(&spans, bytes, at);
    if (at < count)
        spans_add(&spans, (const unsigned char *)bytes + at, count - at);
    return spans;
}

static inline struct spans
spans_whole(const struct blob *blob)
{
    static const unsigned char nothing[1];
    return spans_cut(blob->bytes == NULL ? nothing : blob->bytes, blob->used, blob->used);
}

/* ---- random numbers ---- */

static uint64_t random_state;

static inline void
random_init(void)
{
    random_state = random_seed(20260404);
}

static inline uint64_t
random_below(uint64_t limit)
{
    return random_draw(&random_state) % limit;
}

/* Spans of random lengths, some of them empty. */
static inline struct spans
spans_random(const void *bytes, size_t count)
{
    struct spans spans = {0};
    for (size_t at = 0; at < count;) {
        size_t part = random_below(random_below(2) == 0 ? 4 : count + 1);
        if (part > count - at)
            part = count - at;
        spans_add(&spans, (const unsigned char *)bytes + at, part);
        at += part;
    }
    return spans;
}

/* ---- a region with one slot in hand ---- */

enum { RIG_PARTY = 1, RIG_MESSAGE_BYTES = 1 << 20, RIG_ARENA_BYTES = 16 << 20 };

struct payload_rig {
    struct region region;
    struct shm_ticket ticket;
    struct payload_builder builder;
    struct payload_view view;
};

static inline struct payload_rig *
payload_rig_create(void)
{
    struct payload_rig *rig = calloc(1, sizeof(*rig));
    CHECK(rig != NULL);
    struct region_plan plan = {.slot_count = 4, .stage_count = 1, .worker_counts = {1}};
    struct error error = ERROR_NONE;
    if (plan_arena(&plan, RIG_MESSAGE_BYTES, RIG_ARENA_BYTES, &error) != STATUS_OK ||
        region_create(&rig->region, &plan, 1, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_int_equal(slot_acquire(&rig->region, RIG_PARTY, &rig->ticket), RING_OK);
    return rig;
}

static inline void
payload_rig_destroy(struct payload_rig *rig)
{
    region_detach(&rig->region);
    free(rig);
}

static inline void
payload_rig_begin(struct payload_rig *rig)
{
    builder_init(&rig->builder, &rig->region, rig->ticket.index, RIG_PARTY, NULL, NULL);
}

/* Seals the payload and reads it into rig->view. */
static inline void
payload_rig_seal(struct payload_rig *rig)
{
    struct shm_payload payload;
    struct error error = ERROR_NONE;
    if (builder_seal(&rig->builder, &payload, &error) != STATUS_OK ||
        payload_read(&rig->region, &payload, &rig->view, &error) != STATUS_OK)
        fail_msg("%s", error.text);
}

/* Gives the blocks back; the view is void. */
static inline void
payload_rig_end(struct payload_rig *rig)
{
    struct shm_payload nothing = {0};
    builder_abandon(&rig->builder, &nothing);
    assert_int_equal(arena_used(&rig->region, -1), 0);
}

/* Copies a decoded request and reads it back into rig->view. The caller ends the rig's payload. */
static inline enum status
payload_rig_copy(struct payload_rig *rig, struct oip_request *request,
                 const struct wire_message *message, struct error *error)
{
    payload_rig_begin(rig);
    enum status status = builder_reserve(&rig->builder, oip_tensor_bytes(request), error);
    if (status == STATUS_OK)
        status = oip_copy_tensors(request, message, &rig->builder, error);
    if (status == STATUS_OK)
        payload_rig_seal(rig);
    else
        payload_rig_end(rig);
    return status;
}

static inline enum status
payload_rig_decode(struct payload_rig *rig, struct oip_request *request,
                   const struct wire_message *message, struct error *error)
{
    enum status status = oip_decode(request, message, error);
    return status == STATUS_OK ? payload_rig_copy(rig, request, message, error) : status;
}

/* All that a stage would see, as one run of bytes to compare. */
static inline struct blob
payload_rig_bytes(const struct payload_rig *rig)
{
    struct blob all = {0};
    for (uint32_t i = 0; i < rig->view.tensor_count; i++) {
        const struct shoal_tensor *tensor = &rig->view.tensors[i];
        blob_put(&all, tensor->name, strlen(tensor->name) + 1);
        blob_put(&all, &tensor->datatype, sizeof(tensor->datatype));
        blob_put(&all, &tensor->rank, sizeof(tensor->rank));
        blob_put(&all, tensor->shape, tensor->rank * sizeof(tensor->shape[0]));
        blob_put(&all, &tensor->bytes, sizeof(tensor->bytes));
        blob_put(&all, tensor->data, tensor->bytes);
    }
    blob_put(&all, &rig->view.payload.parameter_count, sizeof(uint16_t));
    return all;
}
