/* SPDX-License-Identifier: Apache-2.0 */
/* The second stage: adds an offset to tensor "x" and returns it as tensor "y". */
#include "number.h"

static int
shift_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    struct number *offset = malloc(sizeof *offset);
    if (offset == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    *offset = (struct number){.real = 3, .whole = 3, .is_whole = 1};
    int status = number_from_params(open, "offset", offset, error);
    if (status != SHOAL_OK) {
        free(offset);
        return status;
    }
    *instance = offset;
    return SHOAL_OK;
}

static void
shift_close(void *instance)
{
    free(instance);
}

/* Applies the offset to every element. Returns the number of elements before the first one that
 * overflows. */
static size_t
shift_elements(const struct number *offset, const struct shoal_tensor *x, void *out, size_t count)
{
    size_t i = 0;
    switch (x->datatype) {
    case SHOAL_FP32:
        for (const float *in = x->data; i < count; i++)
            ((float *)out)[i] = in[i] + (float)offset->real;
        break;
    case SHOAL_FP64:
        for (const double *in = x->data; i < count; i++)
            ((double *)out)[i] = in[i] + offset->real;
        break;
    case SHOAL_INT32:
        for (const int32_t *in = x->data; i < count; i++) {
            if (__builtin_add_overflow(in[i], offset->whole, &((int32_t *)out)[i]))
                break;
        }
        break;
    default:
        for (const int64_t *in = x->data; i < count; i++) {
            if (__builtin_add_overflow(in[i], offset->whole, &((int64_t *)out)[i]))
                break;
        }
    }
    return i;
}

static int32_t
shift_item(const struct number *offset, const struct shoal_host *host, struct shoal_item *item)
{
    const struct shoal_tensor *x = number_input(offset, "offset", host, item);
    if (x == NULL)
        return item->status;
    void *out = host->output(item, "y", x->datatype, x->rank, x->shape);
    if (out == NULL)
        return item->status;
    size_t count = shoal_tensor_elements(x);
    size_t fitting = shift_elements(offset, x, out, count);
    if (fitting < count)
        return host->fail(item, SHOAL_OUT_OF_RANGE, "tensor \"x\": element %zu + %lld overflows",
                          fitting, (long long)offset->whole);
    return SHOAL_OK;
}

static int
shift_describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    (void)instance;
    (void)error;
    static const struct shoal_tensor_spec x = {"x", SHOAL_DATATYPE_ANY, SHOAL_RANK_ANY, {0}};
    static const struct shoal_tensor_spec y = {"y", SHOAL_DATATYPE_ANY, SHOAL_RANK_ANY, {0}};
    io->inputs = &x;
    io->outputs = &y;
    io->input_count = io->output_count = 1;
    return SHOAL_OK;
}

static int
shift_run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++)
        batch->items[i]->status = shift_item(instance, batch->host, batch->items[i]);
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER, .abilities = SHOAL_RUNS_BATCHES, .name = "shift",  .version = "1",
    .open = shift_open,   .describe = shift_describe,      .run = shift_run, .close = shift_close,
};
