/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of a region: the limits of a plan and what is said about them, offsets that neither
 * overlap nor leave the region, how an arena is divided, and every reason for which a worker
 * refuses to attach.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "shm/arena.h"
#include "shm/region.h"
#include "shm/slot.h"

static struct region_plan
small_plan(void)
{
    return (struct region_plan){
        .slot_count = 5,
        .stage_count = 2,
        .worker_counts = {1, 3},
        .class_count = 2,
        .class_block_counts = {3, 2},
        .class_block_bytes = {2048, 8192},
    };
}

/* ---- plans ---- */

static void
expect_refused(const struct region_plan *plan, const char *text)
{
    struct region_layout layout;
    struct error error = ERROR_NONE;
    assert_int_equal(layout_compute(plan, &layout, &error), STATUS_INVALID_ARGUMENT);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

#define REFUSED(change, text)                                                                      \
    do {                                                                                           \
        struct region_plan plan = small_plan();                                                    \
        change;                                                                                    \
        expect_refused(&plan, text);                                                               \
    } while (0)

TEST_CASE(test_plan_limits)
{
    REFUSED(plan.slot_count = 0, "0 slots: must be 1 to 65535");
    REFUSED(plan.slot_count = SLOTS_MAX + 1, "65536 slots: must be 1 to 65535");
    REFUSED(plan.stage_count = 0, "0 stages");
    REFUSED(plan.stage_count = STAGES_MAX + 1, "17 stages: must be 1 to 16");
    REFUSED(plan.worker_counts[1] = 0, "stage 1 has 0 workers");
    REFUSED(plan.worker_counts[1] = 65, "stage 1 has 65 workers: must be 1 to 64");
    REFUSED(plan.class_count = 0, "0 size classes");
    REFUSED(plan.class_count = CLASSES_MAX + 1, "13 size classes");
    REFUSED(plan.class_block_bytes[0] = 1024, "blocks of 1024 bytes");
    REFUSED(plan.class_block_bytes[0] = 2049, "blocks of 2049 bytes");
    REFUSED(plan.class_block_bytes[1] = UINT64_C(1) << 33, "blocks of 8589934592 bytes");
    REFUSED(plan.class_block_bytes[1] = 2048,
            "size class 1 has blocks of 2048 bytes, the one before of 2048");
    REFUSED(plan.class_block_bytes[0] = 8256,
            "size class 1 has blocks of 8192 bytes, the one before of 8256");
    REFUSED(plan.class_block_counts[1] = 0, "size class 1 has no block");
    REFUSED(plan.class_block_counts[1] = BLOCKS_MAX - 2, "65536 blocks: must be at most 65535");
}

TEST_CASE(test_parts_do_not_overlap)
{
    struct region_plan plans[] = {small_plan(), small_plan(), small_plan()};
    plans[1].slot_count = SLOTS_MAX;
    plans[1].stage_count = STAGES_MAX;
    for (uint32_t i = 0; i < STAGES_MAX; i++)
        plans[1].worker_counts[i] = STAGE_WORKERS_MAX;
    plans[2].slot_count = 1;
    plans[2].class_block_counts[0] = BLOCKS_MAX - 2;
    for (uint32_t n = 0; n < ARRAY_COUNT(plans); n++) {
        struct region_layout l;
        struct error error = ERROR_NONE;
        assert_int_equal(layout_compute(&plans[n], &l, &error), STATUS_OK);
        assert_true(l.stages_offset >= sizeof(struct region_header));
        assert_true(l.workers_offset >=
                    l.stages_offset + plans[n].stage_count * sizeof(struct shm_stage));
        assert_true(l.slots_offset >=
                    l.workers_offset + l.worker_total * sizeof(struct shm_worker));
        assert_true(l.slot_rings_offset >=
                    l.slots_offset + (uint64_t)plans[n].slot_count * sizeof(struct shm_slot));
        assert_true(l.slot_ring_cells >= 2 * plans[n].slot_count);
        uint64_t end = l.slot_rings_offset + l.slot_ring_count * l.slot_ring_bytes;
        for (uint32_t i = 0; i < plans[n].class_count; i++) {
            assert_true(l.class_rings_offset[i] >= end);
            assert_true(l.class_ring_cells[i] >= 2 * plans[n].class_block_counts[i]);
            end = l.class_rings_offset[i] + ring_bytes(l.class_ring_cells[i]);
        }
        assert_true(l.block_words_offset >= end);
        assert_int_equal(l.block_words_offset % 8, 0);
        end = l.block_words_offset + l.block_count * sizeof(uint64_t);
        for (uint32_t i = 0; i < plans[n].class_count; i++) {
            assert_true(l.arena_offset[i] >= end);
            assert_int_equal(l.arena_offset[i] % 4096, 0);
            end =
                l.arena_offset[i] + plans[n].class_block_counts[i] * plans[n].class_block_bytes[i];
        }
        assert_true(l.region_bytes >= end);
        assert_int_equal(l.stages_offset % 64 + l.workers_offset % 64 + l.slots_offset % 64 +
                             l.slot_rings_offset % 64 + l.slot_ring_bytes % 64,
                         0);
    }
}

TEST_CASE(test_plan_arena)
{
    static const uint64_t messages[] = {1, 4096, 1 << 20, 16 << 20, UINT64_C(256) << 20};
    static const uint32_t slots[] = {1, 64, 1024, SLOTS_MAX};
    for (uint32_t m = 0; m < ARRAY_COUNT(messages); m++)
        for (uint32_t s = 0; s < ARRAY_COUNT(slots); s++)
            for (uint64_t arena = 1 << 20; arena <= UINT64_C(4) << 30; arena *= 4) {
                struct region_plan plan = small_plan();
                plan.slot_count = slots[s];
                struct error error = ERROR_NONE;
                enum status status = plan_arena(&plan, messages[m], arena, &error);
                if (status != STATUS_OK) {
                    assert_int_equal(status, STATUS_INVALID_ARGUMENT);
                    assert_non_null(strstr(error.text, "at least"));
                    continue;
                }
                struct region_layout layout;
                assert_int_equal(layout_compute(&plan, &layout, &error), STATUS_OK);
                uint64_t bytes = 0;
                for (uint32_t i = 0; i < plan.class_count; i++) {
                    bytes += plan.class_block_counts[i] * plan.class_block_bytes[i];
                    assert_true(plan.class_block_counts[i] >= 2);
                    if (i > 0)
                        assert_true(plan.class_block_bytes[i] > plan.class_block_bytes[i - 1]);
                }
                assert_true(bytes <= arena);
                assert_true(plan.class_block_bytes[plan.class_count - 1] > messages[m]);
            }
}

/* The least size that a refusal names is enough. */
TEST_CASE(test_plan_arena_names_enough)
{
    struct region_plan plan = small_plan();
    struct error error = ERROR_NONE;
    assert_int_equal(plan_arena(&plan, 16 << 20, 1 << 20, &error), STATUS_INVALID_ARGUMENT);
    unsigned long long least = 0;
    const char *text = strstr(error.text, "at least ");
    assert_non_null(text);
    for (text += strlen("at least "); *text >= '0' && *text <= '9'; text++)
        least = least * 10 + (unsigned long long)(*text - '0');
    assert_int_equal(plan_arena(&plan, 16 << 20, least << 20, &error), STATUS_OK);
}

/* ---- regions ---- */

/* The promise of local_mib, for every value. */
TEST_CASE(test_plan_arena_holds_a_fifth)
{
    for (uint64_t mib = 1; mib <= 65536; mib++) {
        struct region_plan plan = small_plan();
        struct error error = ERROR_NONE;
        if (plan_arena(&plan, (mib << 20) / 5, mib << 20, &error) != STATUS_OK)
            fail_msg("%u MiB: %s", (unsigned)mib, error.text);
    }
}

TEST_CASE(test_fresh_region)
{
    struct region region;
    struct region_plan plan = small_plan();
    struct error error = ERROR_NONE;
    assert_int_equal(region_create(&region, &plan, 42, &error), STATUS_OK);
    assert_int_equal(region.header->region_generation, 42);
    assert_int_equal(slots_used(&region), 0);
    assert_int_equal(slots_in_flight(&region), 0);
    assert_int_equal(arena_used(&region, -1), 0);
    assert_int_equal(atomic_load(&region_slot(&region, 4)->deadline_ns), TIME_NEVER_NS);
    assert_int_equal(region_result_place(&region), 2);
    for (uint32_t place = 0; place < 256; place++)
        assert_int_equal(region_place_exists(&region, (uint8_t)place),
                         place <= 2 || place == PLACE_ERROR || place == PLACE_FREE);
    /* nobody can take memory away from under us, or seal more */
    assert_int_not_equal(ftruncate(region.fd, 4096), 0);
    assert_int_not_equal(fcntl(region.fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    struct shm_ticket ticket;
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(slot_acquire(&region, OWNER_COORDINATOR, &ticket), RING_OK);
    assert_int_equal(slot_acquire(&region, OWNER_COORDINATOR, &ticket), RING_EMPTY);
    assert_int_equal(slots_used(&region), 5);
    assert_int_equal(slots_in_flight(&region), 5);
    struct shm_ring ring = region_slot_ring(&region, 0);
    assert_true(ring_pushes(&ring) == 0);
    assert_int_equal(slot_push(&region, ticket, PLACE_FREE, 0, OWNER_COORDINATOR, 1), RING_OK);
    assert_true(ring_pushes(&ring) == 1);
    /* hints that somebody spoiled are still counts of slots */
    struct shm_ring free_ring = region_slot_ring(&region, PLACE_FREE);
    for (uint64_t spoiled = 1; spoiled != 0; spoiled <<= 1) {
        atomic_store(&free_ring.shared->tail, spoiled);
        assert_true(slots_in_flight(&region) <= 5);
        atomic_store(&free_ring.shared->head, ~spoiled);
        assert_true(slots_in_flight(&region) <= 5);
    }
    region_detach(&region);
    region_detach(&region); /* harmless */
}

/* Each use of a slot has a ticket of its own, and an old one moves nothing. */
TEST_CASE(test_tickets)
{
    struct region region;
    struct region_plan plan = small_plan();
    struct error error = ERROR_NONE;
    plan.slot_count = 1;
    assert_int_equal(region_create(&region, &plan, 1, &error), STATUS_OK);
    struct shm_ticket first, second;
    assert_int_equal(slot_acquire(&region, OWNER_COORDINATOR, &first), RING_OK);
    assert_int_equal(slot_release(&region, first, PLACE_FREE, OWNER_COORDINATOR), STATUS_OK);
    assert_int_equal(slot_acquire(&region, OWNER_COORDINATOR, &second), RING_OK);
    assert_int_equal(second.index, first.index);
    assert_int_equal(second.generation, first.generation + 1);
    assert_int_equal(slot_push(&region, first, PLACE_FREE, 0, OWNER_COORDINATOR, 1), RING_LOST);
    assert_int_equal(slot_release(&region, first, PLACE_FREE, OWNER_COORDINATOR), STATUS_DATA_LOSS);
    slot_cancel(&region, first); /* too late: harmless */
    assert_false(slot_cancelled(region_slot(&region, 0), second.generation));
    slot_cancel(&region, second);
    assert_true(slot_cancelled(region_slot(&region, 0), second.generation));
    assert_int_equal(slot_push(&region, second, PLACE_FREE, 0, OWNER_COORDINATOR, 77), RING_OK);
    assert_int_equal(atomic_load(&region_slot(&region, 0)->enqueued_ns), 77);
    region_detach(&region);
}

TEST_CASE(test_attach_shares)
{
    struct region region, other;
    struct region_plan plan = small_plan();
    struct error error = ERROR_NONE;
    assert_int_equal(region_create(&region, &plan, 1, &error), STATUS_OK);
    assert_int_equal(region_attach(&other, dup(region.fd), &error), STATUS_OK);
    assert_memory_equal(&region.layout, &other.layout, sizeof(region.layout));
    struct shm_ticket ticket;
    assert_int_equal(slot_acquire(&other, OWNER_COORDINATOR, &ticket), RING_OK);
    assert_int_equal(slots_used(&region), 1);
    region_detach(&other);
    region_detach(&region);
}

/* A descriptor with the contents of a fresh region, changed by `spoil`; -1 bytes: as many as there
 * are. */
static int
spoiled(void (*spoil)(struct region_header *), int64_t bytes, int seals)
{
    struct region region;
    struct region_plan plan = small_plan();
    struct error error = ERROR_NONE;
    assert_int_equal(region_create(&region, &plan, 1, &error), STATUS_OK);
    if (spoil != NULL)
        spoil(region.header);
    size_t size = region.layout.region_bytes;
    size_t wanted = bytes < 0 ? size : (size_t)bytes;
    int fd = memfd_create("spoiled", MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)wanted), 0);
    size = wanted < size ? wanted : size;
    assert_int_equal(pwrite(fd, region.base, size, 0), size);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    region_detach(&region);
    return fd;
}

static void
expect_attach_fails(int fd, enum status status, const char *text)
{
    struct region region;
    struct error error = ERROR_NONE;
    assert_int_equal(region_attach(&region, fd, &error), status);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
    assert_null(region.base);
    assert_true(fcntl(fd, F_GETFD) >= 0); /* not taken over */
    region_detach(&region);
    close(fd);
}

static void
spoil_magic(struct region_header *header)
{
    header->magic++;
}

static void
spoil_version(struct region_header *header)
{
    header->version++;
}

static void
spoil_header_bytes(struct region_header *header)
{
    header->header_bytes -= 8;
}

static void
spoil_checksum(struct region_header *header)
{
    header->plan.slot_count++;
}

static void
spoil_size(struct region_header *header)
{
    header->region_bytes += 4096;
    header->checksum = region_checksum(header);
}

static void
spoil_plan(struct region_header *header)
{
    header->plan.slot_count = 0;
    header->checksum = region_checksum(header);
}

static void
spoil_plan_size(struct region_header *header)
{
    header->plan.slot_count = 1000;
    header->checksum = region_checksum(header);
}

TEST_CASE(test_attach_refuses)
{
    enum { ALL = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
    expect_attach_fails(spoiled(NULL, -1, F_SEAL_SHRINK), STATUS_FAILED_PRECONDITION, "not sealed");
    expect_attach_fails(spoiled(NULL, -1, F_SEAL_GROW | F_SEAL_SHRINK), STATUS_FAILED_PRECONDITION,
                        "not sealed");
    expect_attach_fails(spoiled(spoil_magic, -1, ALL), STATUS_FAILED_PRECONDITION, "magic");
    expect_attach_fails(spoiled(spoil_version, -1, ALL), STATUS_FAILED_PRECONDITION, "version 4");
    expect_attach_fails(spoiled(spoil_header_bytes, -1, ALL), STATUS_FAILED_PRECONDITION,
                        "different builds");
    expect_attach_fails(spoiled(spoil_checksum, -1, ALL), STATUS_DATA_LOSS, "checksum");
    expect_attach_fails(spoiled(spoil_size, -1, ALL), STATUS_DATA_LOSS, "says it has");
    expect_attach_fails(spoiled(spoil_plan, -1, ALL), STATUS_INVALID_ARGUMENT, "0 slots");
    expect_attach_fails(spoiled(spoil_plan_size, -1, ALL), STATUS_DATA_LOSS, "its plan needs");
    expect_attach_fails(spoiled(NULL, 100, ALL), STATUS_DATA_LOSS, "only 100 bytes");
    expect_attach_fails(spoiled(NULL, 8192, ALL), STATUS_DATA_LOSS, "says it has");
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    struct region region;
    struct error error = ERROR_NONE;
    assert_int_not_equal(region_attach(&region, pipe_fds[0], &error), STATUS_OK);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

/* ---- the arena ---- */

TEST_CASE(test_arena)
{
    struct region region;
    struct region_plan plan = small_plan();
    struct error error = ERROR_NONE;
    assert_int_equal(region_create(&region, &plan, 1, &error), STATUS_OK);
    assert_int_equal(arena_class_for(&region.layout, 0), 0);
    assert_int_equal(arena_class_for(&region.layout, 2048), 0);
    assert_int_equal(arena_class_for(&region.layout, 2049), 1);
    assert_int_equal(arena_class_for(&region.layout, 8193), -1);
    uint32_t blocks[5], block;
    assert_int_equal(arena_acquire(&region, 0, 8193, &block), STATUS_RESOURCE_EXHAUSTED);
    for (uint32_t i = 0; i < 5; i++) { /* three small ones, then the large ones for want of small */
        assert_int_equal(arena_acquire(&region, i, 100, &blocks[i]), STATUS_OK);
        assert_int_equal(arena_class_of(&region.layout, blocks[i]), i < 3 ? 0 : 1);
        memset(arena_block(&region, blocks[i]), (int)i,
               arena_block_bytes(&region.layout, blocks[i]));
    }
    assert_int_equal(arena_used(&region, -1), 5);
    assert_int_equal(arena_used(&region, 1), 2);
    assert_int_equal(arena_acquire(&region, 0, 100, &block), STATUS_RESOURCE_EXHAUSTED);
    /* memory of its own for each */
    for (uint32_t i = 0; i < 5; i++) {
        const char *bytes = arena_block(&region, blocks[i]);
        assert_int_equal((uintptr_t)bytes % 64, 0);
        assert_int_equal(bytes[0], (int)i);
        assert_int_equal(bytes[arena_block_bytes(&region.layout, blocks[i]) - 1], (int)i);
    }
    assert_int_equal(arena_release(&region, 1, blocks[0], 1), STATUS_FAILED_PRECONDITION);
    assert_int_equal(arena_release(&region, 0, blocks[0], 1), STATUS_OK);
    assert_int_equal(arena_release(&region, 0, blocks[0], 1), STATUS_FAILED_PRECONDITION);
    assert_int_equal(arena_release(&region, 0, 5, 1), STATUS_DATA_LOSS);
    assert_int_equal(arena_used(&region, -1), 4);
    assert_int_equal(arena_acquire(&region, 4, 2048, &block), STATUS_OK);
    assert_int_equal(block, blocks[0]);
    region_detach(&region);
}

TEST_CASE(test_arena_corrupt)
{
    struct region region;
    struct region_plan plan = small_plan();
    struct error error = ERROR_NONE;
    uint32_t block;
    assert_int_equal(region_create(&region, &plan, 1, &error), STATUS_OK);
    /* a small block that waits among the large ones */
    struct shm_ring large = region_class_ring(&region, 1);
    struct shm_word word = {.generation = 9, .place = 1, .owner = 1};
    atomic_store(object_word(&region.blocks, 0), word_pack(word));
    atomic_store(&large.shared->cells[0], cell_full(0, 0, word));
    assert_int_equal(arena_acquire(&region, 0, 8192, &block), STATUS_DATA_LOSS);
    word = (struct shm_word){.generation = 9, .place = 1, .held = true, .owner = 0};
    atomic_store(object_word(&region.blocks, 0), word_pack(word));
    assert_int_equal(arena_release(&region, 0, 0, 1), STATUS_DATA_LOSS);
    atomic_store(object_word(&region.blocks, 0), 0);
    assert_int_equal(arena_release(&region, 0, 0, 1), STATUS_DATA_LOSS);
    region_detach(&region);
}

/* Sixteen blocks, of which two may be kept; all are had once, in order. */
static struct region
keeping_region(struct arena_kept *kept, uint32_t blocks[16])
{
    struct region region;
    struct region_plan plan = small_plan();
    struct error error = ERROR_NONE;
    plan.class_block_counts[0] = 16;
    assert_int_equal(region_create(&region, &plan, 1, &error), STATUS_OK);
    arena_keep(&region, kept);
    for (uint32_t i = 0; i < 16; i++) {
        assert_int_equal(arena_acquire(&region, 3, 100, &blocks[i]), STATUS_OK);
        assert_int_equal(arena_class_of(&region.layout, blocks[i]), 0);
    }
    return region;
}

TEST_CASE(test_arena_keeps)
{
    struct arena_kept kept;
    uint32_t blocks[16], block;
    struct region region = keeping_region(&kept, blocks);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(arena_release(&region, 3, blocks[i], 1), STATUS_OK);
    assert_int_equal(arena_used(&region, 0), 12);
    assert_true(arena_keeps(&region, blocks[0]) && arena_keeps(&region, blocks[1]));
    assert_false(arena_keeps(&region, blocks[2]) || arena_keeps(&region, blocks[3]));
    assert_int_equal(arena_release(&region, 3, blocks[1], 1), STATUS_FAILED_PRECONDITION);
    /* the last one kept first, then what has lain longest in the ring */
    static const uint32_t order[] = {1, 0, 2, 3};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(arena_acquire(&region, 4, 100, &block), STATUS_OK);
        assert_int_equal(block, blocks[order[i]]);
        assert_true(arena_holds(&region, 4, block));
        assert_false(arena_keeps(&region, block));
    }
    /* a process that finds it busy goes to the rings, and an audit can't tell */
    assert_false(atomic_flag_test_and_set(&kept.busy));
    assert_int_equal(arena_release(&region, 3, blocks[5], 1), STATUS_OK);
    assert_true(arena_keeps(&region, blocks[6]));
    atomic_flag_clear(&kept.busy);
    assert_false(arena_keeps(&region, blocks[5]));
    assert_int_equal(arena_acquire(&region, 4, 100, &block), STATUS_OK);
    assert_int_equal(block, blocks[5]);
    region_detach(&region);
}

TEST_CASE(test_arena_kept_corrupt)
{
    struct arena_kept kept;
    uint32_t blocks[16], block;
    struct region region = keeping_region(&kept, blocks);
    static const struct shm_word forged[] = {
        {.generation = 0, .held = true, .owner = OWNER_KEEPER},
        {.generation = 9, .held = true, .owner = 2},
        {.generation = 9, .held = false, .owner = OWNER_KEEPER},
    };
    for (uint32_t i = 0; i < ARRAY_COUNT(forged); i++) {
        assert_int_equal(arena_release(&region, 3, blocks[i], 1), STATUS_OK);
        assert_true(arena_keeps(&region, blocks[i]));
        atomic_store(object_word(&region.blocks, blocks[i]), word_pack(forged[i]));
        assert_int_equal(arena_acquire(&region, 4, 100, &block), STATUS_DATA_LOSS);
    }
    region_detach(&region);
}

TEST_MAIN()
