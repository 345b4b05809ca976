/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes into memory that is not its own: the region that it shares with other workers and with the
 * coordinator, found through /proc/self/maps.
 *
 * Input "scribble": INT64 [2], a seed and how many writes to do; 0: none. Output "scribble": the
 * input. Half of the writes put a random word somewhere, with all sizes of offset equally likely,
 * so that headers and tables, which come first, get their share; the others flip a bit, add a
 * little, or copy a word from elsewhere in the region: what is nearly right is harder to refuse.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <shoal/modelet.h>

enum { REGION_BITS_MAX = 40 };

struct region_mapping {
    uint64_t *words;
    uint64_t word_count;
};

static struct region_mapping
find_region(void)
{
    struct region_mapping found = {NULL, 0};
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        uintptr_t from;
        uintptr_t to;
        char mode[5];
        if (strstr(line, "memfd:shoal-region") != NULL &&
            sscanf(line, "%lx-%lx %4s", &from, &to, mode) == 3 && mode[1] == 'w' &&
            (to - from) / sizeof(uint64_t) > found.word_count)
            found = (struct region_mapping){(uint64_t *)from, (to - from) / sizeof(uint64_t)};
    }
    if (maps != NULL)
        fclose(maps);
    return found;
}

/* splitmix64 */
static uint64_t
draw(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t
draw_index(uint64_t *state, uint64_t word_count)
{
    uint64_t bound = UINT64_C(1) << (4 + draw(state) % REGION_BITS_MAX);
    return draw(state) % (bound < word_count ? bound : word_count);
}

__attribute__((no_sanitize("address", "undefined"))) static void
scribble(struct region_mapping region, uint64_t seed, int64_t count)
{
    uint64_t state = seed;
    for (int64_t i = 0; i < count && region.words != NULL; i++) {
        uint64_t *word = &region.words[draw_index(&state, region.word_count)];
        switch (draw(&state) % 6) {
        case 0: *word ^= UINT64_C(1) << draw(&state) % 64; break;
        case 1: *word += draw(&state) % 17 - 8; break;
        case 2: *word = region.words[draw_index(&state, region.word_count)]; break;
        default: *word = draw(&state); break;
        }
    }
}

static int
run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct shoal_item *item = batch->items[i];
        int64_t words[2];
        memcpy(words, item->inputs[0].data, sizeof(words));
        item->status = batch->host->forward(item, 0, "scribble");
        scribble(find_region(), (uint64_t)words[0], words[1]);
    }
    return SHOAL_OK;
}

static int
describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    static const struct shoal_tensor_spec spec = {
        .name = "scribble", .datatype = SHOAL_INT64, .rank = 1, .shape = {2}};
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
