/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a model: one ONNX file and, in a folder, the files of its weights. Each is mapped
 * once, by the host where it can (../model_file.h), and stays mapped until the folder is closed or
 * the host unmaps it. One thread at a time.
 */
#pragma once

#include <shoal/modelet.h>

#include "../model_file.h"

struct folder_file {
    char *name; /* in the folder */
    struct model_file file;
};

struct model_folder {
    const struct shoal_host *host;  /* NULL: the stage's own model, mapped here */
    const struct shoal_model *spec; /* until `load` returns */
    char path[MODEL_PATH_ROOM];     /* of the ONNX file */
    struct model_file model;
    struct folder_file *weights;
    size_t weight_count;
};

/* `host` NULL: spec->path is mapped here. Close it even after a failure. */
int model_folder_open(struct model_folder *folder, const struct shoal_host *host,
                      const struct shoal_model *spec, struct shoal_error *error);
void model_folder_close(struct model_folder *folder);

/* Finds a file of weights by its name in the model. */
int model_folder_weights(struct model_folder *folder, const char *name,
                         const struct model_file **weights, struct shoal_error *error);
