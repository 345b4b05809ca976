/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>

#include "outputs.h"

int
runner_open(struct runner *runner, const struct engine *engine, uint32_t batch_size,
            struct shoal_error *error)
{
    size_t count = batch_size > 1 ? batch_size : 1;
    runner->engine = engine;
    runner->parts = calloc(count, sizeof *runner->parts);
    runner->group = calloc(count, sizeof *runner->group);
    if (runner->parts != NULL && runner->group != NULL)
        return SHOAL_OK;
    snprintf(error->text, sizeof error->text, "no memory for batches of %u items", batch_size);
    return SHOAL_RESOURCE_EXHAUSTED;
}

void
runner_close(struct runner *runner)
{
    free(runner->parts);
    free(runner->group);
    free(runner->gathered.bytes);
}

static int
session_run(const struct engine *engine, const struct onnx_model *model, OrtValue *const *inputs,
            OrtValue **outputs, struct shoal_error *error)
{
    const char *input_names[SHOAL_TENSORS_MAX];
    const char *output_names[SHOAL_TENSORS_MAX];
    for (uint32_t i = 0; i < model->input_count; i++)
        input_names[i] = model->inputs[i].name;
    for (uint32_t i = 0; i < model->output_count; i++)
        output_names[i] = model->outputs[i].name;
    OrtStatus *status = engine->api->Run(model->session, engine->run_options, input_names,
                                         (const OrtValue *const *)inputs, model->input_count,
                                         output_names, model->output_count, outputs);
    return engine_status(engine, status, error);
}

static void
values_release(const struct engine *engine, OrtValue **values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (values[i] != NULL)
            engine->api->ReleaseValue(values[i]);
    }
}

/* A part that lent its outputs cannot get others: they may have a wrong shape, so it fails. The
 * next part's shapes are asked anew. */
static void
part_run(struct runner *runner, struct onnx_model *model, struct part *part)
{
    const struct engine *engine = runner->engine;
    OrtValue *inputs[SHOAL_TENSORS_MAX] = {NULL};
    OrtValue *outputs[SHOAL_TENSORS_MAX] = {NULL};
    bool lent[SHOAL_TENSORS_MAX];
    struct shoal_error error = {{0}};
    part->done = true;
    int status = inputs_make(engine, model, &runner->gathered, &part, 1, inputs, &error);
    bool ready = status == SHOAL_OK && outputs_lend(engine, model, part, outputs);
    for (uint32_t i = 0; i < model->output_count; i++)
        lent[i] = outputs[i] != NULL;
    if (ready)
        status = session_run(engine, model, inputs, outputs, &error);
    if (ready && status == SHOAL_OK)
        outputs_give(engine, model, &part, 1, outputs, lent);
    if (ready && status != SHOAL_OK && model->shapes_seen == SHAPES_AS_SAID)
        model->shapes_seen = SHAPES_UNSEEN;
    if (status != SHOAL_OK)
        engine->host->fail(part->item, status, "%s", error.text);
    values_release(engine, inputs, model->input_count);
    values_release(engine, outputs, model->output_count);
}

/* False: run them one by one. */
static bool
group_run(struct runner *runner, struct onnx_model *model, size_t part_count)
{
    static const bool lent[SHOAL_TENSORS_MAX];
    const struct engine *engine = runner->engine;
    OrtValue *inputs[SHOAL_TENSORS_MAX] = {NULL};
    OrtValue *outputs[SHOAL_TENSORS_MAX] = {NULL};
    struct shoal_error error = {{0}};
    bool given = false;
    int status =
        inputs_make(engine, model, &runner->gathered, runner->group, part_count, inputs, &error);
    if (status == SHOAL_OK)
        status = session_run(engine, model, inputs, outputs, &error);
    if (status == SHOAL_OK) {
        given = outputs_give(engine, model, runner->group, part_count, outputs, lent);
        if (!given) {
            model->batches = false;
            engine->host->log(SHOAL_LOG_WARN,
                              "model %s does not return one row per row: its items run one by one",
                              model->folder.path);
        }
    }
    values_release(engine, inputs, model->input_count);
    values_release(engine, outputs, model->output_count);
    return given;
}

/* Collects the part at `first` and all later ones that can run with it. */
static size_t
group_gather(struct runner *runner, const struct onnx_model *model, uint32_t first, uint32_t count)
{
    size_t part_count = 0;
    struct part *leader = &runner->parts[first];
    runner->group[part_count++] = leader;
    for (uint32_t i = first + 1; i < count && model->batches; i++) {
        struct part *part = &runner->parts[i];
        if (!part->done && part_fits(leader, part, model->input_count))
            runner->group[part_count++] = part;
    }
    return part_count;
}

void
runner_run(struct runner *runner, struct onnx_model *model, const struct shoal_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++)
        part_init(&runner->parts[i], model, batch->host, batch->items[i]);
    for (uint32_t i = 0; i < batch->count; i++) {
        if (runner->parts[i].done)
            continue;
        size_t part_count = group_gather(runner, model, i, batch->count);
        bool given = part_count > 1 && group_run(runner, model, part_count);
        for (size_t k = 0; k < part_count; k++) {
            if (given)
                runner->group[k]->done = true;
            else
                part_run(runner, model, runner->group[k]);
        }
    }
}
