/* SPDX-License-Identifier: Apache-2.0 */
/* Views of the runner for people: each takes the lock once. */
#include "mesh/edge/runner_inside.h"

uint64_t
runner_see_models(struct mesh_runner *runner, uint64_t from, uint32_t count, const char *prefix,
                  void (*see)(void *context, const struct mesh_sight *sight), void *context)
{
    runner_lock(runner);
    uint64_t next = mesh_see_models(runner->mesh, (uint32_t)from, count, prefix, see, context);
    runner_unlock(runner);
    return next;
}

uint64_t
runner_see_vmodels(struct mesh_runner *runner, uint64_t from, uint32_t count, const char *prefix,
                   void (*see)(void *context, const char *id,
                               const struct mesh_vmodel_status *status),
                   void *context)
{
    runner_lock(runner);
    uint64_t next = mesh_see_vmodels(runner->mesh, (uint32_t)from, count, prefix, see, context);
    runner_unlock(runner);
    return next;
}

uint64_t
runner_see_copies(struct mesh_runner *runner, uint64_t from, uint32_t count,
                  void (*see)(void *context, const struct mesh_sight *sight), void *context)
{
    runner_lock(runner);
    uint64_t next = mesh_see_copies(runner->mesh, (uint32_t)from, count, see, context);
    runner_unlock(runner);
    return next;
}

bool
runner_see_model(struct mesh_runner *runner, const char *id,
                 void (*see)(void *context, const struct mesh_sight *sight), void *context)
{
    runner_lock(runner);
    bool found = mesh_explain_model(runner->mesh, id, see, context);
    runner_unlock(runner);
    return found;
}

const struct book_entry *
runner_where(const struct mesh_runner *runner, const char *instance)
{
    return book_find(&runner->book, instance);
}
