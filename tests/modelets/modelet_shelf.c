/* SPDX-License-Identifier: Apache-2.0 */
/* Loads models that do what their key says; shelf.h. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <sys/socket.h>
#include <unistd.h>

#include <shoal/modelet.h>

#include "shelf.h"

#ifndef SHELF_ABILITIES
#define SHELF_ABILITIES (SHOAL_RUNS_BATCHES | SHOAL_RUN_DURING_LOAD)
#endif

enum { MODELS_SOCKET = 6 }; /* as a modelet can know that looks about */

struct shelf_model {
    int64_t number;
    char key[256];
    char *heap;
    char *aside;
    const char *data; /* of its file */
    size_t bytes;
};

struct shelf {
    const struct shoal_host *host;
    int64_t worker_index;
    int64_t runs;
    int64_t items;
    int64_t loaded;
};

static void *leaked[64];
static unsigned leaks;

struct text {
    char bytes[256];
};

/* A word of the key: its value, "" for one without. NULL: it is not there. (A thread-local buffer
 * would be allocated with the first model, and look like a leak of it.) */
static const char *
value(const char *key, const char *name, struct text *text)
{
    size_t length = strlen(name);
    for (const char *at = key; at != NULL && *at != '\0'; at = strchr(at, ' ')) {
        at += strspn(at, " ");
        if (strncmp(at, name, length) != 0 ||
            (at[length] != '=' && at[length] != ' ' && at[length] != '\0'))
            continue;
        at += length + (at[length] == '=');
        snprintf(text->bytes, sizeof text->bytes, "%.*s", (int)strcspn(at, " "), at);
        return text->bytes;
    }
    return NULL;
}

static bool
has(const char *key, const char *name)
{
    struct text text;
    return value(key, name, &text) != NULL;
}

static uint64_t
number(const char *key, const char *name)
{
    struct text text;
    return value(key, name, &text) != NULL ? strtoull(text.bytes, NULL, 10) : 0;
}

static void
wait_ms(int64_t ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0)
        continue;
}

static char *
touched(uint64_t bytes)
{
    char *memory = bytes > 0 ? malloc(bytes) : NULL;
    if (memory != NULL)
        memset(memory, 1, bytes);
    return memory;
}

static int
shelf_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    (void)error;
    struct shelf *self = calloc(1, sizeof *self);
    if (self == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    self->host = open->host;
    self->worker_index = open->worker_index;
    *instance = self;
    return SHOAL_OK;
}

static void
misbehave(const char *key)
{
    struct text text;
    const char *gate = value(key, "gate", &text);
    while (gate != NULL && access(gate, F_OK) != 0)
        wait_ms(1);
    if (has(key, "crash"))
        raise(SIGSEGV);
    if (has(key, "exit"))
        _exit(7);
    if (has(key, "lie") && send(MODELS_SOCKET, "lie", 3, 0) == 3)
        wait_ms(10000);
    while (has(key, "stuck"))
        wait_ms(1000);
}

static bool
opens(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool
loads_library(void)
{
    void *library = dlopen("libresolv.so.2", RTLD_NOW | RTLD_LOCAL);
    return library != NULL && dlclose(library) == 0;
}

static void *
return_at_once(void *argument)
{
    return argument;
}

static bool
makes_thread(void)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, return_at_once, NULL) == 0 &&
           pthread_join(thread, NULL) == 0;
}

static bool
makes_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool
forks(void)
{
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return child > 0;
}

static bool
makes_code(void)
{
    void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code != MAP_FAILED)
        return true;
    void *data = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED || mprotect(data, 4096, PROT_READ | PROT_EXEC) == 0;
}

static void
escape(const struct shoal_model *spec, struct shoal_error *error)
{
    const struct {
        const char *name;
        bool granted;
    } attempts[] = {
        {"read", opens(spec->path, O_RDONLY)},
        {"library", loads_library()},
        {"thread", makes_thread()},
        {"write", opens(spec->path, O_WRONLY)},
        {"passwd", opens("/etc/passwd", O_RDONLY)},
        {"socket", makes_socket()},
        {"fork", forks()},
        {"code", makes_code()},
        {"urgent", setpriority(PRIO_PROCESS, 0, -20) == 0},
    };
    snprintf(error->text, sizeof error->text, "granted:");
    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        size_t used = strlen(error->text);
        snprintf(error->text + used, sizeof error->text - used, "%s%s",
                 attempts[i].granted ? " " : "", attempts[i].granted ? attempts[i].name : "");
    }
}

static int
map(struct shelf *self, const struct shoal_model *spec, struct shelf_model *model,
    struct shoal_error *error)
{
    struct text text;
    const char *name = value(model->key, "map", &text);
    if (name == NULL)
        return SHOAL_OK;
    const void *data;
    int status =
        self->host->map_file(spec, name[0] != '\0' ? name : NULL, &data, &model->bytes, error);
    model->data = data;
    return status;
}

static int
shelf_load(void *instance, const struct shoal_model *spec, void **made, struct shoal_error *error)
{
    struct shelf *self = instance;
    const char *digits = strpbrk(spec->id, "0123456789");
    struct shelf_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    model->number = digits != NULL ? atoll(digits) : 0;
    snprintf(model->key, sizeof model->key, "%s", spec->key);
    misbehave(model->key);
    model->heap = touched(number(model->key, "heap"));
    if (number(model->key, "leak") > 0)
        leaked[leaks++ % 64] = touched(number(model->key, "leak"));
    int status = map(self, spec, model, error);
    if (has(model->key, "fail"))
        snprintf(error->text, sizeof error->text, "told to fail %s at %s", spec->id, spec->path);
    if (has(model->key, "escape"))
        escape(spec, error);
    if (has(model->key, "escape") || has(model->key, "fail") || has(model->key, "silent"))
        status = SHOAL_OUT_OF_RANGE;
    if (status != SHOAL_OK) {
        free(model->heap);
        free(model);
        return status;
    }
    self->loaded++;
    *made = model;
    return SHOAL_OK;
}

static int
shelf_describe_model(void *instance, void *loaded, struct shoal_io *io, struct shoal_error *error)
{
    static const struct shoal_tensor_spec input = {
        .name = "probe", .datatype = SHOAL_INT64, .rank = 1, .shape = {PROBE_WORDS}};
    static const struct shoal_tensor_spec nonsense = {.name = "probe", .datatype = 99};
    (void)instance;
    const struct shelf_model *model = loaded;
    struct text text;
    const char *how = value(model->key, "describe", &text);
    if (how == NULL)
        return SHOAL_OK;
    if (strcmp(how, "fail") == 0) {
        snprintf(error->text, sizeof error->text, "told not to describe");
        return SHOAL_FAILED_PRECONDITION;
    }
    io->input_count = 1;
    io->inputs = strcmp(how, "nonsense") == 0 ? &nonsense : &input;
    io->platform = "shelf";
    return SHOAL_OK;
}

static uint64_t
shelf_size(void *instance, void *loaded)
{
    (void)instance;
    return number(((struct shelf_model *)loaded)->key, "size");
}

static uint64_t
shelf_predict_size(void *instance, const struct shoal_model *spec)
{
    (void)instance;
    return number(spec->key, "predict");
}

static uint32_t
shelf_max_concurrency(void *instance, void *loaded)
{
    (void)instance;
    return (uint32_t)number(((struct shelf_model *)loaded)->key, "concurrency");
}

static void
shelf_unload(void *instance, void *loaded)
{
    struct shelf *self = instance;
    struct shelf_model *model = loaded;
    if (has(model->key, "crash_unload"))
        raise(SIGSEGV);
    if (has(model->key, "thief")) {
        struct shoal_model spec = {.struct_size = sizeof spec, .path = "/etc/passwd", .key = ""};
        struct shoal_error error = {{0}};
        const void *data;
        size_t bytes;
        int status = self->host->map_file(&spec, NULL, &data, &bytes, &error);
        self->host->log(SHOAL_LOG_WARN, "thief got %d: %s", status, error.text);
        if (status != SHOAL_FAILED_PRECONDITION)
            raise(SIGSEGV);
    }
    self->loaded--;
    free(model->aside);
    free(model->heap);
    free(model);
}

static int32_t
run_item(struct shelf *self, struct shelf_model *model, struct shoal_batch *batch,
         struct shoal_item *item)
{
    const int64_t *words = item->inputs[0].data;
    while (words[0] == PROBE_WAIT && !batch->host->cancelled(item))
        wait_ms(1);
    if (words[0] == PROBE_SLOW)
        wait_ms(words[1]);
    if (words[0] == PROBE_CRASH)
        raise(SIGSEGV);
    int64_t *out = batch->host->output(item, "probe", SHOAL_INT64, 1, (const int64_t[]){PROBE_END});
    if (out == NULL)
        return item->status;
    memcpy(out, words, PROBE_WORDS * sizeof *out);
    out[PROBE_BATCH_COUNT] = batch->count;
    out[PROBE_RUNS] = self->runs;
    out[PROBE_ITEMS] = self->items;
    out[PROBE_WORKER] = self->worker_index;
    out[PROBE_PID] = getpid();
    out[PROBE_MODEL] = model != NULL ? model->number : -1;
    out[PROBE_PARAMETER_VALUE] = model != NULL && model->data != NULL ? model->data[0] : 0;
    return SHOAL_OK;
}

static int
shelf_run(void *instance, void *loaded, struct shoal_batch *batch)
{
    struct shelf *self = instance;
    struct shelf_model *model = loaded;
    self->runs++;
    self->items += batch->count;
    if (model != NULL && number(model->key, "aside") > 0) {
        free(model->aside);
        model->aside = touched(number(model->key, "aside"));
    }
    if (model != NULL && has(model->key, "give")) {
        free(model->heap);
        model->heap = NULL;
    }
    for (uint32_t i = 0; i < batch->count; i++)
        batch->items[i]->status = run_item(self, model, batch, batch->items[i]);
    return SHOAL_OK;
}

static void
shelf_close(void *instance)
{
    struct shelf *self = instance;
    for (unsigned i = 0; i < leaks && i < 64; i++)
        free(leaked[i]); /* the host was to see them, not the sanitizer */
    free(self);
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER,
    .abilities = SHELF_ABILITIES,
    .name = "shelf",
    .version = "1",
    .open = shelf_open,
    .load = shelf_load,
    .unload = shelf_unload,
    .describe_model = shelf_describe_model,
    .size = shelf_size,
    .predict_size = shelf_predict_size,
    .max_concurrency = shelf_max_concurrency,
    .run = shelf_run,
    .close = shelf_close,
};
