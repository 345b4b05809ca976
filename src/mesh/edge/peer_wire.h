/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames between nodes (proto/shoal/peer.proto), written and read. A message has one or more of
 * them, in a row. A frame is a head, which is copied, and a payload, which is not: it is lent to
 * what is sent, and stays where it lies in what was received. Pure; no allocation.
 *
 * Nothing in a frame is believed: what is malformed, too long, too many, out of its range or no
 * UTF-8 is refused, with a text that names the field. What has passed is safe to be given to the
 * driver: enumerations are of their range, texts end with a zero byte.
 */
#pragma once

#include "mesh/core/mesh_core.h"
#include "mesh/edge/peer_flow.h"
#include "rpc/rpc.h"
#include "rpc/wire.h"

enum {
    PEER_VERSION = 2,
    PEER_PART_BYTES_MAX = 256 << 10, /* of payload, in one frame */
    PEER_HEAD_BYTES_MAX = 64 << 10,  /* all of a frame but its payload */
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
    uint32_t credit_bytes; /* 0: of a node of before */
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
    struct rpc_span text;
    bool has_message;
    bool has_figures;
    uint64_t message_bytes;
    uint32_t initial_count;
    uint32_t trailing_count;
    struct rpc_metadata initial[PEER_METADATA_MAX];
    struct rpc_metadata trailing[PEER_METADATA_MAX];
    struct mesh_figures figures;
};

/* A message behind the first of a call, or ahead of the end of its answer. */
struct peer_message {
    uint32_t number;
    bool has_message; /* else it is the end alone, or the initial metadata alone */
    bool is_last;     /* to the node that is called: no more follow */
    uint64_t message_bytes;
    uint32_t initial_count; /* to the caller */
    struct rpc_metadata initial[PEER_METADATA_MAX];
};

/* So much of what was sent in such messages was taken, as peer_flow_cost counts. */
struct peer_credit {
    uint32_t number;
    uint64_t cost;
};

/* A part, or a cancellation. */
struct peer_about {
    uint32_t number;
};

struct peer_ensure {
    const char *model;
    int64_t used_ms;
    enum mesh_class class;
    uint32_t target;
    uint64_t size_bytes;
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
};

/* Of those that are not the frame's kind, nothing is valid. */
struct peer_frame {
    enum peer_kind kind;
    uint32_t head_bytes; /* of one that was opened: as much room as its texts may need */
    struct wire_cursor head;
    uint64_t offset; /* of the frame, in the message that was opened; so is the payload's */
    uint64_t payload_offset;
    uint64_t payload_bytes;
    union {
        struct peer_hello hello;
        struct peer_call call;
        struct peer_about about; /* PART, CANCEL */
        struct peer_answer answer;
        struct peer_ensure ensure;
        struct peer_message message;
        struct peer_credit credit;
        struct peer_clock clock;
    };
};

/*
 * Writes all of the frame but its payload, of which `payload_bytes` are to follow at once; then the
 * next frame of the message may come. `head`
 * has room for PEER_HEAD_BYTES_MAX. Returns what was written; 0: it would be longer.
 */
size_t peer_frame_write(const struct peer_frame *frame, unsigned char *head);

/* Finds the kind of the frame at the cursor, its head, and where its payload lies; the cursor,
 * which wire_begin(message) has made, goes behind it. `cursor->left` of 0 then: it was the last.
 * Where there is none, INVALID_ARGUMENT says what is wrong. */
enum status peer_frame_open(const struct rpc_message *message, struct wire_cursor *cursor,
                            struct peer_frame *frame, struct error *error) WARN_UNUSED;
/* The same of a message that was kept, by the frame's offset. */
struct wire_cursor peer_frame_at(const struct rpc_message *message, uint64_t offset);

/* Reads the head of a frame that was opened, while its message is there. The texts of what is read
 * lie in `texts` from then on, which has room for `head_bytes`. INVALID_ARGUMENT as before. */
enum status peer_frame_read(struct peer_frame *frame, char *texts, struct error *error) WARN_UNUSED;
