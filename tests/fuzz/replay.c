/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target without libFuzzer, so that every compiler and every `./dev test` runs it: on
 * the empty input, on each file of the folder SHOAL_CORPUS, and on a fixed number of mutations of
 * each. The sanitizers, or a CHECK, are the judges. The seed is printed and can be given:
 * SHOAL_SEED.
 */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"

enum { INPUT_BYTES_MAX = 1 << 20, CHANGES_MAX = 8, MUTATIONS = 20000, MUTATIONS_PER_FILE = 2000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t random_state;

static uint64_t
random_next(void)
{
    return random_draw(&random_state);
}

/* A copy of exactly `size` bytes, so that AddressSanitizer sees a read past the end. */
static void
run_exact(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size == 0 ? 1 : size);
    if (copy == NULL)
        abort();
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static size_t
mutate(uint8_t *data, size_t size)
{
    static const uint8_t edges[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    uint64_t changes = 1 + random_next() % CHANGES_MAX;
    for (uint64_t i = 0; i < changes && size > 0; i++) {
        size_t at = random_next() % size;
        switch (random_next() % 4) {
        case 0: data[at] = edges[random_next() % sizeof(edges)]; break;
        case 1: data[at] ^= (uint8_t)(1u << random_next() % 8); break;
        case 2: size = at; break;
        default: memmove(data + at, data + random_next() % (at + 1), size - at); break;
        }
    }
    return size;
}

static void
replay_file(const char *path, int mutations)
{
    static uint8_t original[INPUT_BYTES_MAX];
    static uint8_t mutant[INPUT_BYTES_MAX];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    size_t size = fread(original, 1, sizeof(original), file);
    fclose(file);
    run_exact(original, size);
    for (int i = 0; i < mutations; i++) {
        memcpy(mutant, original, size);
        run_exact(mutant, mutate(mutant, size));
    }
}

int
main(void)
{
    random_state = random_seed(1);
    run_exact((const uint8_t *)"", 0);

    const char *folder = getenv("SHOAL_CORPUS");
    struct dirent **entries = NULL;
    int count = folder != NULL ? scandir(folder, &entries, NULL, alphasort) : 0;
    int files = 0;
    int mutations = MUTATIONS_PER_FILE;
    if (count * mutations > MUTATIONS)
        mutations = MUTATIONS / count;
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            replay_file(path, mutations);
            files++;
        }
        free(entries[i]);
    }
    free(entries);
    printf("%d files, %d mutations of each\n", files, mutations);
    return files > 0 ? 0 : 1;
}
