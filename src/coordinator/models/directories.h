/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directories that pipelines list models from (model_directory.h), and how pipelines with one
 * root divide what lies there:
 *
 *  1. A model is listed by the pipeline whose `types` has its type, `model_type.name` of its key.
 *  2. One whose type is in the `types` of none, or that has no type, is listed by the first of them
 *     without `types`.
 *  3. If there is no such pipeline either, the first one of the root says so, once, and nobody
 *     lists it.
 *
 * A pipeline that has its root for itself lists everything there. The rule counts pipelines with
 * `watch: no`, too: they have their models by order.
 */
#pragma once

#include "base/error.h"
#include "coordinator/loop/loop.h"

struct model_directories;
struct pipeline;

/* Looks at all of them before it returns. `pipelines` is kept. */
enum status model_directories_create(struct loop *loop, struct pipeline *const *pipelines,
                                     uint32_t count, struct model_directories **directories,
                                     struct error *error) WARN_UNUSED;
/* Before the pipelines; what is listed stays so. NULL is left alone. */
void model_directories_destroy(struct model_directories *directories);
