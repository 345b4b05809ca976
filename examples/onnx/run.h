/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch through a session. Items of a model whose inputs and outputs all begin with the same open
 * dimension are put side by side along it, those together whose other dimensions agree; others run
 * one by one. When items that ran together fail, each is run again alone, so that only the culprit
 * fails. On the thread of `run`.
 */
#pragma once

#include "inputs.h"

struct runner {
    const struct engine *engine;
    struct part *parts;  /* as many as items of a batch */
    struct part **group; /* those that run together */
    struct gathered gathered;
};

/* `runner` is zeroed; after a failure, too, it is to be closed. */
int runner_open(struct runner *runner, const struct engine *engine, uint32_t batch_size,
                struct shoal_error *error);
void runner_close(struct runner *runner);

/* Every item has a status afterwards. */
void runner_run(struct runner *runner, struct model *model, const struct shoal_batch *batch);
