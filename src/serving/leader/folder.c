/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/leader/folder.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/check.h"
#include "base/log.h"
#include "serving/manifest/manifest.h"

enum { LOOK_S = 1, MISTAKES_LOGGED_MAX = 10, NAME_BYTES_MAX = 255 };

/* Identifies one content of a file. All zero: the file is not there. */
struct file_version {
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec modified, changed;
};

struct watched_file {
    char name[NAME_BYTES_MAX + 1];
    struct file_version seen; /* at the last look */
    struct file_version read; /* at the last reading, successful or not */
    bool is_listed;           /* in the present look */
    bool is_unread;           /* it has a mistake, and was never read without one */
    struct folder_object *objects;
    uint32_t count;
};

struct folder {
    struct loop *loop;
    char *path, *node;
    void (*on_view)(void *context, const struct folder_view *view);
    void *context;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stop;
    bool is_stopping;         /* [lock] */
    struct folder_view *view; /* for the loop; NULL: none is new [lock] */
    /* The thread owns these. */
    struct watched_file **files; /* in the order of names */
    uint32_t count;
    bool is_known; /* a view was given */
    bool is_whole; /* as in that */
    bool is_lost;  /* the folder could not be read */
};

/* ---- views ---- */

static void
view_free(struct folder_view *view)
{
    for (uint32_t i = 0; view != NULL && i < view->count; i++) {
        free(view->objects[i].id);
        free(view->objects[i].json);
        free((void *)(uintptr_t)view->objects[i].file);
    }
    free(view != NULL ? view->objects : NULL);
    free(view);
}

/* Runs on the loop thread. */
static void
show_view(void *context)
{
    struct folder *folder = context;
    pthread_mutex_lock(&folder->lock);
    struct folder_view *view = folder->view;
    folder->view = NULL;
    bool is_shown = view != NULL && !folder->is_stopping;
    pthread_mutex_unlock(&folder->lock);
    if (is_shown)
        folder->on_view(folder->context, view);
    view_free(view);
}

static char *
copy(const char *text)
{
    char *copied = strdup(text);
    CHECK(copied != NULL);
    return copied;
}

static int
by_id(const void *a, const void *b)
{
    const struct folder_object *one = a, *other = b;
    int ids = strcmp(one->id, other->id);
    return ids != 0 ? ids : strcmp(one->file, other->file);
}

/* Leaves out all but the first of several objects with one id. */
static void
leave_out_repeated(struct folder_view *view)
{
    uint32_t kept = 0;
    if (view->count > 0)
        qsort(view->objects, view->count, sizeof(view->objects[0]), by_id);
    for (uint32_t i = 0; i < view->count; i++) {
        struct folder_object *object = &view->objects[i];
        if (kept > 0 && strcmp(view->objects[kept - 1].id, object->id) == 0) {
            log_warn_limited("manifests_repeated id=\"%s\" file=\"%s\" in_force=\"%s\"", object->id,
                             object->file, view->objects[kept - 1].file);
            free(object->id);
            free(object->json);
            free((void *)(uintptr_t)object->file);
        } else {
            view->objects[kept++] = *object;
        }
    }
    view->count = kept;
}

static void
give_view(struct folder *folder)
{
    struct folder_view *view = calloc(1, sizeof(*view));
    uint32_t count = 0;
    for (uint32_t i = 0; i < folder->count; i++)
        count += folder->files[i]->count;
    CHECK(view != NULL);
    view->objects = calloc(count + 1, sizeof(*view->objects));
    CHECK(view->objects != NULL);
    for (uint32_t i = 0; i < folder->count; i++)
        for (uint32_t k = 0; k < folder->files[i]->count; k++) {
            const struct folder_object *object = &folder->files[i]->objects[k];
            view->objects[view->count++] = (struct folder_object){
                copy(object->id), copy(object->json), copy(folder->files[i]->name)};
        }
    leave_out_repeated(view);
    view->is_whole = folder->is_whole;
    folder->is_known = true;
    pthread_mutex_lock(&folder->lock);
    struct folder_view *former = folder->view; /* the loop has not taken it */
    folder->view = view;
    if (former == NULL)
        loop_post(folder->loop, show_view, folder);
    pthread_mutex_unlock(&folder->lock);
    view_free(former);
}

/* ---- files ---- */

static void
drop_objects(struct watched_file *file)
{
    for (uint32_t i = 0; i < file->count; i++) {
        free(file->objects[i].id);
        free(file->objects[i].json);
    }
    free(file->objects);
    file->objects = NULL;
    file->count = 0;
}

static void
take_objects(const struct folder *folder, struct watched_file *file,
             const struct manifest_file *manifests)
{
    drop_objects(file);
    file->objects = calloc(manifests->count + 1, sizeof(*file->objects));
    CHECK(file->objects != NULL);
    for (uint32_t i = 0; i < manifests->count; i++) {
        const struct manifest *manifest = &manifests->items[i];
        struct folder_object *object = &file->objects[file->count++];
        CHECK(asprintf(&object->id, "%s/%s", manifest_kind_name(manifest->kind), manifest->name) >=
              0);
        object->json = manifest_mark(manifest, folder->node);
    }
    log_info("manifests_read file=\"%s\" objects=%u", file->name, file->count);
}

static void
log_mistakes(const struct watched_file *file, const struct manifest_file *manifests)
{
    const char *rest = file->count > 0 ? "what it said before stays in force" : "nothing of it is";
    for (uint32_t i = 0; i < manifests->mistake_count && i < MISTAKES_LOGGED_MAX; i++)
        log_error("manifests_refused error=\"%s\" mistakes=%u action=\"%s\"",
                  manifests->mistakes[i], manifests->mistake_count, rest);
}

static enum status
read_text(const char *path, char **text, size_t *bytes, struct error *error)
{
    FILE *in = fopen(path, "re");
    if (in == NULL)
        return error_set_errno(error, "%s", path);
    *text = malloc(MANIFEST_FILE_BYTES_MAX + 1);
    CHECK(*text != NULL);
    *bytes = fread(*text, 1, MANIFEST_FILE_BYTES_MAX + 1, in);
    bool failed = ferror(in) != 0;
    fclose(in);
    return failed ? error_set_errno(error, "%s", path) : STATUS_OK;
}

/* True: it has other objects now. An empty file, which an editor may leave for a moment, is a
 * mistake. */
static bool
read_file(const struct folder *folder, struct watched_file *file)
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    struct manifest_file manifests = {0};
    struct error error = ERROR_NONE;
    bool good = false;
    snprintf(path, sizeof(path), "%.3800s/%s", folder->path, file->name);
    file->read = file->seen;
    if (read_text(path, &text, &bytes, &error) != STATUS_OK)
        log_error("manifests_refused error=\"%s\"", error.text);
    else if (manifest_read(path, text, bytes, &manifests, &error) != STATUS_OK)
        log_mistakes(file, &manifests);
    else
        good = true;
    if (good)
        take_objects(folder, file, &manifests);
    file->is_unread = file->count == 0;
    manifest_file_free(&manifests);
    free(text);
    return good;
}

/* ---- looks ---- */

static bool
is_manifest(const char *name)
{
    const char *end = strrchr(name, '.');
    return name[0] != '.' && end != NULL && strlen(name) <= NAME_BYTES_MAX &&
           (strcmp(end, ".yaml") == 0 || strcmp(end, ".yml") == 0 || strcmp(end, ".json") == 0);
}

static int
by_name(const void *a, const void *b)
{
    return strcmp((*(struct watched_file *const *)a)->name,
                  (*(struct watched_file *const *)b)->name);
}

/* Among the first ones, which are in order; else a new one is added behind all. */
static struct watched_file *
find_file(struct folder *folder, const char *name, uint32_t ordered)
{
    struct watched_file *file = calloc(1, sizeof(*file));
    CHECK(file != NULL);
    snprintf(file->name, sizeof(file->name), "%s", name);
    struct watched_file **found =
        ordered > 0 ? bsearch(&file, folder->files, ordered, sizeof(struct watched_file *), by_name)
                    : NULL;
    if (found != NULL) {
        free(file);
        return *found;
    }
    folder->files = realloc(folder->files, (folder->count + 1) * sizeof(struct watched_file *));
    CHECK(folder->files != NULL);
    folder->files[folder->count++] = file;
    return file;
}

/* The error says why all stays as it is. */
static enum status
list_files(struct folder *folder, struct error *error)
{
    DIR *stream = opendir(folder->path);
    const struct dirent *entry;
    uint32_t count = 0;
    uint32_t ordered = folder->count;
    if (stream == NULL)
        return error_set_errno(error, "%s", folder->path);
    for (uint32_t i = 0; i < folder->count; i++)
        folder->files[i]->is_listed = false;
    errno = 0;
    while (count <= FOLDER_FILES_MAX && (entry = readdir(stream)) != NULL)
        if (is_manifest(entry->d_name)) {
            find_file(folder, entry->d_name, ordered)->is_listed = true;
            count++;
        }
    bool failed = count <= FOLDER_FILES_MAX && errno != 0;
    if (failed)
        error_set_errno(error, "%s", folder->path);
    closedir(stream);
    if (folder->count > 0)
        qsort(folder->files, folder->count, sizeof(struct watched_file *), by_name);
    if (count > FOLDER_FILES_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "%s: has more than %d files",
                         folder->path, FOLDER_FILES_MAX);
    return failed ? error->status : STATUS_OK;
}

static struct file_version
version_of(const struct folder *folder, const struct watched_file *file)
{
    char path[PATH_MAX];
    struct stat found;
    struct file_version version;
    memset(&version, 0, sizeof(version)); /* with its padding: versions are compared as bytes */
    snprintf(path, sizeof(path), "%.3800s/%s", folder->path, file->name);
    if (!file->is_listed || stat(path, &found) != 0 || !S_ISREG(found.st_mode))
        return version;
    version.device = found.st_dev;
    version.inode = found.st_ino;
    version.bytes = found.st_size;
    version.modified = found.st_mtim;
    version.changed = found.st_ctim;
    return version;
}

static bool
same_version(const struct file_version *one, const struct file_version *other)
{
    return memcmp(one, other, sizeof(*one)) == 0;
}

/* True: the folder says something else now. Nothing is taken at the first sight of a change, except
 * at the start. */
static bool
look_at_file(const struct folder *folder, struct watched_file *file)
{
    static const struct file_version absent;
    struct file_version now = version_of(folder, file);
    bool is_stable = same_version(&now, &file->seen) || !folder->is_known;
    file->seen = now;
    if (!is_stable || same_version(&now, &file->read))
        return false;
    if (!same_version(&now, &absent))
        return read_file(folder, file);
    file->read = absent;
    file->is_unread = false;
    log_info("manifests_gone file=\"%s\" objects=%u", file->name, file->count);
    bool had_any = file->count > 0;
    drop_objects(file);
    return had_any;
}

static void
forget_absent(struct folder *folder)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < folder->count; i++) {
        struct watched_file *file = folder->files[i];
        if (file->seen.inode == 0 && file->count == 0 && file->read.inode == 0)
            free(file);
        else
            folder->files[kept++] = file;
    }
    folder->count = kept;
}

static void
look(struct folder *folder)
{
    struct error error = ERROR_NONE;
    enum status status = list_files(folder, &error);
    if (status != STATUS_OK && !folder->is_lost)
        log_error("manifests_unreadable error=\"%s\" action=\"all stays as it is\"", error.text);
    folder->is_lost = status != STATUS_OK;
    if (status != STATUS_OK)
        return;
    bool changed = !folder->is_known;
    bool is_whole = true;
    for (uint32_t i = 0; i < folder->count; i++) {
        changed |= look_at_file(folder, folder->files[i]);
        is_whole = is_whole && !folder->files[i]->is_unread;
    }
    forget_absent(folder);
    changed |= is_whole != folder->is_whole;
    folder->is_whole = is_whole;
    if (changed)
        give_view(folder);
}

static void *
run(void *context)
{
    struct folder *folder = context;
    for (;;) {
        look(folder);
        struct timespec until;
        CHECK(clock_gettime(CLOCK_MONOTONIC, &until) == 0);
        until.tv_sec += LOOK_S;
        pthread_mutex_lock(&folder->lock);
        int ended = 0;
        while (!folder->is_stopping && ended == 0)
            ended = pthread_cond_timedwait(&folder->stop, &folder->lock, &until);
        bool stops = folder->is_stopping;
        pthread_mutex_unlock(&folder->lock);
        if (stops)
            return NULL;
    }
}

/* ---- life ---- */

struct folder *
folder_start(struct loop *loop, const char *path, const char *node,
             void (*on_view)(void *context, const struct folder_view *view), void *context)
{
    struct folder *folder = calloc(1, sizeof(*folder));
    pthread_condattr_t attributes;
    CHECK(folder != NULL);
    *folder = (struct folder){.loop = loop,
                              .path = copy(path),
                              .node = copy(node),
                              .on_view = on_view,
                              .context = context};
    CHECK(pthread_condattr_init(&attributes) == 0 &&
          pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
          pthread_mutex_init(&folder->lock, NULL) == 0 &&
          pthread_cond_init(&folder->stop, &attributes) == 0);
    pthread_condattr_destroy(&attributes);
    CHECK(pthread_create(&folder->thread, NULL, run, folder) == 0);
    return folder;
}

void
folder_stop(struct folder *folder)
{
    if (folder == NULL)
        return;
    pthread_mutex_lock(&folder->lock);
    folder->is_stopping = true;
    pthread_cond_signal(&folder->stop);
    pthread_mutex_unlock(&folder->lock);
}

void
folder_destroy(struct folder *folder)
{
    if (folder == NULL)
        return;
    folder_stop(folder);
    CHECK(pthread_join(folder->thread, NULL) == 0);
    view_free(folder->view);
    for (uint32_t i = 0; i < folder->count; i++) {
        drop_objects(folder->files[i]);
        free(folder->files[i]);
    }
    free(folder->files);
    free(folder->path);
    free(folder->node);
    pthread_mutex_destroy(&folder->lock);
    pthread_cond_destroy(&folder->stop);
    free(folder);
}
