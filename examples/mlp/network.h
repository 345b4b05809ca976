/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file format of a multi-layer perceptron, version 1, and its reader. Integers and floats are
 * in the byte order of the machine that wrote the file, which the file states; offsets count from
 * its first byte.
 *
 *     struct network_header                       identity, widths, names of the tensors
 *     struct network_layer[layer_count]           from input to output
 *     weights and biases, each at a multiple of NETWORK_ALIGNMENT
 *
 * A layer computes activation(x W + b): W is FP32 [inputs][outputs], row-major, b FP32 [outputs].
 * Its inputs are the outputs of the previous layer; the first layer has the header's input_width.
 * Areas may overlap, so that layers can share weights. The file ends where the header says.
 *
 * The reader gets the file in memory and copies nothing: a `struct network` points into the file
 * and is valid as long as it. The reader validates everything: it never reads outside the file, and
 * passes over each byte at most once per layer. No state: any thread may call it.
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
    uint32_t byte_order; /* NETWORK_BYTE_ORDER as stored by the writer's machine */
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
    uint32_t width_max; /* of the layers' outputs, except the last; 0 for a single layer */
    uint32_t layer_count;
    const char *input_name;
    const char *output_name;
    struct layer layers[NETWORK_LAYERS_MAX];
};

/* Reads a file of `size` bytes at an address that is a multiple of NETWORK_ALIGNMENT. Returns NULL,
 * or an error text in `room`, valid as long as that. Refuses weights that are not finite. */
const char *network_read(const void *bytes, size_t size, struct network *network, char *room,
                         size_t room_bytes);
