/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC calls of the Open Inference Protocol as clients send them: the frames of messages, and the
 * model that a message names. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/wire.h"

enum { GRPC_FRAME_BYTES = 5 }; /* before each message */

enum grpc_scan { GRPC_SCAN_MORE, GRPC_SCAN_WHOLE, GRPC_SCAN_COMPRESSED, GRPC_SCAN_LARGE };

/* Looks at the frame that begins here. WHOLE: its message, without the prefix, has
 * `*message_bytes`; LARGE: that would be more than `max`. */
enum grpc_scan grpc_scan_frame(const void *data, size_t bytes, size_t max, size_t *message_bytes);
/* Writes a frame's prefix. */
void grpc_put_prefix(unsigned char to[GRPC_FRAME_BYTES], size_t message_bytes);

/* The place of the model's name in the message: a field with tag and length, and the text in it. */
struct oip_name {
    size_t field_at;
    size_t field_bytes;
    const char *text; /* not terminated */
    size_t text_bytes;
};

/* Finds field 1, a text, of a message that lies in one piece. Returns NULL or the mistake. */
const char *oip_scan_name(const void *message, size_t bytes, struct oip_name *name);

/* A frame in pieces, which refer to the message and the name that it was made of, and to itself. */
struct oip_frame {
    unsigned char prefix[GRPC_FRAME_BYTES];
    unsigned char head[WIRE_HEAD_BYTES_MAX];
    size_t bytes;
    struct oip_piece {
        const void *at;
        size_t bytes;
    } pieces[5];
};

/* Frames the same message with another name in the place of that which was found. */
void oip_rename(struct oip_frame *frame, const void *message, size_t bytes,
                const struct oip_name *name, const char *model);

/* Reads a grpc-timeout, such as "250m". False: it is none. */
bool grpc_read_timeout(const char *text, int64_t *timeout_ns);
