/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what a session gives to items. An item that runs alone lends the memory of its outputs
 * before it runs, once the model has been seen to keep to the shapes that it says; else, and for
 * items that ran together, what was computed is copied to where it belongs. On the thread of `run`.
 */
#pragma once

#include "inputs.h"

/* Values over the item's own outputs, where their shapes are known; others stay NULL. False: the
 * item has failed. */
bool outputs_lend(const struct engine *engine, const struct model *model, struct part *part,
                  OrtValue **values);

/* Gives each part its rows of what a run has made; `lent` of one part have been given. False, and
 * nothing is given: the first dimension of some output is not that of the inputs together. */
bool outputs_give(const struct engine *engine, struct model *model, struct part *const *parts,
                  size_t part_count, OrtValue *const *values, const bool *lent);
