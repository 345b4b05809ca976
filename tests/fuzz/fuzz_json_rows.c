/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a request of KServe's v1 protocol, or of Triton's generate extension, for one of a
 * few models; the first byte chooses both. An accepted body of v1 has the tensors that the model
 * declares; given back as an answer, it is JSON that a library reads, with as many predictions as
 * there were rows, and these are the same rows when they are sent again. One of generate has
 * declared tensors, each once, and its answer is an object with a member for each. ctest:
 * libs=jansson
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/protocol/oip_json.h"
#include "coordinator/protocol/oip_request.h"

enum { MESSAGE_BYTES = 1 << 20 };

#define SPEC(name, type, rank, ...)                                                                \
    {                                                                                              \
        name, type, rank,                                                                          \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct handshake_tensor matrix[] = {SPEC("x", SHOAL_INT32, 2, -1, 2)};
static const struct handshake_tensor texts[] = {SPEC("x", SHOAL_BYTES, 2, -1, -1)};
static const struct handshake_tensor any_rank[] = {SPEC("x", SHOAL_FP64, SHOAL_RANK_ANY, 0)};
static const struct handshake_tensor pair[] = {SPEC("a", SHOAL_UINT64, 2, -1, -1),
                                               SPEC("b", SHOAL_BYTES, 1, -1)};

static const struct oip_model_info models[] = {
    {.name = "m", .version = "1", .inputs = matrix, .input_count = 1},
    {.name = "m", .version = "1", .inputs = texts, .input_count = 1},
    {.name = "m", .version = "1", .inputs = any_rank, .input_count = 1},
    {.name = "m", .version = "1", .inputs = pair, .input_count = 2},
};

enum { GENERATE = 0x80 }; /* in the first byte */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The tensors of a request as a response. */
static void
give_back(struct bytes *out, const struct oip_request *request, const struct oip_json *json)
{
    const Inference__ModelInferRequest *message = request->message;
    const struct wire_message *elements = oip_json_elements(json);
    CHECK(elements->span_count == message->n_inputs);
    for (size_t i = 0; i < message->n_inputs; i++) {
        const Inference__ModelInferRequest__InferInputTensor *input = message->inputs[i];
        struct bytes shape = {0};
        struct bytes output = {0};
        for (size_t k = 0; k < input->n_shape; k++)
            wire_append_varint(&shape, (uint64_t)input->shape[k]);
        wire_append_run(&output, 1, input->name, strlen(input->name));
        wire_append_run(&output, 2, input->datatype, strlen(input->datatype));
        wire_append_run(&output, 3, shape.data, shape.used);
        wire_append_run(out, 5, output.data, output.used);
        bytes_fini(&shape);
        bytes_fini(&output);
    }
    for (size_t i = 0; i < message->n_inputs; i++)
        wire_append_run(out, 6, elements->spans[i].data, elements->spans[i].bytes);
}

static void
check_inputs(const struct oip_json_ask *ask, const struct oip_request *request, int64_t *rows)
{
    const Inference__ModelInferRequest *message = request->message;
    if (ask->rows_of != NULL) {
        CHECK(message->n_inputs == ask->rows_of->input_count);
        *rows = message->inputs[0]->shape[0];
        return;
    }
    for (size_t i = 0; i < message->n_inputs; i++) {
        uint32_t declared = 0;
        for (uint32_t j = 0; j < ask->members_of->input_count; j++)
            declared += strcmp(message->inputs[i]->name, ask->members_of->inputs[j].name) == 0;
        CHECK(declared == 1);
        for (size_t j = 0; j < i; j++)
            CHECK(strcmp(message->inputs[i]->name, message->inputs[j]->name) != 0);
    }
    *rows = (int64_t)message->n_inputs;
}

/* The answer to the body; its `text` is empty if the body was refused. */
static struct oip_json_answer
trip(const struct oip_json_ask *ask, int64_t *rows)
{
    struct oip_json *json = NULL;
    struct oip_json_answer answer = {0};
    struct error error = ERROR_NONE;
    if (oip_json_read(ask, &json, &error) != STATUS_OK) {
        CHECK(error.text[0] != '\0');
        return answer;
    }
    struct bytes out = {0};
    struct oip_request *request = oip_json_take_request(json);
    if (oip_validate(request, oip_json_elements(json), &error) == STATUS_OK) {
        check_inputs(ask, request, rows);
        give_back(&out, request, json);
        const struct wire_span span = {out.data, out.used};
        const struct wire_message response = {&span, 1, out.used};
        enum status status = oip_json_write(json, &response, &answer, &error);
        CHECK(status == STATUS_OK || error.text[0] != '\0');
        if (status != STATUS_OK)
            oip_json_answer_fini(&answer);
    }
    oip_request_destroy(request);
    oip_json_destroy(json);
    bytes_fini(&out);
    return answer;
}

static json_t *
parse(const struct oip_json_answer *answer)
{
    json_t *parsed = json_loadb(answer->text.data, answer->text.used,
                                JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, NULL);
    CHECK(json_is_object(parsed));
    return parsed;
}

static void
check_generate(const struct oip_model_info *model, const struct oip_json_answer *answer,
               int64_t inputs)
{
    json_t *parsed = parse(answer);
    for (uint32_t i = 0; i < model->input_count; i++)
        inputs -= json_object_get(parsed, model->inputs[i].name) != NULL;
    CHECK(inputs == 0);
    json_decref(parsed);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const struct oip_model_info *model = &models[data[0] % ARRAY_COUNT(models)];
    const bool generates = (data[0] & GENERATE) != 0;
    int64_t rows = 0;
    int64_t rows_again = 0;
    char *body = malloc(size);
    CHECK(body != NULL);
    memcpy(body, data + 1, size - 1);
    struct oip_json_ask ask = {.model = "m",
                               .version = "",
                               .body = body,
                               .body_bytes = size - 1,
                               .json_bytes = size - 1,
                               .message_bytes_max = MESSAGE_BYTES,
                               .rows_of = generates ? NULL : model,
                               .members_of = generates ? model : NULL};
    struct oip_json_answer first = trip(&ask, &rows);
    free(body);
    if (first.text.used == 0)
        return 0;
    if (generates) {
        check_generate(model, &first, rows);
        oip_json_answer_fini(&first);
        return 0;
    }
    json_t *parsed = parse(&first);
    json_t *predictions = json_object_get(parsed, "predictions");
    CHECK(json_is_array(predictions) && (int64_t)json_array_size(predictions) == rows);
    json_decref(parsed);
    struct bytes again = {0};
    static const char key[] = "{\"predictions\":";
    CHECK(first.text.used > sizeof(key) && memcmp(first.text.data, key, sizeof(key) - 1) == 0);
    bytes_put_text(&again, "{\"instances\":");
    bytes_put(&again, first.text.data + sizeof(key) - 1, first.text.used - (sizeof(key) - 1));
    ask.body = again.data;
    ask.body_bytes = ask.json_bytes = again.used;
    struct oip_json_answer second = trip(&ask, &rows_again);
    CHECK(rows_again == rows && second.text.used == first.text.used);
    CHECK(memcmp(first.text.data, second.text.data, first.text.used) == 0);
    oip_json_answer_fini(&first);
    oip_json_answer_fini(&second);
    bytes_fini(&again);
    return 0;
}
