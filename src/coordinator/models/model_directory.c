/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/model_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "coordinator/models/model_look.h"
#include "loop/wake.h"

enum { THREAD_NICE = 10 };

/* The entry of a root that is one model. */
static const char root_itself[] = ".";

#define ROOT_EVENTS                                                                                \
    (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE_SELF |       \
     IN_MOVE_SELF | IN_ONLYDIR)

/* A sub-directory or file that has been seen. Belongs to the looking thread. */
struct directory_entry {
    enum look_kind kind;
    bool fit; /* the last look found a model */
    bool listed;
    bool changing;  /* its change was added and not handed over yet */
    bool unsettled; /* it was being written to */
    bool version_is_listed;
    uint64_t version;                  /* of the content that is listed, or was refused */
    uint64_t complaint;                /* hash of the text that was logged last; 0: none */
    uint64_t look;                     /* number of the last whole look that saw it */
    const struct model_format *format; /* of this version's files; NULL: not known */
    char name[];
};

/* Work for the loop thread: written by the looking thread before, read by the loop thread after the
 * hand-over. */
struct directory_change {
    enum { CHANGE_UNLIST, CHANGE_LIST, CHANGE_REFUSE } what;
    char *key;                     /* of a model to be listed */
    uint64_t version;              /* for a model to be listed */
    struct directory_entry *entry; /* NULL: the outcome is not wanted */
    char id[SHOAL_NAME_BYTES_MAX + 1];
    char name[NAME_MAX + 1];
    char type[CONFIG_NAME_BYTES_MAX + 1];
    struct look_release *releases; /* NULL: none; freed with the key */
    uint32_t release_count;
    struct sidecar sidecar;
    enum directory_listing listing;
    struct error error; /* why it is kept, or was refused */
};

enum hand_over { NOTHING, TO_BE_DONE, DONE };

struct model_directory {
    struct model_directory_options options;
    uint32_t refused; /* entries, at the start */
    pthread_t thread;
    bool thread_runs;

    /* The looking thread owns these: model_directory_create at first, then a thread of its own. */
    struct directory_entry **entries; /* in the order of their names */
    size_t entry_count;
    size_t entry_room;
    uint64_t look;
    int root_fd; /* -1: there is none */
    int inotify_fd;
    int watch; /* -1: none */
    bool lost; /* the root could not be read, and that was logged */
    struct directory_change changes[DIRECTORY_CHANGES_MAX];
    uint32_t change_count;
    struct model_look seen;

    struct wake *changes_wake; /* changes are to be applied */
    int end_fd;                /* eventfd: the thread is to end */

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* under the mutex: */
    enum hand_over hand_over;
    bool ends;
};

/* ---- on the loop thread ---- */

static void
carry_out(struct model_directory *directory, struct directory_change *change)
{
    const struct model_directory_options *options = &directory->options;
    const struct sidecar *sidecar = &change->sidecar;
    char path[NAME_MAX + 1 + SIDECAR_FILE_BYTES];
    bool has_file = sidecar->file[0] != '\0' && change->release_count == 0;
    snprintf(path, sizeof(path), "%s%s%s", change->name, has_file ? "/" : "",
             has_file ? sidecar->file : "");
    const struct directory_model model = {
        .spec = {.in_root = true,
                 .id = change->id,
                 .path = path,
                 .key = change->key,
                 .tensors = &sidecar->tensors,
                 .release = sidecar->version[0] != '\0' ? sidecar->version : NULL},
        .type = change->type,
        .version = change->version,
        .releases = change->releases,
        .release_count = change->release_count,
        .policy = &change->sidecar.policy};
    change->listing = LISTING_DONE;
    switch (change->what) {
    case CHANGE_UNLIST: options->unlist(options->context, change->id); break;
    case CHANGE_REFUSE:
        change->listing = options->refuse(options->context, change->id, &change->error);
        break;
    case CHANGE_LIST:
        change->listing = options->list(options->context, &model, &change->error);
        break;
    }
}

static void
carry_out_all(struct model_directory *directory)
{
    for (uint32_t i = 0; i < directory->change_count; i++)
        carry_out(directory, &directory->changes[i]);
}

static void
on_changes(void *context)
{
    struct model_directory *directory = context;
    CHECK(pthread_mutex_lock(&directory->mutex) == 0);
    bool asked = directory->hand_over == TO_BE_DONE;
    CHECK(pthread_mutex_unlock(&directory->mutex) == 0);
    if (!asked)
        return;
    carry_out_all(directory); /* the other thread waits */
    CHECK(pthread_mutex_lock(&directory->mutex) == 0);
    directory->hand_over = DONE;
    CHECK(pthread_cond_signal(&directory->changed) == 0);
    CHECK(pthread_mutex_unlock(&directory->mutex) == 0);
}

/* ---- reports ---- */

/* Logs each text once. */
static void
complain(struct model_directory *directory, struct directory_entry *entry, const char *text)
{
    uint64_t complaint = hash_fnv1a(HASH_FNV1A_SEED, text, strlen(text));
    if (complaint == entry->complaint)
        return;
    entry->complaint = complaint;
    log_error("model_not_listed pipeline=%s model=\"%s\" error=\"%s\"", directory->options.pipeline,
              directory->options.id != NULL ? directory->options.id : entry->name, text);
}

/* Logs the members of a listed model's sidecars that have no effect. Once for each version of it:
 * the same one is not listed again. */
static void
say_ignored(const struct model_directory *directory, const struct directory_change *change)
{
    for (enum sidecar_kind kind = 0; kind < SIDECAR_KINDS; kind++)
        if (change->sidecar.ignored[kind][0] != '\0')
            log_warn("model_settings_ignored pipeline=%s model=\"%s\" file=%s members=\"%s\"",
                     directory->options.pipeline, change->name, sidecar_files[kind],
                     change->sidecar.ignored[kind]);
}

/* ---- handing over ---- */

/* False: the directory ends, and nothing was done. */
static bool
wait_for_loop(struct model_directory *directory)
{
    CHECK(pthread_mutex_lock(&directory->mutex) == 0);
    directory->hand_over = TO_BE_DONE;
    wake_up(directory->changes_wake);
    while (directory->hand_over == TO_BE_DONE && !directory->ends)
        CHECK(pthread_cond_wait(&directory->changed, &directory->mutex) == 0);
    bool done = directory->hand_over == DONE;
    directory->hand_over = NOTHING;
    CHECK(pthread_mutex_unlock(&directory->mutex) == 0);
    return done;
}

/* A change that is refused or postponed leaves the previous state. */
static void
learn(struct model_directory *directory, struct directory_change *change)
{
    struct directory_entry *entry = change->entry;
    if (entry == NULL)
        return;
    entry->changing = false;
    entry->listed = change->what != CHANGE_UNLIST && change->listing != LISTING_OTHERS &&
                    (entry->listed || change->listing == LISTING_DONE);
    entry->version_is_listed = change->what == CHANGE_LIST && change->listing == LISTING_DONE;
    entry->unsettled = change->listing == LISTING_LATER;
    if (entry->version_is_listed)
        say_ignored(directory, change);
    if (change->listing == LISTING_REFUSED)
        complain(directory, entry, change->error.text);
}

static void
hand_over(struct model_directory *directory)
{
    if (directory->change_count == 0)
        return;
    bool done = true;
    if (directory->thread_runs)
        done = wait_for_loop(directory);
    else
        carry_out_all(directory);
    for (uint32_t i = 0; i < directory->change_count; i++) {
        if (done)
            learn(directory, &directory->changes[i]);
        free(directory->changes[i].key);
        free(directory->changes[i].releases);
    }
    directory->change_count = 0;
}

static struct directory_change *
change_add(struct model_directory *directory, struct directory_entry *entry)
{
    if (directory->change_count == DIRECTORY_CHANGES_MAX)
        hand_over(directory);
    struct directory_change *change = &directory->changes[directory->change_count++];
    *change = (struct directory_change){.what = CHANGE_UNLIST, .entry = entry};
    entry->changing = true;
    size_t bytes = strlen(entry->name);
    CHECK(bytes < sizeof(change->name));
    memcpy(change->name, entry->name, bytes + 1);
    if (directory->options.id != NULL)
        snprintf(change->id, sizeof(change->id), "%s", directory->options.id);
    else
        look_id(entry->name, entry->kind, change->id);
    return change;
}

/* ---- the table of entries seen ---- */

/* The position of the name, or the one where it belongs. */
static size_t
place_of(const struct model_directory *directory, const char *name, bool *found)
{
    size_t low = 0;
    size_t high = directory->entry_count;
    *found = false;
    while (low < high && !*found) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(directory->entries[middle]->name, name);
        *found = order == 0;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return high;
}

static struct directory_entry *
entry_find(const struct model_directory *directory, const char *name)
{
    bool found;
    size_t place = place_of(directory, name, &found);
    return found ? directory->entries[place] : NULL;
}

static struct directory_entry *
entry_have(struct model_directory *directory, const char *name)
{
    bool found;
    size_t place = place_of(directory, name, &found);
    if (found)
        return directory->entries[place];
    if (directory->entry_count == directory->entry_room) {
        directory->entry_room = directory->entry_room == 0 ? 64 : 2 * directory->entry_room;
        directory->entries =
            realloc(directory->entries, directory->entry_room * sizeof(struct directory_entry *));
        CHECK(directory->entries != NULL);
    }
    size_t bytes = strlen(name) + 1;
    struct directory_entry *entry = calloc(1, sizeof(*entry) + bytes);
    CHECK(entry != NULL);
    memcpy(entry->name, name, bytes);
    struct directory_entry **at = directory->entries + place;
    memmove(at + 1, at, (directory->entry_count - place) * sizeof(struct directory_entry *));
    *at = entry;
    directory->entry_count++;
    return entry;
}

static void
entry_drop(struct model_directory *directory, struct directory_entry *entry)
{
    bool found;
    size_t place = place_of(directory, entry->name, &found);
    CHECK(found);
    for (uint32_t i = 0; i < directory->change_count; i++)
        if (directory->changes[i].entry == entry)
            directory->changes[i].entry = NULL;
    struct directory_entry **at = directory->entries + place;
    memmove(at, at + 1, (--directory->entry_count - place) * sizeof(struct directory_entry *));
    free(entry);
}

/* ---- one entry ---- */

static void
unlist(struct model_directory *directory, struct directory_entry *entry)
{
    if (entry->listed)
        (void)change_add(directory, entry);
}

static void
refuse(struct model_directory *directory, struct directory_entry *entry, const struct error *why)
{
    struct directory_change *change = change_add(directory, entry);
    change->what = CHANGE_REFUSE;
    change->error = *why;
}

static void
refuse_twin(struct model_directory *directory, struct directory_entry *entry,
            const struct directory_entry *first)
{
    char text[2 * NAME_MAX + 80];
    snprintf(text, sizeof(text),
             "%s is a model of the same id, which is listed: rename one of them", first->name);
    if (entry->changing)
        hand_over(directory);
    unlist(directory, entry);
    complain(directory, entry, text);
}

/* If a sub-directory and files have one id, the first in the order of their names is listed.
 * Returns false if another entry comes before this one. The names of all of them begin with the id,
 * so they stand together but for names in which "." is not next. */
static bool
is_first_of_its_id(struct model_directory *directory, struct directory_entry *entry)
{
    char id[SHOAL_NAME_BYTES_MAX + 1];
    char other_id[SHOAL_NAME_BYTES_MAX + 1];
    bool found;
    if (directory->options.id != NULL)
        return true;
    look_id(entry->name, entry->kind, id);
    size_t bytes = strlen(id);
    for (size_t i = place_of(directory, id, &found); i < directory->entry_count; i++) {
        struct directory_entry *other = directory->entries[i];
        if (strncmp(other->name, id, bytes) != 0 || (unsigned char)other->name[bytes] > '.')
            break;
        look_id(other->name, other->kind, other_id);
        if (other == entry || !other->fit || strcmp(other_id, id) != 0)
            continue;
        bool is_before = strcmp(other->name, entry->name) < 0;
        if (is_before)
            refuse_twin(directory, entry, other);
        else
            refuse_twin(directory, other, entry);
        if (is_before)
            return false;
    }
    return true;
}

/* A type that the key does not give is the format of the files. */
static void
find_type(struct model_directory *directory, struct directory_entry *entry)
{
    struct model_look *seen = &directory->seen;
    if (seen->type[0] != '\0')
        return;
    if (entry->format == NULL || entry->version != seen->version)
        entry->format = look_for_format_of(directory->root_fd, entry->name, seen);
    if (entry->format != NULL)
        snprintf(seen->type, sizeof(seen->type), "%s", entry->format->name);
}

static void
list(struct model_directory *directory, struct directory_entry *entry)
{
    if (entry->listed && entry->version_is_listed && entry->version == directory->seen.version)
        return;
    if (!is_first_of_its_id(directory, entry))
        return;
    find_type(directory, entry);
    struct directory_change *change = change_add(directory, entry);
    change->what = CHANGE_LIST;
    change->key = strdup(directory->seen.key);
    CHECK(change->key != NULL);
    memcpy(change->type, directory->seen.type, sizeof(change->type));
    change->release_count = directory->seen.release_count;
    change->sidecar = directory->seen.sidecar;
    if (change->release_count > 0) {
        size_t bytes = change->release_count * sizeof(struct look_release);
        change->releases = malloc(bytes);
        CHECK(change->releases != NULL);
        memcpy(change->releases, directory->seen.releases, bytes);
    }
    change->version = entry->version = directory->seen.version;
}

/* The clock of file times. */
static int64_t
unix_now_ns(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void
examine(struct model_directory *directory, const char *name)
{
    struct error error = ERROR_NONE;
    int64_t now_ns = directory->thread_runs ? unix_now_ns() : 0;
    struct directory_entry *entry = entry_find(directory, name);
    directory->seen.kind = entry != NULL ? entry->kind : LOOK_DIRECTORY;
    enum look_result result =
        look_at_model(directory->root_fd, name, now_ns, &directory->seen, &error);
    if (result == LOOK_FOREIGN && entry != NULL && entry->listed)
        result = LOOK_UNFIT;
    if (result == LOOK_FOREIGN)
        result = LOOK_NO_MODEL;
    if (result == LOOK_NO_MODEL && entry == NULL)
        return;
    if (entry == NULL) {
        entry = entry_have(directory, name);
        entry->kind = directory->seen.kind;
    }
    if (entry->changing)
        hand_over(directory);
    bool is_another =
        (result == LOOK_MODEL || result == LOOK_UNFIT) && entry->kind != directory->seen.kind;
    if (is_another) { /* a file took the name of a directory, or the other way round */
        unlist(directory, entry);
        hand_over(directory);
        entry->kind = directory->seen.kind;
    }
    entry->look = directory->look;
    entry->unsettled = false;
    entry->fit = result == LOOK_MODEL || (entry->fit && result == LOOK_UNSETTLED) ||
                 (entry->listed && result == LOOK_UNFIT);
    switch (result) {
    case LOOK_MODEL: list(directory, entry); break;
    case LOOK_NO_MODEL:
        unlist(directory, entry);
        entry_drop(directory, entry);
        break;
    case LOOK_UNSETTLED: entry->unsettled = true; break;
    case LOOK_UNFIT: refuse(directory, entry, &error); break;
    case LOOK_FOREIGN: CHECK(false); break;
    case LOOK_UNSURE: complain(directory, entry, error.text); break;
    }
}

/* ---- the root ---- */

/* Logs once when it is lost and once when it is back. */
static void
root_lost(struct model_directory *directory, const struct error *error)
{
    if (!directory->lost)
        log_warn("models_root_lost pipeline=%s root=\"%s\" listed=%zu error=\"%s\"",
                 directory->options.pipeline, directory->options.root, directory->entry_count,
                 error->text);
    directory->lost = true;
}

static void
root_close(struct model_directory *directory)
{
    if (directory->root_fd >= 0)
        close(directory->root_fd);
    directory->root_fd = -1;
}

/* Opens the directory that has the root's name now, as another one may have taken it, and watches
 * it. The watch comes first: later changes are reported, earlier ones are seen. */
static enum status
root_open(struct model_directory *directory, struct error *error)
{
    const char *root = directory->options.root;
    root_close(directory);
    int watch = inotify_add_watch(directory->inotify_fd, root, ROOT_EVENTS);
    if (watch < 0)
        return error_set_errno(error, "watching it");
    if (directory->watch >= 0 && directory->watch != watch)
        (void)inotify_rm_watch(directory->inotify_fd, directory->watch);
    directory->watch = watch;
    directory->root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return directory->root_fd < 0 ? error_set_errno(error, "opening it") : STATUS_OK;
}

static enum status
examine_names(struct model_directory *directory, DIR *stream, struct error *error)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (entry == NULL)
            return errno == 0 ? STATUS_OK : error_set_errno(error, "reading it");
        if (entry->d_name[0] != '.')
            examine(directory, entry->d_name);
    }
}

static enum status
examine_all(struct model_directory *directory, struct error *error)
{
    enum status status = root_open(directory, error);
    if (status == STATUS_OK && directory->options.id != NULL)
        examine(directory, root_itself);
    if (status != STATUS_OK || directory->options.id != NULL)
        return status;
    DIR *stream = NULL;
    int fd = openat(directory->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        stream = fdopendir(fd);
    if (stream == NULL) {
        error_set_errno(error, "opening it");
        if (fd >= 0)
            close(fd);
        return error->status;
    }
    status = examine_names(directory, stream, error);
    closedir(stream);
    return status;
}

/* Entries that the look did not meet are gone, or were renamed beneath it: a second look
 * decides. */
static void
examine_unseen(struct model_directory *directory)
{
    for (size_t i = directory->entry_count; i-- > 0;)
        if (directory->entries[i]->look != directory->look)
            examine(directory, directory->entries[i]->name);
}

static void
look_at_all(struct model_directory *directory)
{
    struct error error = ERROR_NONE;
    directory->look++;
    if (examine_all(directory, &error) != STATUS_OK) {
        root_close(directory);
        root_lost(directory, &error);
        return;
    }
    examine_unseen(directory);
    if (directory->lost)
        log_info("models_root_back pipeline=%s root=\"%s\"", directory->options.pipeline,
                 directory->options.root);
    directory->lost = false;
}

/* ---- the thread ---- */

struct schedule {
    int64_t last_ns;  /* when all of it was looked at last */
    int64_t all_ns;   /* when all of it will be looked at, */
    int64_t again_ns; /* and when the unsettled ones will be */
};

/* Looks at all of it soon: at once, unless that has just been done. */
static void
look_soon(struct schedule *schedule)
{
    int64_t soon_ns = schedule->last_ns + LOOK_SETTLED_NS;
    if (soon_ns < schedule->all_ns)
        schedule->all_ns = soon_ns;
}

/* Looks at one name only. Links may lead through a name that begins with ".". */
static void
on_event(struct model_directory *directory, struct schedule *schedule,
         const struct inotify_event *event)
{
    if ((event->mask & IN_Q_OVERFLOW) != 0) {
        look_soon(schedule);
        return;
    }
    if (event->wd != directory->watch || directory->root_fd < 0)
        return; /* of a directory that was the root before */
    if ((event->mask & (IN_MOVE_SELF | IN_DELETE_SELF | IN_IGNORED)) != 0)
        root_close(directory); /* it does not have that name any more */
    if (event->len == 0 || event->name[0] == '.' || directory->options.id != NULL)
        look_soon(schedule);
    else
        examine(directory, event->name);
}

static void
take_events(struct model_directory *directory, struct schedule *schedule)
{
    _Alignas(struct inotify_event) char room[16384];
    ssize_t bytes;
    while ((bytes = read(directory->inotify_fd, room, sizeof(room))) > 0)
        for (ssize_t at = 0; at < bytes;) {
            const struct inotify_event *event =
                (const struct inotify_event *)(const void *)(room + at);
            at += (ssize_t)sizeof(*event) + event->len;
            on_event(directory, schedule, event);
        }
}

static void
examine_unsettled(struct model_directory *directory)
{
    for (size_t i = directory->entry_count; i-- > 0;)
        if (directory->entries[i]->unsettled && directory->root_fd >= 0)
            examine(directory, directory->entries[i]->name);
}

static bool
any_unsettled(const struct model_directory *directory)
{
    for (size_t i = 0; i < directory->entry_count; i++)
        if (directory->entries[i]->unsettled)
            return true;
    return false;
}

static void
look_as_due(struct model_directory *directory, struct schedule *schedule)
{
    int64_t now_ns = clock_now_ns();
    if (now_ns >= schedule->all_ns) {
        look_at_all(directory);
        schedule->last_ns = now_ns;
        schedule->all_ns = now_ns + directory->options.look_ns;
    }
    if (now_ns >= schedule->again_ns) {
        examine_unsettled(directory);
        schedule->again_ns = TIME_NEVER_NS;
    }
    hand_over(directory); /* which may put off some */
    if (schedule->again_ns == TIME_NEVER_NS && any_unsettled(directory))
        schedule->again_ns = now_ns + LOOK_SETTLED_NS;
}

/* False: it is to end. */
static bool
wait_until_due(const struct model_directory *directory, const struct schedule *schedule)
{
    int64_t due_ns = schedule->all_ns < schedule->again_ns ? schedule->all_ns : schedule->again_ns;
    int64_t left_ns = due_ns - clock_now_ns();
    struct pollfd fds[] = {{.fd = directory->end_fd, .events = POLLIN},
                           {.fd = directory->inotify_fd, .events = POLLIN}};
    (void)poll(fds, ARRAY_COUNT(fds), left_ns <= 0 ? 0 : (int)(left_ns / NS_PER_MS) + 1);
    return fds[0].revents == 0;
}

static void *
run(void *context)
{
    struct model_directory *directory = context;
    int64_t now_ns = clock_now_ns();
    struct schedule schedule = {.last_ns = now_ns,
                                .all_ns = now_ns + directory->options.look_ns,
                                .again_ns = TIME_NEVER_NS};
    prctl(PR_SET_NAME, "shoald:models");
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), THREAD_NICE); /* of this thread only */
    while (wait_until_due(directory, &schedule)) {
        take_events(directory, &schedule);
        look_as_due(directory, &schedule);
    }
    return NULL;
}

/* This thread takes no signals. */
static void
start_thread(struct model_directory *directory)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    directory->thread_runs = true;
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    CHECK(pthread_create(&directory->thread, NULL, run, directory) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

/* ---- life ---- */

static enum status
open_descriptors(struct model_directory *directory, struct error *error)
{
    directory->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    directory->end_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    directory->changes_wake =
        wake_create(loop_base(directory->options.loop), on_changes, directory);
    if (directory->inotify_fd < 0 || directory->end_fd < 0 || directory->changes_wake == NULL)
        return error_set_errno(error, "watching the models' root %s", directory->options.root);
    return STATUS_OK;
}

static void
close_descriptors(struct model_directory *directory)
{
    const int fds[] = {directory->inotify_fd, directory->end_fd};
    root_close(directory);
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

enum status
model_directory_create(const struct model_directory_options *options,
                       struct model_directory **created, struct error *error)
{
    struct model_directory *directory = calloc(1, sizeof(*directory));
    CHECK(directory != NULL);
    directory->options = *options;
    directory->seen.id = options->id;
    if (options->look_ns == 0)
        directory->options.look_ns = DIRECTORY_LOOK_NS;
    directory->root_fd = -1;
    directory->watch = -1;
    CHECK(pthread_mutex_init(&directory->mutex, NULL) == 0);
    CHECK(pthread_cond_init(&directory->changed, NULL) == 0);
    *created = directory;
    enum status status = open_descriptors(directory, error);
    if (status != STATUS_OK) {
        model_directory_destroy(directory);
        *created = NULL;
        return status;
    }
    int64_t before_ns = clock_now_ns();
    look_at_all(directory);
    hand_over(directory);
    for (size_t i = 0; i < directory->entry_count; i++)
        directory->refused += directory->entries[i]->complaint != 0;
    log_info("models_listed pipeline=%s root=\"%s\" count=%zu us=%lld", options->pipeline,
             options->root, directory->entry_count,
             (long long)((clock_now_ns() - before_ns) / NS_PER_US));
    start_thread(directory);
    return STATUS_OK;
}

uint32_t
model_directory_refused(const struct model_directory *directory)
{
    return directory->refused;
}

static void
end_thread(struct model_directory *directory)
{
    const uint64_t one = 1;
    CHECK(pthread_mutex_lock(&directory->mutex) == 0);
    directory->ends = true;
    CHECK(pthread_cond_signal(&directory->changed) == 0);
    CHECK(pthread_mutex_unlock(&directory->mutex) == 0);
    CHECK(write(directory->end_fd, &one, sizeof(one)) == sizeof(one));
    CHECK(pthread_join(directory->thread, NULL) == 0);
}

void
model_directory_destroy(struct model_directory *directory)
{
    if (directory == NULL)
        return;
    if (directory->thread_runs)
        end_thread(directory);
    wake_destroy(directory->changes_wake);
    close_descriptors(directory);
    for (size_t i = 0; i < directory->entry_count; i++)
        free(directory->entries[i]);
    free(directory->entries);
    CHECK(pthread_mutex_destroy(&directory->mutex) == 0);
    CHECK(pthread_cond_destroy(&directory->changed) == 0);
    free(directory);
}
