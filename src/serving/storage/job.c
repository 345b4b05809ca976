/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/storage/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

enum { NAME_PART_MAX = 255, PACE_LOOK_MS = 50, LOG_S = 10 };

enum status
job_check(const struct storage_job *job, struct error *error)
{
    if (job->is_cancelled(job->context))
        return error_set(error, STATUS_CANCELLED, "cancelled");
    if (clock_now_ns() >= job->request->deadline_ns)
        return error_set(error, STATUS_DEADLINE_EXCEEDED,
                         "it took longer than load_timeout_ms: the next attempt goes on where this "
                         "one ended");
    return STATUS_OK;
}

/* ---- files ---- */

static bool
name_is_safe(const char *name)
{
    if (name[0] == '/' || strlen(name) >= PATH_MAX / 4)
        return false;
    for (const char *part = name;;) {
        size_t bytes = strcspn(part, "/");
        bool is_dots =
            (bytes == 1 && part[0] == '.') || (bytes == 2 && strncmp(part, "..", 2) == 0);
        if (bytes == 0 || bytes > NAME_PART_MAX || is_dots)
            return false;
        if (part[bytes] == '\0')
            break;
        part += bytes + 1;
    }
    for (; *name != '\0'; name++)
        if ((unsigned char)*name < ' ' || *name == 0x7f)
            return false;
    return true;
}

enum status
job_check_name(const char *name, struct error *error)
{
    if (name_is_safe(name))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "\"%.200s\" cannot be the name of a file in a model's folder", name);
}

enum status
job_add_file(struct storage_job *job, const char *name, const char *etag, uint64_t bytes,
             struct error *error)
{
    if (job_check_name(name, error) != STATUS_OK)
        return error->status;
    if (job->file_count == STORAGE_FILES_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "it has more than %d files",
                         STORAGE_FILES_MAX);
    if ((job->file_count & (job->file_count - 1)) == 0) { /* full at each power of two */
        size_t room = job->file_count == 0 ? 1 : 2 * (size_t)job->file_count;
        job->files = realloc(job->files, room * sizeof(struct stored_file));
        CHECK(job->files != NULL);
    }
    struct stored_file *file = &job->files[job->file_count++];
    *file = (struct stored_file){.name = strdup(name), .bytes = bytes};
    file->etag = etag != NULL ? strdup(etag) : NULL;
    CHECK(file->name != NULL && (etag == NULL || file->etag != NULL));
    return STATUS_OK;
}

void
job_drop_files(struct storage_job *job)
{
    for (uint32_t i = 0; i < job->file_count; i++) {
        free(job->files[i].name);
        free(job->files[i].etag);
    }
    free(job->files);
    free(job->archive);
    job->archive = NULL;
    job->files = NULL;
    job->file_count = 0;
}

void
job_progress(struct storage_job *job, int64_t more)
{
    struct storage_progress *progress = &job->progress;
    if (job->archive != NULL)
        return; /* that was fetched */
    progress->bytes += (uint64_t)more;
    job->show(job->context, progress);
    int64_t now_ns = clock_now_ns();
    if (now_ns - job->logged_ns < LOG_S * (int64_t)NS_PER_S)
        return;
    job->logged_ns = now_ns;
    log_info("storage_progress source=\"%s\" bytes=%llu of=%llu", job->place.shown,
             (unsigned long long)progress->bytes, (unsigned long long)progress->total);
}

uint64_t
job_bytes(const struct storage_job *job)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < job->file_count; i++)
        bytes += job->files[i].bytes;
    return bytes;
}

static bool
has_file(const void *context, const char *name)
{
    const struct storage_job *job = context;
    for (uint32_t i = 0; i < job->file_count; i++)
        if (strcmp(job->files[i].name, name) == 0)
            return true;
    return job->archive != NULL && strcmp(job->archive, name) == 0;
}

static enum place_files
files_of(const struct storage_job *job)
{
    return job->file_count == 1 && job->archive == NULL ? PLACE_ONE_FILE : PLACE_FOLDER;
}

size_t
storage_archive_stem(const char *name)
{
    static const char *const endings[] = {".tar", ".tar.gz", ".tgz", ".zip"};
    size_t bytes = strlen(name);
    for (size_t i = 0; i < ARRAY_COUNT(endings); i++) {
        size_t end = strlen(endings[i]);
        if (bytes > end && strcasecmp(name + bytes - end, endings[i]) == 0)
            return bytes - end;
    }
    return 0;
}

bool
job_is_archive(const struct storage_job *job)
{
    return job->file_count == 1 && job->archive == NULL &&
           storage_archive_stem(job->files[0].name) > 0;
}

enum status
job_check_digests(const struct storage_job *job, struct error *error)
{
    if (job_is_archive(job))
        return place_check_digests(&job->place, NULL, NULL, PLACE_FOLDER, error);
    return place_check_digests(&job->place, has_file, job, files_of(job), error);
}

enum status
job_judge_file(struct storage_job *job, struct stored_file *file, struct error *error)
{
    const char *stated = place_digest(&job->place, file->name, files_of(job));
    if (stated == NULL || strcasecmp(stated, file->digest) == 0)
        return STATUS_OK;
    enum status status =
        error_set(error, STATUS_DATA_LOSS, "%.80s: its sha256 is %s, the model's key states %.64s",
                  file->name, file->digest, stated);
    file->digest[0] = '\0';
    return status;
}

enum status
job_compare_beside(const struct stored_file *file, const char *stated, struct error *error)
{
    if (strlen(stated) != DIGEST_BYTES - 1 ||
        strspn(stated, "0123456789abcdefABCDEF") != DIGEST_BYTES - 1)
        return error_set(error, STATUS_DATA_LOSS,
                         "%.200s" DIGEST_ENDING ": does not begin with %d hexadecimal digits",
                         file->name, DIGEST_BYTES - 1);
    return strcasecmp(stated, file->digest) == 0
               ? STATUS_OK
               : error_set(error, STATUS_DATA_LOSS,
                           "%.100s: its sha256 is %s, %.100s" DIGEST_ENDING " says %s", file->name,
                           file->digest, file->name, stated);
}

/* The beginning of a file as sha256sum writes it; "": there is nothing. */
static void
read_beside(const struct storage_job *job, const char *name, char digest[DIGEST_BYTES])
{
    char path[PATH_MAX];
    digest[0] = '\0';
    snprintf(path, sizeof(path), "%.3000s/%.1090s", job->partial.files, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    size_t bytes = fread(digest, 1, DIGEST_BYTES - 1, file);
    fclose(file);
    digest[bytes] = '\0';
}

static int
by_name(const void *a, const void *b)
{
    return strcmp((*(const struct stored_file *const *)a)->name,
                  (*(const struct stored_file *const *)b)->name);
}

/* `beside` is NAME.sha256; without a file NAME it is one like others. */
static enum status
judge_beside(const struct storage_job *job, const struct stored_file **sorted,
             const struct stored_file *beside, struct error *error)
{
    char name[PATH_MAX];
    char digest[DIGEST_BYTES];
    size_t bytes = strlen(beside->name);
    size_t end = strlen(DIGEST_ENDING);
    if (bytes <= end || strcmp(beside->name + bytes - end, DIGEST_ENDING) != 0)
        return STATUS_OK;
    snprintf(name, sizeof(name), "%.*s", (int)(bytes - end), beside->name);
    const struct stored_file *wanted = &(struct stored_file){.name = name};
    const struct stored_file **file =
        bsearch(&wanted, sorted, job->file_count, sizeof(const struct stored_file *), by_name);
    if (file == NULL || (*file)->is_link)
        return STATUS_OK;
    read_beside(job, beside->name, digest);
    return job_compare_beside(*file, digest, error);
}

enum status
job_judge_beside(struct storage_job *job, struct error *error)
{
    enum status status = STATUS_OK;
    if (job->file_count < 2)
        return STATUS_OK;
    const struct stored_file **sorted = calloc(job->file_count, sizeof(const struct stored_file *));
    CHECK(sorted != NULL);
    for (uint32_t i = 0; i < job->file_count; i++)
        sorted[i] = &job->files[i];
    qsort(sorted, job->file_count, sizeof(const struct stored_file *), by_name);
    for (uint32_t i = 0; i < job->file_count && status == STATUS_OK; i++)
        status = judge_beside(job, sorted, &job->files[i], error);
    free(sorted);
    return status;
}

enum status
job_pace(const struct storage_job *job, uint64_t bytes, struct error *error)
{
    int64_t until_ns = pace_take(job->options->pace, bytes);
    for (;;) {
        int64_t left_ns = until_ns - clock_now_ns();
        if (left_ns <= 0)
            return STATUS_OK;
        if (job_check(job, error) != STATUS_OK)
            return error->status;
        if (left_ns > PACE_LOOK_MS * (int64_t)NS_PER_MS)
            left_ns = PACE_LOOK_MS * (int64_t)NS_PER_MS;
        (void)nanosleep(&(struct timespec){.tv_nsec = left_ns}, NULL);
    }
}
