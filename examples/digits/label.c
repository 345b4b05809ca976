/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last stage: labels each row with its most probable class and passes the probabilities on
 * without a copy.
 */
#include <shoal/modelet.h>
#include <string.h>

enum { CLASSES = 10 };

static const struct shoal_tensor_spec inputs[] = {
    {"probabilities", SHOAL_FP32, 2, {-1, CLASSES}},
};
static const struct shoal_tensor_spec outputs[] = {
    {"label", SHOAL_INT64, 1, {-1}},
    {"probabilities", SHOAL_FP32, 2, {-1, CLASSES}},
};

static int
label_describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    (void)instance;
    (void)error;
    io->inputs = inputs;
    io->input_count = 1;
    io->outputs = outputs;
    io->output_count = 2;
    return SHOAL_OK;
}

/* Returns the first maximum. */
static int64_t
most_probable(const float *probabilities)
{
    int64_t best = 0;
    for (int64_t class = 1; class < CLASSES; class ++) {
        if (probabilities[class] > probabilities[best])
            best = class;
    }
    return best;
}

static int32_t
label_item(const struct shoal_host *host, struct shoal_item *item)
{
    const struct shoal_tensor *tensor = item->inputs;
    if (item->input_count != 1 || strcmp(tensor->name, "probabilities") != 0 ||
        tensor->datatype != SHOAL_FP32 || tensor->rank != 2 || tensor->shape[1] != CLASSES)
        return host->fail(item, SHOAL_INVALID_ARGUMENT,
                          "there must be one input tensor, \"probabilities\", FP32 [n, 10]");
    int64_t *labels = host->output(item, "label", SHOAL_INT64, 1, tensor->shape);
    if (labels == NULL)
        return item->status;
    const float *probabilities = tensor->data;
    for (int64_t row = 0; row < tensor->shape[0]; row++)
        labels[row] = most_probable(probabilities + row * CLASSES);
    return host->forward(item, 0, "probabilities");
}

static int
label_run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++)
        batch->items[i]->status = label_item(batch->host, batch->items[i]);
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER, .abilities = SHOAL_RUNS_BATCHES, .name = "label",
    .version = "1",       .describe = label_describe,      .run = label_run,
};
