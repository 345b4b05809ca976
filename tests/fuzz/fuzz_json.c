/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a JSON inference request, with binary data after it or not. Accepted JSON goes
 * through the decoder and the arena into an answer, which must be JSON that a library reads; and
 * the answer's outputs, sent as inputs with their binary data, must be accepted and be the same
 * tensors. The first byte says how many bytes at the end are binary. ctest: libs=jansson
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/protocol/oip_json.h"
#include "coordinator/protocol/oip_request.h"
#include "shm/payload.h"
#include "shm/slot.h"
#include "shared.h"

enum { PARTY = 1, MESSAGE_BYTES = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct region region;
static struct shm_ticket ticket;
static struct payload_builder builder;
static struct shared_memory *memory;

/* One way through: what came in as the arena has it, and the answer. */
struct trip {
    struct oip_json *json;
    struct oip_request *request;
    struct shm_payload payload;
    struct payload_view view;
    struct oip_json_answer answer;
    bool built;
};

static struct oip_request *encoded;
static struct trip first;
static struct trip second;

static void
start(void)
{
    struct region_plan plan = {.slot_count = 1, .stage_count = 1, .worker_counts = {1}};
    struct error error = ERROR_NONE;
    CHECK(plan_arena(&plan, MESSAGE_BYTES, 32 << 20, &error) == STATUS_OK);
    CHECK(region_create(&region, &plan, 1, &error) == STATUS_OK);
    CHECK(slot_acquire(&region, PARTY, &ticket) == RING_OK);
    CHECK((encoded = oip_request_create()) != NULL);
    memory = shared_regions();
}

/* Another node comes to the same verdict and the same size. Requests with tensors in shared memory
 * are not sent to others. */
static void
check_encoded(struct oip_request *request, const struct wire_message *elements, enum status wanted)
{
    struct error error = ERROR_NONE;
    if (oip_is_shared(request))
        return;
    CHECK(oip_decode(encoded, oip_pack(request, elements), &error) == wanted);
    CHECK(wanted != STATUS_OK || oip_tensor_bytes(encoded) == oip_tensor_bytes(request));
}

static enum status
way_in(struct trip *trip, const char *body, size_t json_bytes, size_t body_bytes,
       struct error *error)
{
    struct oip_json_ask ask = {"m", "", body, body_bytes, json_bytes, MESSAGE_BYTES, NULL, NULL};
    enum status status = oip_json_read(&ask, &trip->json, error);
    if (status != STATUS_OK)
        return status;
    const struct wire_message *elements = oip_json_elements(trip->json);
    struct oip_request *request = trip->request = oip_json_take_request(trip->json);
    status = oip_validate(request, elements, error);
    check_encoded(request, elements, status);
    if (status == STATUS_OK)
        status = oip_hold_shared(request, memory, error);
    if (status != STATUS_OK)
        return status;
    trip->built = true;
    builder_init(&builder, &region, ticket.index, PARTY, NULL, NULL);
    status = builder_reserve(&builder, oip_tensor_bytes(request), error);
    if (status == STATUS_OK)
        status = oip_copy_tensors(request, elements, &builder, error);
    if (status == STATUS_OK)
        status = builder_seal(&builder, &trip->payload, error);
    if (status == STATUS_OK)
        CHECK(payload_read(&region, &trip->payload, &trip->view, error) == STATUS_OK);
    return status;
}

static enum status
way_out(struct trip *trip, struct error *error)
{
    static const struct oip_model_info model = {.name = "m", .version = "1"};
    static const struct oip_release release = {NULL, NULL};
    struct oip_pieces out;
    struct wire_span spans[OIP_PIECES_MAX];
    enum status status =
        oip_encode_response(trip->request, &model, &trip->view, &release, &out, error);
    if (status != STATUS_OK)
        return status;
    struct wire_message response = {spans, out.count, 0};
    for (size_t i = 0; i < out.count; i++) {
        spans[i] = (struct wire_span){out.pieces[i].data, out.pieces[i].bytes};
        response.bytes += out.pieces[i].bytes;
    }
    return oip_json_write(trip->json, &response, &trip->answer, error);
}

static void
end(struct trip *trip)
{
    oip_json_answer_fini(&trip->answer);
    oip_request_destroy(trip->request);
    oip_json_destroy(trip->json);
    trip->request = NULL;
    trip->json = NULL;
    if (trip->built)
        builder_abandon(&builder, &trip->payload);
    trip->built = false;
    trip->payload = (struct shm_payload){0};
}

static void
check_refusal(const struct error *error)
{
    CHECK(error->status == STATUS_INVALID_ARGUMENT || error->status == STATUS_OUT_OF_RANGE ||
          error->status == STATUS_RESOURCE_EXHAUSTED);
    CHECK(error->text[0] != '\0');
    struct bytes body = {0};
    oip_json_put_error(&body, error->text);
    json_t *parsed = json_loadb(body.data, body.used, 0, NULL);
    CHECK(parsed != NULL && json_is_string(json_object_get(parsed, "error")));
    json_decref(parsed);
    bytes_fini(&body);
}

/* NaNs have many bits and one word. */
static bool
same_elements(const struct shoal_tensor *a, const uint8_t *copy, bool has_words)
{
    if (memcmp(a->data, copy, a->bytes) == 0)
        return true;
    return has_words && (a->datatype == SHOAL_FP32 || a->datatype == SHOAL_FP64);
}

/* The tensors of the first trip, copied: its slot's memory is used again. */
struct copy {
    struct shoal_tensor tensor;
    char name[SHOAL_NAME_BYTES_MAX + 1];
    uint8_t *data;
};

static struct copy copies[SHOAL_TENSORS_MAX];
static uint32_t copy_count;

static void
copy_tensors(void)
{
    copy_count = first.view.tensor_count;
    for (uint32_t i = 0; i < copy_count; i++) {
        struct copy *copy = &copies[i];
        copy->tensor = first.view.tensors[i];
        snprintf(copy->name, sizeof(copy->name), "%s", first.view.tensors[i].name);
        copy->data = malloc(copy->tensor.bytes + 1);
        CHECK(copy->data != NULL);
        memcpy(copy->data, copy->tensor.data, copy->tensor.bytes);
    }
}

static const struct copy *
find_copy(const char *name)
{
    for (uint32_t i = 0; i < copy_count; i++)
        if (strcmp(copies[i].name, name) == 0)
            return &copies[i];
    return NULL;
}

/* The answer's outputs as a request's inputs: the same members mean the same. */
static char *
as_request(size_t *json_bytes, size_t *body_bytes)
{
    const struct bytes *text = &first.answer.text;
    static const char key[] = "\"outputs\":";
    const char *outputs = memmem(text->data, text->used, key, sizeof(key) - 1);
    CHECK(outputs != NULL);
    struct bytes body = {0};
    bytes_put_text(&body, "{\"inputs\":");
    outputs += sizeof(key) - 1;
    bytes_put(&body, outputs, text->used - (size_t)(outputs - text->data));
    *json_bytes = body.used;
    for (size_t i = 0; i < first.answer.data_count; i++)
        bytes_put(&body, first.answer.data[i].data, first.answer.data[i].bytes);
    CHECK(!body.failed);
    return bytes_take(&body, body_bytes);
}

static void
check_again(void)
{
    size_t json_bytes;
    size_t body_bytes;
    /* the library's integers do not reach as far as UINT64 */
    json_t *parsed = json_loadb(first.answer.text.data, first.answer.text.used,
                                JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    CHECK(parsed != NULL);
    size_t wanted = json_array_size(json_object_get(parsed, "outputs"));
    json_decref(parsed);
    if (oip_is_shared(first.request))
        return; /* outputs may have been written over one another */
    char *body = as_request(&json_bytes, &body_bytes);
    bool has_words = memmem(body, json_bytes, "\"NaN\"", 5) != NULL;
    copy_tensors();
    end(&first);
    struct error error = ERROR_NONE;
    if (way_in(&second, body, json_bytes, body_bytes, &error) != STATUS_OK) {
        /* names with escapes can outgrow what they came in with */
        CHECK(json_bytes > 64 * 1024 || error.status == STATUS_RESOURCE_EXHAUSTED);
    } else {
        CHECK(second.view.tensor_count == wanted);
        for (uint32_t i = 0; i < second.view.tensor_count; i++) {
            const struct shoal_tensor *tensor = &second.view.tensors[i];
            const struct copy *copy = find_copy(tensor->name);
            CHECK(copy != NULL && copy->tensor.datatype == tensor->datatype);
            CHECK(copy->tensor.rank == tensor->rank && copy->tensor.bytes == tensor->bytes);
            CHECK(memcmp(copy->tensor.shape, tensor->shape, tensor->rank * sizeof(int64_t)) == 0);
            CHECK(same_elements(tensor, copy->data, has_words));
        }
    }
    end(&second);
    free(body);
    for (uint32_t i = 0; i < copy_count; i++)
        free(copies[i].data);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (encoded == NULL)
        start();
    if (size == 0)
        return 0;
    size_t binary = data[0];
    const char *body = (const char *)data + 1;
    if (binary > size - 1)
        binary = size - 1;
    struct error error = ERROR_NONE;
    if (way_in(&first, body, size - 1 - binary, size - 1, &error) != STATUS_OK ||
        way_out(&first, &error) != STATUS_OK)
        check_refusal(&error);
    else
        check_again();
    end(&first);
    return 0;
}
