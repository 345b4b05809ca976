/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models that Triton's example clients call, by their ids:
 *
 *     simple…           INPUT0, INPUT1 INT32 [-1,16] → OUTPUT0 their sum, OUTPUT1 their difference
 *     …int8             the same with INT8
 *     …string           the same with decimal numbers as BYTES
 *     …identity         INPUT0 BYTES [-1,-1] → OUTPUT0, the same
 *     …sequence         INPUT INT32 [-1,1] → OUTPUT, one more where the request begins a sequence
 *     …broken           cannot be loaded
 */
#include <shoal/modelet.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 16, LENGTH_BYTES = 4, DIGITS_MAX = 20 };

enum kind { KIND_NUMBERS, KIND_INT8, KIND_STRINGS, KIND_IDENTITY, KIND_SEQUENCE };

struct simple {
    enum kind kind;
};

#define SPEC(name, datatype, columns)                                                              \
    {                                                                                              \
        name, datatype, 2,                                                                         \
        {                                                                                          \
            -1, columns                                                                            \
        }                                                                                          \
    }

static const struct {
    uint32_t count;
    struct shoal_tensor_spec inputs[2];
    struct shoal_tensor_spec outputs[2];
} shapes[] = {
    [KIND_NUMBERS] = {2,
                      {SPEC("INPUT0", SHOAL_INT32, COLUMNS), SPEC("INPUT1", SHOAL_INT32, COLUMNS)},
                      {SPEC("OUTPUT0", SHOAL_INT32, COLUMNS),
                       SPEC("OUTPUT1", SHOAL_INT32, COLUMNS)}},
    [KIND_INT8] = {2,
                   {SPEC("INPUT0", SHOAL_INT8, COLUMNS), SPEC("INPUT1", SHOAL_INT8, COLUMNS)},
                   {SPEC("OUTPUT0", SHOAL_INT8, COLUMNS), SPEC("OUTPUT1", SHOAL_INT8, COLUMNS)}},
    [KIND_STRINGS] = {2,
                      {SPEC("INPUT0", SHOAL_BYTES, COLUMNS), SPEC("INPUT1", SHOAL_BYTES, COLUMNS)},
                      {SPEC("OUTPUT0", SHOAL_BYTES, COLUMNS),
                       SPEC("OUTPUT1", SHOAL_BYTES, COLUMNS)}},
    [KIND_SEQUENCE] = {1, {SPEC("INPUT", SHOAL_INT32, 1)}, {SPEC("OUTPUT", SHOAL_INT32, 1)}},
    [KIND_IDENTITY] = {1, {SPEC("INPUT0", SHOAL_BYTES, -1)}, {SPEC("OUTPUT0", SHOAL_BYTES, -1)}},
};

static int
load(void *instance, const struct shoal_model *spec, void **model, struct shoal_error *error)
{
    (void)instance;
    if (strstr(spec->id, "broken") != NULL) {
        snprintf(error->text, sizeof(error->text), "this one is broken");
        return SHOAL_INVALID_ARGUMENT;
    }
    struct simple *simple = malloc(sizeof(*simple));
    if (simple == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    simple->kind = strstr(spec->id, "identity") != NULL   ? KIND_IDENTITY
                   : strstr(spec->id, "string") != NULL   ? KIND_STRINGS
                   : strstr(spec->id, "sequence") != NULL ? KIND_SEQUENCE
                   : strstr(spec->id, "int8") != NULL     ? KIND_INT8
                                                          : KIND_NUMBERS;
    *model = simple;
    return SHOAL_OK;
}

static void
unload(void *instance, void *model)
{
    (void)instance;
    free(model);
}

static int
describe_model(void *instance, void *model, struct shoal_io *io, struct shoal_error *error)
{
    (void)instance;
    (void)error;
    const struct simple *simple = model;
    io->inputs = shapes[simple->kind].inputs;
    io->outputs = shapes[simple->kind].outputs;
    io->input_count = io->output_count = shapes[simple->kind].count;
    io->platform = "simple";
    return SHOAL_OK;
}

/* ---- running ---- */

static const struct shoal_tensor *
input(const struct shoal_item *item, const char *name)
{
    for (uint32_t i = 0; i < item->input_count; i++)
        if (strcmp(item->inputs[i].name, name) == 0)
            return &item->inputs[i];
    return NULL;
}

static void
run_numbers(const struct shoal_host *host, struct shoal_item *item, const struct shoal_tensor *a,
            const struct shoal_tensor *b)
{
    int32_t *sum = host->output(item, "OUTPUT0", SHOAL_INT32, a->rank, a->shape);
    int32_t *difference = host->output(item, "OUTPUT1", SHOAL_INT32, a->rank, a->shape);
    if (sum == NULL || difference == NULL)
        return;
    const uint32_t *x = a->data;
    const uint32_t *y = b->data;
    for (size_t i = 0; i < shoal_tensor_elements(a); i++) {
        sum[i] = (int32_t)(x[i] + y[i]);
        difference[i] = (int32_t)(x[i] - y[i]);
    }
    item->status = SHOAL_OK;
}

static void
run_int8(const struct shoal_host *host, struct shoal_item *item, const struct shoal_tensor *a,
         const struct shoal_tensor *b)
{
    int8_t *sum = host->output(item, "OUTPUT0", SHOAL_INT8, a->rank, a->shape);
    int8_t *difference = host->output(item, "OUTPUT1", SHOAL_INT8, a->rank, a->shape);
    if (sum == NULL || difference == NULL)
        return;
    const int8_t *x = a->data;
    const int8_t *y = b->data;
    for (size_t i = 0; i < shoal_tensor_elements(a); i++) {
        sum[i] = (int8_t)(x[i] + y[i]);
        difference[i] = (int8_t)(x[i] - y[i]);
    }
    item->status = SHOAL_OK;
}

/* The next element as a number; false: it is none. */
static bool
next_number(const unsigned char **at, const unsigned char *end, long *number)
{
    char text[DIGITS_MAX + 1];
    uint32_t length;
    if ((size_t)(end - *at) < LENGTH_BYTES)
        return false;
    memcpy(&length, *at, LENGTH_BYTES);
    *at += LENGTH_BYTES;
    if (length > (size_t)(end - *at) || length == 0 || length > DIGITS_MAX)
        return false;
    memcpy(text, *at, length);
    text[length] = '\0';
    *at += length;
    char *stop;
    *number = strtol(text, &stop, 10);
    return *stop == '\0';
}

static size_t
put_number(unsigned char *to, long number)
{
    char text[DIGITS_MAX + 2];
    uint32_t length = (uint32_t)snprintf(text, sizeof(text), "%ld", number);
    memcpy(to, &length, LENGTH_BYTES);
    memcpy(to + LENGTH_BYTES, text, length);
    return LENGTH_BYTES + length;
}

static void
give(const struct shoal_host *host, struct shoal_item *item, const char *name,
     const unsigned char *data, size_t bytes)
{
    const struct shoal_tensor *a = input(item, "INPUT0");
    void *to = host->output_bytes(item, name, SHOAL_BYTES, a->rank, a->shape, bytes);
    if (to != NULL && bytes > 0)
        memcpy(to, data, bytes);
    item->status = to != NULL ? SHOAL_OK : item->status;
}

static void
run_strings(const struct shoal_host *host, struct shoal_item *item, const struct shoal_tensor *a,
            const struct shoal_tensor *b)
{
    size_t count = shoal_tensor_elements(a);
    size_t room = count * (LENGTH_BYTES + DIGITS_MAX + 2);
    unsigned char *sum = malloc(2 * room + 1);
    if (sum == NULL) {
        host->fail(item, SHOAL_RESOURCE_EXHAUSTED, "no memory");
        return;
    }
    unsigned char *difference = sum + room;
    size_t sum_bytes = 0;
    size_t difference_bytes = 0;
    const unsigned char *x = a->data;
    const unsigned char *y = b->data;
    bool good = true;
    for (size_t i = 0; i < count && good; i++) {
        long left = 0;
        long right = 0;
        good = next_number(&x, (unsigned char *)a->data + a->bytes, &left) &&
               next_number(&y, (unsigned char *)b->data + b->bytes, &right);
        sum_bytes +=
            put_number(sum + sum_bytes, (long)((unsigned long)left + (unsigned long)right));
        difference_bytes += put_number(difference + difference_bytes,
                                       (long)((unsigned long)left - (unsigned long)right));
    }
    if (good) {
        give(host, item, "OUTPUT0", sum, sum_bytes);
        if (item->status == SHOAL_OK)
            give(host, item, "OUTPUT1", difference, difference_bytes);
    } else {
        host->fail(item, SHOAL_INVALID_ARGUMENT, "a string is no number");
    }
    free(sum);
}

static void
run_sequence(const struct shoal_host *host, struct shoal_item *item)
{
    const struct shoal_tensor *in = &item->inputs[0];
    struct shoal_parameter parameter = {0};
    int32_t start = host->parameter(item, "sequence_start", &parameter) == 1 &&
                    parameter.type == SHOAL_PARAMETER_BOOL && parameter.value.int64 != 0;
    int32_t *out = host->output(item, "OUTPUT", SHOAL_INT32, in->rank, in->shape);
    if (out == NULL)
        return;
    for (size_t i = 0; i < shoal_tensor_elements(in); i++)
        out[i] = ((const int32_t *)in->data)[i] + start;
    item->status = SHOAL_OK;
}

static void
run_item(const struct simple *simple, const struct shoal_host *host, struct shoal_item *item)
{
    const struct shoal_tensor *a = input(item, "INPUT0");
    const struct shoal_tensor *b = input(item, "INPUT1");
    if (simple->kind == KIND_IDENTITY && item->input_count == 1) {
        if (host->forward(item, 0, "OUTPUT0") == SHOAL_OK)
            item->status = SHOAL_OK;
    } else if (simple->kind == KIND_SEQUENCE && item->input_count == 1) {
        run_sequence(host, item);
    } else if (a == NULL || b == NULL || shoal_tensor_elements(a) != shoal_tensor_elements(b)) {
        host->fail(item, SHOAL_INVALID_ARGUMENT, "INPUT0 and INPUT1 must have the same shape");
    } else if (simple->kind == KIND_NUMBERS) {
        run_numbers(host, item, a, b);
    } else if (simple->kind == KIND_INT8) {
        run_int8(host, item, a, b);
    } else {
        run_strings(host, item, a, b);
    }
}

static int
run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    for (uint32_t i = 0; i < batch->count; i++)
        run_item(model, batch->host, batch->items[i]);
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER,
    .abilities = SHOAL_RUNS_BATCHES | SHOAL_RUN_DURING_LOAD,
    .name = "simple",
    .version = "1",
    .load = load,
    .unload = unload,
    .describe_model = describe_model,
    .run = run,
};
