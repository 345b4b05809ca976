/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pupil: learns models, and does with each what its key says, so that a test decides how long a
 * load takes and how it ends, and knows when it has begun.
 *
 * The model's path must be a file that can be read. Of the key, as Python's json.dumps writes it:
 *   "load": NAME          `load` makes NAME.held and waits until NAME.go is there
 *   "unload": NAME        the same of `unload`
 *   "predict": NAME       the same of `predict_size`
 *   "fail": TEXT          `load` fails with it
 *   "bytes": NUMBER       the size, told and predicted; left out: 5000
 *   "concurrency": NUMBER what `max_concurrency` says
 * Lines in the file `lessons`: "load ID", "unload ID", when each has been done.
 *
 * Input: anything. Outputs: "id", BYTES [1], the model's; "known", INT64 [1], how many models this
 * worker has. If the input is a "message", of a pipeline that is bound to a method, the answer is
 * one too: the id.
 *
 * Params: folder, where all these files are; open = NAME: `open` does as `load` with "load".
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shoal/modelet.h>

enum { PATH_BYTES = 512, NAME_BYTES = 128, BYTES_DEFAULT = 5000 };

struct pupil {
    char folder[PATH_BYTES];
    atomic_llong known;
};

struct lesson {
    char id[SHOAL_NAME_BYTES_MAX + 1];
    char unload_waits[NAME_BYTES];
    uint64_t bytes;
    uint32_t concurrency;
};

/* The text after `"name": ` in the key; NULL: it has none. */
static const char *
key_value(const char *key, const char *name)
{
    char quoted[NAME_BYTES];
    snprintf(quoted, sizeof(quoted), "\"%s\": ", name);
    const char *found = strstr(key, quoted);
    return found == NULL ? NULL : found + strlen(quoted);
}

static uint64_t
key_number(const char *key, const char *name, uint64_t otherwise)
{
    const char *value = key_value(key, name);
    return value == NULL ? otherwise : strtoull(value, NULL, 10);
}

static void
key_text(const char *key, const char *name, char text[NAME_BYTES])
{
    const char *value = key_value(key, name);
    text[0] = '\0';
    if (value != NULL && *value == '"')
        snprintf(text, NAME_BYTES, "%.*s", (int)strcspn(value + 1, "\""), value + 1);
}

static int
cue_open(const struct pupil *self, const char *name, const char *suffix, int flags)
{
    char path[PATH_BYTES + NAME_BYTES + 16];
    snprintf(path, sizeof(path), "%s/%s%s", self->folder, name, suffix);
    return open(path, flags | O_CLOEXEC, 0644);
}

static void
wait_for_cue(const struct pupil *self, const char *name)
{
    if (name[0] == '\0')
        return;
    int fd = cue_open(self, name, ".held", O_WRONLY | O_CREAT);
    close(fd);
    while ((fd = cue_open(self, name, ".go", O_RDONLY)) < 0) {
        struct timespec millisecond = {.tv_nsec = 1000000};
        nanosleep(&millisecond, NULL);
    }
    close(fd);
}

static void
note(const struct pupil *self, const char *what, const char *id)
{
    int fd = cue_open(self, "lessons", "", O_WRONLY | O_CREAT | O_APPEND);
    if (fd < 0)
        return;
    dprintf(fd, "%s %s\n", what, id);
    close(fd);
}

static int
pupil_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    (void)error;
    struct pupil *self = calloc(1, sizeof(*self));
    if (self == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    const char *cue = "";
    for (uint32_t i = 0; i < open->param_count; i++)
        if (strcmp(open->params[i].name, "folder") == 0)
            open->host->resolve_path(open->params[i].value, self->folder, sizeof(self->folder));
        else
            cue = open->params[i].value;
    wait_for_cue(self, cue);
    *instance = self;
    return SHOAL_OK;
}

static int
pupil_load(void *instance, const struct shoal_model *spec, void **model, struct shoal_error *error)
{
    struct pupil *self = instance;
    char text[NAME_BYTES];
    if (access(spec->path, R_OK) != 0) {
        snprintf(error->text, sizeof(error->text), "cannot read %s", spec->path);
        return SHOAL_NOT_FOUND;
    }
    key_text(spec->key, "load", text);
    wait_for_cue(self, text);
    key_text(spec->key, "fail", text);
    if (text[0] != '\0') {
        snprintf(error->text, sizeof(error->text), "%s", text);
        return SHOAL_FAILED_PRECONDITION;
    }
    struct lesson *lesson = calloc(1, sizeof(*lesson));
    if (lesson == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    snprintf(lesson->id, sizeof(lesson->id), "%s", spec->id);
    key_text(spec->key, "unload", lesson->unload_waits);
    lesson->bytes = key_number(spec->key, "bytes", BYTES_DEFAULT);
    lesson->concurrency = (uint32_t)key_number(spec->key, "concurrency", 0);
    atomic_fetch_add(&self->known, 1);
    note(self, "load", spec->id);
    *model = lesson;
    return SHOAL_OK;
}

static void
pupil_unload(void *instance, void *model)
{
    struct pupil *self = instance;
    struct lesson *lesson = model;
    wait_for_cue(self, lesson->unload_waits);
    atomic_fetch_sub(&self->known, 1);
    note(self, "unload", lesson->id);
    free(lesson);
}

static uint64_t
pupil_size(void *instance, void *model)
{
    (void)instance;
    struct lesson *lesson = model;
    return lesson->bytes;
}

static uint64_t
pupil_predict_size(void *instance, const struct shoal_model *spec)
{
    char text[NAME_BYTES];
    key_text(spec->key, "predict", text);
    wait_for_cue(instance, text);
    return key_number(spec->key, "bytes", BYTES_DEFAULT);
}

static uint32_t
pupil_max_concurrency(void *instance, void *model)
{
    (void)instance;
    struct lesson *lesson = model;
    return lesson->concurrency;
}

static void
answer_message(const struct lesson *lesson, struct shoal_item *item, const struct shoal_host *host)
{
    const int64_t length = (int64_t)strlen(lesson->id);
    char *message = host->output(item, "message", SHOAL_UINT8, 1, &length);
    if (message == NULL)
        return;
    memcpy(message, lesson->id, (size_t)length);
    item->status = SHOAL_OK;
}

static void
answer(const struct pupil *self, const struct lesson *lesson, struct shoal_item *item,
       const struct shoal_host *host)
{
    const int64_t one = 1;
    uint32_t length = (uint32_t)strlen(lesson->id);
    char *id = host->output_bytes(item, "id", SHOAL_BYTES, 1, &one, sizeof(length) + length);
    int64_t *known = host->output(item, "known", SHOAL_INT64, 1, &one);
    if (id == NULL || known == NULL)
        return;
    memcpy(id, &length, sizeof(length));
    memcpy(id + sizeof(length), lesson->id, length);
    *known = atomic_load(&self->known);
    item->status = SHOAL_OK;
}

static int
pupil_run(void *instance, void *model, struct shoal_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        struct shoal_item *item = batch->items[i];
        if (item->input_count == 1 && strcmp(item->inputs[0].name, "message") == 0)
            answer_message(model, item, batch->host);
        else
            answer(instance, model, item, batch->host);
    }
    return SHOAL_OK;
}

static void
pupil_close(void *instance)
{
    free(instance);
}

const struct shoal_modelet shoal_modelet = {SHOAL_MODELET_HEADER,
                                            .abilities = SHOAL_RUNS_BATCHES | SHOAL_RUN_DURING_LOAD,
                                            .name = "pupil",
                                            .open = pupil_open,
                                            .load = pupil_load,
                                            .unload = pupil_unload,
                                            .size = pupil_size,
                                            .predict_size = pupil_predict_size,
                                            .max_concurrency = pupil_max_concurrency,
                                            .run = pupil_run,
                                            .close = pupil_close};
