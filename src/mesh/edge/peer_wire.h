/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes and reads the frames between nodes (proto/shoal/peer.proto). A message consists of one or
 * more frames. A frame is a head, which is copied, and a payload, which is not: it is lent when
 * sent and stays in place when received. Pure; no allocation.
 *
 * Nothing in a frame is trusted: malformed, oversized, excessive, out-of-range or non-UTF-8 content
 * is refused with a text that names the field. Accepted content is safe to pass to the runner:
 * enums are in range and texts end with a zero byte.
 */
#pragma once

#include "mesh/core/mesh_core.h"
#include "mesh/edge/peer_flow.h"
#include "rpc/rpc.h"
#include "wire/wire.h"

enum {
    PEER_VERSION = 2,
    PEER_PART_BYTES_MAX = 256 << 10, /* of payload, in one frame */
    PEER_HEAD_BYTES_MAX = 64 << 10,  /* a frame without its payload */
    PEER_MESSAGE_BYTES_MAX = PEER_PART_BYTES_MAX + 2 * PEER_HEAD_BYTES_MAX,
    PEER_METHOD_BYTES_MAX = 1024,
    PEER_METADATA_MAX = 64, /* of each list */
    PEER_TEXT_BYTES_MAX = 4096,
};

struct peer_hello {
    uint32_t version;
    const char *from;
    const char *to;
    int64_t start_ms;
    bool tells_clock;      /* answers clock frames */
    uint32_t credit_bytes; /* 0: an older node */
};

struct peer_clock {
    int64_t asked_ms;
    int64_t wall_ms;
    int64_t mesh_ms;
    bool voted;
};

struct peer_call {
    uint32_t number;
    const char *method;
    const char *model;
    uint64_t create_revision;
    enum mesh_hop hop;
    uint64_t left_us;
    uint64_t message_bytes;
    enum peer_flow_shape shape;
    uint32_t tried_count;
    uint32_t metadata_count;
    struct mesh_tried tried[MESH_TRIED_MAX];
    struct rpc_metadata metadata[PEER_METADATA_MAX];
};

struct peer_answer {
    uint32_t number;
    enum mesh_end end;
    enum status status;
    struct wire_span text;
    bool has_message;
    bool has_figures;
    uint64_t message_bytes;
    uint32_t initial_count;
    uint32_t trailing_count;
    struct rpc_metadata initial[PEER_METADATA_MAX];
    struct rpc_metadata trailing[PEER_METADATA_MAX];
    struct mesh_figures figures;
};

/* A message after the first of a call, or one before the end of its answer. */
struct peer_message {
    uint32_t number;
    bool has_message; /* otherwise only the end or only the initial metadata */
    bool is_last;     /* to the called node: no more follow */
    uint64_t message_bytes;
    uint32_t initial_count; /* to the caller */
    struct rpc_metadata initial[PEER_METADATA_MAX];
};

/* So much of those messages was consumed, as peer_flow_cost counts. */
struct peer_credit {
    uint32_t number;
    uint64_t cost;
};

/* A part, or a cancellation. */
struct peer_about {
    uint32_t number;
};

/* Numbers of the proto file. */
enum peer_kind {
    PEER_HELLO = 1,
    PEER_CALL = 2,
    PEER_PART = 3,
    PEER_ANSWER = 4,
    PEER_CANCEL = 5,
    PEER_ENSURE = 6,
    PEER_MESSAGE = 7,
    PEER_CREDIT = 8,
    PEER_CLOCK = 9,
    PEER_BYE = 10, /* has no member */
};

/* A frame. Only the member of its kind is valid. */
struct peer_frame {
    enum peer_kind kind;
    uint32_t head_bytes; /* of an opened frame: room that its texts may need */
    struct wire_cursor head;
    uint64_t offset; /* of the frame in the opened message, like the payload's */
    uint64_t payload_offset;
    uint64_t payload_bytes;
    union {
        struct peer_hello hello;
        struct peer_call call;
        struct peer_about about; /* PART, CANCEL */
        struct peer_answer answer;
        struct mesh_ensure ensure; /* without `instance` and `where`, which are not sent */
        struct peer_message message;
        struct peer_credit credit;
        struct peer_clock clock;
    };
};

/*
 * Writes the frame without its payload; `payload_bytes` must follow directly, then the message's
 * next frame. `head` has room for PEER_HEAD_BYTES_MAX. Returns the bytes written; 0: it would be
 * longer.
 */
size_t peer_frame_write(const struct peer_frame *frame, unsigned char *head);

/* Finds the kind of the frame at the cursor, its head and its payload, and moves the cursor, which
 * wire_begin(message) made, behind it; `cursor->left` of 0 means that it was the last.
 * INVALID_ARGUMENT with a text if there is no valid frame. */
enum status peer_frame_open(const struct wire_message *message, struct wire_cursor *cursor,
                            struct peer_frame *frame, struct error *error) WARN_UNUSED;
/* Returns a cursor at a frame of a kept message, by the frame's offset. */
struct wire_cursor peer_frame_at(const struct wire_message *message, uint64_t offset);

/* Reads the head of an opened frame while its message exists. Its texts are in `texts` afterwards,
 * which has room for `head_bytes`. INVALID_ARGUMENT as before. */
enum status peer_frame_read(struct peer_frame *frame, char *texts, struct error *error) WARN_UNUSED;
