/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that a coordinator hands to a worker: three descriptors at fixed numbers, a fourth
 * where models come and go, one message that says what to do, and the worker's one message back.
 * The sockets are SOCK_SEQPACKET pairs; a message is one of the structs below, whole, in one
 * packet.
 *
 *     coordinator                          worker
 *     posix_spawn shoal-worker       →     dies with its coordinator from its first line on
 *     handshake_start                →     attaches, pins and names itself, loads the modelet
 *                                    ←     handshake_ready, or handshake_failed and exit code 2
 *     closes the socket, or SIGTERM  →     finishes its batch, closes the modelet, exit code 0
 *
 * While it serves, guests come and go (guests.h):
 *
 *     handshake_guest, GUEST_COMES   →     maps the region that came with it, and serves it too
 *     handshake_guest, GUEST_GOES    →     throws away what it holds of it, unmaps it
 *     handshake_guest, GUEST_ENDS    →     finishes what it holds of it, and what waits in it
 *                                          beyond the first stage, unmaps it
 *                                    ←     handshake_guest, GUEST_LEFT: it is unmapped
 *                                    ←     handshake_guest, GUEST_LOST: found corrupt, served no
 * more
 *
 * The worker also leaves when the socket closes. What comes back was written by a process that runs
 * foreign code: the coordinator validates it (handshake_ready_validate) before it believes a byte.
 */
#pragma once

#include <stdint.h>

#include <shoal/modelet.h>

#include "base/error.h"
#include "shm/layout.h"

enum {
    HANDSHAKE_FD_REGION = 3,
    HANDSHAKE_FD_COUNTERS = 4,
    HANDSHAKE_FD_CONTROL = 5,
    HANDSHAKE_FD_MODELS = 6, /* only with serves_models */
};

#define HANDSHAKE_VERSION 4u

/* With this exit code a worker says that it met what cannot be in the region. */
enum { HANDSHAKE_EXIT_CORRUPT = 3 };

enum handshake_type {
    HANDSHAKE_START = 1,
    HANDSHAKE_READY,
    HANDSHAKE_FAILED,
    HANDSHAKE_GUEST,
    HANDSHAKE_MODEL,
    HANDSHAKE_MODEL_SAID,
};

enum {
    HANDSHAKE_PARAMS_MAX = 64,
    HANDSHAKE_NAME_BYTES = 64,
    HANDSHAKE_VALUE_BYTES = 512,
    HANDSHAKE_PATH_BYTES = 1024,
    HANDSHAKE_KEY_BYTES = 4096,
    CPU_NONE = -1,
};

struct handshake_header {
    uint32_t version;
    uint32_t type;
    uint32_t bytes; /* of the whole message: the struct's size, or what is sent of it */
    uint32_t reserved;
};

struct handshake_param {
    char name[HANDSHAKE_NAME_BYTES];
    char value[HANDSHAKE_VALUE_BYTES];
};

/* Of a worker's thread that loads, outside the idle class: a tenth of a CPU that a thread of nice 0
 * wants all of. */
enum { LOADER_NICE = 10 };

struct handshake_start {
    struct handshake_header header;
    int32_t coordinator_pid; /* the parent that the worker must still have */
    int32_t cpu;             /* to pin to; CPU_NONE: do not pin */
    uint32_t party;
    uint32_t stage_index;
    uint32_t worker_index;
    uint32_t worker_count;
    uint32_t batch_size; /* 0 or 1: singletons */
    uint32_t param_count;
    uint64_t counters_table;  /* counters_table_hash */
    uint64_t counters_offset; /* of the values of this worker's seat */
    int64_t batch_wait_ns;
    int64_t spin_limit_ns;
    uint32_t halvings_max; /* how often a batch that failed as a whole may be run in halves */
    uint32_t log_level;
    uint32_t sandbox_allow; /* enum sandbox_allow */
    uint32_t sandbox_need;  /* enum sandbox_need */
    uint32_t wait_adaptive; /* 1: batch_wait_ns is the most, and the worker decides; or 0 */
    uint32_t serves_models; /* 1: models come and go over HANDSHAKE_FD_MODELS */
    uint32_t loads_idle;    /* 1: loads may be of the kernel's idle class; or 0 */
    char pipeline[HANDSHAKE_NAME_BYTES];
    char stage[HANDSHAKE_NAME_BYTES];
    char modelet_path[HANDSHAKE_PATH_BYTES];
    char directory[HANDSHAKE_PATH_BYTES];    /* of the configuration: relative paths start here */
    char models_root[HANDSHAKE_PATH_BYTES];  /* what the sandbox lets it read of them; "": none */
    char model_id[SHOAL_NAME_BYTES_MAX + 1]; /* "": no model to load */
    char model_path[HANDSHAKE_PATH_BYTES];
    char model_key[HANDSHAKE_VALUE_BYTES];
    struct handshake_param params[HANDSHAKE_PARAMS_MAX];
};

struct handshake_tensor {
    char name[SHOAL_NAME_BYTES_MAX + 1];
    uint32_t datatype;
    uint32_t rank;
    int64_t shape[SHOAL_RANK_MAX];
};

/* The functions for models that the modelet has. */
enum handshake_functions { HANDSHAKE_LOADS = 1u << 0, HANDSHAKE_PREDICTS = 1u << 1 };

struct handshake_ready {
    struct handshake_header header;
    uint32_t functions; /* enum handshake_functions */
    uint32_t abilities;
    uint32_t workers_max;
    uint32_t input_count; /* 0: the modelet does not say what it takes */
    uint32_t output_count;
    char name[HANDSHAKE_NAME_BYTES];
    char modelet_version[HANDSHAKE_NAME_BYTES];
    char platform[HANDSHAKE_NAME_BYTES];
    struct handshake_tensor inputs[SHOAL_TENSORS_MAX];
    struct handshake_tensor outputs[SHOAL_TENSORS_MAX];
};

struct handshake_failed {
    struct handshake_header header;
    uint32_t status;
    char text[ERROR_TEXT_MAX];
};

enum handshake_guest_event { GUEST_COMES = 1, GUEST_GOES, GUEST_ENDS, GUEST_LEFT, GUEST_LOST };

struct handshake_guest {
    struct handshake_header header;
    uint32_t event;
    uint32_t number; /* below GUESTS_MAX: its place among the guests */
    uint64_t serial; /* of this guest: never used again, as its number is */
    char text[128];  /* GUEST_LOST: what was found */
};

/*
 * Models, over a socket of their own; `number` and `life` are those of model_word. Each request has
 * exactly one answer, in order, unless the worker dies.
 *
 *     MODEL_LOAD      MODEL_LOADED, or MODEL_FAILED with status and text
 *     MODEL_UNLOAD    MODEL_UNLOADED: its memory is free; so is that of one never loaded
 *     MODEL_PREDICT   MODEL_PREDICTED with `bytes`, 0: the modelet does not say
 */
enum handshake_model_event {
    MODEL_LOAD = 1,
    MODEL_UNLOAD,
    MODEL_PREDICT,
    MODEL_LOADED,
    MODEL_FAILED,
    MODEL_UNLOADED,
    MODEL_PREDICTED
};

enum { MODEL_NUMBER_MAX = 65535 };

/* More is nonsense: sums of so many models don't overflow. */
#define MODEL_BYTES_MAX (UINT64_C(1) << 47)

struct handshake_model {
    struct handshake_header header;
    uint32_t event;
    uint32_t number;
    uint32_t life;
    uint32_t reserved;
    char id[SHOAL_NAME_BYTES_MAX + 1];
    char path[HANDSHAKE_PATH_BYTES]; /* absolute, beneath models_root */
    char key[HANDSHAKE_KEY_BYTES];   /* "": none */
};

struct handshake_model_said {
    struct handshake_header header;
    uint32_t event;
    uint32_t number;
    uint32_t life;
    uint32_t status;          /* MODEL_FAILED */
    uint32_t max_concurrency; /* MODEL_LOADED; 0: not said */
    uint32_t input_count;     /* MODEL_LOADED: what this model takes and gives; 0: not said */
    uint32_t output_count;
    uint32_t reserved;
    uint64_t bytes;        /* MODEL_LOADED: held by this worker alone; MODEL_PREDICTED */
    uint64_t mapped_bytes; /* MODEL_LOADED: held together with the stage's other workers */
    uint64_t leaked_bytes; /* MODEL_UNLOADED: what all that were unloaded have left, by now */
    char platform[HANDSHAKE_NAME_BYTES];
    char text[ERROR_TEXT_MAX]; /* MODEL_FAILED: the modelet's own words */
    struct handshake_tensor inputs[SHOAL_TENSORS_MAX];
    struct handshake_tensor outputs[SHOAL_TENSORS_MAX];
};

/* Every string terminated, number and life such as exist, the event an order. */
enum status handshake_model_validate(const struct handshake_model *model,
                                     struct error *error) WARN_UNUSED;

/* Every string terminated, every count, size and type within its limits, the event an answer. */
enum status handshake_model_said_validate(const struct handshake_model_said *said,
                                          struct error *error) WARN_UNUSED;

/* How much of one need be sent: up to the last tensor that counts. A load would else cost as much
 * for 26 KB of nothing as a small model's load does. */
uint32_t handshake_model_said_bytes(const struct handshake_model_said *said);

/* Sends one, with the guest's region if `region_fd` is not -1. Never waits: DEADLINE_EXCEEDED when
 * there is no room. */
enum status handshake_send_guest(int fd, const struct handshake_guest *message, int region_fd,
                                 struct error *error) WARN_UNUSED;

/* Receives one, with the descriptor that came with it or -1, which is the caller's. Never waits:
 * DEADLINE_EXCEEDED when there is none. UNAVAILABLE: the other side has closed. */
enum status handshake_receive_guest(int fd, struct handshake_guest *message, int *region_fd,
                                    struct error *error) WARN_UNUSED;

/* One packet, blocking; EINTR is retried. DEADLINE_EXCEEDED: a socket that does not block has no
 * room. */
enum status handshake_send(int fd, const void *message, uint32_t bytes,
                           struct error *error) WARN_UNUSED;

/* Receives one packet of at most `room` bytes into `message`, which starts with a handshake_header,
 * and checks version and length. What was not sent of it is zero, and its length then that of the
 * struct. UNAVAILABLE: the other side closed. */
enum status handshake_receive(int fd, void *message, uint32_t room,
                              struct error *error) WARN_UNUSED;

/* Every string terminated, every count and type within its limits. */
enum status handshake_ready_validate(const struct handshake_ready *ready,
                                     struct error *error) WARN_UNUSED;
