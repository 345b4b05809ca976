/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a client sends of a gRPC call: each frame's message lies within them; where
 * protobuf's own library reads a message, it finds the same name as the scan, and with another name
 * only that has changed. The same bytes are a grpc-timeout.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "gateway/scan/oip_call.h"
#include "inference/open_inference.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGE_MAX = 1 << 20 };

/* Freed by the caller; NULL: the library does not read it. */
static Inference__ModelReadyRequest *
read_message(const char *message, size_t bytes)
{
    return inference__model_ready_request__unpack(NULL, bytes, (const uint8_t *)message);
}

static void
check_renamed(const char *message, size_t bytes, const struct oip_name *found,
              const Inference__ModelReadyRequest *before)
{
    struct bytes out = {0};
    struct oip_frame frame;
    struct oip_name name;
    size_t renamed_bytes;
    oip_rename(&frame, message, bytes, found, "another");
    for (size_t i = 0; i < ARRAY_COUNT(frame.pieces); i++)
        bytes_put(&out, frame.pieces[i].at, frame.pieces[i].bytes);
    CHECK(!out.failed && out.used == frame.bytes);
    CHECK(grpc_scan_frame(out.data, out.used, SIZE_MAX, &renamed_bytes) == GRPC_SCAN_WHOLE);
    const char *renamed = out.data + GRPC_FRAME_BYTES;
    CHECK(renamed_bytes + GRPC_FRAME_BYTES == out.used);
    CHECK(oip_scan_name(renamed, renamed_bytes, &name) == NULL && name.text_bytes == 7);
    if (before != NULL) {
        Inference__ModelReadyRequest *after = read_message(renamed, renamed_bytes);
        CHECK(after != NULL && strcmp(after->name, "another") == 0);
        CHECK(strcmp(after->version, before->version) == 0);
        inference__model_ready_request__free_unpacked(after, NULL);
    }
    bytes_fini(&out);
}

static void
check_message(const char *message, size_t bytes)
{
    struct oip_name name;
    if (oip_scan_name(message, bytes, &name) != NULL)
        return;
    CHECK(name.field_at + name.field_bytes <= bytes && name.text_bytes > 0);
    CHECK(name.text + name.text_bytes == message + name.field_at + name.field_bytes);
    Inference__ModelReadyRequest *request = read_message(message, bytes);
    CHECK(request == NULL || (strlen(request->name) == name.text_bytes &&
                              memcmp(request->name, name.text, name.text_bytes) == 0));
    check_renamed(message, bytes, &name, request);
    if (request != NULL)
        inference__model_ready_request__free_unpacked(request, NULL);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1); /* reading beyond its end is seen */
    size_t bytes;
    int64_t timeout_ns;
    CHECK(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    CHECK(!grpc_read_timeout(text, &timeout_ns) || (timeout_ns >= 0 && size <= 9));
    char *frames = malloc(size > 0 ? size : 1);
    CHECK(frames != NULL);
    memcpy(frames, data, size);
    for (size_t at = 0;
         grpc_scan_frame(frames + at, size - at, MESSAGE_MAX, &bytes) == GRPC_SCAN_WHOLE;
         at += GRPC_FRAME_BYTES + bytes) {
        CHECK(at + GRPC_FRAME_BYTES + bytes <= size);
        check_message(frames + at + GRPC_FRAME_BYTES, bytes);
    }
    free(frames);
    free(text);
    return 0;
}
