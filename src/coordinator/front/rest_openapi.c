/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/rest_openapi.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "coordinator/front/rest_route.h"
#include "ipc/spec.h"

/* In OpenAPI 3.1 schemas are JSON Schema, which can state a tensor's shape. */
#define OPENAPI_VERSION "3.1.0"

static const char about[] =
    "The Open Inference Protocol (KServe v2), KServe's v1 and Triton's extensions. The paths that "
    "name a model are those of loaded models, of which a document has at most 100; ?after=NAME "
    "goes on after that model, ?limit=N asks for fewer.";

/* The schemas that rows name. */
static const char schemas[] =
    "{\"Object\":{\"type\":\"object\"},"
    "\"Error\":{\"type\":\"object\",\"required\":[\"error\"],"
    "\"properties\":{\"error\":{\"type\":\"string\"}}},"
    "\"Server\":{\"type\":\"object\",\"required\":[\"name\",\"version\",\"extensions\"],"
    "\"properties\":{\"name\":{\"type\":\"string\"},\"version\":{\"type\":\"string\"},"
    "\"extensions\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}},"
    "\"Health\":{\"type\":\"object\",\"required\":[\"live\"],"
    "\"properties\":{\"live\":{\"type\":\"boolean\"},\"ready\":{\"type\":\"boolean\"}}},"
    "\"Ready\":{\"type\":\"object\",\"required\":[\"name\",\"ready\"],"
    "\"properties\":{\"name\":{\"type\":\"string\"},\"ready\":{\"type\":\"boolean\"}}},"
    "\"Models\":{\"type\":\"object\",\"required\":[\"models\"],"
    "\"properties\":{\"models\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
    "\"next\":{\"type\":\"string\"}}},"
    "\"IndexRequest\":{\"type\":\"object\",\"properties\":{\"ready\":{\"type\":\"boolean\"}}},"
    "\"Index\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"name\","
    "\"version\",\"state\",\"reason\"]}},"
    "\"RegisterRequest\":{\"type\":\"object\",\"required\":[\"key\",\"byte_size\"],"
    "\"properties\":{\"key\":{\"type\":\"string\"},\"offset\":{\"type\":\"integer\"},"
    "\"byte_size\":{\"type\":\"integer\"}}},"
    "\"Regions\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"name\","
    "\"key\",\"offset\",\"byte_size\"]}},"
    "\"Shape\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},"
    "\"TensorMetadata\":{\"type\":\"object\",\"required\":[\"name\",\"datatype\",\"shape\"],"
    "\"properties\":{\"name\":{\"type\":\"string\"},\"datatype\":{\"type\":\"string\"},"
    "\"shape\":{\"$ref\":\"#/components/schemas/Shape\"}}},"
    "\"Model\":{\"type\":\"object\",\"required\":[\"name\",\"versions\",\"platform\",\"inputs\","
    "\"outputs\"],\"properties\":{\"name\":{\"type\":\"string\"},"
    "\"versions\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
    "\"platform\":{\"type\":\"string\"},"
    "\"inputs\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/TensorMetadata\"}},"
    "\"outputs\":{\"type\":\"array\","
    "\"items\":{\"$ref\":\"#/components/schemas/TensorMetadata\"}}}},"
    "\"Tensor\":{\"type\":\"object\",\"required\":[\"name\",\"datatype\",\"shape\"],"
    "\"properties\":{\"name\":{\"type\":\"string\"},\"datatype\":{\"type\":\"string\"},"
    "\"shape\":{\"$ref\":\"#/components/schemas/Shape\"},\"data\":{\"type\":\"array\"},"
    "\"parameters\":{\"type\":\"object\"}}},"
    "\"InferRequest\":{\"type\":\"object\",\"required\":[\"inputs\"],"
    "\"properties\":{\"id\":{\"type\":\"string\"},\"parameters\":{\"type\":\"object\"},"
    "\"inputs\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Tensor\"}},"
    "\"outputs\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"required\":[\"name\"],"
    "\"properties\":{\"name\":{\"type\":\"string\"},\"parameters\":{\"type\":\"object\"}}}}}},"
    "\"InferResponse\":{\"type\":\"object\",\"required\":[\"model_name\",\"outputs\"],"
    "\"properties\":{\"model_name\":{\"type\":\"string\"},\"model_version\":{\"type\":\"string\"},"
    "\"id\":{\"type\":\"string\"},"
    "\"outputs\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Tensor\"}}}},"
    "\"PredictRequest\":{\"type\":\"object\",\"required\":[\"instances\"],"
    "\"properties\":{\"instances\":{\"type\":\"array\"}}},"
    "\"PredictResponse\":{\"type\":\"object\",\"required\":[\"predictions\"],"
    "\"properties\":{\"predictions\":{\"type\":\"array\"}}},"
    "\"GenerateRequest\":{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\"},"
    "\"parameters\":{\"type\":\"object\"}}},"
    "\"GenerateResponse\":{\"type\":\"object\",\"required\":[\"model_name\"],"
    "\"properties\":{\"model_name\":{\"type\":\"string\"},"
    "\"model_version\":{\"type\":\"string\"},\"id\":{\"type\":\"string\"}}}}";

/* ---- operations ---- */

static void
put_reference(struct json *json, const char *schema)
{
    char text[80];
    snprintf(text, sizeof(text), "#/components/schemas/%s", schema);
    json_open(json, '{');
    json_field_string(json, "$ref", text);
    json_close(json, '}');
}

/* Opens the object that has a schema's name; two objects are to be closed. */
static void
open_content(struct json *json)
{
    json_field_open(json, "content", '{');
    json_field_open(json, "application/json", '{');
    json_name(json, "schema");
}

static void
close_content(struct json *json)
{
    json_close(json, '}');
    json_close(json, '}');
}

static void
open_response(struct json *json, const char *code, const char *description)
{
    json_field_open(json, code, '{');
    json_field_string(json, "description", description);
    open_content(json);
}

static void
close_response(struct json *json)
{
    close_content(json);
    json_close(json, '}');
}

static void
put_response(struct json *json, const char *code, const char *description, const char *schema)
{
    open_response(json, code, description);
    put_reference(json, schema);
    close_response(json);
}

/* "get_v2_models_model_ready": no two rows have the same words. */
static void
put_id(struct json *json, const char *verb, const char *path)
{
    char id[128];
    int bytes = snprintf(id, sizeof(id), "%s_", verb);
    bool was_letter = false;
    for (; *path != '\0' && bytes < (int)sizeof(id) - 2; path++) {
        bool is_letter = isalnum((unsigned char)*path) != 0;
        if (is_letter && !was_letter && id[bytes - 1] != '_')
            id[bytes++] = '_';
        if (is_letter)
            id[bytes++] = *path;
        was_letter = is_letter;
    }
    id[bytes] = '\0';
    json_field_string(json, "operationId", id);
}

static void
put_type(struct json *json, const char *type)
{
    json_field_open(json, "schema", '{');
    json_field_string(json, "type", type);
    json_close(json, '}');
    json_close(json, '}');
}

static void
put_query(struct json *json, const char *name, const char *type)
{
    json_open(json, '{');
    json_field_string(json, "name", name);
    json_field_string(json, "in", "query");
    put_type(json, type);
}

static void
put_variable(struct json *json, const char *name, size_t bytes)
{
    json_open(json, '{');
    json_name(json, "name");
    json_put_text(json, name, bytes);
    json_field_string(json, "in", "path");
    json_field_bool(json, "required", true);
    put_type(json, "string");
}

/* The variable parts of the path, and what the query of a list may have. */
static void
put_parameters(struct json *json, const struct rest_row *row)
{
    json_field_open(json, "parameters", '[');
    for (const char *at = strchr(row->path, '{'); at != NULL; at = strchr(at + 1, '{'))
        put_variable(json, at + 1, strcspn(at, "}") - 1);
    if (row->what == REST_MODELS || row->what == REST_OPENAPI) {
        put_query(json, "after", "string");
        put_query(json, "limit", "integer");
    }
    json_close(json, ']');
}

static void
put_form(struct json *json, const char *type, const char *schema)
{
    json_field_open(json, type, '{');
    json_name(json, "schema");
    put_reference(json, schema);
    json_close(json, '}');
}

/* JSON, and where the answer may come in pieces, events with such objects. */
static void
put_success(struct json *json, const struct rest_row *row)
{
    json_field_open(json, "200", '{');
    json_field_string(json, "description", "Success");
    json_field_open(json, "content", '{');
    if (row->what != REST_GENERATE_STREAM)
        put_form(json, "application/json", row->response);
    if (row->what == REST_INFER || row->what == REST_GENERATE_STREAM)
        put_form(json, "text/event-stream", row->response);
    json_close(json, '}');
    json_close(json, '}');
}

static void
put_row(struct json *json, const struct rest_row *row)
{
    const char *verb = rest_route_allows(row, HTTP_GET) == NULL ? "get" : "post";
    json_field_open(json, row->path, '{');
    json_field_open(json, verb, '{');
    json_field_string(json, "summary", row->summary);
    put_id(json, verb, row->path);
    put_parameters(json, row);
    if (row->request != NULL) {
        json_field_open(json, "requestBody", '{');
        open_content(json);
        put_reference(json, row->request);
        close_content(json);
        json_close(json, '}');
    }
    json_field_open(json, "responses", '{');
    put_success(json, row);
    put_response(json, "default", "An error", "Error");
    json_close(json, '}');
    json_close(json, '}');
    json_close(json, '}');
}

/* ---- models ---- */

static void
put_dimension(struct json *json, int64_t dimension)
{
    json_open(json, '{');
    if (dimension >= 0) {
        json_field_int(json, "const", dimension);
    } else {
        json_field_string(json, "type", "integer");
        json_field_int(json, "minimum", 0);
    }
    json_close(json, '}');
}

static void
put_shape(struct json *json, const struct handshake_tensor *tensor)
{
    json_field_open(json, "shape", '{');
    json_field_string(json, "type", "array");
    if (tensor->rank != SHOAL_RANK_ANY) {
        json_field_uint(json, "minItems", tensor->rank);
        json_field_uint(json, "maxItems", tensor->rank);
    }
    if (tensor->rank != SHOAL_RANK_ANY && tensor->rank > 0) {
        json_field_open(json, "prefixItems", '[');
        for (uint32_t i = 0; i < tensor->rank; i++)
            put_dimension(json, tensor->shape[i]);
        json_close(json, ']');
    }
    json_close(json, '}');
}

static void
put_const(struct json *json, const char *name, const char *value)
{
    json_field_open(json, name, '{');
    json_field_string(json, "const", value);
    json_close(json, '}');
}

static void
put_tensor(struct json *json, const struct handshake_tensor *tensor)
{
    json_open(json, '{');
    json_field_open(json, "properties", '{');
    put_const(json, "name", tensor->name);
    if (tensor->datatype != 0)
        put_const(json, "datatype", datatype_name(tensor->datatype));
    put_shape(json, tensor);
    json_close(json, '}');
    json_close(json, '}');
}

/* Narrows a message of the general schema to one model. */
static void
put_schema(struct json *json, const char *general, const char *member,
           const struct handshake_tensor *tensors, uint32_t count)
{
    json_open(json, '{');
    json_field_open(json, "allOf", '[');
    put_reference(json, general);
    json_open(json, '{');
    json_field_open(json, "properties", '{');
    json_field_open(json, member, '{');
    json_field_uint(json, "maxItems", count);
    if (strcmp(member, "inputs") == 0)
        json_field_uint(json, "minItems", count); /* of outputs a request may want some */
    json_field_open(json, "items", '{');
    json_field_open(json, "oneOf", '[');
    for (uint32_t i = 0; i < count; i++)
        put_tensor(json, &tensors[i]);
    json_close(json, ']');
    for (int i = 0; i < 3; i++)
        json_close(json, '}');
    json_close(json, '}');
    json_close(json, ']');
    json_close(json, '}');
}

/* The path by which the model is called, as the name must be sent. */
static void
put_path(struct json *json, const char *name)
{
    struct bytes path = {0};
    char code[4];
    bytes_put_text(&path, "/v2/models/");
    for (const char *at = name; *at != '\0'; at++) {
        bool is_plain = isalnum((unsigned char)*at) != 0 || strchr("-._~", *at) != NULL;
        snprintf(code, sizeof(code), is_plain ? "%c" : "%%%02X", (unsigned char)*at);
        bytes_put_text(&path, code);
    }
    bytes_put(&path, "/infer", sizeof("/infer"));
    json_field_open(json, path.failed ? "" : path.data, '{');
    bytes_fini(&path);
}

static void
put_model(struct json *json, const char *name, const struct oip_model_info *info)
{
    put_path(json, name);
    json_field_open(json, "post", '{');
    json_field_string(json, "summary", name);
    json_field_open(json, "requestBody", '{');
    open_content(json);
    put_schema(json, "InferRequest", "inputs", info->inputs, info->input_count);
    close_content(json);
    json_close(json, '}');
    json_field_open(json, "responses", '{');
    open_response(json, "200", "Success");
    if (info->output_count > 0)
        put_schema(json, "InferResponse", "outputs", info->outputs, info->output_count);
    else
        put_reference(json, "InferResponse");
    close_response(json);
    put_response(json, "default", "An error", "Error");
    json_close(json, '}');
    json_close(json, '}');
    json_close(json, '}');
}

/* A model that is gone meanwhile, or takes any tensors, has only the general paths. */
static void
describe(struct json *json, const struct target_scope *scope, const char *name)
{
    struct oip_model_info info;
    struct target_description reported;
    struct error ignored = ERROR_NONE;
    bool ready;
    const struct oip_named named = {name, ""};
    if (target_describe(scope, &named, &info, &ready, &reported, &ignored) != STATUS_OK)
        return;
    if (info.input_count > 0)
        put_model(json, name, &info);
    target_forget(&reported);
}

enum { FIELD_MODELS = 1, FIELD_NAME = 1 };

/* The name in a row of the index; "": it has none, or one that is too long. */
static void
read_name(struct wire_cursor row, char name[SHOAL_NAME_BYTES_MAX + 1])
{
    struct wire_field field;
    name[0] = '\0';
    while (wire_next(&row, &field) == WIRE_FIELD) {
        if (field.number != FIELD_NAME || field.type != WIRE_BYTES ||
            field.value > SHOAL_NAME_BYTES_MAX)
            continue;
        wire_read(&field.data, name, field.value);
        name[field.value] = '\0';
    }
}

/* `last` gets the name of the last model that was looked at if there are more, else "". */
static void
put_models(struct json *json, const struct target_scope *scope, const struct wire_message *index,
           uint32_t limit, char last[SHOAL_NAME_BYTES_MAX + 1])
{
    struct wire_cursor cursor = wire_begin(index);
    struct wire_field field;
    uint32_t count = 0;
    last[0] = '\0';
    while (wire_next(&cursor, &field) == WIRE_FIELD) {
        if (field.number != FIELD_MODELS || field.type != WIRE_BYTES)
            continue;
        if (count == limit || json->out->used > OPENAPI_BYTES_MAX)
            return;
        count++;
        read_name(field.data, last);
        describe(json, scope, last);
    }
    last[0] = '\0';
}

void
rest_openapi_write(const struct target_scope *scope, const struct wire_message *index,
                   uint32_t limit, struct bytes *out)
{
    char last[SHOAL_NAME_BYTES_MAX + 1];
    struct json json = json_begin(out, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_field_string(&json, "openapi", OPENAPI_VERSION);
    json_field_open(&json, "info", '{');
    json_field_string(&json, "title", "Shoal");
    json_field_string(&json, "version", SHOAL_VERSION);
    json_field_string(&json, "description", about);
    json_close(&json, '}');
    json_field_open(&json, "paths", '{');
    for (size_t i = 0; i < rest_row_count; i++)
        put_row(&json, &rest_rows[i]);
    put_models(&json, scope, index, limit, last);
    json_close(&json, '}');
    json_field_open(&json, "components", '{');
    json_name(&json, "schemas");
    json_put_raw(&json, schemas, sizeof(schemas) - 1);
    json_close(&json, '}');
    if (last[0] != '\0')
        json_field_string(&json, "x-next-model", last);
    json_close(&json, '}');
}
