/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an ONNX file says about itself, read before ONNX Runtime sees it: how large its constants
 * are, and which of them lie in other files. ONNX is Protocol Buffers; only the fields on the way
 * to the constants are looked at, each length is held against what is there. What the others mean
 * is ONNX Runtime's matter. No threads' matter.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GRAPH_RANK_MAX = 8 };

/* A piece of the file. Not terminated. */
struct graph_bytes {
    const unsigned char *bytes;
    size_t size;
};

/* A constant that lies in another file. */
struct graph_constant {
    struct graph_bytes name;
    struct graph_bytes location; /* of the file, as the model calls it */
    uint64_t offset;
    uint64_t length;  /* UINT64_MAX: not said */
    uint32_t element; /* of ONNX's numbers of types */
    uint32_t rank;
    int64_t shape[GRAPH_RANK_MAX];
};

struct graph_file {
    uint64_t inside_bytes; /* of constants in the file itself */
    uint64_t node_count;
    struct graph_constant *apart; /* constants in other files */
    size_t apart_count;
};

/* Passes over the bytes once; they must outlive `file`. False: `room` says what is wrong with them,
 * and `file` holds nothing. */
bool graph_file_read(const void *bytes, size_t size, struct graph_file *file, char *room,
                     size_t room_bytes);
void graph_file_free(struct graph_file *file);
