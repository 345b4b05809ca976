/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Archives. A model that is one file named like an archive is what the archive has, as with
 * KServe's storage initializer.
 *
 * Rules.
 *  U1. Names are as those of any model's files (job_add_file); "./" at their beginning and "/" at
 *      their end are dropped. A name that comes twice is refused.
 *  U2. Nothing is written through a link: links are made after all files, and each in a folder that
 *      was made before the first of them.
 *  U3. Then the kernel says whether each link ends at something inside.
 *  U4. Folders are made for what is in them. Hard links and devices are refused.
 *  U5. A checksum that is wrong makes the archive a broken one. libarchive compares those of zip;
 *      gzip's are zlib's to compare, and come after the archive's end, so a tar is read to its own.
 *  U6. The unpacked size of an archive is limited by its own size, and counts in the cache's limit;
 *      folders count as FOLDER_BYTES each, for names of a few bytes make thousands.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <archive.h>
#include <archive_entry.h>
#include <zlib.h>

#include "base/check.h"
#include "serving/storage/cache_tree.h"
#include "serving/storage/job.h"

enum {
    BLOCK_BYTES = 256 * 1024,
    FACTOR_MAX = 200, /* of the archive's size */
    FOLDER_BYTES = 4096,
    /* libarchive reads a zip's directory into memory before the first entry. */
    DIRECTORY_BYTES_MAX = 16 << 20
};

#define BYTES_ANYWAY ((uint64_t)16 << 20) /* that the smallest archive may have */

struct unpack_link {
    char *name, *target;
};

struct unpack {
    struct storage_job *job;
    struct archive *archive;
    int fd;     /* -1: `tar` has it */
    gzFile tar; /* packed by gzip or not; NULL: a zip */
    uint64_t archive_bytes, bytes, bytes_max;
    uint64_t read_bytes;
    uint32_t entries;
    struct unpack_link *links;
    uint32_t link_count;
    char *in, *out; /* blocks */
};

/* ---- what libarchive reads ---- */

/* NULL: there is none, also at the end. */
static const char *
gzip_error(gzFile tar)
{
    int code = Z_OK;
    const char *text = gzerror(tar, &code); /* "<fd:3>: text" */
    const char *said = strstr(text, ": ");
    return code == Z_OK ? NULL : said != NULL ? said + 2 : text;
}

/* Returns -1 with libarchive's error set. */
static ssize_t
read_some(struct unpack *unpack)
{
    if (unpack->tar != NULL) {
        int bytes = gzread(unpack->tar, unpack->in, BLOCK_BYTES);
        const char *said = bytes <= 0 ? gzip_error(unpack->tar) : NULL;
        if (said == NULL)
            return bytes;
        archive_set_error(unpack->archive, EINVAL, "%s", said);
        return -1;
    }
    ssize_t bytes = read(unpack->fd, unpack->in, BLOCK_BYTES);
    if (bytes < 0)
        archive_set_error(unpack->archive, errno, "reading it: %s", strerrorname_np(errno));
    return bytes;
}

static la_ssize_t
on_read(struct archive *archive, void *context, const void **block)
{
    struct unpack *unpack = context;
    ssize_t bytes = read_some(unpack);
    *block = unpack->in;
    if (bytes < 0)
        return -1;
    unpack->read_bytes += (uint64_t)bytes;
    if (unpack->entries == 0 && unpack->read_bytes > DIRECTORY_BYTES_MAX) {
        archive_set_error(archive, EFBIG, "its directory has more than %d MiB",
                          DIRECTORY_BYTES_MAX >> 20);
        return -1;
    }
    return bytes;
}

static la_int64_t
on_seek(struct archive *archive, void *context, la_int64_t offset, int whence)
{
    (void)archive;
    return lseek(((struct unpack *)context)->fd, offset, whence);
}

static void
open_format(struct unpack *unpack, const char *name)
{
    struct archive *archive = unpack->archive = archive_read_new();
    const char *ending = strrchr(name, '.');
    CHECK(archive != NULL && ending != NULL &&
          archive_read_set_read_callback(archive, on_read) == ARCHIVE_OK &&
          archive_read_set_callback_data(archive, unpack) == ARCHIVE_OK);
    if (strcasecmp(ending, ".zip") == 0) {
        CHECK(archive_read_support_format_zip_seekable(archive) == ARCHIVE_OK &&
              archive_read_set_seek_callback(archive, on_seek) == ARCHIVE_OK);
        return;
    }
    CHECK(archive_read_support_format_tar(archive) == ARCHIVE_OK);
    unpack->tar = gzdopen(unpack->fd, "rb");
    CHECK(unpack->tar != NULL && gzbuffer(unpack->tar, BLOCK_BYTES) == 0);
    unpack->fd = -1;
}

static enum status
open_archive(struct unpack *unpack, const char *path, struct error *error)
{
    struct stat info;
    unpack->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (unpack->fd < 0 || fstat(unpack->fd, &info) != 0)
        return error_set_errno(error, "opening the archive");
    open_format(unpack, path);
    unpack->archive_bytes = (uint64_t)info.st_size;
    unpack->bytes_max = FACTOR_MAX * unpack->archive_bytes;
    if (unpack->bytes_max < BYTES_ANYWAY)
        unpack->bytes_max = BYTES_ANYWAY;
    return STATUS_OK;
}

/* libarchive's texts quote names. */
static enum status
broken(const char *said, struct error *error)
{
    char text[160];
    snprintf(text, sizeof(text), "%s", said != NULL ? said : "no reason is given");
    for (char *at = text; *at != '\0'; at++)
        *at = (unsigned char)*at < ' ' || (unsigned char)*at >= 0x7f ? '?' : *at;
    return error_set(error, STATUS_DATA_LOSS, "it cannot be unpacked: %s", text);
}

/* Call before `more` bytes are written. */
static enum status
grow(struct unpack *unpack, uint64_t more, struct error *error)
{
    struct storage_job *job = unpack->job;
    uint64_t read = (uint64_t)archive_filter_bytes(unpack->archive, 0);
    unpack->bytes += more;
    if (unpack->bytes > unpack->bytes_max || read > unpack->bytes_max + unpack->archive_bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "it unpacks to more than %d times its size: store its files instead",
                         FACTOR_MAX);
    if (cache_partial_reserve(job->options->cache, &job->partial,
                              unpack->archive_bytes + unpack->bytes, error) != STATUS_OK)
        return error->status;
    return job_check(job, error);
}

/* ---- entries ---- */

static enum status
refuse(const char *name, const char *why, struct error *error)
{
    return error_set(error, STATUS_INVALID_ARGUMENT, "its \"%.200s\" %s", name, why);
}

/* Returns the number of folders that are not there yet for a file of this path. */
static uint64_t
missing_folders(const struct unpack *unpack, const char *path)
{
    char folder[PATH_MAX];
    struct stat info;
    const char *root_end = folder + strlen(unpack->job->partial.files);
    uint64_t count = 0;
    snprintf(folder, sizeof(folder), "%s", path);
    for (char *slash = strrchr(folder, '/'); slash > root_end; slash = strrchr(folder, '/')) {
        *slash = '\0';
        if (lstat(folder, &info) == 0)
            break;
        count++;
    }
    return count;
}

static enum status
write_file(struct unpack *unpack, struct error *error)
{
    struct storage_job *job = unpack->job;
    struct storage_sink sink;
    struct stored_file *file = &job->files[job->file_count - 1];
    enum status status = sink_open(job, &sink, file->name, error);
    la_ssize_t bytes = 0;
    while (status == STATUS_OK &&
           (bytes = archive_read_data(unpack->archive, unpack->out, BLOCK_BYTES)) > 0) {
        status = grow(unpack, (uint64_t)bytes, error);
        if (status == STATUS_OK)
            status = sink_write(&sink, unpack->out, (size_t)bytes, error);
    }
    if (status == STATUS_OK && bytes < 0)
        status = broken(archive_error_string(unpack->archive), error);
    file->bytes = sink.at;
    sink_close(&sink, status == STATUS_OK ? file->digest : NULL);
    return status == STATUS_OK ? job_judge_file(job, file, error) : status;
}

/* U2: for later, but its folder is made now. */
static enum status
note_link(struct unpack *unpack, char *path, const char *target, struct error *error)
{
    struct storage_job *job = unpack->job;
    struct stored_file *file = &job->files[job->file_count - 1];
    char *slash = strrchr(path, '/');
    *slash = '\0';
    enum status status = tree_make(path, error);
    *slash = '/';
    if (status != STATUS_OK)
        return status;
    if (strlen(target) >= PATH_MAX / 4) /* all are in memory until the end */
        return refuse(file->name, "is a link to a longer name than any here", error);
    file->is_link = true;
    struct digest *digest = digest_begin();
    digest_add_text(digest, target);
    digest_end(digest, file->digest);
    unpack->links = realloc(unpack->links, (unpack->link_count + 1) * sizeof(struct unpack_link));
    CHECK(unpack->links != NULL);
    struct unpack_link *link = &unpack->links[unpack->link_count++];
    *link = (struct unpack_link){strdup(path), strdup(target)};
    CHECK(link->name != NULL && link->target != NULL);
    return STATUS_OK;
}

/* The name as other schemes have it; NULL: it has none that can be read. */
static char *
clean_name(struct archive_entry *entry)
{
    const char *given = archive_entry_pathname(entry);
    if (given == NULL)
        given = archive_entry_pathname_utf8(entry);
    if (given == NULL)
        return NULL;
    while (strncmp(given, "./", 2) == 0)
        given += 2;
    char *name = strdup(given);
    CHECK(name != NULL);
    size_t bytes = strlen(name);
    while (bytes > 1 && name[bytes - 1] == '/')
        name[--bytes] = '\0';
    return name;
}

static enum status
take_named(struct unpack *unpack, struct archive_entry *entry, const char *name,
           struct error *error)
{
    struct storage_job *job = unpack->job;
    char path[PATH_MAX];
    struct stat info;
    bool is_folder = archive_entry_filetype(entry) == AE_IFDIR;
    if (is_folder && (name[0] == '\0' || strcmp(name, ".") == 0))
        return STATUS_OK;
    enum status status =
        is_folder ? job_check_name(name, error) : job_add_file(job, name, NULL, 0, error);
    if (status != STATUS_OK || is_folder)
        return status;
    snprintf(path, sizeof(path), "%.3000s/%.1023s", job->partial.files, name);
    status = grow(unpack, missing_folders(unpack, path) * FOLDER_BYTES, error);
    if (status != STATUS_OK)
        return status;
    if (archive_entry_hardlink(entry) != NULL || archive_entry_hardlink_utf8(entry) != NULL)
        return refuse(name, "is a hard link: make the archive with --hard-dereference", error);
    if (lstat(path, &info) == 0)
        return refuse(name, "comes twice, or as a file and as a folder", error);
    if (archive_entry_filetype(entry) == AE_IFREG)
        return write_file(unpack, error);
    const char *target = archive_entry_symlink(entry);
    if (target == NULL)
        target = archive_entry_symlink_utf8(entry);
    if (archive_entry_filetype(entry) != AE_IFLNK || target == NULL)
        return refuse(name, "is no file, no folder and no link", error);
    return note_link(unpack, path, target, error);
}

static enum status
take_entry(struct unpack *unpack, struct archive_entry *entry, struct error *error)
{
    if (++unpack->entries > STORAGE_FILES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "it has more than %d files",
                         STORAGE_FILES_MAX);
    char *name = clean_name(entry);
    if (name == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the name of its entry %u is not UTF-8",
                         unpack->entries);
    enum status status = grow(unpack, 0, error);
    if (status == STATUS_OK)
        status = take_named(unpack, entry, name, error);
    free(name);
    return status;
}

/* ---- links ---- */

static enum status
make_links(struct unpack *unpack, struct error *error)
{
    const char *files = unpack->job->partial.files;
    size_t skip = strlen(files) + 1;
    for (uint32_t i = 0; i < unpack->link_count; i++)
        if (symlink(unpack->links[i].target, unpack->links[i].name) != 0)
            return errno == EEXIST ? refuse(unpack->links[i].name + skip, "comes twice", error)
                                   : error_set_errno(error, "making the link \"%.200s\"",
                                                     unpack->links[i].name + skip);
    int root = open(files, O_PATH | O_DIRECTORY | O_CLOEXEC);
    enum status status = root < 0 ? error_set_errno(error, "opening its folder") : STATUS_OK;
    for (uint32_t i = 0; i < unpack->link_count && status == STATUS_OK; i++) {
        struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                               .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
        const char *name = unpack->links[i].name + skip;
        int fd = (int)syscall(SYS_openat2, root, name, &how, sizeof(how));
        if (fd < 0)
            status = refuse(name, "is a link that ends at nothing in the archive", error);
        else
            close(fd);
    }
    if (root >= 0)
        close(root);
    return status;
}

/* U5. Bytes behind the archive are dropped. */
static enum status
read_to_end(struct unpack *unpack, struct error *error)
{
    uint64_t bytes = 0;
    int more;
    while ((more = gzread(unpack->tar, unpack->out, BLOCK_BYTES)) > 0) {
        bytes += (uint64_t)more;
        if (bytes > BYTES_ANYWAY)
            return error_set(error, STATUS_INVALID_ARGUMENT, "over %d MiB follow its end",
                             (int)(BYTES_ANYWAY >> 20));
        if (job_check(unpack->job, error) != STATUS_OK)
            return error->status;
    }
    const char *said = gzip_error(unpack->tar);
    return said != NULL ? broken(said, error) : STATUS_OK;
}

static enum status
take_all(struct unpack *unpack, struct error *error)
{
    enum status status = STATUS_OK;
    int got = archive_read_open1(unpack->archive);
    while (got >= ARCHIVE_WARN && status == STATUS_OK) {
        struct archive_entry *entry;
        got = archive_read_next_header(unpack->archive, &entry);
        if (got == ARCHIVE_EOF)
            break;
        if (got >= ARCHIVE_WARN) /* a warning is of a name in another encoding */
            status = take_entry(unpack, entry, error);
    }
    if (status == STATUS_OK && got < ARCHIVE_WARN)
        status = broken(archive_error_string(unpack->archive), error);
    if (status == STATUS_OK && unpack->tar != NULL)
        status = read_to_end(unpack, error);
    if (status == STATUS_OK && unpack->job->file_count == 0)
        status = error_set(error, STATUS_NOT_FOUND, "there is no file in it");
    return status == STATUS_OK ? make_links(unpack, error) : status;
}

static int
by_name(const void *one, const void *other)
{
    return strcmp(((const struct stored_file *)one)->name,
                  ((const struct stored_file *)other)->name);
}

enum status
unpack_archive(struct storage_job *job, struct error *error)
{
    char path[PATH_MAX];
    struct unpack unpack = {.job = job, .fd = -1};
    unpack.in = malloc(BLOCK_BYTES);
    unpack.out = malloc(BLOCK_BYTES);
    CHECK(unpack.in != NULL && unpack.out != NULL);
    snprintf(path, sizeof(path), "%.3000s/%.1023s", job->partial.files, job->files[0].name);
    char *name = strdup(job->files[0].name);
    CHECK(name != NULL);
    job_drop_files(job);
    job->archive = name;
    job->is_single = false;
    locale_t names = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = uselocale(names);
    enum status status = cache_partial_unpack(&job->partial, error);
    if (status == STATUS_OK)
        status = open_archive(&unpack, path, error);
    if (status == STATUS_OK)
        status = take_all(&unpack, error);
    if (status == STATUS_OK)
        status = job_check_digests(job, error);
    if (status != STATUS_OK)
        tree_remove(job->partial.files);
    if (job->file_count > 1)
        qsort(job->files, job->file_count, sizeof(struct stored_file), by_name);
    if (unpack.archive != NULL)
        (void)archive_read_free(unpack.archive);
    (void)uselocale(before);
    if (names != (locale_t)0)
        freelocale(names);
    if (unpack.tar != NULL)
        (void)gzclose_r(unpack.tar);
    if (unpack.fd >= 0)
        close(unpack.fd);
    for (uint32_t i = 0; i < unpack.link_count; i++) {
        free(unpack.links[i].name);
        free(unpack.links[i].target);
    }
    free(unpack.links);
    free(unpack.in);
    free(unpack.out);
    return status;
}
