/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a model: one ONNX file, or a folder with exactly one and the files that its weights
 * are in. During `load` they are mapped by the host, which checks them against the model's key and
 * counts them as shared; a model of the stage's own, and one of an older host, is mapped here. What
 * is mapped stays until the folder is closed (or is the host's to unmap). One thread at a time.
 */
#pragma once

#include <shoal/modelet.h>
#include <stdbool.h>

#include "../model_file.h"

enum { MODEL_PATH_ROOM = 4096 };

struct folder_file {
    char *name; /* in the folder; NULL: the path itself */
    const void *bytes;
    size_t size;
    struct model_file own; /* zeroed: the host's */
};

struct model_folder {
    const struct shoal_host *host;
    const struct shoal_model *spec; /* only during `load`; NULL: mapped here */
    char path[MODEL_PATH_ROOM];
    bool is_folder;
    struct folder_file *files;
    size_t file_count;
    uint64_t mapped_bytes;
};

/* `spec` may be NULL. After a failure, too, it is to be closed. */
int model_folder_open(struct model_folder *folder, const struct shoal_host *host,
                      const struct shoal_model *spec, const char *path, struct shoal_error *error);
void model_folder_close(struct model_folder *folder);

/* The ONNX file. */
int model_folder_map_model(struct model_folder *folder, const void **bytes, size_t *size,
                           struct shoal_error *error);
/* A file of weights, which the model calls `name`; mapped once however often it is asked for. */
int model_folder_map_weights(struct model_folder *folder, const char *name, const void **bytes,
                             size_t *size, struct shoal_error *error);
