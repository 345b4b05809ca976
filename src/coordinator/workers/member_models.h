/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models that worker processes hold, as places use them: a table of functions that models/
 * fills (models/catalog.h) and the assembly hands over with the table of the lanes' workers.
 * models/ calls workers/ by name; workers/ calls models/ only through this table. `catalog` is the
 * pipeline's; NULL, that of a pipeline without models, is allowed everywhere and does nothing.
 * Loop thread.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"

struct catalog;
struct worker_pools;
struct pool_member;

struct member_models {
    /* The root that its workers may read; "": none. */
    const char *(*root)(const struct catalog *catalog);
    /* The folder of fetched models, likewise. */
    const char *(*cache)(const struct catalog *catalog);
    /* Checks that the lane has all models that it must have before it takes over.
     * FAILED_PRECONDITION: none of its stages loads models. UNAVAILABLE: some are missing;
     * worker_pools_check_complete is called again when its workers have more. */
    enum status (*complete)(struct catalog *catalog, const struct worker_pools *pools,
                            struct error *error);
    /* Called before a process is started in the place. */
    void (*on_start)(struct catalog *catalog, struct pool_member *member);
    void (*on_ready)(struct catalog *catalog, struct pool_member *member);
    /* The place's process is dead and reaped, and `member->ended_outside` says how. True: it died
     * of loading a model, so its requests are not charged. */
    bool (*on_death)(struct catalog *catalog, struct pool_member *member);
    /* The place is empty, and it is decided whether a process follows. */
    void (*on_left)(struct catalog *catalog, struct pool_member *member);
    /* Returns whether the place's process has an order to load or unload that it has not
     * answered. */
    bool (*is_busy)(const struct pool_member *member);
};
