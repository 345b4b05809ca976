/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/greeting.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/json.h"
#include "base/log.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "ipc/spec.h"

enum {
    LITERALS_MAX = 16,        /* elements that are written one by one */
    COMMAND_BYTES_MAX = 1500, /* so that it fits a line of the log, as JSON too */
};
static_assert(COMMAND_BYTES_MAX < LOG_LINE_BYTES_MAX * 3 / 4, "room for escapes");

/* ---- tensors ---- */

static void
put_number(struct bytes *out, int64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, number);
    bytes_put_text(out, text);
}

static void
put_shape(struct bytes *out, const struct handshake_tensor *tensor, int64_t free_dimension)
{
    bytes_put_text(out, "[");
    for (uint32_t i = 0; i < tensor->rank; i++) {
        bytes_put_text(out, i > 0 ? ", " : "");
        put_number(out, tensor->shape[i] < 0 ? free_dimension : tensor->shape[i]);
    }
    bytes_put_text(out, "]");
}

static void
put_tensors(struct bytes *out, const struct handshake_tensor *tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bytes_put_text(out, i > 0 ? ", " : "");
        bytes_put_text(out, tensors[i].name);
        bytes_put_text(out, " ");
        bytes_put_text(out, tensors[i].datatype == SHOAL_DATATYPE_ANY
                                ? "any"
                                : datatype_name(tensors[i].datatype));
        bytes_put_text(out, " ");
        put_shape(out, &tensors[i], -1);
    }
    if (count == 0)
        bytes_put_text(out, "any tensors");
}

/* ---- a command that calls the model ---- */

/* The elements of a tensor whose free dimensions are 1; INT64_MAX: at least as many. */
static int64_t
elements_of(const struct handshake_tensor *tensor)
{
    int64_t elements = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        int64_t dimension = tensor->shape[i] < 0 ? 1 : tensor->shape[i];
        if (__builtin_mul_overflow(elements, dimension, &elements))
            return INT64_MAX;
    }
    return elements;
}

/* An element as JSON; NULL: JSON has none of this type. */
static const char *
literal_of(uint32_t datatype, int64_t elements)
{
    switch (datatype) {
    case SHOAL_BOOL: return "false";
    case SHOAL_BYTES: return "\"text\"";
    case SHOAL_FP16:
    case SHOAL_BF16:
    case SHOAL_DATATYPE_ANY: return NULL;
    default: return elements > LITERALS_MAX ? "1" : "0";
    }
}

/* A long list is made by the shell: one argument of a command holds at most 128 KiB. The text is
 * within single quotes before and after it. */
static void
put_data(struct bytes *out, const struct handshake_tensor *tensor)
{
    int64_t elements = elements_of(tensor);
    const char *literal = literal_of(tensor->datatype, elements);
    if (elements > LITERALS_MAX) {
        bytes_put_text(out, "'; yes '");
        bytes_put_text(out, literal);
        bytes_put_text(out, "' | head -n ");
        put_number(out, elements);
        bytes_put_text(out, " | paste -sd, -; printf %s '");
        return;
    }
    for (int64_t i = 0; i < elements; i++) {
        bytes_put_text(out, i > 0 ? ", " : "");
        bytes_put_text(out, literal);
    }
}

/* Within single quotes of a shell. */
static void
put_quoted(struct bytes *out, const char *text)
{
    struct bytes json = {0};
    json_quote(&json, text, strlen(text), JSON_STYLE_NUMERIC);
    for (size_t i = 0; i < json.used; i++) {
        if (json.data[i] == '\'')
            bytes_put_text(out, "\\u0027");
        else
            bytes_put_char(out, json.data[i]);
    }
    out->failed = out->failed || json.failed;
    bytes_fini(&json);
}

static void
put_path(struct bytes *out, const char *id)
{
    char escaped[4];
    for (const char *at = id; *at != '\0'; at++) {
        if (isalnum((unsigned char)*at) || strchr("-._~", *at) != NULL) {
            bytes_put_char(out, *at);
            continue;
        }
        snprintf(escaped, sizeof(escaped), "%%%02X", (unsigned)(unsigned char)*at);
        bytes_put_text(out, escaped);
    }
}

static void
put_body(struct bytes *out, const struct oip_model_info *info)
{
    bytes_put_text(out, "'{\"inputs\": [");
    for (uint32_t i = 0; i < info->input_count; i++) {
        const struct handshake_tensor *tensor = &info->inputs[i];
        bytes_put_text(out, i > 0 ? ", {\"name\": " : "{\"name\": ");
        put_quoted(out, tensor->name);
        bytes_put_text(out, ", \"datatype\": \"");
        bytes_put_text(out, datatype_name(tensor->datatype));
        bytes_put_text(out, "\", \"shape\": ");
        put_shape(out, tensor, 1);
        bytes_put_text(out, ", \"data\": [");
        put_data(out, tensor);
        bytes_put_text(out, "]}");
    }
    bytes_put_text(out, "]}'");
}

static void
put_curl(struct bytes *out, const char *http, const char *id)
{
    bytes_put_text(out, "curl -s http://");
    bytes_put_text(out, http);
    bytes_put_text(out, "/v2/models/");
    put_path(out, id);
    bytes_put_text(out, "/infer --json ");
}

static void
put_command(struct bytes *out, const char *http, const struct oip_model_info *info)
{
    bool is_piped = false;
    for (uint32_t i = 0; i < info->input_count; i++)
        is_piped = is_piped || elements_of(&info->inputs[i]) > LITERALS_MAX;
    if (is_piped) {
        bytes_put_text(out, "{ printf %s ");
        put_body(out, info);
        bytes_put_text(out, "; } | ");
        put_curl(out, http, info->name);
        bytes_put_text(out, "@-");
    } else {
        put_curl(out, http, info->name);
        put_body(out, info);
    }
}

/* The bytes that a tensor takes in a message: of its JSON, or of its elements if they are more. */
static uint64_t
message_bytes_of(const struct handshake_tensor *tensor)
{
    uint64_t bytes;
    int64_t elements = elements_of(tensor);
    uint64_t each = strlen(literal_of(tensor->datatype, elements)) + strlen(",");
    if (each < shoal_datatype_bytes(tensor->datatype))
        each = shoal_datatype_bytes(tensor->datatype);
    return __builtin_mul_overflow((uint64_t)elements, each, &bytes) ? UINT64_MAX : bytes;
}

/* Writes why there is no command; nothing if there can be one. */
static void
put_obstacle(struct bytes *out, uint64_t message_bytes_max, const struct oip_model_info *info)
{
    uint64_t room =
        message_bytes_max > COMMAND_BYTES_MAX ? message_bytes_max - COMMAND_BYTES_MAX : 0;
    if (info->input_count == 0)
        bytes_put_text(out, "the model declares no inputs");
    for (uint32_t i = 0; i < info->input_count && out->used == 0; i++) {
        const struct handshake_tensor *tensor = &info->inputs[i];
        if (tensor->datatype == SHOAL_DATATYPE_ANY) {
            bytes_put_text(out, "the model takes any datatype as ");
            put_quoted(out, tensor->name);
        } else if (literal_of(tensor->datatype, 0) == NULL) {
            bytes_put_text(out, "JSON has no ");
            bytes_put_text(out, datatype_name(tensor->datatype));
            bytes_put_text(out, ", send it as binary data");
        } else if (message_bytes_of(tensor) > room) {
            bytes_put_text(out, "the input is larger than `message_mib`");
        } else {
            room -= message_bytes_of(tensor);
        }
    }
}

static void
put_line(struct bytes *line)
{
    if (!line->failed)
        log_plain("%.*s", (int)line->used, line->data);
    bytes_fini(line);
}

static void
greet_command(const struct greeting *greeting, const struct oip_model_info *info)
{
    struct bytes line = {0};
    struct bytes command = {0};
    struct bytes obstacle = {0};
    put_obstacle(&obstacle, greeting->message_bytes_max, info);
    if (obstacle.used == 0)
        put_command(&command, greeting->http, info);
    if (command.used > COMMAND_BYTES_MAX)
        bytes_put_text(&obstacle, "it would be too long");
    bytes_put_text(&line, obstacle.used == 0 ? "  " : "  (no command: ");
    if (obstacle.used == 0)
        bytes_put(&line, command.data, command.used);
    else
        bytes_put(&line, obstacle.data, obstacle.used);
    bytes_put_text(&line, obstacle.used == 0 ? "" : ")");
    line.failed = line.failed || command.failed || obstacle.failed;
    put_line(&line);
    bytes_fini(&command);
    bytes_fini(&obstacle);
}

static void
greet_model(struct greeting *greeting, const struct oip_model_info *info)
{
    struct bytes line = {0};
    if (greeting->models++ >= GREETED_MODELS_MAX)
        return;
    bytes_put_text(&line, info->name);
    bytes_put_text(&line, ": ");
    put_tensors(&line, info->inputs, info->input_count);
    bytes_put_text(&line, " -> ");
    put_tensors(&line, info->outputs, info->output_count);
    put_line(&line);
    if (greeting->http != NULL)
        greet_command(greeting, info);
    if (greeting->models == GREETED_MODELS_MAX)
        log_plain("Further models are not announced here; `shoalctl model list` shows all.");
}

static void
on_loaded(void *context, const char *id)
{
    struct greeting *greeting = context;
    struct oip_model_info info;
    struct model_description reported;
    const struct model_name name = {id, strlen(id), ""};
    if (greeting->models >= GREETED_MODELS_MAX ||
        !registry_describe(greeting->registry, &name, &info, &reported))
        return;
    if (strcmp(info.name, id) == 0) /* not a release beside its model */
        greet_model(greeting, &info);
    model_leave(reported.model);
}

static bool
greet_loaded(void *context, const struct model_row *row)
{
    if (row->state == MODEL_IS_LOADED)
        on_loaded(context, row->id);
    return true;
}

static void
greet_addresses(const struct greeting *greeting, const struct config *config)
{
    log_plain("shoald serves gRPC on %s%s%s%s%s.", config->listen.items[0],
              greeting->http != NULL ? ", HTTP on http://" : "",
              greeting->http != NULL ? greeting->http : "",
              config->metrics.count > 0 ? ", metrics on http://" : "",
              config->metrics.count > 0 ? config->metrics.items[0] : "");
    if (config->dashboard.addresses.count > 0)
        log_plain("See it at http://%s/", config->dashboard.addresses.items[0]);
}

void
greeting_start(struct greeting *greeting, const struct config *config,
               struct model_registry *registry, struct pipeline *const *pipelines, uint32_t count)
{
    *greeting = (struct greeting){.registry = registry,
                                  .http = config->http.count > 0 ? config->http.items[0] : NULL,
                                  .message_bytes_max = config->message_bytes_max};
    bool has_fixed = false;
    greet_addresses(greeting, config);
    for (uint32_t i = 0; i < count; i++) {
        struct oip_model_info info;
        bool ready;
        struct lane *lane = pipeline_describe(pipelines[i], &info, &ready);
        has_fixed = has_fixed || pipelines[i]->catalog == NULL;
        if (pipelines[i]->catalog == NULL)
            greet_model(greeting, &info);
        if (lane != NULL)
            lane_unref(lane);
    }
    if (has_fixed)
        log_plain(
            "A changed file is read by `shoalctl reload`; one in a folder of models by itself.");
    registry_on_loaded(registry, on_loaded, greeting);
    const struct model_range all = {.from = "", .most = UINT32_MAX};
    (void)models_visit(registry, &all, greet_loaded, greeting);
}
