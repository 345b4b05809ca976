/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/endpoints/pem_files.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

enum { FILE_BYTES_MAX = 1 << 20 };
enum pem_part { PEM_CERTIFICATE, PEM_KEY, PEM_CA, PEM_COUNT };

struct pem_files {
    const char *paths[PEM_COUNT];
    struct stat seen[PEM_COUNT];
    char *texts[PEM_COUNT]; /* NULL: none */
    uint64_t version;
    int64_t looked_ns;
};

static void
texts_free(char *texts[PEM_COUNT])
{
    for (int i = 0; i < PEM_COUNT; i++)
        memory_free_secret(texts[i]);
}

static enum status
text_read(const char *path, struct stat *seen, char **text, struct error *error)
{
    FILE *file = fopen(path, "re");
    char *room = calloc(1, FILE_BYTES_MAX + 1);
    CHECK(room != NULL);
    *text = room;
    if (file == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: %s", path, strerror(errno));
    bool is_stat = fstat(fileno(file), seen) == 0 && S_ISREG(seen->st_mode);
    size_t used = is_stat ? fread(room, 1, FILE_BYTES_MAX, file) : 0;
    bool is_whole = is_stat && used < FILE_BYTES_MAX && ferror(file) == 0;
    fclose(file);
    return is_whole ? STATUS_OK
                    : error_set(error, STATUS_INVALID_ARGUMENT,
                                "%s: expected a file of less than %d bytes", path, FILE_BYTES_MAX);
}

static enum status
files_read(struct pem_files *files, struct error *error)
{
    char *texts[PEM_COUNT] = {NULL};
    enum status status = STATUS_OK;
    for (int i = 0; i < PEM_COUNT && status == STATUS_OK; i++)
        if (files->paths[i][0] != '\0')
            status = text_read(files->paths[i], &files->seen[i], &texts[i], error);
    if (status != STATUS_OK) {
        texts_free(texts);
        return status;
    }
    texts_free(files->texts);
    memcpy(files->texts, texts, sizeof(texts));
    files->version++;
    return STATUS_OK;
}

/* A file that is missing while it is replaced is no change. */
static bool
has_changed(const struct pem_files *files)
{
    bool changed = false;
    for (int i = 0; i < PEM_COUNT; i++) {
        const struct stat *seen = &files->seen[i];
        struct stat now;
        if (files->paths[i][0] == '\0')
            continue;
        if (stat(files->paths[i], &now) != 0)
            return false;
        changed = changed || now.st_ino != seen->st_ino || now.st_dev != seen->st_dev ||
                  now.st_size != seen->st_size || now.st_mtim.tv_sec != seen->st_mtim.tv_sec ||
                  now.st_mtim.tv_nsec != seen->st_mtim.tv_nsec;
    }
    return changed;
}

enum status
pem_files_create(const char *certificate, const char *key, const char *ca,
                 struct pem_files **created, struct error *error)
{
    struct pem_files *files = calloc(1, sizeof(*files));
    CHECK(files != NULL);
    files->paths[PEM_CERTIFICATE] = certificate;
    files->paths[PEM_KEY] = key;
    files->paths[PEM_CA] = ca;
    files->looked_ns = clock_now_ns();
    enum status status = files_read(files, error);
    if (status == STATUS_OK)
        *created = files;
    else
        pem_files_destroy(files);
    return status;
}

void
pem_files_destroy(struct pem_files *files)
{
    if (files == NULL)
        return;
    texts_free(files->texts);
    free(files);
}

uint64_t
pem_files_fetch(void *context, uint64_t have,
                void (*take)(void *taker, const struct http_pems *pems), void *taker)
{
    struct pem_files *files = context;
    struct error error = ERROR_NONE;
    int64_t now_ns = clock_now_ns();
    if (now_ns - files->looked_ns >= NS_PER_S) {
        files->looked_ns = now_ns;
        if (has_changed(files) && files_read(files, &error) != STATUS_OK)
            log_warn_limited("tls_kept error=\"%s\" action=\"the former certificates stay in use\"",
                             error.text);
    }
    if (files->version != have)
        take(taker, &(struct http_pems){.certificate = files->texts[PEM_CERTIFICATE],
                                        .key = files->texts[PEM_KEY],
                                        .ca = files->texts[PEM_CA]});
    return files->version;
}
