/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files beside a model that other servers read: Triton's `config.pbtxt` and MLServer's
 * `model-settings.json`. Their members are taken over where Shoal has them, refused where they
 * contradict the model, and else ignored, by name. Pure.
 *
 * `config.pbtxt`: name, platform or backend, version_policy, max_batch_size (the rows that a
 * request may have); input and output are compared with the loaded model's tensors. Their shapes
 * lack the batch unless max_batch_size is 0. An order to load may bring the same as JSON.
 *
 * `model-settings.json`: name, implementation, parameters.uri, parameters.version.
 */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "coordinator/models/model_format.h"
#include "coordinator/models/release_policy.h"
#include "coordinator/protocol/oip.h"

enum sidecar_kind { SIDECAR_TRITON, SIDECAR_MLSERVER, SIDECAR_KINDS };
extern const char *const sidecar_files[SIDECAR_KINDS];

enum {
    SIDECAR_BYTES_MAX = 64 * 1024,
    SIDECAR_FILE_BYTES = 128,
    SIDECAR_IGNORED_BYTES = 160,
    SIDECAR_TENSORS_MAX = 16
};

/* Tensors that config.pbtxt describes. */
struct sidecar_tensor {
    char member[8]; /* "input" or "output" */
    char name[64];
    char datatype[16]; /* "TYPE_FP32"; "": any */
    uint32_t rank;
    int64_t shape[SHOAL_RANK_MAX]; /* without the batch, -1: any */
};

struct sidecar_tensors {
    uint32_t count;
    uint32_t rows_max; /* of a request, and each shape lacks the batch; 0: any, and it does not */
    bool has_more;     /* than fit; those are not compared */
    struct sidecar_tensor at[SIDECAR_TENSORS_MAX];
};

struct sidecar {
    struct sidecar_tensors tensors;
    struct release_policy policy;
    char version[RELEASE_POLICY_NUMBER_BYTES]; /* ""; or what callers see as the model's version */
    char file[SIDECAR_FILE_BYTES];             /* ""; or the model's file, relative to its folder */
    const char *format_member;                 /* the member that names a format; NULL: none does */
    const struct model_format *format;
    /* Names of members, separated by ", ". */
    char ignored[SIDECAR_KINDS][SIDECAR_IGNORED_BYTES];
};

/* Adds the text's members to `sidecar`, zeros at first. `id`: the model's. INVALID_ARGUMENT: it
 * is malformed or contradicts the id; the error names the file, and the line or member. */
enum status sidecar_read_triton(struct sidecar *sidecar, const char *id, const char *text,
                                size_t bytes, struct error *error) WARN_UNUSED;
enum status sidecar_read_mlserver(struct sidecar *sidecar, const char *id, const char *text,
                                  size_t bytes, struct error *error) WARN_UNUSED;

/* The JSON of an order to load, which stands for `config.pbtxt`. INVALID_ARGUMENT: also a member
 * that has no effect, but for dynamic_batching, which says how a stage works. */
enum status sidecar_read_order(struct sidecar *sidecar, const char *id, const char *text,
                               size_t bytes, struct error *error) WARN_UNUSED;

/* FAILED_PRECONDITION: a loaded model's tensor of the same name has another type or shape. Tensors
 * of other names are not compared: modelets name them in their own way. */
enum status sidecar_check_tensors(const struct sidecar_tensors *tensors,
                                  const struct oip_model_info *model,
                                  struct error *error) WARN_UNUSED;

/* Like sidecar_check_tensors(), for the tensors and the format. */
enum status sidecar_check_loaded(const struct sidecar *sidecar, const struct oip_model_info *model,
                                 struct error *error) WARN_UNUSED;

/* INVALID_ARGUMENT: the model's files are of another format than the sidecar names. */
enum status sidecar_check_format(const struct sidecar *sidecar, const struct model_format *format,
                                 struct error *error) WARN_UNUSED;
