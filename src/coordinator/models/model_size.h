/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large a model will be, before it is loaded: by what its modelet says, corrected by how far
 * that was right of late; else by what files of that size took; else what the configuration says.
 * Pure.
 */
#pragma once

#include <stdint.h>

enum { MODEL_SIZE_CLASSES = 48 }; /* by powers of two of the file's bytes */

/* The size learnt for a kind of models; 0: not known yet. */
struct model_size {
    double expected;
    double least;
    double most; /* ever */
};

struct model_sizes {
    struct model_size by_file[MODEL_SIZE_CLASSES]; /* bytes that models of such files took */
    struct model_size by_said;                     /* bytes taken for each byte that was said */
};

/* The hints known before a load. */
struct model_hints {
    uint64_t said_bytes;  /* by the modelets of all stages, for one worker of each; 0: not said */
    uint64_t said_factor; /* by which that is multiplied while nothing is known: workers */
    uint64_t file_bytes;  /* 0: not known */
    uint64_t default_bytes;
};

uint64_t model_size_predict(const struct model_sizes *sizes, const struct model_hints *hints);
/* How much is to be kept free for it: where models like it have differed, the most that any took
 * and a sixteenth, because what turns out larger than was reserved is beyond the budget until
 * others have gone. */
uint64_t model_size_reserve(const struct model_sizes *sizes, const struct model_hints *hints);
/* It took so much. */
void model_size_learn(struct model_sizes *sizes, const struct model_hints *hints, uint64_t bytes);
