/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A multi-layer perceptron as a file, version 1, and its reader. Integers and floats are in the
 * byte order of the machine that wrote it, which the file states; offsets count from its first
 * byte.
 *
 *     struct network_header                       who it is, how wide, what its tensors are called
 *     struct network_layer[layer_count]           from input to output
 *     weights and biases, each at a multiple of NETWORK_ALIGNMENT
 *
 * A layer computes activation(x W + b): W is FP32 [inputs][outputs], row-major, b FP32 [outputs].
 * Its inputs are the outputs of the layer before it, those of the first the header's input_width.
 * Areas may overlap, so that layers can share weights. The file ends where it says it does.
 *
 * The reader is given the file in memory and copies nothing: what a `struct network` points to lies
 * in it, and is valid as long. It believes nothing: whatever the bytes, it reads inside of them,
 * and passes over each at most once per layer. No threads' matter.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define NETWORK_MAGIC "SHOALMLP"
#define NETWORK_BYTE_ORDER UINT32_C(0x01020304)

enum {
    NETWORK_VERSION = 1,
    NETWORK_ALIGNMENT = 64,
    NETWORK_LAYERS_MAX = 64,
    NETWORK_WIDTH_MAX = 65536, /* inputs or outputs of a layer */
    NETWORK_NAME_ROOM = 64
};

enum network_activation {
    NETWORK_IDENTITY,
    NETWORK_RELU,
    NETWORK_TANH,
    NETWORK_SIGMOID,
    NETWORK_SOFTMAX, /* over all outputs of the layer */
    NETWORK_ACTIVATION_END
};

struct network_header {
    char magic[8];
    uint32_t byte_order; /* NETWORK_BYTE_ORDER, as the writer's machine stores it */
    uint32_t version;
    uint64_t file_bytes;
    uint32_t input_width;
    uint32_t layer_count;
    char input_name[NETWORK_NAME_ROOM]; /* both terminated and not empty */
    char output_name[NETWORK_NAME_ROOM];
};

struct network_layer {
    uint32_t outputs;
    uint32_t activation;
    uint64_t weights_offset;
    uint64_t bias_offset; /* 0: no bias */
};

_Static_assert(sizeof(struct network_header) == 160, "the file's format");
_Static_assert(sizeof(struct network_layer) == 24, "the file's format");

struct layer {
    uint32_t inputs;
    uint32_t outputs;
    enum network_activation activation;
    const float *weights;
    const float *bias; /* NULL: none */
};

struct network {
    uint32_t input_width;
    uint32_t output_width;
    uint32_t width_max; /* of what a layer gives, the last one left aside; 0 for a single layer */
    uint32_t layer_count;
    const char *input_name;
    const char *output_name;
    struct layer layers[NETWORK_LAYERS_MAX];
};

/* Reads a file of `size` bytes at an address that is a multiple of NETWORK_ALIGNMENT. Returns NULL,
 * or what is wrong with it, a text in `room` that is valid as long as that. Every weight is looked
 * at: one that is no finite number is refused. */
const char *network_read(const void *bytes, size_t size, struct network *network, char *room,
                         size_t room_bytes);
