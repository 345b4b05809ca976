/* SPDX-License-Identifier: Apache-2.0 */
/* It emits a piece, but has no extension "stream". */
#include <shoal/modelet.h>

static int
run_and_emit(void *instance, void *model, struct shoal_batch *batch)
{
    static const int64_t one = 1;
    (void)instance;
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct shoal_item *item = batch->items[i];
        if (batch->host->output(item, "piece", SHOAL_INT8, 1, &one) != NULL)
            item->status = batch->host->emit(item);
    }
    return SHOAL_OK;
}

#define WRONG .run = run_and_emit
#include "wrong.h"
