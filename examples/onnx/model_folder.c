/* SPDX-License-Identifier: Apache-2.0 */
#include "model_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SUFFIX ".onnx"

int
model_folder_open(struct model_folder *folder, const struct shoal_host *host,
                  const struct shoal_model *spec, const char *path, struct shoal_error *error)
{
    *folder = (struct model_folder){.host = host, .spec = spec};
    int length = snprintf(folder->path, sizeof folder->path, "%s", path);
    if (length < 0 || (size_t)length >= sizeof folder->path)
        return model_refuse(error, path, SHOAL_INVALID_ARGUMENT, "the path is too long");
    struct stat stat_;
    folder->is_folder = stat(path, &stat_) == 0 && S_ISDIR(stat_.st_mode);
    return SHOAL_OK;
}

void
model_folder_close(struct model_folder *folder)
{
    for (size_t i = 0; i < folder->file_count; i++) {
        model_file_unmap(&folder->files[i].own);
        free(folder->files[i].name);
    }
    free(folder->files);
    folder->files = NULL;
    folder->file_count = 0;
}

/* Is in the folder, whatever links there are: the host looks after those. */
static bool
stays_inside(const char *name)
{
    if (name[0] == '/' || name[0] == '\0')
        return false;
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += part[0] == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;
    }
    return true;
}

static int
map_here(const struct model_folder *folder, const char *name, struct folder_file *file,
         struct shoal_error *error)
{
    char path[MODEL_PATH_ROOM];
    int length = snprintf(path, sizeof path, "%s%s%s", folder->path, name != NULL ? "/" : "",
                          name != NULL ? name : "");
    if (length < 0 || (size_t)length >= sizeof path)
        return model_refuse(error, folder->path, SHOAL_INVALID_ARGUMENT, "a name is too long");
    int status = model_file_map(path, &file->own, error);
    file->bytes = file->own.bytes;
    file->size = file->own.size;
    return status;
}

static bool
host_maps(const struct model_folder *folder)
{
    size_t needed = offsetof(struct shoal_host, map_file) + sizeof folder->host->map_file;
    return folder->spec != NULL && folder->host->struct_size >= needed &&
           folder->host->map_file != NULL;
}

static int
map(struct model_folder *folder, const char *name, struct folder_file **mapped,
    struct shoal_error *error)
{
    struct folder_file *more =
        realloc(folder->files, (folder->file_count + 1) * sizeof *folder->files);
    if (more == NULL)
        return model_refuse(error, folder->path, SHOAL_RESOURCE_EXHAUSTED, "no memory");
    folder->files = more;
    struct folder_file *file = &folder->files[folder->file_count];
    *file = (struct folder_file){.name = name != NULL ? strdup(name) : NULL};
    if (name != NULL && file->name == NULL)
        return model_refuse(error, folder->path, SHOAL_RESOURCE_EXHAUSTED, "no memory");
    int status = host_maps(folder)
                     ? folder->host->map_file(folder->spec, name, &file->bytes, &file->size, error)
                     : map_here(folder, name, file, error);
    if (status != SHOAL_OK) {
        free(file->name);
        return status;
    }
    folder->file_count++;
    folder->mapped_bytes += file->size;
    *mapped = file;
    return SHOAL_OK;
}

static bool
is_model(const char *name)
{
    size_t length = strlen(name);
    return length > strlen(SUFFIX) && strcmp(name + length - strlen(SUFFIX), SUFFIX) == 0;
}

/* The only name in the folder that ends in .onnx. */
static int
find(const struct model_folder *folder, char *room, size_t room_bytes, struct shoal_error *error)
{
    size_t count = 0;
    const struct dirent *entry;
    DIR *directory = opendir(folder->path);
    if (directory == NULL)
        return model_refuse(error, folder->path, SHOAL_NOT_FOUND, strerror(errno));
    while ((entry = readdir(directory)) != NULL) {
        if (is_model(entry->d_name)) {
            snprintf(room, room_bytes, "%s", entry->d_name);
            count++;
        }
    }
    closedir(directory);
    if (count == 1)
        return SHOAL_OK;
    return model_refuse(error, folder->path, SHOAL_INVALID_ARGUMENT,
                        count == 0 ? "is a folder without a file *.onnx"
                                   : "is a folder with more than one file *.onnx");
}

int
model_folder_map_model(struct model_folder *folder, const void **bytes, size_t *size,
                       struct shoal_error *error)
{
    char name[256];
    struct folder_file *file;
    int status = SHOAL_OK;
    if (folder->is_folder)
        status = find(folder, name, sizeof name, error);
    if (status == SHOAL_OK)
        status = map(folder, folder->is_folder ? name : NULL, &file, error);
    if (status != SHOAL_OK)
        return status;
    *bytes = file->bytes;
    *size = file->size;
    return SHOAL_OK;
}

int
model_folder_map_weights(struct model_folder *folder, const char *name, const void **bytes,
                         size_t *size, struct shoal_error *error)
{
    struct folder_file *file = NULL;
    if (!folder->is_folder)
        return model_refuse(error, folder->path, SHOAL_INVALID_ARGUMENT,
                            "its weights are in other files: give the folder that all are in");
    if (!stays_inside(name))
        return model_refuse(error, folder->path, SHOAL_PERMISSION_DENIED,
                            "its weights are in a file that is not in its folder");
    for (size_t i = 0; i < folder->file_count && file == NULL; i++) {
        if (folder->files[i].name != NULL && strcmp(folder->files[i].name, name) == 0)
            file = &folder->files[i];
    }
    int status = file != NULL ? SHOAL_OK : map(folder, name, &file, error);
    if (status != SHOAL_OK)
        return status;
    *bytes = file->bytes;
    *size = file->size;
    return SHOAL_OK;
}
