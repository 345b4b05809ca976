/* SPDX-License-Identifier: Apache-2.0 */
/* The first stage: multiplies tensor "x" by a factor, again as tensor "x". */
#include "number.h"

static int
scale_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    struct number *factor = malloc(sizeof *factor);
    if (factor == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    *factor = (struct number){.real = 2, .whole = 2, .is_whole = 1};
    int status = number_from_params(open, "factor", factor, error);
    if (status != SHOAL_OK) {
        free(factor);
        return status;
    }
    *instance = factor;
    return SHOAL_OK;
}

static void
scale_close(void *instance)
{
    free(instance);
}

/* Applies the factor to every element. Returns the number of elements before the first one that
 * overflows. */
static size_t
scale_elements(const struct number *factor, const struct shoal_tensor *x, void *out, size_t count)
{
    size_t i = 0;
    switch (x->datatype) {
    case SHOAL_FP32:
        for (const float *in = x->data; i < count; i++)
            ((float *)out)[i] = in[i] * (float)factor->real;
        break;
    case SHOAL_FP64:
        for (const double *in = x->data; i < count; i++)
            ((double *)out)[i] = in[i] * factor->real;
        break;
    case SHOAL_INT32:
        for (const int32_t *in = x->data; i < count; i++) {
            if (__builtin_mul_overflow(in[i], factor->whole, &((int32_t *)out)[i]))
                break;
        }
        break;
    default:
        for (const int64_t *in = x->data; i < count; i++) {
            if (__builtin_mul_overflow(in[i], factor->whole, &((int64_t *)out)[i]))
                break;
        }
    }
    return i;
}

static int32_t
scale_item(const struct number *factor, const struct shoal_host *host, struct shoal_item *item)
{
    const struct shoal_tensor *x = number_input(factor, "factor", host, item);
    if (x == NULL)
        return item->status;
    void *out = host->output(item, "x", x->datatype, x->rank, x->shape);
    if (out == NULL)
        return item->status;
    size_t count = shoal_tensor_elements(x);
    size_t fitting = scale_elements(factor, x, out, count);
    if (fitting < count)
        return host->fail(item, SHOAL_OUT_OF_RANGE, "tensor \"x\": element %zu * %lld overflows",
                          fitting, (long long)factor->whole);
    return SHOAL_OK;
}

static int
scale_describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    (void)instance;
    (void)error;
    static const struct shoal_tensor_spec x = {"x", SHOAL_DATATYPE_ANY, SHOAL_RANK_ANY, {0}};
    io->inputs = &x;
    io->outputs = &x;
    io->input_count = io->output_count = 1;
    return SHOAL_OK;
}

static int
scale_run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++)
        batch->items[i]->status = scale_item(instance, batch->host, batch->items[i]);
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER, .abilities = SHOAL_RUNS_BATCHES, .name = "scale",  .version = "1",
    .open = scale_open,   .describe = scale_describe,      .run = scale_run, .close = scale_close,
};
