/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A modelet of whole messages that does what each says, "VERB REST": anything else is given back as
 * it came, also an empty one.
 *   linger NAME    makes NAME.held and waits until NAME.go is there; ends, with NAME.gave_up, when
 *                  nobody waits for it any more
 *   bytes N        answers with N bytes: 0, 1, … 255, 0, …
 *   fail CODE      fails with this code
 *   model          answers with the model's id
 *   other, type, rank, two, none   answers what no answer to a message is
 *   emit N END     emits N messages of four bytes, their numbers, then END: answer (one more),
 *                  nothing, fail, crash, other (a piece that is no message), endless, wide (as
 *                  endless, of 100 KB), empty (a piece of no bytes, then one more), or the NAME of
 *                  a `linger`, which is followed by nothing
 *
 * Params: folder, where all these files are; describe = message (the default), nothing, tensor.
 * A model whose key says "bytes":N takes messages of so many bytes alone.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shoal/modelet.h>

enum { PATH_BYTES = 512, TEXT_BYTES = 128, WIDE_BYTES = 100000 };

#define BYTES "\"bytes\":"

struct letters {
    char folder[PATH_BYTES];
    char describe[16];
};

struct loaded {
    char id[SHOAL_NAME_BYTES_MAX + 1];
    struct shoal_tensor_spec message;
};

static const struct shoal_tensor_spec any_message = {
    .name = "message", .datatype = SHOAL_UINT8, .rank = 1, .shape = {-1}};

/* ---- cues ---- */

static int
cue(const struct letters *self, const char *name, const char *suffix, int flags)
{
    char path[PATH_BYTES + TEXT_BYTES + 16];
    snprintf(path, sizeof(path), "%s/%s%s", self->folder, name, suffix);
    int fd = open(path, flags | O_CLOEXEC, 0644);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void
wait_a_little(void)
{
    struct timespec millisecond = {.tv_nsec = 1000000};
    nanosleep(&millisecond, NULL);
}

/* 0: it was given up. */
static int
linger(const struct letters *self, struct shoal_batch *batch, struct shoal_item *item,
       const char *name)
{
    cue(self, name, ".held", O_WRONLY | O_CREAT);
    while (!cue(self, name, ".go", O_RDONLY)) {
        if (batch->host->cancelled(item)) {
            cue(self, name, ".gave_up", O_WRONLY | O_CREAT);
            return 0;
        }
        wait_a_little();
    }
    return 1;
}

/* ---- answers ---- */

static int32_t
give(struct shoal_batch *batch, struct shoal_item *item, const char *name, uint32_t datatype,
     uint32_t rank)
{
    static const int64_t shape[] = {1, 1};
    char *to = batch->host->output(item, name, datatype, rank, shape);
    if (to == NULL)
        return item->status;
    *to = 'x';
    return SHOAL_OK;
}

static int32_t
give_bytes(struct shoal_batch *batch, struct shoal_item *item, int64_t bytes, const char *text)
{
    unsigned char *to = batch->host->output(item, "message", SHOAL_UINT8, 1, &bytes);
    if (to == NULL && bytes > 0)
        return item->status;
    for (int64_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)(text != NULL ? text[i] : i);
    return SHOAL_OK;
}

static int32_t
emit_number(struct shoal_batch *batch, struct shoal_item *item, uint32_t number, int64_t bytes)
{
    unsigned char *to = batch->host->output(item, "message", SHOAL_UINT8, 1, &bytes);
    if (to == NULL)
        return item->status;
    memset(to, 0, (size_t)bytes);
    memcpy(to, &number, sizeof(number));
    return SHOAL_OK;
}

static int32_t
emit(struct letters *self, struct shoal_batch *batch, struct shoal_item *item, const char *rest)
{
    char *end;
    uint32_t count = (uint32_t)strtoul(rest, &end, 10);
    end += *end == ' ';
    int64_t bytes = strcmp(end, "wide") == 0 ? WIDE_BYTES : (int64_t)sizeof(count);
    int is_endless = bytes == WIDE_BYTES || strcmp(end, "endless") == 0;
    int32_t status = SHOAL_OK;
    for (uint32_t i = 0; status == SHOAL_OK && (i < count || is_endless); i++) {
        status = emit_number(batch, item, i, bytes);
        if (status == SHOAL_OK)
            status = batch->host->emit(item);
    }
    if (status != SHOAL_OK)
        return status;
    if (strcmp(end, "nothing") == 0)
        return SHOAL_OK;
    if (strcmp(end, "fail") == 0)
        return batch->host->fail(item, SHOAL_ABORTED, "told to fail at last");
    if (strcmp(end, "crash") == 0)
        raise(SIGKILL); /* of which no sanitizer speaks */
    if (strcmp(end, "other") == 0 || strcmp(end, "empty") == 0) {
        status = strcmp(end, "other") == 0 ? give(batch, item, "other", SHOAL_UINT8, 1)
                                           : give_bytes(batch, item, 0, NULL);
        if (status == SHOAL_OK)
            status = batch->host->emit(item);
    } else if (strcmp(end, "answer") != 0) {
        if (!linger(self, batch, item, end))
            return batch->host->fail(item, SHOAL_CANCELLED, "given up");
        return SHOAL_OK;
    }
    return status == SHOAL_OK ? emit_number(batch, item, count, sizeof(count)) : status;
}

static int32_t
perform(struct letters *self, const struct loaded *model, struct shoal_batch *batch,
        struct shoal_item *item)
{
    const struct shoal_tensor *message = &item->inputs[0];
    char text[TEXT_BYTES];
    snprintf(text, sizeof(text), "%.*s", (int)message->bytes, (const char *)message->data);
    char *rest = strchr(text, ' ');
    if (rest != NULL)
        *rest++ = '\0';
    if (strcmp(text, "other") == 0)
        return give(batch, item, "other", SHOAL_UINT8, 1);
    if (strcmp(text, "type") == 0)
        return give(batch, item, "message", SHOAL_INT8, 1);
    if (strcmp(text, "rank") == 0)
        return give(batch, item, "message", SHOAL_UINT8, 2);
    if (strcmp(text, "none") == 0)
        return SHOAL_OK;
    if (strcmp(text, "model") == 0 && model != NULL)
        return give_bytes(batch, item, (int64_t)strlen(model->id), model->id);
    if (strcmp(text, "emit") == 0 && rest != NULL)
        return emit(self, batch, item, rest);
    if (strcmp(text, "bytes") == 0 && rest != NULL)
        return give_bytes(batch, item, strtoll(rest, NULL, 10), NULL);
    if (strcmp(text, "fail") == 0 && rest != NULL)
        return batch->host->fail(item, atoi(rest), "told to fail with %s", rest);
    if (strcmp(text, "linger") == 0 && rest != NULL && !linger(self, batch, item, rest))
        return batch->host->fail(item, SHOAL_CANCELLED, "given up");
    int32_t status = batch->host->forward(item, 0, "message");
    return status == SHOAL_OK && strcmp(text, "two") == 0
               ? give(batch, item, "other", SHOAL_UINT8, 1)
               : status;
}

static int
letters_run(void *instance, void *model, struct shoal_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++)
        batch->items[i]->status = perform(instance, model, batch, batch->items[i]);
    return SHOAL_OK;
}

/* ---- life ---- */

static int
letters_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    struct letters *self = calloc(1, sizeof(*self));
    (void)error;
    if (self == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    for (uint32_t i = 0; i < open->param_count; i++) {
        const struct shoal_param *param = &open->params[i];
        if (strcmp(param->name, "folder") == 0)
            open->host->resolve_path(param->value, self->folder, sizeof(self->folder));
        else if (strcmp(param->name, "describe") == 0)
            snprintf(self->describe, sizeof(self->describe), "%s", param->value);
    }
    *instance = self;
    return SHOAL_OK;
}

static void
letters_close(void *instance)
{
    free(instance);
}

static int
letters_describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    static const struct shoal_tensor_spec tensor = {
        .name = "x", .datatype = SHOAL_FP32, .rank = 1, .shape = {-1}};
    const struct letters *self = instance;
    (void)error;
    if (strcmp(self->describe, "nothing") == 0)
        return SHOAL_OK;
    io->inputs = io->outputs = strcmp(self->describe, "tensor") == 0 ? &tensor : &any_message;
    io->input_count = io->output_count = 1;
    return SHOAL_OK;
}

static int
letters_load(void *instance, const struct shoal_model *spec, void **model,
             struct shoal_error *error)
{
    struct loaded *loaded = calloc(1, sizeof(*loaded));
    (void)instance;
    (void)error;
    if (loaded == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    snprintf(loaded->id, sizeof(loaded->id), "%s", spec->id);
    loaded->message = any_message;
    const char *bytes = strstr(spec->key, BYTES);
    if (bytes != NULL)
        loaded->message.shape[0] = strtoll(bytes + sizeof(BYTES) - 1, NULL, 10);
    *model = loaded;
    return SHOAL_OK;
}

static int
letters_describe_model(void *instance, void *model, struct shoal_io *io, struct shoal_error *error)
{
    const struct loaded *loaded = model;
    (void)instance;
    (void)error;
    io->inputs = &loaded->message;
    io->outputs = &any_message;
    io->input_count = io->output_count = 1;
    return SHOAL_OK;
}

static void
letters_unload(void *instance, void *model)
{
    (void)instance;
    free(model);
}

static const void *
letters_extension(const char *name)
{
    static const struct shoal_stream stream = {.struct_size = sizeof(stream)};
    return strcmp(name, "stream") == 0 ? &stream : NULL;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER,
    .abilities = SHOAL_RUNS_BATCHES | SHOAL_RUN_DURING_LOAD,
    .name = "letters",
    .version = "1",
    .open = letters_open,
    .describe = letters_describe,
    .describe_model = letters_describe_model,
    .load = letters_load,
    .unload = letters_unload,
    .run = letters_run,
    .close = letters_close,
    .extension = letters_extension,
};
