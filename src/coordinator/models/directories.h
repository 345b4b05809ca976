/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directories that pipelines list models from (model_directory.h), and how pipelines with the
 * same root divide its models:
 *
 *  1. A model is listed by the pipeline whose `types` has its type: `model_type.name` of its key,
 * or else the format of its files (model_format.h).
 *  2. A model whose type is in no `types`, or that has no type, is listed by the first of these
 *     pipelines without `types`.
 *  3. If there is no such pipeline, the first one of the root logs that, once, and the model is not
 *     listed.
 *
 * A pipeline that has its root for itself lists everything there. Pipelines with `watch: no` count,
 * too: their models are loaded by order.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "loop/loop.h"

struct model_directories;
struct model_registry;
struct pipeline;
struct release_policy;
struct releases_step;

/* Looks at all directories before it returns. `pipelines` is kept. `registry`: if a model's release
 * cannot be loaded, a lower one is (releases.h); NULL: it fails. */
enum status model_directories_create(struct loop *loop, struct model_registry *registry,
                                     struct pipeline *const *pipelines, uint32_t count,
                                     struct model_directories **directories,
                                     struct error *error) WARN_UNUSED;
/* The entries that could not be listed and were logged. */
uint32_t model_directories_refused(const struct model_directories *directories);
/* Call before the pipelines are destroyed; listed models stay so. NULL is ignored. */
void model_directories_destroy(struct model_directories *directories);

/* See releases_judge_policy and releases_set_policy. */
enum status model_directories_judge_policy(const struct model_directories *directories,
                                           const char *id, const struct release_policy *policy,
                                           bool *is_other, struct error *error) WARN_UNUSED;
enum status model_directories_set_policy(struct model_directories *directories, const char *id,
                                         const struct release_policy *policy,
                                         struct error *error) WARN_UNUSED;
/* See releases_roll_back. */
enum status model_directories_roll_back(struct model_directories *directories, const char *id,
                                        struct releases_step *step,
                                        struct error *error) WARN_UNUSED;
