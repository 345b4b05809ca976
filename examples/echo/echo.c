/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest modelet: every input becomes the output of the same name, without a copy. */
#include <shoal/modelet.h>

static int
run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct shoal_item *item = batch->items[i];
        if (item->input_count == 0) { /* an item must have an output */
            item->status =
                batch->host->fail(item, SHOAL_INVALID_ARGUMENT, "there is no input to echo");
            continue;
        }
        int32_t status = SHOAL_OK;
        for (uint32_t k = 0; k < item->input_count && status == SHOAL_OK; k++)
            status = batch->host->forward(item, k, item->inputs[k].name);
        item->status = status;
    }
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER, .abilities = SHOAL_RUNS_BATCHES, .name = "echo", .version = "1",
    .run = run,
};
