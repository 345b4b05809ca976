/* SPDX-License-Identifier: Apache-2.0 */
/* Does what each request says; probe.h. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shoal/modelet.h>

#include "probe.h"

#ifndef PROBE_ABILITIES
#define PROBE_ABILITIES SHOAL_RUNS_BATCHES
#endif

struct probe {
    const struct shoal_host *host;
    char trace[512];
    char fail[32];
    char describe[32];
    int64_t worker_index;
    int64_t runs;
    int64_t items;
};

static int loaded_model;

static void
trace(const struct probe *self, const char *what)
{
    int fd = self->trace[0] == '\0'
                 ? -1
                 : open(self->trace, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    dprintf(fd, "%s\n", what);
    close(fd);
}

static int
fails(const struct probe *self, const char *function, struct shoal_error *error)
{
    trace(self, function);
    if (strcmp(self->fail, function) != 0)
        return SHOAL_OK;
    snprintf(error->text, sizeof(error->text), "told to fail in %s", function);
    return SHOAL_OUT_OF_RANGE;
}

static int
probe_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    struct probe *self = calloc(1, sizeof(*self));
    if (self == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    self->host = open->host;
    self->worker_index = open->worker_index;
    for (uint32_t i = 0; i < open->param_count; i++) {
        const struct shoal_param *param = &open->params[i];
        if (strcmp(param->name, "fail") == 0)
            snprintf(self->fail, sizeof(self->fail), "%s", param->value);
        else if (strcmp(param->name, "describe") == 0)
            snprintf(self->describe, sizeof(self->describe), "%s", param->value);
        else if (strcmp(param->name, "trace") == 0)
            open->host->resolve_path(param->value, self->trace, sizeof(self->trace));
    }
    int status = fails(self, "open", error);
    if (status == SHOAL_OK)
        *instance = self;
    else
        free(self);
    return status;
}

static int
probe_describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    static const struct shoal_tensor_spec input = {
        .name = "probe", .datatype = SHOAL_INT64, .rank = 1, .shape = {PROBE_WORDS}};
    static const struct shoal_tensor_spec output = {
        .name = "probe", .datatype = SHOAL_INT64, .rank = 1, .shape = {-1}};
    static const struct shoal_tensor_spec nonsense = {.name = "probe", .datatype = 99};
    const struct probe *self = instance;
    if (self->describe[0] != '\0') {
        io->input_count = 1;
        io->output_count = 1;
        io->inputs = strcmp(self->describe, "nonsense") == 0 ? &nonsense : &input;
        io->outputs = &output;
        io->platform = "probe";
    }
    return fails(self, "describe", error);
}

static int
probe_load(void *instance, const struct shoal_model *spec, void **model, struct shoal_error *error)
{
    char line[256];
    snprintf(line, sizeof(line), "load id=%s path=%s key=%s", spec->id, spec->path, spec->key);
    trace(instance, line);
    *model = &loaded_model;
    return fails(instance, "load", error);
}

static void
probe_unload(void *instance, void *model)
{
    trace(instance, model == &loaded_model ? "unload" : "unload of something else");
}

static void
probe_close(void *instance)
{
    trace(instance, "close");
    free(instance);
}

static void
wait_ms(int64_t ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0)
        continue;
}

static int32_t
answer(struct probe *self, void *model, struct shoal_batch *batch, struct shoal_item *item)
{
    const int64_t *words = item->inputs[0].data;
    int64_t shape[] = {PROBE_END};
    int64_t *out = batch->host->output(item, "probe", SHOAL_INT64, 1, shape);
    if (out == NULL)
        return item->status;
    memcpy(out, words, PROBE_WORDS * sizeof(*out));
    out[PROBE_BATCH_COUNT] = batch->count;
    out[PROBE_RUNS] = self->runs;
    out[PROBE_ITEMS] = self->items;
    out[PROBE_WORKER] = self->worker_index;
    out[PROBE_PID] = getpid();
    out[PROBE_MODEL] = model == &loaded_model;
    struct shoal_parameter parameter;
    out[PROBE_PARAMETER_VALUE] =
        batch->host->parameter(item, "probe", &parameter) ? parameter.value.int64 : -1;
    return SHOAL_OK;
}

static int32_t
emit_piece(struct probe *self, struct shoal_batch *batch, struct shoal_item *item, int64_t number)
{
    enum { WIDE_BYTES = 3000, LARGE_BYTES = 600 << 10 };
    const int64_t *words = item->inputs[0].data;
    enum probe_ending ending = (enum probe_ending)(words[1] >> 32);
    if (ending == PROBE_END_WIDE || ending == PROBE_END_LARGE) {
        int64_t bytes[] = {ending == PROBE_END_LARGE ? LARGE_BYTES : WIDE_BYTES};
        uint8_t *large = batch->host->output(item, "large", SHOAL_UINT8, 1, bytes);
        if (large == NULL)
            return item->status;
        memset(large, (int)number, (size_t)bytes[0]);
    }
    if (ending == PROBE_END_WIDE && batch->host->forward(item, 0, "input") != SHOAL_OK)
        return item->status;
    int64_t shape[] = {PROBE_END};
    int64_t *out = batch->host->output(item, "probe", SHOAL_INT64, 1, shape);
    if (out == NULL)
        return item->status;
    memset(out, 0, PROBE_END * sizeof(*out));
    out[0] = words[0];
    out[1] = number;
    out[2] = words[2];
    out[PROBE_RUNS] = self->runs;
    out[PROBE_PID] = getpid();
    return batch->host->emit(item);
}

static void
wait_cancelled(struct shoal_batch *batch, struct shoal_item *item)
{
    while (!batch->host->cancelled(item))
        wait_ms(1);
}

/* SHOAL_UNSET: the answer is still to be given. */
static int32_t
emit_pieces(struct probe *self, struct shoal_batch *batch, struct shoal_item *item)
{
    const int64_t *words = item->inputs[0].data;
    int64_t pieces = words[1] & UINT16_MAX;
    int64_t pause_ms = words[1] >> 16 & UINT16_MAX;
    enum probe_ending ending = (enum probe_ending)(words[1] >> 32);
    int32_t status = SHOAL_OK;
    for (int64_t i = 0; status == SHOAL_OK && (i < pieces || ending == PROBE_END_ENDLESS); i++) {
        status = emit_piece(self, batch, item, i);
        if (pause_ms > 0)
            wait_ms(pause_ms);
    }
    if (status != SHOAL_OK)
        return status;
    switch (ending) {
    case PROBE_END_NOTHING: return SHOAL_OK;
    case PROBE_END_FAIL: return batch->host->fail(item, SHOAL_ABORTED, "told to fail at last");
    case PROBE_END_CRASH: raise(SIGSEGV); break;
    case PROBE_END_WAIT: wait_cancelled(batch, item); return SHOAL_CANCELLED;
    default: break;
    }
    return SHOAL_UNSET;
}

/* A call does not return, or not soon. */
static void
misbehave(struct shoal_batch *batch, struct shoal_item *item, const int64_t *words)
{
    switch (words[0]) {
    case PROBE_CRASH: raise(SIGSEGV); break;
    case PROBE_EXIT: _exit((int)words[1]);
    case PROBE_HANG:
        for (;;)
            wait_ms(1000);
    case PROBE_SLOW: wait_ms(words[1]); break;
    case PROBE_WAIT: wait_cancelled(batch, item); break;
    default: break;
    }
}

static int32_t
run_item(struct probe *self, void *model, struct shoal_batch *batch, struct shoal_item *item)
{
    const struct shoal_host *host = batch->host;
    const int64_t *words = item->inputs[0].data;
    int64_t bytes[] = {words[1]};
    misbehave(batch, item, words);
    switch (words[0]) {
    case PROBE_FAIL:
        return host->fail(item, (int32_t)words[1], "told to fail item %d", (int)words[2]);
    case PROBE_FAIL_SILENT: return (int32_t)words[1];
    case PROBE_UNSET: return SHOAL_UNSET;
    case PROBE_NO_OUTPUT: return SHOAL_OK;
    case PROBE_TWICE:
        answer(self, model, batch, item);
        answer(self, model, batch, item);
        return SHOAL_OK;
    case PROBE_TOO_LARGE: host->output(item, "large", SHOAL_UINT8, 1, bytes); return SHOAL_OK;
    case PROBE_WASTE:
        host->output(item, "waste", SHOAL_UINT8, 1, bytes);
        return host->fail(item, SHOAL_ABORTED, "told to waste");
    case PROBE_FORWARD: return host->forward(item, 0, "probe");
    case PROBE_FORWARD_BAD: host->forward(item, 7, "probe"); return SHOAL_OK;
    case PROBE_EMIT: {
        int32_t status = emit_pieces(self, batch, item);
        if (status != SHOAL_UNSET)
            return status;
        break;
    }
    case PROBE_LOG: host->log(SHOAL_LOG_WARN, "told to log %d", (int)words[1]); break;
    default: break;
    }
    return answer(self, model, batch, item);
}

static int
probe_run(void *instance, void *model, struct shoal_batch *batch)
{
    struct probe *self = instance;
    self->runs++;
    self->items += batch->count;
    int status = SHOAL_OK;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct shoal_item *item = batch->items[i];
        const struct shoal_tensor *input = &item->inputs[0];
        if (item->status != SHOAL_UNSET || item->input_count == 0 ||
            input->datatype != SHOAL_INT64 || input->bytes < PROBE_WORDS * sizeof(int64_t)) {
            item->status = batch->host->fail(item, SHOAL_INVALID_ARGUMENT, "not for the probe");
            continue;
        }
        const int64_t *words = input->data;
        item->status = run_item(self, model, batch, item);
        if (words[0] == PROBE_EMIT && words[1] >> 32 == PROBE_END_BATCH) {
            snprintf(batch->error->text, sizeof(batch->error->text), "told to fail the batch");
            status = SHOAL_ABORTED;
        }
        if (words[0] == PROBE_FAIL_BATCH) {
            snprintf(batch->error->text, sizeof(batch->error->text), "told to fail the batch");
            status = (int)words[1];
        }
    }
    return status;
}

static const void *
probe_extension(const char *name)
{
    static const struct shoal_stream stream = {.struct_size = sizeof(stream)};
    return strcmp(name, "stream") == 0 ? &stream : NULL;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER, .abilities = PROBE_ABILITIES, .name = "probe",
    .version = "7",       .open = probe_open,           .describe = probe_describe,
    .load = probe_load,   .unload = probe_unload,       .run = probe_run,
    .close = probe_close, .extension = probe_extension,
};
