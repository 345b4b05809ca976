/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads an ONNX file before ONNX Runtime does: the size of its constants, and those that are in
 * other files. ONNX is protobuf; only the fields on the way to the constants are read, and each
 * length is checked against the remaining bytes. ONNX Runtime judges the rest. No state: any thread
 * may call it.
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

/* A constant in another file. */
struct graph_constant {
    struct graph_bytes name;
    struct graph_bytes location; /* the file's name in the model */
    uint64_t offset;
    uint64_t length;  /* UINT64_MAX: not stated */
    uint32_t element; /* ONNX's number of its type */
    uint32_t rank;
    int64_t shape[GRAPH_RANK_MAX];
};

struct graph_file {
    uint64_t inside_bytes; /* of constants in the file itself */
    uint64_t node_count;
    struct graph_constant *apart; /* constants in other files */
    size_t apart_count;
};

/* Reads the bytes once; they must outlive `file`. False: malformed, `room` has the reason, and
 * `file` holds nothing. */
bool graph_file_read(const void *bytes, size_t size, struct graph_file *file, char *room,
                     size_t room_bytes);
void graph_file_free(struct graph_file *file);
