/* SPDX-License-Identifier: Apache-2.0 */
#include "../random.h"
#include "onnx_rig.h"

#include <glob.h>
#include <math.h>
#include <stdlib.h>

#define TOLERANCE 1e-5

struct message onnx_graph;
struct message onnx_model;
float onnx_weights[IN][OUT];
float onnx_bias[OUT];

bool
onnx_is_installed(void)
{
    static const char *const places[] = {"/usr/lib/*/libonnxruntime.so*",
                                         "/usr/{,local/}lib{,64}/libonnxruntime.so*"};
    bool found = false;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        glob_t paths;
        found = glob(places[i], GLOB_BRACE, NULL, &paths) == 0 || found;
        globfree(&paths);
    }
    return found;
}

bool
onnx_is_there(void)
{
    return getenv("SHOAL_ONNXRUNTIME_DIR") != NULL || onnx_is_installed();
}

TEST_CASE(test_there_is_no_onnx_runtime)
{
    print_message("there is no ONNX Runtime: neither the system's nor in SHOAL_ONNXRUNTIME_DIR\n");
    skip();
}

const struct CMUnitTest onnx_lacking[1] = {cmocka_unit_test(test_there_is_no_onnx_runtime)};

const char *
onnx_write(const char *name)
{
    graph_finish(&onnx_graph, &onnx_model);
    return rig_write(name, onnx_model.bytes, onnx_model.size);
}

struct shoal_harness *
onnx_serve_with(const char *name, const char *value)
{
    const struct shoal_param params[] = {{"model", FILE_NAME}, {name, value}};
    onnx_write(FILE_NAME);
    return rig_open(MODELET, name != NULL ? 2 : 1, params);
}

struct shoal_harness *
onnx_serve(void)
{
    return onnx_serve_with(NULL, NULL);
}

void
onnx_load(struct shoal_harness *harness, const char *path)
{
    struct shoal_error error;
    if (shoal_harness_load(harness, path, &error) != SHOAL_OK)
        fail_msg("%s", error.text);
}

float
onnx_noise(void)
{
    static uint64_t state = 1;
    return (float)(random_draw(&state) % 2001) / 1000 - 1;
}

void
onnx_dense_draw(void)
{
    for (size_t i = 0; i < IN; i++)
        for (size_t o = 0; o < OUT; o++)
            onnx_weights[i][o] = onnx_noise();
    for (size_t o = 0; o < OUT; o++)
        onnx_bias[o] = onnx_noise();
}

void
onnx_dense_nodes(void)
{
    graph_input(&onnx_graph, "x", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, IN});
    graph_output(&onnx_graph, "y", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, OUT});
    graph_node(&onnx_graph, "MatMul", "x W", "product");
    graph_node(&onnx_graph, "Add", "product b", "sum");
    graph_node(&onnx_graph, "Relu", "sum", "y");
}

void
onnx_dense(void)
{
    onnx_graph.size = 0;
    onnx_dense_draw();
    onnx_dense_nodes();
    graph_constant(&onnx_graph, "W", ONNX_FLOAT, 2, (const int64_t[]){IN, OUT}, onnx_weights,
                   sizeof onnx_weights);
    graph_constant(&onnx_graph, "b", ONNX_FLOAT, 1, (const int64_t[]){OUT}, onnx_bias,
                   sizeof onnx_bias);
}

struct shoal_harness_item *
onnx_dense_item(struct shoal_harness *harness, size_t rows)
{
    float data[ROWS_MAX * IN];
    for (size_t i = 0; i < rows * IN; i++)
        data[i] = onnx_noise();
    struct shoal_harness_item *item = shoal_harness_item(harness);
    shoal_harness_input(item, "x", SHOAL_FP32, 2, (const int64_t[]){(int64_t)rows, IN}, data);
    return item;
}

void
onnx_dense_right(const struct shoal_harness_item *item)
{
    size_t rows = (size_t)item->inputs[0].shape[0];
    const float *in = item->inputs[0].data;
    const float *out = rig_floats(item, "y", rows * OUT);
    for (size_t row = 0; row < rows; row++) {
        for (size_t o = 0; o < OUT; o++) {
            double sum = onnx_bias[o];
            for (size_t i = 0; i < IN; i++)
                sum += (double)in[row * IN + i] * (double)onnx_weights[i][o];
            sum = sum > 0 ? sum : 0;
            if (!(fabs(out[row * OUT + o] - sum) <= TOLERANCE))
                fail_msg("row %zu of %zu, %zu: %g, not %g", row, rows, o,
                         (double)out[row * OUT + o], sum);
        }
    }
}

void
onnx_sums(int64_t width)
{
    const int64_t axis = 0;
    onnx_graph.size = 0;
    graph_input(&onnx_graph, "x", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, width});
    graph_output(&onnx_graph, "y", ONNX_FLOAT, 2, (const int64_t[]){ONNX_BATCH, width});
    graph_constant(&onnx_graph, "axis", ONNX_INT64, 1, (const int64_t[]){1}, &axis, sizeof axis);
    graph_node(&onnx_graph, "ReduceSum", "x axis", "all");
    graph_node(&onnx_graph, "Add", "x all", "y");
}

struct shoal_harness_item *
onnx_ones(struct shoal_harness *harness, size_t width)
{
    static const float one[] = {1, 1, 1, 1};
    struct shoal_harness_item *item = shoal_harness_item(harness);
    shoal_harness_input(item, "x", SHOAL_FP32, 2, (const int64_t[]){1, (int64_t)width}, one);
    return item;
}

void
onnx_identity(enum onnx_element element, uint32_t rank, const int64_t *shape)
{
    onnx_graph.size = 0;
    graph_input(&onnx_graph, "x", element, rank, shape);
    graph_output(&onnx_graph, "y", element, rank, shape);
    graph_node(&onnx_graph, "Identity", "x", "y");
}
