/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/collect.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "shm/arena.h"

struct collected_output {
    char name[SHOAL_NAME_BYTES_MAX + 1];
    uint32_t datatype;
    uint32_t rank;
    int64_t shape[SHOAL_RANK_MAX];
    char *data;
    size_t bytes;
    size_t room;
};

struct collected {
    uint32_t count;
    uint64_t bytes;
    struct collected_output outputs[SHOAL_TENSORS_MAX];
};

void
collected_drop(struct collected **collected)
{
    if (*collected == NULL)
        return;
    for (uint32_t i = 0; i < (*collected)->count; i++)
        free((*collected)->outputs[i].data);
    free(*collected);
    *collected = NULL;
}

static struct collected_output *
output_named(struct collected *collected, const char *name)
{
    for (uint32_t i = 0; i < collected->count; i++)
        if (strcmp(collected->outputs[i].name, name) == 0)
            return &collected->outputs[i];
    return NULL;
}

static enum status
output_begin(struct collected *collected, const struct payload_tensor *tensor, const char *name,
             struct collected_output **begun, struct error *error)
{
    if (collected->count == SHOAL_TENSORS_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "pieces with more than %d outputs",
                         SHOAL_TENSORS_MAX);
    struct collected_output *output = &collected->outputs[collected->count++];
    memcpy(output->name, name, strlen(name) + 1);
    output->datatype = tensor->datatype;
    output->rank = tensor->rank;
    memcpy(output->shape, tensor->shape, sizeof(output->shape));
    if (output->rank > 0)
        output->shape[0] = 0;
    *begun = output;
    return STATUS_OK;
}

static bool
fits(const struct collected_output *output, const struct payload_tensor *tensor)
{
    return output->datatype == tensor->datatype && output->rank == tensor->rank &&
           output->rank > 0 &&
           memcmp(output->shape + 1, tensor->shape + 1,
                  (output->rank - 1) * sizeof(output->shape[0])) == 0;
}

static enum status
output_append(struct collected_output *output, const struct payload_tensor *tensor,
              const void *data, struct error *error)
{
    size_t bytes = output->bytes + tensor->bytes;
    int64_t rows = 0;
    if (output->rank > 0 && __builtin_add_overflow(output->shape[0], tensor->shape[0], &rows))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the pieces have together more rows than a shape can say");
    if (bytes > output->room) {
        size_t room = bytes > 2 * output->room ? bytes : 2 * output->room;
        char *grown = realloc(output->data, room);
        if (grown == NULL)
            return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to collect pieces");
        output->data = grown;
        output->room = room;
    }
    if (tensor->bytes > 0)
        memcpy(output->data + output->bytes, data, tensor->bytes);
    output->bytes = bytes;
    output->shape[0] = rows;
    return STATUS_OK;
}

static enum status
collect_tensor(struct host_item *item, const struct payload_tensor *tensor, struct error *error)
{
    struct payload_builder *builder = &item->builder;
    const struct region_plan *plan = &builder->region->layout.plan;
    const char *name = builder->strings + tensor->name_offset;
    struct collected_output *output = output_named(item->collected, name);
    item->collected->bytes += tensor->bytes;
    if (item->collected->bytes > plan->class_block_bytes[plan->class_count - 1])
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "the pieces are together larger than an answer may be (message_mib)");
    enum status status = STATUS_OK;
    if (output == NULL)
        status = output_begin(item->collected, tensor, name, &output, error);
    else if (!fits(output, tensor))
        status = error_set(error, STATUS_INVALID_ARGUMENT,
                           "output \"%s\" cannot be joined to that of an earlier piece: another "
                           "type or shape, or no dimension",
                           name);
    if (status != STATUS_OK)
        return status;
    CHECK(output != NULL);
    return output_append(
        output, tensor,
        arena_block(builder->region, builder->blocks[tensor->block]) + tensor->offset, error);
}

enum status
item_collect(struct host_item *item, struct error *error)
{
    if (item->collected == NULL)
        item->collected = calloc(1, sizeof(*item->collected));
    if (item->collected == NULL)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to collect pieces");
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < item->builder.tensor_count && status == STATUS_OK; i++)
        status = collect_tensor(item, &item->builder.tensors[i], error);
    return status;
}

/* Keeps nothing but the last piece. */
enum status
item_collect_last(struct host_item *item, struct error *error)
{
    collected_drop(&item->collected);
    return item_collect(item, error);
}

enum status
item_gather(struct host_item *item, enum handshake_collect collect, struct shm_payload *overwritten,
            struct error *error)
{
    enum status status = STATUS_OK;
    bool is_last = collect == COLLECT_LAST && item->builder.tensor_count > 0;
    if (!is_last)
        status = item_collect(item, error);
    if (is_last || status != STATUS_OK) {
        collected_drop(&item->collected);
        return status;
    }
    builder_clear(&item->builder, overwritten);
    for (uint32_t i = 0; i < item->collected->count && status == STATUS_OK; i++) {
        const struct collected_output *output = &item->collected->outputs[i];
        struct shoal_tensor tensor = {.name = output->name,
                                      .datatype = output->datatype,
                                      .rank = output->rank,
                                      .bytes = output->bytes};
        memcpy(tensor.shape, output->shape, sizeof(tensor.shape));
        void *data = NULL;
        status = builder_add(&item->builder, &tensor, &data, error);
        if (status == STATUS_OK && output->bytes > 0)
            memcpy(data, output->data, output->bytes);
    }
    collected_drop(&item->collected);
    return status;
}
