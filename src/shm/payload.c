/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/payload.h"

#include <string.h>

#include "base/checked.h"
#include "shm/arena.h"

bool
tensor_bytes_for(uint32_t datatype, uint32_t rank, const int64_t *shape, uint64_t *bytes)
{
    uint64_t product = datatype == SHOAL_BYTES ? 1 : shoal_datatype_bytes(datatype);
    if (rank > SHOAL_RANK_MAX)
        return false;
    for (uint32_t i = 0; i < rank; i++)
        if (shape[i] < 0 || !mul_ok(product, (uint64_t)shape[i], &product))
            return false;
    *bytes = product;
    return true;
}

/* ---- reading ---- */

static enum status
read_tensor(const struct region *region, struct payload_view *view, uint32_t index,
            const struct payload_tensor *shared, struct error *error)
{
    const struct shm_payload *payload = &view->payload;
    struct payload_tensor copy;
    memcpy(&copy, shared, sizeof(copy)); /* once: the checked copy is the one used */
    struct shoal_tensor *tensor = &view->tensors[index];
    uint64_t bytes;
    if (copy.block >= payload->block_count)
        return error_set(error, STATUS_DATA_LOSS, "tensor %u: block %u of %u", index, copy.block,
                         payload->block_count);
    if (copy.datatype == 0 || copy.datatype >= SHOAL_DATATYPE_END ||
        !tensor_bytes_for(copy.datatype, copy.rank, copy.shape, &bytes) ||
        (copy.datatype != SHOAL_BYTES && bytes != copy.bytes))
        return error_set(error, STATUS_DATA_LOSS, "tensor %u: type %u, rank %u and %llu bytes",
                         index, copy.datatype, copy.rank, (unsigned long long)copy.bytes);
    uint32_t block = payload->blocks[copy.block];
    if (!range_ok(copy.offset, copy.bytes, arena_block_bytes(&region->layout, block)))
        return error_set(error, STATUS_DATA_LOSS, "tensor %u: beyond its block", index);
    if (copy.offset % PAYLOAD_ALIGNMENT != 0) /* modelet.h promises it */
        return error_set(error, STATUS_DATA_LOSS, "tensor %u: not aligned", index);
    if (!range_ok(copy.name_offset, (uint64_t)copy.name_bytes + 1, payload->table_bytes) ||
        copy.name_bytes > SHOAL_NAME_BYTES_MAX || copy.name_bytes == 0 ||
        view->table[copy.name_offset + copy.name_bytes] != '\0')
        return error_set(error, STATUS_DATA_LOSS, "tensor %u: invalid name", index);
    tensor->name = view->table + copy.name_offset;
    tensor->datatype = copy.datatype;
    tensor->rank = copy.rank;
    memcpy(tensor->shape, copy.shape, sizeof(tensor->shape));
    tensor->data = arena_block(region, block) + copy.offset;
    tensor->bytes = copy.bytes;
    view->tensor_blocks[index] = copy.block;
    view->name_bytes[index] = copy.name_bytes;
    return STATUS_OK;
}

/* `copy`: room for a copy of the table; NULL: read it in place. */
static enum status
read_payload(const struct region *region, const struct shm_payload *shared, char *copy,
             struct payload_view *view, struct error *error)
{
    memcpy(&view->payload, shared, sizeof(view->payload));
    const struct shm_payload *payload = &view->payload;
    view->tensor_count = 0;
    if (payload->block_count < 1 || payload->block_count > PAYLOAD_BLOCKS_MAX ||
        payload->table_block >= payload->block_count)
        return error_set(error, STATUS_DATA_LOSS, "payload with %u blocks, table in block %u",
                         payload->block_count, payload->table_block);
    for (uint32_t i = 0; i < payload->block_count; i++)
        if (payload->blocks[i] >= region->layout.block_count)
            return error_set(error, STATUS_DATA_LOSS, "payload names block %u of %u",
                             payload->blocks[i], region->layout.block_count);
    if (payload->tensor_count > SHOAL_TENSORS_MAX || payload->parameter_count > PARAMETERS_MAX)
        return error_set(error, STATUS_DATA_LOSS, "payload with %u tensors and %u parameters",
                         payload->tensor_count, payload->parameter_count);
    uint64_t tensors_bytes = payload->tensor_count * sizeof(struct payload_tensor);
    uint64_t fixed_bytes =
        tensors_bytes + payload->parameter_count * sizeof(struct payload_parameter);
    uint32_t block = payload->blocks[payload->table_block];
    if (payload->table_offset % 8 != 0 || fixed_bytes > payload->table_bytes ||
        !range_ok(payload->table_offset, payload->table_bytes,
                  arena_block_bytes(&region->layout, block)))
        return error_set(error, STATUS_DATA_LOSS, "payload table of %u bytes at %u",
                         payload->table_bytes, payload->table_offset);
    view->table = arena_block(region, block) + payload->table_offset;
    if (copy != NULL) {
        if (payload->table_bytes > PAYLOAD_TABLE_BYTES_MAX)
            return error_set(error, STATUS_DATA_LOSS, "payload table of %u bytes",
                             payload->table_bytes);
        memcpy(copy, view->table, payload->table_bytes);
        view->table = copy;
    }
    const struct payload_tensor *tensors = (const void *)view->table;
    view->parameters = (const void *)(view->table + tensors_bytes);
    for (uint32_t i = 0; i < payload->tensor_count; i++) {
        enum status status = read_tensor(region, view, i, &tensors[i], error);
        if (status != STATUS_OK)
            return status;
    }
    view->tensor_count = payload->tensor_count;
    return STATUS_OK;
}

enum status
payload_read(const struct region *region, const struct shm_payload *shared,
             struct payload_view *view, struct error *error)
{
    return read_payload(region, shared, NULL, view, error);
}

enum status
payload_read_copied(const struct region *region, const struct shm_payload *shared,
                    struct payload_table *table, struct payload_view *view, struct error *error)
{
    return read_payload(region, shared, table->bytes, view, error);
}

/* Returns a string of the table if it lies within the table and is terminated; else NULL. */
static const char *
table_string(const struct payload_view *view, uint64_t offset, uint64_t bytes)
{
    if (!range_ok(offset, bytes + 1, view->payload.table_bytes))
        return NULL;
    const char *string = view->table + offset;
    return string[bytes] == '\0' ? string : NULL;
}

static bool
read_parameter(const struct payload_view *view, uint32_t index, const char **name,
               struct shoal_parameter *parameter)
{
    struct payload_parameter copy;
    memcpy(&copy, &view->parameters[index], sizeof(copy));
    *name = table_string(view, copy.name_offset, copy.name_bytes);
    *parameter = (struct shoal_parameter){.type = copy.type, .value.uint64 = copy.value};
    if (*name == NULL || copy.type < SHOAL_PARAMETER_BOOL || copy.type > SHOAL_PARAMETER_UINT64)
        return false;
    if (copy.type != SHOAL_PARAMETER_STRING)
        return true;
    parameter->string_bytes = (uint32_t)copy.value;
    parameter->string = table_string(view, copy.value >> 32, parameter->string_bytes);
    parameter->value.uint64 = 0;
    return parameter->string != NULL;
}

int
payload_parameter_find(const struct payload_view *view, const char *wanted,
                       struct shoal_parameter *parameter)
{
    for (uint32_t i = 0; i < view->payload.parameter_count; i++) {
        const char *name;
        if (read_parameter(view, i, &name, parameter) && strcmp(name, wanted) == 0)
            return 1;
    }
    return 0;
}

enum status
tensor_check_elements(const struct shoal_tensor *tensor, struct error *error)
{
    uint64_t elements;
    if (!tensor_bytes_for(SHOAL_BYTES, tensor->rank, tensor->shape, &elements))
        return error_set(error, STATUS_INVALID_ARGUMENT, "tensor \"%s\": the shape overflows",
                         tensor->name);
    const char *at = tensor->data;
    uint64_t left = tensor->bytes;
    for (uint64_t i = 0; i < elements; i++) {
        uint32_t length = 0;
        if (left >= sizeof(length))
            memcpy(&length, at, sizeof(length)); /* once: it may change */
        if (left < sizeof(length) || length > left - sizeof(length))
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "tensor \"%s\": element %llu of %llu goes beyond its %zu bytes",
                             tensor->name, (unsigned long long)i, (unsigned long long)elements,
                             tensor->bytes);
        at += sizeof(length) + length;
        left -= sizeof(length) + length;
    }
    if (left == 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "tensor \"%s\": %llu bytes after its %llu elements", tensor->name,
                     (unsigned long long)left, (unsigned long long)elements);
}

/* ---- building ---- */

static bool
payload_names(const struct shm_payload *payload, uint16_t block)
{
    for (uint32_t i = 0; i < payload->block_count && i < PAYLOAD_BLOCKS_MAX; i++)
        if (payload->blocks[i] == block)
            return true;
    return false;
}

void
builder_init(struct payload_builder *builder, const struct region *region, uint32_t slot,
             uint16_t owner, const struct shm_payload *current,
             const struct shm_payload *overwritten)
{
    builder->region = region;
    builder->current = current;
    builder->slot = slot;
    builder->owner = owner;
    builder->tensor_count = 0;
    builder->parameter_count = 0;
    builder->block_count = 0;
    builder->spare_count = 0;
    builder->string_bytes = 0;
    if (overwritten == NULL)
        return;
    struct shm_payload old;
    memcpy(&old, overwritten, sizeof(old)); /* once: another process may be writing */
    for (uint32_t i = 0; i < old.block_count && i < PAYLOAD_BLOCKS_MAX; i++)
        if (old.blocks[i] < region->layout.block_count && !payload_names(current, old.blocks[i]))
            builder->spares[builder->spare_count++] = old.blocks[i];
}

static uint64_t
align_up(uint64_t value)
{
    return (value + PAYLOAD_ALIGNMENT - 1) / PAYLOAD_ALIGNMENT * PAYLOAD_ALIGNMENT;
}

/* Returns the size of the table with its present content and one more tensor with a long name. */
static uint64_t
table_bytes_expected(const struct payload_builder *builder)
{
    return (builder->tensor_count + 1u) * sizeof(struct payload_tensor) +
           builder->parameter_count * sizeof(struct payload_parameter) + builder->string_bytes +
           SHOAL_NAME_BYTES_MAX + 1 + PAYLOAD_ALIGNMENT;
}

/* A corrupted arena or descriptor may offer a block that we already have or read from. */
static bool
is_in_use(const struct payload_builder *builder, uint32_t block)
{
    for (uint32_t i = 0; i < builder->block_count; i++)
        if (builder->blocks[i] == block)
            return true;
    return builder->current != NULL && payload_names(builder->current, (uint16_t)block);
}

/* Adds a block of at least `bytes` to the builder, preferably a spare one. */
static enum status
take_block(struct payload_builder *builder, uint64_t bytes, struct error *error)
{
    const struct region_layout *layout = &builder->region->layout;
    if (builder->block_count == PAYLOAD_BLOCKS_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "tensors in more than %d blocks",
                         PAYLOAD_BLOCKS_MAX);
    uint32_t block = BLOCK_NONE;
    for (uint32_t i = 0; i < builder->spare_count; i++) {
        if (arena_block_bytes(layout, builder->spares[i]) >= bytes) {
            block = builder->spares[i];
            builder->spares[i] = builder->spares[--builder->spare_count];
            break;
        }
    }
    if (block == BLOCK_NONE) {
        enum status status = arena_acquire(builder->region, builder->slot, bytes, &block);
        if (status == STATUS_DATA_LOSS)
            return error_set(error, status, "arena: corrupt");
        if (status != STATUS_OK)
            return error_set(error, status, "arena full: no block of %llu bytes is free",
                             (unsigned long long)bytes);
    }
    if (is_in_use(builder, block))
        return error_set(error, STATUS_DATA_LOSS, "arena: corrupt");
    builder->blocks[builder->block_count] = (uint16_t)block;
    builder->used_bytes[builder->block_count] = 0;
    builder->block_count++;
    return STATUS_OK;
}

enum status
builder_reserve(struct payload_builder *builder, uint64_t bytes, struct error *error)
{
    const struct region_layout *layout = &builder->region->layout;
    uint64_t table_bytes = table_bytes_expected(builder);
    uint64_t room_bytes = layout->plan.class_block_bytes[layout->plan.class_count - 1];
    if (!range_ok(table_bytes, bytes, room_bytes))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the tensors take %llu bytes, the largest block of the arena has room "
                         "for %llu: send fewer, or raise message_mib",
                         (unsigned long long)bytes, (unsigned long long)(room_bytes - table_bytes));
    return take_block(builder, bytes + table_bytes, error);
}

/* Finds room for `bytes` in a block that this builder fills, or takes another block. */
static enum status
find_room(struct payload_builder *builder, uint64_t bytes, uint32_t *block, struct error *error)
{
    const struct region_layout *layout = &builder->region->layout;
    for (uint32_t i = 0; i < builder->block_count; i++) {
        if (builder->used_bytes[i] != UINT64_MAX &&
            range_ok(builder->used_bytes[i], bytes,
                     arena_block_bytes(layout, builder->blocks[i]))) {
            *block = i;
            return STATUS_OK;
        }
    }
    uint64_t with_table;
    if (!add_ok(bytes, table_bytes_expected(builder), &with_table))
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "too large");
    enum status status = take_block(builder, with_table, error);
    *block = builder->block_count - 1u;
    return status;
}

static enum status
add_string(struct payload_builder *builder, const char *string, size_t bytes, uint32_t *offset,
           struct error *error)
{
    if (bytes + 1 > sizeof(builder->strings) - builder->string_bytes)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "names and strings of more than %zu bytes", sizeof(builder->strings));
    *offset = builder->string_bytes;
    memcpy(builder->strings + builder->string_bytes, string, bytes);
    builder->strings[builder->string_bytes + bytes] = '\0';
    builder->string_bytes += (uint32_t)bytes + 1;
    return STATUS_OK;
}

/* Checks and adds a new tensor's name. Until the table is written its offset counts from the start
 * of the strings. */
static enum status
add_name(struct payload_builder *builder, const char *name, struct payload_tensor *tensor,
         struct error *error)
{
    size_t bytes = strnlen(name, SHOAL_NAME_BYTES_MAX + 1);
    if (bytes == 0 || bytes > SHOAL_NAME_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "tensor \"%.32s\": a name has 1 to %d bytes", name, SHOAL_NAME_BYTES_MAX);
    if (builder->tensor_count == SHOAL_TENSORS_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "tensor \"%s\": more than %d tensors",
                         name, SHOAL_TENSORS_MAX);
    for (uint32_t i = 0; i < builder->tensor_count; i++)
        if (strcmp(builder->strings + builder->tensors[i].name_offset, name) == 0)
            return error_set(error, STATUS_ALREADY_EXISTS, "tensor \"%s\": the name is taken",
                             name);
    tensor->name_bytes = (uint8_t)bytes;
    return add_string(builder, name, bytes, &tensor->name_offset, error);
}

enum status
builder_add(struct payload_builder *builder, const struct shoal_tensor *wanted, void **data,
            struct error *error)
{
    uint64_t bytes;
    if (wanted->datatype == 0 || wanted->datatype >= SHOAL_DATATYPE_END)
        return error_set(error, STATUS_INVALID_ARGUMENT, "tensor \"%.32s\": no such datatype: %u",
                         wanted->name, wanted->datatype);
    if (!tensor_bytes_for(wanted->datatype, wanted->rank, wanted->shape, &bytes) ||
        (wanted->datatype != SHOAL_BYTES && bytes != wanted->bytes))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "tensor \"%.32s\": %zu bytes do not agree with its type and shape",
                         wanted->name, wanted->bytes);
    struct payload_tensor tensor = {.datatype = (uint8_t)wanted->datatype,
                                    .rank = (uint8_t)wanted->rank,
                                    .bytes = wanted->bytes};
    memcpy(tensor.shape, wanted->shape, wanted->rank * sizeof(wanted->shape[0]));
    enum status status = add_name(builder, wanted->name, &tensor, error);
    if (status != STATUS_OK)
        return status;
    uint32_t block;
    status = find_room(builder, wanted->bytes, &block, error);
    if (status != STATUS_OK)
        return error_prefix(error, "tensor \"%s\"", wanted->name);
    tensor.block = (uint8_t)block;
    tensor.offset = builder->used_bytes[block];
    builder->used_bytes[block] = align_up(tensor.offset + wanted->bytes);
    builder->tensors[builder->tensor_count++] = tensor;
    *data = arena_block(builder->region, builder->blocks[block]) + tensor.offset;
    return STATUS_OK;
}

enum status
builder_forward(struct payload_builder *builder, const struct payload_view *view,
                uint32_t tensor_index, const char *name, struct error *error)
{
    if (tensor_index >= view->tensor_count)
        return error_set(error, STATUS_OUT_OF_RANGE, "forwarding input %u of %u", tensor_index,
                         view->tensor_count);
    const struct shoal_tensor *input = &view->tensors[tensor_index];
    uint16_t source = view->payload.blocks[view->tensor_blocks[tensor_index]];
    struct payload_tensor tensor = {
        .datatype = (uint8_t)input->datatype, .rank = (uint8_t)input->rank, .bytes = input->bytes};
    memcpy(tensor.shape, input->shape, sizeof(tensor.shape));
    tensor.offset = (uint64_t)((const char *)input->data - arena_block(builder->region, source));
    uint32_t block = 0;
    while (block < builder->block_count && builder->blocks[block] != source)
        block++;
    if (block == PAYLOAD_BLOCKS_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "tensors in more than %d blocks",
                         PAYLOAD_BLOCKS_MAX);
    enum status status = add_name(builder, name, &tensor, error);
    if (status != STATUS_OK)
        return status;
    if (block == builder->block_count) {
        builder->blocks[block] = source;
        builder->used_bytes[block] = UINT64_MAX;
        builder->block_count++;
    }
    tensor.block = (uint8_t)block;
    builder->tensors[builder->tensor_count++] = tensor;
    return STATUS_OK;
}

enum status
builder_parameter(struct payload_builder *builder, const char *name,
                  const struct shoal_parameter *parameter, struct error *error)
{
    size_t name_bytes = strnlen(name, SHOAL_NAME_BYTES_MAX + 1);
    if (name_bytes > SHOAL_NAME_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "parameter \"%.32s…\": a name has at most %d bytes", name,
                         SHOAL_NAME_BYTES_MAX);
    if (builder->parameter_count == PARAMETERS_MAX)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "more than %d parameters",
                         PARAMETERS_MAX);
    struct payload_parameter entry = {.type = (uint8_t)parameter->type,
                                      .name_bytes = (uint8_t)name_bytes,
                                      .value = parameter->value.uint64};
    enum status status = add_string(builder, name, name_bytes, &entry.name_offset, error);
    if (status == STATUS_OK && parameter->type == SHOAL_PARAMETER_STRING) {
        uint32_t offset = 0;
        status = add_string(builder, parameter->string, parameter->string_bytes, &offset, error);
        entry.value = (uint64_t)offset << 32 | parameter->string_bytes;
    }
    if (status != STATUS_OK)
        return error_prefix(error, "parameter \"%s\"", name);
    builder->parameters[builder->parameter_count++] = entry;
    return STATUS_OK;
}

enum status
builder_carry_parameters(struct payload_builder *builder, const struct payload_view *view,
                         struct error *error)
{
    for (uint32_t i = 0; i < view->payload.parameter_count; i++) {
        const char *name;
        struct shoal_parameter parameter;
        if (!read_parameter(view, i, &name, &parameter))
            continue; /* malformed by the writer: such a parameter does not exist for readers */
        enum status status = builder_parameter(builder, name, &parameter, error);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status
copy_tensor(struct payload_builder *builder, const struct payload_builder *from,
            const struct payload_tensor *entry, struct error *error)
{
    struct shoal_tensor tensor = {.name = from->strings + entry->name_offset,
                                  .datatype = entry->datatype,
                                  .rank = entry->rank,
                                  .bytes = entry->bytes};
    memcpy(tensor.shape, entry->shape, sizeof(tensor.shape));
    void *data = NULL;
    enum status status = builder_add(builder, &tensor, &data, error);
    if (data != NULL)
        memcpy(data, arena_block(from->region, from->blocks[entry->block]) + entry->offset,
               entry->bytes);
    return status;
}

static enum status
copy_parameter(struct payload_builder *builder, const struct payload_builder *from,
               const struct payload_parameter *entry, struct error *error)
{
    struct shoal_parameter parameter = {.type = entry->type, .value.uint64 = entry->value};
    if (entry->type == SHOAL_PARAMETER_STRING) {
        parameter.string = from->strings + (entry->value >> 32);
        parameter.string_bytes = (uint32_t)entry->value;
        parameter.value.uint64 = 0;
    }
    return builder_parameter(builder, from->strings + entry->name_offset, &parameter, error);
}

enum status
builder_copy(struct payload_builder *builder, const struct payload_builder *from,
             struct error *error)
{
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < from->tensor_count && status == STATUS_OK; i++)
        status = copy_tensor(builder, from, &from->tensors[i], error);
    for (uint32_t i = 0; i < from->parameter_count && status == STATUS_OK; i++)
        status = copy_parameter(builder, from, &from->parameters[i], error);
    return status;
}

static void
write_table(const struct payload_builder *builder, char *table)
{
    size_t tensors_bytes = builder->tensor_count * sizeof(struct payload_tensor);
    size_t parameters_bytes = builder->parameter_count * sizeof(struct payload_parameter);
    uint32_t strings_at = (uint32_t)(tensors_bytes + parameters_bytes);
    struct payload_tensor *tensors = (void *)table;
    for (uint32_t i = 0; i < builder->tensor_count; i++) {
        tensors[i] = builder->tensors[i];
        tensors[i].name_offset += strings_at;
    }
    struct payload_parameter *parameters = (void *)(table + tensors_bytes);
    for (uint32_t i = 0; i < builder->parameter_count; i++) {
        parameters[i] = builder->parameters[i];
        parameters[i].name_offset += strings_at;
        if (parameters[i].type == SHOAL_PARAMETER_STRING)
            parameters[i].value += (uint64_t)strings_at << 32;
    }
    memcpy(table + strings_at, builder->strings, builder->string_bytes);
}

static void
release_spares(struct payload_builder *builder)
{
    /* A block that the slot does not hold was named by a torn or hostile descriptor: leave it. */
    for (uint32_t i = 0; i < builder->spare_count; i++)
        (void)arena_release(builder->region, builder->slot, builder->spares[i], builder->owner);
    builder->spare_count = 0;
}

static uint32_t
table_bytes_of(const struct payload_builder *builder)
{
    return (uint32_t)(builder->tensor_count * sizeof(struct payload_tensor) +
                      builder->parameter_count * sizeof(struct payload_parameter)) +
           builder->string_bytes;
}

enum status
builder_seal(struct payload_builder *builder, struct shm_payload *payload, struct error *error)
{
    uint32_t table_bytes = table_bytes_of(builder);
    uint32_t block = 0;
    enum status status = find_room(builder, table_bytes, &block, error);
    if (status != STATUS_OK)
        return error_prefix(error, "payload table");
    uint64_t offset = builder->used_bytes[block];
    write_table(builder, arena_block(builder->region, builder->blocks[block]) + offset);
    release_spares(builder);
    struct shm_payload sealed = {
        .block_count = builder->block_count,
        .table_block = (uint8_t)block,
        .tensor_count = builder->tensor_count,
        .parameter_count = builder->parameter_count,
        .table_offset = (uint32_t)offset,
        .table_bytes = table_bytes,
    };
    memcpy(sealed.blocks, builder->blocks, sizeof(sealed.blocks[0]) * builder->block_count);
    *payload = sealed;
    return STATUS_OK;
}

/* ---- a payload in one block ---- */

static bool
is_alone(const struct payload_builder *builder, uint64_t more_bytes)
{
    return builder->block_count == 1 && builder->used_bytes[0] != UINT64_MAX &&
           range_ok(builder->used_bytes[0], more_bytes,
                    arena_block_bytes(&builder->region->layout, builder->blocks[0]));
}

/* Brings all tensors into a new block with room for `more_bytes`. */
static enum status
move_together(struct payload_builder *builder, uint64_t more_bytes, struct error *error)
{
    const struct region *region = builder->region;
    uint64_t bytes = 0;
    uint32_t block;
    for (uint32_t i = 0; i < builder->tensor_count; i++)
        bytes += align_up(builder->tensors[i].bytes); /* each is at most a block: no overflow */
    enum status status = arena_acquire(region, builder->slot, bytes + more_bytes, &block);
    if (status == STATUS_OK && is_in_use(builder, block))
        status = STATUS_DATA_LOSS;
    if (status != STATUS_OK)
        return error_set(error, status, "arena %s",
                         status == STATUS_DATA_LOSS ? "corrupt" : "full: no block for a piece");
    char *to = arena_block(region, block);
    uint64_t at = 0;
    for (uint32_t i = 0; i < builder->tensor_count; i++) {
        struct payload_tensor *tensor = &builder->tensors[i];
        memcpy(to + at, arena_block(region, builder->blocks[tensor->block]) + tensor->offset,
               tensor->bytes);
        tensor->block = 0;
        tensor->offset = at;
        at += align_up(tensor->bytes);
    }
    for (uint32_t i = 0; i < builder->block_count; i++)
        if (builder->used_bytes[i] != UINT64_MAX)
            (void)arena_release(region, builder->slot, builder->blocks[i], builder->owner);
    builder->blocks[0] = (uint16_t)block;
    builder->used_bytes[0] = at;
    builder->block_count = 1;
    return STATUS_OK;
}

enum status
builder_seal_alone(struct payload_builder *builder, uint32_t tail_bytes,
                   struct shm_payload *payload, struct error *error)
{
    uint32_t table_bytes = table_bytes_of(builder);
    enum status status = STATUS_OK;
    if (!is_alone(builder, (uint64_t)table_bytes + tail_bytes))
        status = move_together(builder, (uint64_t)table_bytes + tail_bytes, error);
    if (status != STATUS_OK)
        return status;
    uint64_t offset = builder->used_bytes[0];
    write_table(builder, arena_block(builder->region, builder->blocks[0]) + offset);
    *payload = (struct shm_payload){
        .blocks = {builder->blocks[0]},
        .block_count = 1,
        .tensor_count = builder->tensor_count,
        .parameter_count = builder->parameter_count,
        .table_offset = (uint32_t)offset,
        .table_bytes = table_bytes,
    };
    builder->tensor_count = 0;
    builder->parameter_count = 0;
    builder->block_count = 0;
    builder->string_bytes = 0;
    return STATUS_OK;
}

void
builder_abandon(struct payload_builder *builder, struct shm_payload *overwritten)
{
    overwritten->block_count = 0;
    for (uint32_t i = 0; i < builder->block_count; i++)
        if (builder->used_bytes[i] != UINT64_MAX)
            (void)arena_release(builder->region, builder->slot, builder->blocks[i], builder->owner);
    builder->block_count = 0;
    release_spares(builder);
}

void
builder_clear(struct payload_builder *builder, struct shm_payload *overwritten)
{
    builder_abandon(builder, overwritten);
    builder_init(builder, builder->region, builder->slot, builder->owner, builder->current, NULL);
}
