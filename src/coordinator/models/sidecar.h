/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files beside a model that other servers read: Triton's `config.pbtxt` and MLServer's
 * `model-settings.json`. What they say is taken over where Shoal has it, refused where it
 * contradicts the model, and else ignored, by name. Pure.
 *
 *     config.pbtxt         name, platform or backend, version_policy
 *     model-settings.json  name, implementation, parameters.uri, parameters.version
 */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "coordinator/models/model_format.h"
#include "coordinator/models/release_policy.h"

enum sidecar_kind { SIDECAR_TRITON, SIDECAR_MLSERVER, SIDECAR_KINDS };
extern const char *const sidecar_files[SIDECAR_KINDS];

enum { SIDECAR_BYTES_MAX = 64 * 1024, SIDECAR_FILE_BYTES = 128, SIDECAR_IGNORED_BYTES = 160 };

struct sidecar {
    struct release_policy policy;
    char version[RELEASE_POLICY_NUMBER_BYTES]; /* ""; or what callers see as the model's version */
    char file[SIDECAR_FILE_BYTES];             /* ""; or the model's file, relative to its folder */
    const char *format_member;                 /* the member that names a format; NULL: none does */
    const struct model_format *format;
    /* Names of members, separated by ", ". */
    char ignored[SIDECAR_KINDS][SIDECAR_IGNORED_BYTES];
};

/* Adds what the text says to `sidecar`, zeros at first. `id`: the model's. INVALID_ARGUMENT: it is
 * malformed or contradicts the id; the error names the file, and the line or member. */
enum status sidecar_read_triton(struct sidecar *sidecar, const char *id, const char *text,
                                size_t bytes, struct error *error) WARN_UNUSED;
enum status sidecar_read_mlserver(struct sidecar *sidecar, const char *id, const char *text,
                                  size_t bytes, struct error *error) WARN_UNUSED;

/* INVALID_ARGUMENT: the model's files are of another format than the sidecar names. */
enum status sidecar_check_format(const struct sidecar *sidecar, const struct model_format *format,
                                 struct error *error) WARN_UNUSED;
