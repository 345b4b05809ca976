/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/region.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

enum { REGION_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

struct shm_ring
region_class_ring(const struct region *region, uint32_t class_index)
{
    const struct region_layout *layout = &region->layout;
    CHECK(class_index < layout->plan.class_count);
    uint64_t offset = layout->class_rings_offset[class_index];
    return (struct shm_ring){
        .shared = (struct shm_ring_shared *)(void *)(region->base + offset),
        .cell_count = layout->class_ring_cells[class_index],
        .cell_count_log2 = (uint32_t)__builtin_ctz(layout->class_ring_cells[class_index]),
        .place = (uint8_t)class_index,
    };
}

struct shm_ring
region_piece_ring(const struct region *region)
{
    const struct region_layout *layout = &region->layout;
    CHECK(layout->piece_ring_cells > 0);
    return (struct shm_ring){
        .shared = (struct shm_ring_shared *)(void *)(region->base + layout->piece_ring_offset),
        .cell_count = layout->piece_ring_cells,
        .cell_count_log2 = (uint32_t)__builtin_ctz(layout->piece_ring_cells),
        .place = PLACE_PIECE,
    };
}

static void
view_init(struct region *region)
{
    const struct region_layout *layout = &region->layout;
    region->header = (struct region_header *)(void *)region->base;
    region->slots = (struct shm_objects){
        .first = region->base + layout->slots_offset + offsetof(struct shm_slot, word),
        .stride = sizeof(struct shm_slot),
        .count = layout->plan.slot_count,
    };
    region->blocks = (struct shm_objects){
        .first = region->base + layout->block_words_offset,
        .stride = sizeof(uint64_t),
        .count = layout->block_count,
    };
}

/* Puts an object of a fresh region into its free ring. */
static void
place_fresh(const struct shm_ring *ring, const struct shm_objects *objects, uint32_t index)
{
    struct shm_word word = {.generation = 1, .place = ring->place, .owner = OWNER_COORDINATOR};
    atomic_store_explicit(object_word(objects, index), word_pack(word), memory_order_relaxed);
    CHECK(ring_fill_cell(ring, index, word) == RING_OK);
}

static void
fill_rings(struct region *region)
{
    const struct region_layout *layout = &region->layout;
    for (uint32_t place = 0; place <= layout->plan.stage_count; place++) {
        struct shm_ring ring = region_slot_ring(region, (uint8_t)place);
        ring_init(&ring);
    }
    struct shm_ring errors = region_slot_ring(region, PLACE_ERROR);
    ring_init(&errors);
    struct shm_ring free_slots = region_slot_ring(region, PLACE_FREE);
    ring_init(&free_slots);
    for (uint32_t i = 0; i < layout->plan.slot_count; i++) {
        atomic_store_explicit(&region_slot(region, i)->deadline_ns, TIME_NEVER_NS,
                              memory_order_relaxed);
        place_fresh(&free_slots, &region->slots, i);
    }
    if (layout->plan.pieces != 0) {
        struct shm_ring pieces = region_piece_ring(region);
        ring_init(&pieces);
    }
    for (uint32_t i = 0; i < layout->plan.class_count; i++) {
        struct shm_ring free_blocks = region_class_ring(region, i);
        ring_init(&free_blocks);
        for (uint32_t n = 0; n < layout->plan.class_block_counts[i]; n++)
            place_fresh(&free_blocks, &region->blocks, layout->first_block[i] + n);
    }
}

static void
write_header(struct region *region, uint64_t generation)
{
    struct region_header *header = region->header;
    *header = (struct region_header){
        .magic = REGION_MAGIC,
        .version = REGION_VERSION,
        .header_bytes = sizeof(struct region_header),
        .region_bytes = region->layout.region_bytes,
        .region_generation = generation,
        .plan = region->layout.plan,
    };
    header->checksum = region_checksum(header);
}

/* Signals interrupt large allocations; memory that was allocated stays so. */
static bool
allocate(int fd, size_t bytes)
{
    int result;
    do
        result = fallocate(fd, 0, 0, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

enum status
region_create(struct region *region, const struct region_plan *plan, uint64_t generation,
              struct error *error)
{
    *region = (struct region){.fd = -1};
    enum status status = layout_compute(plan, &region->layout, error);
    if (status != STATUS_OK)
        return status;
    size_t bytes = region->layout.region_bytes;
    region->fd = memfd_create("shoal-region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (region->fd < 0)
        return error_set_errno(error, "memfd_create");
    /* fallocate: a mere size could later fail with SIGBUS */
    if (ftruncate(region->fd, (off_t)bytes) != 0 || !allocate(region->fd, bytes)) {
        status = error_set_errno(error, "allocating a region of %zu bytes", bytes);
        goto failed;
    }
    void *base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, region->fd, 0);
    if (base == MAP_FAILED) {
        status = error_set_errno(error, "mapping a region of %zu bytes", bytes);
        goto failed;
    }
    region->base = base;
    if (fcntl(region->fd, F_ADD_SEALS, REGION_SEALS) != 0) {
        status = error_set_errno(error, "sealing a region");
        goto failed;
    }
    view_init(region);
    write_header(region, generation);
    fill_rings(region);
    return STATUS_OK;
failed:
    region_detach(region);
    return status;
}

static enum status
header_validate(const struct region_header *header, uint64_t file_bytes, struct error *error)
{
    if (header->magic != REGION_MAGIC)
        return error_set(error, STATUS_FAILED_PRECONDITION, "not a region: its magic is %016llx",
                         (unsigned long long)header->magic);
    if (header->version != REGION_VERSION || header->header_bytes != sizeof(*header))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "region version %u with a header of %u bytes; this program knows version "
                         "%u with %zu: coordinator and worker are of different builds",
                         header->version, header->header_bytes, REGION_VERSION, sizeof(*header));
    if (header->checksum != region_checksum(header))
        return error_set(error, STATUS_DATA_LOSS, "region header: wrong checksum");
    if (header->region_bytes != file_bytes)
        return error_set(error, STATUS_DATA_LOSS, "region of %llu bytes says it has %llu",
                         (unsigned long long)file_bytes, (unsigned long long)header->region_bytes);
    return STATUS_OK;
}

enum status
region_attach(struct region *region, int fd, struct error *error)
{
    *region = (struct region){.fd = -1};
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstat(fd, &info) != 0)
        return error_set_errno(error, "region descriptor %d", fd);
    if ((seals & REGION_SEALS) != REGION_SEALS)
        return error_set(error, STATUS_FAILED_PRECONDITION, "region is not sealed (seals %#x)",
                         (unsigned)seals);
    if ((size_t)info.st_size < sizeof(struct region_header))
        return error_set(error, STATUS_DATA_LOSS, "region of only %lld bytes",
                         (long long)info.st_size);
    size_t bytes = (size_t)info.st_size;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return error_set_errno(error, "mapping a region of %zu bytes", bytes);
    region->base = base;
    region->layout.region_bytes = bytes;
    struct region_header header;
    memcpy(&header, base, sizeof(header));
    enum status status = header_validate(&header, bytes, error);
    if (status == STATUS_OK)
        status = layout_compute(&header.plan, &region->layout, error);
    if (status == STATUS_OK && region->layout.region_bytes != bytes)
        status = error_set(error, STATUS_DATA_LOSS, "region of %zu bytes, its plan needs %llu",
                           bytes, (unsigned long long)region->layout.region_bytes);
    if (status != STATUS_OK) {
        munmap(base, bytes);
        *region = (struct region){.fd = -1};
        return status;
    }
    view_init(region);
    region->fd = fd;
    return STATUS_OK;
}

enum status
region_check_header(const struct region *region, struct error *error)
{
    struct region_header header;
    memcpy(&header, region->header, sizeof(header));
    enum status status = header_validate(&header, region->layout.region_bytes, error);
    if (status == STATUS_OK && memcmp(&header.plan, &region->layout.plan, sizeof(header.plan)) != 0)
        status = error_set(error, STATUS_DATA_LOSS, "region header: the plan differs");
    return status;
}

void
region_detach(struct region *region)
{
    if (region->base != NULL)
        CHECK(munmap(region->base, region->layout.region_bytes) == 0);
    if (region->base != NULL || region->fd > 0)
        close(region->fd);
    *region = (struct region){.fd = -1};
}
