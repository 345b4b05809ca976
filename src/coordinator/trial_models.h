/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads each listed model as a node does, and unloads it: the part of a trial that judges folders
 * of models. One model at a time, so that the check needs the memory of the largest. A model that
 * crashes its worker or hangs, in its load or its unload, fails, and the next one is tried. Loop
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/assembly.h"

struct trial_models_options {
    struct assembly *assembly;
    const bool *serves; /* by pipeline: the models of one that does not are left out */
    /* A model cannot be served. */
    void (*on_failed)(void *context, const char *mistake);
    /* Every model has been tried. Called once. */
    void (*on_end)(void *context);
    void *context;
};

struct trial_models {
    struct trial_models_options options;
    uint32_t known, tried, loaded;
    char *id;   /* the model that is being tried, or the one before; NULL: none yet */
    char *path; /* its path, for the operator */
    struct catalog *catalog;
    bool is_loaded;  /* it was */
    uint64_t deaths; /* of its pipeline's workers, until it was loaded */
    int64_t reported_ns, deadline_ns;
    bool is_over;
};

/* `models` stays until the pipelines have stopped: loads that are under way then end in it. */
void trial_models_begin(struct trial_models *models, const struct trial_models_options *options);
/* Tells on stderr how far a long trial is, and ends one that makes no progress. To be called
 * several times a second. */
void trial_models_look(struct trial_models *models);
void trial_models_fini(struct trial_models *models);
