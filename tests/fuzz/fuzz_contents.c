/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the elements of one tensor, typed or raw, of any datatype, in spans of any length.
 * Accepted typed contents must equal protobuf-c's reading from the same bytes, element by
 * element, must fill exactly the room that was promised, and must be good raw contents of as many
 * elements. The whole of a request is fuzz_oip's; here the search needs not guess at the way to the
 * elements first.
 *
 * The first bytes: datatype, form (odd: raw), length of spans, number of elements (255: as many as
 * there are).
 */
#include <stdlib.h>
#include <string.h>

#include <shoal/modelet.h>

#include "base/check.h"
#include "coordinator/protocol/oip_contents.h"
#include "inference/open_inference.pb-c.h"
#include "spans.h"

enum { HEAD_BYTES = 4, ELEMENTS_ALL = 255 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How many elements protobuf-c finds where this datatype's belong. */
static uint64_t
elements_of(const Inference__InferTensorContents *contents, uint32_t datatype)
{
    switch (datatype) {
    case SHOAL_BOOL: return contents->n_bool_contents;
    case SHOAL_INT8:
    case SHOAL_INT16:
    case SHOAL_INT32: return contents->n_int_contents;
    case SHOAL_INT64: return contents->n_int64_contents;
    case SHOAL_UINT8:
    case SHOAL_UINT16:
    case SHOAL_UINT32: return contents->n_uint_contents;
    case SHOAL_UINT64: return contents->n_uint64_contents;
    case SHOAL_FP32: return contents->n_fp32_contents;
    case SHOAL_FP64: return contents->n_fp64_contents;
    case SHOAL_BYTES: return contents->n_bytes_contents;
    default: return 0;
    }
}

/* One element as its bytes in a tensor: a number that fits is the low bytes of the wider one. */
static const void *
element_of(const Inference__InferTensorContents *contents, uint32_t datatype, uint64_t i)
{
    static uint8_t truth;
    switch (datatype) {
    case SHOAL_BOOL: truth = contents->bool_contents[i] != 0; return &truth;
    case SHOAL_INT8:
    case SHOAL_INT16:
    case SHOAL_INT32: return &contents->int_contents[i];
    case SHOAL_INT64: return &contents->int64_contents[i];
    case SHOAL_UINT8:
    case SHOAL_UINT16:
    case SHOAL_UINT32: return &contents->uint_contents[i];
    case SHOAL_UINT64: return &contents->uint64_contents[i];
    case SHOAL_FP32: return &contents->fp32_contents[i];
    default: return &contents->fp64_contents[i];
    }
}

static void
check_elements(const Inference__InferTensorContents *contents, uint32_t datatype, uint64_t elements,
               const uint8_t *written, uint64_t bytes)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < elements; i++) {
        if (datatype != SHOAL_BYTES) {
            size_t width = shoal_datatype_bytes(datatype);
            CHECK(memcmp(written + at, element_of(contents, datatype, i), width) == 0);
            at += width;
            continue;
        }
        const ProtobufCBinaryData *string = &contents->bytes_contents[i];
        uint32_t length;
        CHECK(bytes - at >= sizeof(length));
        memcpy(&length, written + at, sizeof(length));
        at += sizeof(length);
        CHECK(length == string->len && length <= bytes - at);
        CHECK(length == 0 || memcmp(written + at, string->data, length) == 0);
        at += length;
    }
    CHECK(at == bytes);
}

/* True if all that is there is of the datatype, and any number is in its range. */
static bool
must_be_taken(const Inference__InferTensorContents *contents, uint32_t datatype)
{
    static const uint32_t unlimited[] = {SHOAL_INT32, SHOAL_INT64, SHOAL_UINT32, SHOAL_UINT64,
                                         SHOAL_BOOL,  SHOAL_FP32,  SHOAL_FP64,   SHOAL_BYTES};
    uint64_t all = 0;
    bool is_unlimited = false;
    for (size_t i = 0; i < ARRAY_COUNT(unlimited); i++) {
        all += elements_of(contents, unlimited[i]);
        is_unlimited |= unlimited[i] == datatype;
    }
    return is_unlimited && all == elements_of(contents, datatype);
}

static void
check_typed(const struct wire_message *message, const uint8_t *packed, uint32_t datatype,
            uint8_t wanted)
{
    Inference__InferTensorContents *contents =
        inference__infer_tensor_contents__unpack(NULL, message->bytes, packed);
    uint64_t there = contents != NULL ? elements_of(contents, datatype) : 0;
    uint64_t elements = wanted == ELEMENTS_ALL ? there : wanted;
    uint64_t bytes = 0;
    struct error error = ERROR_NONE;
    if (oip_typed_check(wire_begin(message), datatype, elements, &bytes, &error) == STATUS_OK) {
        CHECK(contents != NULL && elements == there);
        uint8_t *written = malloc(bytes > 0 ? bytes : 1);
        CHECK(written != NULL);
        oip_typed_write(wire_begin(message), datatype, written, bytes);
        check_elements(contents, datatype, elements, written, bytes);
        struct wire_span span = {written, bytes};
        struct wire_message raw = {&span, 1, bytes};
        CHECK(oip_raw_check(wire_begin(&raw), datatype, elements,
                            elements * shoal_datatype_bytes(datatype), &error) == STATUS_OK);
        free(written);
    } else {
        CHECK(error.status == STATUS_INVALID_ARGUMENT);
        /* protobuf-c takes field number 0, which there is not, and passes over wrong wire types */
        CHECK(contents == NULL || elements != there || !must_be_taken(contents, datatype) ||
              strstr(error.text, "malformed") != NULL || strstr(error.text, "wire type") != NULL);
    }
    if (contents != NULL)
        inference__infer_tensor_contents__free_unpacked(contents, NULL);
}

static void
check_raw(const struct wire_message *message, uint32_t datatype, uint8_t elements)
{
    struct error error = ERROR_NONE;
    size_t width = shoal_datatype_bytes(datatype);
    enum status status =
        oip_raw_check(wire_begin(message), datatype, elements, elements * width, &error);
    CHECK(status == STATUS_OK || status == STATUS_INVALID_ARGUMENT);
    if (status == STATUS_OK && datatype != SHOAL_BYTES)
        CHECK(message->bytes == elements * width);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct wire_span spans[SPANS_MAX];
    if (size < HEAD_BYTES)
        return 0;
    uint32_t datatype = 1 + data[0] % (SHOAL_DATATYPE_END - 1);
    struct wire_message message = cut(data + HEAD_BYTES, size - HEAD_BYTES, data[2], spans);
    if (data[1] % 2 != 0)
        check_raw(&message, datatype, data[3]);
    else
        check_typed(&message, data + HEAD_BYTES, datatype, data[3]);
    return 0;
}
