/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes into memory that is not its own: the region that it shares with other workers and with the
 * coordinator, and its worker's counters. Both are found before the modelet is ready, through
 * /proc/self/maps, and the region is read with Shoal's own code, so that it knows where everything
 * lies.
 *
 * Input "scribble": INT64 [4]: a number of the caller's own, which means nothing here; the way to
 * write (scribble.h); a seed; how much. Output "scribble": the input. With SCRIBBLE_GO_ON added to
 * the way, a thread goes on in that way for as long as the process lives.
 *
 * If the environment's SHOAL_SCRIBBLE_START names a file that is there, its number is a way in
 * which the constructor writes, before the worker is ready; after another number, but for 0, it
 * never will be.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <shoal/modelet.h>

#include "../random.h"
#include "scribble.h"
#include "shm/doorbell.h"
#include "shm/region.h"
#include "shm/stamp.h"

#define HOSTILE __attribute__((no_sanitize("address", "undefined", "thread")))

enum { ANY_BITS_MAX = 40, START_AMOUNT = 64 };

struct mapping {
    uint64_t *words;
    uint64_t count;
};

static struct mapping region_words;
static struct mapping counter_words;
static struct region region; /* base NULL: there is none that can be understood */

/* ---- what there is to write into ---- */

static void
take_mapping(const char *line)
{
    uintptr_t from;
    uintptr_t to;
    char mode[5];
    if (sscanf(line, "%lx-%lx %4s", &from, &to, mode) != 3 || strcmp(mode, "rw-s") != 0)
        return;
    struct mapping mapping = {(uint64_t *)from, (to - from) / sizeof(uint64_t)};
    if (strstr(line, "memfd:shoal-region") != NULL)
        region_words = mapping;
    else if (strstr(line, "counters") != NULL)
        counter_words = mapping;
}

static void
find_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        take_mapping(line);
    if (maps != NULL)
        fclose(maps);
}

/* The region as its workers see it. */
static void
understand_region(void)
{
    struct error error = ERROR_NONE;
    struct region_header header;
    if (region_words.words == NULL)
        return;
    memcpy(&header, region_words.words, sizeof(header));
    if (layout_compute(&header.plan, &region.layout, &error) != STATUS_OK)
        return;
    region.base = (char *)region_words.words;
    region.header = (struct region_header *)(void *)region.base;
    region.slots = (struct shm_objects){region.base + region.layout.slots_offset,
                                        sizeof(struct shm_slot), region.layout.plan.slot_count};
    region.blocks = (struct shm_objects){region.base + region.layout.block_words_offset,
                                         sizeof(uint64_t), region.layout.block_count};
}

static uint32_t
below(uint64_t *state, uint32_t bound)
{
    return (uint32_t)(random_draw(state) % bound);
}

/* Nearly valid values are harder to refuse than wild ones. */
HOSTILE static void
spoil(uint64_t *word, uint64_t *state)
{
    switch (below(state, 6)) {
    case 0: *word ^= UINT64_C(1) << below(state, 64); break;
    case 1: *word += (uint64_t)below(state, 17) - 8; break;
    case 2: *word += ((uint64_t)below(state, 3) - 1) << 32; break; /* a generation */
    case 3: *word = below(state, 256); break;
    case 4: *word = 0; break;
    default: *word = random_draw(state); break;
    }
}

/* Not memmove and memset: a sanitizer intercepts every call of those. */
HOSTILE static void
write_bytes(void *to, const void *from, size_t bytes)
{
    _Atomic char *target = to;
    const char *source = from;
    for (size_t i = 0; i < bytes; i++)
        atomic_store_explicit(&target[i], source[i], memory_order_relaxed);
}

HOSTILE static void
fill_bytes(void *to, char value, size_t bytes)
{
    _Atomic char *target = to;
    for (size_t i = 0; i < bytes; i++)
        atomic_store_explicit(&target[i], value, memory_order_relaxed);
}

/* ---- ways to write ---- */

static struct shm_ring
any_ring(uint64_t *state)
{
    uint32_t stages = region.layout.plan.stage_count;
    uint32_t number = below(state, stages + 3 + region.layout.plan.class_count);
    if (number <= stages)
        return region_slot_ring(&region, (uint8_t)number);
    if (number == stages + 1)
        return region_slot_ring(&region, PLACE_ERROR);
    if (number == stages + 2)
        return region_slot_ring(&region, PLACE_FREE);
    return region_class_ring(&region, number - stages - 3);
}

static uint32_t
any_slot(uint64_t *state)
{
    return below(state, region.slots.count);
}

static void
any_word(uint64_t *state)
{
    uint64_t bound = UINT64_C(1) << (4 + below(state, ANY_BITS_MAX));
    if (bound > region_words.count)
        bound = region_words.count;
    spoil(&region_words.words[random_draw(state) % bound], state);
}

HOSTILE static void
random_bytes(struct mapping mapping, uint64_t *state)
{
    for (uint64_t i = 0; i < mapping.count; i++)
        mapping.words[i] = random_draw(state);
}

static void
in_header(uint64_t *state)
{
    spoil((uint64_t *)(void *)region.base + below(state, sizeof(struct region_header) / 8), state);
}

static void
in_ring(uint64_t *state)
{
    struct shm_ring ring = any_ring(state);
    uint64_t *words[] = {(uint64_t *)(uintptr_t)&ring.shared->head,
                         (uint64_t *)(uintptr_t)&ring.shared->tail,
                         (uint64_t *)(uintptr_t)&ring.shared->cells[below(state, ring.cell_count)]};
    spoil(words[below(state, 3)], state);
}

static void
in_object(uint64_t *state)
{
    bool slot = below(state, 2) == 0;
    const struct shm_objects *objects = slot ? &region.slots : &region.blocks;
    spoil((uint64_t *)(uintptr_t)object_word(objects, below(state, objects->count)), state);
}

static void
in_payload(uint64_t *state)
{
    struct shm_slot *slot = region_slot(&region, any_slot(state));
    struct shm_slot *other = region_slot(&region, any_slot(state));
    char *words = (char *)slot->payload;
    uint32_t offset = (uint32_t)random_draw(state);
    switch (below(state, 3)) {
    case 0: write_bytes(slot->payload, other->payload, sizeof(slot->payload)); break;
    case 1:
        write_bytes(&slot->payload[below(state, 2)].table_offset, &offset, sizeof(offset));
        break;
    default: spoil((uint64_t *)(void *)words + below(state, sizeof(slot->payload) / 8), state);
    }
}

static void
fail(struct shm_slot *slot, const char *text)
{
    write_bytes(slot->text, text, strlen(text) + 1);
    atomic_store(&slot->status, STATUS_DATA_LOSS);
    atomic_store(&slot->failed_place, 1);
}

/* A ticket that is in flight, where its owner does not want it: as a result, as an error of ours,
 * as a free slot, once or twice. Nothing but tickets is written. */
static void
others_ticket(uint64_t *state)
{
    static const uint8_t to[] = {PLACE_ERROR, PLACE_FREE};
    uint32_t index = any_slot(state);
    struct shm_word word = word_unpack(atomic_load(object_word(&region.slots, index)));
    if (word.place == PLACE_FREE && below(state, 8) != 0)
        return; /* mostly those that somebody waits for */
    uint32_t choice = below(state, 4);
    word.place = choice < 2 ? to[choice] : region_result_place(&region);
    word.generation += below(state, 8) == 0 ? below(state, 3) - 1 : 0;
    word.turn = (word.turn + 1) & WORD_TURN_MAX;
    word.held = false;
    word.owner = (uint16_t)below(state, 8);
    if (word.place == PLACE_ERROR)
        fail(region_slot(&region, index), "said by another");
    struct shm_ring ring = region_slot_ring(&region, word.place);
    atomic_store(object_word(&region.slots, index), word_pack(word));
    uint32_t cells = 1 + below(state, 2);
    while (cells > 0 && ring_fill_cell(&ring, index, word) == RING_OK)
        cells--;
    doorbell_ring(&region.header->coordinator_bell);
}

static void
in_seats(uint64_t *state)
{
    const struct region_layout *layout = &region.layout;
    uint64_t *first = (uint64_t *)(void *)(region.base + layout->stages_offset);
    uint64_t words = (layout->slots_offset - layout->stages_offset) / sizeof(uint64_t);
    spoil(&first[random_draw(state) % words], state);
    spoil((uint64_t *)(void *)&region.header->coordinator_bell, state);
}

/* No terminator, no such status. */
static void
in_texts(uint64_t *state)
{
    struct shm_slot *slot = region_slot(&region, any_slot(state));
    fill_bytes(slot->text, (char)(1 + below(state, 255)), sizeof(slot->text));
    atomic_store(&slot->status, (uint32_t)random_draw(state));
    atomic_store(&slot->failed_place, (uint32_t)random_draw(state));
    atomic_store(&slot->deadline_ns, (int64_t)random_draw(state));
    atomic_store(&slot->enqueued_ns, (int64_t)random_draw(state));
}

/* Of any slot and run, in a region that has stamps; and a slot is said to be traced. */
static void
in_stamps(uint64_t *state)
{
    uint32_t count = region.layout.plan.stamp_count;
    struct shm_slot *slot = region_slot(&region, any_slot(state));
    if (count == 0)
        return;
    uint32_t index = any_slot(state);
    struct shm_stamp *stamp = region_stamp(&region, index, below(state, count));
    spoil((uint64_t *)(void *)stamp + below(state, sizeof(*stamp) / 8), state);
    if (below(state, 4) == 0)
        atomic_store(&stamp->generation,
                     word_unpack(atomic_load(object_word(&region.slots, index))).generation);
    if (below(state, 4) == 0)
        atomic_store(&slot->traced, random_draw(state) % 64);
}

/* Cells of objects that are elsewhere, as fast as the coordinator can drop them. */
static void
stale_cells(uint64_t *state)
{
    struct shm_ring ring = region_slot_ring(&region, region_result_place(&region));
    struct shm_word word = {.generation = 1, .turn = (uint8_t)below(state, 128), .place = 1};
    for (uint32_t i = 0; i < ring.cell_count; i++)
        if (ring_fill_cell(&ring, any_slot(state), word) != RING_OK)
            break; /* full */
    doorbell_ring(&region.header->coordinator_bell);
}

static void
write_once(int64_t way, uint64_t *state)
{
    switch (way) {
    case SCRIBBLE_ANY_WORD: any_word(state); break;
    case SCRIBBLE_ALL: random_bytes(region_words, state); break;
    case SCRIBBLE_ZERO: fill_bytes(region.base, 0, region.layout.region_bytes); break;
    case SCRIBBLE_PUNCH: madvise(region.base, region.layout.region_bytes, MADV_REMOVE); break;
    case SCRIBBLE_HEADER: in_header(state); break;
    case SCRIBBLE_RINGS: in_ring(state); break;
    case SCRIBBLE_OBJECTS: in_object(state); break;
    case SCRIBBLE_PAYLOADS: in_payload(state); break;
    case SCRIBBLE_TICKETS: others_ticket(state); break;
    case SCRIBBLE_SEATS: in_seats(state); break;
    case SCRIBBLE_TEXTS: in_texts(state); break;
    case SCRIBBLE_STALE: stale_cells(state); break;
    case SCRIBBLE_STAMPS: in_stamps(state); break;
    case SCRIBBLE_COUNTERS: random_bytes(counter_words, state); break;
    default: break;
    }
}

/* Overwriting everything is done once. */
static int64_t
times(int64_t way, int64_t amount)
{
    bool all = way == SCRIBBLE_ALL || way == SCRIBBLE_ZERO || way == SCRIBBLE_PUNCH ||
               way == SCRIBBLE_COUNTERS;
    return all && amount > 1 ? 1 : amount;
}

static void
write_often(int64_t way, uint64_t seed, int64_t amount)
{
    uint64_t state = seed;
    for (int64_t i = 0; i < times(way, amount) && region.base != NULL; i++)
        write_once(way, &state);
}

/* ---- when ---- */

struct errand {
    int64_t way;
    uint64_t seed;
};

static void *
go_on(void *context)
{
    struct errand *errand = context;
    for (;;)
        write_often(errand->way, errand->seed++, 1);
    return NULL;
}

static void
start_thread(int64_t way, uint64_t seed)
{
    static struct errand errand;
    static bool started;
    pthread_t thread;
    if (started)
        return;
    started = true;
    errand = (struct errand){way, seed};
    if (pthread_create(&thread, NULL, go_on, &errand) == 0)
        pthread_detach(thread);
}

static void
wait_for_the_end(void)
{
    for (;;)
        sleep(1);
}

__attribute__((constructor)) static void
before_ready(void)
{
    find_mappings();
    understand_region();
    const char *path = getenv("SHOAL_SCRIBBLE_START");
    FILE *file = path != NULL ? fopen(path, "re") : NULL;
    long way = 0;
    long stays = 0;
    if (file != NULL && fscanf(file, "%ld %ld", &way, &stays) >= 1)
        write_often(way, (uint64_t)way, START_AMOUNT);
    if (file != NULL)
        fclose(file);
    if (stays != 0)
        wait_for_the_end();
}

static int
run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct shoal_item *item = batch->items[i];
        int64_t words[SCRIBBLE_WORDS];
        if (item->inputs[0].bytes != sizeof(words)) { /* another worker has written to it */
            item->status = SHOAL_INVALID_ARGUMENT;
            continue;
        }
        memcpy(words, item->inputs[0].data, sizeof(words));
        item->status = batch->host->forward(item, 0, "scribble");
        uint64_t seed = (uint64_t)words[SCRIBBLE_SEED];
        int64_t way = words[SCRIBBLE_WAY] & ~(int64_t)SCRIBBLE_GO_ON;
        write_often(way, seed, words[SCRIBBLE_AMOUNT]);
        if (words[SCRIBBLE_WAY] & SCRIBBLE_GO_ON)
            start_thread(way, seed);
    }
    return SHOAL_OK;
}

static int
describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    static const struct shoal_tensor_spec spec = {
        .name = "scribble", .datatype = SHOAL_INT64, .rank = 1, .shape = {SCRIBBLE_WORDS}};
    (void)instance;
    (void)error;
    io->inputs = &spec;
    io->outputs = &spec;
    io->input_count = 1;
    io->output_count = 1;
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {SHOAL_MODELET_HEADER, .abilities = SHOAL_RUNS_BATCHES,
                                            .name = "scribble", .describe = describe, .run = run};
