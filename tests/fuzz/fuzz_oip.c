/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a ModelInferRequest: what is accepted goes through the arena into a response, which
 * must be one that protobuf-c reads, with the same names and the same contents; and the name and
 * the priority that were found before must be those that were decoded. The first byte says how the
 * rest is cut into spans.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/protocol/oip.h"
#include "coordinator/protocol/oip_request.h"
#include "shm/payload.h"
#include "shm/slot.h"
#include "wire/field_path.h"
#include "shared.h"
#include "spans.h"

enum { PARTY = 1 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct region region;
static struct shm_ticket ticket;
static struct oip_request *request;
static struct payload_builder builder;
static struct payload_view view;
static struct shared_memory *memory;

static void
start(void)
{
    struct region_plan plan = {.slot_count = 1, .stage_count = 1, .worker_counts = {1}};
    struct error error = ERROR_NONE;
    CHECK(plan_arena(&plan, 1 << 20, 16 << 20, &error) == STATUS_OK);
    CHECK(region_create(&region, &plan, 1, &error) == STATUS_OK);
    CHECK(slot_acquire(&region, PARTY, &ticket) == RING_OK);
    CHECK((request = oip_request_create()) != NULL);
    memory = shared_regions();
}

static void
check_skim(const struct wire_message *message)
{
    static const uint32_t name_path[] = {1};
    struct wire_cursor found;
    bool any;
    struct error error = ERROR_NONE;
    CHECK(field_path_find(message, name_path, 1, &found, &any, &error) == STATUS_OK);
    const char *name = request->message->model_name;
    CHECK(found.left == strlen(name));
    char *copy = malloc(found.left + 1);
    CHECK(copy != NULL);
    wire_read(&found, copy, found.left);
    CHECK(memcmp(copy, name, strlen(name)) == 0);
    free(copy);
}

/* The skim and the decoder read the same priority. */
static void
check_priority(const struct wire_message *message)
{
    const Inference__InferParameter *value = NULL;
    for (size_t i = 0; i < request->message->n_parameters; i++)
        if (strcmp(request->message->parameters[i]->key, "priority") == 0)
            value = request->message->parameters[i]->value;
    uint64_t number = value == NULL ? 0 : UINT64_MAX;
    if (value != NULL &&
        value->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM)
        number = (uint64_t)value->int64_param;
    else if (value != NULL && value->parameter_choice_case ==
                                  INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM)
        number = value->uint64_param;
    else if (value != NULL &&
             value->parameter_choice_case ==
                 INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM &&
             strlen(value->string_param) == 1)
        number = (uint64_t)(value->string_param[0] - '0');
    enum priority priority;
    struct error error = ERROR_NONE;
    struct oip_head head;
    int64_t timeout_ns;
    bool taken = oip_head_read(&head, message, &error) == STATUS_OK &&
                 oip_head_judge(&head, &priority, &timeout_ns, &error) == STATUS_OK;
    CHECK(taken == (number <= PRIORITY_LOW));
    CHECK(!taken || priority == (number == 0 ? PRIORITY_NORMAL : (enum priority)number));
}

/* The response as one run of bytes, on the heap, exactly as long as it is. */
static uint8_t *
join(const struct rpc_piece *pieces, size_t count, size_t *bytes)
{
    *bytes = 0;
    for (size_t i = 0; i < count; i++)
        *bytes += pieces[i].bytes;
    uint8_t *joined = malloc(*bytes);
    CHECK(joined != NULL);
    for (size_t i = 0, at = 0; i < count; at += pieces[i].bytes, i++)
        memcpy(joined + at, pieces[i].data, pieces[i].bytes);
    return joined;
}

/* Answers with the inputs as outputs. */
static void
check_response(void)
{
    static const struct oip_model_info model = {.name = "m", .version = "1"};
    static const struct oip_release release = {NULL, NULL};
    struct oip_pieces out;
    struct error error = ERROR_NONE;
    if (oip_encode_response(request, &model, &view, &release, &out, &error) != STATUS_OK) {
        /* a requested output is not there, or does not fit */
        CHECK(error.status == STATUS_INVALID_ARGUMENT);
        return;
    }
    size_t bytes;
    uint8_t *joined = join(out.pieces, out.count, &bytes);
    Inference__ModelInferResponse *response =
        inference__model_infer_response__unpack(NULL, bytes, joined);
    CHECK(response != NULL && response->n_outputs == response->n_raw_output_contents);
    for (size_t i = 0; i < response->n_outputs; i++) {
        uint32_t k = 0;
        while (k < view.tensor_count &&
               strcmp(view.tensors[k].name, response->outputs[i]->name) != 0)
            k++;
        CHECK(k < view.tensor_count);
        if (request->message->n_outputs > 0 && oip_shared_of(request, OIP_OUTPUT, i) != NULL) {
            CHECK(response->raw_output_contents[i].len == 0);
            CHECK(response->outputs[i]->n_parameters == 3);
            continue;
        }
        CHECK(response->outputs[i]->n_parameters == 0);
        CHECK(response->raw_output_contents[i].len == view.tensors[k].bytes);
        CHECK(view.tensors[k].bytes == 0 ||
              memcmp(response->raw_output_contents[i].data, view.tensors[k].data,
                     view.tensors[k].bytes) == 0);
    }
    inference__model_infer_response__free_unpacked(response, NULL);
    free(joined);
}

/* For any declaration of a model, the rest goes on with any request. */
static void
check_model(void)
{
    static const struct handshake_tensor any[] = {
        {.name = "x", .rank = SHOAL_RANK_ANY},
        {.name = "input", .datatype = SHOAL_FP32, .rank = 2, .shape = {-1, 2}}};
    static const struct oip_model_info model = {.name = "m",
                                                .version = "1",
                                                .inputs = any,
                                                .input_count = 2,
                                                .outputs = any,
                                                .output_count = 2};
    struct error error = ERROR_NONE;
    if (oip_check_model(request, &model, &error) != STATUS_OK)
        CHECK(error.status == STATUS_INVALID_ARGUMENT || error.status == STATUS_NOT_FOUND);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct wire_span spans[SPANS_MAX];
    if (request == NULL)
        start();
    if (size == 0)
        return 0;
    struct wire_message message = cut(data + 1, size - 1, data[0], spans);
    struct error error = ERROR_NONE;
    if (oip_decode(request, &message, &error) != STATUS_OK)
        return 0;
    check_skim(&message);
    check_priority(&message);
    check_model();
    builder_init(&builder, &region, ticket.index, PARTY, NULL, NULL);
    struct shm_payload payload = {0};
    if (oip_hold_shared(request, memory, &error) == STATUS_OK &&
        builder_reserve(&builder, oip_tensor_bytes(request), &error) == STATUS_OK &&
        oip_copy_tensors(request, &message, &builder, &error) == STATUS_OK &&
        builder_seal(&builder, &payload, &error) == STATUS_OK) {
        CHECK(payload_read(&region, &payload, &view, &error) == STATUS_OK);
        check_response();
    }
    builder_abandon(&builder, &payload);
    oip_forget_shared(request);
    return 0;
}
