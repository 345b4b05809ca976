/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mlp modelet computes what its layers say: every activation, with bias and without, one row
 * and many, alone and in batches, against the same sums in FP64. Weights are drawn so that sums
 * stay near 1; an answer may then differ by 2e-5 × (1 + its size), ten times what FP32 was seen to
 * lose. Its files are written here from network.h. Broken ones, each wrong in one way, are refused
 * with the reason; models given by the parameter and models loaded behave alike.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"
#include "../../examples/mlp/network.h"
#include "../test.h"
#include "model_rig.h"

enum { LAYERS_MAX = 8, FILE_ROOM = 1 << 20 };
#define TOLERANCE 2e-5

struct sketch {
    uint32_t widths[LAYERS_MAX + 1]; /* of the input, then of each layer; 0 ends it */
    enum network_activation activations[LAYERS_MAX];
    bool bias[LAYERS_MAX];
};

/* A file in the making; the areas are at the offsets that its table says. */
static _Alignas(64) unsigned char file[FILE_ROOM];
static size_t file_size;

static struct network_header *
header(void)
{
    return (void *)file;
}

static struct network_layer *
layer(uint32_t index)
{
    return (struct network_layer *)(void *)(file + sizeof(struct network_header)) + index;
}

static float *
floats_at(uint64_t offset)
{
    return (void *)(file + offset);
}

static float
noise(float spread)
{
    static uint64_t state = 1;
    return ((float)(random_draw(&state) % 20001) / 10000 - 1) * spread;
}

static uint64_t
place_noise(size_t count, float spread)
{
    uint64_t offset = (file_size + NETWORK_ALIGNMENT - 1) / NETWORK_ALIGNMENT * NETWORK_ALIGNMENT;
    file_size = offset + count * sizeof(float);
    assert_true(file_size <= sizeof file);
    for (size_t i = 0; i < count; i++)
        floats_at(offset)[i] = noise(spread);
    return offset;
}

static void
draw(const struct sketch *sketch)
{
    memset(file, 0, sizeof file);
    *header() = (struct network_header){
        NETWORK_MAGIC, NETWORK_BYTE_ORDER, NETWORK_VERSION, 0, sketch->widths[0], 0, "x", "y"};
    while (sketch->widths[header()->layer_count + 1] != 0)
        header()->layer_count++;
    file_size = sizeof(struct network_header) + header()->layer_count * sizeof *layer(0);
    for (uint32_t i = 0; i < header()->layer_count; i++) {
        uint32_t inputs = sketch->widths[i];
        uint32_t outputs = sketch->widths[i + 1];
        layer(i)->outputs = outputs;
        layer(i)->activation = sketch->activations[i];
        layer(i)->weights_offset =
            place_noise((size_t)inputs * outputs, sqrtf(3.0f / (float)inputs));
        layer(i)->bias_offset = sketch->bias[i] ? place_noise(outputs, 0.5f) : 0;
    }
    header()->file_bytes = file_size;
}

static double
activate(enum network_activation activation, double x)
{
    switch (activation) {
    case NETWORK_RELU: return x > 0 ? x : 0;
    case NETWORK_TANH: return tanh(x);
    case NETWORK_SIGMOID: return 1 / (1 + exp(-x));
    case NETWORK_SOFTMAX: return exp(x); /* over their sum, below */
    default: return x;
    }
}

/* The file's result for one row, the slow way. */
static void
reference(const float *row, double *answer)
{
    double in[1024];
    uint32_t inputs = header()->input_width;
    for (uint32_t i = 0; i < inputs; i++)
        in[i] = row[i];
    for (uint32_t l = 0; l < header()->layer_count; l++) {
        const float *weights = floats_at(layer(l)->weights_offset);
        uint32_t outputs = layer(l)->outputs;
        double total = 0;
        for (uint32_t o = 0; o < outputs; o++) {
            double sum = layer(l)->bias_offset != 0 ? floats_at(layer(l)->bias_offset)[o] : 0;
            for (uint32_t i = 0; i < inputs; i++)
                sum += in[i] * weights[i * outputs + o];
            total += answer[o] = activate((enum network_activation)layer(l)->activation, sum);
        }
        for (uint32_t o = 0; o < outputs; o++)
            in[o] = answer[o] /= layer(l)->activation == NETWORK_SOFTMAX ? total : 1;
        inputs = outputs;
    }
}

static struct shoal_harness_item *
item_of(struct shoal_harness *mlp, size_t rows)
{
    uint32_t width = header()->input_width;
    int64_t shape[] = {(int64_t)rows, width};
    float *data = calloc(rows * width + 1, sizeof *data);
    assert_non_null(data);
    for (size_t i = 0; i < rows * width; i++)
        data[i] = noise(1);
    struct shoal_harness_item *item = shoal_harness_item(mlp);
    shoal_harness_input(item, "x", SHOAL_FP32, 2, shape, data);
    free(data);
    return item;
}

static void
item_right(const struct shoal_harness_item *item)
{
    uint32_t inputs = header()->input_width;
    uint32_t outputs = layer(header()->layer_count - 1)->outputs;
    size_t rows = (size_t)item->inputs[0].shape[0];
    const float *answers = rig_floats(item, "y", rows * outputs);
    assert_int_equal(shoal_harness_output(item, "y")->shape[0], rows);
    double wanted[1024];
    for (size_t row = 0; row < rows; row++) {
        reference((const float *)item->inputs[0].data + row * inputs, wanted);
        for (uint32_t o = 0; o < outputs; o++) {
            float got = answers[row * outputs + o];
            if (!(fabs(got - wanted[o]) <= TOLERANCE * (1 + fabs(wanted[o]))))
                fail_msg("row %zu of %zu, output %u: %.9g, not %.9g", row, rows, o, (double)got,
                         wanted[o]);
        }
    }
}

static struct shoal_harness *
mlp_open(void)
{
    const struct shoal_param params[] = {{"model", "drawn.mlp"}}; /* relative to the folder */
    rig_write("drawn.mlp", file, file_size);
    return rig_open("mlp", 1, params);
}

static const struct sketch small = {{5, 7, 3}, {NETWORK_RELU, NETWORK_IDENTITY}, {true, true}};

TEST_CASE(test_layers_against_fp64)
{
    static const struct sketch sketches[] = {
        {{1, 1}, {NETWORK_IDENTITY}, {false}},
        {{64, 10}, {NETWORK_SOFTMAX}, {true}},
        {{9, 4}, {NETWORK_RELU}, {false}},
        {{31, 33, 65}, {NETWORK_TANH, NETWORK_SIGMOID}, {true, false}},
        {{64, 130, 130, 17, 10},
         {NETWORK_RELU, NETWORK_TANH, NETWORK_SIGMOID, NETWORK_SOFTMAX},
         {true, false, true, true}},
        {{3, 500, 2}, {NETWORK_RELU, NETWORK_IDENTITY}, {true, true}},
    };
    static const size_t rows[] = {1, 2, 7, 64, 1500}; /* the last in two pieces */
    for (size_t s = 0; s < sizeof sketches / sizeof *sketches; s++) {
        draw(&sketches[s]);
        struct shoal_harness *mlp = mlp_open();
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct shoal_harness_item *item = item_of(mlp, rows[i]);
            shoal_harness_run(mlp, &item, 1);
            item_right(item);
        }
        shoal_harness_close(mlp);
    }
}

/* Items of 0, 1, 2, … rows: 1770 rows in two pieces, whose border lies within an item. */
TEST_CASE(test_a_batch_is_one_run)
{
    enum { COUNT = 60 };
    draw(&small);
    struct shoal_harness *mlp = mlp_open();
    struct shoal_harness_item *items[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        items[i] = item_of(mlp, i);
    shoal_harness_run(mlp, items, COUNT);
    assert_int_equal(shoal_harness_runs(mlp), 1);
    for (size_t i = 0; i < COUNT; i++)
        item_right(items[i]);
    shoal_harness_close(mlp);
}

TEST_CASE(test_only_the_bad_item_fails)
{
    draw(&small);
    struct shoal_harness *mlp = mlp_open();
    enum { COUNT = 8 };
    struct shoal_harness_item *items[COUNT] = {item_of(mlp, 2), item_of(mlp, 1)};
    const float data[] = {1, NAN, 3, INFINITY, 5, 6};
    const double doubles[5] = {0};
    const int64_t right[] = {1, 5}, narrow[] = {1, 4}, cube[] = {1, 1, 5};
    for (size_t i = 2; i < COUNT; i++)
        items[i] = shoal_harness_item(mlp);
    shoal_harness_input(items[2], "x", SHOAL_FP32, 2, right, data);
    shoal_harness_input(items[3], "x", SHOAL_FP32, 2, narrow, data);
    shoal_harness_input(items[4], "x", SHOAL_FP32, 3, cube, data);
    shoal_harness_input(items[5], "x", SHOAL_FP64, 2, right, doubles);
    shoal_harness_input(items[6], "z", SHOAL_FP32, 2, right, data);
    shoal_harness_run(mlp, items, COUNT);
    item_right(items[0]);
    item_right(items[1]);
    assert_true(isnan(rig_floats(items[2], "y", 3)[0])); /* its own, and no one else's */
    for (size_t i = 3; i < 6; i++)
        rig_failed(items[i], SHOAL_INVALID_ARGUMENT, "FP32 and have the shape [n, 5]");
    rig_failed(items[6], SHOAL_INVALID_ARGUMENT, "one input tensor, \"x\"");
    rig_failed(items[7], SHOAL_INVALID_ARGUMENT, "one input tensor, \"x\"");
    shoal_harness_limit(mlp, 6 * sizeof(float));
    shoal_harness_run(mlp, items, 2);
    item_right(items[0]);
    rig_failed(items[1], SHOAL_RESOURCE_EXHAUSTED, "y");
    shoal_harness_close(mlp);
}

TEST_CASE(test_describes_what_the_file_says)
{
    draw(&small);
    struct shoal_harness *mlp = mlp_open();
    struct shoal_io io = shoal_harness_describe(mlp);
    assert_string_equal(io.platform, "mlp");
    assert_int_equal(io.input_count, 1);
    assert_string_equal(io.inputs[0].name, "x");
    assert_int_equal(io.inputs[0].datatype, SHOAL_FP32);
    assert_int_equal(io.inputs[0].shape[0], -1);
    assert_int_equal(io.inputs[0].shape[1], 5);
    assert_string_equal(io.outputs[0].name, "y");
    assert_int_equal(io.outputs[0].shape[1], 3);
    shoal_harness_close(mlp);
}

TEST_CASE(test_models_are_loaded_and_unloaded)
{
    static const struct sketch other = {{4, 6}, {NETWORK_TANH}, {true}};
    struct shoal_error error;
    struct shoal_harness *mlp = rig_open("mlp", 0, NULL);
    assert_int_equal(shoal_harness_describe(mlp).input_count, 0);
    for (size_t i = 0; i < 6; i++) {
        draw(i % 2 == 0 ? &small : &other);
        const char *path = rig_write("loaded.mlp", file, file_size);
        if (shoal_harness_load(mlp, path, &error) != SHOAL_OK)
            fail_msg("%s", error.text);
        remove(path); /* what is mapped needs no name */
        struct shoal_harness_item *item = item_of(mlp, i);
        shoal_harness_run(mlp, &item, 1);
        item_right(item);
    }
    assert_int_equal(shoal_harness_load(mlp, NULL, &error), SHOAL_OK);
    struct shoal_harness_item *item = item_of(mlp, 1);
    shoal_harness_run(mlp, &item, 1);
    rig_failed(item, SHOAL_FAILED_PRECONDITION, "there is no model");
    shoal_harness_close(mlp);
}

/* The file with one field changed is refused; then it is as before. */
static void
refused_with(void *field, uint64_t value, size_t bytes, const char *words)
{
    unsigned char before[8];
    memcpy(before, field, bytes);
    memcpy(field, &value, bytes); /* its low bytes: little-endian */
    rig_refuses("mlp", rig_write("broken.mlp", file, file_size), words);
    memcpy(field, before, bytes);
}

TEST_CASE(test_broken_headers)
{
    const uint32_t nan_bits = 0x7fc00000;
    draw(&small);
    refused_with(&header()->magic[7], 'Q', 1, "does not begin with SHOALMLP");
    refused_with(&header()->byte_order, 0x04030201, 4, "the other byte order");
    refused_with(&header()->byte_order, 0, 4, "states no byte order");
    refused_with(&header()->version, 2, 4, "version 2 of the format");
    refused_with(&header()->file_bytes, UINT64_C(10) << 30, 8, "states 10737418240 bytes and has");
    refused_with(&header()->input_width, 0, 4, "layer 0 has 0 inputs");
    refused_with(&header()->input_width, nan_bits, 4, "layer 0 has 2143289344 inputs");
    refused_with(&header()->layer_count, 0, 4, "has 0 layers");
    refused_with(&header()->layer_count, 65, 4, "has 65 layers");
    refused_with(&header()->layer_count, UINT32_MAX, 4, "has 4294967295 layers");
    refused_with(header()->input_name, 0, 1, "the name of the input is empty");
    memset(header()->output_name, 'y', NETWORK_NAME_ROOM);
    rig_refuses("mlp", rig_write("broken.mlp", file, file_size), "output is not terminated");
}

TEST_CASE(test_broken_layers)
{
    draw(&small);
    refused_with(&layer(0)->outputs, 0, 4, "layer 0 has 0 outputs");
    refused_with(&layer(1)->outputs, 65537, 4, "layer 1 has 65537 outputs");
    refused_with(&layer(1)->outputs, 65536, 4, "the weights of layer 1, 1835008 bytes at");
    refused_with(&layer(1)->activation, NETWORK_ACTIVATION_END, 4, "layer 1 has activation 5");
    refused_with(&layer(0)->weights_offset, 0, 8, "the weights of layer 0");
    refused_with(&layer(0)->weights_offset, 128, 8, "must be after the table");
    refused_with(&layer(0)->weights_offset, 260, 8, "at a multiple of 64");
    refused_with(&layer(0)->weights_offset, UINT64_MAX - 63, 8, "the weights of layer 0");
    refused_with(&layer(1)->bias_offset, UINT64_C(1) << 63, 8, "the bias of layer 1");
    refused_with(floats_at(layer(0)->weights_offset) + 34, 0x7fc00000, 4,
                 "the weights of layer 0: number 34 is not finite");
    refused_with(floats_at(layer(1)->bias_offset) + 2, 0xff800000, 4,
                 "the bias of layer 1: number 2 is not finite");
}

TEST_CASE(test_files_that_are_cut_short)
{
    draw(&small);
    for (size_t size = 1; size < file_size; size += 3)
        rig_refuses("mlp", rig_write("cut.mlp", file, size),
                    size < sizeof *header() ? "less than the 160 of a header" : "it was truncated");
    for (size_t size = sizeof *header(); size < file_size; size += 3) {
        header()->file_bytes = size; /* so that only the table speaks against it */
        rig_refuses("mlp", rig_write("cut.mlp", file, size),
                    size < sizeof *header() + 2 * sizeof *layer(0) ? "within its table of 2 layers"
                                                                   : " of layer ");
    }
}

TEST_CASE(test_invalid_files)
{
    rig_refuses_what_is_no_file("mlp");
    const struct shoal_param params[] = {{"modle", "drawn.mlp"}};
    struct shoal_harness *mlp;
    struct shoal_error error;
    assert_int_equal(rig_try("mlp", 1, params, &mlp, &error), SHOAL_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "\"modle\" is unknown"));
}

int
main(void)
{
    /* Each harness loads the modelet anew; its BLAS, which takes longest, stays. */
    assert_non_null(dlopen("libopenblas.so.0", RTLD_LAZY));
    return TEST_RUN(.group_setup = rig_setup, .group_teardown = rig_teardown);
}
