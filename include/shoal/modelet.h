/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modelet ABI, version 1: what a plug-in (`lib<name>.so`) and Shoal promise each other.
 *
 * A modelet is the code of one stage of a pipeline. It is loaded into worker processes only, one
 * instance per worker, so a modelet that crashes takes one worker with it and never the service.
 * It exports one symbol, a constant named `shoal_modelet`. The smallest useful one, whole:
 *
 *     #include <shoal/modelet.h>
 *
 *     static int
 *     run(void *instance, void *model, struct shoal_batch *batch)
 *     {
 *         for (uint32_t i = 0; i < batch->count; i++) {
 *             struct shoal_item *item = batch->items[i];
 *             item->status = batch->host->forward(item, 0, "output");
 *         }
 *         return SHOAL_OK;
 *     }
 *
 *     const struct shoal_modelet shoal_modelet = {
 *         SHOAL_MODELET_HEADER, .name = "echo", .run = run};
 *
 *     cc -shared -fPIC $(pkg-config --cflags shoal-modelet) echo.c -o libecho.so
 *
 * Life in a worker: `open` once → `describe` → `load` (if a model is configured) → `run` any number
 * of times → `unload` → `close`. Only `run` is required. All are called on one thread, except that
 * with SHOAL_RUN_DURING_LOAD what concerns other models (`predict_size`, `load`, `describe_model`,
 * `size`, `max_concurrency`, `unload`) may be called on a second thread while `run` is busy. A
 * worker that is killed calls nothing more.
 *
 * Models. In a pipeline with `models:` they come and go while it serves: for each, `load`, then
 * `describe_model`, `size` and `max_concurrency`, then `run` with its items, and `unload` when no
 * item of it is left. A batch holds items of one model. What `load` allocates with malloc, and maps
 * with the host's `map_file`, is measured as the model's size, unless `size` says better (threads
 * that an engine starts for itself allocate where that cannot be seen). The second thread takes
 * what the node's CPUs have left, in Linux's idle class, and threads that it starts inherit that:
 * start those that `run` needs in `open`.
 *
 * Ownership. What the host passes in belongs to the host and is valid until the function returns,
 * unless it is said to live longer. What the modelet creates belongs to the modelet: `*instance`
 * goes back to `close`, `*model` to `unload`, each exactly once, and only if the function that
 * created it returned SHOAL_OK. No memory is freed across the boundary.
 *
 * Errors are the numbers of gRPC's status codes. A function that fails returns one and may put a
 * text into `error`; both reach the caller (from `run`) or the log (from the others) unchanged.
 *
 * Sandbox. From before the plug-in is opened a worker can read its own folder, the configuration's
 * and the system's libraries, and compute; it cannot write files, open sockets or start processes.
 * Once the modelet is ready it opens no more files and makes no more code (dlopen, compilers at run
 * time): do that in `open` or `load`. Where models come and go it may go on reading those places
 * and the models' root, and loading libraries, as `load` needs it. Threads are fine at any time;
 * those that `load` starts have its low priority, so start pools for `run` in `open`. What is
 * refused fails with EPERM or EACCES. The stage's `sandbox_allow` loosens it by name.
 *
 * A modelet that does not come back from `run` within the stage's `run_timeout_ms` is killed. A
 * request that was in a worker's hands when it died is run again, alone, by another.
 *
 * Local clients. Where the pipeline's `local_clients` is not 0, inputs may lie in memory that their
 * sender can still write: names, types, shapes and sizes were checked and stay, but the data may
 * change while `run` reads it. Load each element that steers something (a length in a BYTES tensor,
 * an index) once, check what was loaded, and use only that: the framing of BYTES was right when the
 * request came, and need not be any more. The same goes for outputs that are read again. And what
 * `describe` says is checked at the first stage alone, but a local client can hand its requests to
 * any stage: earlier stages are no guard against it.
 *
 * Versions. `abi_version` and the sizes in SHOAL_MODELET_HEADER are compared before any function
 * of the plug-in is called, and the host's tables carry their own size, so each side sees what the
 * other was compiled with. Within version 1 structures only grow at the end. A plug-in compiled
 * with an older header runs; one compiled with a newer one is refused by name of the field.
 */
#ifndef SHOAL_MODELET_H
#define SHOAL_MODELET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHOAL_ABI_VERSION 1u

/* Status numbers of gRPC (grpc.io, "Status codes"). SHOAL_UNSET is what every item starts with:
 * an item still unset when `run` returns SHOAL_OK fails alone, with INTERNAL. */
enum shoal_status {
    SHOAL_UNSET = -1,
    SHOAL_OK = 0,
    SHOAL_CANCELLED = 1,
    SHOAL_UNKNOWN = 2,
    SHOAL_INVALID_ARGUMENT = 3,
    SHOAL_DEADLINE_EXCEEDED = 4,
    SHOAL_NOT_FOUND = 5,
    SHOAL_ALREADY_EXISTS = 6,
    SHOAL_PERMISSION_DENIED = 7,
    SHOAL_RESOURCE_EXHAUSTED = 8,
    SHOAL_FAILED_PRECONDITION = 9,
    SHOAL_ABORTED = 10,
    SHOAL_OUT_OF_RANGE = 11,
    SHOAL_UNIMPLEMENTED = 12,
    SHOAL_INTERNAL = 13,
    SHOAL_UNAVAILABLE = 14,
    SHOAL_DATA_LOSS = 15,
    SHOAL_UNAUTHENTICATED = 16
};

/* Tensor element types of the Open Inference Protocol. Elements are little-endian, row-major,
 * without padding. A BYTES element is a 4-byte length followed by that many bytes. */
enum shoal_datatype {
    SHOAL_BOOL = 1,
    SHOAL_UINT8,
    SHOAL_UINT16,
    SHOAL_UINT32,
    SHOAL_UINT64,
    SHOAL_INT8,
    SHOAL_INT16,
    SHOAL_INT32,
    SHOAL_INT64,
    SHOAL_FP16,
    SHOAL_FP32,
    SHOAL_FP64,
    SHOAL_BYTES,
    SHOAL_BF16,
    SHOAL_DATATYPE_END
};

#define SHOAL_RANK_MAX 8     /* dimensions of a tensor */
#define SHOAL_TENSORS_MAX 64 /* inputs, or outputs, of an item */
#define SHOAL_NAME_BYTES_MAX                                                                       \
    127 /* of a tensor, a parameter, a model id; without the final zero                            \
         */

/* Caller-supplied room for a text; empty on entry. A longer text is cut. */
struct shoal_error {
    char text[256];
};

/* A tensor as it lies in memory. `data` is aligned to 64 bytes. Its memory is the item's: valid
 * until `run` returns. It may be changed in place by the modelet (see `forward`). */
struct shoal_tensor {
    const char *name; /* terminated */
    uint32_t datatype;
    uint32_t rank;
    int64_t shape[SHOAL_RANK_MAX]; /* rank of them, each >= 0 */
    void *data;
    size_t bytes;
};

/* One request, as one stage sees it. */
struct shoal_item {
    int32_t status; /* modelet: SHOAL_OK, or an error for this item alone; SHOAL_UNSET on entry */
    uint32_t input_count;
    const struct shoal_tensor *inputs;
    int64_t deadline_ns; /* CLOCK_MONOTONIC; INT64_MAX without one */
    /* Appended fields follow here in later headers. The host keeps its own state elsewhere. */
};

struct shoal_batch {
    const struct shoal_host *host;
    uint32_t count; /* 1 … batch_size of the stage; always 1 without SHOAL_RUNS_BATCHES */
    uint32_t reserved;
    struct shoal_item *const *items;
    struct shoal_error *error; /* for the text when `run` fails as a whole */
};

enum shoal_parameter_type {
    SHOAL_PARAMETER_BOOL = 1,
    SHOAL_PARAMETER_INT64,
    SHOAL_PARAMETER_STRING,
    SHOAL_PARAMETER_DOUBLE,
    SHOAL_PARAMETER_UINT64
};

/* A parameter of the request, as the caller sent it. */
struct shoal_parameter {
    uint32_t type;
    uint32_t string_bytes;
    const char *string; /* SHOAL_PARAMETER_STRING: terminated */
    union {
        int64_t int64; /* also BOOL: 0 or 1 */
        uint64_t uint64;
        double float64;
    } value;
};

enum shoal_log_level { SHOAL_LOG_ERROR, SHOAL_LOG_WARN, SHOAL_LOG_INFO, SHOAL_LOG_DEBUG };

struct shoal_model;

/*
 * What the host does for a modelet. The table lives as long as the worker. Functions that take an
 * item may only be called during the `run` that was given the item, on its thread; the others
 * at any time on any thread of the modelet. Only ever appended to; check `struct_size` before using
 * a function that a newer header added.
 */
struct shoal_host {
    uint32_t abi_version;
    uint32_t struct_size;

    /* Adds an output tensor and lends its memory: to be filled by the modelet before `run` returns.
     * NULL when it can't be had (name taken or too long, unknown type, too many, too large, arena
     * full): then the item's status and text are set already; go on with the next item. For
     * SHOAL_BYTES use `output_bytes`. */
    void *(*output)(struct shoal_item *item, const char *name, uint32_t datatype, uint32_t rank,
                    const int64_t *shape);

    /* The same with the size stated: how a SHOAL_BYTES tensor is made. */
    void *(*output_bytes)(struct shoal_item *item, const char *name, uint32_t datatype,
                          uint32_t rank, const int64_t *shape, size_t bytes);

    /* Makes input `index` an output named `name` without copying; what the modelet has changed in
     * its data is seen by the next stage. Note that an item that runs again after a worker's
     * death would see the change too: declare SHOAL_CHANGES_INPUTS if you do that, and the item is
     * then failed instead of being run again. Returns SHOAL_OK or the error set on the item. */
    int32_t (*forward)(struct shoal_item *item, uint32_t index, const char *name);

    /* Fails one item: sets its status (SHOAL_OK and SHOAL_UNSET are taken as SHOAL_UNKNOWN) and
     * text. Returns the status. */
    int32_t (*fail)(struct shoal_item *item, int32_t status, const char *format, ...)
#if defined(__GNUC__)
        __attribute__((format(printf, 3, 4)))
#endif
        ;

    /* A parameter of the request by name: 1 if there is one, else 0. */
    int (*parameter)(struct shoal_item *item, const char *name, struct shoal_parameter *value);

    /* 1 if nobody waits for this item any more (the caller went away or its deadline passed): a
     * long `run` may ask and give up. One load from memory. */
    int (*cancelled)(struct shoal_item *item);

    /* Writes one line to the service's log. */
    void (*log)(enum shoal_log_level level, const char *format, ...)
#if defined(__GNUC__)
        __attribute__((format(printf, 2, 3)))
#endif
        ;

    /* A path from the configuration, taken relative to the configuration file. Writes at most
     * `room` bytes, terminated; returns SHOAL_OK or SHOAL_OUT_OF_RANGE when it does not fit. */
    int32_t (*resolve_path)(const char *path, char *resolved, size_t room);

    /* Only during `load`, on its thread: maps a file of the model, read-only, so that the workers
     * of a stage share its pages. `name` NULL: the file at spec->path; else one beneath the
     * directory spec->path. Where the model's key states `sha256` (a text of 64 hexadecimal
     * digits, or an object of them by file name) what is mapped has been checked against it.
     * `*data` is aligned to a page and stays until `unload` has returned, or `load` has failed: the
     * host unmaps it. SHOAL_OK; else the number of an error, and its text in `error`.
     *
     * Replace a model's file by renaming another one over it. One that is written to changes under
     * `run` after its digest was compared; one that is cut short ends the worker (SIGBUS). */
    int32_t (*map_file)(const struct shoal_model *spec, const char *name, const void **data,
                        size_t *bytes, struct shoal_error *error);
};

/* The `params` of the stage, in the order of the configuration. Valid until `open` returns. */
struct shoal_param {
    const char *name;
    const char *value; /* the scalar as written, terminated */
};

struct shoal_open {
    uint32_t struct_size;
    uint32_t param_count;
    const struct shoal_param *params;
    const struct shoal_host *host; /* valid until `close` has returned */
    uint32_t batch_size;           /* the stage's; 0 or 1: singletons */
    uint32_t worker_index;         /* of this worker in its stage */
    uint32_t worker_count;         /* in the stage */
    uint32_t reserved;
};

#define SHOAL_DATATYPE_ANY 0u           /* in a spec: any type */
#define SHOAL_RANK_ANY UINT32_C(0xffff) /* in a spec: any number of dimensions */

/* What a stage takes and gives: for checking requests before they run, and for model metadata. */
struct shoal_tensor_spec {
    const char *name;              /* valid until `close` */
    uint32_t datatype;             /* or SHOAL_DATATYPE_ANY */
    uint32_t rank;                 /* or SHOAL_RANK_ANY */
    int64_t shape[SHOAL_RANK_MAX]; /* -1: any */
};

struct shoal_io {
    uint32_t struct_size;
    uint32_t input_count;
    uint32_t output_count;
    uint32_t reserved;
    const struct shoal_tensor_spec *inputs; /* valid until `close` */
    const struct shoal_tensor_spec *outputs;
    const char *platform; /* "xgboost", …; may be NULL */
};

struct shoal_model {
    uint32_t struct_size;
    uint32_t reserved;
    const char *id;
    const char *path; /* absolute */
    const char *key;  /* the registrar's own words about the model; "" if none */
};

enum shoal_ability {
    SHOAL_RUNS_BATCHES = 1u << 0,    /* `run` takes more than one item */
    SHOAL_RUN_DURING_LOAD = 1u << 1, /* `load`/`unload` may overlap `run` on another thread */
    SHOAL_CHANGES_INPUTS = 1u << 2,  /* writes to the data of its inputs: never run an item twice */
    SHOAL_ABILITIES_ALL = (1u << 3) - 1
};

struct shoal_modelet {
    /* SHOAL_MODELET_HEADER fills these. */
    uint32_t abi_version;
    uint32_t struct_size;
    uint32_t host_size;
    uint32_t batch_size;
    uint32_t item_size;
    uint32_t tensor_size;

    uint32_t abilities;   /* of enum shoal_ability, or'ed */
    uint32_t workers_max; /* workers that one stage may have; 0: any number */
    const char *name;     /* required */
    const char *version;  /* shown in model metadata; may be NULL */

    /* Makes the instance of this worker. NULL: nothing to prepare, `instance` is NULL. Takes as
     * long as it needs, within the stage's start time-out. */
    int (*open)(const struct shoal_open *open, void **instance, struct shoal_error *error);

    /* Fills `io`, which is zeroed but for its size. NULL: inputs are not checked. */
    int (*describe)(void *instance, struct shoal_io *io, struct shoal_error *error);

    /* Loads a model; `*model` is then given to `run` with items for it. NULL: the modelet has one
     * built-in model, and `model` is NULL. */
    int (*load)(void *instance, const struct shoal_model *spec, void **model,
                struct shoal_error *error);
    void (*unload)(void *instance, void *model);

    /* Bytes that a loaded model holds, mapped files that it needs included; an estimate before it
     * is loaded. Optional; 0: not known. */
    uint64_t (*size)(void *instance, void *model);
    uint64_t (*predict_size)(void *instance, const struct shoal_model *spec);

    /* Runs a batch; never called twice at once in a worker. Returns SHOAL_OK when each item has
     * its own status; anything else fails the batch as a whole, whatever the items say: it is then
     * run again in halves, so that a culprit is found and fails alone. */
    int (*run)(void *instance, void *model, struct shoal_batch *batch);

    void (*close)(void *instance);

    /* Abilities added later, by name; NULL when the modelet has none. */
    const void *(*extension)(const char *name);

    /* ---- since the second header of version 1 ---- */

    /* As `describe`, of one model, after its `load`: what `io` points to is valid until its
     * `unload`. NULL: what `describe` says holds for every model. */
    int (*describe_model)(void *instance, void *model, struct shoal_io *io,
                          struct shoal_error *error);

    /* Requests of this model that are worth having in flight at once; 0: not known. Told to a mesh
     * that asks. NULL: not known. */
    uint32_t (*max_concurrency)(void *instance, void *model);
};

#define SHOAL_MODELET_HEADER                                                                       \
    .abi_version = SHOAL_ABI_VERSION, .struct_size = sizeof(struct shoal_modelet),                 \
    .host_size = sizeof(struct shoal_host), .batch_size = sizeof(struct shoal_batch),              \
    .item_size = sizeof(struct shoal_item), .tensor_size = sizeof(struct shoal_tensor)

/* The one symbol a modelet exports. Visible even under -fvisibility=hidden. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
extern const struct shoal_modelet shoal_modelet;

/* Bytes of one element; 0 for SHOAL_BYTES and for what is no type. */
static inline size_t
shoal_datatype_bytes(uint32_t datatype)
{
    switch (datatype) {
    case SHOAL_BOOL:
    case SHOAL_UINT8:
    case SHOAL_INT8: return 1;
    case SHOAL_UINT16:
    case SHOAL_INT16:
    case SHOAL_FP16:
    case SHOAL_BF16: return 2;
    case SHOAL_UINT32:
    case SHOAL_INT32:
    case SHOAL_FP32: return 4;
    case SHOAL_UINT64:
    case SHOAL_INT64:
    case SHOAL_FP64: return 8;
    default: return 0;
    }
}

/* Elements of a tensor: the product of its dimensions, 1 for a scalar. The host has checked
 * that it does not overflow. */
static inline size_t
shoal_tensor_elements(const struct shoal_tensor *tensor)
{
    size_t elements = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        elements *= (size_t)tensor->shape[i];
    return elements;
}

#ifdef __cplusplus
}
#endif

#endif
