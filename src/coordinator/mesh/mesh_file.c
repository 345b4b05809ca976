/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "coordinator/config/config.h"

static bool
is_text(const struct mesh_file *file)
{
    return file->given == NULL || config_is_json(file->given);
}

/* The file that has the name now. */
static struct mesh_file
look(const char *given)
{
    struct mesh_file now = {.given = given};
    struct stat found;
    if (stat(given, &found) != 0)
        return now;
    now.device = found.st_dev;
    now.inode = found.st_ino;
    now.bytes = found.st_size;
    now.modified = found.st_mtim;
    now.changed = found.st_ctim;
    return now;
}

static bool
same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool
mesh_file_changed(const struct mesh_file *file)
{
    if (is_text(file))
        return false;
    struct mesh_file now = look(file->given);
    return now.device != file->device || now.inode != file->inode || now.bytes != file->bytes ||
           !same_time(&now.modified, &file->modified) || !same_time(&now.changed, &file->changed);
}

static enum status
read_path(const char *path, char **text, size_t *bytes, struct error *error)
{
    FILE *stream = fopen(path, "re");
    if (stream == NULL)
        return error_set_errno(error, "it cannot be opened");
    *text = malloc(MESH_FILE_BYTES_MAX + 2);
    CHECK(*text != NULL);
    *bytes = fread(*text, 1, MESH_FILE_BYTES_MAX + 1, stream);
    (*text)[*bytes] = '\0';
    bool failed = ferror(stream) != 0;
    fclose(stream);
    if (failed)
        return error_set(error, STATUS_UNAVAILABLE, "it cannot be read");
    if (*bytes > MESH_FILE_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "it has more than %d bytes",
                         MESH_FILE_BYTES_MAX);
    return STATUS_OK;
}

enum status
mesh_file_read(struct mesh_file *file, char **text, size_t *bytes, struct error *error)
{
    *text = NULL;
    *bytes = 0;
    if (is_text(file)) {
        *text = strdup(file->given);
        CHECK(*text != NULL);
        *bytes = strlen(*text);
        return STATUS_OK;
    }
    *file = look(file->given); /* before it is read: a change meanwhile is seen again */
    enum status status = read_path(file->given, text, bytes, error);
    if (status == STATUS_OK)
        return STATUS_OK;
    free(*text);
    *text = NULL;
    return status;
}

enum status
mesh_file_blame(const struct mesh_file *file, const char *key, struct error *error)
{
    if (is_text(file))
        return error_prefix(error, "mesh: %s", key);
    return error_prefix(error, "mesh: %s: %s", key, file->given);
}
