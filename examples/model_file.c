/* SPDX-License-Identifier: Apache-2.0 */
#include "model_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SHOWN_MAX = 100 };

int
model_refuse(struct shoal_error *error, const char *path, int status, const char *what)
{
    size_t length = strlen(path);
    const char *shown = length > PATH_SHOWN_MAX ? path + length - PATH_SHOWN_MAX : path;
    snprintf(error->text, sizeof error->text, "model %s%.*s: %s", shown != path ? "…" : "",
             PATH_SHOWN_MAX, shown, what);
    return status;
}

static int
status_of(int number)
{
    switch (number) {
    case ENOENT:
    case ENOTDIR: return SHOAL_NOT_FOUND;
    case EACCES:
    case EPERM: return SHOAL_PERMISSION_DENIED;
    case ENOMEM:
    case EMFILE: return SHOAL_RESOURCE_EXHAUSTED;
    default: return SHOAL_INVALID_ARGUMENT;
    }
}

static int
refuse_number(struct shoal_error *error, const char *path, int number)
{
    return model_refuse(error, path, status_of(number), strerror(number));
}

static int
map_open(int fd, const char *path, struct model_file *file, struct shoal_error *error)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0)
        return refuse_number(error, path, errno);
    if (!S_ISREG(stat.st_mode))
        return model_refuse(error, path, SHOAL_INVALID_ARGUMENT, "is not a regular file");
    if (stat.st_size == 0)
        return model_refuse(error, path, SHOAL_INVALID_ARGUMENT, "is empty");
    const void *bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return refuse_number(error, path, errno);
    *file = (struct model_file){bytes, (size_t)stat.st_size, 0};
    return SHOAL_OK;
}

static int
map_here(const char *path, struct model_file *file, struct shoal_error *error)
{
    /* O_NONBLOCK: opening a FIFO without a writer would block */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return refuse_number(error, path, errno);
    int status = map_open(fd, path, file, error);
    close(fd);
    return status;
}

/* ---- folders ---- */

/* Returns the length of a name before one of the modelet's endings; 0: it has none of them. */
static size_t
stem(const char *name, const char *const *endings)
{
    size_t length = strlen(name);
    for (; *endings != NULL; endings++) {
        size_t ending = strlen(*endings);
        if (length > ending && strcmp(name + length - ending, *endings) == 0)
            return length - ending;
    }
    return 0;
}

struct found {
    char name[256];
    int by_ending;
    int by_name; /* "model" with an ending: preferred if present */
};

/* Hidden files, folders and the model's key are not models, with any ending. */
static void
look_at(struct found *found, const struct dirent *entry, const char *const *endings)
{
    const char *name = entry->d_name;
    size_t length = stem(name, endings);
    if (length == 0 || name[0] == '.' || entry->d_type == DT_DIR || strcmp(name, "key.json") == 0)
        return;
    int by_name = length == 5 && strncmp(name, "model", 5) == 0;
    if (by_name || found->by_name == 0)
        snprintf(found->name, sizeof found->name, "%s", name);
    found->by_name += by_name;
    found->by_ending++;
}

static int
folder_search(const char *path, const char *const *endings, struct found *found,
              struct shoal_error *error)
{
    DIR *folder = opendir(path);
    if (folder == NULL)
        return refuse_number(error, path, errno);
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL)
        look_at(found, entry, endings);
    closedir(folder);
    char what[80];
    if (found->by_name == 1 || (found->by_name == 0 && found->by_ending == 1))
        return SHOAL_OK;
    snprintf(what, sizeof what, "is a folder with %s file that ends in %s%s%s",
             found->by_ending == 0 ? "no" : "more than one", endings[0],
             endings[1] != NULL ? " or " : "", endings[1] != NULL ? endings[1] : "");
    return model_refuse(error, path, SHOAL_INVALID_ARGUMENT, what);
}

/* ---- either ---- */

/* Maps by the host if it can; `name` is beneath the folder, NULL: the path itself. */
static int
map_lent(const struct shoal_host *host, const struct shoal_model *spec, const char *name,
         struct model_file *file, struct shoal_error *error)
{
    file->lent = 1;
    return host->map_file(spec, name, &file->bytes, &file->size, error);
}

static int
host_maps(const struct shoal_host *host)
{
    return host != NULL &&
           host->struct_size >= offsetof(struct shoal_host, map_file) + sizeof host->map_file;
}

int
model_file_open(const struct shoal_host *host, const struct shoal_model *spec,
                const char *const *endings, char path[MODEL_PATH_ROOM], struct model_file *file,
                struct shoal_error *error)
{
    struct found found = {.by_ending = 0};
    struct stat info;
    *file = (struct model_file){NULL, 0, 0};
    snprintf(path, MODEL_PATH_ROOM, "%s", spec->path);
    if (stat(spec->path, &info) == 0 && S_ISDIR(info.st_mode)) {
        int status = folder_search(spec->path, endings, &found, error);
        if (status != SHOAL_OK)
            return status;
        snprintf(path, MODEL_PATH_ROOM, "%.3800s/%.255s", spec->path, found.name);
    }
    if (host_maps(host))
        return map_lent(host, spec, found.by_ending > 0 ? found.name : NULL, file, error);
    return map_here(path, file, error);
}

/* True if the name stays in the folder, links aside. */
static int
is_inside(const char *name)
{
    if (name[0] == '/' || name[0] == '\0')
        return 0;
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += part[0] == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return 0;
    }
    return 1;
}

int
model_file_open_beside(const struct shoal_host *host, const struct shoal_model *spec,
                       const char *name, struct model_file *file, struct shoal_error *error)
{
    char path[MODEL_PATH_ROOM];
    *file = (struct model_file){NULL, 0, 0};
    if (!is_inside(name))
        return model_refuse(error, spec->path, SHOAL_INVALID_ARGUMENT,
                            "it names a file that is not in its folder");
    if (host_maps(host))
        return map_lent(host, spec, name, file, error);
    int length = snprintf(path, sizeof path, "%s/%s", spec->path, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return model_refuse(error, spec->path, SHOAL_INVALID_ARGUMENT, "a name is too long");
    return map_here(path, file, error);
}

void
model_file_close(struct model_file *file)
{
    if (file->bytes != NULL && !file->lent)
        munmap((void *)(uintptr_t)file->bytes, file->size);
    *file = (struct model_file){NULL, 0, 0};
}
