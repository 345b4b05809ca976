/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The onnx modelet serves any model, with the names, types and shapes that the
 * file says: models are written here byte by byte, and their answers computed beside them. Each is
 * asked twice or more, since the first answer is copied and later ones are computed where they are
 * to be. A model whose rows know of each other shows which items ran together. Where ONNX Runtime
 * is not packaged there is no modelet, and all this is skipped.
 */
#include <stdbool.h>
#include <string.h>

#include "../test.h"
#include "onnx_rig.h"

/* ---- a dense layer ---- */

TEST_CASE(test_a_dense_layer)
{
    static const size_t rows[] = {1, 2, 7, 0, ROWS_MAX};
    onnx_dense();
    struct shoal_harness *harness = onnx_serve();
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        struct shoal_harness_item *item = onnx_dense_item(harness, rows[i / 2]);
        shoal_harness_run(harness, &item, 1);
        onnx_dense_right(item);
    }
    shoal_harness_close(harness);
}

TEST_CASE(test_a_batch)
{
    enum { COUNT = 20 };
    struct shoal_harness_item *items[COUNT];
    onnx_dense();
    struct shoal_harness *harness = onnx_serve();
    for (size_t turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < COUNT; i++)
            items[i] = onnx_dense_item(harness, (i + turn) % 4);
        shoal_harness_run(harness, items, COUNT);
        for (size_t i = 0; i < COUNT; i++)
            onnx_dense_right(items[i]);
    }
    shoal_harness_close(harness);
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

TEST_CASE(test_describes_what_the_file_says)
{
    onnx_dense();
    struct shoal_harness *harness = onnx_serve();
    describes_dense(shoal_harness_describe(harness));
    shoal_harness_close(harness);
    harness = rig_open(MODELET, 0, NULL);
    onnx_load(harness, rig_path(FILE_NAME));
    describes_dense(shoal_harness_describe_model(harness));
    shoal_harness_close(harness);
}

TEST_CASE(test_only_the_bad_item_fails)
{
    enum { COUNT = 9 };
    const double numbers[2 * IN] = {0};
    const int64_t right[] = {1, IN}, narrow[] = {1, IN - 1}, cube[] = {1, 1, IN};
    onnx_dense();
    struct shoal_harness *harness = onnx_serve();
    struct shoal_harness_item *items[COUNT] = {onnx_dense_item(harness, 2)};
    for (size_t i = 1; i < COUNT - 1; i++)
        items[i] = shoal_harness_item(harness);
    items[COUNT - 1] = onnx_dense_item(harness, 3);
    shoal_harness_input(items[1], "x", SHOAL_FP32, 2, narrow, numbers);
    shoal_harness_input(items[2], "x", SHOAL_FP32, 3, cube, numbers);
    shoal_harness_input(items[3], "x", SHOAL_FP64, 2, right, numbers);
    shoal_harness_input(items[4], "z", SHOAL_FP32, 2, right, numbers);
    shoal_harness_input(items[6], "x", SHOAL_FP32, 2, right, numbers);
    shoal_harness_input(items[6], "z", SHOAL_FP32, 2, right, numbers);
    shoal_harness_input_bytes(items[7], "x", 2, (const int64_t[]){1, 1}, "\0\0\0\0", 4);
    shoal_harness_run(harness, items, COUNT);
    onnx_dense_right(items[0]);
    onnx_dense_right(items[COUNT - 1]);
    rig_failed(items[1], SHOAL_INVALID_ARGUMENT, "must have the shape [-1,5]");
    rig_failed(items[2], SHOAL_INVALID_ARGUMENT, "must have the shape [-1,5]");
    rig_failed(items[3], SHOAL_INVALID_ARGUMENT, "must be of datatype FP32");
    rig_failed(items[4], SHOAL_INVALID_ARGUMENT, "no input tensor \"x\"");
    rig_failed(items[5], SHOAL_INVALID_ARGUMENT, "there are 0 input tensors; the model takes 1");
    rig_failed(items[6], SHOAL_INVALID_ARGUMENT, "there are 2 input tensors; the model takes 1");
    rig_failed(items[7], SHOAL_INVALID_ARGUMENT, "must be of datatype FP32");
    shoal_harness_limit(harness, 2 * OUT * sizeof(float)); /* room for the first alone */
    struct shoal_harness_item *good[] = {items[0], items[COUNT - 1]};
    shoal_harness_run(harness, good, 2);
    onnx_dense_right(items[0]);
    rig_failed(items[COUNT - 1], SHOAL_RESOURCE_EXHAUSTED, "y");
    shoal_harness_run(harness, &items[COUNT - 1], 1); /* where it would have been computed */
    rig_failed(items[COUNT - 1], SHOAL_RESOURCE_EXHAUSTED, "y");
    shoal_harness_close(harness);
}

/* ---- which items run together ---- */

TEST_CASE(test_items_are_put_side_by_side)
{
    enum { COUNT = 6 };
    static const char *const modes[] = {"auto", "never"};
    struct shoal_harness_item *items[COUNT];
    for (size_t mode = 0; mode < 2; mode++) {
        onnx_sums(ONNX_OTHER);
        struct shoal_harness *harness = onnx_serve_with("batch", modes[mode]);
        for (size_t i = 0; i < COUNT; i++) /* two of width 1, one of 2, three of 3 */
            items[i] = onnx_ones(harness, i == 2 ? 2 : i % 2 == 0 ? 1 : 3);
        for (size_t turn = 0; turn < 2; turn++) {
            shoal_harness_run(harness, items, COUNT);
            assert_int_equal(shoal_harness_runs(harness), turn + 1);
            for (size_t i = 0; i < COUNT; i++) {
                size_t width = i == 2 ? 2 : i % 2 == 0 ? 1 : 3;
                float company = mode == 1 || i == 2 ? 1 : width == 1 ? 2 : 3;
                const float *y = rig_floats(items[i], "y", width);
                for (size_t k = 0; k < width; k++)
                    assert_true(y[k] == 1 + company);
            }
        }
        shoal_harness_close(harness);
    }
}

/* Two inputs, with as many rows or not; the second is broadcast. */
TEST_CASE(test_inputs_with_other_rows)
{
    const float data[] = {1, 2, 3, 4};
    onnx_graph.size = 0;
    graph_input(&onnx_graph, "a", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, 1});
    graph_input(&onnx_graph, "b", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, 1});
    graph_output(&onnx_graph, "y", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, 1});
    graph_node(&onnx_graph, "Add", "a b", "y");
    struct shoal_harness *harness = onnx_serve();
    struct shoal_harness_item *items[4];
    static const int64_t rows[4][2] = {{4, 4}, {2, 1}, {1, 1}, {2, 3}};
    for (size_t i = 0; i < 4; i++) {
        items[i] = shoal_harness_item(harness); /* not in the model's order */
        shoal_harness_input(items[i], "b", SHOAL_FP32, 2, (const int64_t[]){rows[i][1], 1}, data);
        shoal_harness_input(items[i], "a", SHOAL_FP32, 2, (const int64_t[]){rows[i][0], 1}, data);
    }
    for (size_t turn = 0; turn < 2; turn++) {
        shoal_harness_run(harness, items, 4);
        const float *y = rig_floats(items[0], "y", 4);
        assert_true(y[0] == 2 && y[1] == 4 && y[2] == 6 && y[3] == 8);
        y = rig_floats(items[1], "y", 2);
        assert_true(y[0] == 2 && y[1] == 3);
        assert_true(rig_floats(items[2], "y", 1)[0] == 2);
        assert_int_not_equal(items[3]->item.status, SHOAL_OK);
        assert_non_null(strstr(items[3]->error.text, "ONNX Runtime: "));
    }
    shoal_harness_close(harness);
}

/* Rows are chosen by an index: one that is out of range is its item's fault alone. */
TEST_CASE(test_a_culprit_fails_alone)
{
    enum { COUNT = 5 };
    const float table[] = {10, 20, 30};
    onnx_graph.size = 0;
    graph_input(&onnx_graph, "i", ONNX_INT64, 1, (const int64_t[]){ONNX_BATCH});
    graph_output(&onnx_graph, "y", ONNX_FLOAT, 1, (const int64_t[]){ONNX_BATCH});
    graph_constant(&onnx_graph, "table", ONNX_FLOAT, 1, (const int64_t[]){3}, table, sizeof table);
    graph_node(&onnx_graph, "Gather", "table i", "y");
    struct shoal_harness *harness = onnx_serve();
    struct shoal_harness_item *items[COUNT];
    for (int64_t i = 0; i < COUNT; i++) {
        const int64_t index = i == 3 ? 99 : i % 3;
        items[i] = shoal_harness_item(harness);
        shoal_harness_input(items[i], "i", SHOAL_INT64, 1, (const int64_t[]){1}, &index);
    }
    for (size_t turn = 0; turn < 3; turn++) {
        shoal_harness_run(harness, items, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            if (i == 3)
                rig_failed(items[i], SHOAL_INVALID_ARGUMENT, "indices element out of data bounds");
            else
                assert_true(rig_floats(items[i], "y", 1)[0] == table[i % 3]);
        }
        shoal_harness_run(harness, &items[turn], 1);
    }
    shoal_harness_close(harness);
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
same(const struct shoal_harness_item *item)
{
    if (item->item.status != SHOAL_OK)
        fail_msg("%s", item->error.text);
    const struct shoal_tensor *in = item->inputs;
    const struct shoal_tensor *out = shoal_harness_output(item, "y");
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
comes_back(struct shoal_harness *harness, struct shoal_harness_item **items, uint32_t count)
{
    for (size_t turn = 0; turn < 3; turn++) {
        shoal_harness_run(harness, &items[turn % count], 1);
        same(items[turn % count]);
        shoal_harness_run(harness, items, count);
        for (uint32_t i = 0; i < count; i++)
            same(items[i]);
    }
}

TEST_CASE(test_every_type)
{
    enum { COUNT = 4, WIDTH = 3 };
    unsigned char data[COUNT * WIDTH * sizeof(double)];
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct shoal_harness_item *items[COUNT];
        onnx_identity(types[t].element, 2, (const int64_t[]){ONNX_BATCH, WIDTH});
        struct shoal_harness *harness = onnx_serve();
        assert_int_equal(shoal_harness_describe(harness).inputs[0].datatype, types[t].datatype);
        for (size_t i = 0; i < COUNT; i++) {
            for (size_t k = 0; k < sizeof data; k++)
                data[k] = (unsigned char)(types[t].element == ONNX_BOOL ? (i + k) % 2 : 7 * i + k);
            items[i] = shoal_harness_item(harness);
            shoal_harness_input(items[i], "x", types[t].datatype, 2,
                                (const int64_t[]){(int64_t)i, WIDTH}, data);
        }
        comes_back(harness, items, COUNT);
        shoal_harness_close(harness);
    }
}

TEST_CASE(test_texts)
{
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
    struct shoal_harness_item *items[COUNT];
    onnx_identity(ONNX_STRING, 2, (const int64_t[]){ONNX_BATCH, 2});
    struct shoal_harness *harness = onnx_serve();
    assert_int_equal(shoal_harness_describe(harness).inputs[0].datatype, SHOAL_BYTES);
    for (size_t i = 0; i < COUNT; i++) {
        items[i] = shoal_harness_item(harness);
        shoal_harness_input_bytes(items[i], "x", 2, (const int64_t[]){texts[i].rows, 2},
                                  texts[i].bytes, texts[i].size);
    }
    comes_back(harness, items, COUNT);
    /* As a local client may leave it: the second element claims more than there is. */
    struct shoal_harness_item *wrong = shoal_harness_item(harness);
    shoal_harness_input_bytes(wrong, "x", 2, (const int64_t[]){1, 2}, "\1\0\0\0a\2\0\0\0b", 10);
    struct shoal_harness_item *both[] = {items[0], wrong};
    shoal_harness_run(harness, both, 2);
    same(items[0]);
    rig_failed(wrong, SHOAL_INVALID_ARGUMENT, "its elements overrun it");
    shoal_harness_close(harness);
}

/* ---- without a batch dimension ---- */

TEST_CASE(test_fixed_shapes)
{
    enum { COUNT = 3 };
    static const int64_t shapes[][3] = {{0}, {4}, {3, 0}, {2, 3, 1}}; /* the first: one number */
    const float data[] = {1, 2, 3, 4, 5, 6, 7};
    for (uint32_t rank = 0; rank < 4; rank++) {
        const int64_t *shape = shapes[rank];
        struct shoal_harness_item *items[COUNT];
        onnx_identity(ONNX_FLOAT, rank, shape);
        struct shoal_harness *harness = onnx_serve();
        for (size_t i = 0; i < COUNT; i++) {
            items[i] = shoal_harness_item(harness);
            shoal_harness_input(items[i], "x", SHOAL_FP32, rank, shape, data + i % 2);
        }
        comes_back(harness, items, COUNT);
        shoal_harness_close(harness);
    }
}

/* It is given back as it came, and nothing is computed. */
TEST_CASE(test_an_output_that_is_an_input)
{
    static const int64_t shape[] = {3};
    const float data[] = {1, 2, 3};
    onnx_identity(ONNX_FLOAT, 1, shape);
    graph_output(&onnx_graph, "x", ONNX_FLOAT, 1, shape);
    struct shoal_harness *harness = onnx_serve();
    struct shoal_harness_item *item = shoal_harness_item(harness);
    shoal_harness_input(item, "x", SHOAL_FP32, 1, shape, data);
    for (size_t turn = 0; turn < 3; turn++) {
        shoal_harness_run(harness, &item, 1);
        same(item);
        assert_memory_equal(rig_floats(item, "x", 3), data, sizeof data);
    }
    shoal_harness_close(harness);
}

/* Rows of the inputs and rows of the outputs have other names: nothing is put side by side. */
TEST_CASE(test_open_dimensions_of_other_names)
{
    onnx_sums(1);
    struct shoal_harness *harness = onnx_serve();
    struct shoal_harness_item *items[2] = {onnx_ones(harness, 1), onnx_ones(harness, 1)};
    shoal_harness_run(harness, items, 2);
    assert_true(rig_floats(items[0], "y", 1)[0] == 3);
    shoal_harness_close(harness);
    const int64_t axis = 0;
    const float zero = 0;
    onnx_graph.size = 0; /* x + their sum, of those that are more than 0 */
    graph_input(&onnx_graph, "x", ONNX_FLOAT, 1, (const int64_t[]){ONNX_BATCH});
    graph_output(&onnx_graph, "y", ONNX_FLOAT, 1, (const int64_t[]){ONNX_OTHER});
    graph_constant(&onnx_graph, "axis", ONNX_INT64, 1, (const int64_t[]){1}, &axis, sizeof axis);
    graph_constant(&onnx_graph, "zero", ONNX_FLOAT, 0, NULL, &zero, sizeof zero);
    graph_node(&onnx_graph, "ReduceSum", "x axis", "all");
    graph_node(&onnx_graph, "Add", "x all", "sums");
    graph_node(&onnx_graph, "Greater", "sums zero", "more");
    graph_node(&onnx_graph, "Compress", "sums more", "y");
    harness = onnx_serve();
    for (size_t i = 0; i < 2; i++) {
        const float one = 1;
        items[i] = shoal_harness_item(harness);
        shoal_harness_input(items[i], "x", SHOAL_FP32, 1, (const int64_t[]){1}, &one);
    }
    shoal_harness_run(harness, items, 2);
    assert_true(rig_floats(items[0], "y", 1)[0] == 2);
    shoal_harness_close(harness);
}

/* ---- shapes that depend on the data: where x is not 0 ---- */

static void
places(int64_t rows_said, bool transposed)
{
    const int64_t said[] = {transposed ? rows_said : 2, transposed ? 2 : rows_said};
    onnx_graph.size = 0;
    graph_input(&onnx_graph, "x", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, 2});
    graph_output(&onnx_graph, "y", ONNX_INT64, 2, said);
    graph_node(&onnx_graph, "NonZero", "x", transposed ? "found" : "y");
    if (transposed)
        graph_node(&onnx_graph, "Transpose", "found", "y");
}

static struct shoal_harness_item *
two_numbers(struct shoal_harness *harness, float first, float second)
{
    const float data[] = {first, second};
    struct shoal_harness_item *item = shoal_harness_item(harness);
    shoal_harness_input(item, "x", SHOAL_FP32, 2, (const int64_t[]){1, 2}, data);
    return item;
}

static int64_t
rows_of(const struct shoal_harness_item *item, uint32_t dimension)
{
    if (item->item.status != SHOAL_OK)
        fail_msg("%s", item->error.text);
    return shoal_harness_output(item, "y")->shape[dimension];
}

/* It says a row for each row, and gives as many as it finds. */
TEST_CASE(test_rows_that_are_none)
{
    places(ONNX_BATCH, true);
    struct shoal_harness *harness = onnx_serve();
    struct shoal_harness_item *items[] = {two_numbers(harness, 1, 2), two_numbers(harness, 4, 5),
                                          two_numbers(harness, 0, 3)};
    for (size_t turn = 0; turn < 2; turn++) {
        shoal_harness_run(harness, items, 3);
        assert_int_equal(rows_of(items[0], 0), 2);
        assert_int_equal(rows_of(items[1], 0), 2);
        assert_int_equal(rows_of(items[2], 0), 1);
        assert_int_equal(((int64_t *)shoal_harness_output(items[2], "y")->data)[1], 1);
    }
    shoal_harness_close(harness);
}

/* It says that there is always one, which is true at first. */
TEST_CASE(test_a_shape_that_was_a_lie)
{
    places(1, false);
    struct shoal_harness *harness = onnx_serve();
    struct shoal_harness_item *one = two_numbers(harness, 0, 3);
    struct shoal_harness_item *two = two_numbers(harness, 1, 3);
    for (size_t turn = 0; turn < 3; turn++) {
        shoal_harness_run(harness, &one, 1);
        assert_int_equal(rows_of(one, 1), 1);
    }
    shoal_harness_run(harness, &two, 1);
    /* newer libraries call it an invalid argument */
    rig_failed(two,
               two->item.status == SHOAL_INVALID_ARGUMENT ? SHOAL_INVALID_ARGUMENT : SHOAL_INTERNAL,
               "ONNX Runtime: ");
    for (size_t turn = 0; turn < 3; turn++) {
        shoal_harness_run(harness, &two, 1);
        assert_int_equal(rows_of(two, 1), 2);
        shoal_harness_run(harness, &one, 1);
        assert_int_equal(rows_of(one, 1), 1);
    }
    shoal_harness_close(harness);
}

int
main(void)
{
    if (!onnx_is_there())
        return cmocka_run_group_tests(onnx_lacking, NULL, NULL);
    return TEST_RUN(.group_setup = rig_setup, .group_teardown = rig_teardown);
}
