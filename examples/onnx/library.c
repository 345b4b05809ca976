/* SPDX-License-Identifier: Apache-2.0 */
#include "library.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { FOLDERS_OF_WHEEL = 3, FOLDERS_OF_SYSTEM = 4 };
static const char *const folders_of_wheel[FOLDERS_OF_WHEEL] = {"", "/capi", "/onnxruntime/capi"};
static const char *const folders_of_system[FOLDERS_OF_SYSTEM] = {
    "/usr/local/lib", ("/usr/lib/" MULTIARCH), "/usr/lib64", "/usr/lib"};
static const char file_name[] = "libonnxruntime.so";

/* The library's file with a version behind its name, or none. */
static int
is_library(const char *name)
{
    size_t bytes = sizeof file_name - 1;
    return strncmp(name, file_name, bytes) == 0 &&
           strspn(name + bytes, ".0123456789") == strlen(name + bytes);
}

/* 0: there is none. */
static int
folder_search(const char *folder, char path[PATH_MAX])
{
    char best[NAME_MAX + 1] = "";
    DIR *stream = opendir(folder);
    if (stream == NULL)
        return 0;
    const struct dirent *entry;
    while ((entry = readdir(stream)) != NULL)
        if (is_library(entry->d_name) && strverscmp(entry->d_name, best) > 0)
            memcpy(best, entry->d_name, strlen(entry->d_name) + 1);
    closedir(stream);
    int length = snprintf(path, PATH_MAX, "%s/%s", folder, best);
    return best[0] != '\0' && length < PATH_MAX;
}

static int
library_find(const char *where, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    struct stat info;
    int found = 0;
    if (where[0] != '\0' && stat(where, &info) == 0 && !S_ISDIR(info.st_mode))
        return snprintf(path, PATH_MAX, "%s", where) < PATH_MAX;
    for (size_t i = 0; where[0] != '\0' && !found && i < FOLDERS_OF_WHEEL; i++)
        if (snprintf(folder, sizeof folder, "%s%s", where, folders_of_wheel[i]) < PATH_MAX)
            found = folder_search(folder, path);
    for (size_t i = 0; where[0] == '\0' && !found && i < FOLDERS_OF_SYSTEM; i++)
        found = folder_search(folders_of_system[i], path);
    return found;
}

static int
refuse(struct shoal_error *error, const char *path, const char *what)
{
    size_t length = strlen(path);
    const char *shown = length > 100 ? path + length - 100 : path;
    snprintf(error->text, sizeof error->text, "%.100s: %.150s", shown, what);
    return SHOAL_FAILED_PRECONDITION;
}

int
library_load(const char *where, const OrtApi **api, struct shoal_error *error)
{
    char path[PATH_MAX];
    char what[140];
    if (!library_find(where, path)) {
        (void)refuse(error, where, "no libonnxruntime.so in it, capi or onnxruntime/capi");
        return SHOAL_NOT_FOUND;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        snprintf(what, sizeof what, "%s", dlerror());
        return refuse(error, path, what);
    }
    /* POSIX lets a pointer to an object be one to a function. */
    const OrtApiBase *(*get_base)(void);
    void *symbol = dlsym(handle, "OrtGetApiBase");
    if (symbol == NULL)
        return refuse(error, path, "it is not ONNX Runtime: it has no OrtGetApiBase");
    memcpy(&get_base, &symbol, sizeof get_base);
    const OrtApiBase *base = get_base();
    *api = base->GetApi(ORT_API_VERSION);
    if (*api != NULL)
        return SHOAL_OK;
    snprintf(what, sizeof what, "ONNX Runtime %.32s is too old: 1.%d or later is needed",
             base->GetVersionString(), ORT_API_VERSION);
    return refuse(error, path, what);
}
