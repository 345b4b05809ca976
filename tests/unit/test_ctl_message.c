/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that `shoalctl infer` sends what was asked for and shows what came back: requests are
 * packed, unpacked again by the generated code and compared member by member, for raw and typed
 * contents and parts of CSV rows; answers are packed here as a node would, well-formed and broken
 * in each way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "ctl/input.h"
#include "ctl/message.h"

static char empty[] = "";
static char model_name[] = "digits";
static char request_id[] = "id-7";
static char label_name[] = "label";

static struct ctl_request *
request_new(bool typed)
{
    struct ctl_request *request = calloc(1, sizeof *request);
    assert_non_null(request);
    request->model = model_name;
    request->version = empty;
    request->id = empty;
    request->typed = typed;
    return request;
}

static void
request_input(struct ctl_request *request, const char *text)
{
    static const struct input_options plain;
    struct error error = ERROR_NONE;
    if (input_read(text, &plain, &request->inputs[request->input_count++], &error) != STATUS_OK)
        fail_msg("%s: %s", text, error.text);
}

static void
request_free(struct ctl_request *request)
{
    for (size_t i = 0; i < request->input_count; i++)
        tensor_free(&request->inputs[i]);
    free(request);
}

/* As the node sees it. */
static Inference__ModelInferRequest *
sent(const struct ctl_request *request, size_t row_first, size_t row_count)
{
    struct error error = ERROR_NONE;
    uint8_t *packed = NULL;
    size_t bytes = 0;
    if (request_pack(request, row_first, row_count, &packed, &bytes, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    Inference__ModelInferRequest *message =
        inference__model_infer_request__unpack(NULL, bytes, packed);
    free(packed);
    assert_non_null(message);
    return message;
}

/* ---- requests ---- */

TEST_CASE(test_raw_request)
{
    struct ctl_request *request = request_new(false);
    request_input(request, "x=INT16[2,2]:1,-2,3,4");
    request_input(request, "s=BYTES[2]:ab,c");
    request->id = request_id;
    request->outputs[request->output_count++] = label_name;
    Inference__InferParameter value = INFERENCE__INFER_PARAMETER__INIT;
    value.parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM;
    value.double_param = 0.5;
    request->parameters[request->parameter_count++] = (struct parameter){label_name, value};
    Inference__ModelInferRequest *message = sent(request, 0, 0);
    assert_string_equal(message->model_name, "digits");
    assert_string_equal(message->id, "id-7");
    assert_int_equal(message->n_inputs, 2);
    assert_string_equal(message->inputs[0]->datatype, "INT16");
    assert_int_equal(message->inputs[0]->n_shape, 2);
    assert_int_equal(message->inputs[0]->shape[1], 2);
    assert_null(message->inputs[0]->contents);
    assert_int_equal(message->n_raw_input_contents, 2);
    assert_int_equal(message->raw_input_contents[0].len, 8);
    static const int16_t numbers[] = {1, -2, 3, 4};
    assert_memory_equal(message->raw_input_contents[0].data, numbers, sizeof numbers);
    assert_int_equal(message->raw_input_contents[1].len, 11);
    assert_memory_equal(message->raw_input_contents[1].data, "\2\0\0\0ab\1\0\0\0c", 11);
    assert_int_equal(message->n_outputs, 1);
    assert_string_equal(message->outputs[0]->name, "label");
    assert_int_equal(message->n_parameters, 1);
    assert_string_equal(message->parameters[0]->key, "label");
    assert_true(message->parameters[0]->value->double_param == 0.5);
    inference__model_infer_request__free_unpacked(message, NULL);
    request_free(request);
}

TEST_CASE(test_typed_request)
{
    struct ctl_request *request = request_new(true);
    request_input(request, "a=BOOL[2]:true,false");
    request_input(request, "b=INT8[2]:-1,127");
    request_input(request, "c=INT64[1]:-9223372036854775808");
    request_input(request, "d=UINT16[1]:65535");
    request_input(request, "e=UINT64[1]:18446744073709551615");
    request_input(request, "f=FP32[1]:0.5");
    request_input(request, "g=FP64[1]:0.1");
    request_input(request, "h=BYTES[2]:ab,");
    Inference__ModelInferRequest *message = sent(request, 0, 0);
    assert_int_equal(message->n_raw_input_contents, 0);
    assert_int_equal(message->inputs[0]->contents->n_bool_contents, 2);
    assert_true(message->inputs[0]->contents->bool_contents[0]);
    assert_false(message->inputs[0]->contents->bool_contents[1]);
    assert_int_equal(message->inputs[1]->contents->n_int_contents, 2);
    assert_int_equal(message->inputs[1]->contents->int_contents[0], -1);
    assert_true(message->inputs[2]->contents->int64_contents[0] == INT64_MIN);
    assert_int_equal(message->inputs[3]->contents->uint_contents[0], 65535);
    assert_true(message->inputs[4]->contents->uint64_contents[0] == UINT64_MAX);
    assert_true(message->inputs[5]->contents->fp32_contents[0] == 0.5f);
    assert_true(message->inputs[6]->contents->fp64_contents[0] == 0.1);
    assert_int_equal(message->inputs[7]->contents->n_bytes_contents, 2);
    assert_memory_equal(message->inputs[7]->contents->bytes_contents[0].data, "ab", 2);
    assert_int_equal(message->inputs[7]->contents->bytes_contents[1].len, 0);
    inference__model_infer_request__free_unpacked(message, NULL);
    request_free(request);
}

TEST_CASE(test_half_floats_have_no_typed_contents)
{
    struct ctl_request *request = request_new(true);
    struct error error = ERROR_NONE;
    uint8_t *packed = NULL;
    size_t bytes;
    request_input(request, "f=FP32[1]:0.5");
    request_input(request, "h=BF16[1]:1");
    assert_int_equal(request_pack(request, 0, 0, &packed, &bytes, &error), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "input h: BF16"));
    assert_null(packed);
    request_free(request);
}

TEST_CASE(test_rows_are_divided)
{
    struct ctl_request *request = request_new(false);
    static const struct input_options plain;
    static const char rows[] = "a,bb\nccc,d\ne,f\n";
    struct ctl_tensor *tensor = &request->inputs[0];
    struct error error = ERROR_NONE;
    tensor->name = strdup("x");
    tensor->type = datatype_find("BYTES", 5);
    tensor->rank = 2;
    tensor->shape[0] = DIMENSION_ANY;
    tensor->shape[1] = 2;
    assert_int_equal(csv_read(rows, strlen(rows), &plain, tensor, &error), STATUS_OK);
    request->input_count = 1;
    request_input(request, "k=INT8[1]:9");
    Inference__ModelInferRequest *message = sent(request, 1, 2);
    assert_int_equal(message->inputs[0]->shape[0], 2);
    assert_int_equal(message->inputs[0]->shape[1], 2);
    assert_int_equal(message->raw_input_contents[0].len, 4 * 4 + 6);
    assert_memory_equal(message->raw_input_contents[0].data, "\3\0\0\0ccc\1\0\0\0d", 12);
    assert_int_equal(message->raw_input_contents[1].len, 1); /* not of CSV: whole each time */
    inference__model_infer_request__free_unpacked(message, NULL);
    request_free(request);
}

static Inference__InferParameter
parameter_sent(const char *text, enum parameter_form form)
{
    static struct parameter parameter;
    struct error error = ERROR_NONE;
    assert_int_equal(parameter_read(text, form, &parameter, &error), STATUS_OK);
    assert_string_equal(parameter.key, "k");
    Inference__InferParameter value = parameter.value;
    if (value.parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM)
        assert_string_equal(value.string_param, strchr(text, '=') + 1);
    parameter_free(&parameter);
    return value;
}

TEST_CASE(test_parameters_have_the_type_that_their_text_has)
{
    static const struct {
        const char *text;
        int choice;
    } cases[] = {
        {"k=true", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM},
        {"k=-7", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM},
        {"k=0.5", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM},
        {"k=9223372036854775808", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM},
        {"k=7a", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM},
        {"k=a=b", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM},
        {"k=", INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parameter_sent(cases[i].text, PARAMETER_ANY).parameter_choice_case,
                         cases[i].choice);
        assert_int_equal(parameter_sent(cases[i].text, PARAMETER_TEXT).parameter_choice_case,
                         INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM);
    }
    assert_true(parameter_sent("k=true", PARAMETER_ANY).bool_param);
    assert_false(parameter_sent("k=false", PARAMETER_ANY).bool_param);
    assert_int_equal(parameter_sent("k=-7", PARAMETER_ANY).int64_param, -7);
    struct parameter parameter;
    struct error error = ERROR_NONE;
    assert_int_equal(parameter_read("k", PARAMETER_ANY, &parameter, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_int_equal(parameter_read("=v", PARAMETER_ANY, &parameter, &error),
                     STATUS_INVALID_ARGUMENT);
}

/* ---- answers ---- */

struct node_answer {
    Inference__ModelInferResponse message;
    Inference__ModelInferResponse__InferOutputTensor output;
    Inference__ModelInferResponse__InferOutputTensor *outputs[1];
    Inference__InferTensorContents contents;
    ProtobufCBinaryData raw[2];
    int64_t shape[9];
    char datatype[8];
};

static void
node_answer_init(struct node_answer *node, const char *datatype, size_t rank, int64_t dimension)
{
    inference__model_infer_response__init(&node->message);
    inference__model_infer_response__infer_output_tensor__init(&node->output);
    inference__infer_tensor_contents__init(&node->contents);
    snprintf(node->datatype, sizeof node->datatype, "%s", datatype);
    for (size_t i = 0; i < rank; i++)
        node->shape[i] = i == 0 ? dimension : 1;
    node->output.name = label_name;
    node->output.datatype = node->datatype;
    node->output.shape = node->shape;
    node->output.n_shape = rank;
    node->outputs[0] = &node->output;
    node->message.model_name = model_name;
    node->message.id = request_id;
    node->message.outputs = node->outputs;
    node->message.n_outputs = 1;
}

static void
node_answer_raw(struct node_answer *node, const void *data, size_t bytes)
{
    node->raw[0] = (ProtobufCBinaryData){.len = bytes, .data = (uint8_t *)(uintptr_t)data};
    node->message.raw_output_contents = node->raw;
    node->message.n_raw_output_contents = 1;
}

static enum status
receive(struct node_answer *node, struct ctl_answer *answer, struct error *error)
{
    size_t bytes = inference__model_infer_response__get_packed_size(&node->message);
    uint8_t *packed = malloc(bytes);
    assert_non_null(packed);
    inference__model_infer_response__pack(&node->message, packed);
    *error = ERROR_NONE;
    enum status status = answer_unpack(answer, packed, bytes, error);
    free(packed);
    return status;
}

TEST_CASE(test_raw_answer_as_json_and_text)
{
    static const int64_t labels[] = {7, -1};
    struct node_answer node;
    struct ctl_answer answer;
    struct error error;
    char text[512];
    node_answer_init(&node, "INT64", 1, 2);
    node_answer_raw(&node, labels, sizeof labels);
    assert_int_equal(receive(&node, &answer, &error), STATUS_OK);
    FILE *stream = fmemopen(text, sizeof text, "w");
    answer_json(&answer, stream);
    fclose(stream);
    assert_string_equal(text, "{\"model_name\": \"digits\", \"id\": \"id-7\", \"outputs\": "
                              "[{\"name\": \"label\", \"datatype\": \"INT64\", \"shape\": [2], "
                              "\"data\": [7, -1]}]}\n");
    stream = fmemopen(text, sizeof text, "w");
    answer_print(&answer, TENSOR_EXCERPT, stream);
    fclose(stream);
    assert_string_equal(text, "model \"digits\"  id \"id-7\"\n\"label\"  INT64[2]\n    7 -1\n");
    answer_free(&answer);
}

TEST_CASE(test_typed_answer)
{
    struct node_answer node;
    struct ctl_answer answer;
    struct error error;
    int32_t numbers[] = {-5, 100};
    ProtobufCBinaryData words[] = {{2, (uint8_t *)label_name}, {0, NULL}};
    node_answer_init(&node, "INT8", 1, 2);
    node.output.contents = &node.contents;
    node.contents.int_contents = numbers;
    node.contents.n_int_contents = 2;
    assert_int_equal(receive(&node, &answer, &error), STATUS_OK);
    assert_memory_equal(answer.outputs[0].data, "\xfb\x64", 2);
    answer_free(&answer);
    node_answer_init(&node, "BYTES", 1, 2);
    node.output.contents = &node.contents;
    node.contents.bytes_contents = words;
    node.contents.n_bytes_contents = 2;
    assert_int_equal(receive(&node, &answer, &error), STATUS_OK);
    assert_int_equal(answer.outputs[0].bytes, 10);
    assert_memory_equal(answer.outputs[0].data, "\2\0\0\0la\0\0\0\0", 10);
    answer_free(&answer);
}

static void
refuses(struct node_answer *node, const char *words)
{
    struct ctl_answer answer;
    struct error error;
    assert_int_equal(receive(node, &answer, &error), STATUS_DATA_LOSS);
    if (strstr(error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, words);
}

TEST_CASE(test_broken_answers_are_refused)
{
    static const unsigned char bytes[16];
    struct node_answer node;
    node_answer_init(&node, "INT64", 1, 2);
    node_answer_raw(&node, bytes, 15);
    refuses(&node, "15 bytes are not INT64[2]");
    node_answer_raw(&node, bytes, 16);
    node.raw[1] = node.raw[0];
    node.message.n_raw_output_contents = 2;
    refuses(&node, "1 tensors, but contents of 2");
    node.message.n_raw_output_contents = 0;
    refuses(&node, "0 bytes are not");
    node_answer_init(&node, "INT65", 1, 2);
    refuses(&node, "no known datatype");
    node_answer_init(&node, "INT64", 9, 1);
    refuses(&node, "9 dimensions");
    node_answer_init(&node, "INT64", 1, -1);
    refuses(&node, "the shape [-1]");
    node_answer_init(&node, "FP16", 1, 1);
    node.output.contents = &node.contents;
    refuses(&node, "0 bytes are not FP16[1]");
    struct ctl_answer answer;
    struct error error = ERROR_NONE;
    assert_int_equal(answer_unpack(&answer, "\xff\xff", 2, &error), STATUS_DATA_LOSS);
    assert_int_equal(answer_unpack(&answer, "", 0, &error), STATUS_OK); /* nothing is left out */
    assert_int_equal(answer.output_count, 0);
    answer_free(&answer);
}

TEST_MAIN()
