/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "coordinator/protocol/oip_contents.h"
#include "coordinator/protocol/oip_json_data.h"
#include "coordinator/protocol/oip_json_request.h"
#include "wire/wire.h"

enum {
    FIELD_MODEL_NAME = 1,
    FIELD_MODEL_VERSION = 2,
    FIELD_ID = 3,
    FIELD_OUTPUTS = 5,
    FIELD_RAW_OUTPUT_CONTENTS = 6,
    FIELD_KEY = 1, /* of an entry of parameters */
};

static enum status
impossible(struct error *error)
{
    return error_set(error, STATUS_INTERNAL, "the response is not a ModelInferResponse");
}

static enum status
find_parts(const struct wire_message *response, struct json_answer_parts *parts,
           struct error *error)
{
    struct wire_cursor cursor = wire_begin(response);
    struct wire_field field;
    enum wire_result result;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        if (field.type != WIRE_BYTES)
            continue;
        if (field.number <= FIELD_ID)
            parts->texts[field.number] = field.data;
        else if (field.number == FIELD_OUTPUTS && parts->output_count < SHOAL_TENSORS_MAX)
            parts->outputs[parts->output_count++] = field.data;
        else if (field.number == FIELD_RAW_OUTPUT_CONTENTS && parts->raw_count < SHOAL_TENSORS_MAX)
            parts->raws[parts->raw_count++] = field.data;
    }
    bool has_all = parts->raw_count == parts->output_count || parts->raw_count == 0;
    bool whole = result == WIRE_END && has_all;
    return whole ? STATUS_OK : impossible(error);
}

/* ---- typed contents, which external runtimes may answer with ---- */

static enum status
count_elements(const struct json_output *output, uint64_t *elements, struct error *error)
{
    *elements = 1;
    for (uint32_t i = 0; i < output->rank; i++)
        if (output->shape[i] < 0 ||
            __builtin_mul_overflow(*elements, (uint64_t)output->shape[i], elements))
            return impossible(error);
    return STATUS_OK;
}

/* Outputs to be written raw; `bytes` adds up. */
static enum status
check_typed(const struct json_output *output, uint64_t *bytes, struct error *error)
{
    uint64_t elements;
    uint64_t more = 0;
    uint32_t datatype = oip_datatype_from_name(output->datatype);
    if (datatype == 0 || count_elements(output, &elements, error) != STATUS_OK ||
        oip_typed_check(output->contents, datatype, elements, &more, error) != STATUS_OK)
        return impossible(error);
    *bytes += more;
    return STATUS_OK;
}

/* Gives all outputs raw contents, in memory of the answer's. `spans`: one for each. */
static enum status
make_raw(struct json_answer_parts *parts, struct oip_json_answer *answer, struct wire_span *spans,
         struct error *error)
{
    struct json_output output;
    uint64_t total = 0;
    for (uint32_t i = 0; i < parts->output_count; i++)
        if (oip_json_read_output(&output, parts->outputs[i], error) != STATUS_OK ||
            check_typed(&output, &total, error) != STATUS_OK)
            return error->status;
    unsigned char *to = answer->typed = malloc(total + 1);
    if (to == NULL)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to write the answer");
    for (uint32_t i = 0; i < parts->output_count; i++) {
        uint64_t bytes = 0;
        if (oip_json_read_output(&output, parts->outputs[i], error) != STATUS_OK ||
            check_typed(&output, &bytes, error) != STATUS_OK)
            return error->status;
        oip_typed_write(output.contents, oip_datatype_from_name(output.datatype), to, bytes);
        spans[i] = (struct wire_span){to, bytes};
        parts->raws[i] = (struct wire_cursor){.spans = &spans[i], .left = bytes};
        to += bytes;
    }
    return STATUS_OK;
}

/* ---- the JSON ---- */

static void
put_cursor(struct json *json, struct wire_cursor cursor)
{
    struct bytes text = {0};
    size_t bytes = (size_t)cursor.left;
    char *room = bytes_reserve(&text, bytes);
    if (room != NULL) {
        wire_read(&cursor, room, bytes);
        json_put_text(json, room, bytes);
    } else {
        json->out->failed = true;
    }
    bytes_fini(&text);
}

static void
field_cursor(struct json *json, const char *name, struct wire_cursor cursor)
{
    json_name(json, name);
    put_cursor(json, cursor);
}

static void
field_text(struct json *json, const char *name, struct wire_cursor text)
{
    if (text.left > 0)
        field_cursor(json, name, text);
}

/* An entry of an output's parameters: key and value have one field each of a number. */
static void
put_parameter(struct json *json, struct wire_cursor entry)
{
    struct wire_field field = {0};
    while (wire_next(&entry, &field) == WIRE_FIELD && field.type == WIRE_BYTES) {
        if (field.number == FIELD_KEY) {
            put_cursor(json, field.data);
            bytes_put_char(json->out, ':');
            continue;
        }
        struct wire_cursor value = field.data;
        if (wire_next(&value, &field) != WIRE_FIELD)
            json_put_null(json);
        else if (field.type == WIRE_BYTES)
            put_cursor(json, field.data);
        else
            json_put_uint(json, field.value);
    }
}

/* Says where in shared memory the contents are. */
static void
put_place(struct json *json, const struct json_output *output)
{
    json_field_open(json, "parameters", '{');
    for (uint32_t i = 0; i < output->parameter_count; i++)
        put_parameter(json, output->parameters[i]);
    json_close(json, '}');
}

/* The spans of a tensor's contents. */
static void
lend(struct oip_json_answer *answer, struct wire_cursor contents)
{
    const unsigned char *data;
    size_t bytes;
    while ((bytes = wire_run(&contents, &data)) > 0) {
        answer->data[answer->data_count++] = (struct wire_span){data, bytes};
        wire_skip(&contents, bytes);
    }
    answer->binary = true;
}

static enum status
put_contents(struct json *json, struct oip_json_answer *answer, const struct json_output *output,
             const struct oip_json_form *form, struct wire_cursor contents, struct error *error)
{
    struct oip_json_tensor tensor = {
        .datatype = oip_datatype_from_name(output->datatype),
        .base64 = form->base64,
    };
    if (tensor.datatype == 0)
        return impossible(error);
    bool base64 = form->base64 && tensor.datatype == SHOAL_BYTES;
    if (form->binary || base64) {
        json_field_open(json, "parameters", '{');
        if (form->binary)
            json_field_uint(json, "binary_data_size", contents.left);
        else
            json_field_string(json, "content_type", "base64");
        json_close(json, '}');
    }
    if (form->binary) {
        lend(answer, contents);
        return STATUS_OK;
    }
    json_name(json, "data");
    return oip_json_data_write(json->out, contents, &tensor, error);
}

static enum status
put_output(struct json *json, struct oip_json_answer *answer, struct wire_cursor described,
           const struct oip_json_form *form, struct wire_cursor contents, struct error *error)
{
    struct json_output output;
    enum status status = oip_json_read_output(&output, described, error);
    if (status != STATUS_OK)
        return status;
    json_open(json, '{');
    field_cursor(json, "name", output.name);
    json_field_string(json, "datatype", output.datatype);
    json_field_open(json, "shape", '[');
    for (uint32_t i = 0; i < output.rank; i++)
        json_put_int(json, output.shape[i]);
    json_close(json, ']');
    if (form->is_shared)
        put_place(json, &output);
    else
        status = put_contents(json, answer, &output, form, contents, error);
    json_close(json, '}');
    if (status == STATUS_OK || output.name.left > SHOAL_NAME_BYTES_MAX)
        return status;
    char name[SHOAL_NAME_BYTES_MAX + 1] = {0};
    wire_read(&output.name, name, output.name.left);
    return error_prefix(error, "output \"%s\"", name);
}

static bool
is_named(const struct json_output *output, const char *name)
{
    char text[SHOAL_NAME_BYTES_MAX];
    struct wire_cursor cursor = output->name;
    size_t bytes = strlen(name);
    if (cursor.left != bytes || bytes > sizeof(text))
        return false;
    wire_read(&cursor, text, bytes);
    return memcmp(text, name, bytes) == 0;
}

/* Returns how the output is to be written. A piece need not have each output that was requested. */
static const struct oip_json_form *
form_of(const struct oip_json *json, enum oip_json_part part, uint32_t index,
        struct wire_cursor described)
{
    struct json_output output;
    struct error ignored = ERROR_NONE; /* put_output reports it */
    if (part == OIP_JSON_WHOLE)
        return index < json->output_count ? &json->outputs[index] : &json->form;
    if (oip_json_read_output(&output, described, &ignored) != STATUS_OK)
        return &json->form;
    for (uint32_t i = 0; i < json->output_count; i++)
        if (json->outputs[i].name != NULL && is_named(&output, json->outputs[i].name))
            return &json->outputs[i];
    return &json->form;
}

static enum status
put_outputs(struct json *text, const struct oip_json *json, const struct json_answer_parts *parts,
            enum oip_json_part part, struct oip_json_answer *answer, struct error *error)
{
    json_field_open(text, "outputs", '[');
    for (uint32_t i = 0; i < parts->output_count; i++) {
        struct wire_cursor described = parts->outputs[i];
        const struct oip_json_form *form = form_of(json, part, i, described);
        enum status status = put_output(text, answer, described, form, parts->raws[i], error);
        if (status != STATUS_OK)
            return status;
    }
    json_close(text, ']');
    return STATUS_OK;
}

/* `answer` may have text already. */
static enum status
write_answer(const struct oip_json *json, const struct wire_message *response,
             enum oip_json_part part, struct oip_json_answer *answer, struct error *error)
{
    struct json_answer_parts parts = {0};
    struct wire_span typed[SHOAL_TENSORS_MAX];
    enum status status = find_parts(response, &parts, error);
    if (status == STATUS_OK && parts.raw_count < parts.output_count)
        status = make_raw(&parts, answer, typed, error);
    if (status != STATUS_OK)
        return status;
    if (json->rows)
        return oip_json_write_rows(&answer->text, &parts, error);
    /* the end of each tensor can split a span */
    answer->data = calloc(response->span_count + SHOAL_TENSORS_MAX, sizeof(answer->data[0]));
    CHECK(answer->data != NULL);
    struct json text = json_begin(&answer->text, JSON_STYLE_SHORT);
    json_open(&text, '{');
    field_text(&text, "model_name", parts.texts[FIELD_MODEL_NAME]);
    field_text(&text, "model_version", parts.texts[FIELD_MODEL_VERSION]);
    field_text(&text, "id", parts.texts[FIELD_ID]);
    if (part != OIP_JSON_WHOLE && !json->members) {
        json_field_open(&text, "parameters", '{');
        json_field_bool(&text, "triton_final_response", part == OIP_JSON_LAST);
        json_close(&text, '}');
    }
    status = json->members ? oip_json_write_members(&text, &parts, error)
                           : put_outputs(&text, json, &parts, part, answer, error);
    json_close(&text, '}');
    if (status == STATUS_OK && answer->text.failed)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to write the answer");
    return status;
}

enum status
oip_json_write(const struct oip_json *json, const struct wire_message *response,
               struct oip_json_answer *answer, struct error *error)
{
    *answer = (struct oip_json_answer){0};
    return write_answer(json, response, OIP_JSON_WHOLE, answer, error);
}

enum status
oip_json_append(const struct oip_json *json, const struct wire_message *response,
                enum oip_json_part part, struct bytes *text, struct error *error)
{
    struct oip_json_answer answer = {.text = *text};
    enum status status = write_answer(json, response, part, &answer, error);
    *text = answer.text;
    answer.text = (struct bytes){0};
    oip_json_answer_fini(&answer);
    return status;
}

void
oip_json_answer_fini(struct oip_json_answer *answer)
{
    bytes_fini(&answer->text);
    free(answer->data);
    free(answer->typed);
    *answer = (struct oip_json_answer){0};
}

void
oip_json_put_error(struct bytes *out, const char *text)
{
    struct bytes clean = {0};
    size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes;) {
        size_t length = utf8_length(text + at, bytes - at);
        bytes_put(&clean, length > 0 ? text + at : "?", length > 0 ? length : 1);
        at += length > 0 ? length : 1;
    }
    struct json json = json_begin(out, JSON_STYLE_SHORT);
    json_open(&json, '{');
    json_name(&json, "error");
    json_put_text(&json, clean.data != NULL ? clean.data : "", clean.used);
    json_close(&json, '}');
    bytes_fini(&clean);
}
