/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an archive. It is refused with a text, and nothing of it stays, or all that it has
 * is beneath the model's folder, as many files and links as are told; and never is anything beside
 * that folder.
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "serving/storage/cache_tree.h"
#include "serving/storage/job.h"

enum { CACHE_BYTES = 64 << 20, DESCRIPTORS = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char root[] = "/dev/shm/shoal-fuzz.XXXXXX";
static struct cache *cache;
static struct cache_partial partial;
static uint32_t seen;

static void
clean(void)
{
    cache_partial_close(cache, &partial, CACHE_DROP);
    cache_destroy(cache);
    tree_remove(root);
}

static void
prepare(void)
{
    struct error error = ERROR_NONE;
    char folder[64];
    if (cache != NULL)
        return;
    CHECK(mkdtemp(root) != NULL);
    snprintf(folder, sizeof(folder), "%s/cache", root);
    CHECK(cache_create(folder, CACHE_BYTES, &cache, &error) == STATUS_OK);
    CHECK(cache_partial_open(cache, "0", "", &partial, &error) == STATUS_OK);
    CHECK(atexit(clean) == 0);
}

static bool
is_cancelled(void *context)
{
    (void)context;
    return false;
}

static int
count_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)path, (void)info, (void)where;
    seen += type != FTW_D;
    return 0;
}

static uint32_t
count(const char *path)
{
    seen = 0;
    (void)nftw(path, count_one, DESCRIPTORS, FTW_PHYS);
    return seen;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error = ERROR_NONE;
    char path[PATH_MAX];
    prepare();
    const struct job_options options = {.cache = cache};
    const struct storage_request request = {.deadline_ns = TIME_NEVER_NS};
    struct storage_job job = {
        .options = &options, .request = &request, .is_cancelled = is_cancelled, .partial = partial};
    snprintf(path, sizeof(path), "%.3000s/m.zip", job.partial.files);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
    CHECK(job_add_file(&job, "m.zip", NULL, size, &error) == STATUS_OK && job_is_archive(&job));
    enum status status = unpack_archive(&job, &error);
    uint32_t inside = count(job.partial.files);
    CHECK(status == STATUS_OK ? inside == job.file_count && inside > 0
                              : inside == 0 && error.text[0] != '\0');
    CHECK(count(root) == inside + 1);
    partial.reserved_bytes = job.partial.reserved_bytes;
    tree_remove(job.partial.files);
    job_drop_files(&job);
    return 0;
}
