/* SPDX-License-Identifier: Apache-2.0 */
/* Folders and links, as all layouts need them. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serving/adapter/inside.h"

enum { ENTRIES_MAX = 65536 };

enum status
layout_join(char path[PATH_MAX], const char *folder, const char *name, struct error *error)
{
    int bytes = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    if (bytes < PATH_MAX)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%.100s…: the path is too long", folder);
}

bool
layout_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool
layout_exists(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct error error;
    return layout_join(path, folder, name, &error) == STATUS_OK && access(path, F_OK) == 0;
}

/* ---- listing ---- */

static int
by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum status
layout_list(const char *folder, struct model_names *names, struct error *error)
{
    DIR *opened = opendir(folder);
    const struct dirent *entry;
    if (opened == NULL)
        return error_set_errno(error, "%.300s", folder);
    while ((entry = readdir(opened)) != NULL && names->count < ENTRIES_MAX)
        if (entry->d_name[0] != '.')
            model_names_add(names, entry->d_name);
    bool is_more = entry != NULL;
    closedir(opened);
    if (is_more)
        return error_set(error, STATUS_FAILED_PRECONDITION, "%.300s: more than %d entries", folder,
                         ENTRIES_MAX);
    if (names->count > 0)
        qsort(names->at, names->count, sizeof(*names->at), by_name);
    return STATUS_OK;
}

enum status
layout_version(const char *folder, const struct model_names *names, char version[NAME_MAX + 1],
               struct error *error)
{
    char path[PATH_MAX];
    unsigned long long largest = 0;
    version[0] = '\0';
    for (uint32_t i = 0; i < names->count; i++) {
        if (layout_join(path, folder, names->at[i], error) != STATUS_OK)
            return error->status;
        if (!layout_is_folder(path))
            continue;
        char *end;
        unsigned long long number = strtoull(names->at[i], &end, 10);
        bool is_number = names->at[i][0] >= '0' && names->at[i][0] <= '9' && *end == '\0';
        if (!is_number) {
            version[0] = '\0';
            return STATUS_OK;
        }
        if (number > largest) {
            largest = number;
            snprintf(version, NAME_MAX + 1, "%s", names->at[i]);
        }
    }
    return STATUS_OK;
}

/* ---- linking ---- */

enum status
layout_link(const struct layout *layout, const char *source, const char *name, struct error *error)
{
    char path[PATH_MAX];
    if (layout_join(path, layout->folder, name, error) != STATUS_OK)
        return error->status;
    char *slash = path + strlen(layout->folder) + 1;
    slash = strchr(slash, '/');
    if (slash != NULL) {
        *slash = '\0';
        if (mkdir(path, LAYOUT_FOLDER_MODE) != 0 && errno != EEXIST)
            return error_set_errno(error, "making %.300s", path);
        *slash = '/';
    }
    if (symlink(source, path) != 0)
        return error_set_errno(error, "linking %.300s", path);
    return STATUS_OK;
}

enum status
layout_link_all(const struct layout *layout, const char *except, struct error *error)
{
    struct model_names names = {.count = 0};
    char path[PATH_MAX];
    enum status status = layout_list(layout->source, &names, error);
    for (uint32_t i = 0; i < names.count && status == STATUS_OK; i++) {
        if (strcmp(names.at[i], except) == 0)
            continue;
        status = layout_join(path, layout->source, names.at[i], error);
        if (status == STATUS_OK)
            status = layout_link(layout, path, names.at[i], error);
    }
    model_names_fini(&names);
    return status;
}
