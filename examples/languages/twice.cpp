/* SPDX-License-Identifier: Apache-2.0 */
/* A modelet in C++: it multiplies every number by the stage's parameter `factor`. */
#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include <shoal/modelet.h>

namespace {

struct Instance {
    float factor = 1;

    explicit Instance(const shoal_open &open)
    {
        for (uint32_t i = 0; i < open.param_count; i++) {
            const std::string value = open.params[i].value;
            size_t used = 0;
            if (std::string("factor") != open.params[i].name)
                throw std::invalid_argument("there is no such parameter");
            factor = std::stof(value, &used);
            if (used != value.size())
                throw std::invalid_argument("factor: not a number");
        }
    }

    void run(const shoal_host &host, shoal_item &item) const
    {
        const shoal_tensor &x = item.inputs[0];
        const auto *from = static_cast<const float *>(x.data);
        auto *y = static_cast<float *>(host.output(&item, "y", SHOAL_FP32, x.rank, x.shape));
        if (y == nullptr)
            return; // status and text are set already
        std::transform(from, from + shoal_tensor_elements(&x), y,
                       [this](float value) { return factor * value; });
        item.status = SHOAL_OK;
    }
};

/* No exception may leave a function that Shoal calls. */
int
open(const shoal_open *open, void **instance, shoal_error *error)
{
    try {
        *instance = new Instance(*open);
        return SHOAL_OK;
    } catch (const std::exception &failure) {
        std::snprintf(error->text, sizeof(error->text), "%s", failure.what());
        return SHOAL_INVALID_ARGUMENT;
    }
}

int
describe(void *, shoal_io *io, shoal_error *)
{
    static const shoal_tensor_spec x = {"x", SHOAL_FP32, 1, {-1}};
    static const shoal_tensor_spec y = {"y", SHOAL_FP32, 1, {-1}};
    io->input_count = io->output_count = 1;
    io->inputs = &x;
    io->outputs = &y;
    return SHOAL_OK;
}

int
run(void *instance, void *, shoal_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        try {
            static_cast<Instance *>(instance)->run(*batch->host, *batch->items[i]);
        } catch (const std::exception &failure) {
            batch->host->fail(batch->items[i], SHOAL_INTERNAL, "%s", failure.what());
        }
    }
    return SHOAL_OK;
}

void
close(void *instance)
{
    delete static_cast<Instance *>(instance);
}

/* C++17 has no designated initializers; this is done before the plug-in is looked at. */
struct shoal_modelet
make()
{
    struct shoal_modelet modelet = {SHOAL_MODELET_HEADER};
    modelet.abilities = SHOAL_RUNS_BATCHES;
    modelet.name = "twice";
    modelet.open = open;
    modelet.describe = describe;
    modelet.run = run;
    modelet.close = close;
    return modelet;
}

} // namespace

extern "C" const struct shoal_modelet shoal_modelet = make();
