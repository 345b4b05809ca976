/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol between a local client and a node: messages of fixed size over a SOCK_SEQPACKET
 * socket beside the node's counters file. Requests do not pass here, only what brings a client and
 * its region together (DESIGN-clients.md).
 *
 *     client                               coordinator
 *     local_hello                     →    makes a region, gives it to the lane's workers
 *                                     ←    LOCAL_WELCOME with the region's descriptor,
 *                                          or LOCAL_REFUSED, and closes
 *     NOTE_TAKEN                      →    only then another region may follow
 *                                     ←    LOCAL_DEATH: this owner is dead; the client repairs
 *                                     ←    LOCAL_WELCOME with another region's descriptor, of the
 *                                          generation that serves now: only the client uses the
 *                                          previous region from then on
 *                                     ←    LOCAL_DRAIN: the node is about to stop
 *     NOTE_DRAINING                   →    the node waits until the client closes
 *     closes: finished                ←    LOCAL_REFUSED: why, and closes: the region is no
 *                                          longer served
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "shm/layout.h"

#define LOCAL_VERSION 1u

enum { LOCAL_NAME_BYTES = 64, LOCAL_TEXT_BYTES = 256 };

struct local_hello {
    uint32_t version;
    uint32_t slots;         /* wanted; 0: the maximum */
    uint64_t message_bytes; /* wanted; 0: the maximum */
    char pipeline[LOCAL_NAME_BYTES];
};

/* A client's later messages, each at most once for the message that it answers. */
enum local_note_type { NOTE_TAKEN = 1, NOTE_DRAINING };

struct local_note {
    uint32_t version;
    uint32_t type;
};

enum local_type { LOCAL_WELCOME = 1, LOCAL_REFUSED, LOCAL_DEATH, LOCAL_DRAIN };

struct local_word {
    uint32_t version;
    uint32_t type;
    uint32_t status;         /* LOCAL_REFUSED */
    uint32_t owner;          /* LOCAL_DEATH */
    uint32_t changes_inputs; /* bit i: stage i's modelet changes inputs; its requests run once */
    uint32_t reserved;
    uint32_t attempts_max[STAGES_MAX]; /* per stage, as configured */
    int64_t default_timeout_ns;        /* of a request without a deadline; 0: none */
    char text[LOCAL_TEXT_BYTES];       /* LOCAL_REFUSED: why */
};

/* Writes the path of the socket of the node whose counters are at `counters_path`.
 * INVALID_ARGUMENT: too long for the name of a socket. */
enum status local_path(const char *counters_path, char *path, size_t room,
                       struct error *error) WARN_UNUSED;

/* Sends one packet, with a descriptor unless it is -1. Never waits. DEADLINE_EXCEEDED: no room. */
enum status local_send(int fd, const void *message, size_t bytes, int descriptor,
                       struct error *error) WARN_UNUSED;

enum local_patience { LOCAL_DONT_WAIT, LOCAL_WAIT };

/* Receives one packet of exactly `bytes`; the caller owns `*descriptor`, -1 if none came.
 * DEADLINE_EXCEEDED: no packet (with LOCAL_WAIT: within the socket's receive time-out);
 * UNAVAILABLE: the other side has closed; DATA_LOSS: another size. */
enum status local_receive(int fd, void *message, size_t bytes, enum local_patience patience,
                          int *descriptor, struct error *error) WARN_UNUSED;
