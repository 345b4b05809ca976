/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which releases, the numbered versions of a model in its directory, are served, and lists
 * them (models.h). Loop thread.
 *
 *  1. The policy chooses releases: the highest ones, or all. The highest of these is the model's
 *     default; the others are listed beside it under ids of their own (MODEL_RELEASE_MARK).
 *  2. A release that a rollback has withdrawn is passed over until its content changes. The highest
 *     release left is the default under any policy.
 *  3. The default is replaced by the rules of replacement.c: if the new one cannot be loaded, the
 *     old one stays.
 *  4. If there is no old one, as at the start, the next lower one of the policy's is the default,
 *     until something changes in the model's directory.
 */
#pragma once

#include "coordinator/models/model_directory.h"

struct catalog;
struct releases;

struct releases *releases_create(void);
/* Listed models stay so. NULL is ignored. */
void releases_destroy(struct releases *releases);

/* Lists a model, and those of its releases that are served; as models_list. */
enum status releases_list(struct releases *releases, struct catalog *catalog,
                          const struct directory_model *model, struct error *error) WARN_UNUSED;
/* Unlists a model with its releases; false: the catalog did not list it. */
bool releases_unlist(struct releases *releases, struct catalog *catalog, const char *id);

/* The model's default release, of this number, cannot be loaded: lists the next lower one. False:
 * there is none. */
bool releases_fall_back(struct releases *releases, const char *id, const char *number);

/* `is_other`: the model's releases, if it has any, are chosen by another policy now. NULL: that of
 * its files. NOT_FOUND: the policy takes none of them. */
enum status releases_judge_policy(const struct releases *releases, const char *id,
                                  const struct release_policy *policy, bool *is_other,
                                  struct error *error) WARN_UNUSED;
/* Has the model's releases chosen by that policy until its files change; NULL: by the one of its
 * files. Returns as models_list. */
enum status releases_set_policy(struct releases *releases, const char *id,
                                const struct release_policy *policy,
                                struct error *error) WARN_UNUSED;

/* Withdraws the default release: the next lower one becomes the default, loads beside it and then
 * replaces it. The numbers of both are for the answer. NOT_FOUND: no such model;
 * FAILED_PRECONDITION: it has no releases, or no lower one. */
struct releases_step {
    char from[LOOK_RELEASE_BYTES];
    char to[LOOK_RELEASE_BYTES];
};
enum status releases_roll_back(struct releases *releases, const char *id,
                               struct releases_step *step, struct error *error) WARN_UNUSED;
