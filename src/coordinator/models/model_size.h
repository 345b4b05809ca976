/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predicts the size of a model before it is loaded: the modelet's own prediction times a learned
 * factor; else by what models of files of that size took; else the configured default. Pure.
 */
#pragma once

#include <stdint.h>

enum { MODEL_SIZE_CLASSES = 48 }; /* by powers of two of the file's bytes */

/* The size learned for a kind of models; 0: not known yet. */
struct model_size {
    double expected;
    double least;
    double most; /* ever */
};

struct model_sizes {
    struct model_size by_file[MODEL_SIZE_CLASSES]; /* bytes taken, by size of the files */
    struct model_size by_said;                     /* bytes taken per byte predicted by modelets */
};

/* The hints known before a load. */
struct model_hints {
    uint64_t said_bytes;  /* the modelets' prediction, for one worker of each stage; 0: none */
    uint64_t said_factor; /* multiplies it while nothing is learned: the number of workers */
    uint64_t file_bytes;  /* 0: not known */
    uint64_t default_bytes;
};

uint64_t model_size_predict(const struct model_sizes *sizes, const struct model_hints *hints);
/* The room to reserve: the prediction, or, where models of that kind have differed, the most that
 * one took plus a sixteenth. A model larger than its reservation exceeds the budget until others
 * have been evicted. */
uint64_t model_size_reserve(const struct model_sizes *sizes, const struct model_hints *hints);
/* Learns that a model with these hints took `bytes`. */
void model_size_learn(struct model_sizes *sizes, const struct model_hints *hints, uint64_t bytes);
