/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Payloads: what a builder writes a reader finds, over several stages with forwards and spare
 * blocks; the limits on names, tensors, blocks and strings; and tables that a hostile modelet
 * wrote. For these the region lies between two pages that nobody may touch, and what a reader
 * accepts must lie wholly in the blocks that the payload names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../random.h"
#include "../test.h"
#include "base/check.h"
#include "shm/arena.h"
#include "shm/payload.h"
#include "shm/slot.h"

enum { SLOT = 1, PARTY = OWNER_COORDINATOR, SMALL = 2048, LARGE = 16384, PAGE = 4096 };

static struct region region;
static struct payload_builder builder;
static struct payload_view view;
static struct error error;
static char *guarded;
static size_t guarded_bytes;

/* Moves a region's bytes between two forbidden pages. */
static int
set_up(void **state)
{
    (void)state;
    struct region_plan plan = {.slot_count = 4,
                               .stage_count = 3,
                               .worker_counts = {1, 1, 1},
                               .class_count = 2,
                               .class_block_counts = {6, 12},
                               .class_block_bytes = {SMALL, LARGE}};
    struct region made;
    error = ERROR_NONE;
    if (region_create(&made, &plan, 1, &error) != STATUS_OK)
        return -1;
    size_t bytes = made.layout.region_bytes;
    guarded_bytes = bytes + 2 * PAGE;
    guarded = mmap(NULL, guarded_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (guarded == MAP_FAILED || mprotect(guarded + PAGE, bytes, PROT_READ | PROT_WRITE) != 0)
        return -1;
    memcpy(guarded + PAGE, made.base, bytes);
    region = made;
    region.fd = -1;
    region.base = guarded + PAGE;
    region.header = (void *)region.base;
    region.slots.first = region.base + (made.slots.first - made.base);
    region.blocks.first = region.base + (made.blocks.first - made.base);
    region_detach(&made);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    return munmap(guarded, guarded_bytes);
}

static struct shoal_tensor
bytes_tensor(const char *name, int64_t bytes)
{
    return (struct shoal_tensor){
        .name = name, .datatype = SHOAL_UINT8, .rank = 1, .shape = {bytes}, .bytes = (size_t)bytes};
}

static void *
add(const char *name, int64_t bytes, int fill)
{
    struct shoal_tensor tensor = bytes_tensor(name, bytes);
    void *data = NULL;
    if (builder_add(&builder, &tensor, &data, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_int_equal((uintptr_t)data % PAYLOAD_ALIGNMENT, 0);
    memset(data, fill, (size_t)bytes);
    return data;
}

static void
begin(const struct shm_payload *current, const struct shm_payload *overwritten)
{
    builder_init(&builder, &region, SLOT, PARTY, current, overwritten);
}

static void
seal(struct shm_payload *payload)
{
    if (builder_seal(&builder, payload, &error) != STATUS_OK)
        fail_msg("%s", error.text);
}

static void
read_back(const struct shm_payload *payload)
{
    if (payload_read(&region, payload, &view, &error) != STATUS_OK)
        fail_msg("%s", error.text);
}

static void
expect_tensor(uint32_t index, const char *name, size_t bytes, int fill)
{
    const struct shoal_tensor *tensor = &view.tensors[index];
    assert_string_equal(tensor->name, name);
    assert_int_equal(view.name_bytes[index], strlen(name));
    assert_int_equal(tensor->bytes, bytes);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(((const unsigned char *)tensor->data)[i], fill);
}

static void
expect_all_free(void)
{
    assert_int_equal(arena_used(&region, -1), 0);
}

static void
release_both(struct shm_payload payloads[2])
{
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t n = 0; n < payloads[i].block_count; n++)
            (void)arena_release(&region, SLOT, payloads[i].blocks[n], PARTY);
    expect_all_free();
}

/* ---- round trips ---- */

TEST_CASE(test_round_trip)
{
    struct shm_payload payloads[2] = {{.block_count = 0}};
    begin(NULL, NULL);
    assert_int_equal(builder_reserve(&builder, 700, &error), STATUS_OK);
    struct shoal_tensor matrix = {
        .name = "matrix", .datatype = SHOAL_FP32, .rank = 3, .shape = {2, 5, 7}, .bytes = 280};
    struct shoal_tensor words = {
        .name = "words", .datatype = SHOAL_BYTES, .rank = 2, .shape = {1, 2}, .bytes = 11};
    void *data;
    assert_int_equal(builder_add(&builder, &matrix, &data, &error), STATUS_OK);
    memset(data, 7, 280);
    assert_int_equal(builder_add(&builder, &words, &data, &error), STATUS_OK);
    memset(data, 8, 11);
    add("empty", 0, 0);
    struct shoal_parameter parameters[] = {
        {.type = SHOAL_PARAMETER_BOOL, .value.int64 = 1},
        {.type = SHOAL_PARAMETER_INT64, .value.int64 = INT64_MIN},
        {.type = SHOAL_PARAMETER_STRING, .string = "a\0b", .string_bytes = 3},
        {.type = SHOAL_PARAMETER_DOUBLE, .value.float64 = 0.5},
        {.type = SHOAL_PARAMETER_UINT64, .value.uint64 = UINT64_MAX},
    };
    static const char *const names[] = {"bool", "int64", "string", "double", "uint64"};
    for (uint32_t i = 0; i < ARRAY_COUNT(parameters); i++)
        assert_int_equal(builder_parameter(&builder, names[i], &parameters[i], &error), STATUS_OK);
    seal(&payloads[0]);
    assert_int_equal(payloads[0].block_count, 1); /* what was reserved held it all */
    read_back(&payloads[0]);
    assert_int_equal(view.tensor_count, 3);
    expect_tensor(0, "matrix", 280, 7);
    expect_tensor(1, "words", 11, 8);
    expect_tensor(2, "empty", 0, 0);
    assert_int_equal(view.tensors[0].datatype, SHOAL_FP32);
    assert_int_equal(view.tensors[0].rank, 3);
    assert_int_equal(view.tensors[0].shape[2], 7);
    struct shoal_parameter found;
    for (uint32_t i = 0; i < ARRAY_COUNT(parameters); i++) {
        assert_true(payload_parameter_find(&view, names[i], &found));
        assert_int_equal(found.type, parameters[i].type);
        assert_int_equal(found.value.uint64, parameters[i].value.uint64);
        assert_int_equal(found.string_bytes, parameters[i].string_bytes);
    }
    assert_true(payload_parameter_find(&view, "string", &found));
    assert_memory_equal(found.string, "a\0b", 4);
    assert_false(payload_parameter_find(&view, "strin", &found));
    release_both(payloads);
}

/* Three stages: what one forwards stays where it is, what only the one before used is used again.
 */
TEST_CASE(test_stages)
{
    struct shm_payload payloads[2] = {{.block_count = 0}};
    begin(NULL, NULL);
    char *kept = add("kept", 5000, 1);
    add("dropped", 15000, 2);
    struct shoal_parameter parameter = {.type = SHOAL_PARAMETER_INT64, .value.int64 = 9};
    assert_int_equal(builder_parameter(&builder, "p", &parameter, &error), STATUS_OK);
    seal(&payloads[0]);
    assert_int_equal(payloads[0].block_count, 2);

    read_back(&payloads[0]);
    begin(&payloads[0], &payloads[1]);
    assert_int_equal(builder_forward(&builder, &view, 0, "renamed", &error), STATUS_OK);
    assert_int_equal(builder_forward(&builder, &view, 2, "none", &error), STATUS_OUT_OF_RANGE);
    add("added", 10, 3);
    assert_int_equal(builder_carry_parameters(&builder, &view, &error), STATUS_OK);
    seal(&payloads[1]);
    read_back(&payloads[1]);
    assert_int_equal(view.tensor_count, 2);
    expect_tensor(0, "renamed", 5000, 1);
    assert_ptr_equal(view.tensors[0].data, kept);
    expect_tensor(1, "added", 10, 3);
    struct shoal_parameter found;
    assert_true(payload_parameter_find(&view, "p", &found));
    assert_int_equal(found.value.int64, 9);

    /* the third finds "dropped" spare and writes there */
    uint32_t used = arena_used(&region, -1);
    uint16_t spare = payloads[0].blocks[1];
    begin(&payloads[1], &payloads[0]);
    assert_int_equal(builder_forward(&builder, &view, 0, "kept", &error), STATUS_OK);
    char *again = add("again", 12000, 4);
    seal(&payloads[0]);
    assert_ptr_equal(arena_block(&region, spare), again);
    assert_int_equal(arena_used(&region, -1), used);
    read_back(&payloads[0]);
    expect_tensor(0, "kept", 5000, 1);
    expect_tensor(1, "again", 12000, 4);
    release_both(payloads);
}

/* A spare that is not used is given back when the descriptor that named it is overwritten. */
TEST_CASE(test_unused_spares_are_given_back)
{
    struct shm_payload payloads[2] = {{.block_count = 0}};
    begin(NULL, NULL);
    add("a", 15000, 1);
    add("b", 15000, 1);
    seal(&payloads[0]);
    begin(&payloads[0], &payloads[1]);
    add("c", 10, 1);
    seal(&payloads[1]);
    assert_int_equal(arena_used(&region, -1), 3);
    begin(&payloads[1], &payloads[0]);
    add("d", 10, 1);
    seal(&payloads[0]);
    assert_int_equal(arena_used(&region, -1), 2);
    release_both(payloads);
}

TEST_CASE(test_abandon)
{
    struct shm_payload payloads[2] = {{.block_count = 0}};
    begin(NULL, NULL);
    add("a", 15000, 1);
    seal(&payloads[0]);
    read_back(&payloads[0]);
    begin(&payloads[0], &payloads[1]);
    add("b", 15000, 1);
    assert_int_equal(builder_forward(&builder, &view, 0, "a", &error), STATUS_OK);
    add("c", 15000, 1);
    builder_abandon(&builder, &payloads[1]);
    assert_int_equal(payloads[1].block_count, 0);
    read_back(&payloads[0]); /* the current one is as it was */
    expect_tensor(0, "a", 15000, 1);
    assert_int_equal(arena_used(&region, -1), 1);
    release_both(payloads);
}

/* ---- limits ---- */

static void
expect_add(const struct shoal_tensor *tensor, enum status status, const char *text)
{
    void *data;
    error = ERROR_NONE;
    assert_int_equal(builder_add(&builder, tensor, &data, &error), status);
    if (status != STATUS_OK && strstr(error.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

TEST_CASE(test_builders_refusals)
{
    struct shm_payload payloads[2] = {{.block_count = 0}};
    begin(NULL, NULL);
    char name[SHOAL_NAME_BYTES_MAX + 2];
    memset(name, 'n', sizeof(name));
    name[SHOAL_NAME_BYTES_MAX + 1] = '\0';
    struct shoal_tensor tensor = bytes_tensor(name, 4);
    expect_add(&tensor, STATUS_INVALID_ARGUMENT, "1 to 127 bytes");
    name[SHOAL_NAME_BYTES_MAX] = '\0';
    expect_add(&tensor, STATUS_OK, "");
    expect_add(&tensor, STATUS_ALREADY_EXISTS, "the name is taken");
    tensor = bytes_tensor("", 4);
    expect_add(&tensor, STATUS_INVALID_ARGUMENT, "1 to 127 bytes");
    tensor = bytes_tensor("x", 4);
    tensor.bytes = 5;
    expect_add(&tensor, STATUS_INVALID_ARGUMENT, "do not agree");
    tensor.shape[0] = -1;
    expect_add(&tensor, STATUS_INVALID_ARGUMENT, "do not agree");
    tensor = bytes_tensor("x", 0);
    tensor.rank = 3;
    tensor.shape[0] = tensor.shape[1] = tensor.shape[2] = INT64_C(1) << 31;
    expect_add(&tensor, STATUS_INVALID_ARGUMENT, "do not agree"); /* 2^93 is not 0 */
    tensor = bytes_tensor("x", 4);
    tensor.rank = SHOAL_RANK_MAX + 1;
    expect_add(&tensor, STATUS_INVALID_ARGUMENT, "do not agree");
    tensor = bytes_tensor("x", 4);
    tensor.datatype = SHOAL_DATATYPE_END;
    expect_add(&tensor, STATUS_INVALID_ARGUMENT, "no such datatype");
    tensor.datatype = 0;
    expect_add(&tensor, STATUS_INVALID_ARGUMENT, "no such datatype");
    tensor = bytes_tensor("x", LARGE);
    expect_add(&tensor, STATUS_RESOURCE_EXHAUSTED, "arena full");
    tensor = (struct shoal_tensor){
        .name = "x", .datatype = SHOAL_BYTES, .rank = 1, .shape = {1}, .bytes = SIZE_MAX};
    expect_add(&tensor, STATUS_RESOURCE_EXHAUSTED, "too large");
    builder_abandon(&builder, &payloads[0]);
    expect_all_free();
}

TEST_CASE(test_limits)
{
    struct shm_payload payloads[2] = {{.block_count = 0}};
    begin(NULL, NULL);
    char name[16];
    for (int i = 0; i < SHOAL_TENSORS_MAX; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        add(name, 1, i);
    }
    struct shoal_tensor tensor = bytes_tensor("more", 1);
    expect_add(&tensor, STATUS_RESOURCE_EXHAUSTED, "more than 64 tensors");
    struct shoal_parameter parameter = {.type = SHOAL_PARAMETER_BOOL};
    for (int i = 0; i < PARAMETERS_MAX; i++)
        assert_int_equal(builder_parameter(&builder, "p", &parameter, &error), STATUS_OK);
    assert_int_equal(builder_parameter(&builder, "p", &parameter, &error),
                     STATUS_RESOURCE_EXHAUSTED);
    seal(&payloads[0]);
    read_back(&payloads[0]);
    for (int i = 0; i < SHOAL_TENSORS_MAX; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        expect_tensor((uint32_t)i, name, 1, i);
    }
    release_both(payloads);
    payloads[0].block_count = 0;

    begin(NULL, NULL);
    for (int i = 0; i < PAYLOAD_BLOCKS_MAX; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        add(name, 15000, i);
    }
    tensor = bytes_tensor("ninth", 15000);
    expect_add(&tensor, STATUS_RESOURCE_EXHAUSTED, "more than 8 blocks");
    seal(&payloads[0]); /* the table finds room behind a tensor */
    assert_int_equal(payloads[0].block_count, PAYLOAD_BLOCKS_MAX);
    read_back(&payloads[0]);
    expect_tensor(7, "t7", 15000, 7);
    /* eight blocks forwarded leave no ninth for a table */
    begin(&payloads[0], &payloads[1]);
    for (uint32_t i = 0; i < PAYLOAD_BLOCKS_MAX; i++)
        assert_int_equal(builder_forward(&builder, &view, i, view.tensors[i].name, &error),
                         STATUS_OK);
    assert_int_equal(builder_seal(&builder, &payloads[1], &error), STATUS_RESOURCE_EXHAUSTED);
    builder_abandon(&builder, &payloads[1]);
    read_back(&payloads[0]);
    release_both(payloads);
    payloads[0].block_count = 0;

    static char string[sizeof(builder.strings)];
    begin(NULL, NULL);
    parameter = (struct shoal_parameter){
        .type = SHOAL_PARAMETER_STRING, .string = string, .string_bytes = sizeof(string)};
    assert_int_equal(builder_parameter(&builder, "long", &parameter, &error),
                     STATUS_RESOURCE_EXHAUSTED);
    builder_abandon(&builder, &payloads[0]);
}

/* ---- hostile tables ---- */

static bool
in_blocks(const struct shm_payload *payload, const void *data, size_t bytes)
{
    for (uint32_t i = 0; i < payload->block_count; i++) {
        const char *block = arena_block(&region, payload->blocks[i]);
        uint64_t size = arena_block_bytes(&region.layout, payload->blocks[i]);
        if ((const char *)data >= block && (const char *)data + bytes <= block + size)
            return true;
    }
    return false;
}

/* Uses all that a reader may use. */
static uint64_t
use_view(void)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < view.tensor_count; i++) {
        const struct shoal_tensor *tensor = &view.tensors[i];
        assert_true(in_blocks(&view.payload, tensor->data, tensor->bytes));
        assert_true(in_blocks(&view.payload, tensor->name, view.name_bytes[i] + 1u));
        assert_int_equal(tensor->name[view.name_bytes[i]], '\0');
        assert_in_range(tensor->rank, 0, SHOAL_RANK_MAX);
        uint64_t bytes;
        assert_true(tensor_bytes_for(tensor->datatype, tensor->rank, tensor->shape, &bytes));
        for (size_t n = 0; n < tensor->bytes; n += 64)
            sum += ((const unsigned char *)tensor->data)[n];
        sum += strlen(tensor->name);
    }
    struct shoal_parameter parameter;
    if (payload_parameter_find(&view, "text", &parameter) &&
        parameter.type == SHOAL_PARAMETER_STRING) {
        assert_true(in_blocks(&view.payload, parameter.string, parameter.string_bytes + 1u));
        for (uint32_t n = 0; n < parameter.string_bytes; n++)
            sum += (unsigned char)parameter.string[n];
    }
    /* a worker carries on what it read */
    begin(NULL, NULL);
    (void)!builder_carry_parameters(&builder, &view, &error);
    return sum;
}

TEST_CASE(test_hostile_tables)
{
    uint64_t random = random_seed(20261121);
    static const uint64_t edges[] = {0,         1,          0x7f,  0xff,  0x7fffffff, 0xffffffff,
                                     INT64_MAX, UINT64_MAX, SMALL, LARGE, LARGE - 1,  64};
    struct shm_payload payloads[2] = {{.block_count = 0}};
    begin(NULL, NULL);
    add("first", 100, 1);
    add("second", 15000, 2);
    struct shoal_parameter parameter = {
        .type = SHOAL_PARAMETER_STRING, .string = "abc", .string_bytes = 3};
    assert_int_equal(builder_parameter(&builder, "text", &parameter, &error), STATUS_OK);
    seal(&payloads[0]);
    char *table = arena_block(&region, payloads[0].blocks[payloads[0].table_block]) +
                  payloads[0].table_offset;
    uint32_t table_bytes = payloads[0].table_bytes;
    char *kept = malloc(table_bytes);
    assert_non_null(kept);
    memcpy(kept, table, table_bytes);
    uint64_t accepted = 0, refused = 0, sum = 0;
    for (uint32_t round = 0; round < 200000; round++) {
        struct shm_payload payload = payloads[0];
        for (uint64_t n = random_draw(&random) % 4; n > 0; n--) {
            uint64_t value = random_draw(&random);
            if (value & 1)
                value = edges[random_draw(&random) % ARRAY_COUNT(edges)];
            size_t width = (size_t)1 << random_draw(&random) % 4;
            bool in_table = random_draw(&random) % 3 != 0;
            char *into = in_table ? table : (char *)&payload;
            size_t room = in_table ? table_bytes : sizeof(payload);
            memcpy(into + random_draw(&random) % (room / width) * width, &value, width);
        }
        error = ERROR_NONE;
        enum status status = payload_read(&region, &payload, &view, &error);
        if (status == STATUS_OK) {
            accepted++;
            sum += use_view();
        } else {
            assert_int_equal(status, STATUS_DATA_LOSS);
            assert_true(error.text[0] != '\0');
            refused++;
        }
        memcpy(table, kept, table_bytes);
    }
    free(kept);
    assert_true(sum > 0);
    assert_true(accepted > 1000 && refused > 1000);
    release_both(payloads);
}

/* Each descriptor field beyond its limit, alone. */
TEST_CASE(test_hostile_descriptor)
{
    struct shm_payload payloads[2] = {{.block_count = 0}};
    begin(NULL, NULL);
    add("t", 100, 1);
    seal(&payloads[0]);
    struct shm_payload spoiled[9];
    for (uint32_t i = 0; i < ARRAY_COUNT(spoiled); i++)
        spoiled[i] = payloads[0];
    spoiled[0].block_count = 0;
    spoiled[1].block_count = PAYLOAD_BLOCKS_MAX + 1;
    spoiled[2].table_block = 1;
    spoiled[3].blocks[0] = 18;
    spoiled[4].tensor_count = SHOAL_TENSORS_MAX + 1;
    spoiled[5].parameter_count = PARAMETERS_MAX + 1;
    spoiled[6].table_offset += 4;
    spoiled[7].table_offset = LARGE - 8;
    spoiled[8].table_bytes = UINT32_MAX;
    for (uint32_t i = 0; i < ARRAY_COUNT(spoiled); i++)
        assert_int_equal(payload_read(&region, &spoiled[i], &view, &error), STATUS_DATA_LOSS);
    release_both(payloads);
}

static struct payload_tensor *
table_of(const struct shm_payload *payload)
{
    return (void *)(arena_block(&region, payload->blocks[payload->table_block]) +
                    payload->table_offset);
}

/* modelet.h's promises hold for anything that was written, too. */
TEST_CASE(test_hostile_alignment)
{
    struct shm_payload payloads[2] = {{.block_count = 0}};
    begin(NULL, NULL);
    add("t", 100, 1);
    seal(&payloads[0]);
    for (uint64_t offset = 0; offset <= 2 * PAYLOAD_ALIGNMENT; offset++) {
        table_of(&payloads[0])->offset = offset;
        assert_int_equal(payload_read(&region, &payloads[0], &view, &error),
                         offset % PAYLOAD_ALIGNMENT == 0 ? STATUS_OK : STATUS_DATA_LOSS);
    }
    release_both(payloads);
}

/* A block that the arena, or the old descriptor, offers though it is in use: as an output it would
 * lie over an input, or over another output. */
TEST_CASE(test_hostile_arena_offers_what_is_in_use)
{
    struct shm_payload payloads[2] = {{.block_count = 0}};
    struct shoal_tensor tensor = bytes_tensor("out", LARGE - 1024);
    void *data;
    begin(NULL, NULL);
    add("in", LARGE / 2, 1);
    seal(&payloads[0]);
    struct shm_payload twice = {.block_count = 2, .blocks = {12, 12}};
    begin(&payloads[0], &twice);
    assert_int_equal(builder_add(&builder, &tensor, &data, &error), STATUS_OK);
    tensor.name = "second";
    assert_int_equal(builder_add(&builder, &tensor, &data, &error), STATUS_DATA_LOSS);
    /* the input's block waits in the ring of free ones, as far as that says */
    struct shm_payload none = {.block_count = 0};
    struct shm_ring ring = region_class_ring(&region, 1);
    uint32_t block = payloads[0].blocks[0];
    uint64_t held = atomic_load(object_word(&region.blocks, block));
    uint64_t head = atomic_load(&ring.shared->head);
    struct shm_word waiting = word_unpack(held);
    waiting.held = false;
    atomic_store(object_word(&region.blocks, block), word_pack(waiting));
    atomic_store(&ring.shared->cells[head & (ring.cell_count - 1)],
                 cell_full(head >> ring.cell_count_log2, block, waiting));
    begin(&payloads[0], &none);
    assert_int_equal(builder_add(&builder, &tensor, &data, &error), STATUS_DATA_LOSS);
}

static enum status
check_elements(const void *data, size_t bytes, int64_t elements)
{
    char copy[64];
    memcpy(copy, data, bytes);
    struct shoal_tensor tensor = {.name = "t",
                                  .datatype = SHOAL_BYTES,
                                  .rank = 1,
                                  .shape = {elements},
                                  .data = copy,
                                  .bytes = bytes};
    return tensor_check_elements(&tensor, &error);
}

TEST_CASE(test_elements)
{
    static const char two[] = "\2\0\0\0hi\0\0\0\0"; /* "hi" and "" */
    assert_int_equal(check_elements(two, 10, 2), STATUS_OK);
    assert_int_equal(check_elements(two, 0, 0), STATUS_OK);
    assert_int_equal(check_elements(two, 10, 1), STATUS_INVALID_ARGUMENT);
    assert_string_equal(error.text, "tensor \"t\": 4 bytes after its 1 elements");
    assert_int_equal(check_elements(two, 10, 3), STATUS_INVALID_ARGUMENT);
    assert_string_equal(error.text, "tensor \"t\": element 2 of 3 goes beyond its 10 bytes");
    for (size_t bytes = 0; bytes < 10; bytes++)
        assert_int_equal(check_elements(two, bytes, 2), STATUS_INVALID_ARGUMENT);
    assert_int_equal(check_elements("\377\377\377\377x", 5, 1), STATUS_INVALID_ARGUMENT);
    assert_int_equal(check_elements("\375\377\377\377", 4, 1), STATUS_INVALID_ARGUMENT);
}

/* A slot whose descriptors a hostile worker wrote is released without harm to others' blocks. */
TEST_CASE(test_release_of_foreign_blocks)
{
    struct shm_ticket ticket;
    assert_int_equal(slot_acquire(&region, PARTY, &ticket), RING_OK);
    uint32_t foreign, own;
    assert_int_equal(arena_acquire(&region, ticket.index + 1, 1, &foreign), STATUS_OK);
    assert_int_equal(arena_acquire(&region, ticket.index, 1, &own), STATUS_OK);
    struct shm_slot *slot = region_slot(&region, ticket.index);
    slot->payload[0] =
        (struct shm_payload){.block_count = 2, .blocks = {(uint16_t)foreign, (uint16_t)own}};
    slot->payload[1] = slot->payload[0];
    assert_int_equal(slot_release(&region, ticket, PLACE_FREE, PARTY), STATUS_OK);
    assert_int_equal(arena_used(&region, -1), 1);
    assert_int_equal(arena_release(&region, ticket.index + 1, foreign, PARTY), STATUS_OK);
    assert_int_equal(slot_acquire(&region, PARTY, &ticket), RING_OK);
    slot = region_slot(&region, ticket.index);
    slot->payload[1].block_count = PAYLOAD_BLOCKS_MAX + 1;
    assert_int_equal(slot_release(&region, ticket, PLACE_FREE, PARTY), STATUS_DATA_LOSS);
}

TEST_MAIN(.setup = set_up, .teardown = tear_down)
