/* SPDX-License-Identifier: Apache-2.0 */
/* modelet.c in C++: nothing may leave `run` as an exception. */
#include <exception>

#include <shoal/modelet.h>

static int
run(void *, void *, struct shoal_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        struct shoal_item *item = batch->items[i];
        try {
            item->status = batch->host->forward(item, 0, "output");
        } catch (const std::exception &failure) {
            batch->host->fail(item, SHOAL_INTERNAL, "%s", failure.what());
        }
    }
    return SHOAL_OK;
}

static struct shoal_modelet
describe()
{
    struct shoal_modelet modelet = {SHOAL_MODELET_HEADER};
    modelet.name = "outside_cpp";
    modelet.run = run;
    return modelet;
}

extern "C" const struct shoal_modelet shoal_modelet = describe();
