/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a message in which a string field is looked for, cut into spans of any length. Where
 * protobuf-c reads the whole message, it must have found the same string there; of paths that it
 * knows no message for, what is found must lie within the message.
 *
 * The first bytes: which path (0, 1: of a ModelInferRequest; 2: of a ServerReflectionResponse, two
 * deep; else any, from the byte's bits), length of spans.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "inference/open_inference.pb-c.h"
#include "wire/field_path.h"
#include "spans.h"

enum { HEAD_BYTES = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* `text` is protobuf-c's, an empty one if there is none. */
static void
check_same(struct wire_cursor found, bool any, const char *text)
{
    size_t bytes = any ? (size_t)found.left : 0;
    char *copy = malloc(bytes + 1);
    CHECK(copy != NULL);
    if (any)
        wire_read(&found, copy, bytes);
    copy[bytes] = '\0';
    CHECK(strcmp(copy, text) == 0); /* to a zero byte in it: protobuf-c's strings end there */
    free(copy);
}

static void
check_infer(const uint8_t *packed, size_t size, uint32_t number, struct wire_cursor found, bool any)
{
    Inference__ModelInferRequest *request =
        inference__model_infer_request__unpack(NULL, size, packed);
    if (request == NULL)
        return;
    check_same(found, any, number == 1 ? request->model_name : request->id);
    inference__model_infer_request__free_unpacked(request, NULL);
}

static void
check_reflection(const uint8_t *packed, size_t size, struct wire_cursor found, bool any)
{
    Grpc__Reflection__V1__ServerReflectionResponse *response =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, size, packed);
    if (response == NULL)
        return;
    const Grpc__Reflection__V1__ServerReflectionRequest *request = response->original_request;
    check_same(found, any, request == NULL ? "" : request->host);
    grpc__reflection__v1__server_reflection_response__free_unpacked(response, NULL);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct wire_span spans[SPANS_MAX];
    static const uint32_t known[][2] = {{1}, {3}, {2, 1}};
    uint32_t numbers[FIELD_PATH_MAX];
    if (size < HEAD_BYTES)
        return 0;
    uint32_t way = data[0];
    uint32_t depth = way < 2 ? 1 : way == 2 ? 2 : 1 + way % FIELD_PATH_MAX;
    for (uint32_t i = 0; i < depth; i++)
        numbers[i] = way <= 2 ? known[way][i] : 1 + (way >> i % 8 & 1);
    const uint8_t *packed = data + HEAD_BYTES;
    struct wire_message message = cut(packed, size - HEAD_BYTES, data[1], spans);
    struct wire_cursor found;
    bool any;
    struct error error = ERROR_NONE;
    if (field_path_find(&message, numbers, depth, &found, &any, &error) != STATUS_OK) {
        CHECK(error.status == STATUS_INVALID_ARGUMENT && error.text[0] != '\0');
        return 0;
    }
    CHECK(!any || found.left <= message.bytes);
    if (way < 2)
        check_infer(packed, message.bytes, numbers[0], found, any);
    else if (way == 2)
        check_reflection(packed, message.bytes, found, any);
    else if (any)
        wire_skip(&found, found.left);
    return 0;
}
