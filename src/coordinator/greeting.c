/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/greeting.h"

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
    LITERALS_MAX = 16,     /* elements that are written one by one */
    SEQUENCE_MAX = 100000, /* elements that `seq` may write */
    LINE_MAX_BYTES = 1000, /* the log's lines end there */
};

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

/* The elements of a tensor whose free dimensions are 1; 0: more than can be written. */
static int64_t
elements_of(const struct handshake_tensor *tensor)
{
    int64_t elements = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        int64_t dimension = tensor->shape[i] < 0 ? 1 : tensor->shape[i];
        if (dimension == 0 || elements > SEQUENCE_MAX / dimension)
            return 0;
        elements *= dimension;
    }
    return elements;
}

/* An element as JSON; NULL: JSON has none of this type. */
static const char *
literal_of(uint32_t datatype)
{
    switch (datatype) {
    case SHOAL_BOOL: return "false";
    case SHOAL_BYTES: return "\"text\"";
    case SHOAL_FP16:
    case SHOAL_BF16:
    case SHOAL_DATATYPE_ANY: return NULL;
    default: return "0";
    }
}

/* False: it cannot be written in a line. */
static bool
put_data(struct bytes *out, const struct handshake_tensor *tensor)
{
    const char *literal = literal_of(tensor->datatype);
    int64_t elements = elements_of(tensor);
    if (literal == NULL || elements == 0)
        return false;
    if (elements > LITERALS_MAX) {
        if (literal[0] != '0' || shoal_datatype_bytes(tensor->datatype) < sizeof(float))
            return false;
        bytes_put_text(out, "'$(seq -s, ");
        put_number(out, elements);
        bytes_put_text(out, ")'");
        return true;
    }
    for (int64_t i = 0; i < elements; i++) {
        bytes_put_text(out, i > 0 ? ", " : "");
        bytes_put_text(out, literal);
    }
    return true;
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

static bool
put_command(struct bytes *out, const char *http, const struct oip_model_info *info)
{
    bytes_put_text(out, "  curl -s http://");
    bytes_put_text(out, http);
    bytes_put_text(out, "/v2/models/");
    put_path(out, info->name);
    bytes_put_text(out, "/infer --json '{\"inputs\": [");
    for (uint32_t i = 0; i < info->input_count; i++) {
        const struct handshake_tensor *tensor = &info->inputs[i];
        bytes_put_text(out, i > 0 ? ", {\"name\": " : "{\"name\": ");
        put_quoted(out, tensor->name);
        bytes_put_text(out, ", \"datatype\": \"");
        bytes_put_text(out, datatype_name(tensor->datatype));
        bytes_put_text(out, "\", \"shape\": ");
        put_shape(out, tensor, 1);
        bytes_put_text(out, ", \"data\": [");
        if (!put_data(out, tensor))
            return false;
        bytes_put_text(out, "]}");
    }
    bytes_put_text(out, "]}'");
    return info->input_count > 0 && out->used < LINE_MAX_BYTES;
}

static void
put_line(struct bytes *line)
{
    if (!line->failed)
        log_plain("%.*s", (int)line->used, line->data);
    bytes_fini(line);
}

static void
greet_model(struct greeting *greeting, const struct oip_model_info *info)
{
    struct bytes line = {0};
    struct bytes command = {0};
    if (greeting->models++ >= GREETED_MODELS_MAX)
        return;
    bytes_put_text(&line, info->name);
    bytes_put_text(&line, ": ");
    put_tensors(&line, info->inputs, info->input_count);
    bytes_put_text(&line, " -> ");
    put_tensors(&line, info->outputs, info->output_count);
    put_line(&line);
    if (greeting->http != NULL && put_command(&command, greeting->http, info))
        put_line(&command);
    else
        bytes_fini(&command);
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
                                  .http = config->http.count > 0 ? config->http.items[0] : NULL};
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
