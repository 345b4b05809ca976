/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Triton's system shared memory: regions of /dev/shm that callers have registered by a name, and
 * that inputs and outputs lie in.
 *
 * A caller may cut its memory short at any time, which would kill a process that had mapped it. So
 * it is never mapped: tensors are read by pread and written by pwrite, where that is one call's
 * error. Its descriptor must not block: the object is opened without waiting (for a lease, or a
 * FIFO's other end), and must be a regular file on tmpfs, whose reads are copies of memory.
 *
 * Threads: any. A region that is held outlives its registration.
 */
#pragma once

#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"

struct shared_memory;
struct shared_region;

/* Nodes of a mesh take calls for one another, but each has a memory of its own. */
enum shared_memory_rule { SHARED_MEMORY_ON, SHARED_MEMORY_OFF, SHARED_MEMORY_OF_MESH };

struct shared_memory_options {
    enum shared_memory_rule rule;
    uint32_t regions_max;
    uint64_t request_bytes_max; /* of all inputs of a request that lie there */
};

struct shared_memory *shared_memory_create(const struct shared_memory_options *options);
/* Call when nothing is held. NULL is ignored. */
void shared_memory_destroy(struct shared_memory *memory);

/* Checks that the node has it at all; NULL: no. PERMISSION_DENIED names the key, INVALID_ARGUMENT:
 * the node is one of a mesh. */
enum status shared_memory_judge(enum shared_memory_rule rule, struct error *error) WARN_UNUSED;
enum status shared_memory_permit(const struct shared_memory *memory,
                                 struct error *error) WARN_UNUSED;
bool shared_memory_is_on(const struct shared_memory *memory);
/* PERMISSION_DENIED: the caller is of another machine. */
enum status shared_memory_refuse_far(struct error *error);
uint64_t shared_memory_request_bytes_max(const struct shared_memory *memory);
uint32_t shared_memory_count(struct shared_memory *memory);

struct shared_region_spec {
    const char *name; /* UTF-8, at most SHOAL_NAME_BYTES_MAX bytes */
    const char *key;  /* as for shm_open: with or without a slash before it */
    uint64_t offset;
    uint64_t bytes;
};

/* ALREADY_EXISTS: the name. NOT_FOUND, PERMISSION_DENIED: the object. INVALID_ARGUMENT: its key, or
 * what it is; or it is too short. RESOURCE_EXHAUSTED: too many regions, those that calls still
 * hold included, or descriptors. */
enum status shared_memory_register(struct shared_memory *memory,
                                   const struct shared_region_spec *spec,
                                   struct error *error) WARN_UNUSED;
/* Forgets a region, or all of them if the name is "". One that is not there is no error. */
void shared_memory_unregister(struct shared_memory *memory, const char *name);
/* Appends the fields of a SystemSharedMemoryStatusResponse. NOT_FOUND: no region has the name; "":
 * all of them. */
enum status shared_memory_put_status(struct shared_memory *memory, const char *name,
                                     struct bytes *out, struct error *error) WARN_UNUSED;

/* ---- for a request ---- */

/* Holds a region until shared_region_release. NOT_FOUND. */
enum status shared_memory_hold(struct shared_memory *memory, const char *name,
                               struct shared_region **held, struct error *error) WARN_UNUSED;
void shared_region_release(struct shared_region *region);
/* INVALID_ARGUMENT: not a part of the region. */
enum status shared_region_check(const struct shared_region *region, uint64_t offset, uint64_t bytes,
                                struct error *error) WARN_UNUSED;
/* The part has been checked. INVALID_ARGUMENT: the object has become too short. A failed write may
 * have written a part. */
enum status shared_region_read(const struct shared_region *region, uint64_t offset, void *to,
                               uint64_t bytes, struct error *error) WARN_UNUSED;
enum status shared_region_write(const struct shared_region *region, uint64_t offset,
                                const void *from, uint64_t bytes, struct error *error) WARN_UNUSED;
