/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/storage/job.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/clock.h"

enum { NAME_PART_MAX = 255 };

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
job_add_file(struct storage_job *job, const char *name, const char *etag, uint64_t bytes,
             struct error *error)
{
    if (!name_is_safe(name))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"%.200s\" cannot be the name of a file in a model's folder", name);
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
    job->files = NULL;
    job->file_count = 0;
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
    return false;
}

static enum place_files
files_of(const struct storage_job *job)
{
    return job->file_count == 1 ? PLACE_ONE_FILE : PLACE_FOLDER;
}

enum status
job_check_digests(const struct storage_job *job, struct error *error)
{
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
