/* SPDX-License-Identifier: Apache-2.0 */
#include <shoal/harness.h>

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/model_files.h" /* the service's own map_file */
#include "worker/modelet.h"     /* and its check of a modelet */

enum { ALIGNMENT = 64, GUARD_BYTES = 64, GUARD = 0xa5, UNWRITTEN = 0xcb };

struct shoal_harness {
    void *library;
    struct shoal_modelet modelet;
    void *instance;
    void *model; /* loaded; NULL: none */
    struct model_files files;
    struct shoal_harness_item *items;
    size_t output_bytes_max;
    size_t output_bytes;
    uint64_t runs;
};

/* The host functions without an item have no argument that says which harness they serve. */
static const char *current_folder;

__attribute__((format(printf, 1, 2))) static _Noreturn void
harness_fail(const char *format, ...)
{
    va_list arguments;
    fputs("harness: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

/* ---- memory: aligned, and followed by bytes that must not change ---- */

static void *
block_create(size_t bytes)
{
    size_t room = (bytes + GUARD_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    unsigned char *block = aligned_alloc(ALIGNMENT, room);
    if (block == NULL)
        harness_fail("out of memory");
    memset(block, UNWRITTEN, bytes);
    memset(block + bytes, GUARD, GUARD_BYTES);
    return block;
}

static void
block_check(const struct shoal_tensor *tensor)
{
    const unsigned char *guard = (const unsigned char *)tensor->data + tensor->bytes;
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (guard[i] != GUARD)
            harness_fail("the modelet wrote %zu bytes behind tensor \"%s\"", i + 1, tensor->name);
    }
}

/* ---- the host table ---- */

static struct shoal_harness_item *
of_item(struct shoal_item *item)
{
    return (struct shoal_harness_item *)item;
}

__attribute__((format(printf, 3, 4))) static int32_t
host_fail(struct shoal_item *item, int32_t status, const char *format, ...)
{
    struct shoal_error *error = &of_item(item)->error;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    item->status = status == SHOAL_OK || status == SHOAL_UNSET ? SHOAL_UNKNOWN : status;
    return item->status;
}

static struct shoal_tensor *
output_add(struct shoal_harness_item *self, const char *name, uint32_t datatype, uint32_t rank,
           const int64_t *shape)
{
    const char *mistake = NULL;
    if (shoal_harness_output(self, name) != NULL)
        mistake = "is there already";
    else if (strlen(name) > SHOAL_NAME_BYTES_MAX)
        mistake = "has too long a name";
    else if (datatype == 0 || datatype >= SHOAL_DATATYPE_END)
        mistake = "has a datatype that does not exist";
    else if (rank > SHOAL_RANK_MAX)
        mistake = "has too many dimensions";
    else if (self->output_count == SHOAL_TENSORS_MAX)
        mistake = "is one too many";
    if (mistake != NULL) {
        host_fail(&self->item, SHOAL_INTERNAL, "output tensor \"%s\" %s", name, mistake);
        return NULL;
    }
    struct shoal_tensor *output = &self->outputs[self->output_count++];
    *output = (struct shoal_tensor){.name = strdup(name), .datatype = datatype, .rank = rank};
    for (uint32_t i = 0; i < rank; i++)
        output->shape[i] = shape[i];
    return output;
}

static void *
host_output_bytes(struct shoal_item *item, const char *name, uint32_t datatype, uint32_t rank,
                  const int64_t *shape, size_t bytes)
{
    struct shoal_harness *harness = of_item(item)->harness;
    if (bytes > harness->output_bytes_max - harness->output_bytes) {
        host_fail(item, SHOAL_RESOURCE_EXHAUSTED, "no room for output tensor \"%s\"", name);
        return NULL;
    }
    struct shoal_tensor *output = output_add(of_item(item), name, datatype, rank, shape);
    if (output == NULL)
        return NULL;
    harness->output_bytes += bytes;
    output->data = block_create(bytes);
    output->bytes = bytes;
    return output->data;
}

static void *
host_output(struct shoal_item *item, const char *name, uint32_t datatype, uint32_t rank,
            const int64_t *shape)
{
    struct shoal_tensor tensor = {.rank = rank};
    for (uint32_t i = 0; i < rank && i < SHOAL_RANK_MAX; i++)
        tensor.shape[i] = shape[i];
    size_t bytes = rank > SHOAL_RANK_MAX ? 0 : shoal_tensor_elements(&tensor);
    return host_output_bytes(item, name, datatype, rank, shape,
                             bytes * shoal_datatype_bytes(datatype));
}

static int32_t
host_forward(struct shoal_item *item, uint32_t index, const char *name)
{
    if (index >= item->input_count)
        return host_fail(item, SHOAL_INTERNAL, "there is no input %u to forward", index);
    const struct shoal_tensor *input = &item->inputs[index];
    struct shoal_tensor *output =
        output_add(of_item(item), name, input->datatype, input->rank, input->shape);
    if (output == NULL)
        return item->status;
    output->data = input->data;
    output->bytes = input->bytes;
    return SHOAL_OK;
}

static int
host_parameter(struct shoal_item *item, const char *name, struct shoal_parameter *value)
{
    const char *known = of_item(item)->parameter_name;
    if (known == NULL || strcmp(known, name) != 0)
        return 0;
    *value = of_item(item)->parameter;
    return 1;
}

static int
host_cancelled(struct shoal_item *item)
{
    return of_item(item)->cancelled;
}

__attribute__((format(printf, 2, 3))) static void
host_log(enum shoal_log_level level, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("modelet log %d: ", (int)level);
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

static int32_t
host_resolve_path(const char *path, char *resolved, size_t room)
{
    bool absolute = path[0] == '/';
    int length = snprintf(resolved, room, "%s%s%s", absolute ? "" : current_folder,
                          absolute ? "" : "/", path);
    return length >= 0 && (size_t)length < room ? SHOAL_OK : SHOAL_OUT_OF_RANGE;
}

/* Returns whether it is a forwarded input. */
static bool
is_input(const struct shoal_harness_item *item, const struct shoal_tensor *output)
{
    for (uint32_t k = 0; k < item->item.input_count; k++)
        if (output->data == item->inputs[k].data)
            return true;
    return false;
}

static void
outputs_drop(struct shoal_harness_item *item)
{
    for (uint32_t i = 0; i < item->output_count; i++) {
        struct shoal_tensor *output = &item->outputs[i];
        if (!is_input(item, output))
            free(output->data);
        free((void *)(uintptr_t)output->name);
    }
    item->output_count = 0;
}

/* The piece goes to the test's function, if there is one. */
static int32_t
host_emit(struct shoal_item *item)
{
    struct shoal_harness_item *self = of_item(item);
    if (self->harness->modelet.extension == NULL ||
        self->harness->modelet.extension("stream") == NULL)
        return host_fail(item, SHOAL_FAILED_PRECONDITION,
                         "the modelet emits without extension(\"stream\")");
    if (self->cancelled)
        return host_fail(item, SHOAL_CANCELLED, "cancelled");
    if (self->output_count == 0)
        return host_fail(item, SHOAL_INVALID_ARGUMENT, "a piece without outputs");
    for (uint32_t i = 0; i < self->output_count; i++)
        if (!is_input(self, &self->outputs[i]))
            block_check(&self->outputs[i]);
    self->piece_count++;
    if (self->on_piece != NULL)
        self->on_piece(self);
    outputs_drop(self);
    return SHOAL_OK;
}

static const struct shoal_host host = {
    .abi_version = SHOAL_ABI_VERSION,
    .struct_size = sizeof(struct shoal_host),
    .output = host_output,
    .output_bytes = host_output_bytes,
    .forward = host_forward,
    .fail = host_fail,
    .parameter = host_parameter,
    .cancelled = host_cancelled,
    .log = host_log,
    .resolve_path = host_resolve_path,
    .map_file = host_map_file,
    .emit = host_emit,
};

/* ---- life of the modelet ---- */

static int
refuse(struct shoal_error *error, const char *what)
{
    snprintf(error->text, sizeof error->text, "%.*s", (int)sizeof error->text - 1, what);
    return SHOAL_FAILED_PRECONDITION;
}

static int
modelet_open(struct shoal_harness *self, const struct shoal_harness_options *options,
             struct shoal_error *error)
{
    if (self->library == NULL)
        return refuse(error, dlerror());
    const void *symbol = dlsym(self->library, "shoal_modelet");
    if (symbol == NULL)
        return refuse(error, dlerror());
    struct error why = ERROR_NONE;
    if (modelet_table_read(&self->modelet, symbol, &why) != STATUS_OK)
        return refuse(error, why.text);
    if (self->modelet.open == NULL)
        return SHOAL_OK;
    current_folder = options->folder;
    struct shoal_open open = {
        .struct_size = sizeof open,
        .param_count = options->param_count,
        .params = options->params,
        .host = &host,
        .batch_size = options->batch_size,
        .worker_count = 1,
    };
    return self->modelet.open(&open, &self->instance, error);
}

int
shoal_harness_open(const struct shoal_harness_options *options, struct shoal_harness **harness,
                   struct shoal_error *error)
{
    struct shoal_harness *self = calloc(1, sizeof *self);
    if (self == NULL)
        harness_fail("out of memory");
    *error = (struct shoal_error){{0}};
    self->output_bytes_max = SIZE_MAX;
    self->library = dlopen(options->path, RTLD_NOW | RTLD_LOCAL);
    int status = modelet_open(self, options, error);
    if (status != SHOAL_OK) {
        if (self->library != NULL)
            dlclose(self->library);
        free(self);
        self = NULL;
    }
    *harness = self;
    return status;
}

int
shoal_harness_load(struct shoal_harness *harness, const char *path, struct shoal_error *error)
{
    *error = (struct shoal_error){{0}};
    if (harness->model != NULL)
        harness->modelet.unload(harness->instance, harness->model);
    harness->model = NULL;
    model_files_unmap(&harness->files);
    if (path == NULL)
        return SHOAL_OK;
    const struct shoal_model spec = {
        .struct_size = sizeof spec, .id = "m", .path = path, .key = ""};
    model_files_prepare();
    model_files_begin(&harness->files, &spec, NULL);
    int status = harness->modelet.load(harness->instance, &spec, &harness->model, error);
    model_files_end(&harness->files);
    if (status != SHOAL_OK)
        model_files_unmap(&harness->files);
    return status;
}

void
shoal_harness_close(struct shoal_harness *harness)
{
    struct shoal_error error;
    shoal_harness_load(harness, NULL, &error);
    if (harness->modelet.close != NULL)
        harness->modelet.close(harness->instance);
    while (harness->items != NULL) {
        struct shoal_harness_item *item = harness->items;
        harness->items = item->next;
        outputs_drop(item);
        for (uint32_t i = 0; i < item->item.input_count; i++) {
            free(item->inputs[i].data);
            free((void *)(uintptr_t)item->inputs[i].name);
        }
        free(item);
    }
    dlclose(harness->library);
    free(harness);
}

const struct shoal_modelet *
shoal_harness_modelet(const struct shoal_harness *harness)
{
    return &harness->modelet;
}

struct shoal_io
shoal_harness_describe(struct shoal_harness *harness)
{
    struct shoal_io io = {.struct_size = sizeof io};
    struct shoal_error error = {{0}};
    if (harness->modelet.describe != NULL &&
        harness->modelet.describe(harness->instance, &io, &error) != SHOAL_OK)
        harness_fail("describe failed: %s", error.text);
    return io;
}

struct shoal_io
shoal_harness_describe_model(struct shoal_harness *harness)
{
    struct shoal_io io = {.struct_size = sizeof io};
    struct shoal_error error = {{0}};
    if (harness->modelet.describe_model(harness->instance, harness->model, &io, &error) != SHOAL_OK)
        harness_fail("describe_model failed: %s", error.text);
    return io;
}

uint64_t
shoal_harness_predict_size(struct shoal_harness *harness, const char *path)
{
    const struct shoal_model spec = {
        .struct_size = sizeof spec, .id = "m", .path = path, .key = ""};
    return harness->modelet.predict_size(harness->instance, &spec);
}

void
shoal_harness_limit(struct shoal_harness *harness, size_t output_bytes_max)
{
    harness->output_bytes_max = output_bytes_max;
}

/* ---- items ---- */

struct shoal_harness_item *
shoal_harness_item(struct shoal_harness *harness)
{
    struct shoal_harness_item *item = calloc(1, sizeof *item);
    if (item == NULL)
        harness_fail("out of memory");
    item->item.status = SHOAL_UNSET;
    item->item.inputs = item->inputs;
    item->item.deadline_ns = INT64_MAX;
    item->harness = harness;
    item->next = harness->items;
    harness->items = item;
    return item;
}

static void
input_add(struct shoal_harness_item *item, struct shoal_tensor tensor, const int64_t *shape,
          const void *data)
{
    if (item->item.input_count >= SHOAL_TENSORS_MAX || tensor.rank > SHOAL_RANK_MAX)
        harness_fail("an item has at most %d inputs, of rank %d at most", SHOAL_TENSORS_MAX,
                     SHOAL_RANK_MAX);
    for (uint32_t i = 0; i < tensor.rank; i++)
        tensor.shape[i] = shape[i];
    if (tensor.datatype != SHOAL_BYTES)
        tensor.bytes = shoal_tensor_elements(&tensor) * shoal_datatype_bytes(tensor.datatype);
    tensor.name = strdup(tensor.name);
    tensor.data = block_create(tensor.bytes);
    if (tensor.bytes > 0)
        memcpy(tensor.data, data, tensor.bytes);
    item->inputs[item->item.input_count++] = tensor;
}

void
shoal_harness_input(struct shoal_harness_item *item, const char *name, uint32_t datatype,
                    uint32_t rank, const int64_t *shape, const void *data)
{
    input_add(item, (struct shoal_tensor){.name = name, .datatype = datatype, .rank = rank}, shape,
              data);
}

void
shoal_harness_input_bytes(struct shoal_harness_item *item, const char *name, uint32_t rank,
                          const int64_t *shape, const void *data, size_t bytes)
{
    struct shoal_tensor tensor = {.name = name, .datatype = SHOAL_BYTES, .rank = rank};
    tensor.bytes = bytes;
    input_add(item, tensor, shape, data);
}

struct shoal_harness_item *
shoal_harness_forward(const struct shoal_harness_item *item, struct shoal_harness *next)
{
    if (item->item.status != SHOAL_OK)
        harness_fail("only an item that succeeded goes on; this one has status %d: %s",
                     item->item.status, item->error.text);
    struct shoal_harness_item *forwarded = shoal_harness_item(next);
    for (uint32_t i = 0; i < item->output_count; i++)
        input_add(forwarded, item->outputs[i], item->outputs[i].shape, item->outputs[i].data);
    return forwarded;
}

const struct shoal_tensor *
shoal_harness_output(const struct shoal_harness_item *item, const char *name)
{
    for (uint32_t i = 0; i < item->output_count; i++) {
        if (strcmp(item->outputs[i].name, name) == 0)
            return &item->outputs[i];
    }
    return NULL;
}

/* ---- running ---- */

/* A sum of all inputs' bytes, to see whether they were changed. */
static uint64_t
inputs_sum(const struct shoal_harness_item *item)
{
    uint64_t sum = 14695981039346656037u; /* FNV-1a */
    for (uint32_t i = 0; i < item->item.input_count; i++) {
        const unsigned char *bytes = item->inputs[i].data;
        for (size_t k = 0; k < item->inputs[i].bytes; k++)
            sum = (sum ^ bytes[k]) * 1099511628211u;
    }
    return sum;
}

static void
item_finish(const struct shoal_harness *harness, struct shoal_harness_item *item,
            uint64_t sum_before)
{
    for (uint32_t i = 0; i < item->item.input_count; i++)
        block_check(&item->inputs[i]);
    for (uint32_t i = 0; i < item->output_count; i++)
        block_check(&item->outputs[i]);
    if (!(harness->modelet.abilities & SHOAL_CHANGES_INPUTS) && inputs_sum(item) != sum_before)
        harness_fail("the modelet changed its inputs and has not declared it");
    if (item->item.status < SHOAL_UNSET || item->item.status > SHOAL_UNAUTHENTICATED)
        harness_fail("the modelet set status %d, which does not exist", item->item.status);
    if (item->item.status == SHOAL_UNSET)
        host_fail(&item->item, SHOAL_INTERNAL, "the modelet left the item unset");
    if (item->item.status != SHOAL_OK)
        outputs_drop(item);
}

static void
run_or_halve(struct shoal_harness *harness, struct shoal_harness_item *const *items, uint32_t count)
{
    struct shoal_item *seen[SHOAL_HARNESS_BATCH_MAX];
    uint64_t sums[SHOAL_HARNESS_BATCH_MAX];
    for (uint32_t i = 0; i < count; i++) {
        outputs_drop(items[i]);
        items[i]->item.status = SHOAL_UNSET;
        seen[i] = &items[i]->item;
        sums[i] = inputs_sum(items[i]);
    }
    struct shoal_error error = {{0}};
    struct shoal_batch batch = {.host = &host, .count = count, .items = seen, .error = &error};
    harness->output_bytes = 0;
    harness->runs++;
    int status = harness->modelet.run(harness->instance, harness->model, &batch);
    if (status != SHOAL_OK && count > 1) {
        run_or_halve(harness, items, count / 2);
        run_or_halve(harness, items + count / 2, count - count / 2);
        return;
    }
    if (status != SHOAL_OK)
        host_fail(&items[0]->item, status, "%s", error.text);
    for (uint32_t i = 0; i < count; i++)
        item_finish(harness, items[i], sums[i]);
}

void
shoal_harness_run(struct shoal_harness *harness, struct shoal_harness_item *const *items,
                  uint32_t count)
{
    if (count < 1 || count > SHOAL_HARNESS_BATCH_MAX)
        harness_fail("a batch has 1 to %d items, not %u", SHOAL_HARNESS_BATCH_MAX, count);
    if (harness->modelet.abilities & SHOAL_RUNS_BATCHES) {
        run_or_halve(harness, items, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        run_or_halve(harness, items + i, 1);
}

uint64_t
shoal_harness_runs(const struct shoal_harness *harness)
{
    return harness->runs;
}
