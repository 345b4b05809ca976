/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes ONNX models in memory, for tests: messages of Protocol Buffers by the numbers of
 * onnx.proto, each field appended to the message that it is part of. Text that does not fit fails
 * the test.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum onnx_element {
    ONNX_FLOAT = 1,
    ONNX_UINT8,
    ONNX_INT8,
    ONNX_UINT16,
    ONNX_INT16,
    ONNX_INT32,
    ONNX_INT64,
    ONNX_STRING,
    ONNX_BOOL,
    ONNX_FLOAT16,
    ONNX_DOUBLE,
    ONNX_UINT32,
    ONNX_UINT64,
    ONNX_COMPLEX64,
    ONNX_BFLOAT16 = 16,
    ONNX_FLOAT8 = 17
};

enum { MESSAGE_ROOM = 1 << 16, ONNX_BATCH = -1, ONNX_OTHER = -2 }; /* open: two names */

struct message {
    size_t size;
    unsigned char bytes[MESSAGE_ROOM];
};

void message_int(struct message *to, uint32_t field, uint64_t number);
void message_bytes(struct message *to, uint32_t field, const void *bytes, size_t size);
void message_text(struct message *to, uint32_t field, const char *text);

/* Parts of a graph, which is a message. Names are separated by one space. */
void graph_input(struct message *graph, const char *name, enum onnx_element element, uint32_t rank,
                 const int64_t *shape);
void graph_output(struct message *graph, const char *name, enum onnx_element element, uint32_t rank,
                  const int64_t *shape);
void graph_node(struct message *graph, const char *operator_name, const char *inputs,
                const char *outputs);
void graph_constant(struct message *graph, const char *name, enum onnx_element element,
                    uint32_t rank, const int64_t *shape, const void *bytes, size_t size);
/* A constant in another file. NULL fields are left out. */
void graph_constant_apart(struct message *graph, const char *name, enum onnx_element element,
                          uint32_t rank, const int64_t *shape, const char *location,
                          const char *offset, const char *length);
/* The whole model of a graph. */
void graph_finish(const struct message *graph, struct message *model);
