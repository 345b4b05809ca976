/* SPDX-License-Identifier: Apache-2.0 */
#include "model_folder.h"

#include <stdlib.h>
#include <string.h>

int
model_folder_open(struct model_folder *folder, const struct shoal_host *host,
                  const struct shoal_model *spec, struct shoal_error *error)
{
    static const char *const endings[] = {".onnx", NULL};
    *folder = (struct model_folder){.host = host, .spec = spec};
    return model_file_open(host, spec, endings, folder->path, &folder->model, error);
}

void
model_folder_close(struct model_folder *folder)
{
    model_file_close(&folder->model);
    for (size_t i = 0; i < folder->weight_count; i++) {
        model_file_close(&folder->weights[i].file);
        free(folder->weights[i].name);
    }
    free(folder->weights);
    folder->weights = NULL;
    folder->weight_count = 0;
}

static int
map(struct model_folder *folder, const char *name, struct shoal_error *error)
{
    size_t count = folder->weight_count + 1;
    struct folder_file *more = realloc(folder->weights, count * sizeof *folder->weights);
    char *copy = strdup(name);
    folder->weights = more != NULL ? more : folder->weights;
    if (more == NULL || copy == NULL) {
        free(copy);
        return model_refuse(error, folder->path, SHOAL_RESOURCE_EXHAUSTED, "no memory");
    }
    struct folder_file *file = &more[count - 1];
    int status = model_file_open_beside(folder->host, folder->spec, name, &file->file, error);
    if (status != SHOAL_OK) {
        free(copy);
        return status;
    }
    file->name = copy;
    folder->weight_count = count;
    return SHOAL_OK;
}

int
model_folder_weights(struct model_folder *folder, const char *name,
                     const struct model_file **weights, struct shoal_error *error)
{
    if (strcmp(folder->path, folder->spec->path) == 0)
        return model_refuse(error, folder->path, SHOAL_INVALID_ARGUMENT,
                            "its weights are in other files: give the folder that all are in");
    size_t i = 0;
    while (i < folder->weight_count && strcmp(folder->weights[i].name, name) != 0)
        i++;
    if (i == folder->weight_count) {
        int status = map(folder, name, error);
        if (status != SHOAL_OK)
            return status;
    }
    *weights = &folder->weights[i].file;
    return SHOAL_OK;
}
