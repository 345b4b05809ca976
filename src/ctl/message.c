/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "ctl/ctl.h"

typedef Inference__ModelInferRequest__InferInputTensor input_message;
typedef Inference__ModelInferRequest__InferRequestedOutputTensor output_message;

static bool
element_true(const struct datatype *type, const unsigned char *element)
{
    return element_uint(type, element) != 0;
}

/* ---- typed contents, out ---- */

/* Allocates the matching member and converts each element into an entry of it. */
#define CONTENTS_FILL(member, convert)                                                             \
    do {                                                                                           \
        contents->member = ctl_allocate(count, sizeof *contents->member);                          \
        for (size_t i = 0; i < count; i++)                                                         \
            contents->member[i] = convert(type, data + i * type->bytes);                           \
        contents->n_##member = count;                                                              \
    } while (0)

static float
element_fp32(const struct datatype *type, const unsigned char *element)
{
    float value;
    CHECK(type->bytes == sizeof value);
    memcpy(&value, element, sizeof value);
    return value;
}

static double
element_fp64(const struct datatype *type, const unsigned char *element)
{
    double value;
    CHECK(type->bytes == sizeof value);
    memcpy(&value, element, sizeof value);
    return value;
}

static int32_t
element_int32(const struct datatype *type, const unsigned char *element)
{
    return (int32_t)element_int(type, element);
}

static uint32_t
element_uint32(const struct datatype *type, const unsigned char *element)
{
    return (uint32_t)element_uint(type, element);
}

/* The entries point into `data`. */
static void
bytes_contents(Inference__InferTensorContents *contents, unsigned char *data, size_t bytes)
{
    size_t count = 0;
    uint32_t length;
    for (size_t at = 0; at < bytes; at += sizeof length + length, count++)
        memcpy(&length, data + at, sizeof length);
    contents->bytes_contents = ctl_allocate(count, sizeof *contents->bytes_contents);
    contents->n_bytes_contents = count;
    for (size_t at = 0, i = 0; i < count; i++) {
        memcpy(&length, data + at, sizeof length);
        contents->bytes_contents[i] =
            (ProtobufCBinaryData){.len = length, .data = data + at + sizeof length};
        at += sizeof length + length;
    }
}

static enum status
contents_make(Inference__InferTensorContents *contents, const struct ctl_tensor *tensor,
              unsigned char *data, size_t bytes, struct error *error)
{
    const struct datatype *type = tensor->type;
    size_t count = type->bytes > 0 ? bytes / type->bytes : 0;
    inference__infer_tensor_contents__init(contents);
    switch (type->kind) {
    case KIND_BOOL: CONTENTS_FILL(bool_contents, element_true); break;
    case KIND_INT:
        if (type->bytes == sizeof(int64_t))
            CONTENTS_FILL(int64_contents, element_int);
        else
            CONTENTS_FILL(int_contents, element_int32);
        break;
    case KIND_UINT:
        if (type->bytes == sizeof(uint64_t))
            CONTENTS_FILL(uint64_contents, element_uint);
        else
            CONTENTS_FILL(uint_contents, element_uint32);
        break;
    case KIND_FP32: CONTENTS_FILL(fp32_contents, element_fp32); break;
    case KIND_FP64: CONTENTS_FILL(fp64_contents, element_fp64); break;
    case KIND_BYTES: bytes_contents(contents, data, bytes); break;
    case KIND_FP16:
    case KIND_BF16:
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "input %.64s: %s has no typed contents, only raw ones", tensor->name,
                         type->name);
    }
    return STATUS_OK;
}

static void
contents_free(Inference__InferTensorContents *contents)
{
    free(contents->bool_contents);
    free(contents->int_contents);
    free(contents->int64_contents);
    free(contents->uint_contents);
    free(contents->uint64_contents);
    free(contents->fp32_contents);
    free(contents->fp64_contents);
    free(contents->bytes_contents);
}

/* ---- parameters ---- */

enum status
parameter_read(const char *text, enum parameter_form form, struct parameter *parameter,
               struct error *error)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text)
        return error_set(error, STATUS_INVALID_ARGUMENT, "write KEY=VALUE");
    const char *word = equals + 1;
    Inference__InferParameter *value = &parameter->value;
    char *whole_end;
    char *real_end;
    errno = 0;
    int64_t whole = strtoll(word, &whole_end, 10);
    bool is_whole = errno == 0 && whole_end != word && *whole_end == '\0';
    double real = strtod(word, &real_end);
    bool is_real = real_end != word && *real_end == '\0';
    parameter->key = strndup(text, (size_t)(equals - text));
    CHECK(parameter->key != NULL);
    inference__infer_parameter__init(value);
    if (form == PARAMETER_ANY && (strcmp(word, "true") == 0 || strcmp(word, "false") == 0)) {
        value->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
        value->bool_param = word[0] == 't';
    } else if (form == PARAMETER_ANY && is_whole) {
        value->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
        value->int64_param = whole;
    } else if (form == PARAMETER_ANY && is_real) {
        value->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM;
        value->double_param = real;
    } else {
        value->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
        value->string_param = strdup(word);
        CHECK(value->string_param != NULL);
    }
    return STATUS_OK;
}

void
parameter_free(struct parameter *parameter)
{
    free(parameter->key);
    if (parameter->value.parameter_choice_case ==
        INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM)
        free(parameter->value.string_param);
}

/* ---- the request ---- */

/* Memory that the message points to while it is packed. */
struct message_parts {
    input_message inputs[INPUTS_MAX];
    input_message *input_pointers[INPUTS_MAX];
    int64_t shapes[INPUTS_MAX][TENSOR_RANK_MAX];
    Inference__InferTensorContents contents[INPUTS_MAX];
    ProtobufCBinaryData raw[INPUTS_MAX];
    output_message outputs[INPUTS_MAX];
    output_message *output_pointers[INPUTS_MAX];
    Inference__ModelInferRequest__ParametersEntry parameters[PARAMETERS_MAX];
    Inference__ModelInferRequest__ParametersEntry *parameter_pointers[PARAMETERS_MAX];
    Inference__InferParameter values[PARAMETERS_MAX];
};

static char datatype_names[][8] = {"BOOL",  "UINT8", "UINT16", "UINT32", "UINT64", "INT8",  "INT16",
                                   "INT32", "INT64", "FP16",   "FP32",   "FP64",   "BYTES", "BF16"};

static char *
datatype_name(const struct datatype *type)
{
    for (size_t i = 0; i < ARRAY_COUNT(datatype_names); i++)
        if (strcmp(datatype_names[i], type->name) == 0)
            return datatype_names[i];
    UNREACHABLE();
}

/* The part of a tensor for this request. */
static ProtobufCBinaryData
rows_of(const struct ctl_tensor *tensor, size_t row_first, size_t row_count)
{
    if (tensor->row_count == 0)
        return (ProtobufCBinaryData){.len = tensor->bytes, .data = tensor->data};
    CHECK(row_count > 0 && row_first + row_count <= tensor->row_count);
    size_t begin = row_first > 0 ? tensor->row_ends[row_first - 1] : 0;
    size_t end = tensor->row_ends[row_first + row_count - 1];
    return (ProtobufCBinaryData){.len = end - begin, .data = tensor->data + begin};
}

static enum status
input_fill(const struct ctl_request *request, size_t index, size_t row_first, size_t row_count,
           struct message_parts *parts, struct error *error)
{
    const struct ctl_tensor *tensor = &request->inputs[index];
    input_message *input = &parts->inputs[index];
    int64_t *shape = parts->shapes[index];
    inference__model_infer_request__infer_input_tensor__init(input);
    memcpy(shape, tensor->shape, sizeof tensor->shape);
    if (tensor->row_count > 0)
        shape[0] = (int64_t)row_count;
    input->name = tensor->name;
    input->datatype = datatype_name(tensor->type);
    input->shape = shape;
    input->n_shape = tensor->rank;
    parts->input_pointers[index] = input;
    parts->raw[index] = rows_of(tensor, row_first, row_count);
    if (!request->typed)
        return STATUS_OK;
    input->contents = &parts->contents[index];
    return contents_make(input->contents, tensor, parts->raw[index].data, parts->raw[index].len,
                         error);
}

static void
message_fill(const struct ctl_request *request, struct message_parts *parts,
             Inference__ModelInferRequest *message)
{
    inference__model_infer_request__init(message);
    message->model_name = request->model;
    message->model_version = request->version;
    message->id = request->id;
    for (size_t i = 0; i < request->output_count; i++) {
        inference__model_infer_request__infer_requested_output_tensor__init(&parts->outputs[i]);
        parts->outputs[i].name = request->outputs[i];
        parts->output_pointers[i] = &parts->outputs[i];
    }
    for (size_t i = 0; i < request->parameter_count; i++) {
        inference__model_infer_request__parameters_entry__init(&parts->parameters[i]);
        parts->values[i] = request->parameters[i].value;
        parts->parameters[i].key = request->parameters[i].key;
        parts->parameters[i].value = &parts->values[i];
        parts->parameter_pointers[i] = &parts->parameters[i];
    }
    message->inputs = parts->input_pointers;
    message->n_inputs = request->input_count;
    message->outputs = parts->output_pointers;
    message->n_outputs = request->output_count;
    message->parameters = parts->parameter_pointers;
    message->n_parameters = request->parameter_count;
    message->raw_input_contents = parts->raw;
    message->n_raw_input_contents = request->typed ? 0 : request->input_count;
}

enum status
request_pack(const struct ctl_request *request, size_t row_first, size_t row_count,
             uint8_t **packed, size_t *packed_bytes, struct error *error)
{
    struct message_parts *parts = ctl_allocate(1, sizeof *parts);
    Inference__ModelInferRequest message;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < request->input_count && status == STATUS_OK; i++)
        status = input_fill(request, i, row_first, row_count, parts, error);
    if (status == STATUS_OK) {
        message_fill(request, parts, &message);
        *packed_bytes = inference__model_infer_request__get_packed_size(&message);
        *packed = ctl_allocate(*packed_bytes, 1);
        inference__model_infer_request__pack(&message, *packed);
    }
    for (size_t i = 0; i < request->input_count; i++)
        contents_free(&parts->contents[i]);
    free(parts);
    return status;
}

/* ---- typed contents, in ---- */

/* Takes the low bytes of each entry: a value that does not fit is the sender's mistake. */
#define CONTENTS_TAKE(member)                                                                      \
    do {                                                                                           \
        for (size_t i = 0; i < contents->n_##member; i++)                                          \
            tensor_append(tensor, &contents->member[i], tensor->type->bytes);                      \
    } while (0)

static void
contents_take(const Inference__InferTensorContents *contents, struct ctl_tensor *tensor)
{
    switch (tensor->type->kind) {
    case KIND_BOOL:
        for (size_t i = 0; i < contents->n_bool_contents; i++)
            tensor_append(tensor, &(unsigned char){contents->bool_contents[i] != 0}, 1);
        break;
    case KIND_INT:
        if (tensor->type->bytes == sizeof(int64_t))
            CONTENTS_TAKE(int64_contents);
        else
            CONTENTS_TAKE(int_contents);
        break;
    case KIND_UINT:
        if (tensor->type->bytes == sizeof(uint64_t))
            CONTENTS_TAKE(uint64_contents);
        else
            CONTENTS_TAKE(uint_contents);
        break;
    case KIND_FP32: CONTENTS_TAKE(fp32_contents); break;
    case KIND_FP64: CONTENTS_TAKE(fp64_contents); break;
    case KIND_BYTES:
        for (size_t i = 0; i < contents->n_bytes_contents; i++)
            tensor_append(tensor, contents->bytes_contents[i].data,
                          contents->bytes_contents[i].len);
        break;
    case KIND_FP16:
    case KIND_BF16: break; /* no typed contents: validation reports missing bytes */
    }
}

/* ---- the answer ---- */

static enum status
output_take(const Inference__ModelInferResponse *message, size_t index, struct ctl_tensor *tensor,
            struct error *error)
{
    const Inference__ModelInferResponse__InferOutputTensor *output = message->outputs[index];
    tensor->type = datatype_find(output->datatype, strlen(output->datatype));
    if (tensor->type == NULL)
        return error_set(error, STATUS_DATA_LOSS, "tensor %.64s has no known datatype: \"%.32s\"",
                         output->name, output->datatype);
    if (output->n_shape > TENSOR_RANK_MAX)
        return error_set(error, STATUS_DATA_LOSS, "tensor %.64s has %zu dimensions", output->name,
                         output->n_shape);
    tensor->name = strdup(output->name);
    CHECK(tensor->name != NULL);
    tensor->rank = (uint32_t)output->n_shape;
    for (size_t i = 0; i < output->n_shape; i++)
        tensor->shape[i] = output->shape[i];
    if (message->n_raw_output_contents > 0) {
        const ProtobufCBinaryData *raw = &message->raw_output_contents[index];
        tensor->data = ctl_allocate(raw->len, 1);
        tensor->bytes = raw->len;
        if (raw->len > 0)
            memcpy(tensor->data, raw->data, raw->len);
    } else if (output->contents != NULL) {
        contents_take(output->contents, tensor);
    }
    return tensor_validate(tensor, error);
}

enum status
answer_unpack(struct ctl_answer *answer, const void *packed, size_t packed_bytes,
              struct error *error)
{
    *answer = (struct ctl_answer){0};
    answer->message = inference__model_infer_response__unpack(NULL, packed_bytes, packed);
    if (answer->message == NULL)
        return error_set(error, STATUS_DATA_LOSS, "the answer is not a ModelInferResponse");
    size_t raw_count = answer->message->n_raw_output_contents;
    enum status status = STATUS_OK;
    if (raw_count > 0 && raw_count != answer->message->n_outputs)
        status =
            error_set(error, STATUS_DATA_LOSS, "the answer has %zu tensors, but contents of %zu",
                      answer->message->n_outputs, raw_count);
    answer->outputs = ctl_allocate(answer->message->n_outputs, sizeof *answer->outputs);
    for (size_t i = 0; i < answer->message->n_outputs && status == STATUS_OK; i++) {
        answer->output_count++;
        status = output_take(answer->message, i, &answer->outputs[i], error);
    }
    if (status != STATUS_OK)
        answer_free(answer);
    return status;
}

void
answer_free(struct ctl_answer *answer)
{
    for (size_t i = 0; i < answer->output_count; i++)
        tensor_free(&answer->outputs[i]);
    free(answer->outputs);
    if (answer->message != NULL)
        inference__model_infer_response__free_unpacked(answer->message, NULL);
    *answer = (struct ctl_answer){0};
}

/* ---- text ---- */

static void
parameter_print(const char *key, const Inference__InferParameter *value, FILE *out)
{
    fputs("parameter ", out);
    text_print(key, strlen(key), out);
    fputs(" = ", out);
    switch ((int)value->parameter_choice_case) {
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM:
        fputs(value->bool_param ? "true" : "false", out);
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM:
        fprintf(out, "%" PRId64, value->int64_param);
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM:
        fprintf(out, "%" PRIu64, value->uint64_param);
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM:
        fprintf(out, "%.17g", value->double_param);
        break;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM:
        text_print(value->string_param, strlen(value->string_param), out);
        break;
    default: fputs("nothing", out);
    }
    putc('\n', out);
}

static void
parameter_json(const char *key, const Inference__InferParameter *value, struct json *json)
{
    json_name(json, key);
    switch ((int)value->parameter_choice_case) {
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM:
        json_put_bool(json, value->bool_param);
        return;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM:
        json_put_int(json, value->int64_param);
        return;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM:
        json_put_uint(json, value->uint64_param);
        return;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM:
        json_put_double(json, value->double_param);
        return;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM:
        json_put_string(json, value->string_param);
        return;
    default: json_put_null(json);
    }
}

void
answer_print(const struct ctl_answer *answer, enum tensor_detail detail, FILE *out)
{
    const Inference__ModelInferResponse *message = answer->message;
    fputs("model ", out);
    text_print(message->model_name, strlen(message->model_name), out);
    if (message->model_version[0] != '\0') {
        fputs("  version ", out);
        text_print(message->model_version, strlen(message->model_version), out);
    }
    if (message->id[0] != '\0') {
        fputs("  id ", out);
        text_print(message->id, strlen(message->id), out);
    }
    putc('\n', out);
    for (size_t i = 0; i < message->n_parameters; i++)
        if (message->parameters[i]->value != NULL)
            parameter_print(message->parameters[i]->key, message->parameters[i]->value, out);
    for (size_t i = 0; i < answer->output_count; i++)
        tensor_print(&answer->outputs[i], detail, out);
}

static void
output_json(const struct ctl_answer *answer, size_t index, struct json *json)
{
    const struct ctl_tensor *tensor = &answer->outputs[index];
    const Inference__ModelInferResponse__InferOutputTensor *output =
        answer->message->outputs[index];
    json_open(json, '{');
    json_field_string(json, "name", tensor->name);
    json_field_string(json, "datatype", tensor->type->name);
    json_field_open(json, "shape", '[');
    for (uint32_t i = 0; i < tensor->rank; i++)
        json_put_int(json, tensor->shape[i]);
    json_close(json, ']');
    if (output->n_parameters > 0) {
        json_field_open(json, "parameters", '{');
        for (size_t i = 0; i < output->n_parameters; i++)
            if (output->parameters[i]->value != NULL)
                parameter_json(output->parameters[i]->key, output->parameters[i]->value, json);
        json_close(json, '}');
    }
    json_name(json, "data");
    tensor_json(tensor, json);
    json_close(json, '}');
}

void
answer_json(const struct ctl_answer *answer, FILE *out)
{
    const Inference__ModelInferResponse *message = answer->message;
    struct bytes line = {0};
    struct json json = json_begin(&line, JSON_STYLE_SPACED);
    json_open(&json, '{');
    json_field_string(&json, "model_name", message->model_name);
    if (message->model_version[0] != '\0')
        json_field_string(&json, "model_version", message->model_version);
    if (message->id[0] != '\0')
        json_field_string(&json, "id", message->id);
    if (message->n_parameters > 0) {
        json_field_open(&json, "parameters", '{');
        for (size_t i = 0; i < message->n_parameters; i++)
            if (message->parameters[i]->value != NULL)
                parameter_json(message->parameters[i]->key, message->parameters[i]->value, &json);
        json_close(&json, '}');
    }
    json_field_open(&json, "outputs", '[');
    for (size_t i = 0; i < answer->output_count; i++)
        output_json(answer, i, &json);
    json_close(&json, ']');
    json_close(&json, '}');
    ctl_print_line(&line, out);
}
