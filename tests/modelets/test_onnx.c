/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The onnx modelet serves whatever model it is given, with the names, types and shapes that the
 * file says: models are written here byte by byte, and their answers computed beside them. Each is
 * asked twice or more, since the first answer is copied and later ones are computed where they are
 * to be. A model whose rows know of each other shows which items ran together. Broken files are
 * refused with the reason. Where ONNX Runtime is not packaged there is no modelet, and all this is
 * skipped.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "model_rig.h"
#include "onnx_writer.h"

#define MODELET "onnx_modelet"
#define FILE_NAME "written.onnx"
#define TOLERANCE 1e-5

static struct message graph;
static struct message model;

static const char *
write_model(const char *name)
{
    graph_finish(&graph, &model);
    return rig_write(name, model.bytes, model.size);
}

/* The modelet with the graph as its own model, and perhaps one more parameter. */
static struct harness *
serve_with(const char *name, const char *value)
{
    const struct shoal_param params[] = {{"model", FILE_NAME}, {name, value}};
    write_model(FILE_NAME);
    return rig_open(MODELET, name != NULL ? 2 : 1, params);
}

static struct harness *
serve(void)
{
    return serve_with(NULL, NULL);
}

static float
noise(void)
{
    static uint32_t word = 2463534242u;
    word ^= word << 13;
    word ^= word >> 17;
    word ^= word << 5;
    return (float)(word % 2001) / 1000 - 1;
}

/* ---- a dense layer: y = relu(x·W + b) ---- */

enum { IN = 5, OUT = 3, ROWS_MAX = 64 };
static float weights[IN][OUT];
static float bias[OUT];

static void
dense_draw(void)
{
    for (size_t i = 0; i < IN; i++)
        for (size_t o = 0; o < OUT; o++)
            weights[i][o] = noise();
    for (size_t o = 0; o < OUT; o++)
        bias[o] = noise();
}

static void
dense_nodes(void)
{
    graph_input(&graph, "x", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, IN});
    graph_output(&graph, "y", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, OUT});
    graph_node(&graph, "MatMul", "x W", "product");
    graph_node(&graph, "Add", "product b", "sum");
    graph_node(&graph, "Relu", "sum", "y");
}

static void
dense(void)
{
    graph.size = 0;
    dense_draw();
    dense_nodes();
    graph_constant(&graph, "W", ONNX_FLOAT, 2, (const int64_t[]){IN, OUT}, weights, sizeof weights);
    graph_constant(&graph, "b", ONNX_FLOAT, 1, (const int64_t[]){OUT}, bias, sizeof bias);
}

static struct harness_item *
dense_item(struct harness *harness, size_t rows)
{
    float data[ROWS_MAX * IN];
    for (size_t i = 0; i < rows * IN; i++)
        data[i] = noise();
    struct harness_item *item = harness_item(harness);
    harness_input(item, "x", SHOAL_FP32, 2, (const int64_t[]){(int64_t)rows, IN}, data);
    return item;
}

static void
dense_right(const struct harness_item *item)
{
    size_t rows = (size_t)item->inputs[0].shape[0];
    const float *in = item->inputs[0].data;
    const float *out = rig_floats(item, "y", rows * OUT);
    for (size_t row = 0; row < rows; row++) {
        for (size_t o = 0; o < OUT; o++) {
            double sum = bias[o];
            for (size_t i = 0; i < IN; i++)
                sum += (double)in[row * IN + i] * (double)weights[i][o];
            sum = sum > 0 ? sum : 0;
            if (!(fabs(out[row * OUT + o] - sum) <= TOLERANCE))
                fail_msg("row %zu of %zu, %zu: %g, not %g", row, rows, o,
                         (double)out[row * OUT + o], sum);
        }
    }
}

static void
test_a_dense_layer(void **state)
{
    (void)state;
    static const size_t rows[] = {1, 2, 7, 0, ROWS_MAX};
    dense();
    struct harness *harness = serve();
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        struct harness_item *item = dense_item(harness, rows[i / 2]);
        harness_run(harness, &item, 1);
        dense_right(item);
    }
    harness_close(harness);
}

static void
test_a_batch(void **state)
{
    (void)state;
    enum { COUNT = 20 };
    struct harness_item *items[COUNT];
    dense();
    struct harness *harness = serve();
    for (size_t turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < COUNT; i++)
            items[i] = dense_item(harness, (i + turn) % 4);
        harness_run(harness, items, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            dense_right(items[i]);
    }
    harness_close(harness);
}

static void
load(struct harness *harness, const char *path)
{
    struct shoal_error error;
    if (harness_load(harness, path, &error) != SHOAL_OK)
        fail_msg("%s", error.text);
}

static void
describes_dense(struct shoal_io io)
{
    assert_string_equal(io.platform, "onnxruntime");
    assert_int_equal(io.input_count, 1);
    assert_int_equal(io.output_count, 1);
    assert_string_equal(io.inputs[0].name, "x");
    assert_int_equal(io.inputs[0].datatype, SHOAL_FP32);
    assert_int_equal(io.inputs[0].rank, 2);
    assert_int_equal(io.inputs[0].shape[0], -1);
    assert_int_equal(io.inputs[0].shape[1], IN);
    assert_string_equal(io.outputs[0].name, "y");
    assert_int_equal(io.outputs[0].shape[0], -1);
    assert_int_equal(io.outputs[0].shape[1], OUT);
}

static void
test_describes_what_the_file_says(void **state)
{
    (void)state;
    dense();
    struct harness *harness = serve();
    describes_dense(harness_describe(harness));
    harness_close(harness);
    harness = rig_open(MODELET, 0, NULL);
    load(harness, rig_path(FILE_NAME));
    describes_dense(harness_describe_model(harness));
    harness_close(harness);
}

static void
test_only_the_bad_item_fails(void **state)
{
    (void)state;
    enum { COUNT = 9 };
    const double numbers[2 * IN] = {0};
    const int64_t right[] = {1, IN}, narrow[] = {1, IN - 1}, cube[] = {1, 1, IN};
    dense();
    struct harness *harness = serve();
    struct harness_item *items[COUNT] = {dense_item(harness, 2)};
    for (size_t i = 1; i < COUNT - 1; i++)
        items[i] = harness_item(harness);
    items[COUNT - 1] = dense_item(harness, 3);
    harness_input(items[1], "x", SHOAL_FP32, 2, narrow, numbers);
    harness_input(items[2], "x", SHOAL_FP32, 3, cube, numbers);
    harness_input(items[3], "x", SHOAL_FP64, 2, right, numbers);
    harness_input(items[4], "z", SHOAL_FP32, 2, right, numbers);
    harness_input(items[6], "x", SHOAL_FP32, 2, right, numbers);
    harness_input(items[6], "z", SHOAL_FP32, 2, right, numbers);
    harness_input_bytes(items[7], "x", 2, (const int64_t[]){1, 1}, "\0\0\0\0", 4);
    harness_run(harness, items, COUNT);
    dense_right(items[0]);
    dense_right(items[COUNT - 1]);
    rig_failed(items[1], SHOAL_INVALID_ARGUMENT, "must have the shape [-1,5]");
    rig_failed(items[2], SHOAL_INVALID_ARGUMENT, "must have the shape [-1,5]");
    rig_failed(items[3], SHOAL_INVALID_ARGUMENT, "must be of datatype FP32");
    rig_failed(items[4], SHOAL_INVALID_ARGUMENT, "no input tensor \"x\"");
    rig_failed(items[5], SHOAL_INVALID_ARGUMENT, "there are 0 input tensors; the model takes 1");
    rig_failed(items[6], SHOAL_INVALID_ARGUMENT, "there are 2 input tensors; the model takes 1");
    rig_failed(items[7], SHOAL_INVALID_ARGUMENT, "must be of datatype FP32");
    harness_limit(harness, 2 * OUT * sizeof(float)); /* room for the first alone */
    struct harness_item *good[] = {items[0], items[COUNT - 1]};
    harness_run(harness, good, 2);
    dense_right(items[0]);
    rig_failed(items[COUNT - 1], SHOAL_RESOURCE_EXHAUSTED, "y");
    harness_run(harness, &items[COUNT - 1], 1); /* where it would have been computed */
    rig_failed(items[COUNT - 1], SHOAL_RESOURCE_EXHAUSTED, "y");
    harness_close(harness);
}

/* ---- which items run together ---- */

/* y = x + the sum of all its rows. */
static void
sums(int64_t width)
{
    const int64_t axis = 0;
    graph.size = 0;
    graph_input(&graph, "x", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, width});
    graph_output(&graph, "y", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, width});
    graph_constant(&graph, "axis", ONNX_INT64, 1, (const int64_t[]){1}, &axis, sizeof axis);
    graph_node(&graph, "ReduceSum", "x axis", "all");
    graph_node(&graph, "Add", "x all", "y");
}

/* An item of one row of ones. */
static struct harness_item *
ones(struct harness *harness, size_t width)
{
    static const float one[] = {1, 1, 1, 1};
    struct harness_item *item = harness_item(harness);
    harness_input(item, "x", SHOAL_FP32, 2, (const int64_t[]){1, (int64_t)width}, one);
    return item;
}

static void
test_items_are_put_side_by_side(void **state)
{
    (void)state;
    enum { COUNT = 6 };
    static const char *const modes[] = {"auto", "never"};
    struct harness_item *items[COUNT];
    for (size_t mode = 0; mode < 2; mode++) {
        sums(ONNX_OTHER);
        struct harness *harness = serve_with("batch", modes[mode]);
        for (size_t i = 0; i < COUNT; i++) /* two of width 1, one of 2, three of 3 */
            items[i] = ones(harness, i == 2 ? 2 : i % 2 == 0 ? 1 : 3);
        for (size_t turn = 0; turn < 2; turn++) {
            harness_run(harness, items, COUNT);
            assert_int_equal(harness_runs(harness), turn + 1);
            for (size_t i = 0; i < COUNT; i++) {
                size_t width = i == 2 ? 2 : i % 2 == 0 ? 1 : 3;
                float company = mode == 1 || i == 2 ? 1 : width == 1 ? 2 : 3;
                const float *y = rig_floats(items[i], "y", width);
                for (size_t k = 0; k < width; k++)
                    assert_true(y[k] == 1 + company);
            }
        }
        harness_close(harness);
    }
}

/* Two inputs, with as many rows or not; the second is broadcast. */
static void
test_inputs_with_other_rows(void **state)
{
    (void)state;
    const float data[] = {1, 2, 3, 4};
    graph.size = 0;
    graph_input(&graph, "a", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, 1});
    graph_input(&graph, "b", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, 1});
    graph_output(&graph, "y", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, 1});
    graph_node(&graph, "Add", "a b", "y");
    struct harness *harness = serve();
    struct harness_item *items[4];
    static const int64_t rows[4][2] = {{4, 4}, {2, 1}, {1, 1}, {2, 3}};
    for (size_t i = 0; i < 4; i++) {
        items[i] = harness_item(harness); /* not in the model's order */
        harness_input(items[i], "b", SHOAL_FP32, 2, (const int64_t[]){rows[i][1], 1}, data);
        harness_input(items[i], "a", SHOAL_FP32, 2, (const int64_t[]){rows[i][0], 1}, data);
    }
    for (size_t turn = 0; turn < 2; turn++) {
        harness_run(harness, items, 4);
        const float *y = rig_floats(items[0], "y", 4);
        assert_true(y[0] == 2 && y[1] == 4 && y[2] == 6 && y[3] == 8);
        y = rig_floats(items[1], "y", 2);
        assert_true(y[0] == 2 && y[1] == 3);
        assert_true(rig_floats(items[2], "y", 1)[0] == 2);
        assert_int_not_equal(items[3]->item.status, SHOAL_OK);
        assert_non_null(strstr(items[3]->error.text, "ONNX Runtime says"));
    }
    harness_close(harness);
}

/* Rows are chosen by an index: one that is out of range is its item's fault alone. */
static void
test_a_culprit_fails_alone(void **state)
{
    (void)state;
    enum { COUNT = 5 };
    const float table[] = {10, 20, 30};
    graph.size = 0;
    graph_input(&graph, "i", ONNX_INT64, 1, (const int64_t[]){ONNX_BATCH});
    graph_output(&graph, "y", ONNX_FLOAT, 1, (const int64_t[]){ONNX_BATCH});
    graph_constant(&graph, "table", ONNX_FLOAT, 1, (const int64_t[]){3}, table, sizeof table);
    graph_node(&graph, "Gather", "table i", "y");
    struct harness *harness = serve();
    struct harness_item *items[COUNT];
    for (int64_t i = 0; i < COUNT; i++) {
        const int64_t index = i == 3 ? 99 : i % 3;
        items[i] = harness_item(harness);
        harness_input(items[i], "i", SHOAL_INT64, 1, (const int64_t[]){1}, &index);
    }
    for (size_t turn = 0; turn < 3; turn++) {
        harness_run(harness, items, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            if (i == 3)
                rig_failed(items[i], SHOAL_INVALID_ARGUMENT, "indices element out of data bounds");
            else
                assert_true(rig_floats(items[i], "y", 1)[0] == table[i % 3]);
        }
        harness_run(harness, &items[turn], 1);
    }
    harness_close(harness);
}

/* ---- types ---- */

static const struct {
    enum onnx_element element;
    enum shoal_datatype datatype;
} types[] = {
    {ONNX_FLOAT, SHOAL_FP32},    {ONNX_UINT8, SHOAL_UINT8},   {ONNX_INT8, SHOAL_INT8},
    {ONNX_UINT16, SHOAL_UINT16}, {ONNX_INT16, SHOAL_INT16},   {ONNX_INT32, SHOAL_INT32},
    {ONNX_INT64, SHOAL_INT64},   {ONNX_BOOL, SHOAL_BOOL},     {ONNX_FLOAT16, SHOAL_FP16},
    {ONNX_DOUBLE, SHOAL_FP64},   {ONNX_UINT32, SHOAL_UINT32}, {ONNX_UINT64, SHOAL_UINT64},
    {ONNX_BFLOAT16, SHOAL_BF16},
};

static void
identity(enum onnx_element element, uint32_t rank, const int64_t *shape)
{
    graph.size = 0;
    graph_input(&graph, "x", element, rank, shape);
    graph_output(&graph, "y", element, rank, shape);
    graph_node(&graph, "Identity", "x", "y");
}

static void
same(const struct harness_item *item)
{
    if (item->item.status != SHOAL_OK)
        fail_msg("%s", item->error.text);
    const struct shoal_tensor *in = item->inputs;
    const struct shoal_tensor *out = harness_output(item, "y");
    assert_non_null(out);
    assert_int_equal(out->datatype, in->datatype);
    assert_int_equal(out->rank, in->rank);
    assert_memory_equal(out->shape, in->shape, in->rank * sizeof *in->shape);
    assert_int_equal(out->bytes, in->bytes);
    if (in->bytes > 0)
        assert_memory_equal(out->data, in->data, in->bytes);
}

/* Alone, together, and alone again; the items are of 1, 2, … rows. */
static void
comes_back(struct harness *harness, struct harness_item **items, uint32_t count)
{
    for (size_t turn = 0; turn < 3; turn++) {
        harness_run(harness, &items[turn % count], 1);
        same(items[turn % count]);
        harness_run(harness, items, count);
        for (uint32_t i = 0; i < count; i++)
            same(items[i]);
    }
}

static void
test_every_type(void **state)
{
    (void)state;
    enum { COUNT = 4, WIDTH = 3 };
    unsigned char data[COUNT * WIDTH * sizeof(double)];
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct harness_item *items[COUNT];
        identity(types[t].element, 2, (const int64_t[]){ONNX_BATCH, WIDTH});
        struct harness *harness = serve();
        assert_int_equal(harness_describe(harness).inputs[0].datatype, types[t].datatype);
        for (size_t i = 0; i < COUNT; i++) {
            for (size_t k = 0; k < sizeof data; k++)
                data[k] = (unsigned char)(types[t].element == ONNX_BOOL ? (i + k) % 2 : 7 * i + k);
            items[i] = harness_item(harness);
            harness_input(items[i], "x", types[t].datatype, 2, (const int64_t[]){(int64_t)i, WIDTH},
                          data);
        }
        comes_back(harness, items, COUNT);
        harness_close(harness);
    }
}

static void
test_texts(void **state)
{
    (void)state;
    static const struct {
        int64_t rows;
        const char *bytes;
        size_t size;
    } texts[] = {
#define FRAMED(bytes) bytes, sizeof bytes - 1
        {1, FRAMED("\5\0\0\0hello\0\0\0\0")},
        {0, FRAMED("")},
        {2, FRAMED("\3\0\0\0a\0b\1\0\0\0\xff\0\0\0\0\7\0\0\0seventh")},
    };
    enum { COUNT = 3 };
    struct harness_item *items[COUNT];
    identity(ONNX_STRING, 2, (const int64_t[]){ONNX_BATCH, 2});
    struct harness *harness = serve();
    assert_int_equal(harness_describe(harness).inputs[0].datatype, SHOAL_BYTES);
    for (size_t i = 0; i < COUNT; i++) {
        items[i] = harness_item(harness);
        harness_input_bytes(items[i], "x", 2, (const int64_t[]){texts[i].rows, 2}, texts[i].bytes,
                            texts[i].size);
    }
    comes_back(harness, items, COUNT);
    /* As a local client may leave it: the second element claims more than there is. */
    struct harness_item *wrong = harness_item(harness);
    harness_input_bytes(wrong, "x", 2, (const int64_t[]){1, 2}, "\1\0\0\0a\2\0\0\0b", 10);
    struct harness_item *both[] = {items[0], wrong};
    harness_run(harness, both, 2);
    same(items[0]);
    rig_failed(wrong, SHOAL_INVALID_ARGUMENT, "its elements overrun it");
    harness_close(harness);
}

/* ---- without a batch dimension ---- */

static void
test_fixed_shapes(void **state)
{
    (void)state;
    enum { COUNT = 3 };
    static const int64_t shapes[][3] = {{0}, {4}, {3, 0}, {2, 3, 1}}; /* the first: one number */
    const float data[] = {1, 2, 3, 4, 5, 6, 7};
    for (uint32_t rank = 0; rank < 4; rank++) {
        const int64_t *shape = shapes[rank];
        struct harness_item *items[COUNT];
        identity(ONNX_FLOAT, rank, shape);
        struct harness *harness = serve();
        for (size_t i = 0; i < COUNT; i++) {
            items[i] = harness_item(harness);
            harness_input(items[i], "x", SHOAL_FP32, rank, shape, data + i % 2);
        }
        comes_back(harness, items, COUNT);
        harness_close(harness);
    }
}

/* Rows of the inputs and rows of the outputs have other names: nothing is put side by side. */
static void
test_open_dimensions_of_other_names(void **state)
{
    (void)state;
    sums(1);
    struct harness *harness = serve();
    struct harness_item *items[2] = {ones(harness, 1), ones(harness, 1)};
    harness_run(harness, items, 2);
    assert_true(rig_floats(items[0], "y", 1)[0] == 3);
    harness_close(harness);
    const int64_t axis = 0;
    graph.size = 0;
    graph_input(&graph, "x", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, 1});
    graph_output(&graph, "y", ONNX_FLOAT, 2, (const int64_t[]){ONNX_OTHER, 1});
    graph_constant(&graph, "axis", ONNX_INT64, 1, (const int64_t[]){1}, &axis, sizeof axis);
    graph_node(&graph, "ReduceSum", "x axis", "all");
    graph_node(&graph, "Compress", "all yes", "y");
    graph_constant(&graph, "yes", ONNX_BOOL, 1, (const int64_t[]){1}, "\1", 1);
    harness = serve();
    items[0] = ones(harness, 1);
    items[1] = ones(harness, 1);
    harness_run(harness, items, 2);
    assert_true(rig_floats(items[0], "y", 1)[0] == 1);
    harness_close(harness);
}

/* ---- shapes that depend on the data: where x is not 0 ---- */

static void
places(int64_t rows_said, bool transposed)
{
    const int64_t said[] = {transposed ? rows_said : 2, transposed ? 2 : rows_said};
    graph.size = 0;
    graph_input(&graph, "x", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, 2});
    graph_output(&graph, "y", ONNX_INT64, 2, said);
    graph_node(&graph, "NonZero", "x", transposed ? "found" : "y");
    if (transposed)
        graph_node(&graph, "Transpose", "found", "y");
}

static struct harness_item *
two_numbers(struct harness *harness, float first, float second)
{
    const float data[] = {first, second};
    struct harness_item *item = harness_item(harness);
    harness_input(item, "x", SHOAL_FP32, 2, (const int64_t[]){1, 2}, data);
    return item;
}

static int64_t
rows_of(const struct harness_item *item, uint32_t dimension)
{
    if (item->item.status != SHOAL_OK)
        fail_msg("%s", item->error.text);
    return harness_output(item, "y")->shape[dimension];
}

/* It says a row for each row, and gives as many as it finds. */
static void
test_rows_that_are_none(void **state)
{
    (void)state;
    places(ONNX_BATCH, true);
    struct harness *harness = serve();
    struct harness_item *items[] = {two_numbers(harness, 1, 2), two_numbers(harness, 4, 5),
                                    two_numbers(harness, 0, 3)};
    for (size_t turn = 0; turn < 2; turn++) {
        harness_run(harness, items, 3);
        assert_int_equal(rows_of(items[0], 0), 2);
        assert_int_equal(rows_of(items[1], 0), 2);
        assert_int_equal(rows_of(items[2], 0), 1);
        assert_int_equal(((int64_t *)harness_output(items[2], "y")->data)[1], 1);
    }
    harness_close(harness);
}

/* It says that there is always one, which is true at first. */
static void
test_a_shape_that_was_a_lie(void **state)
{
    (void)state;
    places(1, false);
    struct harness *harness = serve();
    struct harness_item *one = two_numbers(harness, 0, 3);
    struct harness_item *two = two_numbers(harness, 1, 3);
    for (size_t turn = 0; turn < 3; turn++) {
        harness_run(harness, &one, 1);
        assert_int_equal(rows_of(one, 1), 1);
    }
    harness_run(harness, &two, 1);
    rig_failed(two, SHOAL_INTERNAL, "ONNX Runtime says");
    for (size_t turn = 0; turn < 3; turn++) {
        harness_run(harness, &two, 1);
        assert_int_equal(rows_of(two, 1), 2);
        harness_run(harness, &one, 1);
        assert_int_equal(rows_of(one, 1), 1);
    }
    harness_close(harness);
}

/* ---- models that are loaded ---- */

static void
test_models_are_loaded_and_unloaded(void **state)
{
    (void)state;
    struct harness *harness = rig_open(MODELET, 0, NULL);
    assert_int_equal(harness_describe(harness).input_count, 0);
    assert_string_equal(harness_describe(harness).platform, "onnxruntime");
    for (size_t turn = 0; turn < 3; turn++) {
        dense();
        load(harness, write_model("one.onnx"));
        remove(rig_path("one.onnx")); /* it is in memory */
        struct harness_item *item = dense_item(harness, 2);
        harness_run(harness, &item, 1);
        dense_right(item);
        sums(2);
        load(harness, write_model("another"));
        item = ones(harness, 2);
        harness_run(harness, &item, 1);
        assert_true(rig_floats(item, "y", 2)[0] == 2);
    }
    load(harness, NULL);
    struct harness_item *item = ones(harness, 2);
    harness_run(harness, &item, 1);
    rig_failed(item, SHOAL_FAILED_PRECONDITION, "there is no model");
    harness_close(harness);
}

static void
test_what_a_model_will_take(void **state)
{
    (void)state;
    struct harness *harness = rig_open(MODELET, 0, NULL);
    dense();
    /* constants of 72 bytes with their names, 64 KiB, and 4 KiB for each of 3 nodes */
    uint64_t size = harness_predict_size(harness, write_model("one.onnx"));
    assert_in_range(size, (64 << 10) + (3 * 4096) + 72, (64 << 10) + (3 * 4096) + 128);
    assert_int_equal(harness_predict_size(harness, rig_write("broken", "x", 1)), 0);
    assert_int_equal(harness_predict_size(harness, rig_path("nothing")), 0);
    harness_close(harness);
}

/* ---- folders, and weights in files of their own ---- */

static const char *
write_into(const char *folder, const char *name, const void *bytes, size_t size)
{
    char place[64];
    mkdir(rig_path(folder), 0700);
    snprintf(place, sizeof place, "%s/%s", folder, name);
    return rig_write(place, bytes, size);
}

static void
folder_remove(const char *folder)
{
    static const char *const names[] = {"model.onnx", "second.onnx", "third.onnx", "weights.bin",
                                        "notes.txt"};
    char place[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(place, sizeof place, "%s/%s", folder, names[i]);
        remove(rig_path(place));
    }
    assert_int_equal(rmdir(rig_path(folder)), 0);
}

/* The dense layer, its weights at `offset` in weights.bin, its bias at 4096. */
static void
dense_apart(const char *location, const char *offset, const char *length, size_t skip)
{
    static char file[8192];
    graph.size = 0;
    dense_draw();
    dense_nodes();
    graph_constant_apart(&graph, "W", ONNX_FLOAT, 2, (const int64_t[]){IN, OUT}, location, offset,
                         length);
    graph_constant_apart(&graph, "b", ONNX_FLOAT, 1, (const int64_t[]){OUT}, "weights.bin", "4096",
                         "12");
    memcpy(file + skip, weights, sizeof weights);
    memcpy(file + 4096, bias, sizeof bias);
    write_into("folder", "weights.bin", file, sizeof file);
    graph_finish(&graph, &model);
    write_into("folder", "model.onnx", model.bytes, model.size);
}

/* At the beginning, at a place of its own, and at one where floats can't be used as they lie. */
static void
test_weights_apart(void **state)
{
    (void)state;
    static const struct {
        const char *offset;
        const char *length;
        size_t skip;
    } places_[] = {{NULL, NULL, 0}, {"64", "60", 64}, {"65", NULL, 65}};
    static const char *const modes[] = {"on", "off"};
    for (size_t i = 0; i < 6; i++) {
        const struct shoal_param params[] = {{"prepacking", modes[i / 3]}, {"model", "folder"}};
        dense_apart("weights.bin", places_[i % 3].offset, places_[i % 3].length,
                    places_[i % 3].skip);
        struct harness *harness = rig_open(MODELET, 2, params); /* its own */
        struct harness_item *item = dense_item(harness, 7);
        harness_run(harness, &item, 1);
        dense_right(item);
        harness_close(harness);
        harness = rig_open(MODELET, 1, params);
        for (size_t turn = 0; turn < 3; turn++) { /* loaded, and loaded again */
            load(harness, rig_path("folder"));
            item = dense_item(harness, 7);
            harness_run(harness, &item, 1);
            dense_right(item);
        }
        harness_close(harness);
    }
    folder_remove("folder");
}

static void
test_weights_that_are_not_there(void **state)
{
    (void)state;
    static const struct {
        const char *location;
        const char *offset;
        const char *length;
        const char *words;
    } wrong[] = {
        {"../weights.bin", NULL, NULL, "not in its folder"},
        {"a/../../weights.bin", NULL, NULL, "not in its folder"},
        {"/etc/passwd", NULL, NULL, "not in its folder"},
        {"..", NULL, NULL, "not in its folder"},
        {NULL, NULL, NULL, "not in its folder"},
        {"other.bin", NULL, NULL, "No such file"},
        {"weights.bin", "8192", NULL, "claims more than its file"},
        {"weights.bin", "10737418240", NULL, "claims more than its file"},
        {"weights.bin", "0", "10737418240", "claims more than its file"},
        {"weights.bin", "0", "59", "claims more than its file"},
        {"weights.bin", "-1", NULL, "no number"},
        {"weights.bin", "18446744073709551616", NULL, "no number"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dense_apart(wrong[i].location, wrong[i].offset, wrong[i].length, 0);
        struct harness *harness = rig_open(MODELET, 0, NULL);
        struct shoal_error error;
        assert_int_not_equal(harness_load(harness, rig_path("folder"), &error), SHOAL_OK);
        if (strstr(error.text, wrong[i].words) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", error.text, wrong[i].words);
        harness_close(harness);
    }
    dense_apart("weights.bin", "0", "60", 0);
    rig_refuses(MODELET, rig_path("folder/model.onnx"), "give the folder that all are in");
    folder_remove("folder");
}

static void
test_folders(void **state)
{
    (void)state;
    write_into("folder", "notes.txt", "", 0);
    rig_refuses(MODELET, rig_path("folder"), "is a folder with no file that ends in .onnx");
    dense();
    graph_finish(&graph, &model);
    write_into("folder", "model.onnx", model.bytes, model.size);
    struct harness *harness = rig_open(MODELET, 0, NULL);
    load(harness, rig_path("folder"));
    harness_close(harness);
    write_into("folder", "second.onnx", "", 0); /* not called "model" */
    harness = rig_open(MODELET, 0, NULL);
    load(harness, rig_path("folder"));
    harness_close(harness);
    remove(rig_path("folder/model.onnx"));
    write_into("folder", "third.onnx", "", 0);
    rig_refuses(MODELET, rig_path("folder"),
                "is a folder with more than one file that ends in .onnx");
    folder_remove("folder");
}

/* ---- broken files ---- */

static void
test_files_that_are_cut_short(void **state)
{
    (void)state;
    dense();
    graph_finish(&graph, &model);
    for (size_t size = 1; size < model.size; size += 1 + model.size / 60) {
        struct harness *harness = rig_open(MODELET, 0, NULL);
        struct shoal_error error;
        rig_write("cut", model.bytes, size);
        assert_int_not_equal(harness_load(harness, rig_path("cut"), &error), SHOAL_OK);
        assert_non_null(strstr(error.text, "cut"));
        harness_close(harness);
    }
    rig_refuses(MODELET, rig_write("cut", model.bytes, model.size - 5), "it is cut short");
}

static void
test_broken_files(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        const char *bytes;
        size_t size;
    } files[] = {
#define BYTES(text) text, sizeof text - 1
        {"a field has no type", BYTES("hello")},
        {"a field has no number", BYTES("\0\0\0\0")},
        {"a number is too long", BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")},
        {"there is no graph in it", BYTES("\x08\x08")},
        {"claims more than there is", BYTES("\x3a\x80\x80\x80\x80\x28")}, /* 10 GiB */
        {"claims more than there is",
         BYTES("\x3a\x06\x2a\x80\x80\x80\x80\x28")}, /* of a constant */
        {"ONNX Runtime says", BYTES("\x08\x08\x3a\x00")},
        {"ONNX Runtime says", BYTES("\x08\x08\x3a\x02\x0a\x00")},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        rig_refuses(MODELET, rig_write("broken", files[i].bytes, files[i].size), files[i].words);
    const char *sparse = rig_write("sparse", "", 0);
    assert_int_equal(truncate(sparse, (off_t)10 << 30), 0);
    rig_refuses(MODELET, rig_path("sparse"), "a field has no number");
    rig_refuses(MODELET, rig_path("nothing"), "No such file or directory");
    rig_refuses(MODELET, rig_write("empty", "", 0), "is empty");
    assert_int_equal(mkfifo(rig_path("fifo"), 0600), 0);
    rig_refuses(MODELET, rig_path("fifo"), "is not a regular file");
    remove(rig_path("fifo"));
    rig_refuses(MODELET, "/dev/zero", "is not a regular file");
}

/* Well-formed, but nothing that can be served. */
static void
test_models_that_are_not_served(void **state)
{
    (void)state;
    graph.size = 0; /* the constant is of 10 GiB, and has 4 bytes */
    dense_nodes();
    graph_constant(&graph, "W", ONNX_FLOAT, 2, (const int64_t[]){IN, 536870912}, "abcd", 4);
    graph_constant(&graph, "b", ONNX_FLOAT, 1, (const int64_t[]){OUT}, bias, sizeof bias);
    rig_refuses(MODELET, write_model("wrong"), "ONNX Runtime says");
    identity(ONNX_COMPLEX64, 1, (const int64_t[]){ONNX_BATCH});
    rig_refuses(MODELET, write_model("wrong"), "wrong");
    identity(ONNX_FLOAT8, 1, (const int64_t[]){ONNX_BATCH});
    rig_refuses(MODELET, write_model("wrong"), "a type that requests cannot have");
    identity(ONNX_FLOAT, 9, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1});
    rig_refuses(MODELET, write_model("wrong"), "has more than 8 dimensions");
    graph.size = 0;
    graph_input(&graph, "x", ONNX_FLOAT, 1, (const int64_t[]){2});
    graph_node(&graph, "Nonsense", "x", "y");
    graph_output(&graph, "y", ONNX_FLOAT, 1, (const int64_t[]){2});
    rig_refuses(MODELET, write_model("wrong"), "Nonsense");
    graph.size = 0; /* a sequence of tensors */
    graph_input(&graph, "x", ONNX_FLOAT, 1, (const int64_t[]){2});
    graph_node(&graph, "SequenceConstruct", "x", "y");
    message_bytes(&graph, 12, "\x0a\x01y\x12\x0c\x22\x0a\x0a\x08\x0a\x06\x08\x01\x12\x02\x0a\x00",
                  17);
    rig_refuses(MODELET, write_model("wrong"), "only plain tensors are served");
}

static void
test_wrong_parameters(void **state)
{
    (void)state;
    static const struct {
        struct shoal_param param;
        const char *words;
    } wrong[] = {
        {{"batch", "maybe"}, "there are auto and never"},
        {{"prepacking", ""}, "there are on and off"},
        {{"intra_threads", "0"}, "1 to 1024"},
        {{"intra_threads", "two"}, "1 to 1024"},
        {{"inter_threads", "1025"}, "1 to 1024"},
        {{"optimization", "much"}, "none, basic, extended and all"},
        {{"modle", "x"}, "there are model, batch"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct harness *harness;
        struct shoal_error error;
        assert_int_equal(rig_try(MODELET, 1, &wrong[i].param, &harness, &error),
                         SHOAL_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, wrong[i].words));
        assert_non_null(strstr(error.text, wrong[i].param.name));
    }
}

static void
test_right_parameters(void **state)
{
    (void)state;
    static const struct shoal_param right[] = {
        {"optimization", "none"}, {"optimization", "basic"}, {"optimization", "extended"},
        {"optimization", "all"},  {"intra_threads", "2"},    {"inter_threads", "2"},
        {"prepacking", "off"},    {"batch", "auto"},
    };
    dense();
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        struct harness *harness = serve_with(right[i].name, right[i].value);
        struct harness_item *items[] = {dense_item(harness, 3), dense_item(harness, 64)};
        harness_run(harness, items, 2);
        dense_right(items[0]);
        dense_right(items[1]);
        harness_close(harness);
    }
}

static void
test_there_is_no_onnx_runtime(void **state)
{
    (void)state;
    print_message("there is no ONNX Runtime (Debian 13 and later: libonnxruntime-dev)\n");
    skip();
}

int
main(void)
{
    const struct CMUnitTest lacking[] = {cmocka_unit_test(test_there_is_no_onnx_runtime)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_dense_layer),
        cmocka_unit_test(test_a_batch),
        cmocka_unit_test(test_describes_what_the_file_says),
        cmocka_unit_test(test_only_the_bad_item_fails),
        cmocka_unit_test(test_items_are_put_side_by_side),
        cmocka_unit_test(test_inputs_with_other_rows),
        cmocka_unit_test(test_a_culprit_fails_alone),
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_fixed_shapes),
        cmocka_unit_test(test_open_dimensions_of_other_names),
        cmocka_unit_test(test_rows_that_are_none),
        cmocka_unit_test(test_a_shape_that_was_a_lie),
        cmocka_unit_test(test_models_are_loaded_and_unloaded),
        cmocka_unit_test(test_what_a_model_will_take),
        cmocka_unit_test(test_weights_apart),
        cmocka_unit_test(test_weights_that_are_not_there),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_files_that_are_cut_short),
        cmocka_unit_test(test_broken_files),
        cmocka_unit_test(test_models_that_are_not_served),
        cmocka_unit_test(test_wrong_parameters),
        cmocka_unit_test(test_right_parameters),
    };
    char path[4096];
    snprintf(path, sizeof path, "%s/lib/shoal/lib" MODELET ".so", getenv("SHOAL_BUILD_DIR"));
    if (access(path, F_OK) != 0)
        return cmocka_run_group_tests(lacking, NULL, NULL);
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
