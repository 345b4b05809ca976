/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models for the tests of the onnx modelet: a graph in the making, and some that both need. Where
 * there is no ONNX Runtime, neither the system's nor one in SHOAL_ONNXRUNTIME_DIR, `onnx_lacking`
 * says so and is skipped.
 */
#pragma once

#include <stdbool.h>

#include "../test.h"
#include "model_rig.h"
#include "onnx_writer.h"

#define MODELET "onnx_modelet"
#define FILE_NAME "written.onnx"

bool onnx_is_there(void);
bool onnx_is_installed(void); /* in the system */
extern const struct CMUnitTest onnx_lacking[1];

extern struct message onnx_graph; /* output of the functions below */
extern struct message onnx_model; /* the whole, once it was written to a file */

const char *onnx_write(const char *name);
/* The modelet with the graph as its own model, and perhaps one more parameter. */
struct shoal_harness *onnx_serve_with(const char *name, const char *value);
struct shoal_harness *onnx_serve(void);
void onnx_load(struct shoal_harness *harness, const char *path);

/* Between -1 and 1. */
float onnx_noise(void);

/* A dense layer: y = relu(x·W + b). The nodes alone leave the constants to the caller. */
enum { IN = 5, OUT = 3, ROWS_MAX = 64 };
extern float onnx_weights[IN][OUT];
extern float onnx_bias[OUT];
void onnx_dense(void);
void onnx_dense_draw(void);
void onnx_dense_nodes(void);
struct shoal_harness_item *onnx_dense_item(struct shoal_harness *harness, size_t rows);
void onnx_dense_right(const struct shoal_harness_item *item);

/* y = x + the sum of all its rows; and an item of one row of ones. */
void onnx_sums(int64_t width);
struct shoal_harness_item *onnx_ones(struct shoal_harness *harness, size_t width);

/* y = x */
void onnx_identity(enum onnx_element element, uint32_t rank, const int64_t *shape);
