/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/modelet.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "worker/model_files.h"

/*
 * The sizes of ABI version 1 as first released. Structures only grow at their end, so a plug-in
 * compiled with any header of version 1 has sizes between these and ours. Tensors are in arrays
 * that both sides step through, so their size cannot change within a version.
 */
enum {
    MODELET_BYTES_FIRST = 120,
    HOST_BYTES_FIRST = 72,
    BATCH_BYTES_FIRST = 32,
    ITEM_BYTES_FIRST = 24,
    TENSOR_BYTES = 96,
};

_Static_assert(sizeof(struct shoal_modelet) >= MODELET_BYTES_FIRST, "only grows");
_Static_assert(sizeof(struct shoal_host) >= HOST_BYTES_FIRST, "only grows");
_Static_assert(sizeof(struct shoal_batch) >= BATCH_BYTES_FIRST, "only grows");
_Static_assert(sizeof(struct shoal_item) >= ITEM_BYTES_FIRST, "only grows");
_Static_assert(sizeof(struct shoal_tensor) == TENSOR_BYTES, "stands in arrays");

const char *
modelet_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* ---- judging the table ---- */

static enum status
sizes_check(const struct shoal_modelet *table, struct error *error)
{
    const struct {
        const char *field;
        uint32_t theirs;
        uint32_t least;
        size_t ours;
    } sizes[] = {
        {"struct_size", table->struct_size, MODELET_BYTES_FIRST, sizeof(struct shoal_modelet)},
        {"host_size", table->host_size, HOST_BYTES_FIRST, sizeof(struct shoal_host)},
        {"batch_size", table->batch_size, BATCH_BYTES_FIRST, sizeof(struct shoal_batch)},
        {"item_size", table->item_size, ITEM_BYTES_FIRST, sizeof(struct shoal_item)},
        {"tensor_size", table->tensor_size, TENSOR_BYTES, sizeof(struct shoal_tensor)},
    };
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        if (sizes[i].theirs > sizes[i].ours)
            return error_set(error, STATUS_FAILED_PRECONDITION,
                             "shoal_modelet.%s is %u, this worker knows %zu: it was compiled with "
                             "a newer header",
                             sizes[i].field, sizes[i].theirs, sizes[i].ours);
        if (sizes[i].theirs < sizes[i].least)
            return error_set(error, STATUS_FAILED_PRECONDITION,
                             "shoal_modelet.%s is %u, at least %u was expected: is "
                             "SHOAL_MODELET_HEADER missing?",
                             sizes[i].field, sizes[i].theirs, sizes[i].least);
    }
    return STATUS_OK;
}

static enum status
fields_check(const struct shoal_modelet *table, struct error *error)
{
    uint32_t unknown = table->abilities & ~(uint32_t)SHOAL_ABILITIES_ALL;
    if (unknown != 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "shoal_modelet.abilities has bits %#x, which this worker does not know",
                         unknown);
    if (table->name == NULL || table->name[0] == '\0')
        return error_set(error, STATUS_FAILED_PRECONDITION, "shoal_modelet.name is missing");
    if (strlen(table->name) >= HANDSHAKE_NAME_BYTES)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "shoal_modelet.name has %zu bytes; at most %d", strlen(table->name),
                         HANDSHAKE_NAME_BYTES - 1);
    if (table->version != NULL && strlen(table->version) >= HANDSHAKE_NAME_BYTES)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "shoal_modelet.version has %zu bytes; at most %d", strlen(table->version),
                         HANDSHAKE_NAME_BYTES - 1);
    if (table->run == NULL)
        return error_set(error, STATUS_FAILED_PRECONDITION, "shoal_modelet.run is missing");
    return STATUS_OK;
}

/* Finds the symbol's real size, beyond which a table's own size is not trusted. */
static enum status
symbol_bytes(const void *symbol, size_t *bytes, struct error *error)
{
    Dl_info info;
    const ElfW(Sym) *entry = NULL;
    void *extra = NULL;
    if (dladdr1(symbol, &info, &extra, RTLD_DL_SYMENT) != 0)
        entry = extra;
    if (entry == NULL || ELF64_ST_TYPE(entry->st_info) != STT_OBJECT)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "symbol \"shoal_modelet\" is not a struct shoal_modelet");
    *bytes = entry->st_size;
    return STATUS_OK;
}

enum status
modelet_table_read(struct shoal_modelet *table, const void *symbol, struct error *error)
{
    size_t bytes = 0;
    enum status status = symbol_bytes(symbol, &bytes, error);
    if (status != STATUS_OK)
        return status;
    memset(table, 0, sizeof(*table));
    size_t sizes_bytes = offsetof(struct shoal_modelet, abilities);
    memcpy(table, symbol, bytes < sizes_bytes ? bytes : sizes_bytes);
    if (table->abi_version != SHOAL_ABI_VERSION)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "shoal_modelet.abi_version is %u, this worker speaks %u",
                         table->abi_version, SHOAL_ABI_VERSION);
    status = sizes_check(table, error);
    if (status != STATUS_OK)
        return status;
    if (table->struct_size > bytes)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "shoal_modelet.struct_size is %u, but the symbol has %zu bytes",
                         table->struct_size, bytes);
    memcpy(table, symbol, table->struct_size);
    return fields_check(table, error);
}

enum status
modelet_load_file(struct modelet *modelet, const char *path, struct error *error)
{
    *modelet = (struct modelet){.opened = false};
    if (path[0] != '/')
        return error_set(error, STATUS_INVALID_ARGUMENT, "modelet path \"%s\" is not absolute",
                         path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) /* the text names the file */
        return error_set(error, STATUS_FAILED_PRECONDITION, "%s", dlerror());
    const void *symbol = dlsym(library, "shoal_modelet");
    enum status status;
    if (symbol == NULL)
        status = error_set(error, STATUS_FAILED_PRECONDITION, "no symbol \"shoal_modelet\"");
    else
        status = modelet_table_read(&modelet->table, symbol, error);
    if (status == STATUS_OK)
        return STATUS_OK;
    dlclose(library);
    return error_prefix(error, "%s", modelet_file_name(path));
}

enum status
modelet_suits(const struct modelet *modelet, const struct handshake_start *start,
              struct error *error)
{
    const struct shoal_modelet *table = &modelet->table;
    const char *file = modelet_file_name(start->modelet_path);
    if (start->batch_size > 1 && !(table->abilities & SHOAL_RUNS_BATCHES))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "%s: batch_size is %u, but the modelet runs single items only (its "
                         "abilities lack SHOAL_RUNS_BATCHES)",
                         file, start->batch_size);
    if (table->workers_max != 0 && start->worker_count > table->workers_max)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "%s: %u workers, but shoal_modelet.workers_max is %u", file,
                         start->worker_count, table->workers_max);
    if (start->model_id[0] != '\0' && table->load == NULL)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "%s: model \"%s\" is configured, but shoal_modelet.load is missing", file,
                         start->model_id);
    return STATUS_OK;
}

/* ---- starting ---- */

/* Converts the plug-in's return value into our error, with its own code and text. */
static enum status
foreign_error(struct error *error, int status, struct shoal_error *theirs, const char *file,
              const char *function)
{
    theirs->text[sizeof(theirs->text) - 1] = '\0';
    const char *text = theirs->text[0] != '\0' ? theirs->text : "it gave no reason";
    enum status ours = status_from_number(status);
    return error_set(error, ours, "%s: %s failed (%s): %s", file, function, status_name(ours),
                     text);
}

static enum status
open_instance(struct modelet *modelet, const struct handshake_start *start,
              const struct shoal_host *host, const char *file, struct error *error)
{
    modelet->opened = true;
    if (modelet->table.open == NULL)
        return STATUS_OK;
    struct shoal_param params[HANDSHAKE_PARAMS_MAX];
    for (uint32_t i = 0; i < start->param_count; i++)
        params[i] = (struct shoal_param){start->params[i].name, start->params[i].value};
    struct shoal_open open = {
        .struct_size = sizeof(open),
        .param_count = start->param_count,
        .params = params,
        .host = host,
        .batch_size = start->batch_size,
        .worker_index = start->worker_index,
        .worker_count = start->worker_count,
        .script = start->script[0] != '\0' ? start->script : NULL,
    };
    struct shoal_error theirs = {{0}};
    int status = modelet->table.open(&open, &modelet->instance, &theirs);
    if (status == SHOAL_OK)
        return STATUS_OK;
    modelet->opened = false;
    return foreign_error(error, status, &theirs, file, "open");
}

static enum status
copy_specs(const struct shoal_tensor_spec *specs, uint32_t count, struct handshake_tensor *tensors,
           const char *field, struct error *error)
{
    if (count > SHOAL_TENSORS_MAX || (count > 0 && specs == NULL))
        return error_set(error, STATUS_FAILED_PRECONDITION, "shoal_io.%s: %u tensors%s; at most %d",
                         field, count, specs == NULL ? " at NULL" : "", SHOAL_TENSORS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const char *name = specs[i].name != NULL ? specs[i].name : "";
        size_t bytes = strnlen(name, SHOAL_NAME_BYTES_MAX + 1);
        bool any_rank = specs[i].rank == SHOAL_RANK_ANY;
        if (bytes > SHOAL_NAME_BYTES_MAX || (specs[i].rank > SHOAL_RANK_MAX && !any_rank))
            return error_set(error, STATUS_FAILED_PRECONDITION,
                             "shoal_io.%s[%u]: a name has at most %d bytes, a rank is at most %d",
                             field, i, SHOAL_NAME_BYTES_MAX, SHOAL_RANK_MAX);
        memcpy(tensors[i].name, name, bytes);
        tensors[i].datatype = specs[i].datatype;
        tensors[i].rank = specs[i].rank;
        if (!any_rank)
            memcpy(tensors[i].shape, specs[i].shape, specs[i].rank * sizeof(specs[i].shape[0]));
    }
    return STATUS_OK;
}

/* The destination of a description: a message about the modelet or about a model. */
struct description {
    uint32_t *input_count;
    uint32_t *output_count;
    struct handshake_tensor *inputs;
    struct handshake_tensor *outputs;
    char *platform; /* HANDSHAKE_NAME_BYTES */
};

static enum status
copy_io(const struct shoal_io *io, const struct description *to, struct error *error)
{
    enum status status = copy_specs(io->inputs, io->input_count, to->inputs, "inputs", error);
    if (status == STATUS_OK)
        status = copy_specs(io->outputs, io->output_count, to->outputs, "outputs", error);
    if (status != STATUS_OK)
        return status;
    *to->input_count = io->input_count;
    *to->output_count = io->output_count;
    const char *platform = io->platform != NULL ? io->platform : "";
    if (strlen(platform) >= HANDSHAKE_NAME_BYTES)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "shoal_io.platform has %zu bytes; at most %d", strlen(platform),
                         HANDSHAKE_NAME_BYTES - 1);
    snprintf(to->platform, HANDSHAKE_NAME_BYTES, "%s", platform);
    return STATUS_OK;
}

static enum status
take_io(const struct shoal_io *io, struct handshake_ready *ready, const char *file,
        const char *function, struct error *error)
{
    const struct description to = {&ready->input_count, &ready->output_count, ready->inputs,
                                   ready->outputs, ready->platform};
    enum status status = copy_io(io, &to, error);
    if (status == STATUS_OK)
        status = handshake_ready_validate(ready, error);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "%s: %s", file, function);
}

static enum status
describe_instance(struct modelet *modelet, const char *file, struct handshake_ready *ready,
                  struct error *error)
{
    const struct shoal_modelet *table = &modelet->table;
    *ready = (struct handshake_ready){
        .header = {HANDSHAKE_VERSION, HANDSHAKE_READY, sizeof(*ready), 0},
        .functions = (table->load != NULL ? (uint32_t)HANDSHAKE_LOADS : 0) |
                     (table->predict_size != NULL ? (uint32_t)HANDSHAKE_PREDICTS : 0) |
                     (modelet->streams ? (uint32_t)HANDSHAKE_STREAMS : 0),
        .abilities = table->abilities,
        .workers_max = table->workers_max,
    };
    snprintf(ready->name, sizeof(ready->name), "%s", table->name);
    snprintf(ready->modelet_version, sizeof(ready->modelet_version), "%s",
             table->version != NULL ? table->version : "");
    struct shoal_io io = {.struct_size = sizeof(io)};
    struct shoal_error theirs = {{0}};
    int status =
        table->describe == NULL ? SHOAL_OK : table->describe(modelet->instance, &io, &theirs);
    if (status != SHOAL_OK)
        return foreign_error(error, status, &theirs, file, "describe");
    return take_io(&io, ready, file, "describe", error);
}

static enum status
load_model(struct modelet *modelet, const struct handshake_start *start, const char *file,
           struct error *error)
{
    if (start->model_id[0] == '\0')
        return STATUS_OK;
    struct shoal_model spec = {
        .struct_size = sizeof(spec),
        .id = start->model_id,
        .path = start->model_path,
        .key = start->model_key,
    };
    struct shoal_error theirs = {{0}};
    model_files_prepare();
    model_files_begin(&modelet->files, &spec, NULL);
    int status = modelet->table.load(modelet->instance, &spec, &modelet->model, &theirs);
    model_files_end(&modelet->files);
    if (status != SHOAL_OK) {
        model_files_unmap(&modelet->files);
        enum status ours = foreign_error(error, status, &theirs, file, "load");
        error_prefix(error, "model \"%s\"", start->model_id);
        return ours;
    }
    modelet->loaded = true;
    return STATUS_OK;
}

/* The tensors of the stage's own model are those of the stage. */
static enum status
describe_own_model(struct modelet *modelet, const char *file, struct handshake_ready *ready,
                   struct error *error)
{
    if (!modelet->loaded || modelet->table.describe_model == NULL)
        return STATUS_OK;
    struct shoal_io io = {.struct_size = sizeof(io)};
    struct shoal_error theirs = {{0}};
    int status = modelet->table.describe_model(modelet->instance, modelet->model, &io, &theirs);
    if (status != SHOAL_OK)
        return foreign_error(error, status, &theirs, file, "describe_model");
    return take_io(&io, ready, file, "describe_model", error);
}

/* Returns whether the modelet has the extension, in a form that we know. */
static bool
has_stream(const struct shoal_modelet *table)
{
    const struct shoal_stream *stream =
        table->extension == NULL ? NULL : table->extension("stream");
    return stream != NULL && stream->struct_size >= sizeof(*stream);
}

enum status
modelet_start(struct modelet *modelet, const struct handshake_start *start,
              const struct shoal_host *host, struct handshake_ready *ready, struct error *error)
{
    const char *file = modelet_file_name(start->modelet_path);
    modelet->streams = has_stream(&modelet->table);
    enum status status = open_instance(modelet, start, host, file, error);
    if (status == STATUS_OK)
        status = describe_instance(modelet, file, ready, error);
    if (status == STATUS_OK)
        status = load_model(modelet, start, file, error);
    if (status == STATUS_OK)
        status = describe_own_model(modelet, file, ready, error);
    if (status != STATUS_OK)
        modelet_stop(modelet);
    return status;
}

void
modelet_stop(struct modelet *modelet)
{
    if (modelet->loaded && modelet->table.unload != NULL)
        modelet->table.unload(modelet->instance, modelet->model);
    model_files_unmap(&modelet->files);
    if (modelet->opened && modelet->table.close != NULL)
        modelet->table.close(modelet->instance);
    modelet->loaded = false;
    modelet->opened = false;
}

/* ---- models that come and go ---- */

/* The modelet's text alone: it goes to the requester of the model. */
static enum status
model_error(const struct modelet *modelet, int status, struct shoal_error *theirs,
            const char *function, struct error *error)
{
    theirs->text[sizeof(theirs->text) - 1] = '\0';
    enum status ours = status_from_number(status);
    if (theirs->text[0] != '\0')
        return error_set(error, ours, "%s", theirs->text);
    return error_set(error, ours, "modelet %s: %s failed (%s) and gave no reason",
                     modelet->table.name, function, status_name(ours));
}

enum status
modelet_load(const struct modelet *modelet, const struct shoal_model *spec, void **model,
             struct error *error)
{
    if (modelet->table.load == NULL)
        return error_set(error, STATUS_UNIMPLEMENTED, "modelet %s loads no models",
                         modelet->table.name);
    struct shoal_error theirs = {{0}};
    *model = NULL;
    int status = modelet->table.load(modelet->instance, spec, model, &theirs);
    return status == SHOAL_OK ? STATUS_OK : model_error(modelet, status, &theirs, "load", error);
}

static enum status
describe_model(const struct modelet *modelet, void *model, struct handshake_model_said *said,
               struct error *error)
{
    if (modelet->table.describe_model == NULL)
        return STATUS_OK;
    struct shoal_io io = {.struct_size = sizeof(io)};
    struct shoal_error theirs = {{0}};
    int status = modelet->table.describe_model(modelet->instance, model, &io, &theirs);
    if (status != SHOAL_OK)
        return model_error(modelet, status, &theirs, "describe_model", error);
    const struct description to = {&said->input_count, &said->output_count, said->inputs,
                                   said->outputs, said->platform};
    enum status ours = copy_io(&io, &to, error);
    return ours == STATUS_OK ? STATUS_OK : error_prefix(error, "describe_model");
}

enum status
modelet_ask(const struct modelet *modelet, void *model, struct handshake_model_said *said,
            struct error *error)
{
    const struct shoal_modelet *table = &modelet->table;
    enum status status = describe_model(modelet, model, said, error);
    if (status != STATUS_OK)
        return status;
    if (table->size != NULL)
        said->bytes = table->size(modelet->instance, model);
    if (table->max_concurrency != NULL)
        said->max_concurrency = table->max_concurrency(modelet->instance, model);
    return STATUS_OK;
}

uint64_t
modelet_predict(const struct modelet *modelet, const struct shoal_model *spec)
{
    return modelet->table.predict_size == NULL
               ? 0
               : modelet->table.predict_size(modelet->instance, spec);
}

void
modelet_unload(const struct modelet *modelet, void *model)
{
    if (modelet->table.unload != NULL)
        modelet->table.unload(modelet->instance, model);
}
