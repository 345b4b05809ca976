/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A modelet that answers in pieces, one for each element of IN: Triton's example `repeat_int32`.
 *
 *     IN     INT32 [n]     DELAY  UINT32 [n]: milliseconds before each piece
 *     WAIT   UINT32 [1]: milliseconds after the last one
 *     OUT    INT32 [1], IDX UINT32 [1]: the element and its index
 */
#include <string.h>
#include <time.h>

#include <shoal/modelet.h>

/* Waits in steps, to notice a caller that has gone. 0: the caller has gone. */
static int
wait_ms(const struct shoal_host *host, struct shoal_item *item, uint32_t ms)
{
    enum { STEP_MS = 5 };
    while (ms > 0 && !host->cancelled(item)) {
        uint32_t step = ms < STEP_MS ? ms : STEP_MS;
        struct timespec time = {.tv_nsec = (long)step * 1000000};
        nanosleep(&time, NULL);
        ms -= step;
    }
    return ms == 0;
}

static int32_t
send_element(const struct shoal_host *host, struct shoal_item *item, int32_t element,
             uint32_t index)
{
    static const int64_t one = 1;
    int32_t *out = host->output(item, "OUT", SHOAL_INT32, 1, &one);
    uint32_t *idx = host->output(item, "IDX", SHOAL_UINT32, 1, &one);
    if (out == NULL || idx == NULL)
        return item->status;
    *out = element;
    *idx = index;
    return host->emit(item);
}

/* Inputs come in any order; admission has checked that all are there. */
static const struct shoal_tensor *
input(const struct shoal_item *item, const char *name)
{
    uint32_t i = 0;
    while (strcmp(item->inputs[i].name, name) != 0)
        i++;
    return &item->inputs[i];
}

static int32_t
repeat(const struct shoal_host *host, struct shoal_item *item)
{
    const struct shoal_tensor *in = input(item, "IN");
    const struct shoal_tensor *delay = input(item, "DELAY");
    const uint32_t *wait = input(item, "WAIT")->data;
    if (in->shape[0] != delay->shape[0])
        return host->fail(item, SHOAL_INVALID_ARGUMENT, "IN and DELAY have different lengths");
    for (uint32_t i = 0; i < in->shape[0]; i++) {
        int32_t status = SHOAL_CANCELLED;
        if (wait_ms(host, item, ((const uint32_t *)delay->data)[i]))
            status = send_element(host, item, ((const int32_t *)in->data)[i], i);
        if (status != SHOAL_OK)
            return status;
    }
    (void)wait_ms(host, item, *wait);
    return SHOAL_OK; /* all was sent */
}

static int
run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    batch->items[0]->status = repeat(batch->host, batch->items[0]);
    return SHOAL_OK;
}

static int
describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    static const struct shoal_tensor_spec inputs[] = {{"IN", SHOAL_INT32, 1, {-1}},
                                                      {"DELAY", SHOAL_UINT32, 1, {-1}},
                                                      {"WAIT", SHOAL_UINT32, 1, {1}}};
    static const struct shoal_tensor_spec outputs[] = {{"OUT", SHOAL_INT32, 1, {-1}},
                                                       {"IDX", SHOAL_UINT32, 1, {-1}}};
    (void)instance;
    (void)error;
    io->inputs = inputs;
    io->input_count = 3;
    io->outputs = outputs;
    io->output_count = 2;
    return SHOAL_OK;
}

static const void *
extension(const char *name)
{
    static const struct shoal_stream stream = {.struct_size = sizeof(stream)};
    return strcmp(name, "stream") == 0 ? &stream : NULL;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER, .name = "repeat",       .version = "1",
    .describe = describe, .extension = extension, .run = run,
};
