/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modelet ABI, version 1: the contract between a plug-in (`lib<name>.so`) and Shoal.
 *
 * A modelet is the code of one stage of a pipeline. It is loaded into worker processes only, one
 * instance per worker, so a modelet that crashes takes one worker with it and never the service. It
 * exports one symbol, a constant named `shoal_modelet`. A complete example:
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
 * A second one has a parameter, a model and texts. It says which texts are the model's word:
 *
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *     #include <string.h>
 *     #include <shoal/modelet.h>
 *
 *     struct instance {
 *         const struct shoal_host *host;
 *         int inverts;
 *     };
 *
 *     struct word {
 *         const void *data;
 *         size_t bytes;
 *     };
 *
 *     static int
 *     open(const struct shoal_open *open, void **instance, struct shoal_error *error)
 *     {
 *         struct instance *self = calloc(1, sizeof(*self));
 *         if (self == NULL)
 *             return SHOAL_RESOURCE_EXHAUSTED;
 *         self->host = open->host;
 *         for (uint32_t i = 0; i < open->param_count; i++) {
 *             if (strcmp(open->params[i].name, "inverts") != 0) {
 *                 snprintf(error->text, sizeof(error->text), "the only parameter is `inverts`");
 *                 free(self);
 *                 return SHOAL_INVALID_ARGUMENT;
 *             }
 *             self->inverts = strcmp(open->params[i].value, "yes") == 0;
 *         }
 *         *instance = self;
 *         return SHOAL_OK;
 *     }
 *
 *     static int
 *     describe(void *instance, struct shoal_io *io, struct shoal_error *error)
 *     {
 *         static const struct shoal_tensor_spec texts = {"texts", SHOAL_BYTES, 1, {-1}};
 *         static const struct shoal_tensor_spec found = {"found", SHOAL_BOOL, 1, {-1}};
 *         io->inputs = &texts;
 *         io->outputs = &found;
 *         io->input_count = io->output_count = 1;
 *         return SHOAL_OK;
 *     }
 *
 *     static int
 *     load(void *instance, const struct shoal_model *spec, void **model, struct shoal_error *error)
 *     {
 *         const struct instance *self = instance;
 *         struct word *word = malloc(sizeof(*word));
 *         if (word == NULL)
 *             return SHOAL_RESOURCE_EXHAUSTED;
 *         int status = self->host->map_file(spec, NULL, &word->data, &word->bytes, error);
 *         if (status == SHOAL_OK)
 *             *model = word;
 *         else
 *             free(word);
 *         return status;
 *     }
 *
 *     static void
 *     unload(void *instance, void *model)
 *     {
 *         free(model);
 *     }
 *
 *     static void
 *     find(const struct instance *self, const struct word *word, struct shoal_item *item)
 *     {
 *         const struct shoal_tensor *texts = &item->inputs[0];
 *         uint8_t *found =
 *             self->host->output(item, "found", SHOAL_BOOL, texts->rank, texts->shape);
 *         const char *at = texts->data;
 *         const char *end = at + texts->bytes;
 *         for (size_t i = 0; found != NULL && i < shoal_tensor_elements(texts); i++) {
 *             uint32_t bytes;
 *             if ((size_t)(end - at) < sizeof(bytes))
 *                 return; // only where local clients may change it: see below
 *             memcpy(&bytes, at, sizeof(bytes));
 *             at += sizeof(bytes);
 *             if ((size_t)(end - at) < bytes)
 *                 return;
 *             int same = bytes == word->bytes && memcmp(at, word->data, bytes) == 0;
 *             found[i] = same != self->inverts;
 *             at += bytes;
 *         }
 *         if (found != NULL)
 *             item->status = SHOAL_OK;
 *     }
 *
 *     static int
 *     run(void *instance, void *model, struct shoal_batch *batch)
 *     {
 *         for (uint32_t i = 0; i < batch->count; i++)
 *             find(instance, model, batch->items[i]);
 *         return SHOAL_OK;
 *     }
 *
 *     const struct shoal_modelet shoal_modelet = {
 *         SHOAL_MODELET_HEADER, .abilities = SHOAL_RUNS_BATCHES, .name = "word", .open = open,
 *         .describe = describe, .load = load, .unload = unload, .run = run, .close = free};
 *
 * Life in a worker: `open` once → `describe` → `load` (if a model is configured) → `run` any number
 * of times → `unload` → `close`. Only `run` is required. All are called on one thread. With
 * SHOAL_RUN_DURING_LOAD, the functions that manage other models (`predict_size`, `load`,
 * `describe_model`, `size`, `max_concurrency`, `unload`) may be called on a second thread while
 * `run` is busy. A worker that is killed calls nothing more.
 *
 * Models. In a pipeline with `models:`, models come and go while it serves. For each one the worker
 * calls `load`, then `describe_model`, `size` and `max_concurrency`, then `run` with its items, and
 * `unload` when no item of it is left. A batch holds items of one model. Memory that `load`
 * allocates with malloc or maps with the host's `map_file` is measured as the model's size, unless
 * `size` returns it (memory that an engine's own threads allocate cannot be measured). The second
 * thread runs at low priority, where possible in Linux's idle class, and threads that it starts
 * inherit that: start the threads that `run` needs in `open`.
 *
 * Ownership. Arguments from the host belong to the host and are valid until the function returns,
 * unless a comment states a longer life. Objects that the modelet creates belong to the modelet:
 * `*instance` goes back to `close`, `*model` to `unload`, each exactly once, and only if the
 * function that created it returned SHOAL_OK. No memory is freed across the boundary.
 *
 * Errors are the numbers of gRPC's status codes. A function that fails returns one and may write a
 * text into `error`. Both reach the caller (from `run`) or the log (from the others) unchanged,
 * except that the host mentions the sandbox where a text may be that of a call that it refused.
 *
 * Sandbox. A worker enters its sandbox before it opens the plug-in. It can read the plug-in's
 * folder, the configuration's folder and the system's libraries, and compute; it cannot write
 * files, open sockets or start processes. Once the modelet is ready, it cannot open files or create
 * executable code (dlopen, compilers at run time) any more: do that in `open` or `load`. Where
 * models come and go, it may still read those places and the models' root and load libraries, as
 * `load` needs. Threads may be started at any time. A refused operation fails with EPERM or EACCES.
 * The stage's `sandbox_allow` loosens the sandbox by name.
 *
 * A worker whose `run` exceeds the stage's `run_timeout_ms` is killed. A request that a worker held
 * when it died is run again, alone, by another worker.
 *
 * Local clients. Where the pipeline's `local_clients` is not 0, inputs may lie in memory that their
 * sender can still write. Names, types, shapes and sizes were checked and do not change, but the
 * data may change while `run` reads it. Load each element that controls the computation (a length
 * in a BYTES tensor, an index) once, check the loaded value, and use only that: the framing of a
 * BYTES tensor was valid when the request came and may be invalid later. The same holds for outputs
 * that are read again. Requests are checked against `describe` at the first stage only, but a local
 * client can submit a request to any stage: earlier stages do not protect later ones from it.
 *
 * Versions. `abi_version` and the sizes in SHOAL_MODELET_HEADER are compared before any function of
 * the plug-in is called, and the host's tables carry their own size, so each side sees the version
 * of the other. Within version 1 structures only grow at the end. A plug-in compiled with an older
 * header runs; one compiled with a newer header is refused with the name of the field.
 */
#ifndef SHOAL_MODELET_H
#define SHOAL_MODELET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHOAL_ABI_VERSION 1u

/* gRPC's status codes (grpc.io, "Status codes"). Every item starts with SHOAL_UNSET; an item that
 * is still unset when `run` returns SHOAL_OK fails alone, with INTERNAL. */
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

/* Room for an error text, supplied by the caller and empty on entry. Longer texts are cut. */
struct shoal_error {
    char text[256];
};

/* A tensor in memory. `data` is aligned to 64 bytes and valid until `run` returns. The modelet may
 * change it in place (see `forward`). */
struct shoal_tensor {
    const char *name; /* terminated */
    uint32_t datatype;
    uint32_t rank;
    int64_t shape[SHOAL_RANK_MAX]; /* the first `rank` are used, each >= 0 */
    void *data;
    size_t bytes;
};

/* One request at one stage. */
struct shoal_item {
    int32_t status; /* modelet: SHOAL_OK, or an error for this item alone; SHOAL_UNSET on entry */
    uint32_t input_count;
    const struct shoal_tensor *inputs;
    int64_t deadline_ns; /* CLOCK_MONOTONIC; INT64_MAX: none */
    /* Appended fields follow here in later headers. The host keeps its own state elsewhere. */
};

struct shoal_batch {
    const struct shoal_host *host;
    uint32_t count; /* 1 … batch_size of the stage; always 1 without SHOAL_RUNS_BATCHES */
    uint32_t reserved;
    struct shoal_item *const *items;
    struct shoal_error *error; /* text for a `run` that fails as a whole */
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
 * The host's functions. The table lives as long as the worker. Functions that take an item may be
 * called only during the `run` that received the item, on its thread; the others, unless they say
 * otherwise, at any time on any thread of the modelet. The table only grows at the end; check
 * `struct_size` before you use a function that a newer header added.
 */
struct shoal_host {
    uint32_t abi_version;
    uint32_t struct_size;

    /* Adds an output tensor and returns its memory, which the modelet fills before `run` returns.
     * Returns NULL on failure (name taken or too long, unknown type, too many tensors, too large,
     * arena full); the item's status and text are then already set: go on with the next item. For
     * SHOAL_BYTES use `output_bytes`. */
    void *(*output)(struct shoal_item *item, const char *name, uint32_t datatype, uint32_t rank,
                    const int64_t *shape);

    /* Like `output`, but takes the size in bytes: for SHOAL_BYTES tensors. */
    void *(*output_bytes)(struct shoal_item *item, const char *name, uint32_t datatype,
                          uint32_t rank, const int64_t *shape, size_t bytes);

    /* Makes input `index` an output named `name` without copying. The next stage sees changes that
     * the modelet made to its data. An item that runs again after a worker's death would see them
     * too: a modelet that changes inputs must declare SHOAL_CHANGES_INPUTS, and such an item then
     * fails instead of running again. Returns SHOAL_OK, or the error that it set on the item. */
    int32_t (*forward)(struct shoal_item *item, uint32_t index, const char *name);

    /* Fails one item: sets its status (SHOAL_OK and SHOAL_UNSET become SHOAL_UNKNOWN) and its text.
     * Returns the status. */
    int32_t (*fail)(struct shoal_item *item, int32_t status, const char *format, ...)
#if defined(__GNUC__)
        __attribute__((format(printf, 3, 4)))
#endif
        ;

    /* Looks up a parameter of the request by name. Returns 1 if it exists, else 0. */
    int (*parameter)(struct shoal_item *item, const char *name, struct shoal_parameter *value);

    /* Returns 1 if the caller has gone away or the deadline has passed, so that a long `run` can
     * give up. Costs one load and, with a deadline, a clock reading. */
    int (*cancelled)(struct shoal_item *item);

    /* Writes one line to the service's log. */
    void (*log)(enum shoal_log_level level, const char *format, ...)
#if defined(__GNUC__)
        __attribute__((format(printf, 2, 3)))
#endif
        ;

    /* Resolves a path from the configuration, relative to the configuration file's folder. Writes
     * at most `room` bytes, terminated. Returns SHOAL_OK, or SHOAL_OUT_OF_RANGE if the result does
     * not fit. */
    int32_t (*resolve_path)(const char *path, char *resolved, size_t room);

    /* Maps a file of the model, read-only and shared by the workers of a stage. Only during `load`,
     * on its thread. `name` NULL: the file at spec->path; else a file beneath the directory
     * spec->path. If the model's key states `sha256` (64 hexadecimal digits, or an object of such
     * texts by file name), the file's content is checked against it. `*data` is aligned to a page
     * and valid until `unload` has returned or `load` has failed; the host unmaps it. Returns
     * SHOAL_OK, or an error with its text in `error`.
     *
     * Replace a model's file by renaming another one over it. Writing to a mapped file changes it
     * under `run`, after its digest was checked; truncating it ends the worker (SIGBUS). */
    int32_t (*map_file)(const struct shoal_model *spec, const char *name, const void **data,
                        size_t *bytes, struct shoal_error *error);

    /* ---- since the fourth header of version 1: check `struct_size` ---- */

    /* Sends the outputs made so far as a piece of the item's answer; the item then has none, and
     * their memory is no longer the modelet's. `run` makes and sends the next ones; those that are
     * left when it returns are the last piece, and none are needed. Only for a modelet with
     * `extension("stream")`. Returns SHOAL_OK, or the error that it set on the item: give up then.
     * The caller is gone or the deadline has passed (CANCELLED, DEADLINE_EXCEEDED), the arena is
     * full (RESOURCE_EXHAUSTED), or the caller takes one answer only and the stage's `collect` does
     * not make one of the pieces (UNIMPLEMENTED). Never waits for a caller that reads slowly: that
     * ends with CANCELLED when too much is unread.
     *
     * An item of which a piece was sent is not run again after a worker's death or a failed
     * batch. */
    int32_t (*emit)(struct shoal_item *item);
};

/* Returned by `extension("stream")`: the modelet may call `emit`. */
struct shoal_stream {
    uint32_t struct_size;
    uint32_t reserved;
};

/* A parameter of the stage, in the configuration's order. Valid until `open` returns. */
struct shoal_param {
    const char *name;
    const char *value; /* the scalar as written, terminated */
};

struct shoal_open {
    uint32_t struct_size;
    uint32_t param_count;
    const struct shoal_param *params;
    const struct shoal_host *host; /* valid until `close` has returned */
    uint32_t batch_size;           /* of the stage; 0 or 1: single items */
    uint32_t worker_index;         /* of this worker in its stage */
    uint32_t worker_count;         /* in the stage */
    uint32_t reserved;
    /* ---- since the third header of version 1: check `struct_size` ---- */
    const char *script; /* absolute: the file that this plug-in interprets, where the stage's
                         * `modelet` is a script; else NULL. Valid until `open` returns */
};

#define SHOAL_DATATYPE_ANY 0u           /* in a spec: any type */
#define SHOAL_RANK_ANY UINT32_C(0xffff) /* in a spec: any number of dimensions */

/* An input or output of a stage or model: for checking requests and for model metadata. */
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
    const char *key;  /* set by the model's registrar; "": none */
};

enum shoal_ability {
    SHOAL_RUNS_BATCHES = 1u << 0,    /* `run` takes more than one item */
    SHOAL_RUN_DURING_LOAD = 1u << 1, /* `load`/`unload` may overlap `run` on another thread */
    SHOAL_CHANGES_INPUTS = 1u << 2,  /* writes to its inputs: items are never run twice */
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

    /* Creates the worker's instance. Optional: without it `instance` is NULL. May take as long as
     * the stage's start time-out. */
    int (*open)(const struct shoal_open *open, void **instance, struct shoal_error *error);

    /* Fills `io`, whose members other than `struct_size` are zero. Optional: without it inputs are
     * not checked. */
    int (*describe)(void *instance, struct shoal_io *io, struct shoal_error *error);

    /* Loads a model; `*model` is then passed to `run` with its items. Optional: without it the
     * modelet has one built-in model, and `model` is NULL. */
    int (*load)(void *instance, const struct shoal_model *spec, void **model,
                struct shoal_error *error);
    void (*unload)(void *instance, void *model);

    /* Memory in bytes: of a loaded model, including mapped files that it still needs, and an
     * estimate before the load. Optional; 0: unknown. */
    uint64_t (*size)(void *instance, void *model);
    uint64_t (*predict_size)(void *instance, const struct shoal_model *spec);

    /* Runs a batch; never called concurrently in one worker. Returns SHOAL_OK when each item has
     * its own status. Any other value fails the whole batch and overrides the items' statuses: it
     * is run again in halves, as often as the stage's `halvings_max` allows, to single out the
     * culprit. With SHOAL_CHANGES_INPUTS the batch fails at once. */
    int (*run)(void *instance, void *model, struct shoal_batch *batch);

    void (*close)(void *instance);

    /* Returns later additions to the ABI by name, or NULL if the modelet has none of that name.
     * Optional. */
    const void *(*extension)(const char *name);

    /* ---- since the second header of version 1 ---- */

    /* Like `describe`, but describes one model, after its `load`. For a stage's own model
     * (`model:`) it replaces what `describe` said. Pointers in `io` must stay valid until its
     * `unload`. Optional: without it `describe` holds for every model. */
    int (*describe_model)(void *instance, void *model, struct shoal_io *io,
                          struct shoal_error *error);

    /* The number of requests of this model that are worth having in flight at once; 0: unknown.
     * Reported to a mesh that asks. Optional. */
    uint32_t (*max_concurrency)(void *instance, void *model);
};

#define SHOAL_MODELET_HEADER                                                                       \
    .abi_version = SHOAL_ABI_VERSION, .struct_size = sizeof(struct shoal_modelet),                 \
    .host_size = sizeof(struct shoal_host), .batch_size = sizeof(struct shoal_batch),              \
    .item_size = sizeof(struct shoal_item), .tensor_size = sizeof(struct shoal_tensor)

/* The symbol that a modelet exports. Visible even under -fvisibility=hidden. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
extern const struct shoal_modelet shoal_modelet;

/* Returns the bytes of one element; 0 for SHOAL_BYTES and unknown types. */
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

/* Returns the number of elements: the product of the dimensions, 1 for a scalar. The host has
 * checked that it does not overflow. */
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
