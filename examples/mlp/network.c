/* SPDX-License-Identifier: Apache-2.0 */
#include "network.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct reader {
    const unsigned char *bytes;
    size_t size;
    size_t data_start; /* behind the table */
    char *room;
    size_t room_bytes;
};

__attribute__((format(printf, 2, 3))) static bool
refuse(const struct reader *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->room, reader->room_bytes, format, arguments);
    va_end(arguments);
    return false;
}

static bool
name_read(const struct reader *reader, const char name[NETWORK_NAME_ROOM], const char *which)
{
    size_t length = strnlen(name, NETWORK_NAME_ROOM);
    if (length > 0 && length < NETWORK_NAME_ROOM)
        return true;
    return refuse(reader, "the name of the %s is %s", which,
                  length == 0 ? "empty" : "not terminated");
}

static bool
width_check(const struct reader *reader, const char *what, uint32_t layer, uint32_t width)
{
    if (width >= 1 && width <= NETWORK_WIDTH_MAX)
        return true;
    return refuse(reader, "layer %u has %u %s; there may be 1 to %d", layer, width, what,
                  NETWORK_WIDTH_MAX);
}

static bool
kind_check(const struct reader *reader, const struct network_header *header)
{
    if (memcmp(header->magic, NETWORK_MAGIC, sizeof header->magic) != 0)
        return refuse(reader, "is not an MLP file: it does not begin with %s", NETWORK_MAGIC);
    if (header->byte_order == __builtin_bswap32(NETWORK_BYTE_ORDER))
        return refuse(reader, "was written in the other byte order");
    if (header->byte_order != NETWORK_BYTE_ORDER)
        return refuse(reader, "states no byte order (0x%08x)", header->byte_order);
    if (header->version != NETWORK_VERSION)
        return refuse(reader, "has version %u of the format; this modelet reads version %d",
                      header->version, NETWORK_VERSION);
    return true;
}

static bool
header_check(struct reader *reader, const struct network_header *header)
{
    if (header->file_bytes != reader->size)
        return refuse(reader, "states %llu bytes and has %zu: it was truncated or extended",
                      (unsigned long long)header->file_bytes, reader->size);
    if (header->layer_count < 1 || header->layer_count > NETWORK_LAYERS_MAX)
        return refuse(reader, "has %u layers; there may be 1 to %d", header->layer_count,
                      NETWORK_LAYERS_MAX);
    reader->data_start = sizeof *header + header->layer_count * sizeof(struct network_layer);
    if (reader->size < reader->data_start)
        return refuse(reader, "ends within its table of %u layers", header->layer_count);
    return width_check(reader, "inputs", 0, header->input_width) &&
           name_read(reader, header->input_name, "input") &&
           name_read(reader, header->output_name, "output");
}

/* Returns the floats at an offset of the file; NULL if they are outside the file or one is not
 * finite. */
static const float *
floats_read(const struct reader *reader, uint32_t layer, const char *what, uint64_t offset,
            uint64_t count)
{
    /* both widths are limited, so the product of all three fits */
    uint64_t bytes = count * sizeof(float);
    if (offset % NETWORK_ALIGNMENT != 0 || offset < reader->data_start || offset > reader->size ||
        bytes > reader->size - offset) {
        refuse(reader,
               "the %s of layer %u, %llu bytes at %llu, must be after the table, at a multiple "
               "of %d, in a file of %zu",
               what, layer, (unsigned long long)bytes, (unsigned long long)offset,
               NETWORK_ALIGNMENT, reader->size);
        return NULL;
    }
    const float *floats = (const void *)(reader->bytes + offset);
    for (uint64_t i = 0; i < count; i++) {
        if (!isfinite(floats[i])) {
            refuse(reader, "the %s of layer %u: number %llu is not finite", what, layer,
                   (unsigned long long)i);
            return NULL;
        }
    }
    return floats;
}

static bool
layer_read(const struct reader *reader, uint32_t index, uint32_t inputs, struct layer *layer)
{
    struct network_layer entry;
    memcpy(&entry, reader->bytes + sizeof(struct network_header) + index * sizeof entry,
           sizeof entry);
    if (!width_check(reader, "outputs", index, entry.outputs))
        return false;
    if (entry.activation >= NETWORK_ACTIVATION_END)
        return refuse(reader, "layer %u has activation %u; there are 0 to %d", index,
                      entry.activation, NETWORK_ACTIVATION_END - 1);
    *layer = (struct layer){
        .inputs = inputs,
        .outputs = entry.outputs,
        .activation = (enum network_activation)entry.activation,
    };
    layer->weights = floats_read(reader, index, "weights", entry.weights_offset,
                                 (uint64_t)inputs * entry.outputs);
    if (layer->weights == NULL || entry.bias_offset == 0)
        return layer->weights != NULL;
    layer->bias = floats_read(reader, index, "bias", entry.bias_offset, entry.outputs);
    return layer->bias != NULL;
}

static bool
layers_read(const struct reader *reader, struct network *network)
{
    uint32_t inputs = network->input_width;
    for (uint32_t i = 0; i < network->layer_count; i++) {
        if (!layer_read(reader, i, inputs, &network->layers[i]))
            return false;
        inputs = network->layers[i].outputs;
        if (i + 1 < network->layer_count && inputs > network->width_max)
            network->width_max = inputs;
    }
    network->output_width = inputs;
    return true;
}

const char *
network_read(const void *bytes, size_t size, struct network *network, char *room, size_t room_bytes)
{
    struct reader reader = {bytes, size, 0, room, room_bytes};
    const struct network_header *header = bytes;
    *network = (struct network){0};
    if (size < sizeof *header) {
        refuse(&reader, "has %zu bytes, less than the %zu of a header", size, sizeof *header);
        return room;
    }
    if (!kind_check(&reader, header) || !header_check(&reader, header))
        return room;
    network->input_width = header->input_width;
    network->layer_count = header->layer_count;
    network->input_name = header->input_name;
    network->output_name = header->output_name;
    return layers_read(&reader, network) ? NULL : room;
}
