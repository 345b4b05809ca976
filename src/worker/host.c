/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/host.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "shm/slot.h"
#include "worker/model_files.h"
#include "worker/sandbox.h"

/* Used by `log` and `resolve_path`, which get no item: a worker has one modelet. */
static const char *log_name = "?";
static const char *config_directory = "/";

static void item_fail_va(struct host_item *item, enum status status, const char *format,
                         va_list args) __attribute__((format(printf, 3, 0)));

/* Removes a character of which not all bytes had room: gRPC's clients would take the whole text for
 * another encoding. */
static void
remove_cut_character(char *text)
{
    size_t length = strlen(text);
    size_t begin = length;
    while (begin > 0 && length - begin < 4 && ((unsigned char)text[begin] & 0xC0) != 0xC0)
        begin--;
    if (((unsigned char)text[begin] & 0xC0) == 0xC0 &&
        utf8_length((const unsigned char *)text + begin, length - begin) == 0)
        text[begin] = '\0';
}

static void
item_fail_va(struct host_item *item, enum status status, const char *format, va_list args)
{
    item->shown.status = (int32_t)status;
    if (vsnprintf(item->text, sizeof(item->text), format, args) >= (int)sizeof(item->text))
        remove_cut_character(item->text);
}

void
item_fail(struct host_item *item, enum status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    item_fail_va(item, status, format, args);
    va_end(args);
}

void
item_explain(struct host_item *item, const struct sandbox *sandbox)
{
    static const char note[] = " (its sandbox refuses some calls: see `sandbox_allow`)";
    const size_t length_max = sizeof(item->text) - sizeof(note);
    const char *refuses = sandbox_suspected(sandbox, item->text);
    if (refuses == NULL)
        return;
    log_warn_limited("sandbox_suspected modelet=%s error=\"%s\" why=\"%s\"", log_name, item->text,
                     refuses);
    if (strlen(item->text) > length_max) {
        item->text[length_max] = '\0';
        remove_cut_character(item->text);
    }
    memcpy(item->text + strlen(item->text), note, sizeof(note));
}

enum status
item_refuse(struct host_item *item, const struct error *error)
{
    if (item->refused == STATUS_OK) /* the first reason counts */
        item_fail(item, error->status, "modelet %s: %s", log_name, error->text);
    item->refused = error->status;
    return error->status;
}

static void *
host_add(struct host_item *item, const struct shoal_tensor *tensor)
{
    void *data;
    struct error error;
    error_clear(&error);
    if (builder_add(&item->builder, tensor, &data, &error) == STATUS_OK)
        return data;
    item_refuse(item, &error);
    return NULL;
}

/* Makes a tensor of the arguments of `output`, or refuses them. */
static bool
tensor_init(struct host_item *item, struct shoal_tensor *tensor, const char *name,
            uint32_t datatype, uint32_t rank, const int64_t *shape)
{
    struct error error;
    error_clear(&error);
    if (name == NULL)
        error_set(&error, STATUS_INVALID_ARGUMENT, "an output without a name");
    else if (rank > SHOAL_RANK_MAX)
        error_set(&error, STATUS_INVALID_ARGUMENT, "output \"%.32s\": rank %u; at most %d", name,
                  rank, SHOAL_RANK_MAX);
    if (error.status != STATUS_OK) {
        item_refuse(item, &error);
        return false;
    }
    *tensor = (struct shoal_tensor){.name = name, .datatype = datatype, .rank = rank};
    if (rank > 0)
        memcpy(tensor->shape, shape, rank * sizeof(shape[0]));
    return true;
}

/* Computes the size from type and shape. */
static enum status
plain_bytes(const struct shoal_tensor *tensor, size_t *bytes, struct error *error)
{
    uint64_t product;
    if (tensor->datatype == SHOAL_BYTES)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "output \"%.32s\": a BYTES tensor is made with output_bytes",
                         tensor->name);
    if (!tensor_bytes_for(tensor->datatype, tensor->rank, tensor->shape, &product))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "output \"%.32s\": a negative dimension, or a size that overflows",
                         tensor->name);
    *bytes = product;
    return STATUS_OK;
}

static void *
host_output(struct shoal_item *shown, const char *name, uint32_t datatype, uint32_t rank,
            const int64_t *shape)
{
    struct host_item *item = item_of(shown);
    struct shoal_tensor tensor;
    if (!tensor_init(item, &tensor, name, datatype, rank, shape))
        return NULL;
    struct error error;
    error_clear(&error);
    if (plain_bytes(&tensor, &tensor.bytes, &error) == STATUS_OK)
        return host_add(item, &tensor);
    item_refuse(item, &error);
    return NULL;
}

static void *
host_output_bytes(struct shoal_item *shown, const char *name, uint32_t datatype, uint32_t rank,
                  const int64_t *shape, size_t bytes)
{
    struct host_item *item = item_of(shown);
    struct shoal_tensor tensor;
    if (!tensor_init(item, &tensor, name, datatype, rank, shape))
        return NULL;
    tensor.bytes = bytes;
    return host_add(item, &tensor);
}

static int32_t
host_forward(struct shoal_item *shown, uint32_t index, const char *name)
{
    struct host_item *item = item_of(shown);
    struct error error;
    error_clear(&error);
    if (name == NULL)
        error_set(&error, STATUS_INVALID_ARGUMENT, "an output without a name");
    else if (builder_forward(&item->builder, &item->view, index, name, &error) == STATUS_OK)
        return SHOAL_OK;
    return (int32_t)item_refuse(item, &error);
}

__attribute__((format(printf, 3, 4))) static int32_t
host_fail(struct shoal_item *shown, int32_t status, const char *format, ...)
{
    struct host_item *item = item_of(shown);
    enum status ours = status_from_number(status);
    if (ours == STATUS_OK)
        ours = STATUS_UNKNOWN;
    va_list args;
    va_start(args, format);
    item_fail_va(item, ours, format, args);
    va_end(args);
    return (int32_t)ours;
}

static int
host_parameter(struct shoal_item *shown, const char *name, struct shoal_parameter *value)
{
    return payload_parameter_find(&item_of(shown)->view, name, value);
}

static int
host_cancelled(struct shoal_item *shown)
{
    const struct host_item *item = item_of(shown);
    if (slot_cancelled(item->slot, item->ticket.generation))
        return 1;
    return shown->deadline_ns != TIME_NEVER_NS && shown->deadline_ns <= clock_now_ns();
}

__attribute__((format(printf, 2, 3))) static void
host_log(enum shoal_log_level level, const char *format, ...)
{
    char text[768];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    static const enum log_level levels[] = {
        [SHOAL_LOG_ERROR] = LOG_ERROR,
        [SHOAL_LOG_WARN] = LOG_WARN,
        [SHOAL_LOG_INFO] = LOG_INFO,
        [SHOAL_LOG_DEBUG] = LOG_DEBUG,
    };
    unsigned number = (unsigned)level <= SHOAL_LOG_DEBUG ? (unsigned)level : SHOAL_LOG_DEBUG;
    log_line(levels[number], "modelet_log modelet=%s text=\"%s\"", log_name, text);
}

static int32_t
host_resolve_path(const char *path, char *resolved, size_t room)
{
    bool absolute = path[0] == '/';
    int bytes = snprintf(resolved, room, "%s%s%s", absolute ? "" : config_directory,
                         absolute ? "" : "/", path);
    return bytes >= 0 && (size_t)bytes < room ? SHOAL_OK : SHOAL_OUT_OF_RANGE;
}

static struct shoal_host table = {
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
};

const struct shoal_host *
host_table(const char *modelet_name, const char *directory,
           int32_t (*emit)(struct shoal_item *item))
{
    table.emit = emit;
    log_name = modelet_name;
    config_directory = directory;
    return &table;
}
