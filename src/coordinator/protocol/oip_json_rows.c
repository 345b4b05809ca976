/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KServe's v1 protocol: {"instances": […]}, one row for each instance, becomes tensors whose first
 * dimension counts the rows, by what the model declares. An instance is the row of the only input,
 * or an object with a row for each input. The shape is measured in the first row; the reader of
 * elements then checks that all of the text has it. Objects are turned into one text per input.
 */
#include <string.h>

#include "coordinator/protocol/oip_contents.h"
#include "coordinator/protocol/oip_json_request.h"
#include "coordinator/protocol/oip_json_walk.h"

/* ---- tensors ---- */

static enum status
wrong_depth(struct json_reading *reading, const struct handshake_tensor *spec, uint32_t depth)
{
    return REFUSE(reading,
                  "tensor \"%s\": the instances are nested %u deep, but the model's input has %u "
                  "dimensions, the first of which counts instances",
                  spec->name, depth, spec->rank);
}

/* The rank is the declared one, or for any rank as deep as the first row goes. */
static enum status
measure(struct json_reading *reading, const struct handshake_tensor *spec,
        const struct json_run *run, struct oip_json_tensor *tensor, int64_t shape[SHOAL_RANK_MAX])
{
    struct json_run here = *run;
    uint32_t depth = 0;
    bool any_rank = spec->rank == SHOAL_RANK_ANY;
    while (here.bytes > 0 && here.text[0] == '[' && depth < SHOAL_RANK_MAX) {
        struct json_run first;
        shape[depth++] = (int64_t)json_walk_count(&here, &first);
        here = first;
    }
    bool is_empty = here.bytes == 0;
    while (is_empty && !any_rank && depth < spec->rank) {
        shape[depth] = spec->shape[depth] < 0 ? 0 : spec->shape[depth];
        depth++;
    }
    if (!any_rank && depth != spec->rank)
        return wrong_depth(reading, spec, depth);
    tensor->datatype = spec->datatype;
    tensor->rank = depth;
    tensor->shape = shape;
    return STATUS_OK;
}

enum status
oip_json_add_rows(struct json_reading *reading, const struct handshake_tensor *spec,
                  const struct json_run *run)
{
    struct oip_json_tensor tensor = {0};
    int64_t shape[SHOAL_RANK_MAX];
    enum status status = measure(reading, spec, run, &tensor, shape);
    if (status != STATUS_OK)
        return status;
    Inference__ModelInferRequest__InferInputTensor *to = oip_add_input(reading->request);
    const char *datatype = oip_datatype_name(spec->datatype);
    status = oip_json_keep(reading, "inputs: name", spec->name, strlen(spec->name), &to->name);
    if (status == STATUS_OK)
        status =
            oip_json_keep(reading, "inputs: datatype", datatype, strlen(datatype), &to->datatype);
    size_t bytes = tensor.rank * sizeof(shape[0]);
    if (status == STATUS_OK)
        status = oip_count_small(reading->request, bytes, reading->error);
    if (status != STATUS_OK)
        return status;
    to->n_shape = tensor.rank;
    to->shape = bump_take(&reading->request->scratch, bytes);
    if (bytes > 0)
        memcpy(to->shape, shape, bytes);
    if (oip_json_put_run(reading, run, &tensor) != STATUS_OK)
        return error_prefix(reading->error, "tensor \"%s\"", spec->name);
    return STATUS_OK;
}

/* ---- instances that are objects ---- */

/* The rows of each input so far, as the text of an array. */
struct json_rows {
    struct json_reading *reading;
    struct bytes texts[SHOAL_TENSORS_MAX];
    uint64_t counts[SHOAL_TENSORS_MAX];
    uint64_t instance;
};

static enum status
put_row(struct json_rows *rows, const struct json_run *key, const struct json_run *value)
{
    const struct oip_model_info *model = rows->reading->ask->rows_of;
    uint32_t i = 0;
    while (i < model->input_count && !json_run_reads(key->text, key->bytes, model->inputs[i].name))
        i++;
    if (i == model->input_count)
        return REFUSE(rows->reading, "instance %llu: model \"%s\" has no input %.*s",
                      (unsigned long long)rows->instance, model->name,
                      key->bytes < 100 ? (int)key->bytes : 100, key->text);
    if (rows->counts[i] != rows->instance)
        return REFUSE(rows->reading, "instance %llu: input \"%s\" twice",
                      (unsigned long long)rows->instance, model->inputs[i].name);
    bytes_put_char(&rows->texts[i], rows->instance == 0 ? '[' : ',');
    bytes_put(&rows->texts[i], value->text, value->bytes);
    rows->counts[i]++;
    return STATUS_OK;
}

static enum status
no_object(const struct json_rows *rows)
{
    return REFUSE(rows->reading, "instance %llu is not a JSON object with an input's name and row",
                  (unsigned long long)rows->instance);
}

/* The walk is at a '{'. */
static enum status
read_object(struct json_rows *rows, struct json_walk *walk)
{
    const struct oip_model_info *model = rows->reading->ask->rows_of;
    walk->at++;
    do {
        struct json_run key;
        struct json_run value;
        if (!json_walk_member(walk, &key, &value))
            return no_object(rows);
        enum status status = put_row(rows, &key, &value);
        if (status != STATUS_OK)
            return status;
    } while (json_walk_goes_on(walk, '}'));
    if (walk->is_broken)
        return no_object(rows);
    for (uint32_t i = 0; i < model->input_count; i++)
        if (rows->counts[i] != rows->instance + 1)
            return REFUSE(rows->reading, "instance %llu: input \"%s\" is missing",
                          (unsigned long long)rows->instance, model->inputs[i].name);
    return STATUS_OK;
}

static enum status
read_objects(struct json_rows *rows, const struct json_run *run)
{
    struct json_walk walk = {.at = run->text + 1, .end = run->text + run->bytes};
    enum status status = STATUS_OK;
    do {
        status = json_walk_next(&walk) == '{' ? read_object(rows, &walk) : no_object(rows);
        rows->instance++;
    } while (status == STATUS_OK && json_walk_goes_on(&walk, ']'));
    if (status == STATUS_OK && (walk.is_broken || walk.at != walk.end))
        return no_object(rows);
    return status;
}

static enum status
add_texts(struct json_rows *rows)
{
    struct json_reading *reading = rows->reading;
    const struct oip_model_info *model = reading->ask->rows_of;
    enum status status = STATUS_OK;
    for (uint32_t i = 0; status == STATUS_OK && i < model->input_count; i++) {
        bytes_put_char(&rows->texts[i], ']');
        if (rows->texts[i].failed)
            return error_set(reading->error, STATUS_RESOURCE_EXHAUSTED,
                             "no memory to decode the request");
        const struct json_run run = {rows->texts[i].data, rows->texts[i].used};
        status = oip_json_add_rows(reading, &model->inputs[i], &run);
    }
    return status;
}

static enum status
read_named_rows(struct json_reading *reading, const struct json_run *run)
{
    struct json_rows rows = {.reading = reading};
    enum status status = read_objects(&rows, run);
    if (status == STATUS_OK)
        status = add_texts(&rows);
    for (size_t i = 0; i < SHOAL_TENSORS_MAX; i++)
        bytes_fini(&rows.texts[i]);
    return status;
}

/* ---- the request ---- */

/* Returns whether rows can be made of what the model declares. */
static enum status
check_specs(struct json_reading *reading)
{
    const struct oip_model_info *model = reading->ask->rows_of;
    if (model->input_count == 0)
        return error_set(reading->error, STATUS_UNIMPLEMENTED,
                         "model \"%s\" does not declare its inputs, which v1 needs: call it by "
                         "/v2/models/NAME/infer",
                         model->name);
    for (uint32_t i = 0; i < model->input_count; i++)
        if (model->inputs[i].datatype == SHOAL_DATATYPE_ANY || model->inputs[i].rank == 0)
            return error_set(reading->error, STATUS_UNIMPLEMENTED,
                             "model \"%s\": input \"%s\" takes %s, which `instances` do not give: "
                             "call it by /v2/models/NAME/infer",
                             model->name, model->inputs[i].name,
                             model->inputs[i].rank == 0 ? "no rows" : "any type");
    return STATUS_OK;
}

enum status
oip_json_read_rows(struct json_reading *reading)
{
    const struct oip_model_info *model = reading->ask->rows_of;
    enum status status = check_specs(reading);
    if (status != STATUS_OK)
        return status;
    if (reading->skim.run_count != 1)
        return REFUSE(reading, "\"instances\" must be an array, once");
    if (reading->binary_bytes > 0)
        return REFUSE(reading, "%zu bytes after the JSON belong to no input",
                      reading->binary_bytes);
    const struct json_run *run = &reading->skim.runs[0];
    struct json_run first;
    if (json_walk_count(run, &first) > 0 && first.text[0] == '{')
        return read_named_rows(reading, run);
    if (model->input_count > 1)
        return REFUSE(reading,
                      "model \"%s\" has %u inputs: each instance must be an object with a row for "
                      "each of them",
                      model->name, model->input_count);
    return oip_json_add_rows(reading, &model->inputs[0], run);
}
