/* SPDX-License-Identifier: Apache-2.0 */
/* A modelet as an outside author would write it; test_install.sh builds it against the installed
 * package. */
#include <shoal/modelet.h>

static int
run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct shoal_item *item = batch->items[i];
        item->status = batch->host->forward(item, 0, "output");
    }
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {SHOAL_MODELET_HEADER, .name = "outside", .run = run};
