/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of a slot: named tensors and the request's parameters, in the arena's blocks. A
 * payload is written once, by a builder, and read in place. Nothing in it is believed:
 * `payload_read` checks every index, offset, length, type and name against the region's layout, and
 * gives a private view.
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
    uint32_t name_offset; /* from the start of the table, as all offsets of strings */
    uint64_t offset;      /* of the data in its block */
    uint64_t bytes;
    int64_t shape[SHOAL_RANK_MAX];
};

struct payload_parameter {
    uint8_t type; /* enum shoal_parameter_type */
    uint8_t name_bytes;
    uint16_t reserved;
    uint32_t name_offset;
    uint64_t value; /* as bits; of a string: offset << 32 | bytes */
};

_Static_assert(sizeof(struct payload_tensor) == 88, "wire format");
_Static_assert(sizeof(struct payload_parameter) == 16, "wire format");

/* A validated payload. Pointers lead into the region; numbers are private copies. */
struct payload_view {
    struct shm_payload payload; /* the copy that was validated */
    uint32_t tensor_count;
    struct shoal_tensor tensors[SHOAL_TENSORS_MAX];
    uint8_t tensor_blocks[SHOAL_TENSORS_MAX]; /* block of each, index into payload.blocks */
    uint8_t name_bytes[SHOAL_TENSORS_MAX];
    const struct payload_parameter
        *parameters; /* not validated one by one: payload_parameter_find */
    const char *table;
};

/* DATA_LOSS naming what is wrong. */
enum status payload_read(const struct region *region, const struct shm_payload *payload,
                         struct payload_view *view, struct error *error) WARN_UNUSED;

/* No table that a builder makes is larger. */
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

/* The same of a region whose other side may write while we read: descriptor and table are copied
 * once, and the view points into `table`. Only the tensors' data stays where it is. */
enum status payload_read_copied(const struct region *region, const struct shm_payload *payload,
                                struct payload_table *table, struct payload_view *view,
                                struct error *error) WARN_UNUSED;

/* A parameter by name; 1 if there is one (and it is well-formed), else 0. */
int payload_parameter_find(const struct payload_view *view, const char *name,
                           struct shoal_parameter *parameter);

/* Product of the dimensions times the element's size, checked; false: negative dimension or
 * overflow. For SHOAL_BYTES the number of elements. */
bool tensor_bytes_for(uint32_t datatype, uint32_t rank, const int64_t *shape, uint64_t *bytes);

/* Of a SHOAL_BYTES tensor: its elements, each after its length, fill it, and are as many as its
 * shape says. INVALID_ARGUMENT naming the tensor and the element. */
enum status tensor_check_elements(const struct shoal_tensor *tensor,
                                  struct error *error) WARN_UNUSED;

/*
 * Builds the payload for the next place of a slot that the caller holds. Blocks it acquires belong
 * to the slot at once; those that only the overwritten descriptor names are used first.
 */
struct payload_builder {
    const struct region *region;
    const struct shm_payload *current;
    uint32_t slot;
    uint16_t party;
    uint16_t tensor_count;
    uint16_t parameter_count;
    uint8_t block_count;
    uint8_t spare_count;
    uint16_t blocks[PAYLOAD_BLOCKS_MAX];
    uint64_t
        used_bytes[PAYLOAD_BLOCKS_MAX]; /* of each block; UINT64_MAX: forwarded, not ours to fill */
    uint16_t spares[PAYLOAD_BLOCKS_MAX];
    uint32_t string_bytes;
    struct payload_tensor tensors[SHOAL_TENSORS_MAX];
    struct payload_parameter parameters[PARAMETERS_MAX];
    char strings[PAYLOAD_STRING_BYTES_MAX];
};

/*
 * Starts a payload. `current` is the valid descriptor, `overwritten` the one of the other parity;
 * both NULL for a fresh slot. `current` is kept: a block that it names is no room for anything new,
 * whatever the arena says.
 */
void builder_init(struct payload_builder *builder, const struct region *region, uint32_t slot,
                  uint16_t party, const struct shm_payload *current,
                  const struct shm_payload *overwritten);

/* Acquires one block with room for `bytes` of tensors (alignment included) and the table, so that
 * many tensors of known size share it. Optional. INVALID_ARGUMENT: no block of the arena is so
 * large, now or ever. */
enum status builder_reserve(struct payload_builder *builder, uint64_t bytes,
                            struct error *error) WARN_UNUSED;

/* Adds a tensor and lends its memory. `bytes` must agree with type and shape unless it is
 * SHOAL_BYTES. INVALID_ARGUMENT, ALREADY_EXISTS or RESOURCE_EXHAUSTED, naming the tensor and the
 * rule. */
enum status builder_add(struct payload_builder *builder, const struct shoal_tensor *tensor,
                        void **data, struct error *error) WARN_UNUSED;

/* Adds a tensor that lies in a block of the current payload, without copying. */
enum status builder_forward(struct payload_builder *builder, const struct payload_view *view,
                            uint32_t tensor_index, const char *name,
                            struct error *error) WARN_UNUSED;

enum status builder_parameter(struct payload_builder *builder, const char *name,
                              const struct shoal_parameter *parameter,
                              struct error *error) WARN_UNUSED;

/* Carries the parameters of the current payload over. */
enum status builder_carry_parameters(struct payload_builder *builder,
                                     const struct payload_view *view,
                                     struct error *error) WARN_UNUSED;

/* Adds to a fresh builder all that another one holds so far, data included; they may be of
 * different regions. As builder_add and builder_parameter. */
enum status builder_copy(struct payload_builder *builder, const struct payload_builder *from,
                         struct error *error) WARN_UNUSED;

/* Writes the table, gives spare blocks that were not used back, and fills `payload`, which is the
 * slot's descriptor for the next place. */
enum status builder_seal(struct payload_builder *builder, struct shm_payload *payload,
                         struct error *error) WARN_UNUSED;

/* Gives back what was acquired: the slot is to fail, and keeps only its current payload. */
void builder_abandon(struct payload_builder *builder, struct shm_payload *overwritten);
