/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/model_files.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

enum { DIGEST_BYTES = 32, DIGEST_ROOM = 2 * DIGEST_BYTES + 1 };

/* The model that this thread loads; NULL: none. */
static _Thread_local struct model_files *loading;

static const EVP_MD *sha256;

void
model_files_prepare(void)
{
    /* its configuration is where a sandboxed worker may not read */
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
    unsigned char digest[EVP_MAX_MD_SIZE];
    sha256 = EVP_sha256();
    (void)EVP_Digest("", 0, digest, NULL, sha256, NULL);
}

void
model_files_begin(struct model_files *files, const struct shoal_model *spec, const char *root)
{
    files->spec = spec;
    files->root = root;
    loading = files;
}

void
model_files_end(struct model_files *files)
{
    files->spec = NULL;
    files->root = NULL;
    loading = NULL;
}

void
model_files_unmap(struct model_files *files)
{
    for (uint32_t i = 0; i < files->count; i++)
        munmap(files->files[i].data, files->files[i].bytes);
    *files = (struct model_files){0};
}

/* ---- opening ---- */

/* Returns the end of a long path, to leave room for the fault in messages. */
static const char *
shown(const char *path)
{
    enum { SHOWN_MAX = 120 };
    size_t length = strlen(path);
    return length > SHOWN_MAX ? path + length - SHOWN_MAX : path;
}

/* Returns true for a name beneath the model's folder; names that lead out of it are refused. */
static bool
name_is_beneath(const char *name)
{
    if (name[0] == '\0' || name[0] == '/')
        return false;
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0'))
            return false;
    }
    return true;
}

static enum status
path_make(const struct shoal_model *spec, const char *name, char path[PATH_MAX],
          struct error *error)
{
    if (name != NULL && !name_is_beneath(name))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "map_file: \"%.100s\" does not name a file beneath the model's folder",
                         name);
    int bytes = snprintf(path, PATH_MAX, "%s%s%s", spec->path, name != NULL ? "/" : "",
                         name != NULL ? name : "");
    if (bytes >= PATH_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "map_file: the path is too long");
    return STATUS_OK;
}

/* Finds the kernel's name for the open file. */
static enum status
beneath_check(int fd, const char *root, const char *path, struct error *error)
{
    char link[64];
    char real[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, real, sizeof(real) - 1);
    if (bytes < 0)
        return error_set_errno(error, "%s: finding where it leads", shown(path));
    real[bytes] = '\0';
    size_t length = strlen(root);
    while (length > 0 && root[length - 1] == '/')
        length--;
    if (strncmp(real, root, length) == 0 && (real[length] == '/' || real[length] == '\0'))
        return STATUS_OK;
    return error_set(error, STATUS_PERMISSION_DENIED, "%s leads to %s, which is not beneath %s",
                     shown(path), shown(real), shown(root));
}

/* Checks that the file is beneath the root or, without one, beneath the model's own folder. */
static enum status
place_check(const struct model_files *files, const char *name, int fd, const char *path,
            struct error *error)
{
    if (files->root != NULL)
        return beneath_check(fd, files->root, path, error);
    if (name == NULL)
        return STATUS_OK; /* the operator configured this path */
    char *folder = realpath(files->spec->path, NULL);
    if (folder == NULL)
        return error_set_errno(error, "%s", shown(files->spec->path));
    enum status status = beneath_check(fd, folder, path, error);
    free(folder);
    return status;
}

/* Only a regular file that is not empty can be mapped. */
static enum status
kind_check(int fd, const char *path, size_t *bytes, struct error *error)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return error_set_errno(error, "%s", shown(path));
    if (S_ISDIR(info.st_mode))
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is a folder, not a file", shown(path));
    if (!S_ISREG(info.st_mode))
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is not a regular file", shown(path));
    if (info.st_size == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is empty", shown(path));
    *bytes = (size_t)info.st_size;
    return STATUS_OK;
}

/* ---- digests ---- */

static enum status
digest_make(const void *data, size_t bytes, char text[DIGEST_ROOM], struct error *error)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    if (EVP_Digest(data, bytes, digest, NULL, sha256, NULL) != 1)
        return error_set(error, STATUS_INTERNAL, "SHA-256 is not available");
    for (size_t i = 0; i < DIGEST_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return STATUS_OK;
}

static enum status
digest_check(const struct shoal_model *spec, const char *name, const struct worker_model_file *file,
             struct error *error)
{
    char stated[DIGEST_ROOM] = "";
    char found[DIGEST_ROOM] = "";
    const char *slash = strrchr(spec->path, '/');
    if (name == NULL)
        name = slash != NULL ? slash + 1 : spec->path;
    enum status status = model_key_digest(spec->key, name, stated, error);
    if (status != STATUS_OK || stated[0] == '\0')
        return status;
    status = digest_make(file->data, file->bytes, found, error);
    if (status != STATUS_OK || strcmp(stated, found) == 0)
        return status;
    return error_set(error, STATUS_DATA_LOSS, "%.80s: its sha256 is %s, the model's key states %s",
                     name, found, stated);
}

/* ---- mapping ---- */

static enum status
file_map(struct model_files *files, const char *name, const char *path, int fd,
         struct worker_model_file *file, struct error *error)
{
    enum status status = place_check(files, name, fd, path, error);
    if (status == STATUS_OK)
        status = kind_check(fd, path, &file->bytes, error);
    if (status != STATUS_OK)
        return status;
    file->data = mmap(NULL, file->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (file->data == MAP_FAILED)
        return error_set_errno(error, "%s: mapping %zu bytes", shown(path), file->bytes);
    status = digest_check(files->spec, name, file, error);
    if (status != STATUS_OK)
        munmap(file->data, file->bytes);
    return status;
}

static enum status
files_add(struct model_files *files, const char *name, struct worker_model_file *file,
          struct error *error)
{
    char path[PATH_MAX];
    if (files->count == MODEL_FILES_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "map_file: more than %d files",
                         MODEL_FILES_MAX);
    enum status status = path_make(files->spec, name, path, error);
    if (status != STATUS_OK)
        return status;
    /* O_NONBLOCK: opening a FIFO without a writer would block */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return error_set_errno(error, "%s", shown(path));
    status = file_map(files, name, path, fd, file, error);
    close(fd);
    if (status != STATUS_OK)
        return status;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    files->files[files->count++] = *file;
    files->bytes += (file->bytes + page - 1) / page * page;
    return STATUS_OK;
}

int32_t
host_map_file(const struct shoal_model *spec, const char *name, const void **data, size_t *bytes,
              struct shoal_error *error)
{
    struct error ours = ERROR_NONE;
    struct worker_model_file file = {0};
    if (loading == NULL || loading->spec != spec)
        error_set(&ours, STATUS_FAILED_PRECONDITION,
                  "map_file: only for the model that is loaded, during its load, on its thread");
    else
        (void)files_add(loading, name, &file, &ours);
    if (ours.status != STATUS_OK) {
        if (error != NULL)
            snprintf(error->text, sizeof(error->text), "%.*s", (int)sizeof(error->text) - 1,
                     ours.text);
        return (int32_t)ours.status;
    }
    *data = file.data;
    *bytes = file.bytes;
    return SHOAL_OK;
}
