/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between coordinator and worker: three descriptors at fixed numbers, a fourth where
 * models come and go, one message that says what to do, and the worker's answer. The sockets are
 * SOCK_SEQPACKET pairs; a message is one of the structs below, whole, in one packet.
 *
 *     coordinator                          worker
 *     posix_spawn shoal-worker       →     dies with its coordinator from its first line on
 *     handshake_start                →     attaches, pins and names itself, loads the modelet
 *                                    ←     handshake_ready, or handshake_failed and exit code 2
 *     closes the socket, or SIGTERM  →     finishes its batch, closes the modelet, exit code 0
 *
 * While it serves, client regions come and go (client_regions.h), by handshake_client_region, whose
 * event is
 *
 *     CLIENT_REGION_OPEN     →     maps the region that comes with it, and serves it
 *     CLIENT_REGION_DISCARD  →     discards its items and unmaps it
 *     CLIENT_REGION_FINISH   →     finishes its items and those that wait beyond the first stage,
 *                                  and unmaps it
 *                            ←     CLIENT_REGION_CLOSED: it is unmapped
 *                            ←     CLIENT_REGION_LOST: it is corrupt and no longer served
 *
 * The worker also exits when the socket closes. A process that runs foreign code wrote the messages
 * that come back: the coordinator validates them (handshake_ready_validate) before it uses them.
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

#define HANDSHAKE_VERSION 6u

/* The exit code of a worker that found the region corrupt. */
enum { HANDSHAKE_EXIT_CORRUPT = 3 };

enum handshake_type {
    HANDSHAKE_START = 1,
    HANDSHAKE_READY,
    HANDSHAKE_FAILED,
    HANDSHAKE_CLIENT_REGION,
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
    uint32_t bytes; /* of the message as sent: the struct's size or less */
    uint32_t reserved;
};

struct handshake_param {
    char name[HANDSHAKE_NAME_BYTES];
    char value[HANDSHAKE_VALUE_BYTES];
};

/* Niceness of the loader thread outside the idle class: about a tenth of a CPU that a thread of
 * nice 0 wants entirely. */
enum { LOADER_NICE = 10 };

/* The pieces of an answer whose caller takes only one: the words of `collect`. */
enum handshake_collect { COLLECT_REFUSE, COLLECT_CONCAT, COLLECT_LAST, COLLECT_END };

struct handshake_start {
    struct handshake_header header;
    int32_t coordinator_pid; /* the parent that the worker must still have */
    int32_t cpu;             /* to pin to; CPU_NONE: do not pin */
    uint32_t owner;
    uint32_t stage_index;
    uint32_t worker_index;
    uint32_t worker_count;
    uint32_t batch_size; /* 0 or 1: single items */
    uint32_t param_count;
    uint64_t counters_table;  /* counters_table_hash */
    uint64_t counters_offset; /* of this worker's values */
    int64_t batch_wait_ns;
    int64_t spin_limit_ns;
    uint32_t halvings_max; /* divisions of a batch that fails as a whole */
    uint32_t log_level;
    uint32_t log_format;    /* enum log_format */
    uint32_t sandbox_allow; /* enum sandbox_allow */
    uint32_t sandbox_need;  /* enum sandbox_need */
    uint32_t sandbox_names; /* 1: only to name the calls that the sandbox refuses; else 0 */
    uint32_t wait_adaptive; /* 1: the worker decides, up to batch_wait_ns; else 0 */
    uint32_t serves_models; /* 1: models come and go over HANDSHAKE_FD_MODELS */
    uint32_t loads_idle;    /* 1: loads may use the kernel's idle class; else 0 */
    uint32_t collect;       /* enum handshake_collect */
    char pipeline[HANDSHAKE_NAME_BYTES];
    char stage[HANDSHAKE_NAME_BYTES];
    char modelet_path[HANDSHAKE_PATH_BYTES];
    char script[HANDSHAKE_PATH_BYTES];       /* the file that the modelet interprets; "": none */
    char directory[HANDSHAKE_PATH_BYTES];    /* the configuration's folder: base of relative
                                              * paths */
    char models_root[HANDSHAKE_PATH_BYTES];  /* root of the models that the sandbox lets it read;
                                              * "": none */
    char models_cache[HANDSHAKE_PATH_BYTES]; /* likewise, of those that were fetched */
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

/* The modelet's functions for models, and its extension("stream"). */
enum handshake_functions {
    HANDSHAKE_LOADS = 1u << 0,
    HANDSHAKE_PREDICTS = 1u << 1,
    HANDSHAKE_STREAMS = 1u << 2,
};

struct handshake_ready {
    struct handshake_header header;
    uint32_t functions; /* enum handshake_functions */
    uint32_t abilities;
    uint32_t workers_max;
    uint32_t input_count; /* 0: the modelet does not declare its inputs */
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
    uint32_t refused_calls; /* 1: the sandbox may have refused calls, which are not named */
    char text[ERROR_TEXT_MAX];
};

enum handshake_client_region_event {
    CLIENT_REGION_OPEN = 1,
    CLIENT_REGION_DISCARD,
    CLIENT_REGION_FINISH,
    CLIENT_REGION_CLOSED,
    CLIENT_REGION_LOST
};

struct handshake_client_region {
    struct handshake_header header;
    uint32_t event;
    uint32_t number; /* below CLIENT_REGIONS_MAX */
    uint64_t serial; /* of this client region; unlike numbers, never reused */
    char text[128];  /* CLIENT_REGION_LOST: the fault */
};

/*
 * Models, over a socket of their own; `number` and `life` are those of model_word. Each request
 * gets exactly one answer, in order, unless the worker dies.
 *
 *     MODEL_LOAD      MODEL_LOADED, or MODEL_FAILED with status and text
 *     MODEL_UNLOAD    MODEL_UNLOADED: its memory is free; also for one never loaded
 *     MODEL_PREDICT   MODEL_PREDICTED with `bytes`; 0: unknown
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

/* Larger values are refused, so that sums over all models cannot overflow. */
#define MODEL_BYTES_MAX (UINT64_C(1) << 47)

struct handshake_model {
    struct handshake_header header;
    uint32_t event;
    uint32_t number;
    uint32_t life;
    uint32_t reserved;
    char id[SHOAL_NAME_BYTES_MAX + 1];
    char path[HANDSHAKE_PATH_BYTES]; /* absolute, beneath models_root or models_cache */
    char key[HANDSHAKE_KEY_BYTES];   /* "": none */
};

struct handshake_model_said {
    struct handshake_header header;
    uint32_t event;
    uint32_t number;
    uint32_t life;
    uint32_t status;          /* MODEL_FAILED */
    uint32_t max_concurrency; /* MODEL_LOADED; 0: unknown */
    uint32_t input_count;     /* MODEL_LOADED: the model's tensors; 0: not declared */
    uint32_t output_count;
    uint32_t reserved;
    uint64_t bytes;        /* MODEL_LOADED: memory of this worker alone; MODEL_PREDICTED */
    uint64_t mapped_bytes; /* MODEL_LOADED: memory shared with the stage's other workers */
    uint64_t leaked_bytes; /* MODEL_UNLOADED: leaked by all unloaded models so far */
    char platform[HANDSHAKE_NAME_BYTES];
    char text[ERROR_TEXT_MAX]; /* MODEL_FAILED: the modelet's error text */
    struct handshake_tensor inputs[SHOAL_TENSORS_MAX];
    struct handshake_tensor outputs[SHOAL_TENSORS_MAX];
};

/* Checks that strings are terminated, number and life valid, and the event an order. */
enum status handshake_model_validate(const struct handshake_model *model,
                                     struct error *error) WARN_UNUSED;

/* Checks that strings are terminated, counts, sizes and types within their limits, and the event an
 * answer. */
enum status handshake_model_said_validate(const struct handshake_model_said *said,
                                          struct error *error) WARN_UNUSED;

/* Returns the bytes to send: up to the last tensor in use. Sending all 26 KB would cost as much as
 * loading a small model. */
uint32_t handshake_model_said_bytes(const struct handshake_model_said *said);

/* Sends a client region message, with its region unless `region_fd` is -1. Never waits.
 * DEADLINE_EXCEEDED: no room. */
enum status handshake_send_client_region(int fd, const struct handshake_client_region *message,
                                         int region_fd, struct error *error) WARN_UNUSED;

/* Receives a client region message and its descriptor, -1 if none, which the caller owns. Never
 * waits. DEADLINE_EXCEEDED: no message; UNAVAILABLE: the other side has closed. */
enum status handshake_receive_client_region(int fd, struct handshake_client_region *message,
                                            int *region_fd, struct error *error) WARN_UNUSED;

/* Sends one packet; retries on EINTR. DEADLINE_EXCEEDED: a non-blocking socket has no room. */
enum status handshake_send(int fd, const void *message, uint32_t bytes,
                           struct error *error) WARN_UNUSED;

/* Receives one packet of at most `room` bytes into `message`, which starts with a handshake_header,
 * and checks version and length. Members that were not sent are zero, and the header's length is
 * then the struct's. UNAVAILABLE: the other side has closed. */
enum status handshake_receive(int fd, void *message, uint32_t room,
                              struct error *error) WARN_UNUSED;

/* Checks that strings are terminated and counts and types within their limits. */
enum status handshake_ready_validate(const struct handshake_ready *ready,
                                     struct error *error) WARN_UNUSED;
