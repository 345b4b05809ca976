/* SPDX-License-Identifier: Apache-2.0 */
#include "../test.h"
#include "onnx_writer.h"

#include <string.h>

enum { IR_VERSION = 10, OPERATORS_VERSION = 21 };

static void
put(struct message *to, const void *bytes, size_t size)
{
    assert_true(size <= sizeof to->bytes - to->size);
    if (size > 0)
        memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

static void
varint(struct message *to, uint64_t number)
{
    do {
        unsigned char byte = (unsigned char)((number & 127) | (number > 127 ? 128 : 0));
        put(to, &byte, 1);
        number >>= 7;
    } while (number > 0);
}

void
message_int(struct message *to, uint32_t field, uint64_t number)
{
    varint(to, (uint64_t)field << 3);
    varint(to, number);
}

void
message_bytes(struct message *to, uint32_t field, const void *bytes, size_t size)
{
    varint(to, (uint64_t)field << 3 | 2);
    varint(to, size);
    put(to, bytes, size);
}

void
message_text(struct message *to, uint32_t field, const char *text)
{
    message_bytes(to, field, text, strlen(text));
}

static void
message_inner(struct message *to, uint32_t field, const struct message *inner)
{
    message_bytes(to, field, inner->bytes, inner->size);
}

/* Each name of the text as a field. */
static void
names(struct message *to, uint32_t field, const char *text)
{
    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        message_bytes(to, field, text, length);
        text += length + (text[length] == ' ');
    }
}

static void
value(struct message *graph, uint32_t field, const char *name, enum onnx_element element,
      uint32_t rank, const int64_t *shape)
{
    static struct message dims, tensor, type, whole;
    dims.size = tensor.size = type.size = whole.size = 0;
    for (uint32_t i = 0; i < rank; i++) {
        struct message dim = {.size = 0};
        if (shape[i] >= 0)
            message_int(&dim, 1, (uint64_t)shape[i]);
        else
            message_text(&dim, 2, shape[i] == ONNX_BATCH ? "batch" : "other");
        message_inner(&dims, 1, &dim);
    }
    message_int(&tensor, 1, element);
    message_inner(&tensor, 2, &dims);
    message_inner(&type, 1, &tensor);
    message_text(&whole, 1, name);
    message_inner(&whole, 2, &type);
    message_inner(graph, field, &whole);
}

void
graph_input(struct message *graph, const char *name, enum onnx_element element, uint32_t rank,
            const int64_t *shape)
{
    value(graph, 11, name, element, rank, shape);
}

void
graph_output(struct message *graph, const char *name, enum onnx_element element, uint32_t rank,
             const int64_t *shape)
{
    value(graph, 12, name, element, rank, shape);
}

void
graph_node(struct message *graph, const char *operator_name, const char *inputs,
           const char *outputs)
{
    static struct message node;
    node.size = 0;
    names(&node, 1, inputs);
    names(&node, 2, outputs);
    message_text(&node, 4, operator_name);
    message_inner(graph, 1, &node);
}

/* The beginning of every constant. */
static void
constant(struct message *tensor, const char *name, enum onnx_element element, uint32_t rank,
         const int64_t *shape)
{
    tensor->size = 0;
    for (uint32_t i = 0; i < rank; i++)
        message_int(tensor, 1, (uint64_t)shape[i]);
    message_int(tensor, 2, element);
    message_text(tensor, 8, name);
}

void
graph_constant(struct message *graph, const char *name, enum onnx_element element, uint32_t rank,
               const int64_t *shape, const void *bytes, size_t size)
{
    static struct message tensor;
    constant(&tensor, name, element, rank, shape);
    message_bytes(&tensor, 9, bytes, size);
    message_inner(graph, 5, &tensor);
}

void
graph_constant_apart(struct message *graph, const char *name, enum onnx_element element,
                     uint32_t rank, const int64_t *shape, const char *location, const char *offset,
                     const char *length)
{
    static struct message tensor;
    const char *const places[][2] = {
        {"location", location}, {"offset", offset}, {"length", length}};
    constant(&tensor, name, element, rank, shape);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        static struct message entry;
        entry.size = 0;
        if (places[i][1] == NULL)
            continue;
        message_text(&entry, 1, places[i][0]);
        message_text(&entry, 2, places[i][1]);
        message_inner(&tensor, 13, &entry);
    }
    message_int(&tensor, 14, 1);
    message_inner(graph, 5, &tensor);
}

void
graph_finish(const struct message *graph, struct message *model)
{
    static struct message whole, operators;
    whole = *graph;
    operators.size = model->size = 0;
    message_text(&whole, 2, "graph");
    message_int(&operators, 2, OPERATORS_VERSION);
    message_int(model, 1, IR_VERSION);
    message_inner(model, 7, &whole);
    message_inner(model, 8, &operators);
}
