/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of a slot: named tensors and the request's parameters, in the arena's blocks. A
 * builder writes a payload once; readers read it in place. `payload_read` trusts nothing: it checks
 * every index, offset, length, type and name against the region's layout and returns a private
 * view.
 *
 * The table, at `table_offset` in one of the blocks: payload_tensor × tensor_count,
 * payload_parameter × parameter_count, then the names and strings, each followed by a zero byte.
 */
#pragma once

#include <stdint.h>

#include <shoal/modelet.h>

#include "shm/region.h"

enum { PARAMETERS_MAX = 32, PAYLOAD_ALIGNMENT = 64 };

struct payload_tensor {
    uint8_t block; /* index into shm_payload.blocks */
    uint8_t datatype;
    uint8_t rank;
    uint8_t name_bytes;
    uint32_t name_offset; /* from the start of the table, like all offsets of strings */
    uint64_t offset;      /* of the data in its block */
    uint64_t bytes;
    int64_t shape[SHOAL_RANK_MAX];
};

struct payload_parameter {
    uint8_t type; /* enum shoal_parameter_type */
    uint8_t name_bytes;
    uint16_t reserved;
    uint32_t name_offset;
    uint64_t value; /* raw bits; of a string: offset << 32 | bytes */
};

_Static_assert(sizeof(struct payload_tensor) == 88, "wire format");
_Static_assert(sizeof(struct payload_parameter) == 16, "wire format");

/* A validated payload. Pointers lead into the region; numbers are private copies. */
struct payload_view {
    struct shm_payload payload; /* the validated copy */
    uint32_t tensor_count;
    struct shoal_tensor tensors[SHOAL_TENSORS_MAX];
    uint8_t tensor_blocks[SHOAL_TENSORS_MAX]; /* each tensor's block, as index into
                                               * payload.blocks */
    uint8_t name_bytes[SHOAL_TENSORS_MAX];
    const struct payload_parameter *parameters; /* validated by payload_parameter_find */
    const char *table;
};

/* Validates and reads a payload. DATA_LOSS, naming the fault. */
enum status payload_read(const struct region *region, const struct shm_payload *payload,
                         struct payload_view *view, struct error *error) WARN_UNUSED;

/* The largest table that a builder can make. */
enum {
    PAYLOAD_STRING_BYTES_MAX = SHOAL_TENSORS_MAX * (SHOAL_NAME_BYTES_MAX + 1) + 4096,
    PAYLOAD_TABLE_BYTES_MAX = SHOAL_TENSORS_MAX * (int)sizeof(struct payload_tensor) +
                              PARAMETERS_MAX * (int)sizeof(struct payload_parameter) +
                              PAYLOAD_STRING_BYTES_MAX,
};

/* Private memory for a table. */
struct payload_table {
    _Alignas(8) char bytes[PAYLOAD_TABLE_BYTES_MAX];
};

/* Like payload_read(), but the region may be written by another process: copies descriptor and
 * table once, and the view points into `table`. Only the tensors' data stays in the region. */
enum status payload_read_copied(const struct region *region, const struct shm_payload *payload,
                                struct payload_table *table, struct payload_view *view,
                                struct error *error) WARN_UNUSED;

/* Finds a parameter by name. Returns 1 if it exists and is well-formed, else 0. */
int payload_parameter_find(const struct payload_view *view, const char *name,
                           struct shoal_parameter *parameter);

/* Computes the product of dimensions and element size (SHOAL_BYTES: the number of elements). False:
 * negative dimension or overflow. */
bool tensor_bytes_for(uint32_t datatype, uint32_t rank, const int64_t *shape, uint64_t *bytes);

/* Checks that the length-prefixed elements of a SHOAL_BYTES tensor fill it and are as many as its
 * shape says. INVALID_ARGUMENT, naming the tensor and the element. */
enum status tensor_check_elements(const struct shoal_tensor *tensor,
                                  struct error *error) WARN_UNUSED;

/*
 * Builds the payload for the next place of a slot that the caller holds. Blocks that it acquires
 * belong to the slot at once; blocks that only the overwritten descriptor names are reused first.
 */
struct payload_builder {
    const struct region *region;
    const struct shm_payload *current;
    uint32_t slot;
    uint16_t owner;
    uint16_t tensor_count;
    uint16_t parameter_count;
    uint8_t block_count;
    uint8_t spare_count;
    uint16_t blocks[PAYLOAD_BLOCKS_MAX];
    uint64_t
        used_bytes[PAYLOAD_BLOCKS_MAX]; /* per block; UINT64_MAX: forwarded, not to be filled */
    uint16_t spares[PAYLOAD_BLOCKS_MAX];
    uint32_t string_bytes;
    struct payload_tensor tensors[SHOAL_TENSORS_MAX];
    struct payload_parameter parameters[PARAMETERS_MAX];
    char strings[PAYLOAD_STRING_BYTES_MAX];
};

/*
 * Starts a payload. `current` is the valid descriptor, `overwritten` that of the other parity; both
 * NULL for a fresh slot. `current` must stay: its blocks are never used for new data, even if the
 * arena offers them.
 */
void builder_init(struct payload_builder *builder, const struct region *region, uint32_t slot,
                  uint16_t owner, const struct shm_payload *current,
                  const struct shm_payload *overwritten);

/* Acquires one block with room for `bytes` of tensors (with alignment) and the table, so that
 * tensors of known size share it. Optional. INVALID_ARGUMENT: no block of the arena is so large. */
enum status builder_reserve(struct payload_builder *builder, uint64_t bytes,
                            struct error *error) WARN_UNUSED;

/* Adds a tensor and returns its memory. `bytes` must agree with type and shape unless it is
 * SHOAL_BYTES. INVALID_ARGUMENT, ALREADY_EXISTS or RESOURCE_EXHAUSTED, naming the tensor and the
 * rule. */
enum status builder_add(struct payload_builder *builder, const struct shoal_tensor *tensor,
                        void **data, struct error *error) WARN_UNUSED;

/* Adds a tensor of the current payload without copying it. */
enum status builder_forward(struct payload_builder *builder, const struct payload_view *view,
                            uint32_t tensor_index, const char *name,
                            struct error *error) WARN_UNUSED;

enum status builder_parameter(struct payload_builder *builder, const char *name,
                              const struct shoal_parameter *parameter,
                              struct error *error) WARN_UNUSED;

/* Adds the parameters of the current payload. */
enum status builder_carry_parameters(struct payload_builder *builder,
                                     const struct payload_view *view,
                                     struct error *error) WARN_UNUSED;

/* Copies the content of another builder, data included, into a fresh one; their regions may differ.
 * Errors as builder_add and builder_parameter. */
enum status builder_copy(struct payload_builder *builder, const struct payload_builder *from,
                         struct error *error) WARN_UNUSED;

/* Writes the table, releases unused spare blocks, and fills `payload`, the slot's descriptor for
 * the next place. */
enum status builder_seal(struct payload_builder *builder, struct shm_payload *payload,
                         struct error *error) WARN_UNUSED;

/* Like builder_seal(), but the payload becomes all of one block with `tail_bytes` unused at its
 * end. Tensors in several blocks, or forwarded, are copied. The builder is then empty: it goes on
 * with the next payload of the same slot. */
enum status builder_seal_alone(struct payload_builder *builder, uint32_t tail_bytes,
                               struct shm_payload *payload, struct error *error) WARN_UNUSED;

/* Drops what was added; the builder goes on with nothing. */
void builder_clear(struct payload_builder *builder, struct shm_payload *overwritten);

/* Releases the acquired blocks: the slot will fail and keeps only its current payload. */
void builder_abandon(struct payload_builder *builder, struct shm_payload *overwritten);
