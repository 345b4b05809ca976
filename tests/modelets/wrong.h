/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A modelet that is right but for what WRONG says: the initializers in it come last and win.
 */
#pragma once

#include <shoal/modelet.h>

#pragma GCC diagnostic ignored "-Woverride-init"

static int
run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++)
        batch->items[i]->status = batch->host->forward(batch->items[i], 0, "output");
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {SHOAL_MODELET_HEADER, .name = "wrong", .run = run,
                                            WRONG};
